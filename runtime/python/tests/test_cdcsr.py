"""The sample plugin: its state machine, its documents, and that it survives the loss of its worker."""

import base64
import copy
import importlib
import json
import random
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from harness import run, wire, worker

SERVER = Path(__file__).resolve().parents[3] / "primitives" / "webex-compliance"
PACKAGE = SERVER / "plugins" / "cdcsr"
ASKED = {
    "tenantId": "org",
    "query": "PII OR restricted phrase",
    "dateRange": {"from": "2025-09-01T00:00:00Z", "to": "2025-09-30T23:59:59Z"},
}
REMEDIATE = {**ASKED, "actions": {"redact": True, "quarantine": True}}
# What a model said, as the platform hands it over.
CLASSIFIED = {"text": 'It holds:\n```json\n["national-id"]\n```', "model": "m"}


def installed():
    """The installed form of the spec: `nullable` is a union there."""
    spec = json.loads((SERVER / "cdcsr.json").read_text())
    schema = copy.deepcopy(spec["primitiveSchema"]["input_schema"])
    schema["properties"]["legalHoldPolicyId"] = {"type": ["string", "null"]}
    needs = spec["primitiveDependencies"]
    return {
        "id": "cdcsr",
        "version": spec["version"],
        "kind": "task",
        "entrypoint": spec["runtime"]["entrypoint"],
        "inputSchema": schema,
        "outputSchema": spec["primitiveSchema"]["output_schema"],
        "elicitations": [each["id"] for each in needs["elicitations"]],
        "delegations": [each["id"] for each in needs["delegations"]],
    }


@contextmanager
def imported(name):
    """A module of the plugin, imported without leaving bytecode in its package."""
    sys.path.insert(0, str(PACKAGE))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(PACKAGE))
        sys.dont_write_bytecode = before


class Platform:
    """Plays the platform for one call, over as many workers as it takes."""

    def __init__(self, arguments, *, answers=None, delegates=None, tenant="org"):
        self.arguments = arguments
        self.answers = {"gather_missing_policy": {"legalHoldPolicyId": "LHP-42"}, **(answers or {})}
        self.delegates = delegates or {}
        self.tenant = tenant
        self.events = []
        self.capsule, self.seq, self.attempt = b"", 0, 1
        self.inputs, self.results = [], []
        self.files = {}
        self.end = None

    async def run(self, loss_after=None):
        """Runs one worker to the end of the call, or kills it after so many messages."""
        async with worker("", package=PACKAGE, **installed()) as started:
            await started.ready()
            async with started.session() as stream:
                fields = {"ctx": wire.Context(tenant_id=self.tenant)}
                if self.attempt > 1:
                    fields["resume"] = wire.Resume(
                        capsule=self.capsule,
                        seq=self.seq,
                        attempt=self.attempt,
                        user_inputs=self.inputs,
                        delegation_results=self.results,
                    )
                await stream.invoke(self.arguments, **fields)
                seen = 0
                while self.end is None:
                    message = await stream.next()
                    seen += 1
                    self.events.append(message)
                    await getattr(self, f"on_{message.WhichOneof('payload')}", self.on_other)(stream, message)
                    if seen == loss_after:
                        self.attempt += 1
                        return self
        return self

    async def on_other(self, stream, message):
        pass

    async def on_completed(self, stream, message):
        self.end = message.completed

    async def on_failed(self, stream, message):
        self.end = message.failed

    async def on_artifact_data(self, stream, message):
        piece = message.artifact_data
        before = self.files.get(piece.uri, b"") if piece.offset else b""
        self.files[piece.uri] = before + piece.data

    async def on_checkpoint(self, stream, message):
        point = message.checkpoint
        assert point.seq > self.seq
        self.capsule, self.seq = point.capsule, point.seq
        await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=point.seq))

    async def on_elicitation(self, stream, message):
        given = self.answers.get(message.elicitation.elicitation_id, "DECLINE")
        answer = wire.DeliverUserInput(request_id="r1", elicitation_id=message.elicitation.elicitation_id)
        if isinstance(given, dict):
            answer.fields.value = json.dumps(given).encode()
        elif given == "DECLINE":
            answer.action = wire.DeliverUserInput.DECLINE
        else:
            answer.error = given
        self.inputs.append(answer)
        await stream.send(user_input=answer)

    async def on_delegation(self, stream, message):
        asked = message.delegation
        given = self.delegates.get(asked.delegate_id)
        answer = wire.DeliverDelegationResult(request_id="r1", correlation_id=asked.correlation_id)
        if given is None:
            answer.error = "unsupported"
        else:
            answer.result.value = json.dumps(given).encode()
        self.results.append(answer)
        await stream.send(delegation_result=answer)

    def output(self):
        assert isinstance(self.end, wire.Completed), self.end
        return json.loads(self.end.output.value)

    def signed(self):
        return json.loads(self.files["report://t1/report.json"])

    def phases(self):
        return [event.status.phase for event in self.events if event.HasField("status")]

    def lines(self):
        return [event.log.message for event in self.events if event.HasField("log")]

    def asked(self, kind, field):
        return [getattr(getattr(e, kind), field) for e in self.events if e.HasField(kind)]


