"""An MCP server of 2026-07-28 alone, made with the official Python SDK: modern.py.

Prints {"port": n} as its first line. `set` writes the note and says that the resource note://text has changed; `retire`
takes the tool `old` away and says that the tools have changed. What comes in the handshake era is refused, as a server
that has left it behind does.
"""

import json
import socket

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import Completion, ToolAnnotations

server = MCPServer("modern", version="1.0.0")
note = {"text": "first"}
# Nothing that needs an approval.
harmless = ToolAnnotations(read_only_hint=True, open_world_hint=False)


@server.tool(name="set", annotations=harmless)
async def write(text: str, ctx: Context) -> str:
    """Writes the note."""
    note["text"] = text
    await ctx.report_progress(1, 1)
    await ctx.notify_resource_updated("note://text")
    return text


@server.tool(annotations=harmless)
async def retire(ctx: Context) -> str:
    """Takes the old tool away."""
    server.remove_tool("old")
    await ctx.notify_tools_changed()
    return "gone"


@server.tool(annotations=harmless)
async def old() -> str:
    """Is taken away."""
    return "here"


@server.resource("note://text")
def text() -> str:
    """The note."""
    return note["text"]


@server.prompt()
def greet(name: str) -> str:
    """Greets."""
    return f"Hello {name}"


@server.completion()
async def complete(ref, argument, context):
    return Completion(values=[argument.value + "da"])


def modern_alone(app):
    async def answer(scope, receive, send):
        version = dict(scope.get("headers", [])).get(b"mcp-protocol-version")
        if scope["type"] != "http" or version == b"2026-07-28":
            return await app(scope, receive, send)
        message = json.loads((await receive()).get("body") or b"{}")
        error = {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}
        reply = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error}).encode()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    return answer


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    app = modern_alone(server.streamable_http_app())
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
