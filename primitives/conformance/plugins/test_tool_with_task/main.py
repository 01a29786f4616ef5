"""A job that asks before it becomes a task."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks, and goes on for a while."""
    answer = await ctx.elicit("user_name")
    await asyncio.sleep(1)
    return Result(content=[{"type": "text", "text": f"Done for {answer.fields.get('name')}."}])
