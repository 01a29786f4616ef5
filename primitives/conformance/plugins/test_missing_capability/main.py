"""A tool that cannot do without the client's model."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks the model."""
    said = await ctx.delegate("needed_model", "Say something.")
    return Result(content=[{"type": "text", "text": said["text"]}])
