"""Cancels, soft and hard, and what a handler makes of them."""

import json

import pytest
from harness import run, wire, worker


def test_cancel_stops_an_async_handler():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.progress(1)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                print("cleaned up", ctx.cancelled)
                raise
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("progress")
                await stream.send(cancel=wire.CancelRequest(request_id="r1", reason="user"))
                events, end = await stream.end()
                assert [event.WhichOneof("payload") for event in events] == ["cancel", "failed"]
                assert events[0].cancel.accepted
                assert (end.code, end.yielded) == ("CANCELLED", False)
                assert await started.process.stdout.readline() == b"cleaned up True\n"

    run(test())


def test_cancel_stops_a_thread_that_computes_and_one_that_asks():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        def main(args, ctx):
            ctx.progress(1)
            if args["ask"]:
                ctx.elicit("ask")
            while True:
                pass
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                for ask in (False, True):
                    await stream.invoke({"ask": ask})
                    await stream.next("elicitation" if ask else "progress")
                    await stream.send(cancel=wire.CancelRequest(request_id="r1"))
                    assert (await stream.failure()).code == "CANCELLED"

    run(test())


def test_a_cancelled_thread_is_used_again_unharmed():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        def main(args, ctx):
            ctx.progress(1)
            n = 0
            while n < args["turns"]:
                n += 1
            return n
    """

    async def test():
        async with worker(source, pool={"concurrency": 1}) as started:
            await started.ready()
            async with started.session() as stream:
                for _ in range(20):
                    await stream.invoke({"turns": 10**12})
                    await stream.next("progress")
                    await stream.send(cancel=wire.CancelRequest(request_id="r1"))
                    assert (await stream.failure()).code == "CANCELLED"
                    await stream.invoke({"turns": 1000})
                    assert await stream.output() == 1000

    run(test())


def test_a_cancel_that_is_swallowed_still_ends_as_cancelled():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.progress(1)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return "as if nothing happened"
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("progress")
                await stream.send(cancel=wire.CancelRequest(request_id="r1"))
                assert (await stream.failure()).code == "CANCELLED"

    run(test())


def test_a_cancel_that_becomes_another_error_ends_as_cancelled():
    source = """
        import asyncio
        from asp_plugin import PluginError, plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.progress(1)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if args["own"]:
                    raise PluginError("OWN", "stopped")
                raise ValueError
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                for own in (True, False):
                    await stream.invoke({"own": own})
                    await stream.next("progress")
                    await stream.send(cancel=wire.CancelRequest(request_id="r1"))
                    assert (await stream.failure()).code == "CANCELLED"

    run(test())


def test_an_invoke_and_its_cancel_in_one_breath_end_once():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.elicit("ask")
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                for n in range(50):
                    await stream.invoke(request_id=f"r{n}")
                    await stream.send(cancel=wire.CancelRequest(request_id=f"r{n}"))
                    assert (await stream.failure(f"r{n}")).code == "CANCELLED"
                await stream.send(ping=wire.Ping(nonce="n"))
                assert (await stream.next()).pong.nonce == "n"

    run(test())


def test_a_soft_cancel_lets_the_step_finish():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.progress(1)
            while not ctx.cancelled:
                await asyncio.sleep(0.005)
            await ctx.chunk("the step is finished")
            await ctx.checkpoint({"step": 1})
            await ctx.chunk("never sent")
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("progress")
                soft = wire.CancelRequest(request_id="r1", mode=wire.CancelRequest.SOFT)
                await stream.send(cancel=soft)
                assert (await stream.next("chunk")).chunk.text == "the step is finished"
                seq = (await stream.next("checkpoint")).checkpoint.seq
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=seq))
                events, end = await stream.end()
                assert (len(events), end.code, end.yielded) == (1, "CANCELLED", False)

    run(test())


def test_what_a_handler_returns_after_a_soft_cancel_is_its_result():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.progress(1)
            while not ctx.cancelled:
                await asyncio.sleep(0.005)
            return {"partial": True}
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("progress")
                await stream.send(cancel=wire.CancelRequest(request_id="r1", mode=wire.CancelRequest.SOFT))
                _, end = await stream.end()
                assert json.loads(end.output.value) == {"partial": True}

    run(test())


CATCHES = """
    import asyncio
    from asp_plugin import Cancelled, plugin

    @plugin.tool(resumable=True)
    {prefix}def main(args, ctx):
        if args["act"] == "save":
            {wait}ctx.checkpoint({"step": 1})
        try:
            if args["act"] == "delegate":
                {wait}ctx.delegate("model", {})
            else:
                {wait}ctx.elicit("ask")
        except (asyncio.CancelledError, Cancelled):
            {wait}ctx.chunk("cleaned up")
            if args.get("raise"):
                raise ValueError("no way")
            return {"partial": [ctx.cancelled, ctx.preempted]}
"""


def catching(prefix):
    return CATCHES.replace("{prefix}", prefix).replace("{wait}", "await " if prefix else "")


def cancel(mode, reason=""):
    return wire.CancelRequest(request_id="r1", mode=mode, reason=reason)


