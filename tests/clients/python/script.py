"""The official Python SDK (mcp 2.x) goes through what a client can do: script.py URL REVISION TRACE.

REVISION is 2026-07-28, or the one that this client proposes where it shakes hands. The server is the platform's
`conformance`. The call that is given up carries the traceparent TRACE. Prints one line of JSON: what each step came to, and
what it was asked.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import json
import sys

from mcp import Client
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceUpdatedNotification,
    Root,
    TextContent,
)

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

    async def sample(self, _context, params):
        self.seen.append("sampling")
        content = TextContent(type="text", text="Paris")
        return CreateMessageResult(role="assistant", content=content, model="test")

    async def elicit(self, _context, params):
        self.seen.append("elicitation")
        return ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.com"})

    async def roots(self, _context):
        self.seen.append("roots")
        return ListRootsResult(roots=[Root(uri="file:///src", name="Sources")])

    async def log(self, params):
        self.logs.append(params.level)

    async def on_progress(self, progress, total, message):
        self.progress.append(progress)

    async def on_count(self, progress, total, message):
        self.counting.set()

    async def message(self, message):
        if isinstance(message, ResourceUpdatedNotification) and not self.updated.done():
            self.updated.set_result(str(message.params.uri))


def text(result):
    return result.content[0].text


async def updated(client, asked):
    """Of which resource the client is told that it has changed."""
    if client.protocol_version == MODERN:
        async with client.listen(resource_subscriptions=[WATCHED]) as told:
            await client.call_tool("change_watched_resource", {})
            return str((await anext(told)).uri)
    await client.subscribe_resource(WATCHED)
    await client.call_tool("change_watched_resource", {})
    uri = await asked.updated
    await client.unsubscribe_resource(WATCHED)
    return uri


async def gives_up(client, asked, trace):
    """Gives up a call that runs."""
    arguments, meta = {"to": 100, "delayMs": 500}, {"traceparent": trace}
    calling = asyncio.create_task(client.call_tool("count", arguments, progress_callback=asked.on_count, meta=meta))
    await asked.counting.wait()
    calling.cancel()
    await asyncio.wait({calling})
    return calling.cancelled()


async def script(client, asked, trace):
    tools = await client.list_tools()
    prompts = await client.list_prompts()
    resources = await client.list_resources()
    templates = await client.list_resource_templates()
    if client.protocol_version != MODERN:
        await client.set_logging_level("debug")
        await client.send_ping()
        await client.send_roots_list_changed()
    reference = PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    completed = await client.complete(reference, {"name": "arg1", "value": "par"})
    prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
    read = await client.read_resource("test://static-text")
    filled = await client.read_resource("test://template/7/data")
    told = await updated(client, asked)
    called = await client.call_tool("test_simple_text", {})
    await client.call_tool("test_tool_with_progress", {}, progress_callback=asked.on_progress)
    await client.call_tool("test_tool_with_logging", {})
    sampled = await client.call_tool("test_sampling", {"prompt": "the capital of France"})
    elicited = await client.call_tool("test_elicitation", {"message": "Who?"})
    rooted = await client.call_tool("test_input_required_result_list_roots", {})
    cancelled = await gives_up(client, asked, trace)
    return {
        "protocol": client.protocol_version,
        "tools": [tool.name for tool in tools.tools],
        "prompts": [entry.name for entry in prompts.prompts],
        "resources": [str(entry.uri) for entry in resources.resources],
        "templates": [entry.uri_template for entry in templates.resource_templates],
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
        "progress": asked.progress,
        "updated": told,
        "cancelled": cancelled,
    }


async def main(url, revision, trace):
    asked = Asked()
    async with Client(
        url,
        mode=MODERN if revision == MODERN else "legacy",
        sampling_callback=asked.sample,
        elicitation_callback=asked.elicit,
        list_roots_callback=asked.roots,
        logging_callback=asked.log,
        log_level="debug",
        message_handler=asked.message,
    ) as client:
        print(json.dumps(await script(client, asked, trace)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
