"""What an async handler sees of its call.

Owns the author's half of the protocol: each method sends one sort of event, and those that ask wait for the
answer. Refuses undeclared questions before they are sent. `SyncContext` is its blocking twin.
"""

from __future__ import annotations

import math
import os
import time
from datetime import UTC, datetime

from . import json_text
from .artifacts import emit
from .errors import DelegationError, ElicitationError, PluginError
from .named_secrets import find
from .questions import DEFAULT_DELEGATION_SECONDS, answered, conversation, delegation, elicitation, result
from .storage import Storage
from .values import Caller, Secret
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from .call import Call
    from .values import Answer, Field, Resume

    Level = Literal[
        "trace", "debug", "info", "notice", "warn", "warning", "error", "critical", "alert", "emergency"
    ]

# The platform ends a delegation itself; the worker's own clock only helps when that answer is lost.
DELEGATION_SLACK_SECONDS = 2.0


class Context:
    """The call's facts and its line to the platform. Its methods may be used by several tasks at once."""

    def __init__(self, call: Call) -> None:
        self._call = call
        invoke = call.invoke
        self.request_id: str = invoke.request_id
        self.task_id: str = invoke.task_id or invoke.request_id
        self.caller = Caller(invoke.ctx.tenant_id, invoke.ctx.user_id, invoke.ctx.session_id)
        # Scoped, short-lived, for the services the plugin may call; empty when there is none.
        self.token = Secret(invoke.access_token)
        self.idempotency_key: str = invoke.idempotency_key
        # Keys and values that outlive the call, where the spec says `storage: true`.
        self.storage = Storage(call)
        # Trace context (`traceparent`) and the like.
        self.attributes: dict[str, str] = dict(invoke.attrs)

    @property
    def cancelled(self) -> bool:
        """Whether the call is to end: return what there is. A preempted one goes on, elsewhere."""
        return self._call.cancelled

    @property
    def preempted(self) -> bool:
        """Whether the call is to save: its next checkpoint ends it here, to go on elsewhere."""
        return self._call.preempted

    @property
    def deadline(self) -> datetime | None:
        """Absolute end of the call; the handler is cancelled then."""
        invoke = self._call.invoke
        if not invoke.HasField("deadline"):
            return None
        return datetime.fromtimestamp(invoke.deadline.ToNanoseconds() / 1e9, UTC)

    @property
    def budget(self) -> int | None:
        """Calls left in the caller's tightest rate limit; None without one."""
        invoke = self._call.invoke
        return int(invoke.budget) if invoke.HasField("budget") else None

    @property
    def resume(self) -> Resume | None:
        """Where an earlier worker was lost; None in a call's first execution."""
        return self._call.resume

    @property
    def work_dir(self) -> str:
        """Private, writable, bounded; gone with the worker."""
        return os.environ.get("ASP_WORK_DIR", os.getcwd())

    def secret(self, name: str) -> Secret:
        """Returns the operator's secret of this name, which the spec lists in `runtime.secrets`.

        SecretError when the operator does not grant it to the primitive.
        """
        return find(name)

    async def progress(
        self, percent: float, message: str = "", gauges: Mapping[str, float] | None = None
    ) -> None:
        """Says how far the call is: 0..100, what it does, and any numbers of its own."""
        if math.isnan(percent):
            raise ValueError("percent is not a number")
        event = wire.Progress(
            request_id=self.request_id,
            task_id=self._call.task_id,
            percent=min(max(float(percent), 0.0), 100.0),
            message=json_text.text(message),
            gauges=gauges,
        )
        event.at.FromNanoseconds(time.time_ns())
        await self._call.send(progress=event)

    async def chunk(self, text: str = "", *, structured: Any = None, is_error: bool = False) -> None:
        """Sends a part of the result: text, or any JSON value."""
        part = wire.ResultChunk(
            request_id=self.request_id, task_id=self._call.task_id, text=json_text.text(text), is_error=is_error
        )
        if structured is not None:
            part.structured.value = json_text.to_bytes(structured)
        await self._call.send(chunk=part)

    async def artifact(
        self,
        name: str,
        data: bytes | str | os.PathLike[str] = b"",
        *,
        uri: str = "",
        type: str = "file",
        content_type: str = "application/octet-stream",
        description: str = "",
    ) -> str:
        """Stores a file of the result and returns its URI.

        `data` is bytes, text, or the path of a file (a Path). With `uri`, the absolute URI of something that
        exists elsewhere (https), nothing is stored. ArtifactError when the plugin may not store it.
        """
        event = wire.ArtifactEmitted(type=type, uri=uri, content_type=content_type, description=description)
        return await emit(self._call, name, data, event)

    async def log(self, level: Level, message: str) -> None:
        """Writes a line to the call's log; at most 16 KiB of it are kept. The levels are MCP's eight, `warn` and `trace`."""
        self._call.log(level, message)

    async def status(self, phase: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Names the state the plugin is in, for observers."""
        event = wire.StatusUpdated(
            request_id=self.request_id,
            task_id=self._call.task_id,
            status=wire.StatusUpdated.WORKING,
            phase=json_text.text(phase),
        )
        if metadata is not None:
            event.metadata.value = json_text.to_bytes(metadata)
        await self._call.send(status=event)

    async def resource_changed(self, uri: str) -> None:
        """Says that a resource of the server through which the call came reads otherwise than before: clients of the
        caller's org that subscribed to it are told."""
        await self._call.send(resource_changed=wire.ResourceChanged(request_id=self.request_id, uri=uri))

    async def elicitation_completed(self, elicitation_id: str) -> None:
        """Says that the user has done on the page what was to be done there: clients that can be told so are."""
        done = wire.ElicitationCompleted(request_id=self.request_id, elicitation_id=elicitation_id)
        await self._call.send(elicitation_completed=done)

    async def elicit(
        self,
        elicitation_id: str,
        fields: Sequence[Field] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        message: str = "",
        title: str = "",
        url: str = "",
    ) -> Answer:
        """Asks the user, and waits. The spec's own fields and text are used for what is not given.

        Where the spec names a page (`primitiveSchema.url`) the user is sent there, or to `url` below it: the answer says
        whether the user agreed, and what is done there your service knows. Then say `elicitation_completed`.

        ElicitationError when nobody could be asked; a declined or cancelled question is an Answer.
        """
        call = self._call
        if elicitation_id not in call.primitive.manifest.elicitations:
            raise ElicitationError(elicitation_id, "undeclared")
        given = call.questions.given(elicitation_id)
        if given is None:
            await call.halt_here()
            event = elicitation(elicitation_id, fields, schema, message, title, url)
            event.request_id, event.task_id = self.request_id, call.task_id
            try:
                given = await call.questions.ask(
                    f"user/{elicitation_id}", lambda: call.send(elicitation=event)
                )
            except KeyError:
                raise PluginError("ALREADY_ASKED", f"elicitation {elicitation_id} is open") from None
        answer = answered(given)
        call.questions.had(elicitation_id)
        return answer

    async def delegate(
        self, delegate_id: str, input: Any, *, timeout: float = DEFAULT_DELEGATION_SECONDS
    ) -> Any:
        """Hands `input` (any JSON value) to a model or another primitive and returns its result.

        `timeout` is in seconds. DelegationError when there is no result.
        """
        return await self._delegate(delegate_id, input, timeout)

    async def converse(
        self,
        delegate_id: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "",
        timeout: float = DEFAULT_DELEGATION_SECONDS,
    ) -> Any:
        """Asks a model, which may use `tools` (MCP's `{name, description, inputSchema}`), by a delegate whose
        spec says `sampling.tools`. The answer's `content` has its blocks.

        Where its `stopReason` is `toolUse`, run what the `tool_use` blocks name, add the answer and a user message of
        `tool_result` blocks to `messages`, and ask again. `tool_choice`: auto, required or none.
        """
        given = conversation(messages, tools, tool_choice)
        return await self._delegate(delegate_id, given, timeout, "conversation")

    async def _delegate(self, delegate_id: str, input: Any, timeout: float, member: str = "input") -> Any:
        call = self._call
        if delegate_id not in call.primitive.manifest.delegations:
            raise DelegationError(delegate_id, "undeclared")
        payload = json_text.to_bytes(input)
        correlation = call.questions.correlation(delegate_id, payload)
        answer = call.questions.result(correlation)
        if answer is None:
            await call.halt_here()
            event = delegation(delegate_id, correlation, payload, timeout, member)
            event.request_id, event.task_id = self.request_id, call.task_id
            try:
                answer = await call.questions.ask(
                    f"delegate/{correlation}",
                    lambda: call.send(delegation=event),
                    timeout + DELEGATION_SLACK_SECONDS,
                )
            except TimeoutError:
                raise DelegationError(delegate_id, "expired") from None
        return result(delegate_id, answer)

    async def checkpoint(self, state: Any) -> None:
        """Saves `state` (any JSON value, at most 64 KiB) and returns when it is stored.

        After a loss the handler runs again with it as `ctx.resume.state`. CheckpointError when it was not
        stored. A call that was asked to yield or to finish its step ends here.
        """
        await self._call.checkpoint(state)
