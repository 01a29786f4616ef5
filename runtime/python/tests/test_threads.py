"""The threads that plain handlers run on, where the worker may have no more of them."""

from harness import run, wire, worker


def test_a_call_without_a_thread_is_refused_and_never_run_and_the_next_ones_are():
    source = """
        import threading
        from asp_plugin import plugin

        ran = []
        start = threading.Thread.start

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        @plugin.tool
        def main(args, ctx):
            ran.append(args["number"])
            if args["number"] == 1:
                threading.Thread.start = refuse
            if args["ask"]:
                ctx.elicit("ask")
            threading.Thread.start = start
            return ran
    """

    async def test():
        async with worker(source, pool={"concurrency": 2}) as started:
            await started.ready()
            async with started.session() as stream:

                async def ask(number, request_id):
                    await stream.invoke({"number": number, "ask": True}, request_id)
                    asked = (await stream.next("elicitation")).elicitation.elicitation_id
                    return wire.DeliverUserInput(request_id=request_id, elicitation_id=asked)

                answer = await ask(1, "r1")
                await stream.invoke({"number": 2, "ask": False}, "r2")
                assert (await stream.end("r2"))[1].code == "OVERLOADED"
                await stream.send(user_input=answer)
                assert await stream.output() == [1]
                # One that waits takes no other's thread.
                answer = await ask(3, "r3")
                await stream.invoke({"number": 4, "ask": False}, "r4")
                assert await stream.output("r4") == [1, 3, 4]
                await stream.send(user_input=answer)
                assert await stream.output("r3") == [1, 3, 4]

    run(test())
