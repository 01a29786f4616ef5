"""The official Python SDK logs in: login.py URL MODE with its 2.x line, login.py URL with its 1.x line.

It prints `LOGIN <authorization URL>` and reads the address to which its user was sent back. Calls `hello`, then
`write`, which wants a scope that the first login did not ask for, then `hello` again when its token has ended. Prints
{"results", "logins", "refreshed", "scope"} as one line of JSON.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

REDIRECT = "http://127.0.0.1:9/callback"


class Storage:
    def __init__(self):
        self.tokens = None
        self.info = None
        self.given = 0

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens
        self.given += 1

    async def get_client_info(self):
        return self.info

    async def set_client_info(self, info):
        self.info = info


@asynccontextmanager
async def line_1(url, provider):
    import httpx
    from mcp import ClientSession

    async with httpx.AsyncClient(auth=provider, timeout=60) as http:
        async with streamable_http_client(url, http_client=http) as (read, write, *_):
            async with ClientSession(read, write) as session:
                await session.initialize()
                yield session


@asynccontextmanager
async def line_2(url, provider, mode):
    import httpx2
    from mcp import Client

    async with httpx2.AsyncClient(auth=provider, timeout=60) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield client


async def main(url, mode=None):
    storage, logins = Storage(), []

    async def redirect(address):
        logins.append(address)
        print("LOGIN", address, flush=True)

    async def callback():
        line = await asyncio.to_thread(sys.stdin.readline)
        given = {name: values[0] for name, values in parse_qs(urlsplit(line.strip()).query).items()}
        if mode is None:
            return given["code"], given.get("state")
        from mcp.shared.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))

    provider = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(client_name="Python", redirect_uris=[REDIRECT]),
        storage=storage,
        redirect_handler=redirect,
        callback_handler=callback,
    )
    async with line_1(url, provider) if mode is None else line_2(url, provider, mode) as client:
        texts = []
        for tool in ("hello", "write"):
            texts.append((await client.call_tool(tool, {"message": tool})).content[0].text)
        before, given = len(logins), storage.given
        await asyncio.sleep(storage.tokens.expires_in + 1)
        texts.append((await client.call_tool("hello", {"message": "again"})).content[0].text)
        assert len(logins) == before, "a token that has ended is refreshed, without its user"
    refreshed = storage.given - given
    print(json.dumps({"results": texts, "logins": len(logins), "refreshed": refreshed, "scope": storage.tokens.scope}))


asyncio.run(main(*sys.argv[1:]))
