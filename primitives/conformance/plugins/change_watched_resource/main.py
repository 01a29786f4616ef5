"""A change that subscribers are told of."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Tells of it, and answers."""
    await ctx.resource_changed("test://watched-resource")
    return Result(content=[{"type": "text", "text": "The watched resource has changed."}])
