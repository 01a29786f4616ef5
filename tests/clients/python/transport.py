"""How the clients here reach a server: over HTTP, or, where ASP_BRIDGE is a path of `asp`, by `asp mcp` as their child."""

import os

from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


def to(url, http):
    bridge = os.environ.get("ASP_BRIDGE")
    if bridge is None:
        return streamable_http_client(url, http_client=http)
    base, server = url.removesuffix("/mcp").rsplit("/", 1)
    arguments = ["mcp", "--server", server, "--url", base]
    return StdioServerParameters(command=bridge, args=arguments, env={"ASP_TOKEN": os.environ["ASP_TOKEN"]})
