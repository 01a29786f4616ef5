"""The official Python SDK (mcp 2.x) as a client that answers questions: interactive.py URL MODE TOOL ARGUMENTS SCRIPT.

SCRIPT is a JSON object, each member optional:
  answers   by a property of the asked form: the content to accept with, or "decline" or "cancel"
  sampled   the text every sampling request is answered with; without it the client cannot sample
  uses      the input with which the model uses the first tool it is offered, once; without it, it can use none
  visits    whether the user agrees to visit pages; with "told", {"page": URL} is printed first, as a line of its own
  roots     the URIs of the directories that a server may work on; without it, the client has none to tell
  reads     the URI of a resource that is read after the call
  lists     list the resources after the call
  prompts   the name and the arguments of a prompt that is got after it
  cancel    give the call up when its progress has reached this value
  held      give the call up when standard input ends
  key       the idempotency key of the call
The bearer token is in ASP_TOKEN. Prints one line of JSON: {"protocol", "progress", "asked", "sampled", "logs",
"cancelled", "result", "error", "linked", "listed", "read", "prompted"}; `linked` holds the resources that the result links to, read
back.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, MCPError
from mcp.types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    ListRootsResult,
    Root,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
    ToolUseContent,
)

import transport


class Record:
    """What happened during the call, and the answers that were given."""

    def __init__(self, script):
        self.script = script
        self.progress = []
        self.asked = []
        self.sampled = []
        self.logs = []
        self.reached = asyncio.Event()

    async def on_progress(self, progress, total, message):
        self.progress.append({"progress": progress, "total": total, "message": message})
        if progress >= self.script.get("cancel", float("inf")):
            self.reached.set()

    async def on_log(self, params):
        self.logs.append({"level": params.level, "data": params.data})

    async def elicit(self, _context, params):
        if params.mode == "url":
            self.asked.append({"message": params.message, "url": params.url})
            if self.script.get("visits") == "told":
                print(json.dumps({"page": params.url}), flush=True)
            return ElicitResult(action="accept" if self.script.get("visits") else "decline")
        properties = list(params.requested_schema["properties"])
        self.asked.append({"message": params.message, "properties": properties})
        for name in properties:
            answer = self.script.get("answers", {}).get(name)
            if isinstance(answer, str):
                return ElicitResult(action=answer)
            if answer is not None:
                return ElicitResult(action="accept", content=answer)
        return ElicitResult(action="cancel")

    async def roots(self, _context):
        return ListRootsResult(roots=[Root(uri=uri) for uri in self.script["roots"]])

    async def sample(self, _context, params):
        self.sampled.append(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        if "uses" in self.script and params.tools and len(params.messages) == 1:
            used = ToolUseContent(type="tool_use", id="use-1", name=params.tools[0].name, input=self.script["uses"])
            return CreateMessageResultWithTools(role="assistant", content=used, model="test", stop_reason="toolUse")
        content = TextContent(type="text", text=self.script["sampled"])
        return CreateMessageResult(role="assistant", content=content, model="test")


async def call(client, record, tool, arguments):
    """The result, or the error, or that the call was given up."""
    if record.script.get("held"):
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), lambda: os.read(sys.stdin.fileno(), 1) or record.reached.set())
    meta = {"asp/idempotencyKey": record.script["key"]} if "key" in record.script else None
    asking = client.call_tool(tool, arguments, progress_callback=record.on_progress, meta=meta)
    calling = asyncio.create_task(asking)
    giving_up = asyncio.create_task(record.reached.wait())
    await asyncio.wait({calling, giving_up}, return_when=asyncio.FIRST_COMPLETED)
    giving_up.cancel()
    if not calling.done():
        calling.cancel()
        await asyncio.wait({calling})
        return {"cancelled": True}
    try:
        return {"result": calling.result().model_dump(by_alias=True, mode="json", exclude_none=True)}
    except MCPError as error:
        return {"error": error.error.model_dump(by_alias=True, mode="json", exclude_none=True)}


async def linked(client, result):
    contents = []
    for block in result.get("content", []):
        if block["type"] == "resource_link":
            read = await client.read_resource(block["uri"])
            contents += [entry.model_dump(by_alias=True, mode="json", exclude_none=True) for entry in read.contents]
    return contents


async def others(client, script):
    """What the script wants besides the call."""
    got = {}
    if script.get("lists"):
        got["listed"] = await client.list_resources()
    if "reads" in script:
        got["read"] = await client.read_resource(script["reads"])
    if "prompts" in script:
        got["prompted"] = await client.get_prompt(*script["prompts"])
    return {name: result.model_dump(by_alias=True, mode="json", exclude_none=True) for name, result in got.items()}


async def main(url, mode, tool, arguments, script):
    headers = {"Authorization": f"Bearer {os.environ['ASP_TOKEN']}"}
    record = Record(script)
    sampling = {"sampling_callback": record.sample} if "sampled" in script else {}
    if "uses" in script:
        sampling["sampling_capabilities"] = SamplingCapability(tools=SamplingToolsCapability())
    if "roots" in script:
        sampling["list_roots_callback"] = record.roots
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(
            transport.to(url, http),
            mode=mode,
            elicitation_callback=record.elicit,
            logging_callback=record.on_log,
            log_level="debug",
            **sampling,
        ) as client:
            ended = await call(client, record, tool, arguments)
            answer = {
                "protocol": client.protocol_version,
                "progress": record.progress,
                "asked": record.asked,
                "sampled": record.sampled,
                "logs": record.logs,
                "cancelled": False,
                **ended,
                "linked": await linked(client, ended.get("result", {})),
                **await others(client, script),
            }
    print(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), json.loads(sys.argv[5])))
