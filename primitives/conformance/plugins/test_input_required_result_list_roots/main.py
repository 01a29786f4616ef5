"""One question for the client's roots on the way to the result."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks for the roots and names them."""
    told = await ctx.delegate("client_roots", None)
    uris = ", ".join(root["uri"] for root in told["json"]["roots"])
    return Result(content=[{"type": "text", "text": f"The client's roots: {uris}"}])
