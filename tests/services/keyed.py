"""An MCP server and an HTTP API that want a key: keyed.py MCP_KEY API_KEY, files of one line each.

Prints {"port": N}. `POST /mcp` (made with the official Python SDK) wants `x-api-key`, `GET /items/{id}` a bearer token; who
has none gets 401 and a word of what is missing, never the key.
"""

import hmac
import json
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("keyed", version="1.0.0")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def greet(name: str) -> str:
    """Greets."""
    return f"Hello {name}"


async def say(send, status, answer):
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def keyed(app, mcp_key, api_key):
    async def answer(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)
        headers = dict(scope["headers"])
        path = scope["path"]
        if path.startswith("/items/"):
            if not hmac.compare_digest(headers.get(b"authorization", b""), b"Bearer " + api_key):
                return await say(send, 401, {"error": "a bearer token is missing"})
            return await say(send, 200, {"id": path.removeprefix("/items/"), "title": "An item"})
        if not hmac.compare_digest(headers.get(b"x-api-key", b""), mcp_key):
            return await say(send, 401, {"error": "x-api-key is missing"})
        return await app(scope, receive, send)

    return answer


def key(path):
    with open(path, "rb") as file:
        return file.read().strip()


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    app = keyed(server.streamable_http_app(), key(sys.argv[1]), key(sys.argv[2]))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
