"""Progress before a question."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Reports, and asks."""
    await ctx.progress(10, "about to ask")
    answer = await ctx.elicit("user_name")
    return Result(content=[{"type": "text", "text": f"{answer.action}"}])
