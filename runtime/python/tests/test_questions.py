"""Elicitations, delegations, checkpoints and resuming."""

import json

from harness import run, wire, worker


def answer(elicitation_id, fields=None, action="ACCEPT", error="", request_id="r1"):
    message = wire.DeliverUserInput(request_id=request_id, elicitation_id=elicitation_id, error=error)
    message.action = wire.DeliverUserInput.Action.Value(action)
    if fields is not None:
        message.fields.value = json.dumps(fields).encode()
    return message


def result(correlation_id, value=None, error=""):
    message = wire.DeliverDelegationResult(request_id="r1", correlation_id=correlation_id, error=error)
    if value is not None:
        message.result.value = json.dumps(value).encode()
    return message


ASKS = """
    from asp_plugin import ElicitationError, Field, plugin

    @plugin.tool
    async def main(args, ctx):
        try:
            answer = await ctx.elicit("ask", [Field("size", "number", True, "Size")], message="How big?")
        except ElicitationError as error:
            return error.reason
        return [answer.action, answer.accepted, answer.fields]
"""


def test_a_user_accepts_declines_or_cancels():
    async def test():
        async with worker(ASKS) as started:
            await started.ready()
            async with started.session() as stream:
                for given, seen in (
                    (answer("ask", {"size": 3}), ["accept", True, {"size": 3}]),
                    (answer("ask", action="DECLINE"), ["decline", False, {}]),
                    (answer("ask", {"size": 3}, action="CANCEL"), ["cancel", False, {}]),
                    (answer("ask", error="unsupported"), "unsupported"),
                    (answer("ask", error="expired"), "expired"),
                ):
                    await stream.invoke()
                    asked = (await stream.next("elicitation")).elicitation
                    assert (asked.elicitation_id, asked.message) == ("ask", "How big?")
                    field = asked.fields[0]
                    assert (field.name, field.type, field.required, field.label) == (
                        "size",
                        "number",
                        True,
                        "Size",
                    )
                    await stream.send(user_input=given)
                    assert await stream.output() == seen

    run(test())


def test_a_schema_replaces_the_fields():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await ctx.elicit("ask", schema={"type": "object", "properties": {}})
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                asked = (await stream.next("elicitation")).elicitation
                assert json.loads(asked.requested_schema.value) == {"type": "object", "properties": {}}
                assert not asked.fields

    run(test())


def test_several_questions_are_open_at_once_and_answered_in_any_order():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            one, two = await asyncio.gather(ctx.elicit("ask"), ctx.elicit("ask_more"))
            return [one.fields, two.fields]
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                asked = {(await stream.next("elicitation")).elicitation.elicitation_id for _ in range(2)}
                assert asked == {"ask", "ask_more"}
                await stream.send(user_input=answer("ask_more", {"n": 2}))
                await stream.send(user_input=answer("never_asked", {"n": 0}))
                await stream.send(user_input=answer("ask", {"n": 1}))
                assert await stream.output() == [{"n": 1}, {"n": 2}]

    run(test())


def test_no_more_than_sixteen_questions_are_open():
    source = """
        import asyncio
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await asyncio.gather(*(ctx.elicit(f"ask_{n}") for n in range(20)))
            return "all"
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                asked = [(await stream.next()).elicitation.elicitation_id for _ in range(16)]
                await stream.send(ping=wire.Ping(nonce="n"))
                assert (await stream.next()).WhichOneof("payload") == "pong"
                for _ in range(4):
                    await stream.send(user_input=answer(asked.pop()))
                    asked.append((await stream.next()).elicitation.elicitation_id)
                for each in asked:
                    await stream.send(user_input=answer(each))
                assert await stream.output() == "all"

    run(test())


def test_the_same_question_is_not_asked_twice_at_once():
    source = """
        import asyncio
        from asp_plugin import PluginError, plugin

        @plugin.tool
        async def main(args, ctx):
            first = asyncio.ensure_future(ctx.elicit("ask"))
            await asyncio.sleep(0)
            try:
                await ctx.elicit("ask")
            except PluginError as error:
                return error.code
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                assert await stream.output() == "ALREADY_ASKED"

    run(test())


def test_an_undeclared_question_is_never_sent():
    source = """
        from asp_plugin import plugin

        @plugin.tool
        async def main(args, ctx):
            await (ctx.elicit("secret_question") if args["ask"] else ctx.delegate("other_model", 1))
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                for ask in (True, False):
                    await stream.invoke({"ask": ask})
                    events, end = await stream.end()
                    assert (len(events), end.code) == (1, "UNDECLARED")
                    key = "elicitations" if ask else "delegations"
                    assert f"add it to primitiveDependencies.{key} of the spec" in end.message

    run(test())


def test_a_delegate_answers_fails_or_is_silent():
    source = """
        from asp_plugin import DelegationError, plugin

        @plugin.tool
        async def main(args, ctx):
            try:
                return await ctx.delegate("model", {"text": "ü"}, timeout=args["timeout"])
            except DelegationError as error:
                return error.reason
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"timeout": 30})
                asked = (await stream.next("delegation")).delegation
                assert (asked.delegate_id, asked.timeout.seconds) == ("model", 30)
                assert json.loads(asked.input.value) == {"text": "ü"}
                await stream.send(delegation_result=result(asked.correlation_id, {"score": 0.87}))
                assert await stream.output() == {"score": 0.87}
                await stream.invoke({"timeout": 30})
                asked = (await stream.next("delegation")).delegation
                await stream.send(delegation_result=result(asked.correlation_id, error="unsupported"))
                assert await stream.output() == "unsupported"
                # Below zero even with the slack the worker grants the platform.
                await stream.invoke({"timeout": -1.9})
                asked = (await stream.next("delegation")).delegation
                assert await stream.output() == "expired"
                await stream.send(delegation_result=result(asked.correlation_id, "too late"))
                await stream.invoke({"timeout": 30})
                assert (await stream.next("delegation")).delegation.delegate_id == "model"

    run(test())


