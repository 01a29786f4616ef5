"""An MCP server over HTTP, as a service team may have one; prints {"port": n} as its first line."""

import json
import socket

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("tickets", version="1.0.0")


@server.tool()
def list_tickets() -> list[str]:
    """Lists the numbers of all tickets."""
    return ["7"]


@server.tool()
def get_ticket(number: str) -> str:
    """Returns the title of a ticket."""
    return f"Ticket {number}"


@server.tool()
def close_ticket(number: str) -> str:
    """Closes a ticket."""
    return f"closed {number}"


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listening])
