"""The official Python SDK goes through what a client can do: script.py URL REVISION TRACE.

REVISION is 2026-07-28, which the 2.x line alone knows, or the one that this client proposes where it shakes hands. The server
is the platform's `conformance`. The call that is given up carries the traceparent TRACE. Prints one line of JSON: what each
step came to, and what it was asked.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import json
import sys

import mcp
from mcp import types

IS_LINE_1 = not hasattr(mcp, "Client")
MODERN = "2026-07-28"
WATCHED = "test://watched-resource"


class Asked:
    """Answers what the server asks, and remembers it."""

    def __init__(self):
        self.seen = []
        self.logs = []
        self.progress = []
        self.updated = asyncio.get_running_loop().create_future()
        self.counting = asyncio.Event()
        # The token of the progress that came last, in the 1.x line.
        self.token = None

    async def sample(self, _context, params):
        self.seen.append("sampling")
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="test")

    async def elicit(self, _context, params):
        self.seen.append("elicitation")
        return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.com"})

    async def roots(self, _context):
        self.seen.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///src", name="Sources")])

    async def log(self, params):
        self.logs.append(params.level)

    async def on_progress(self, progress, total, message):
        self.progress.append(progress)

    async def on_count(self, progress, total, message):
        self.counting.set()

    async def message(self, message):
        # In the 1.x line a notification is within another one.
        match getattr(message, "root", message):
            case types.ResourceUpdatedNotification(params=params) if not self.updated.done():
                self.updated.set_result(str(params.uri))
            case types.ProgressNotification(params=params) if IS_LINE_1:
                self.token = params.progressToken
                self.counting.set()


def text(result):
    return result.content[0].text


async def updated(client, asked, is_modern):
    """Of which resource the client is told that it has changed."""
    if is_modern:
        async with client.listen(resource_subscriptions=[WATCHED]) as told:
            await client.call_tool("change_watched_resource", {})
            return str((await anext(told)).uri)
    await client.subscribe_resource(WATCHED)
    await client.call_tool("change_watched_resource", {})
    uri = await asked.updated
    await client.unsubscribe_resource(WATCHED)
    return uri


async def gives_up(client, asked, trace):
    """Gives up a call that runs. The 1.x line has no call for that: its user sends the notification, with the id of the
    request, which is its progress token too."""
    arguments, meta = {"to": 100, "delayMs": 500}, {"traceparent": trace}
    asked.counting.clear()
    on_progress = asked.on_progress if IS_LINE_1 else asked.on_count
    calling = asyncio.create_task(client.call_tool("count", arguments, progress_callback=on_progress, meta=meta))
    await asked.counting.wait()
    if IS_LINE_1:
        params = types.CancelledNotificationParams(requestId=asked.token, reason="enough")
        note = types.CancelledNotification(params=params)
        await client.send_notification(types.ClientNotification(note))
    calling.cancel()
    await asyncio.wait({calling})
    return calling.cancelled()


async def script(client, asked, protocol, trace):
    is_modern = protocol == MODERN
    tools = await client.list_tools()
    prompts = await client.list_prompts()
    resources = await client.list_resources()
    templates = await client.list_resource_templates()
    if not is_modern:
        await client.set_logging_level("debug")
        await client.send_ping()
        await client.send_roots_list_changed()
    reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    completed = await client.complete(reference, {"name": "arg1", "value": "par"})
    prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
    read = await client.read_resource("test://static-text")
    filled = await client.read_resource("test://template/7/data")
    told = await updated(client, asked, is_modern)
    called = await client.call_tool("test_simple_text", {})
    await client.call_tool("test_tool_with_progress", {}, progress_callback=asked.on_progress)
    progress = list(asked.progress)
    await client.call_tool("test_tool_with_logging", {})
    sampled = await client.call_tool("test_sampling", {"prompt": "the capital of France"})
    elicited = await client.call_tool("test_elicitation", {"message": "Who?"})
    rooted = await client.call_tool("test_input_required_result_list_roots", {})
    cancelled = await gives_up(client, asked, trace)
    return {
        "protocol": protocol,
        "tools": [tool.name for tool in tools.tools],
        "prompts": [entry.name for entry in prompts.prompts],
        "resources": [str(entry.uri) for entry in resources.resources],
        "templates": [entry["uriTemplate"] for entry in templates.model_dump(by_alias=True)["resourceTemplates"]],
        "completed": completed.completion.values,
        "prompt": prompt.messages[0].content.text,
        "read": read.contents[0].text,
        "filled": filled.contents[0].text,
        "called": text(called),
        "sampled": text(sampled),
        "elicited": text(elicited),
        "rooted": text(rooted),
        "asked": asked.seen,
        "logged": len(asked.logs),
        "progress": progress,
        "updated": told,
        "cancelled": cancelled,
    }


async def main(url, revision, trace):
    asked = Asked()
    callbacks = {
        "sampling_callback": asked.sample,
        "elicitation_callback": asked.elicit,
        "list_roots_callback": asked.roots,
        "logging_callback": asked.log,
        "message_handler": asked.message,
    }
    if IS_LINE_1:
        from mcp.client.streamable_http import streamable_http_client

        async with streamable_http_client(url) as (read, write, *_):
            async with mcp.ClientSession(read, write, **callbacks) as session:
                protocol = (await session.initialize()).protocolVersion
                print(json.dumps(await script(session, asked, protocol, trace)))
    else:
        mode = MODERN if revision == MODERN else "legacy"
        async with mcp.Client(url, mode=mode, log_level="debug", **callbacks) as client:
            print(json.dumps(await script(client, asked, client.protocol_version, trace)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
