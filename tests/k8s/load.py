"""The official Python SDK under load: load.py URL SERVERS WORKERS SECONDS-FILE. Calls the tool of each server, one call after the
other in each worker, a new client every 20 calls, until the file is there; prints one line of JSON: what was called and every
failure. The token is in ASP_TOKEN, the authority of the server's certificate in SSL_CERT_FILE.
"""

import asyncio
import json
import os
import ssl
import sys
import time

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

CALLS_OF_A_CLIENT = 20


async def worker(number, url, servers, until, told):
    server = servers[number % len(servers)]
    mode = "legacy" if number // len(servers) % 2 else "auto"
    context = ssl.create_default_context()
    while not os.path.exists(until):
        try:
            headers = {"Authorization": f"Bearer {os.environ['ASP_TOKEN']}"}
            async with httpx2.AsyncClient(headers=headers, verify=context, timeout=60) as http:
                async with Client(streamable_http_client(f"{url}/{server}/mcp", http_client=http), mode=mode) as client:
                    for _ in range(CALLS_OF_A_CLIENT):
                        if os.path.exists(until):
                            return
                        began = time.monotonic()
                        result = await client.call_tool(server, {"name": "Ada"})
                        took = time.monotonic() - began
                        text = "".join(getattr(part, "text", "") for part in result.content)
                        if result.is_error or "Ada" not in text:
                            told["failures"].append([time.time(), server, mode, text[:300], str(result.meta)[:300]])
                        told["calls"][f"{server} {mode}"] = told["calls"].get(f"{server} {mode}", 0) + 1
                        told["slowest"] = max(told["slowest"], took)
                        await asyncio.sleep(0.05)
        except Exception as error:
            told["failures"].append([time.time(), server, mode, describe(error)])
            await asyncio.sleep(0.2)


def describe(error):
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(each) for each in error.exceptions)[:400]
    return f"{type(error).__name__}: {error}"[:400]


async def main(url, servers, workers, until):
    told = {"calls": {}, "failures": [], "slowest": 0.0}
    await asyncio.gather(*(worker(number, url, servers.split(","), until, told) for number in range(int(workers))))
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
