"""The questions a call has open: to the user (elicitations) and to delegates.

Keeps true: at most 16 are open at once, each is answered once, and after a resume nobody is asked again what
was answered before the last checkpoint or since.
"""

from __future__ import annotations

import asyncio

from . import json_text
from .errors import DelegationError, ElicitationError
from .values import Answer
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from .values import Field
    from .wire.plugin_pb2 import DeliverDelegationResult, DeliverUserInput, Resume

MAX_OPEN = 16
ACTIONS = ("accept", "decline", "cancel")
# How long a delegation may take, where the plugin does not say.
DEFAULT_DELEGATION_SECONDS = 30.0


def elicitation(
    elicitation_id: str,
    fields: Sequence[Field] | None,
    schema: Mapping[str, Any] | None,
    message: str,
    title: str,
    url: str,
) -> wire.ElicitationRequested:
    """A question to the user, of no call yet."""
    title, message = json_text.text(title), json_text.text(message)
    event = wire.ElicitationRequested(elicitation_id=elicitation_id, title=title, message=message, url=url)
    for field in fields or ():
        event.fields.add(name=field.name, type=field.type, required=field.required, label=field.label)
    if schema is not None:
        event.requested_schema.value = json_text.to_bytes(schema)
    return event


def answered(given: DeliverUserInput) -> Answer:
    """What the user said; ElicitationError when nobody could be asked."""
    if given.error:
        raise ElicitationError(given.elicitation_id, given.error)
    accepted = given.action == wire.DeliverUserInput.ACCEPT
    values = json_text.from_bytes(given.fields.value) if accepted else None
    return Answer(ACTIONS[given.action], values or {})


def delegation(
    delegate_id: str, correlation: str, payload: bytes, timeout: float, member: str = "input"
) -> wire.DelegationRequested:
    """A question to a delegate, of no call yet; `timeout` is in seconds, `member` what the payload is."""
    event = wire.DelegationRequested(correlation_id=correlation, delegate_id=delegate_id)
    getattr(event, member).value = payload
    event.timeout.FromMilliseconds(int(timeout * 1000))
    return event


def conversation(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], tool_choice: str
) -> dict[str, Any]:
    """The part of a sampling request that code gives."""
    given: dict[str, Any] = {"messages": list(messages)}
    if tools:
        given["tools"] = list(tools)
    if tool_choice:
        given["toolChoice"] = {"mode": tool_choice}
    return given


def result(delegate_id: str, given: DeliverDelegationResult) -> Any:
    """What the delegate said; DelegationError when it said nothing."""
    if given.error:
        raise DelegationError(delegate_id, given.error)
    return json_text.from_bytes(given.result.value)


class Questions:
    """Open questions of one call, by elicitation id or correlation id."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[Any]] = {}
        self._ended = False
        self._slots = asyncio.Semaphore(MAX_OPEN)
        self._inputs: dict[str, list[DeliverUserInput]] = {}
        self._results: dict[str, DeliverDelegationResult] = {}
        self._delegated: dict[str, int] = {}
        # How many answers of each elicitation the handler has had; part of every checkpoint.
        self.answered: dict[str, int] = {}

    def restore(self, resume: Resume, answered: dict[str, int]) -> None:
        """Takes over the answers of an earlier worker; `answered` of them the saved state knows already."""
        self.answered = dict(answered)
        # What failed is asked again: the next answer may be another.
        self._take(resume, lambda given: not given.error)

    def take(self, given: Resume) -> None:
        """Takes over all that was answered to earlier calls of the same read, also that nobody answered."""
        self._take(given, lambda _: True)

    def _take(self, given: Resume, counts: Callable[[Any], bool]) -> None:
        for said in filter(counts, given.user_inputs):
            self._inputs.setdefault(said.elicitation_id, []).append(said)
        for said in filter(counts, given.delegation_results):
            self._results[said.correlation_id] = said

    def any_open(self) -> bool:
        return bool(self._open)

    def end(self) -> None:
        """Ends every wait for an answer, and for room to ask: CancelledError where it waits."""
        self._ended = True
        for answer in self._open.values():
            answer.cancel()

    def given(self, elicitation_id: str) -> DeliverUserInput | None:
        """The answer an earlier worker was given and the saved state does not know."""
        inputs = self._inputs.get(elicitation_id, ())
        had = self.answered.get(elicitation_id, 0)
        return inputs[had] if had < len(inputs) else None

    def had(self, elicitation_id: str) -> None:
        """The handler gets an answer, from memory or from the user."""
        self.answered[elicitation_id] = self.answered.get(elicitation_id, 0) + 1

    def result(self, correlation_id: str) -> DeliverDelegationResult | None:
        """The result an earlier worker was given for the same delegation."""
        return self._results.get(correlation_id)

    def correlation(self, delegate_id: str, payload: bytes) -> str:
        """An id that is the same when a resumed call delegates the same again."""
        # Here and not above: most plugins never delegate, and starting fast matters to all.
        import hashlib

        name = f"{delegate_id}-{hashlib.sha256(payload).hexdigest()[:16]}"
        count = self._delegated[name] = self._delegated.get(name, 0) + 1
        return f"{name}-{count}"

    async def ask(self, key: str, send: Callable[[], Awaitable[None]], timeout: float | None = None) -> Any:
        """Sends the question and waits for its answer. KeyError when the same one is open already;
        TimeoutError after `timeout` seconds."""
        async with self._slots:
            if self._ended:
                raise asyncio.CancelledError
            if key in self._open:
                raise KeyError(key)
            answer = self._open[key] = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout):
                    await send()
                    return await answer
            finally:
                del self._open[key]

    def deliver(self, key: str, answer: Any) -> None:
        """Hands over an answer; one that nobody waits for is dropped."""
        waiting = self._open.get(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
