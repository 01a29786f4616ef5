"""Progress, some time apart."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin

PAUSE = 0.05


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Reports, and answers."""
    for percent in (0, 50, 100):
        await ctx.progress(percent, f"Completed step {percent} of 100")
        await asyncio.sleep(PAUSE)
    return Result(content=[{"type": "text", "text": "Reported progress."}])