SUMMARY = {
    "totalItems": 17,
    "flaggedItems": 11,
    "byDomain": {"meetings": 5, "contact_center": 3, "admin": 3},
    "remediation": {"redacted": 0, "quarantined": 0},
    "reportUri": "report://t1/report.json",
}
OUTER = [
    "INIT",
    "VALIDATING_INPUT",
    "AWAITING_INPUT",
    "INDEXING",
    "SCANNING",
    "AGGREGATING",
    "REMEDIATION_DECISION",
    "FINALIZING",
    "COMPLETED",
]


def test_the_sweep_walks_the_state_machine_and_reports():
    platform = run(Platform(ASKED).run())
    output = platform.output()
    assert (output["taskId"], output["status"], output["summary"]) == ("t1", "completed", SUMMARY)
    assert [artifact["type"] for artifact in output["artifacts"]] == ["progress-log", "csv", "json"]
    inner = [phase for phase in platform.phases() if phase.startswith(("SCAN_", "DONE_"))]
    assert [phase for phase in platform.phases() if phase not in inner] == OUTER
    assert sorted(inner) == [
        "DONE_ADMIN",
        "DONE_CC",
        "DONE_MEETINGS",
        "SCAN_ADMIN",
        "SCAN_CONTACT_CENTER",
        "SCAN_MEETINGS",
    ]
    percents = platform.asked("progress", "percent")
    assert percents == sorted(percents)
    assert {18.0, 62.0, 100.0} <= set(percents)
    # Nothing to approve: nobody is bothered.
    assert platform.asked("elicitation", "elicitation_id") == ["gather_missing_policy"]
    assert sorted(platform.asked("delegation", "delegate_id")) == [
        "legal_phrase_ner",
        "llm_pii_classifier",
        "voice_redaction_suggester",
    ]


def test_the_report_says_who_judged_and_its_signature_holds():
    delegates = {
        "llm_pii_classifier": CLASSIFIED,
        "voice_redaction_suggester": [{"from": "00:12", "to": "00:15", "reason": "card"}],
    }
    platform = run(Platform(ASKED, delegates=delegates).run())
    document = platform.signed()
    report, signature = document["report"], document["signature"]
    assert report["legalHoldPolicyId"] == "LHP-42"
    assert report["scoring"] == {
        "meetings": {"by": "llm_pii_classifier"},
        "contact_center": {"by": "voice_redaction_suggester"},
        "admin": {"by": "rules", "why": "legal_phrase_ner: unsupported"},
    }
    assert report["voiceRedactions"] == {"suggested": [{"from": "00:12", "to": "00:15", "reason": "card"}]}
    scores = {finding["id"]: (finding["score"], finding["scoredBy"]) for finding in report["findings"]}
    # 0.7 x 0.58 by rule and 0.3 x 0.9 by the model, which saw a national id.
    assert scores["m-04"] == (0.68, "llm_pii_classifier")
    assert scores["a-03"] == (0.65, "rules")
    text = json.dumps(document)
    for secret in ("4111 1111", "078-05-1120", "Tr0ub4dor", "dana@", "sk_test"):
        assert secret not in text
    signed = json.dumps(report, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature["publicKey"]))
    key.verify(base64.b64decode(signature["value"]), signed)
    with pytest.raises(InvalidSignature):
        key.verify(base64.b64decode(signature["value"]), signed + b" ")
    rows = platform.files["report://t1/findings.csv"].decode().split("\r\n")
    assert rows[0].startswith("id,domain,at,kinds")
    assert len(rows) == len(report["findings"]) + 2


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"text": '["phone"]', "json": ["phone"]}, ["phone"]),
        ({"text": "PII score 0.87…"}, {"score": 0.87}),
        ({"text": "Score: 1"}, {"score": 1.0}),
        ({"score": 0.5, "label": "low"}, {"score": 0.5, "label": "low"}),
        ({"text": "I see nothing [here"}, None),
        ({"text": "7", "json": 7}, None),
        (7, None),
    ],
)
def test_a_models_answer_is_read_as_json_or_by_the_score_it_names(answer, read):
    with imported("sweep_delegates") as delegates:
        assert delegates._read(answer) == read


