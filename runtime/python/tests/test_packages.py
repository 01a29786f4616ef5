"""The examples, and the hostile plugin where no sandbox holds it: the positive control of every probe."""

import asyncio
import json
import os
import signal
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from harness import PATIENCE, run, wire, worker

ROOT = Path(__file__).resolve().parents[1]


@asynccontextmanager
async def installed(folder):
    """A worker of the plugin in `folder`."""
    described = json.loads((folder / "plugin.json").read_text())
    async with worker("", package=folder / "package", **described) as started:
        await started.ready()
        yield started


def test_the_example_tool_asks_greets_and_can_be_stopped():
    async def test():
        async with installed(ROOT / "examples" / "greet") as started, started.session() as stream:
            await stream.invoke({"name": "Ann"})
            await stream.next("elicitation")
            answer = wire.DeliverUserInput(request_id="r1", elicitation_id="which_language")
            answer.fields.value = b'{"language":"de"}'
            await stream.send(user_input=answer)
            events, end = await stream.end()
            output = json.loads(end.output.value)
            assert output == {"greeting": "Hallo, Ann!", "uri": "report://t1/greeting.txt"}
            assert [e.progress.percent for e in events if e.HasField("progress")][-1] == 100
            await stream.invoke({"name": "Ann", "pauseSeconds": 10})
            await stream.next("elicitation")
            await stream.send(user_input=answer)
            await stream.next("progress")
            await stream.send(cancel=wire.CancelRequest(request_id="r1"))
            assert (await stream.next("log")).log.message == "stopped after 1 letters"
            assert (await stream.failure()).code == "CANCELLED"

    run(test())


def test_the_example_resource_and_prompt_are_read():
    async def call(started, method, request, response, stream=False):
        async with started.channel() as channel:
            make = channel.unary_stream if stream else channel.unary_unary
            rpc = make(f"/asp.plugin.v1.{method}", type(request).SerializeToString, response.FromString)
            answer = rpc(request, metadata=started.metadata())
            return [each async for each in answer] if stream else await answer

    async def test():
        async with installed(ROOT / "examples" / "notes") as started:
            request = wire.ReadResourceRequest(uri="notes://welcome")
            request.arguments.value = b'{"name":"welcome"}'
            chunks = await call(started, "ResourcePlugin/Read", request, wire.ContentChunk, stream=True)
            assert chunks[0].text.startswith("# Welcome")
            request.arguments.value = b'{"name":"../notes"}'
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call(started, "ResourcePlugin/Read", request, wire.ContentChunk, stream=True)
            assert failure.value.code() == grpc.StatusCode.NOT_FOUND
        async with installed(ROOT / "examples" / "review") as started:
            request = wire.GetPromptRequest(name="review")
            request.arguments.value = b'{"code":"x = 1"}'
            prompt = await call(started, "PromptPlugin/Get", request, wire.GetPromptResponse)
            assert "x = 1" in json.loads(prompt.messages[0].content.value)["text"]

    run(test())


async def hostile(stream, mode, target="", **more):
    await stream.invoke({"mode": mode, "target": target, **more})
    return await stream.output()


def test_outside_a_sandbox_the_probes_get_through(tmp_path):
    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, address):
            self.transport.sendto(data, address)

    async def test():
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        tcp = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        datagrams, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
        udp = f"127.0.0.1:{datagrams.get_extra_info('sockname')[1]}"
        path = tmp_path / "s"
        await asyncio.start_unix_server(lambda reader, writer: writer.close(), path)
        name = f"asp-probe-{os.getpid()}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + name)
        listener.listen()
        (tmp_path / "f").write_text("x")
        # Its environment is a secret of this process, which the worker's user may read here.
        me = str(os.getpid())
        victim = await asyncio.create_subprocess_exec("sleep", "60")
        targets = [
            ("tcp", tcp),
            ("udp", udp),
            ("dns", "localhost"),
            ("unix", str(path)),
            ("abstract", name),
            ("read", str(tmp_path / "f")),
            ("write", str(tmp_path / "f")),
            ("list", str(tmp_path)),
            ("environ", me),
            ("proc", me),
            ("memory_of", me),
            ("own_environ", ""),
            ("processes", ""),
            ("unshare", ""),
            ("kill", str(victim.pid)),
        ]
        async with installed(ROOT / "tests" / "hostile") as started, started.session() as stream:
            for mode, target in targets:
                assert (await hostile(stream, mode, target))["outcome"] == "allowed", mode
            # And they notice a refusal.
            refused = (await hostile(stream, "unix", str(tmp_path / "absent")))["outcome"]
            assert refused == "denied"
        assert await victim.wait() == -signal.SIGKILL
        listener.close()
        server.close()
        datagrams.close()

    run(test())


ENDS = {
    "crash": -signal.SIGSEGV,
    "abort": -signal.SIGABRT,
    "hard_exit": 0,
    "exit": 70,
}


@pytest.mark.parametrize("mode", ENDS)
def test_a_death_is_seen_in_the_exit_code(mode):
    async def test():
        async with installed(ROOT / "tests" / "hostile") as started, started.session() as stream:
            await stream.invoke({"mode": mode})
            assert await started.exit_code() == ENDS[mode]
            said = await started.stderr()
            # faulthandler: a native crash leaves the Python stack in the log.
            assert ("Fatal Python error" in said) == (mode in ("crash", "abort"))

    run(test())


def test_what_takes_too_much_is_refused_by_the_workers_own_limits():
    async def test():
        async with installed(ROOT / "tests" / "hostile") as started, started.session() as stream:
            assert (await hostile(stream, "fds"))["opened"] < 256
            await stream.invoke({"mode": "recursion"})
            assert (await stream.failure()).code == "INTERNAL"
            await stream.invoke({"mode": "nonsense"})
            assert (await stream.failure()).code == "NO_SUCH_MODE"
            limits = Path(f"/proc/{started.process.pid}/limits").read_text()
            assert "Max core file size        0 " in limits

    run(test())


def test_a_flood_of_output_is_captured_and_the_worker_lives():
    async def test():
        async with installed(ROOT / "tests" / "hostile") as started, started.session() as stream:

            async def drain(pipe):
                size = 0
                while piece := await pipe.read(1 << 20):
                    size += len(piece)
                return size

            drained = asyncio.gather(drain(started.process.stdout), drain(started.process.stderr))
            sent = (await hostile(stream, "log_flood", seconds=0.2))["sent"]
            await stream.call.done_writing()
            assert await started.exit_code() == 0
            assert sum(await drained) >= sent

    run(test())


def test_a_busy_event_loop_sends_no_pong():
    async def test():
        async with installed(ROOT / "tests" / "hostile") as started, started.session() as stream:
            await stream.invoke({"mode": "busy_async"})
            await stream.next("progress")
            # The handler lets the loop turn for a moment before it begins.
            with pytest.raises(TimeoutError):
                for n in range(10_000):
                    async with asyncio.timeout(1):
                        await stream.send(ping=wire.Ping(nonce=str(n)))
                        await stream.call.read()
            async with asyncio.timeout(PATIENCE):
                started.process.kill()
                await started.process.wait()

    run(test())
