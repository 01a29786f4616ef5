"""Deadline, preemption, the end of the session, and threads that do not end."""

import json
import time

from harness import run, wire, worker


def test_preemption_saves_and_yields():
    source = """
        from asp_plugin import plugin

        @plugin.tool(resumable=True)
        async def main(args, ctx):
            for step in range(1, 100):
                await ctx.checkpoint({"step": step})
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                seq = (await stream.next("checkpoint")).checkpoint.seq
                preempt = wire.CancelRequest(request_id="r1", mode=wire.CancelRequest.PREEMPT)
                await stream.send(cancel=preempt)
                assert (await stream.next("cancel")).cancel.accepted
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=seq))
                failure = await stream.failure()
                assert (failure.code, failure.yielded) == ("CANCELLED", True)

    run(test())


def test_preemption_is_declined_by_what_cannot_resume():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            return (await ctx.elicit("ask")).action
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("elicitation")
                preempt = wire.CancelRequest(request_id="r1", mode=wire.CancelRequest.PREEMPT)
                await stream.send(cancel=preempt)
                assert not (await stream.next("cancel")).cancel.accepted
                answer = wire.DeliverUserInput(
                    request_id="r1", elicitation_id="ask", action=wire.DeliverUserInput.DECLINE
                )
                await stream.send(user_input=answer)
                assert await stream.output() == "decline"

    run(test())


def test_the_deadline_is_enforced():
    source = """
        import asyncio, time
        from asp_plugin import plugin

        @plugin.tool
        {prefix}def main(args, ctx):
            {body}
    """
    bodies = {"async ": "await asyncio.sleep(3600)", "": "while True: time.sleep(0.01)"}

    async def test(prefix):
        filled = source.replace("{prefix}", prefix).replace("{body}", bodies[prefix])
        async with worker(filled) as started:
            await started.ready()
            async with started.session() as stream:
                request = wire.InvokeRequest(request_id="r1")
                request.arguments.value = b"{}"
                request.deadline.FromNanoseconds(time.time_ns() + 200_000_000)
                await stream.send(invoke=request)
                assert (await stream.failure()).code == "DEADLINE"
                request.deadline.FromNanoseconds(time.time_ns() - 1)
                await stream.send(invoke=request)
                assert (await stream.failure()).code == "DEADLINE"

    for prefix in bodies:
        run(test(prefix))


def test_the_end_of_the_session_cancels_handlers_and_ends_the_worker():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.progress(1)
            try:
                await asyncio.sleep(3600)
            finally:
                print("cancelled")
    """

    async def test(close):
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("progress")
                await close(stream, started)
                assert await started.exit_code() == 0
            assert "cancelled" in await started.stdout()

    async def half_close(stream, _):
        await stream.call.done_writing()

    async def reset(stream, _):
        stream.call.cancel()

    async def terminate(stream, started):
        started.process.terminate()
        assert (await stream.failure()).code == "CANCELLED"

    for close in (half_close, reset, terminate):
        run(test(close))


def test_a_thread_that_ignores_the_cancel_does_not_hold_the_worker():
    source = """
        import time
        from asp_plugin import plugin

        @plugin.tool
        def main(args, ctx):
            ctx.progress(1)
            while True:
                try:
                    time.sleep(3600)
                except BaseException:
                    pass
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("progress")
                await stream.call.done_writing()
                assert await started.exit_code() == 0

    run(test())


def test_pongs_come_while_a_thread_computes():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        def main(args, ctx):
            ctx.progress(1)
            while True:
                pass
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("progress")
                for n in range(3):
                    await stream.send(ping=wire.Ping(nonce=json.dumps(n)))
                    assert (await stream.next("pong")).pong.nonce == json.dumps(n)

    run(test())
