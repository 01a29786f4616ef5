"""A job whose tool fails."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Fails."""
    await asyncio.sleep(1)
    return Result(content=[{"type": "text", "text": "The job failed."}], is_error=True)
