"""Named secrets: for handlers of every kind and the session's hook, in no environment, and for unit tests."""

import asyncio
import json

import pytest
from harness import run, wire, worker

from asp_plugin import SecretError
from asp_plugin.testing import FakeContext, call_tool

SOURCE = """
    import os
    from asp_plugin import SecretError, plugin

    hooked = []

    @plugin.on_session_start
    def start(session):
        hooked.append(session.secret("crm-key").reveal())

    @plugin.tool
    {handler} main(args, ctx):
        key = ctx.secret("crm-key")
        try:
            ctx.secret("other")
        except SecretError as error:
            return [str(key), key.reveal(), hooked, error.code, error.details, "hunter2" in str(dict(os.environ))]
"""

RESOURCE = """
    from asp_plugin import plugin

    @plugin.resource
    async def main(args, ctx):
        return ctx.secret(ctx.uri[7:]).reveal()
"""


@pytest.mark.parametrize("handler", ["async def", "def"])
def test_a_tool_has_the_secrets_of_its_worker_and_no_other(handler):
    async def test():
        async with worker(SOURCE.format(handler=handler)) as started:
            await started.ready()
            async with started.session(init=False) as stream:
                await stream.send(init=wire.InitRequest(secrets={"crm-key": "hunter2"}))
                assert (await stream.next()).init.ok
                await stream.invoke()
                reason = {"reason": "not_granted"}
                expected = ["***", "hunter2", ["hunter2"], "SECRET_UNAVAILABLE", reason, False]
                assert await stream.output() == expected

    run(test())


def test_a_resource_has_them_too():
    async def test():
        async with worker(RESOURCE, kind="resource") as started:
            await started.ready()
            async with started.session(init=False) as stream:
                await stream.send(init=wire.InitRequest(secrets={"crm-key": "hunter2"}))
                assert (await stream.next()).init.ok
                async with started.channel() as channel:
                    read = channel.unary_stream(
                        "/asp.plugin.v1.ResourcePlugin/Read",
                        wire.ReadResourceRequest.SerializeToString,
                        wire.ContentChunk.FromString,
                    )
                    request = wire.ReadResourceRequest(request_id="r1", uri="demo://crm-key")
                    chunks = [chunk async for chunk in read(request, metadata=started.metadata())]
                    assert [chunk.text for chunk in chunks] == ["hunter2"]

    run(test())


def test_a_unit_test_grants_secrets_by_name():
    async def main(args, ctx):
        return ctx.secret(args["name"]).reveal()

    def plain(args, ctx):
        return ctx.secret(args["name"]).reveal()

    for handler in (main, plain):
        ctx = FakeContext(secrets={"crm-key": "hunter2"})
        assert asyncio.run(call_tool(handler, {"name": "crm-key"}, ctx)) == "hunter2"
        with pytest.raises(SecretError, match="secret other is not granted"):
            asyncio.run(call_tool(handler, {"name": "other"}, ctx))
    with pytest.raises(TypeError):
        json.dumps(FakeContext(secrets={"a": "b"}).secret("a"))
