"""Calls from invoke to end: events, results, faults of the plugin."""

import asyncio
import json

from harness import run, wire, worker

OBJECT = {"type": "object"}


def kinds(events):
    return [event.WhichOneof("payload") for event in events]


def test_a_call_sends_its_events_in_order_and_completes():
    source = """
        from asp_plugin import Context, plugin

        @plugin.tool
        async def main(args, ctx: Context):
            await ctx.progress(10, "starting", {"rows": 3})
            await ctx.status("SCANNING", {"branch": 1})
            await ctx.log("warn", "look here")
            await ctx.resource_changed("page://7")
            await ctx.chunk("part one")
            await ctx.chunk(structured={"n": 1})
            return {"got": args["text"], "caller": list(ctx.caller), "budget": ctx.budget,
                    "token": repr(ctx.token), "revealed": ctx.token.reveal(), "attempt": ctx.resume is None}
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                ctx = wire.Context(tenant_id="org", user_id="ann", session_id="s")
                await stream.invoke({"text": "ü"}, ctx=ctx, budget=7, access_token="secret")
                events, end = await stream.end()
        assert kinds(events) == ["progress", "status", "log", "resource_changed", "chunk", "chunk", "completed"]
        assert events[0].progress.percent == 10
        assert events[0].progress.gauges["rows"] == 3
        assert events[0].progress.task_id == "t1"
        assert events[1].status.phase == "SCANNING"
        assert json.loads(events[1].status.metadata.value) == {"branch": 1}
        assert (events[2].log.level, events[2].log.message) == (wire.LogLine.WARN, "look here")
        assert events[3].resource_changed.uri == "page://7"
        assert events[4].chunk.text == "part one"
        assert json.loads(events[5].chunk.structured.value) == {"n": 1}
        assert json.loads(end.output.value) == {
            "got": "ü",
            "caller": ["org", "ann", "s"],
            "budget": 7,
            "token": "***",
            "revealed": "secret",
            "attempt": True,
        }

    run(test())


def test_a_plain_function_does_the_same_in_a_thread():
    source = """
        import logging, threading
        from asp_plugin import SyncContext, plugin

        @plugin.tool
        def main(args, ctx: SyncContext):
            ctx.progress(10, "starting")
            logging.getLogger("my").warning("from the thread")
            answer = ctx.elicit("ask")
            found = ctx.delegate("model", {"q": 1})
            return {"main": threading.current_thread() is threading.main_thread(),
                    "answer": answer.fields, "found": found}
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                line = (await stream.next("log")).log
                assert (line.level, line.message) == (wire.LogLine.WARN, "my: from the thread")
                await stream.next("elicitation")
                answer = wire.DeliverUserInput(request_id="r1", elicitation_id="ask")
                answer.fields.value = b'{"x":1}'
                await stream.send(user_input=answer)
                asked = (await stream.next("delegation")).delegation
                result = wire.DeliverDelegationResult(request_id="r1", correlation_id=asked.correlation_id)
                result.result.value = b"[2]"
                await stream.send(delegation_result=result)
                assert await stream.output() == {"main": False, "answer": {"x": 1}, "found": [2]}

    run(test())


def test_many_calls_share_the_stream():
    source = """
        import asyncio
        from asp_plugin import plugin
        arrived = 0
        everyone = asyncio.Event()

        @plugin.tool
        async def main(args, ctx):
            global arrived
            arrived += 1
            if arrived == 8:
                everyone.set()
            await everyone.wait()
            return args["n"]
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                for n in range(8):
                    await stream.invoke({"n": n}, request_id=f"r{n}")
                ends = {}
                while len(ends) < 8:
                    end = (await stream.next("completed")).completed
                    ends[end.request_id] = json.loads(end.output.value)
                assert ends == {f"r{n}": n for n in range(8)}

    run(test())


def test_more_calls_than_the_pool_allows_are_refused():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.elicit("ask")
    """

    async def test():
        async with worker(source, pool={"concurrency": 1}) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("elicitation")
                await stream.invoke(request_id="r2")
                assert (await stream.failure("r2")).code == "OVERLOADED"

    run(test())


