"""Resources and prompts."""

import asyncio
import json
import time

import grpc
import pytest
from harness import PATIENCE, run, wire, worker

RESOURCE = """
    import asyncio
    from asp_plugin import Content, NotFound, PluginError, plugin

    @plugin.resource
    {prefix}def main(args, ctx):
        match ctx.uri:
            case "x://text":
                return "text " + args.get("who", "")
            case "x://large":
                return "ü" * 3_000_000
            case "x://two":
                return [Content(b"\\x00\\x01", "image/png", "x://1"), "second"]
            case "x://absent":
                raise NotFound
            case "x://half":
                return "half \\ud83d of a pair"
            case "x://nulls":
                return Content("n", None, None)
            case "x://same":
                return [Content("ü" * 700_000), Content("b"), "c", "d"]
            case "x://own":
                raise PluginError("CLOSED", "the archive is closed")
            case "x://fault":
                raise ValueError("password is hunter2")
            case "x://slow":
                {slow}

    @plugin.list
    def everything(ctx):
        return [{"uri": "x://text", "name": "text", "mime_type": "text/plain"}]

    @plugin.watch
    async def changes(ctx):
        yield ctx.uri
        yield "x://other"
"""
SLOW = {"async ": "await asyncio.sleep(3600)", "": "while True: pass"}

STATUSES = {
    "x://absent": grpc.StatusCode.NOT_FOUND,
    "x://own": grpc.StatusCode.UNKNOWN,
    "x://fault": grpc.StatusCode.INTERNAL,
    "x://slow": grpc.StatusCode.DEADLINE_EXCEEDED,
}


def method(channel, started, name, request, response, *, stream=False):
    make = channel.unary_stream if stream else channel.unary_unary
    call = make(f"/asp.plugin.v1.{name}", type(request).SerializeToString, response.FromString)
    return call(request, metadata=started.metadata())


async def read(channel, started, uri, arguments=None):
    request = wire.ReadResourceRequest(uri=uri, request_id="r1")
    if arguments is not None:
        request.arguments.value = json.dumps(arguments).encode()
    request.deadline.FromNanoseconds(time.time_ns() + (200_000_000 if "slow" in uri else 20_000_000_000))
    call = method(channel, started, "ResourcePlugin/Read", request, wire.ContentChunk, stream=True)
    async with asyncio.timeout(PATIENCE):
        return [chunk async for chunk in call]


@pytest.mark.parametrize("prefix", SLOW, ids=["async", "thread"])
def test_a_resource_is_read_in_pieces_and_fails_with_a_status(prefix):
    source = RESOURCE.replace("{prefix}", prefix).replace("{slow}", SLOW[prefix])
    schema = {"type": "object", "properties": {"who": {"type": "string"}}}

    async def test():
        async with worker(source, kind="resource_template", inputSchema=schema) as started:
            await started.ready()
            async with started.channel() as channel:
                chunks = await read(channel, started, "x://text", {"who": "ann"})
                assert [(chunk.uri, chunk.text) for chunk in chunks] == [("x://text", "text ann")]
                chunks = await read(channel, started, "x://large")
                assert len(chunks) > 2
                assert "".join(chunk.text for chunk in chunks) == "ü" * 3_000_000
                chunks = await read(channel, started, "x://two")
                assert [(chunk.uri, chunk.mime_type) for chunk in chunks] == [
                    ("x://1", "image/png"),
                    ("x://two", ""),
                ]
                assert (chunks[0].blob, chunks[1].text) == (b"\x00\x01", "second")
                chunks = await read(channel, started, "x://half")
                assert [chunk.text for chunk in chunks] == ["half \ufffd of a pair"]
                chunks = await read(channel, started, "x://nulls")
                assert [(chunk.uri, chunk.mime_type) for chunk in chunks] == [("x://nulls", "")]
                chunks = await read(channel, started, "x://same")
                starts = [chunk.starts for chunk in chunks if chunk.text in "bcd" or chunk.starts]
                assert (starts, len(chunks) > 4) == ([True, True, True, False], True)
                for uri, status in STATUSES.items():
                    with pytest.raises(grpc.aio.AioRpcError) as failure:
                        await read(channel, started, uri)
                    assert failure.value.code() == status
                    assert "hunter2" not in failure.value.details()
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await read(channel, started, "x://text", {"who": 1})
                assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    run(test())


MISTAKES = """
    from asp_plugin import plugin

    @plugin.resource
    {prefix}def main(args, ctx):
        match ctx.uri:
            case "x://timeout":
                raise TimeoutError("the archive does not answer")
            case "x://none":
                return None
            case "x://dict":
                return {{"text": "x"}}
            case "x://numbers":
                return [1]

    @plugin.list
    def everything(ctx):
        return [{{"uri": "x://a", "name": "a", "mimeType": "text/plain"}}]
"""
FORMS = "a resource returns str, bytes, a Content, or a list or iterator of those, not"


