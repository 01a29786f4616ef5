"""A job that does not end in time."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Waits for longer than it may."""
    await asyncio.sleep(3600)
    return Result(content=[])
