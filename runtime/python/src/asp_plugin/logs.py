"""Where a plugin's own logging goes.

Owns the root logging handler: a record made while a call runs becomes a line of that call; any other goes to
standard error, one line each. `print` needs nothing: the platform captures standard output.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from .call import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .call import Call


# Lines on their way from threads to the loop; a thread that logs without end must not fill the memory.
MAX_UNDERWAY = 1000


class CallHandler(logging.Handler):
    """Sends records to the current call's log. Works in any thread the call's context reaches."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        # Raised in `emit`, which the handler's lock guards, and lowered on the loop: it may be off by a few.
        self._underway = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises: a log line that cannot be written is not worth a call."""
        try:
            text = self.format(record)
            call = current.get()
            if call is None:
                self._stderr(text)
            elif _on(self._loop):
                self._to(call, record.levelno, text)
            elif self._underway < MAX_UNDERWAY:
                self._underway += 1
                self._loop.call_soon_threadsafe(self._arrived, call, record.levelno, text)
        except Exception:
            self.handleError(record)

    def _arrived(self, call: Call, level: int, text: str) -> None:
        self._underway -= 1
        self._to(call, level, text)

    def _to(self, call: Call, level: int, text: str) -> None:
        if not call.log(_level(level), text):
            self._stderr(text)

    @staticmethod
    def _stderr(text: str) -> None:
        print(text.replace("\n", "\\n"), file=sys.stderr)


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Makes the root logger write to the calls, from INFO on, and standard streams write whole lines."""
    root = logging.getLogger()
    handler = CallHandler(loop)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def _on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _level(number: int) -> str:
    if number >= logging.CRITICAL:
        return "critical"
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warn"
    return "info" if number >= logging.INFO else "debug"