def test_invalid_arguments_never_reach_the_handler():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            print("HANDLER RAN")
    """
    schema = {
        "type": "object",
        "properties": {"when": {"type": "string", "format": "date-time"}},
        "required": ["when"],
        "additionalProperties": False,
    }

    async def test():
        async with worker(source, inputSchema=schema) as started:
            await started.ready()
            async with started.session() as stream:
                for arguments, place in (({}, "when"), ({"when": "noon"}, "/when"), ([], "object")):
                    await stream.invoke(arguments)
                    failure = await stream.failure()
                    assert failure.code == "INVALID_ARGUMENT"
                    assert place in failure.message
                request = wire.InvokeRequest(request_id="r1")
                request.arguments.value = b"{nonsense"
                await stream.send(invoke=request)
                assert (await stream.failure()).code == "INVALID_ARGUMENT"
            assert "HANDLER RAN" not in await started.stdout()

    run(test())


def test_a_lone_surrogate_is_held_against_the_schema_as_the_replacement_character():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            return {"text": args["text"]}
    """
    text = {"type": "string", "pattern": "^cut", "maxLength": 5}
    schema = {"type": "object", "properties": {"text": text}}

    async def test():
        async with worker(source, inputSchema=schema, outputSchema=schema) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"text": "cut \ud800"})
                assert await stream.output() == {"text": "cut \ud800"}
                for misfit in ("\ud800", "cut \ud800\ud800"):
                    await stream.invoke({"text": misfit})
                    failure = await stream.failure()
                    assert failure.code == "INVALID_ARGUMENT"
                    assert "/text" in failure.message

    run(test())


def test_none_is_the_result_where_the_output_schema_takes_null():
    source = """
        from asp_plugin import Result, plugin

        @plugin.tool
        async def main(args, ctx):
            return Result(is_error=True) if args.get("fail") else None
    """

    async def sent(arguments, **schema):
        async with worker(source, **schema) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke(arguments)
                _, end = await stream.end()
                return end.output.value

    schema = {"outputSchema": {"type": ["object", "null"]}}
    assert run(sent({}, **schema)) == b"null"
    assert run(sent({"fail": True}, **schema)) == b""
    assert run(sent({})) == b""


def test_output_off_the_schema_is_refused_without_repeating_it():
    source = """
        from asp_plugin import Result, plugin

        @plugin.tool
        async def main(args, ctx):
            return {"wrong": {"n": "hunter2"}, "object": object(), "right": {"n": 1},
                    "error": Result(is_error=True, content=[{"type": "text", "text": "no"}], meta={"example.org/n": 1})
                    }[args["give"]]
    """
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def test():
        async with worker(source, outputSchema=schema) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"give": "wrong"})
                failure = await stream.failure()
                assert failure.code == "INVALID_OUTPUT"
                assert "/n" in failure.message
                assert "hunter2" not in str(failure)
                await stream.invoke({"give": "object"})
                assert (await stream.failure()).code == "INVALID_OUTPUT"
                await stream.invoke({"give": "right"})
                assert await stream.output() == {"n": 1}
                await stream.invoke({"give": "error"})
                _, end = await stream.end()
                assert end.is_error
                assert not end.output.value
                assert json.loads(end.content.value) == [{"type": "text", "text": "no"}]
                assert json.loads(end.meta.value) == {"example.org/n": 1}

    run(test())


def test_an_exception_is_internal_and_its_trace_goes_to_the_log():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            raise RuntimeError("password is hunter2")
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                events, end = await stream.end()
                assert (end.code, kinds(events)) == ("INTERNAL", ["log", "failed"])
                assert "hunter2" not in str(end)
                assert "Traceback" not in str(end)
                assert "Traceback" in events[0].log.message
                assert "hunter2" in events[0].log.message

    run(test())


