"""One form on the way to the result."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks for the name."""
    answer = await ctx.elicit("user_name")
    return Result(content=[{"type": "text", "text": f"Hello, {answer.fields.get('name', 'stranger')}!"}])
