"""The official Python SDK, 1.x line, goes through what a client can do: script.py URL REVISION TRACE.

The server is the platform's `conformance`; this client knows one REVISION to propose, the latest with a handshake. The call
that is given up carries the traceparent TRACE. Prints one line of JSON: what each step came to, and what it was asked.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import json
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

WATCHED = AnyUrl("test://watched-resource")


class Asked:
    """Answers what the server asks, and remembers it."""

    def __init__(self):
        self.seen = []
        self.logs = []
        self.progress = []
        self.updated = asyncio.get_running_loop().create_future()
        # The token of the progress that came last.
        self.token = None
        self.counting = asyncio.Event()

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

    async def message(self, message):
        match getattr(message, "root", None):
            case types.ResourceUpdatedNotification(params=params) if not self.updated.done():
                self.updated.set_result(str(params.uri))
            case types.ProgressNotification(params=params):
                self.token = params.progressToken
                self.counting.set()


def text(result):
    return result.content[0].text


async def updated(session, asked):
    """Of which resource the client is told that it has changed."""
    await session.subscribe_resource(WATCHED)
    await session.call_tool("change_watched_resource", {})
    uri = await asked.updated
    await session.unsubscribe_resource(WATCHED)
    return uri


async def gives_up(session, asked, trace):
    """Gives up a call that runs. This line has no call for that: its user sends the notification, with the id of the
    request, which is its progress token too."""
    arguments, meta = {"to": 100, "delayMs": 500}, {"traceparent": trace}
    asked.counting.clear()
    calling = asyncio.create_task(session.call_tool("count", arguments, progress_callback=asked.on_progress, meta=meta))
    await asked.counting.wait()
    params = types.CancelledNotificationParams(requestId=asked.token, reason="enough")
    note = types.CancelledNotification(params=params)
    await session.send_notification(types.ClientNotification(note))
    calling.cancel()
    await asyncio.wait({calling})
    return calling.cancelled()


async def script(session, asked, trace):
    hello = await session.initialize()
    tools = await session.list_tools()
    prompts = await session.list_prompts()
    resources = await session.list_resources()
    templates = await session.list_resource_templates()
    await session.set_logging_level("debug")
    reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    completed = await session.complete(reference, {"name": "arg1", "value": "par"})
    prompt = await session.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
    read = await session.read_resource(AnyUrl("test://static-text"))
    filled = await session.read_resource(AnyUrl("test://template/7/data"))
    told = await updated(session, asked)
    called = await session.call_tool("test_simple_text", {})
    await session.call_tool("test_tool_with_progress", {}, progress_callback=asked.on_progress)
    progress = list(asked.progress)
    await session.call_tool("test_tool_with_logging", {})
    sampled = await session.call_tool("test_sampling", {"prompt": "the capital of France"})
    elicited = await session.call_tool("test_elicitation", {"message": "Who?"})
    rooted = await session.call_tool("test_input_required_result_list_roots", {})
    cancelled = await gives_up(session, asked, trace)
    await session.send_roots_list_changed()
    await session.send_ping()
    return {
        "protocol": hello.protocolVersion,
        "tools": [tool.name for tool in tools.tools],
        "prompts": [entry.name for entry in prompts.prompts],
        "resources": [str(entry.uri) for entry in resources.resources],
        "templates": [entry.uriTemplate for entry in templates.resourceTemplates],
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


async def main(url, _revision, trace):
    asked = Asked()
    async with streamable_http_client(url) as (read, write, _session_id):
        callbacks = {
            "sampling_callback": asked.sample,
            "elicitation_callback": asked.elicit,
            "list_roots_callback": asked.roots,
            "logging_callback": asked.log,
            "message_handler": asked.message,
        }
        async with ClientSession(read, write, **callbacks) as session:
            print(json.dumps(await script(session, asked, trace)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
