"""A computation that takes its time."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Waits."""
    await asyncio.sleep(args["seconds"])
    return Result(content=[{"type": "text", "text": f"Computed for {args['seconds']} s."}])
