"""A context for unit tests of a handler, without a worker or a platform.

Owns the other end of a call: it keeps what the handler sends and answers what it asks. Keeps true: the context and
the call are the worker's own, so that every bound, code and conversion is the one of production.

    ctx = FakeContext(answers={"which_city": {"name": "Oslo"}}, delegations={"judge": "unavailable"})
    output = asyncio.run(call_tool(forecast, {"days": 3}, ctx))
    assert ctx.recorded.progress[0].percent == 50
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from . import json_text
from .call import Call
from .context import Context
from .convert import plain, reader
from .declared import Declared
from .errors import SecretError
from .fake_storage import FakeStorage
from .questions import ACTIONS
from .sync_context import SyncContext
from .values import Caller, Result, Resume, Secret
from .wire import plugin_pb2 as wire

# In place of an answer: nobody could be asked.
NO_ANSWER = ("expired", "unsupported", "too_large")
DISK_BYTES = 256 << 20
MODES = {
    "hard": wire.CancelRequest.HARD,
    "soft": wire.CancelRequest.SOFT,
    "preempt": wire.CancelRequest.PREEMPT,
}


class Progress(NamedTuple):
    percent: float
    message: str
    gauges: dict[str, float]


class Artifact(NamedTuple):
    """`data` is None for one that exists elsewhere."""

    uri: str
    type: str
    content_type: str
    description: str
    data: bytes | None


class Log(NamedTuple):
    level: str
    message: str


class Status(NamedTuple):
    phase: str
    metadata: Any


class Question(NamedTuple):
    id: str
    title: str
    message: str
    fields: list[dict[str, Any]]
    schema: Any
    url: str = ""


class Delegation(NamedTuple):
    id: str
    input: Any


class Recorded:
    """What the handler told and asked, each sort in its order."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        # Texts and JSON values.
        self.chunks: list[Any] = []
        self.artifacts: list[Artifact] = []
        self.logs: list[Log] = []
        self.statuses: list[Status] = []
        # The URIs.
        self.changed_resources: list[str] = []
        # The ids of pages where the user is done.
        self.completed_elicitations: list[str] = []
        # The states.
        self.checkpoints: list[Any] = []
        self.questions: list[Question] = []
        self.delegations: list[Delegation] = []


class FakeContext(Context):
    """The worker's context over a call that keeps what the handler tells, in `recorded`.

    `answers`: by elicitation, the fields of an accepted form, or decline, cancel, expired, unsupported.
    `delegations`: by delegate, its result, or as a text the word that says why there is none. What is in neither is
    undeclared. `facts`: request_id, task_id, caller, deadline, budget, token, idempotency_key, attributes, work_dir,
    `resume`, the state that an earlier execution saved, `secrets`, the granted ones by name, and `storage`,
    a FakeStorage that other calls share.
    """

    def __init__(
        self, answers: Mapping[str, Any] | None = None, delegations: Mapping[str, Any] | None = None, **facts: Any
    ) -> None:
        self.recorded = Recorded()
        self._work_dir: str = facts.pop("work_dir", None) or tempfile.gettempdir()
        saved = [facts.pop("resume")] if "resume" in facts else []
        self._secrets: dict[str, str] = facts.pop("secrets", {})
        storage = facts.pop("storage", None) or FakeStorage()
        platform = _Platform(self.recorded, dict(answers or {}), dict(delegations or {}), storage)
        call = platform.call = Call(
            _invoke(facts),
            platform.worker(),  # type: ignore[arg-type]
            platform.primitive(),  # type: ignore[arg-type]
            platform,  # type: ignore[arg-type]
        )
        for state in saved:
            call.resume, call.saved = Resume(state, 1, 2, Secret("resume")), True
        super().__init__(call)

    @property
    def work_dir(self) -> str:
        """A directory to write to; the system's own for such files unless the test names one."""
        return self._work_dir

    def secret(self, name: str) -> Secret:
        """Returns a secret that the test grants."""
        if name not in self._secrets:
            raise SecretError(name)
        return Secret(self._secrets[name])

    def cancel(
        self, mode: Literal["hard", "soft", "preempt"] = "hard", reason: str = "the call was cancelled"
    ) -> None:
        """Asks the call to stop: `hard` ends the handler at once, the others where it asks or saves next."""
        self._call.cancel(wire.CancelRequest(request_id=self.request_id, mode=MODES[mode], reason=reason))

    def expire(self) -> None:
        """The deadline passes."""
        self._call.stop("DEADLINE")


async def call_tool(handler: Callable[..., Any], arguments: Any, ctx: FakeContext) -> Any:
    """Calls the handler, async or plain, with JSON arguments as a worker does, and returns its output as JSON.

    PluginError INVALID_ARGUMENT where they do not fit the declared type; asyncio.CancelledError where it was stopped.
    """
    read = reader(Declared(handler).arguments)
    given = arguments if read is None else read(arguments, "")
    call = ctx._call
    if call.worker.is_async(handler):
        call._started, call._task = True, asyncio.ensure_future(handler(given, ctx))
        returned = await call._task
    else:
        blocking = SyncContext(ctx, asyncio.get_running_loop())
        returned = await asyncio.to_thread(handler, given, blocking)
    if isinstance(returned, Result):
        return returned._replace(output=plain(returned.output))
    return plain(returned)


