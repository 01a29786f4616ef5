"""A real worker process and the platform's side of its stream.

Owns the life of the process: whatever a test does, it is gone afterwards. Every wait is bounded.
"""

import asyncio
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import textwrap
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from asp_plugin.wire import plugin_pb2 as wire

# A hang guard, far above what the slowest step takes on a loaded machine.
PATIENCE = 120.0
INTERPRETER = os.environ.get("ASP_PLUGIN_PYTHON", sys.executable)
ENTRY = ("-I", "-B", "-X", "faulthandler", "-m", "asp_plugin.worker")


def manifest(**changes):
    """The manifest of a tool that may ask and delegate."""
    return {
        "format": 1,
        "id": "probe",
        "version": "1.0.0",
        "kind": "tool",
        "mode": "plugin",
        "language": "python",
        "entrypoint": "main.py",
        "limits": {"maxRuntimeSeconds": 60, "diskBytes": 1_000_000},
        "pool": {"mode": "warm", "concurrency": 8},
        "elicitations": ["ask", "ask_more"] + [f"ask_{n}" for n in range(20)],
        "delegations": ["model"],
        **changes,
    }


class Worker:
    """A started worker."""

    def __init__(self, process, folder, token):
        self.process = process
        self.folder = folder
        self.token = token
        self.socket = folder / "run" / "worker.sock"

    def channel(self):
        return grpc.aio.insecure_channel(f"unix:{self.socket}")

    def metadata(self):
        return (("authorization", f"Bearer {self.token}"),)

    async def ready(self):
        async with asyncio.timeout(PATIENCE):
            while not self._accepts():
                if self.process.returncode is not None:
                    raise AssertionError(f"the worker ended: {await self.stderr()}")
                await asyncio.sleep(0.005)

    def _accepts(self):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    async def exit_code(self):
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def stderr(self):
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stderr.read()).decode()

    async def stdout(self):
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stdout.read()).decode()

    @asynccontextmanager
    async def session(self, *, init=True):
        async with self.channel() as channel:
            stream = Stream(channel, self.metadata())
            if init:
                await stream.send(init=wire.InitRequest())
                stream.init = (await stream.next()).init
            yield stream


class Stream:
    """The platform's end of a Session."""

    def __init__(self, channel, metadata, serialize=wire.ClientMessage.SerializeToString):
        self.call = channel.stream_stream(
            "/asp.plugin.v1.ToolPlugin/Session", serialize, wire.ServerMessage.FromString
        )(metadata=metadata)

    async def send(self, **payload):
        await self.call.write(wire.ClientMessage(**payload))

    async def next(self, *wanted):
        """The next message, or the next of the wanted sorts; None at the end of the stream."""
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await self.call.read()
                if message is grpc.aio.EOF:
                    return None
                if not wanted or message.WhichOneof("payload") in wanted:
                    return message

    async def invoke(self, arguments=None, request_id="r1", primitive="probe", **fields):
        request = wire.InvokeRequest(request_id=request_id, task_id="t1", primitive=primitive, **fields)
        request.arguments.value = json.dumps({} if arguments is None else arguments).encode()
        await self.send(invoke=request)

    async def end(self, request_id="r1"):
        """The events of a call up to its end, and that end."""
        events = []
        while True:
            message = await self.next()
            assert message is not None, f"the stream ended after {events}"
            payload = getattr(message, message.WhichOneof("payload"))
            if getattr(payload, "request_id", None) != request_id:
                continue
            events.append(message)
            if message.WhichOneof("payload") in ("completed", "failed"):
                return events, payload

    async def output(self, request_id="r1"):
        _, end = await self.end(request_id)
        assert isinstance(end, wire.Completed), f"{end.code}: {end.message}"
        return json.loads(end.output.value) if end.output.value else None

    async def failure(self, request_id="r1"):
        _, end = await self.end(request_id)
        assert isinstance(end, wire.Failed), f"completed: {end.output.value}"
        return end


@asynccontextmanager
async def worker(source, *, token_line=None, files=None, package=None, development=False, **changes):
    """Starts a worker of a plugin with this source (or of the folder `package`)."""
    folder = Path(tempfile.mkdtemp(prefix="asp-py-"))
    code = Path(package) if package else folder / "package"
    (folder / "run").mkdir()
    (folder / "work").mkdir()
    if not package:
        code.mkdir()
        (code / "main.py").write_text(textwrap.dedent(source))
    for name, text in (files or {}).items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(textwrap.dedent(text))
    (folder / "plugin.json").write_text(json.dumps(manifest(**changes)))
    token = secrets.token_hex(32)
    process = await asyncio.create_subprocess_exec(
        INTERPRETER,
        *ENTRY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder / "work",
        env={
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HOME": str(folder / "work"),
            "TMPDIR": str(folder / "work"),
            "ASP_WORKER_SOCKET": str(folder / "run" / "worker.sock"),
            "ASP_PLUGIN_MANIFEST": str(folder / "plugin.json"),
            "ASP_PLUGIN_CODE": str(code),
            "ASP_WORK_DIR": str(folder / "work"),
            "ASP_WORKER_ID": "w1",
            **({"ASP_DEVELOPMENT": "true"} if development else {}),
        },
    )
    process.stdin.write((token if token_line is None else token_line).encode() + b"\n")
    process.stdin.close()
    started = Worker(process, folder, token)
    try:
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def run(coroutine):
    """Runs one test's coroutine."""
    return asyncio.run(coroutine)


def described(source, **manifest):
    """What a worker answers to `describe`: the JSON of its completion, or its failure."""

    async def ask():
        async with worker(source, **manifest) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"any": "thing"}, describe=True)
                _, end = await stream.end()
                return end if hasattr(end, "code") else json.loads(end.output.value)

    return run(ask())


def called(source, arguments, **manifest):
    """How a call with these arguments ends."""

    async def call():
        async with worker(source, **manifest) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke(arguments)
                return (await stream.end())[1]

    return run(call())
