"""Log lines, some time apart."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin

PAUSE = 0.05


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Logs, and answers."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", line)
        await asyncio.sleep(PAUSE)
    return Result(content=[{"type": "text", "text": "Tool with logging executed successfully"}])
