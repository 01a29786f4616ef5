"""What the states of the sweep do.

Owns the saved state: everything a fresh worker needs to go on, and nothing else. Keeps true: a branch or a
remediated item is saved before it is called finished, and what is finished is not done again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sweep_delegates
import sweep_report
import sweep_scan
from sweep_machine import SweepFault

from asp_plugin import Context, ElicitationError, Field

# Branch → the domain it scans.
BRANCHES = {"SCAN_MEETINGS": "meetings", "SCAN_CONTACT_CENTER": "contact_center", "SCAN_ADMIN": "admin"}
DEFAULT_DOMAINS = ["meetings", "contact_center", "admin"]
DEFAULT_THRESHOLD = 0.5
# State → how far the sweep is when it enters it.
PERCENT = {
    "VALIDATING_INPUT": (5, "Validating…"),
    "AWAITING_INPUT": (10, "Waiting for the legal hold policy…"),
    "INDEXING": (18, "Indexing…"),
    "SCANNING": (30, "Scanning…"),
    "AGGREGATING": (70, "Aggregating…"),
    "REMEDIATION_DECISION": (80, "Deciding on remediation…"),
    "REMEDIATING": (85, "Remediating…"),
    "FINALIZING": (95, "Writing the report…"),
    "COMPLETED": (100, "Done"),
}
SCANNED_PERCENT = 62
# A sweep has some thirty steps; the log is part of the saved state and that is bounded.
MAX_LOG_LINES = 200


class Sweep:
    """One call's sweep. Its actions have the names that `sweep_machine` gives them."""

    def __init__(self, arguments: dict[str, Any], ctx: Context) -> None:
        self.arguments = arguments
        self.ctx = ctx
        self.artifacts: list[dict[str, str]] = []
        self._drafts: dict[str, list[dict[str, Any]]] = {}
        self._unread: dict[str, int] = {}
        self.saved: dict[str, Any] = {
            "state": "INIT",
            "policy": arguments.get("legalHoldPolicyId"),
            "threshold": arguments.get("severityThreshold", DEFAULT_THRESHOLD),
            "clauses": [],
            "items": {},
            "not_held": [],
            "branches": {},
            "scanned": {},
            "scoring": {},
            "voice": {},
            "findings": [],
            "approved": {},
            "log": [],
        }
        if ctx.resume is not None and ctx.resume.state is not None:
            self.saved = ctx.resume.state

    # === what the machine tells

    async def entered(self, state: str) -> None:
        """A state begins."""
        await self.ctx.status(state)
        percent, message = PERCENT.get(state, (None, ""))
        if state == "SCANNING":
            # A resumed sweep has some of it behind itself.
            percent = self._scan_percent()
        if percent is not None:
            await self.ctx.progress(percent, message)

    async def save(self, state: str) -> None:
        """A state ended; the next one is where a fresh worker starts."""
        self._note(f"{self.saved['state']} -> {state}")
        self.saved["state"] = state
        await self.ctx.checkpoint(self.saved)

    def wants(self, branch: str) -> bool:
        """Whether the branch was asked for and is not finished."""
        return BRANCHES[branch] in self.saved["items"] and branch not in self.saved["branches"]

    async def branch_started(self, branch: str) -> None:
        """The side-effect counter: this line is written once for each execution of a branch."""
        attempt = self.ctx.resume.attempt if self.ctx.resume else 1
        await self.ctx.status(branch)
        await self.ctx.log("info", f"branch {branch} executed, attempt {attempt}")

    async def branch_finished(self, branch: str, done: str) -> None:
        """Saves the branch's findings, then says that it is finished."""
        domain = BRANCHES[branch]
        self.saved["branches"][branch] = self._drafts.pop(domain)
        self.saved["scanned"][domain] = self.saved["items"][domain]
        self._note(f"{branch} -> {done}")
        await self.ctx.checkpoint(self.saved)
        await self.ctx.status(done)
        await self.ctx.progress(self._scan_percent(), "Scanning…")
        await self.ctx.log("info", f"branch {branch} finished")

    # === VALIDATING_INPUT, AWAITING_INPUT

    async def checkTenantAccess(self) -> None:
        """Nobody sweeps another tenant."""
        tenant = self.ctx.caller.tenant
        if tenant and tenant != self.arguments["tenantId"]:
            raise SweepFault("the caller may not sweep this tenant")

    async def validateDateRange(self) -> None:
        """The range has an order."""
        start, end = self._range()
        if start > end:
            raise SweepFault("dateRange: `from` is after `to`")

    async def compileQuery(self) -> str | None:
        """Reads the query; without a policy, asks for one."""
        try:
            self.saved["clauses"] = sweep_scan.compile_query(self.arguments["query"])
        except ValueError as error:
            raise SweepFault(str(error)) from error
        return None if self.saved["policy"] else "NEEDS_INPUT"

    async def askForPolicy(self) -> str:
        """The elicitation gather_missing_policy."""
        fields = [Field("legalHoldPolicyId", "string", True, "Legal Hold Policy ID")]
        try:
            answer = await self.ctx.elicit(
                "gather_missing_policy", fields, title="Legal Hold Policy Required"
            )
        except ElicitationError as error:
            raise SweepFault(f"no legal hold policy, and nobody could be asked: {error.reason}") from error
        if not answer.accepted:
            return "CANCEL"
        policy = str(answer.fields.get("legalHoldPolicyId", "")).strip()
        if not policy:
            raise SweepFault("the legal hold policy is empty")
        self.saved["policy"] = policy
        return "INPUT_SUPPLIED"

    # === INDEXING, SCANNING

    async def indexSources(self) -> None:
        """Counts what there is to scan."""
        asked = self.arguments.get("domains", DEFAULT_DOMAINS)
        for domain in BRANCHES.values():
            if domain in asked:
                self.saved["items"][domain] = len(sweep_scan.load(domain, *self._range()))
        self.saved["not_held"] = sorted(set(asked) - set(BRANCHES.values()))

    async def listMeetings(self) -> None:
        """Scans the meetings by rule."""
        await self._scan("meetings")

    async def delegateLLMClassification(self) -> None:
        """Lets the model weigh what the rules found in the meetings."""
        drafts = self._drafts["meetings"]
        answer = await self._delegate("llm_pii_classifier", "meetings", drafts)
        self._blend(drafts, sweep_delegates.risk(answer))

    async def listCalls(self) -> None:
        """Scans the calls by rule."""
        await self._scan("contact_center")

    async def delegateVoiceRedactionSuggestions(self) -> None:
        """Asks which spans of the calls to mute; by rule, those lines in which something was found."""
        drafts = self._drafts["contact_center"]
        answer = await self._delegate("voice_redaction_suggester", "contact_center", drafts)
        if answer is not None:
            self.saved["voice"]["suggested"] = sweep_delegates.spans(answer)
        else:
            self.saved["voice"]["byRule"] = [
                {"item": draft["id"], "at": line["t"], "reason": ", ".join(sweep_scan.kinds_in(line["text"]))}
                for draft in drafts
                for line in draft["lines"]
                if sweep_scan.kinds_in(line["text"])
            ]
        self._blend(drafts, None)

    async def scanAuditLogs(self) -> None:
        """Scans the audit log by rule, and lets the recogniser name legal phrases."""
        await self._scan("admin")
        drafts = self._drafts["admin"]
        answer = await self._delegate("legal_phrase_ner", "admin", drafts)
        for phrase in sweep_delegates.phrases(answer):
            for draft in drafts:
                if phrase and phrase.lower() in draft["text"].lower() and "legal" not in draft["kinds"]:
                    draft["kinds"].append("legal")
        self._blend(drafts, None)

    async def _scan(self, domain: str) -> None:
        """Judges the items of a domain one by one; what the query looks for becomes a draft."""
        drafts = self._drafts[domain] = []
        items = sweep_scan.load(domain, *self._range())
        for done, item in enumerate(items, 1):
            kinds = sweep_scan.kinds_in(item["text"])
            if sweep_scan.asked_for(self.saved["clauses"], item["text"], kinds):
                drafts.append({**item, "kinds": kinds})
            self._unread[domain] = len(items) - done
            await self.ctx.progress(self._scan_percent(), "Scanning…", {f"{domain}_items": done})

    async def _delegate(self, delegate_id: str, domain: str, drafts: list[dict[str, Any]]) -> Any:
        """A delegate's answer, or None; the report says who judged."""
        if not drafts:
            self.saved["scoring"][domain] = {"by": "rules", "why": "nothing to ask about"}
            return None
        text = "\n".join(f"[{draft['id']}] {draft['text']}" for draft in drafts)
        answer, why = await sweep_delegates.ask(self.ctx, delegate_id, text)
        judged = {"by": "rules", "why": f"{delegate_id}: {why}"} if why else {"by": delegate_id}
        self.saved["scoring"][domain] = judged
        return answer

    @staticmethod
    def _blend(drafts: list[dict[str, Any]], risk: float | None) -> None:
        for draft in drafts:
            draft["score"] = sweep_scan.blend(sweep_scan.score(draft["kinds"]), risk)
            # What is saved and reported is masked; the lines stay behind.
            draft["excerpt"] = sweep_scan.mask(draft.pop("text"))
            del draft["lines"]

    # === AGGREGATING … FINALIZING

    async def mergeFindings(self) -> None:
        """Joins the branches, in the order of the table."""
        self.saved["findings"] = [
            {**draft, "domain": BRANCHES[branch], "redacted": False, "quarantined": False}
            for branch in BRANCHES
            for draft in self.saved["branches"].get(branch, ())
        ]

    async def scoreRisk(self) -> None:
        """Keeps what reaches the threshold, gravest first."""
        scoring, threshold = self.saved["scoring"], self.saved["threshold"]
        kept = [finding for finding in self.saved["findings"] if finding["score"] >= threshold]
        for finding in kept:
            finding["scoredBy"] = scoring[finding["domain"]]["by"]
        self.saved["findings"] = sorted(kept, key=lambda finding: (-finding["score"], finding["id"]))

    async def askForApproval(self) -> str:
        """The elicitation approve_remediation, if there is anything to approve."""
        actions = self.arguments.get("actions", {})
        wanted = {"redact": actions.get("redact", False), "quarantine": actions.get("quarantine", False)}
        if not any(wanted.values()) or not self.saved["findings"]:
            return "DECLINED"
        fields = [
            Field("approveRedaction", "boolean", False, "Approve redaction?"),
            Field("approveQuarantine", "boolean", False, "Approve quarantine?"),
        ]
        try:
            answer = await self.ctx.elicit("approve_remediation", fields, title="Approve remediation?")
        except ElicitationError as error:
            # Nothing is changed without a yes.
            await self.ctx.log("warn", f"no approval could be asked for: {error.reason}")
            return "DECLINED"
        self.saved["approved"] = {
            "redact": wanted["redact"] and answer.fields.get("approveRedaction") is True,
            "quarantine": wanted["quarantine"] and answer.fields.get("approveQuarantine") is True,
        }
        return "APPROVED" if any(self.saved["approved"].values()) else "DECLINED"

    async def applyRemediation(self) -> None:
        """Redacts and quarantines item by item; each is saved, so that none is treated twice."""
        approved = self.saved["approved"]
        for finding in self.saved["findings"]:
            if finding["redacted"] or finding["quarantined"]:
                continue
            finding["redacted"] = approved["redact"] and finding["kinds"] != ["legal"]
            # What is under a legal hold must stay as it is, out of reach.
            finding["quarantined"] = approved["quarantine"]
            if finding["redacted"] or finding["quarantined"]:
                await self.ctx.log("info", f"item {finding['id']} remediated")
                await self.ctx.checkpoint(self.saved)

    async def composeReport(self) -> None:
        """Emits the log and the table."""
        await self._artifact("log", "\n".join(self.saved["log"]), "progress-log", "text/plain")
        table = sweep_report.table(self.saved["findings"])
        await self._artifact("findings.csv", table, "csv", "text/csv")

    async def signReport(self) -> None:
        """Emits the signed report."""
        now = datetime.now(UTC).isoformat()
        report = sweep_report.compose(self.ctx.task_id, self.arguments, self.saved, now)
        await self._artifact("report.json", sweep_report.signed(report), "json", "application/json")
        self.saved["artifacts"] = self.artifacts

    def result(self, status: str) -> dict[str, Any]:
        """The output for a terminal state."""
        artifacts = self.saved.get("artifacts", [])
        summary = sweep_report.summary(self.saved)
        for artifact in artifacts:
            if artifact["type"] == "json":
                summary["reportUri"] = artifact["uri"]
        return {"taskId": self.ctx.task_id, "status": status, "summary": summary, "artifacts": artifacts}

    # === inside

    async def _artifact(self, name: str, data: str | bytes, type: str, content_type: str) -> None:
        description = {"log": "What the sweep did", "findings.csv": "The findings"}.get(
            name, "The signed report"
        )
        uri = await self.ctx.artifact(
            name, data, type=type, content_type=content_type, description=description
        )
        entry = {"type": type, "uri": uri, "contentType": content_type, "description": description}
        self.artifacts.append(entry)

    def _range(self) -> tuple[datetime, datetime]:
        span = self.arguments["dateRange"]
        return sweep_scan.parse_time(span["from"]), sweep_scan.parse_time(span["to"])

    def _scan_percent(self) -> float:
        total = sum(self.saved["items"].values())
        left = 0
        for branch, domain in BRANCHES.items():
            if self.wants(branch):
                left += self._unread.get(domain, self.saved["items"][domain])
        start = PERCENT["SCANNING"][0]
        return start + (SCANNED_PERCENT - start) * (1 - left / total if total else 1)

    def _note(self, line: str) -> None:
        log = self.saved["log"]
        if len(log) < MAX_LOG_LINES:
            log.append(f"{datetime.now(UTC).isoformat()} {line}")
