"""What a worker refuses of its platform, and how it fails to start."""

import asyncio
import contextlib

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from harness import PATIENCE, Stream, run, wire, worker

QUIET = """
    from asp_plugin import plugin

    @plugin.tool
    async def main(args, ctx):
        return "done"
"""

METHODS = (
    "ToolPlugin/Session",
    "ToolPlugin/Health",
    "ResourcePlugin/Read",
    "PromptPlugin/Get",
    "NoSuch/Method",
)


async def status_of(call):
    async with asyncio.timeout(PATIENCE):
        return await call.code()


def test_no_method_works_without_the_token():
    async def test():
        async with worker(QUIET) as started:
            await started.ready()
            wrong = "0" * 64
            for metadata in (
                (),
                (("authorization", f"Bearer {wrong}"),),
                (("authorization", started.token),),
            ):
                async with started.channel() as channel:
                    for method in METHODS:
                        call = channel.unary_unary(f"/asp.plugin.v1.{method}")(b"", metadata=metadata)
                        assert await status_of(call) == grpc.StatusCode.UNAUTHENTICATED
            # None of them cost the worker its session.
            async with started.session() as stream:
                await stream.invoke()
                assert await stream.output() == "done"

    run(test())


def test_health_describes_the_worker():
    async def test():
        async with worker(QUIET) as started:
            await started.ready()
            async with started.channel() as channel:
                health = channel.unary_unary(
                    "/asp.plugin.v1.ToolPlugin/Health",
                    Empty.SerializeToString,
                    wire.InitResponse.FromString,
                )
                answer = await health(Empty(), metadata=started.metadata())
                assert answer.ok
                assert answer.caps["shim"].startswith("asp-plugin-python/")

    run(test())


COLLECTING = """
    import gc
    from asp_plugin import plugin

    kept = []

    @plugin.tool
    async def main(args, ctx):
        kept.extend([index] for index in range(100_000))
        gc.collect()
        return "done"
"""


def test_health_tells_of_collections_and_of_blocks_in_use():
    async def test():
        async with worker(COLLECTING) as started:
            await started.ready()
            async with started.session() as stream, started.channel() as channel:
                health = channel.unary_unary(
                    "/asp.plugin.v1.ToolPlugin/Health",
                    Empty.SerializeToString,
                    wire.InitResponse.FromString,
                )
                before = (await health(Empty(), metadata=started.metadata())).vitals
                await stream.invoke()
                assert await stream.output() == "done"
                after = (await health(Empty(), metadata=started.metadata())).vitals
                assert after.gc_count > before.gc_count
                assert after.gc_micros > before.gc_micros
                assert after.heap_blocks > before.heap_blocks + 100_000
                assert not after.HasField("heap_used_bytes"), "CPython does not count them"

    run(test())


def test_a_second_stream_is_refused_and_the_first_goes_on():
    async def test():
        async with worker(QUIET) as started:
            await started.ready()
            async with started.session() as stream, started.channel() as channel:
                second = Stream(channel, started.metadata())
                assert await status_of(second.call) == grpc.StatusCode.FAILED_PRECONDITION
                await stream.invoke()
                assert await stream.output() == "done"

    run(test())


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff\xff\xff",
        wire.ClientMessage(ping=wire.Ping(nonce="n")).SerializeToString(),
        wire.ClientMessage().SerializeToString(),
        wire.ClientMessage(init=wire.InitRequest(env={"x": "y" * 5_000_000})).SerializeToString(),
    ],
    ids=["garbage", "no init", "empty", "oversize"],
)
def test_a_first_frame_that_is_no_init_ends_stream_and_worker(frame):
    async def test():
        async with worker(QUIET) as started:
            await started.ready()
            async with started.channel() as channel:
                stream = Stream(channel, started.metadata(), serialize=None)
                # A frame too large is cut off while it is still being written.
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stream.call.write(frame)
                assert await status_of(stream.call) != grpc.StatusCode.OK
                assert await started.exit_code() == 0

    run(test())


def test_messages_for_unknown_calls_are_dropped():
    async def test():
        async with worker(QUIET) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.send(cancel=wire.CancelRequest(request_id="never"))
                await stream.send(user_input=wire.DeliverUserInput(request_id="never"))
                await stream.send(delegation_result=wire.DeliverDelegationResult(request_id="never"))
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="never"))
                await stream.send(ping=wire.Ping(nonce="n"))
                assert (await stream.next()).pong.nonce == "n"

    run(test())


def test_a_running_id_is_not_started_again():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            print("started")
            return (await ctx.elicit("ask")).action
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("elicitation")
                await stream.invoke()
                await stream.send(user_input=wire.DeliverUserInput(request_id="r1", elicitation_id="ask"))
                assert await stream.output() == "accept"
                await stream.send(ping=wire.Ping(nonce="n"))
                assert (await stream.next()).pong.nonce == "n"
            assert await started.stdout() == "started\n"
            assert "running already" in await started.stderr()

    run(test())


