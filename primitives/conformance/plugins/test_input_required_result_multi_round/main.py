"""Two forms, one after the other."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks for the name, then for the colour."""
    name = await ctx.elicit("step1")
    color = await ctx.elicit("step2")
    text = f"{name.fields.get('name')} likes {color.fields.get('color')}."
    return Result(content=[{"type": "text", "text": text}])
