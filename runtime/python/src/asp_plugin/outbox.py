"""The way out of a worker: messages to the platform, in order, one at a time.

Keeps true: the queue is bounded; a sender waits for room, a log line that finds none is counted and dropped;
a pong or the answer to a cancel overtakes the rest, so that a busy worker does not look dead.
"""

from __future__ import annotations

import asyncio
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .wire.plugin_pb2 import ServerMessage

MAX_QUEUED = 256
# Some four messages of the largest size: more would only be memory.
MAX_QUEUED_BYTES = 16 * 1024 * 1024
# One pong a second, one answer a running call: more means that the platform stopped reading.
MAX_URGENT = 256


class Outbox:
    """Queue of one Session stream. Used on the event loop only."""

    def __init__(self) -> None:
        self._urgent: deque[ServerMessage] = deque(maxlen=MAX_URGENT)
        self._queued: deque[ServerMessage] = deque()
        self._queued_bytes = 0
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def urgent(self, message: ServerMessage) -> None:
        """Sends before everything that waits."""
        self._urgent.append(message)
        self._filled.set()

    def offer(self, message: ServerMessage) -> bool:
        """Queues when there is room, and says whether there was."""
        if len(self._queued) >= MAX_QUEUED or self._queued_bytes > MAX_QUEUED_BYTES:
            return False
        self._queued.append(message)
        self._queued_bytes += message.ByteSize()
        self._filled.set()
        return True

    async def put(self, message: ServerMessage) -> None:
        """Queues, waiting for room."""
        while not self.offer(message):
            room = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            try:
                await room
            except asyncio.CancelledError:
                # The room this sender was promised goes to the next one.
                if room.done() and not room.cancelled():
                    self._give_room()
                raise

    async def pump(self, write: Callable[[ServerMessage], Awaitable[None]]) -> None:
        """Writes what is queued until it is cancelled."""
        while True:
            while self._urgent or self._queued:
                if self._urgent:
                    await write(self._urgent.popleft())
                else:
                    message = self._queued.popleft()
                    self._queued_bytes -= message.ByteSize()
                    self._give_room()
                    await write(message)
            self._filled.clear()
            self._idle.set()
            await self._filled.wait()
            self._idle.clear()

    async def flush(self, seconds: float) -> None:
        """Waits until all is written, at most `seconds`."""
        # The pump has not seen what was queued in this turn of the loop.
        self._idle.clear()
        self._filled.set()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass

    def _give_room(self) -> None:
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
                return
