"""A plugin that does as it should: returns its text after the given time, with the release it is."""

import asyncio
from typing import Any

import release

from asp_plugin import Context, plugin


@plugin.tool
async def echo(args: dict[str, Any], ctx: Context) -> Any:
    """Says that it has begun when asked to, and waits."""
    if args.get("begin"):
        await ctx.progress(1, "begun")
    await asyncio.sleep(args.get("ms", 0) / 1000)
    return {"text": args.get("text", ""), "release": release.RELEASE}