def test_a_plugins_own_error_keeps_its_code_and_details():
    source = """
        from asp_plugin import PluginError, plugin

        @plugin.tool
        def main(args, ctx):
            room = 7 if args.get("small", True) else "x" * 1_000_000
            raise PluginError("NO_SUCH_ROOM", "there is no room 7", {"room": room})
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                failure = await stream.failure()
                assert (failure.code, failure.message) == ("NO_SUCH_ROOM", "there is no room 7")
                assert json.loads(failure.details.value) == {"room": 7}
                await stream.invoke({"small": False})
                failure = await stream.failure()
                assert (failure.code, failure.details.value) == ("NO_SUCH_ROOM", b"")

    run(test())


def test_an_error_whose_text_is_no_text_still_ends_the_call():
    source = """
        from asp_plugin import PluginError, plugin

        @plugin.tool
        async def main(args, ctx):
            raise PluginError("ODD", "\\ud800" + "ü" * 10_000)
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                failure = await stream.failure()
                assert failure.code == "ODD"
                assert failure.message.startswith("?ü")
                assert len(failure.message.encode()) <= 4096

    run(test())


def test_sys_exit_is_a_crash_with_code_70():
    source = """
        import sys
        from asp_plugin import plugin

        if {threaded}:
            @plugin.tool
            def main(args, ctx):
                sys.exit(0)
        else:
            @plugin.tool
            async def main(args, ctx):
                sys.exit(0)
    """

    async def test(threaded):
        async with worker(source.replace("{threaded}", str(threaded))) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                assert await started.exit_code() == 70
            line = 8 if threaded else 12
            assert f"the plugin called sys.exit(0) at main.py:{line}" in await started.stderr()

    run(test(False))
    run(test(True))


def test_prints_are_captured_line_by_line():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            print("one")
            print("two")
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.output()
                # Seen while the worker lives: the streams are flushed at each line.
                lines = [await asyncio.wait_for(started.process.stdout.readline(), 10) for _ in range(2)]
                assert lines == [b"one\n", b"two\n"]

    run(test())


def test_a_log_line_after_the_end_is_no_message_of_the_call(tmp_path):
    source = """
        import asyncio, logging, pathlib
        from asp_plugin import plugin

        kept = []

        @plugin.tool
        async def main(args, ctx):
            async def later():
                while not ended.exists():
                    await asyncio.sleep(0.001)
                logging.getLogger("late").warning("too late")
                await ctx.progress(99)
            ended = pathlib.Path(args["ended"])
            kept.append(asyncio.get_running_loop().create_task(later()))
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                ended = tmp_path / "ended"
                await stream.invoke({"ended": str(ended)})
                events, _ = await stream.end()
                assert kinds(events) == ["completed"]
                ended.touch()
                line = await asyncio.wait_for(started.process.stderr.readline(), 10)
                assert line == b"late: too late\n"
                await stream.send(ping=wire.Ping(nonce="n"))
                assert (await stream.next()).pong.nonce == "n"

    run(test())


def test_a_flood_of_log_lines_is_cut_and_the_call_goes_on():
    source = """
        import logging
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            for n in range(10_000):
                logging.info("%d", n)
            logging.info("x" * 100_000)
            return "done"
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                events, end = await stream.end()
                assert json.loads(end.output.value) == "done"
                assert len(events) < 1000
            assert "log lines found no room" in await started.stderr()

    run(test())


def test_a_message_larger_than_the_protocol_allows_is_refused_here():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            if args["where"] == "chunk":
                await ctx.chunk("x" * 5_000_000)
            return "x" * 5_000_000
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"where": "chunk"})
                assert (await stream.failure()).code == "TOO_LARGE"
                await stream.invoke({"where": "result"})
                assert (await stream.failure()).code == "INVALID_OUTPUT"

    run(test())
