"""A job that asks."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks."""
    answer = await ctx.elicit("confirm_file")
    done = "Deleted" if answer.fields.get("confirm") else "Kept"
    return Result(content=[{"type": "text", "text": f"{done} {args['filename']}."}])
