"""The Session stream: many calls on one stream.

Owns the running calls. Refuses what the protocol forbids: no init first, more calls than the pool allows, a
second invoke with a running id. Keeps true: what arrives for a call that has ended is dropped.
"""

from __future__ import annotations

import asyncio
import sys

import grpc

from . import named_secrets
from .call import Call
from .outbox import Outbox
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .worker import Worker

# How long handlers may take to clean up after the stream is gone.
FAREWELL_SECONDS = 1.0
# How long their last messages may take; a peer that is gone takes none.
FLUSH_SECONDS = 0.2


class ProtocolFault(Exception):
    """The platform broke the protocol; the stream ends."""


class Session:
    """One stream's state."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._outbox = Outbox()
        self._calls: dict[str, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str | None, Callable[[Any], None]] = {
            "invoke": self._invoke,
            "cancel": self._cancel,
            "user_input": self._user_input,
            "delegation_result": self._delegation_result,
            "checkpoint_ack": self._checkpoint_ack,
            "storage_answer": self._storage_answer,
            "ping": self._ping,
        }

    async def serve(self, context: Any) -> None:
        """Reads the stream to its end; ProtocolFault when it makes no sense."""
        pump = asyncio.create_task(self._outbox.pump(context.write))
        try:
            await self._init(await self._read(context))
            while (message := await self._read(context)) is not None:
                payload = message.WhichOneof("payload")
                handler = self._handlers.get(payload)
                # A message this version does not know is none of its business.
                if handler is not None:
                    handler(getattr(message, payload))
        finally:
            await self.farewell()
            pump.cancel()
            # A message that could not be written has ended the stream already.
            await asyncio.gather(pump, return_exceptions=True)

    async def _read(self, context: Any) -> wire.ClientMessage | None:
        try:
            message = await context.read()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise ProtocolFault("not a message of the protocol") from error
        return None if message is grpc.aio.EOF else message

    async def _init(self, message: wire.ClientMessage | None) -> None:
        if message is None:
            return
        if message.WhichOneof("payload") != "init":
            raise ProtocolFault("the first message is not init")
        named_secrets.hold(message.init.secrets)
        answer = await self._worker.init(dict(message.init.env))
        await self._outbox.put(wire.ServerMessage(init=answer))

    def _invoke(self, invoke: wire.InvokeRequest) -> None:
        if not invoke.request_id:
            raise ProtocolFault("an invoke without a request id")
        if invoke.request_id in self._calls:
            # Answering would end the call that runs; the platform's own bookkeeping is at fault.
            print(f"{invoke.request_id} is running already; its second invoke is dropped", file=sys.stderr)
            return
        if len(self._calls) >= self._worker.concurrency:
            self._refuse(invoke, "OVERLOADED", "the worker runs as many calls as it may")
            return
        primitive = self._worker.find(invoke.primitive)
        if primitive is None:
            self._refuse(invoke, "UNSUPPORTED", f"the package does not serve {invoke.primitive}")
            return
        call = self._calls[invoke.request_id] = Call(invoke, self._worker, primitive, self._outbox)
        task = call.start()
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(call, done))

    def _refuse(self, invoke: wire.InvokeRequest, code: str, message: str) -> None:
        failed = wire.Failed(request_id=invoke.request_id, task_id=invoke.task_id, code=code, message=message)
        self._outbox.urgent(wire.ServerMessage(failed=failed))

    def _ended(self, call: Call, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        del self._calls[call.request_id]

    def _cancel(self, request: wire.CancelRequest) -> None:
        call = self._live(request.request_id)
        if call is not None:
            call.cancel(request)

    def _user_input(self, answer: wire.DeliverUserInput) -> None:
        call = self._live(answer.request_id)
        if call is not None:
            call.questions.deliver(f"user/{answer.elicitation_id}", answer)

    def _delegation_result(self, answer: wire.DeliverDelegationResult) -> None:
        call = self._live(answer.request_id)
        if call is not None:
            call.questions.deliver(f"delegate/{answer.correlation_id}", answer)

    def _checkpoint_ack(self, ack: wire.CheckpointAck) -> None:
        call = self._live(ack.request_id)
        if call is not None:
            call.acknowledged(ack)

    def _storage_answer(self, answer: wire.DeliverStorageAnswer) -> None:
        call = self._live(answer.request_id)
        if call is not None:
            call.storage_requests.deliver(answer)

    def _ping(self, ping: wire.Ping) -> None:
        self._outbox.urgent(wire.ServerMessage(pong=wire.Pong(nonce=ping.nonce)))

    def _live(self, request_id: str) -> Call | None:
        call = self._calls.get(request_id)
        return call if call is not None and not call.ended else None

    async def farewell(self) -> None:
        """Cancels what still runs and gives it a moment to clean up and to say so."""
        for call in list(self._calls.values()):
            call.stop("CANCELLED", "the worker is going")
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=FAREWELL_SECONDS)
            await self._outbox.flush(FLUSH_SECONDS)