@pytest.mark.parametrize("prefix", SLOW, ids=["async", "thread"])
def test_what_an_author_mistakes_is_named_and_no_timeout_of_the_plugin_is_the_deadline(prefix):
    async def test():
        async with worker(MISTAKES.format(prefix=prefix), kind="resource", development=True) as started:
            await started.ready()
            async with started.channel() as channel:
                for uri, said in {
                    "x://timeout": "main.py:8: TimeoutError: the archive does not answer",
                    "x://none": f"TypeError: {FORMS} NoneType",
                    "x://dict": f"TypeError: {FORMS} dict",
                    "x://numbers": f"TypeError: {FORMS} int",
                }.items():
                    with pytest.raises(grpc.aio.AioRpcError) as failure:
                        await read(channel, started, uri)
                    assert (failure.value.code(), failure.value.details()) == (grpc.StatusCode.INTERNAL, said)
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    request = wire.ListResourcesRequest()
                    await method(channel, started, "ResourcePlugin/List", request, wire.ListResourcesResponse)
                assert "mime_type" in failure.value.details()
                assert failure.value.details().endswith("unknown are mimeType")

    run(test())


def test_a_prompt_without_a_text_is_named():
    async def test():
        source = """
            from asp_plugin import plugin

            @plugin.prompt
            def main(args, ctx):
                pass
        """
        async with worker(source, kind="prompt", development=True) as started:
            await started.ready()
            async with started.channel() as channel:
                request = wire.GetPromptRequest(name="probe")
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await method(channel, started, "PromptPlugin/Get", request, wire.GetPromptResponse)
                assert failure.value.details().endswith("or a Prompt, not NoneType")

    run(test())


def test_resources_are_listed_and_watched():
    source = RESOURCE.replace("{prefix}", "").replace("{slow}", "pass")

    async def test():
        async with worker(source, kind="resource") as started:
            await started.ready()
            async with started.channel() as channel:
                request = wire.ListResourcesRequest()
                listed = await method(
                    channel, started, "ResourcePlugin/List", request, wire.ListResourcesResponse
                )
                assert [info.uri for info in listed.resources] == ["x://text"]
                request = wire.SubscribeRequest(uri="x://text")
                updates = method(
                    channel,
                    started,
                    "ResourcePlugin/Subscribe",
                    request,
                    wire.ResourceUpdated,
                    stream=True,
                )
                assert [update.uri async for update in updates] == ["x://text", "x://other"]

    run(test())


def test_a_prompt_is_text_messages_or_a_prompt():
    source = """
        from asp_plugin import Message, Prompt, plugin

        @plugin.prompt
        def main(args, ctx):
            if args["form"] == "text":
                return "Review this."
            if args["form"] == "messages":
                return [Message("Review this."), Message({"type": "text", "text": "Gladly."}, "assistant")]
            return Prompt([Message("x")], "A review")
    """

    async def get(channel, started, form):
        request = wire.GetPromptRequest(name="probe")
        request.arguments.value = json.dumps({"form": form}).encode()
        return await method(channel, started, "PromptPlugin/Get", request, wire.GetPromptResponse)

    async def test():
        schema = {"type": "object", "properties": {"form": {"type": "string"}}}
        async with worker(source, kind="prompt", inputSchema=schema) as started:
            await started.ready()
            async with started.channel() as channel:
                prompt = await get(channel, started, "text")
                assert [json.loads(message.content.value) for message in prompt.messages] == [
                    {"type": "text", "text": "Review this."}
                ]
                prompt = await get(channel, started, "messages")
                assert [message.role for message in prompt.messages] == ["user", "assistant"]
                prompt = await get(channel, started, "prompt")
                assert prompt.description == "A review"
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await get(channel, started, 7)
                assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await read(channel, started, "x://text")
                assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED

    run(test())


COMPLETED = """
    from asp_plugin import plugin

    @plugin.{kind}
    def main(args, ctx):
        return "never"

    @plugin.complete
    {prefix}def offers(argument, value, known, ctx):
        return [f"{{argument}} {{value}} {{known}} {{n}}" for n in range(101)]
"""


@pytest.mark.parametrize(
    ("kind", "prefix"), [("prompt", ""), ("resource", "async ")], ids=["prompt", "resource"]
)
def test_an_argument_is_completed_by_the_hook_and_its_schema_is_not_asked(kind, prefix):
    async def test():
        schema = {"type": "object", "required": ["tone", "topic"]}
        async with worker(COMPLETED.format(kind=kind, prefix=prefix), kind=kind, inputSchema=schema) as started:
            await started.ready()
            async with started.channel() as channel:
                completion = await completed(channel, started, kind)
                assert list(completion.values[:2]) == ["topic ti {'tone': 'dry'} 0", "topic ti {'tone': 'dry'} 1"]
                assert (len(completion.values), completion.total, completion.has_more) == (100, 101, True)
        async with worker(RESOURCE.replace("{prefix}", "").replace("{slow}", "pass"), kind="resource") as started:
            await started.ready()
            async with started.channel() as channel:
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await completed(channel, started, "resource")
                assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED

    run(test())


async def completed(channel, started, kind):
    request = wire.GetPromptRequest if kind == "prompt" else wire.ReadResourceRequest
    request = request(request_id="r1", completing="topic")
    request.arguments.value = b'{"topic": "ti", "tone": "dry"}'
    async with asyncio.timeout(PATIENCE):
        if kind == "prompt":
            response = await method(channel, started, "PromptPlugin/Get", request, wire.GetPromptResponse)
            return response.completion
        call = method(channel, started, "ResourcePlugin/Read", request, wire.ContentChunk, stream=True)
        (chunk,) = [chunk async for chunk in call]
        return chunk.completion
