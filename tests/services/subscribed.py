"""An MCP server of 2025-11-25 with sessions, made with the official Python SDK, 1.x line: subscribed.py.

Prints {"port": n} as its first line. `set` writes the note and says to every session that has subscribed to
note://text that it has changed. What it hears of subscriptions goes to standard output, a line of JSON each.
"""

import contextlib
import json
import socket

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.routing import Route

NOTE = AnyUrl("note://text")


class Subscribable(Server):
    def create_initialization_options(self, *args, **kwargs):
        # This SDK has the handlers, and no way to declare them.
        options = super().create_initialization_options(*args, **kwargs)
        options.capabilities.resources = types.ResourcesCapability(subscribe=True)
        return options


server = Subscribable("subscribed")
note = {"text": "first"}
sessions = []


@server.list_tools()
async def tools():
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    # Nothing that needs an approval.
    harmless = types.ToolAnnotations(readOnlyHint=True, openWorldHint=False)
    return [types.Tool(name="set", description="Writes the note.", inputSchema=schema, annotations=harmless)]


@server.call_tool()
async def call(_name, arguments):
    note["text"] = arguments["text"]
    for session in list(sessions):
        await session.send_resource_updated(NOTE)
    return [types.TextContent(type="text", text=note["text"])]


@server.list_resources()
async def resources():
    return [types.Resource(uri=NOTE, name="note", mimeType="text/plain")]


@server.read_resource()
async def read(_uri):
    return [ReadResourceContents(content=note["text"], mime_type="text/plain")]


@server.subscribe_resource()
async def subscribe(uri):
    sessions.append(server.request_context.session)
    print(json.dumps({"subscribed": str(uri)}), flush=True)


@server.unsubscribe_resource()
async def unsubscribe(uri):
    sessions.remove(server.request_context.session)
    print(json.dumps({"unsubscribed": str(uri)}), flush=True)


class Endpoint:
    def __init__(self, manager):
        self.manager = manager

    async def __call__(self, scope, receive, send):
        await self.manager.handle_request(scope, receive, send)


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    manager = StreamableHTTPSessionManager(app=server)

    @contextlib.asynccontextmanager
    async def running(_app):
        async with manager.run():
            yield

    app = Starlette(routes=[Route("/mcp", Endpoint(manager))], lifespan=running)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
