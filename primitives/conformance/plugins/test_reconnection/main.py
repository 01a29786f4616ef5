"""An answer that comes after its stream was closed."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin

# Longer than a stream may be quiet, and less than its double: the client comes back once.
PAUSE = 7.0


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Says something, is quiet, and answers."""
    await ctx.log("info", "The stream is closed while this call goes on.")
    await asyncio.sleep(PAUSE)
    return Result(content=[{"type": "text", "text": "The client came back for this."}])
