"""The storage of a handler: its messages, its bounds, and its twin for unit tests."""

import asyncio

import pytest
from harness import run, wire, worker

from asp_plugin import StorageError
from asp_plugin.testing import FakeContext, FakeStorage, call_tool

STORES = """
    from asp_plugin import StorageError, plugin

    @plugin.tool
    async def main(args, ctx):
        try:
            found = await ctx.storage.get_versioned("n", user=True)
            count = (found.value if found else 0) + 1
            version = await ctx.storage.put("n", count, 60, True, if_version=found.version if found else 0)
            keys = await ctx.storage.list("p")
            gone = await ctx.storage.delete("x")
        except StorageError as error:
            return [error.code, error.reason]
        return [count, version, keys, gone]
"""

PLAIN = """
    from asp_plugin import plugin

    @plugin.tool
    def main(args, ctx):
        ctx.storage.put("k", {"a": 1})
        return [ctx.storage.get("k"), ctx.storage.list(), ctx.storage.delete("k")]
"""

IMPATIENT = """
    import asyncio
    from asp_plugin import plugin

    @plugin.tool
    async def main(args, ctx):
        for n in range(16):
            try:
                await asyncio.wait_for(ctx.storage.get(f"k{n}"), 0.01)
            except TimeoutError:
                pass
        return await ctx.storage.get("last")
"""


def answer(asked, **result):
    return wire.DeliverStorageAnswer(
        request_id=asked.request_id, correlation_id=asked.correlation_id, **result
    )


async def asked_by(stream):
    return (await stream.next("storage_requested")).storage_requested


def test_a_request_is_sent_with_its_parts_and_answered():
    async def test():
        async with worker(STORES) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                get = await asked_by(stream)
                assert (get.request_id, get.of_user, get.get.key) == ("r1", True, "n")
                await stream.send(storage_answer=answer(get, value=wire.Json(value=b"4"), version=7))
                put = await asked_by(stream)
                assert (put.put.key, put.put.value.value, put.put.if_version) == ("n", b"5", 7)
                assert (put.put.ttl.seconds, put.of_user) == (60, True)
                await stream.send(storage_answer=answer(put, version=2**53 - 1))
                first = await asked_by(stream)
                assert (first.list.prefix, first.list.after, first.of_user) == ("p", "", False)
                await stream.send(storage_answer=answer(first, keys=["p1", "p2"], has_more=True))
                second = await asked_by(stream)
                assert (second.list.prefix, second.list.after) == ("p", "p2")
                await stream.send(storage_answer=answer(second, keys=["p3"]))
                delete = await asked_by(stream)
                assert delete.delete.key == "x"
                await stream.send(storage_answer=answer(delete, deleted=True))
                assert await stream.output() == [5, 2**53 - 1, ["p1", "p2", "p3"], True]
                await stream.invoke()
                await stream.send(storage_answer=answer(await asked_by(stream), error="not_granted"))
                assert await stream.output() == ["STORAGE_FAILED", "not_granted"]

    run(test())


def test_a_plain_function_waits_for_its_answers():
    async def test():
        async with worker(PLAIN) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                put = await asked_by(stream)
                assert not put.put.HasField("ttl") and not put.put.HasField("if_version")
                await stream.send(storage_answer=answer(put, version=1))
                await stream.send(storage_answer=answer(await asked_by(stream), value=wire.Json(value=b"2")))
                await stream.send(storage_answer=answer(await asked_by(stream), keys=["k"]))
                await stream.send(storage_answer=answer(await asked_by(stream), deleted=False))
                assert await stream.output() == [2, ["k"], False]

    run(test())


def test_a_request_nobody_waits_for_keeps_its_place_until_it_is_answered():
    async def test():
        async with worker(IMPATIENT) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke()
                given_up = [await asked_by(stream) for _ in range(16)]
                # The seventeenth is sent when one of them is answered.
                await stream.send(storage_answer=answer(given_up[0]))
                last = await asked_by(stream)
                assert last.get.key == "last"
                await stream.send(storage_answer=answer(last, value=wire.Json(value=b'"here"')))
                assert await stream.output() == "here"

    run(test())


def called(handler, ctx):
    return asyncio.run(call_tool(handler, {}, ctx))


def test_the_twin_keeps_values_for_other_calls_of_the_org_and_of_the_user():
    storage = FakeStorage()

    async def count(args, ctx):
        found = await ctx.storage.get_versioned("n")
        number = (found.value if found else 0) + 1
        await ctx.storage.put("n", number, if_version=found.version if found else 0)
        await ctx.storage.put("mine", number, user=True)
        return [number, await ctx.storage.get("mine", user=True), await ctx.storage.get("mine")]

    def plain(args, ctx):
        return [ctx.storage.get("n"), ctx.storage.get("mine", True), ctx.storage.delete("mine", True)]

    assert called(count, FakeContext(storage=storage)) == [1, 1, None]
    assert called(count, FakeContext(storage=storage, caller=("acme", "bob", ""))) == [2, 2, None]
    assert called(plain, FakeContext(storage=storage)) == [2, 1, True]
    assert called(plain, FakeContext(storage=storage, caller=("globex", "alice", ""))) == [None, None, False]


@pytest.mark.parametrize(
    ("reason", "use"),
    [
        ("bad_key", lambda storage: storage.get("")),
        ("bad_key", lambda storage: storage.put("a\n", 1)),
        ("bad_key", lambda storage: storage.delete("ä" * 129)),
        ("bad_key", lambda storage: storage.list("\x00")),
        ("bad_ttl", lambda storage: storage.put("k", 1, 0.5)),
        ("bad_ttl", lambda storage: storage.put("k", 1, 90 * 24 * 3600 + 1)),
        ("too_large", lambda storage: storage.put("k", "x" * 65_535)),
        ("conflict", lambda storage: storage.put("k", 1, if_version=3)),
        ("storage_full", lambda storage: fill(storage)),
    ],
)
def test_the_twin_has_the_bounds_of_the_platform(reason, use):
    async def handler(args, ctx):
        with pytest.raises(StorageError) as refused:
            await use(ctx.storage)
        return refused.value.reason

    assert called(handler, FakeContext()) == reason


async def fill(storage):
    for number in range(65):
        await storage.put(str(number), "x" * 65_534)


def test_the_twin_lists_in_pages_expires_and_fails_as_the_test_wants():
    storage = FakeStorage()

    async def handler(args, ctx):
        for number in range(205):
            await ctx.storage.put(f"k{number:03}", None, 60)
        await ctx.storage.put("ö", 1)
        await ctx.storage.put("z", 1)
        assert await ctx.storage.list("k") == [f"k{number:03}" for number in range(205)]
        assert (await ctx.storage.list())[-2:] == ["z", "ö"]
        assert await ctx.storage.get_versioned("k000") is not None
        storage.advance(61)
        assert await ctx.storage.list() == ["z", "ö"]
        storage.error = "unavailable"
        return await ctx.storage.get("z")

    with pytest.raises(StorageError) as failed:
        called(handler, FakeContext(storage=storage))
    assert failed.value.reason == "unavailable"