def _invoke(facts: dict[str, Any]) -> wire.InvokeRequest:
    caller = Caller(*facts.pop("caller", ("acme", "alice", "")))
    deadline = facts.pop("deadline", None)
    invoke = wire.InvokeRequest(
        request_id=facts.pop("request_id", "call-1"),
        task_id=facts.pop("task_id", "task-1"),
        ctx=wire.Context(tenant_id=caller.tenant, user_id=caller.user, session_id=caller.session),
        budget=facts.pop("budget", None),
        access_token=facts.pop("token", ""),
        idempotency_key=facts.pop("idempotency_key", ""),
        attrs=facts.pop("attributes", {}),
    )
    if deadline is not None:
        invoke.deadline.FromDatetime(deadline)
    if facts:
        raise TypeError(f"a context has no {', '.join(facts)}")
    return invoke


class _Platform:
    """Stands for the session's way out: keeps each message in the author's words, and answers what asks."""

    call: Call

    def __init__(
        self,
        recorded: Recorded,
        answers: dict[str, Any],
        delegations: dict[str, Any],
        storage: FakeStorage,
    ) -> None:
        self._recorded = recorded
        self._storage = storage
        self._answers = answers
        self._delegations = delegations
        self._bytes = bytearray()

    def worker(self) -> SimpleNamespace:
        """What a call needs to know of its worker."""
        from .worker import Worker

        worker = SimpleNamespace(_async={})
        worker.is_async = lambda function: Worker.is_async(worker, function)  # type: ignore[arg-type]
        return worker

    def primitive(self) -> SimpleNamespace:
        """What it needs to know of its primitive."""
        manifest = SimpleNamespace(
            elicitations=self._answers, delegations=self._delegations, disk_bytes=DISK_BYTES
        )
        return SimpleNamespace(manifest=manifest, plugin=SimpleNamespace(resumable=True))

    async def put(self, message: wire.ServerMessage) -> None:
        """A message of the handler's; after a hard cancel there is none."""
        if self.call.wants_to_stop() in ("CANCELLED", "DEADLINE") and not self.call.soft:
            raise asyncio.CancelledError
        self.offer(message)

    def urgent(self, message: wire.ServerMessage) -> None:
        """An answer to the platform, which is the test."""

    def offer(self, message: wire.ServerMessage) -> bool:
        kind = message.WhichOneof("payload")
        getattr(self, f"_{kind}")(getattr(message, str(kind)))
        return True

    def _progress(self, said: wire.Progress) -> None:
        self._recorded.progress.append(Progress(said.percent, said.message, dict(said.gauges)))

    def _chunk(self, said: wire.ResultChunk) -> None:
        structured = said.HasField("structured")
        self._recorded.chunks.append(json_text.from_bytes(said.structured.value) if structured else said.text)

    def _status(self, said: wire.StatusUpdated) -> None:
        self._recorded.statuses.append(Status(said.phase, json_text.from_bytes(said.metadata.value)))

    def _elicitation_completed(self, said: wire.ElicitationCompleted) -> None:
        self._recorded.completed_elicitations.append(said.elicitation_id)

    def _resource_changed(self, said: wire.ResourceChanged) -> None:
        self._recorded.changed_resources.append(said.uri)

    def _log(self, said: wire.LogLine) -> None:
        level = said.severity or wire.LogLine.Level.Name(said.level).lower()
        self._recorded.logs.append(Log(level, said.message))

    def _artifact_data(self, said: wire.ArtifactData) -> None:
        self._bytes += said.data

    def _artifact(self, said: wire.ArtifactEmitted) -> None:
        data = bytes(self._bytes) if said.sha256 else None
        self._bytes.clear()
        about = (said.uri, said.type, said.content_type, said.description)
        self._recorded.artifacts.append(Artifact(*about, data))

    def _checkpoint(self, said: wire.Checkpoint) -> None:
        self._recorded.checkpoints.append(json_text.from_bytes(said.capsule)["state"])
        self.call.acknowledged(wire.CheckpointAck(seq=said.seq))

    def _storage_requested(self, said: wire.StorageRequested) -> None:
        self.call.storage_requests.deliver(self._storage.answer(self.call.invoke.ctx, said))

    def _elicitation(self, said: wire.ElicitationRequested) -> None:
        fields = [
            {"name": one.name, "type": one.type, "required": one.required, "label": one.label}
            for one in said.fields
        ]
        schema = json_text.from_bytes(said.requested_schema.value)
        about = (said.elicitation_id, said.title, said.message, fields, schema, said.url)
        self._recorded.questions.append(Question(*about))
        given = self._answers[said.elicitation_id]
        answer = wire.DeliverUserInput(elicitation_id=said.elicitation_id)
        if given in NO_ANSWER:
            answer.error = given
        elif isinstance(given, str):
            answer.action = ACTIONS.index(given)
        else:
            answer.fields.value = json_text.to_bytes(given)
        self.call.questions.deliver(f"user/{said.elicitation_id}", answer)

    def _delegation(self, said: wire.DelegationRequested) -> None:
        asked = said.conversation if said.HasField("conversation") else said.input
        self._recorded.delegations.append(Delegation(said.delegate_id, json_text.from_bytes(asked.value)))
        given = self._delegations[said.delegate_id]
        answer = wire.DeliverDelegationResult(correlation_id=said.correlation_id)
        if isinstance(given, str):
            answer.error = given
        else:
            answer.result.value = json_text.to_bytes(given)
        self.call.questions.deliver(f"delegate/{said.correlation_id}", answer)
