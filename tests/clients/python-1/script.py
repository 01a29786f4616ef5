"""The official Python SDK, 1.x line, goes through what a client can do: script.py URL.

The server is the platform's `conformance`. Prints one line of JSON: what each step came to, and what it was asked.
"""

import asyncio
import json
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


class Asked:
    """Answers what the server asks, and remembers it."""

    def __init__(self):
        self.seen = []
        self.logs = []
        self.progress = []

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


def text(result):
    return result.content[0].text


async def script(session, asked):
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
    await session.subscribe_resource(AnyUrl("test://watched-resource"))
    await session.unsubscribe_resource(AnyUrl("test://watched-resource"))
    called = await session.call_tool("test_simple_text", {})
    await session.call_tool("test_tool_with_progress", {}, progress_callback=asked.on_progress)
    await session.call_tool("test_tool_with_logging", {})
    sampled = await session.call_tool("test_sampling", {"prompt": "the capital of France"})
    elicited = await session.call_tool("test_elicitation", {"message": "Who?"})
    rooted = await session.call_tool("test_input_required_result_list_roots", {})
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
        "progress": asked.progress,
    }


async def main(url):
    asked = Asked()
    async with streamable_http_client(url) as (read, write, _session_id):
        callbacks = {
            "sampling_callback": asked.sample,
            "elicitation_callback": asked.elicit,
            "list_roots_callback": asked.roots,
            "logging_callback": asked.log,
        }
        async with ClientSession(read, write, **callbacks) as session:
            print(json.dumps(await script(session, asked)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
