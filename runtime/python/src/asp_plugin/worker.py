"""The worker process: `python -I -B -X faulthandler -m asp_plugin.worker`.

Owns start and end: reads the token and the manifest, loads the plugin, serves the socket, and leaves when the
session ends or SIGTERM comes. Keeps true: exit codes are 0 (asked to go), 78 (cannot be served) and 70 (the
plugin ended the process).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys

from . import blocking, early, failures, limits, loader, logs, manifest, service, vitals
from .errors import LoadError
from .handlers import plugin
from .schema import Schemas
from .threads import Threads
from .values import Session
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from .handlers import Served
    from .session import Session as Stream

VERSION = "0.3.0"
EXIT_CRASH = 70
EXIT_LOAD = 78
TOKEN_DIGITS = 64


class Primitive:
    """One primitive that this process serves: its handler, and what its calls are checked against."""

    def __init__(self, described: manifest.Manifest, served: Served) -> None:
        self.manifest = described
        self.plugin = served
        self._compiling: asyncio.Future[Schemas] | None = None
        self._schemas: Schemas | None = None
        self._reader: list[Any] = []

    async def schemas(self) -> Schemas:
        """The compiled schemas; ends the process when they cannot be compiled."""
        if self._schemas is None:
            if self._compiling is None:
                # In a thread: the supervisor is connecting meanwhile.
                loop = asyncio.get_running_loop()
                self._compiling = loop.run_in_executor(None, Schemas, self.manifest)
            try:
                self._schemas = await asyncio.shield(self._compiling)
            except LoadError as error:
                leave(EXIT_LOAD, f"cannot load the plugin: {error}")
        return self._schemas

    def reader(self) -> Any:
        """What makes the arguments the handler's declared type; None where it takes JSON as it is."""
        if not self._reader:
            from .declared import Declared, NoSchema

            try:
                declared = Declared(self.plugin.handler).arguments
            except NoSchema:
                # A name for type checkers only: the handler gets what a handler without types gets.
                declared = None
            if declared is not None:
                from .convert import reader

                declared = reader(declared)
            self._reader.append(declared)
        return self._reader[0]


class Worker:
    """What all calls of this process share."""

    def __init__(
        self, primitives: list[Primitive], session_hooks: tuple[Callable[..., Any], ...] = ()
    ) -> None:
        self.primitives = {primitive.manifest.id: primitive for primitive in primitives}
        self.concurrency = primitives[0].manifest.concurrency
        self.threads = Threads(self.concurrency)
        self.session: Stream | None = None
        self.session_ended = asyncio.Event()
        self._session_hooks = session_hooks
        self._async: dict[Any, bool] = {}

    def find(self, primitive: str) -> Primitive | None:
        """The primitive of this id; whatever the id, the only one where there is one."""
        if len(self.primitives) == 1:
            return next(iter(self.primitives.values()))
        return self.primitives.get(primitive)

    def is_async(self, function: Any) -> bool:
        """Whether a handler is awaited (its call returns at once) or needs a thread."""
        known = self._async.get(function)
        if known is None:
            awaited = getattr(function, "__call__", function)  # noqa: B004 - an object may be the handler
            known = any(
                test(one)
                for test in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
                for one in (function, awaited)
            )
            self._async[function] = known
        return known

    async def call(self, function: Any, *arguments: Any) -> Any:
        """Runs a hook or reader, async or in a thread."""
        if not self.is_async(function):
            return await self.threads.run(lambda: None, function, *arguments)
        returned = function(*arguments)
        return await returned if inspect.isawaitable(returned) else returned

    async def init(self, environment: dict[str, str]) -> wire.InitResponse:
        """Runs the session hooks and describes the worker; `ok` is false when one failed."""
        answer = self.description()
        session = Session(
            os.environ.get("ASP_WORKER_ID", ""), os.environ.get("ASP_WORK_DIR", ""), environment
        )
        for hook in self._session_hooks:
            try:
                await self.call(hook, session)
            except Exception as error:
                print(f"on_session_start: {type(error).__name__}: {error}", file=sys.stderr)
                answer.ok = False
                answer.message = "the plugin's session hook failed; its log says why"
        return answer

    def description(self) -> wire.InitResponse:
        """What the platform is told of this worker."""
        caps = {
            "shim": f"asp-plugin-python/{VERSION}",
            "runtime": "python/" + ".".join(map(str, sys.version_info[:3])),
            "checkpoint": self._resumable(),
        }
        return wire.InitResponse(ok=True, caps=caps)

    def _resumable(self) -> str:
        """Which primitives save and resume, as `caps` says it."""
        ids = [primitive.manifest.id for primitive in self.primitives.values() if primitive.plugin.resumable]
        if len(ids) == len(self.primitives):
            return "true"
        return f"of {' '.join(ids)}" if ids else "false"

    def crash(self, why: str) -> NoReturn:
        """Ends the process as a crash: one plugin's exit is never a clean one."""
        leave(EXIT_CRASH, why)


def leave(code: int, why: str = "") -> NoReturn:
    """Ends the process at once, without waiting for the plugin's threads."""
    if why:
        print(why.replace("\n", " "), file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise LoadError(f"{name} is not set")
    return value


def _token() -> str:
    """Reads the token and closes standard input, as the plugin has no business with it."""
    line = sys.stdin.buffer.readline(TOKEN_DIGITS + 2)
    token = line.strip().decode("ascii", "replace")
    if len(token) != TOKEN_DIGITS or not all(digit in "0123456789abcdef" for digit in token):
        raise LoadError("standard input holds no token")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return token


async def _serve(primitives: list[Primitive], path: str, token: str) -> None:
    loop = asyncio.get_running_loop()
    logs.install(loop)
    if failures.is_development():
        blocking.watch(loop)
    worker = Worker(primitives, plugin.session_hooks())
    loop.add_signal_handler(signal.SIGTERM, worker.session_ended.set)
    server = await service.start(worker, path, token)
    # Not before: the engine takes as long to import as the plugin, and readiness need not wait for it.
    for primitive in primitives:
        await primitive.schemas()
    await worker.session_ended.wait()
    if worker.session is not None:
        # Nothing is left to cancel unless SIGTERM came first.
        await worker.session.farewell()
    await server.stop(0)
    # Not by returning: asyncio would wait for threads a plugin may have left in a long call.
    leave(0)


def main() -> NoReturn:
    """Runs the worker of this process's environment."""
    try:
        described = manifest.read(_variable("ASP_PLUGIN_MANIFEST"))
        code, path = _variable("ASP_PLUGIN_CODE"), _variable("ASP_WORKER_SOCKET")
        token = _token()
        limits.apply(described[0])
        early.imported()
        vitals.begin()
        served = loader.load(described, code)
        primitives = [Primitive(one, its) for one, its in zip(described, served, strict=True)]
        asyncio.run(_serve(primitives, path, token))
    except LoadError as error:
        leave(EXIT_LOAD, f"cannot load the plugin: {error}")
    except SystemExit as error:
        leave(EXIT_CRASH, f"the plugin called sys.exit({error.code!r})")
    leave(EXIT_CRASH, "the event loop ended")


if __name__ == "__main__":
    main()
