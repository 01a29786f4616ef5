"""The context for authors' unit tests behaves as the worker's."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from asp_plugin import CheckpointError, DelegationError, ElicitationError, PluginError, Result
from asp_plugin.testing import FakeContext, call_tool


@dataclass
class City:
    name: str
    days: int = 1


@dataclass
class Forecast:
    text: str


def called(handler, arguments, ctx):
    return asyncio.run(call_tool(handler, arguments, ctx))


def test_what_a_handler_tells_is_kept_and_its_types_are_converted():
    async def forecast(args: City, ctx) -> Forecast:
        await ctx.progress(150, "looking", {"rows": 2})
        await ctx.chunk("part")
        await ctx.chunk(structured=[1])
        await ctx.status("READING", {"page": 1})
        await ctx.resource_changed("x://a")
        await ctx.elicitation_completed("card")
        await ctx.log("warn", "cloudy")
        await ctx.log("emergency", "storm")
        uri = await ctx.artifact("map.txt", "xx", type="text", content_type="text/plain")
        await ctx.artifact("elsewhere", uri="https://example.com/a")
        await ctx.checkpoint({"page": 2})
        return Forecast(f"{args.name} {args.days} {uri}")

    ctx = FakeContext()
    output = called(forecast, {"name": "Oslo"}, ctx)
    assert output == {"text": "Oslo 1 report://task-1/map.txt"}
    kept = ctx.recorded
    assert kept.progress == [(100, "looking", {"rows": 2})]
    assert (kept.chunks, kept.statuses, kept.logs) == (
        ["part", [1]],
        [("READING", {"page": 1})],
        [("warn", "cloudy"), ("emergency", "storm")],
    )
    assert (kept.changed_resources, kept.completed_elicitations) == (["x://a"], ["card"])
    assert [one.data for one in kept.artifacts] == [b"xx", None]
    assert kept.checkpoints == [{"page": 2}]


def test_questions_get_the_tests_answers_or_the_workers_codes():
    async def ask(args, ctx):
        said = []
        for name in ("city", "no", "late", "nobody", "other"):
            try:
                answer = await ctx.elicit(name, message="Which?")
                said.append((answer.action, answer.fields))
            except ElicitationError as error:
                said.append((error.code, error.details))
        for name in ("judge", "broken", "else"):
            try:
                said.append(await ctx.delegate(name, {"a": 1}))
            except DelegationError as error:
                said.append((error.code, error.reason))
        return {"said": said}

    answers = {"city": {"name": "Oslo"}, "no": "decline", "late": "expired", "nobody": "unsupported"}
    ctx = FakeContext(answers, {"judge": {"text": "good"}, "broken": "unavailable"})
    assert called(ask, {}, ctx)["said"] == [
        ["accept", {"name": "Oslo"}],
        ["decline", {}],
        ["INPUT_EXPIRED", {"reason": "expired"}],
        ["INPUT_UNSUPPORTED", {"reason": "unsupported"}],
        ["UNDECLARED", {"reason": "undeclared"}],
        {"text": "good"},
        ["DELEGATION_FAILED", "unavailable"],
        ["UNDECLARED", "undeclared"],
    ]
    assert [one.id for one in ctx.recorded.questions] == ["city", "no", "late", "nobody"]
    assert ctx.recorded.delegations[0] == ("judge", {"a": 1})


def test_bounds_are_the_workers():
    async def many(args, ctx):
        with pytest.raises(CheckpointError) as refused:
            await ctx.checkpoint("x" * 70_000)
        await ctx.artifact("a", "1")
        with pytest.raises(PluginError) as twice:
            await ctx.artifact("a", "2")
        return {"codes": [refused.value.code, twice.value.code]}

    assert called(many, {}, FakeContext())["codes"] == ["CHECKPOINT_FAILED", "ARTIFACT_REFUSED"]
    with pytest.raises(PluginError, match="/days: not a whole number"):
        called(forecast_of_days, {"name": "Oslo", "days": "3"}, FakeContext())


async def forecast_of_days(args: City, ctx) -> Forecast:
    return Forecast(str(args.days))


def test_a_hard_cancel_and_the_deadline_end_a_handler_where_it_waits():
    for stop in (FakeContext.cancel, FakeContext.expire):

        async def wait(args, ctx, stop=stop):
            stop(ctx)
            assert ctx.cancelled and not ctx.preempted
            await asyncio.Event().wait()

        with pytest.raises(asyncio.CancelledError):
            called(wait, {}, FakeContext())


def test_soft_and_preempt_end_a_handler_at_a_question_or_checkpoint_and_a_result_counts():
    async def work(args, ctx):
        ctx.cancel(args["mode"])
        await ctx.progress(10)
        try:
            await ctx.checkpoint(1)
        except asyncio.CancelledError:
            return {"cancelled": ctx.cancelled, "preempted": ctx.preempted}

    assert called(work, {"mode": "soft"}, FakeContext()) == {"cancelled": True, "preempted": False}
    assert called(work, {"mode": "preempt"}, FakeContext()) == {"cancelled": False, "preempted": True}


def test_a_plain_function_gets_the_blocking_twin_and_facts_are_the_tests():
    def tell(args, ctx):
        ctx.progress(1)
        answer = ctx.elicit("city")
        facts = [ctx.caller.tenant, ctx.budget, ctx.token.reveal(), ctx.resume.state, ctx.deadline.year, ctx.work_dir]
        return Result({"facts": facts, "city": answer.fields})

    facts = {"caller": ("globex", "bob", ""), "budget": 3, "token": "t", "resume": {"page": 1}, "work_dir": "/tmp/x"}
    ctx = FakeContext({"city": {"name": "Oslo"}}, deadline=datetime(2030, 1, 1, tzinfo=UTC), **facts)
    result = called(tell, {}, ctx)
    assert result.output["facts"] == ["globex", 3, "t", {"page": 1}, 2030, "/tmp/x"]
    with pytest.raises(TypeError, match="a context has no colour"):
        FakeContext(colour="red")


def test_a_conversation_gets_what_the_test_gives():
    async def handler(args, ctx):
        return await ctx.converse("model", [{"role": "user"}], tools=[{"name": "add"}], tool_choice="required")

    ctx = FakeContext(delegations={"model": {"stopReason": "toolUse"}})
    assert called(handler, {}, ctx) == {"stopReason": "toolUse"}
    given = {"messages": [{"role": "user"}], "tools": [{"name": "add"}], "toolChoice": {"mode": "required"}}
    assert ctx.recorded.delegations == [("model", given)]