def test_remediation_needs_a_yes():
    approve = {"approve_remediation": {"approveRedaction": True, "approveQuarantine": False}}
    summary = run(Platform(REMEDIATE, answers=approve).run()).output()["summary"]
    # Two findings are legal phrases only; those stay as they are.
    assert summary["remediation"] == {"redacted": 9, "quarantined": 0}
    for refusal in ("DECLINE", "unsupported"):
        platform = run(Platform(REMEDIATE, answers={"approve_remediation": refusal}).run())
        assert platform.output()["summary"]["remediation"] == {"redacted": 0, "quarantined": 0}
        assert "REMEDIATING" not in platform.phases()


def test_a_sweep_without_a_policy_is_cancelled_or_fails():
    platform = run(Platform(ASKED, answers={"gather_missing_policy": "DECLINE"}).run())
    assert (platform.output()["status"], platform.phases()[-1]) == ("cancelled", "CANCELLED")
    platform = run(Platform(ASKED, answers={"gather_missing_policy": "unsupported"}).run())
    assert (platform.output()["status"], platform.phases()[-1]) == ("failed", "FAILED")
    assert platform.end.is_error


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tenantId": "other"}, "tenant"),
        ({"dateRange": {"from": "2025-09-30T00:00:00Z", "to": "2025-09-01T00:00:00Z"}}, "dateRange"),
        ({"query": " OR "}, "query"),
    ],
)
def test_a_faulty_request_fails_before_anything_is_read(changes, words):
    platform = run(Platform({**ASKED, **changes}).run())
    assert platform.output()["status"] == "failed"
    assert words in platform.end.content.value.decode()
    assert "INDEXING" not in platform.phases()


def test_domains_and_threshold_narrow_the_sweep():
    narrow = {
        **ASKED,
        "domains": ["admin", "messaging"],
        "severityThreshold": 0.8,
        "legalHoldPolicyId": "LHP-1",
    }
    platform = run(Platform(narrow).run())
    assert platform.output()["summary"]["byDomain"] == {"admin": 2}
    assert platform.signed()["report"]["notHeld"] == ["messaging"]
    assert platform.asked("elicitation", "elicitation_id") == []


def without_times(platform):
    report = dict(platform.signed()["report"])
    del report["generatedAt"]
    return report


def test_a_sweep_survives_the_loss_of_its_worker_anywhere():
    approve = {"approve_remediation": {"approveRedaction": True, "approveQuarantine": True}}
    whole = run(Platform(REMEDIATE, answers=approve, delegates={"llm_pii_classifier": CLASSIFIED}).run())
    points = random.Random(2025).sample(range(1, len(whole.events)), 20)
    for point in points:
        platform = Platform(REMEDIATE, answers=approve, delegates={"llm_pii_classifier": CLASSIFIED})
        run(platform.run(loss_after=point))
        assert platform.end is None
        run(platform.run())
        assert without_times(platform) == without_times(whole), f"lost after message {point}"
        assert platform.output() == whole.output()
        # What was reported as finished before the loss was executed once, by the first worker.
        lines = platform.lines()
        for branch in ("SCAN_MEETINGS", "SCAN_CONTACT_CENTER", "SCAN_ADMIN"):
            assert lines.count(f"branch {branch} finished") <= 1
            executed = [line for line in lines if line.startswith(f"branch {branch} executed")]
            if f"branch {branch} finished" in lines:
                done = lines.index(f"branch {branch} finished")
                assert executed[-1] in lines[:done]
        asked = platform.asked("elicitation", "elicitation_id")
        assert len(asked) == len(set(asked)), "somebody was asked twice"


def test_signatures_are_those_of_the_rfc():
    # RFC 8032 section 7.1, tests 1 and 3.
    vectors = (
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
            "4a7c15e9716ed28dc027beceea1ec40a",
        ),
    )
    with imported("ed25519") as ed25519:
        for secret, public, message, signature in vectors:
            assert ed25519.public_key(bytes.fromhex(secret)).hex() == public
            assert ed25519.sign(bytes.fromhex(secret), bytes.fromhex(message)).hex() == signature
