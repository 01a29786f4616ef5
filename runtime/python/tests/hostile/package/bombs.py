"""Takes all there is of one thing."""

import asyncio
import os
import sys
import tempfile
import threading
import time
from typing import Any

MIB = 1 << 20


def fork_bomb(args: dict[str, Any]) -> Any:
    """Every process forks on; refused ones wait."""
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


def thread_bomb(args: dict[str, Any]) -> Any:
    """Threads that never end."""
    started = 0
    while True:
        try:
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
            started += 1
        except RuntimeError:
            return {"started": started}


def memory(args: dict[str, Any]) -> Any:
    """Memory that is really written; MemoryError is no reason to stop."""
    held = []
    while True:
        try:
            held.append(os.urandom(MIB) * 16)
        except MemoryError:
            time.sleep(0.01)


def disk(args: dict[str, Any]) -> Any:
    """Many files, as one file has a limit of its own."""
    written = 0
    piece = bytes(MIB)
    try:
        while written < 1 << 40:
            with tempfile.NamedTemporaryFile(delete=False) as file:
                for _ in range(8):
                    file.write(piece)
                    written += len(piece)
    except OSError as error:
        return {"written": written, "error": error.strerror}
    return {"written": written, "error": ""}


def fds(args: dict[str, Any]) -> Any:
    """Open files."""
    opened = []
    try:
        while len(opened) < 1 << 20:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        return {"opened": len(opened), "error": error.strerror}
    finally:
        for each in opened:
            os.close(each)
    return {"opened": len(opened), "error": ""}


def log_flood(args: dict[str, Any]) -> Any:
    """As many lines as fit, with everything a terminal would obey, and one line that does not end."""
    end = time.monotonic() + args.get("seconds", 1)
    line = ('\x1b[31mred\x1b[0m \x07\x00 {"level":"error"} ' + "x" * 900 + "\r\n") * 64
    sent = 0
    while time.monotonic() < end:
        sys.stdout.write(line)
        sys.stderr.write("y" * 65536)
        sent += len(line) + 65536
    return {"sent": sent}


def busy(args: dict[str, Any]) -> Any:
    """A thread that computes."""
    while True:
        pass


async def busy_async(args: dict[str, Any], ctx: Any) -> Any:
    """The event loop that computes: nothing is answered any more."""
    # Lets the message go out that tells the test of the beginning.
    await asyncio.sleep(0.1)
    while True:
        pass


MODES = {
    "fork_bomb": fork_bomb,
    "thread_bomb": thread_bomb,
    "memory": memory,
    "disk": disk,
    "fds": fds,
    "log_flood": log_flood,
    "busy": busy,
}
ASYNC = {"busy_async": busy_async}