@pytest.mark.parametrize("prefix", ("async ", ""))
@pytest.mark.parametrize("act", ("elicit", "delegate"))
def test_a_handler_that_catches_the_end_of_its_question_still_has_a_result(prefix, act):
    async def test():
        async with worker(catching(prefix)) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"act": act})
                await stream.next("elicitation", "delegation")
                await stream.send(cancel=cancel(wire.CancelRequest.SOFT))
                assert (await stream.next("chunk")).chunk.text == "cleaned up"
                assert await stream.output() == {"partial": [True, False]}

    run(test())


@pytest.mark.parametrize("prefix", ("async ", ""))
def test_a_handler_that_catches_the_end_of_its_checkpoint_still_has_a_result(prefix):
    wait = "await " if prefix else ""
    source = f"""
        import asyncio
        from asp_plugin import Cancelled, plugin

        @plugin.tool
        {prefix}def main(args, ctx):
            ends = 0
            for step in range(3):
                try:
                    {wait}ctx.checkpoint(step)
                except (asyncio.CancelledError, Cancelled):
                    ends += 1
            return ends
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("checkpoint")
                await stream.send(cancel=cancel(wire.CancelRequest.SOFT))
                for seq in (1, 2, 3):
                    await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=seq))
                    if seq < 3:
                        await stream.next("checkpoint")
                assert await stream.output() == 3

    run(test())


@pytest.mark.parametrize("prefix", ("async ", ""))
def test_an_error_after_a_soft_cancel_is_a_cancel_with_the_platforms_reason(prefix):
    async def test():
        async with worker(catching(prefix)) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"act": "elicit", "raise": True})
                await stream.next("elicitation")
                await stream.send(cancel=cancel(wire.CancelRequest.SOFT, "time is short"))
                failure = await stream.failure()
                assert (failure.code, failure.message) == ("CANCELLED", "time is short")
                assert not failure.yielded

    run(test())


@pytest.mark.parametrize("prefix", ("async ", ""))
def test_a_hard_cancel_ends_as_cancelled_whatever_the_handler_returns(prefix):
    async def test():
        async with worker(catching(prefix)) as started:
            await started.ready()
            async with started.session() as stream:
                for reason, said in (("the user left", "the user left"), ("", "the call was cancelled")):
                    await stream.invoke({"act": "elicit"})
                    await stream.next("elicitation")
                    await stream.send(cancel=cancel(wire.CancelRequest.HARD, reason))
                    failure = await stream.failure()
                    assert (failure.code, failure.message) == ("CANCELLED", said)

    run(test())


def test_a_hard_cancel_after_a_soft_one_stops_the_cleanup():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            try:
                await ctx.elicit("ask")
            except asyncio.CancelledError:
                await ctx.progress(1)
                await asyncio.sleep(3600)
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("elicitation")
                await stream.send(cancel=cancel(wire.CancelRequest.SOFT, "soft"))
                await stream.next("progress")
                await stream.send(cancel=cancel(wire.CancelRequest.HARD, "hard"))
                failure = await stream.failure()
                assert (failure.code, failure.message) == ("CANCELLED", "hard")

    run(test())


@pytest.mark.parametrize("prefix", ("async ", ""))
def test_a_preempted_call_is_not_cancelled_and_goes_on_to_its_checkpoint(prefix):
    wait = "await " if prefix else ""
    source = f"""
        from asp_plugin import plugin

        @plugin.tool(resumable=True)
        {prefix}def main(args, ctx):
            {wait}ctx.elicit("ask")
            {wait}ctx.chunk(structured=[ctx.cancelled, ctx.preempted])
            if ctx.cancelled:
                return "a part, as if it were all"
            {wait}ctx.checkpoint(1)
            {wait}ctx.chunk("never sent")
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("elicitation")
                await stream.send(cancel=cancel(wire.CancelRequest.PREEMPT, "a new version"))
                answer = wire.DeliverUserInput(
                    request_id="r1", elicitation_id="ask", action=wire.DeliverUserInput.ACCEPT
                )
                await stream.send(user_input=answer)
                assert (await stream.next("chunk")).chunk.structured.value == b"[false,true]"
                seq = (await stream.next("checkpoint")).checkpoint.seq
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=seq))
                events, end = await stream.end()
                assert len(events) == 1
                assert (end.code, end.message, end.yielded) == ("CANCELLED", "a new version", True)

    run(test())


@pytest.mark.parametrize("prefix", ("async ", ""))
def test_a_preempted_question_with_a_checkpoint_yields_and_a_soft_cancel_outranks_it(prefix):
    async def test(first, yielded):
        async with worker(catching(prefix).replace("return {", "raise #")) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"act": "save"})
                seq = (await stream.next("checkpoint")).checkpoint.seq
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=seq))
                await stream.next("elicitation")
                for mode in first:
                    await stream.send(cancel=cancel(mode))
                assert (await stream.failure()).yielded == yielded

    run(test((wire.CancelRequest.PREEMPT,), True))
    run(test((wire.CancelRequest.SOFT, wire.CancelRequest.PREEMPT), False))


def test_a_group_of_tasks_that_yields_is_not_taken_for_finished():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool(resumable=True)
        async def main(args, ctx):
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.checkpoint(1))
            return "all of it"
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                seq = (await stream.next("checkpoint")).checkpoint.seq
                await stream.send(cancel=cancel(wire.CancelRequest.PREEMPT))
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=seq))
                assert (await stream.failure()).yielded

    run(test())
