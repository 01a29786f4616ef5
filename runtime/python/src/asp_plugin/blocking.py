"""Reports where an async handler blocks the event loop: nobody answers the platform's pings then, which ends the worker.

For development. Keeps true: each block is reported once, before the platform ends the worker.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback

from . import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from types import FrameType

# The platform ends a worker that has not answered for three seconds.
AFTER_SECONDS = 1.5
EVERY_SECONDS = 0.5


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Watches the loop, which runs on this thread, from a thread that ends with the process."""
    watching = threading.Thread(
        target=_watch, args=(loop, threading.get_ident()), name="asp-blocking", daemon=True
    )
    watching.start()


def _watch(loop: asyncio.AbstractEventLoop, thread: int) -> None:
    while True:
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return  # the loop is closed
        if not answered.wait(AFTER_SECONDS):
            print(report(sys._current_frames().get(thread)), file=sys.stderr)
            answered.wait()
        time.sleep(EVERY_SECONDS)


def report(frame: FrameType | None) -> str:
    """What is said of a loop that is blocked in this frame."""
    own = failures.own_part(traceback.extract_stack(frame))
    where = f"{own[-1].filename}:{own[-1].lineno}: {own[-1].line}" if own else "outside of the plugin's own code"
    return (
        f"an async handler blocks its worker at {where}; the platform ends a worker that does not answer: "
        "write the handler with `def`, or use `await asyncio.to_thread(...)`"
    )
