"""The official Python SDK (mcp 2.x) as a client: client.py URL MODE TOOL ARGUMENTS.

MODE is `legacy`, `auto` or a protocol version. The bearer token is in ASP_TOKEN; transport.py says how it gets there. With
ASP_CLIENT_CERT and ASP_CLIENT_KEY, files, the client shows that certificate and has no token.
Lists the tools, calls TOOL with the JSON object ARGUMENTS and prints {"protocol", "tools", "result"} as one line of JSON.
With ASP_BREAK the bridge is killed in the middle of a call before that, and the line has {"broken": how that call ended}
too; the rest is done over a new bridge.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import json
import os
import signal
import ssl
import sys

import httpx2
from mcp import Client

import transport

# Hang guard of a call whose bridge is gone.
BREAKS_WITHIN = 30


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as listed:
        return [int(child) for child in listed.read().split()]


async def broken(url, http, mode):
    """How a call ends whose bridge is killed in its middle."""

    async def kill(_progress, _total, _message):
        for child in children():
            os.kill(child, signal.SIGKILL)

    try:
        async with Client(transport.to(url, http), mode=mode) as client:
            calling = client.call_tool("count", {"to": 100, "delayMs": 500}, progress_callback=kill)
            await asyncio.wait_for(calling, BREAKS_WITHIN)
            return "answered"
    except TimeoutError:
        return "hung"
    except Exception:
        return "failed"


def proof():
    """By what the HTTP client proves who it is."""
    if "ASP_CLIENT_CERT" not in os.environ:
        return {"headers": {"Authorization": f"Bearer {os.environ['ASP_TOKEN']}"}}
    shows = ssl.create_default_context()
    shows.load_cert_chain(os.environ["ASP_CLIENT_CERT"], os.environ["ASP_CLIENT_KEY"])
    return {"verify": shows}


async def main(url, mode, tool, arguments):
    async with httpx2.AsyncClient(**proof(), timeout=30) as http:
        ended = {"broken": await broken(url, http, mode)} if "ASP_BREAK" in os.environ else {}
        async with Client(transport.to(url, http), mode=mode) as client:
            tools = await client.list_tools()
            result = await client.call_tool(tool, arguments)
            answer = {
                "protocol": client.protocol_version,
                "tools": [entry.name for entry in tools.tools],
                "result": result.model_dump(by_alias=True, mode="json", exclude_none=True),
                **ended,
            }
    print(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