BROKEN = {
    "syntax": ("def (", {}, "SyntaxError"),
    "raises": ("raise ValueError('no\\nway')", {}, "ValueError"),
    "exits": ("import sys; sys.exit(0)", {}, "SystemExit"),
    "no handler": ("x = 1", {}, "no handler: mark its function with @plugin.tool"),
    "no library": ("import absent_library.part", {}, "in requirements.txt beside the code: absent_library"),
    "two handlers": (
        "from asp_plugin import plugin\n@plugin.tool\ndef a(x, c): ...\n@plugin.tool\ndef b(x, c): ...",
        {},
        "only a, b: runtime.entrypoint names another",
    ),
    "wrong kind": ("from asp_plugin import plugin\n@plugin.prompt\ndef a(x, c): ...", {}, "prompt"),
    "missing file": ("", {"entrypoint": "other.py"}, "not in the package"),
    "outside": ("", {"entrypoint": "../../etc/x.py"}, "outside"),
    "no function": ("x = 1", {"entrypoint": "main.py:absent"}, "absent"),
    "no module": ("", {"entrypoint": "absent.module:f"}, "runtime.entrypoint"),
    "bad schema": (QUIET, {"inputSchema": {"type": "nonsense"}}, "inputSchema"),
    "remote schema": (QUIET, {"outputSchema": {"$ref": "http://127.0.0.1:1/x"}}, "outputSchema"),
    "bad kind": (QUIET, {"kind": "teapot"}, "teapot"),
}


# Of an exception while importing the trace comes first.
TRACED = ("syntax", "raises", "exits", "no library")


@pytest.mark.parametrize("name", BROKEN)
def test_a_plugin_that_cannot_be_loaded_ends_with_78_and_the_reason_in_the_last_line(name):
    source, changes, words = BROKEN[name]

    async def test():
        async with worker(source, **changes) as started:
            assert await started.exit_code() == 78
            said = (await started.stderr()).strip()
            assert words in said.splitlines()[-1]
            assert name in TRACED or "\n" not in said

    run(test())


def test_a_worker_without_a_token_does_not_start():
    async def test():
        async with worker(QUIET, token_line="not a token") as started:
            assert await started.exit_code() == 78
            assert "no token" in await started.stderr()

    run(test())


@pytest.mark.parametrize(
    "entrypoint", ["main.py:run", "tools.deep:run", "tools.deep:decorated", "tools/deep.py:run"]
)
def test_an_entrypoint_may_name_file_module_and_function(entrypoint):
    files = {
        "tools/__init__.py": "",
        "tools/deep.py": """
            from asp_plugin import plugin
            from neighbour import WORD

            async def run(args, ctx):
                return WORD

            if {decorate}:
                @plugin.tool
                async def decorated(args, ctx):
                    return WORD
        """.replace("{decorate}", str(entrypoint.endswith("decorated"))),
        "neighbour.py": "WORD = 'done'",
    }
    source = """
        from neighbour import WORD

        async def run(args, ctx):
            return WORD
    """

    async def test():
        async with worker(source, files=files, entrypoint=entrypoint) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                assert await stream.output() == "done"

    run(test())


def test_the_session_hook_runs_before_the_first_call():
    source = """
        from asp_plugin import plugin
        seen = []

        @plugin.on_session_start
        async def opened(session):
            seen.append([session.worker_id, session.environment])
            if session.environment.get("fail"):
                raise ValueError("no database")

        @plugin.tool
        async def main(args, ctx):
            return seen
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session(init=False) as stream:
                await stream.send(init=wire.InitRequest(env={"region": "eu"}))
                assert (await stream.next()).init.ok
                await stream.invoke()
                assert await stream.output() == [["w1", {"region": "eu"}]]
        async with worker(source) as started:
            await started.ready()
            async with started.session(init=False) as stream:
                await stream.send(init=wire.InitRequest(env={"fail": "1"}))
                answer = (await stream.next()).init
                assert not answer.ok
                assert "database" not in answer.message

    run(test())


def test_the_token_and_standard_input_are_out_of_the_plugins_reach():
    source = """
        import os, sys
        from asp_plugin import plugin

        @plugin.tool
        def main(args, ctx):
            return [sorted(os.environ), os.read(0, 100).decode(), os.path.realpath("/proc/self/fd/0")]
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                names, read, target = await stream.output()
                assert not [name for name in names if "TOKEN" in name or "GRPC" in name]
                assert (read, target) == ("", "/dev/null")

    run(test())


def test_a_fork_of_the_plugins_has_no_threads_and_leaves_the_session_alone():
    source = """
        import os
        from asp_plugin import plugin

        @plugin.tool
        def main(args, ctx):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writing, str(len(os.listdir("/proc/self/task"))).encode())
                os._exit(0)
            os.waitpid(child, 0)
            ctx.progress(50)
            return int(os.read(reading, 10))
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                assert await stream.output() == 1

    run(test())
