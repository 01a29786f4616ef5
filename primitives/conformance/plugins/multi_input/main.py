"""A job that asks twice at a time."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks both before it waits for either."""
    sure, name = await asyncio.gather(ctx.elicit("confirm_file"), ctx.elicit("confirm_name"))
    text = f"{name.fields.get('name')}: {sure.fields.get('confirm')}"
    return Result(content=[{"type": "text", "text": text}])
