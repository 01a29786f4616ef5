"""The questions a call has open: to the user (elicitations) and to delegates.

Keeps true: at most 16 are open at once, each is answered once, and after a resume nobody is asked again what
was answered before the last checkpoint or since.
"""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from .wire.plugin_pb2 import DeliverDelegationResult, DeliverUserInput, Resume

MAX_OPEN = 16


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
        for given in resume.user_inputs:
            if not given.error:
                self._inputs.setdefault(given.elicitation_id, []).append(given)
        for result in resume.delegation_results:
            if not result.error:
                self._results[result.correlation_id] = result

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
