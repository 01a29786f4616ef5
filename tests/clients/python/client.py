"""The official Python SDK (mcp 2.x) as a client: client.py URL MODE TOOL ARGUMENTS.

MODE is `legacy`, `auto` or a protocol version. The bearer token is in ASP_TOKEN; transport.py says how it gets there.
Lists the tools, calls TOOL with the JSON object ARGUMENTS and prints {"protocol", "tools", "result"} as one line of JSON.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client

import transport


async def main(url, mode, tool, arguments):
    headers = {"Authorization": f"Bearer {os.environ['ASP_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        async with Client(transport.to(url, http), mode=mode) as client:
            tools = await client.list_tools()
            result = await client.call_tool(tool, arguments)
            answer = {
                "protocol": client.protocol_version,
                "tools": [entry.name for entry in tools.tools],
                "result": result.model_dump(by_alias=True, mode="json", exclude_none=True),
            }
    print(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