SAVES = """
    from asp_plugin import CheckpointError, plugin

    @plugin.tool(resumable=True)
    async def main(args, ctx):
        state = ctx.resume.state if ctx.resume else None
        done = state["done"] if state else []
        for step in range(len(done), 3):
            print(f"step {step}")
            answer = await ctx.elicit("ask")
            done.append(answer.fields["n"])
            found = await ctx.delegate("model", step)
            done[-1] += found
            try:
                await ctx.checkpoint({"done": done})
            except CheckpointError as error:
                return error.reason
        resume = ctx.resume and [ctx.resume.seq, ctx.resume.attempt, ctx.resume.token.reveal()]
        return {"done": done, "resume": resume}
"""


async def play_step(stream, n):
    """Answers one step's questions and returns its checkpoint."""
    await stream.next("elicitation")
    await stream.send(user_input=answer("ask", {"n": n}))
    asked = (await stream.next("delegation")).delegation
    await stream.send(delegation_result=result(asked.correlation_id, 100))
    return (await stream.next("checkpoint")).checkpoint, asked.correlation_id


def test_a_checkpoint_waits_for_its_acknowledgement():
    async def test():
        async with worker(SAVES) as started:
            await started.ready()
            async with started.session() as stream:
                assert stream.init.caps["checkpoint"] == "true"
                await stream.invoke()
                checkpoint, _ = await play_step(stream, 1)
                assert checkpoint.seq == 1
                await stream.send(ping=wire.Ping(nonce="n"))
                assert (await stream.next()).WhichOneof("payload") == "pong"
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=7))
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=1))
                checkpoint, _ = await play_step(stream, 2)
                assert checkpoint.seq == 2
                refusal = wire.CheckpointAck(request_id="r1", seq=2, error="unavailable")
                await stream.send(checkpoint_ack=refusal)
                assert await stream.output() == "unavailable"

    run(test())


SAVES_AT_ONCE = """
import asyncio
from asp_plugin import plugin

@plugin.tool(resumable=True)
async def saves(args, ctx):
    await asyncio.gather(*(ctx.checkpoint(n) for n in range(20)))
    return "saved"
"""


def test_checkpoints_at_once_are_sent_one_after_the_other():
    async def test():
        async with worker(SAVES_AT_ONCE) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                for seq in range(1, 21):
                    assert (await stream.next()).checkpoint.seq == seq
                    await stream.send(ping=wire.Ping(nonce="n"))
                    assert (await stream.next()).WhichOneof("payload") == "pong", "more than one is open"
                    await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=seq))
                assert await stream.output() == "saved"

    run(test())


def test_a_lost_call_goes_on_from_its_checkpoint_and_asks_nobody_twice():
    async def test():
        async with worker(SAVES) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                first, _ = await play_step(stream, 1)
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=first.seq))
                # Lost in the second step, after both its answers.
                _, correlation = await play_step(stream, 2)
            started.process.kill()
        async with worker(SAVES) as started:
            await started.ready()
            async with started.session() as stream:
                resume = wire.Resume(capsule=first.capsule, seq=first.seq, attempt=2, resume_token="proof")
                resume.user_inputs.extend([answer("ask", {"n": 1}), answer("ask", {"n": 2})])
                resume.delegation_results.extend([result(correlation, 100)])
                await stream.invoke(resume=resume)
                again = (await stream.next()).checkpoint
                assert again.seq == 2
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=2))
                third, _ = await play_step(stream, 3)
                await stream.send(checkpoint_ack=wire.CheckpointAck(request_id="r1", seq=third.seq))
                assert await stream.output() == {"done": [101, 102, 103], "resume": [1, 2, "proof"]}
            assert await started.stdout() == "step 1\nstep 2\n"

    run(test())


def test_what_could_not_be_asked_is_no_answer_to_remember():
    source = """
        from asp_plugin import ElicitationError, plugin

        @plugin.tool(resumable=True)
        async def main(args, ctx):
            if ctx.resume is None:
                try:
                    await ctx.elicit("ask")
                except ElicitationError:
                    await ctx.checkpoint("unanswered")
            return (await ctx.elicit("ask")).fields
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                await stream.next("elicitation")
                await stream.send(user_input=answer("ask", error="expired"))
                point = (await stream.next("checkpoint")).checkpoint
                resume = wire.Resume(capsule=point.capsule, seq=1, attempt=2)
                resume.user_inputs.extend([answer("ask", error="expired"), answer("ask", {"n": 1})])
                await stream.invoke(request_id="r2", resume=resume)
                assert await stream.output("r2") == {"n": 1}

    run(test())


def test_the_resume_hook_may_convert_an_older_state():
    source = """
        from asp_plugin import plugin

        @plugin.on_resume
        def upgrade(resume, ctx):
            return {"version": 2, "was": resume.state}

        @plugin.tool
        async def main(args, ctx):
            return ctx.resume.state
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                assert stream.init.caps["checkpoint"] == "true"
                await stream.invoke(resume=wire.Resume(capsule=b'{"state":1}', seq=1, attempt=2))
                assert await stream.output() == {"version": 2, "was": 1}

    run(test())


def test_a_state_that_is_too_large_is_refused_here():
    source = """
        from asp_plugin import CheckpointError, plugin

        @plugin.tool
        async def main(args, ctx):
            try:
                await ctx.checkpoint("x" * 70_000)
            except CheckpointError as error:
                return error.reason
    """

    async def test():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                events, end = await stream.end()
                assert (len(events), json.loads(end.output.value)) == (1, "too_large")

    run(test())
