"""What an unexpected exception of a plugin is called: for its author in the log, in development for the caller too.

Keeps true: outside of development a caller learns nothing of it. A limit of the sandbox is named with the key of the
spec that changes it.
"""

from __future__ import annotations

import errno
import os
import socket
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FOR_CALLERS = "the plugin failed; its log says why"
# Where the packages that its requirements name are.
DEPENDENCIES = "site-packages"
# Exceptions that are followed from one to what caused it.
MAX_CAUSES = 16

NETWORK = (
    "blocked: a plugin reaches only the hosts in security.allowedDomains of its spec, "
    "by HTTP through its proxy, and the services in security.allowedTcp"
)
PROCESSES = "blocked: processes and threads are limited by runtime.resources.pids of the spec"
MEMORY = "blocked: memory is limited by runtime.resources.memory of the spec"
DISK = "blocked: the work directory is limited by runtime.resources.disk of the spec"
LIMITS = {
    errno.EAFNOSUPPORT: NETWORK,
    errno.ENETUNREACH: NETWORK,
    errno.EAGAIN: PROCESSES,
    errno.ENOMEM: MEMORY,
    errno.EMFILE: "blocked: open files are limited by runtime.resources.files of the spec",
    errno.ENOSPC: DISK,
    errno.EDQUOT: DISK,
    errno.EFBIG: DISK,
}


def is_development() -> bool:
    """Whether the plugin's author is the only one who calls it."""
    return os.environ.get("ASP_DEVELOPMENT") == "true"


def text(error: BaseException) -> str:
    """What the caller is told."""
    if not is_development():
        return FOR_CALLERS
    said = f"{type(error).__name__}: {_message(error)}"
    return ": ".join(filter(None, (place(error), said, remedy(error))))


def trace(error: BaseException) -> str:
    """What the log is told."""
    lines = traceback.format_exception(error)
    return "".join(lines) + (remedy(error) or "")


def place(error: BaseException) -> str:
    """The file and line of the plugin's own code where it, or what caused it, was raised; "" if there is none."""
    for cause in _causes(error):
        frames = own_part(traceback.extract_tb(cause.__traceback__))
        if frames:
            return f"{frames[-1].filename}:{frames[-1].lineno}"
    return ""


def own_part(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """The frames of the plugin's own code, with paths below its package."""
    code = os.path.realpath(os.environ.get("ASP_PLUGIN_CODE", os.curdir))
    own = []
    for frame in frames:
        path = os.path.relpath(os.path.realpath(frame.filename), code)
        if not frame.filename.startswith("<") and not path.startswith((os.pardir, DEPENDENCIES + os.sep)):
            own.append(traceback.FrameSummary(path, frame.lineno, frame.name, line=frame.line))
    return own


def remedy(error: BaseException) -> str | None:
    """The limit of the sandbox that an exception met; None if it met none."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return NETWORK
        if isinstance(cause, MemoryError):
            return MEMORY
        if isinstance(cause, RuntimeError) and "start new thread" in _message(cause):
            return PROCESSES
        if isinstance(cause, OSError) and cause.errno in LIMITS:
            return LIMITS[cause.errno]
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""
