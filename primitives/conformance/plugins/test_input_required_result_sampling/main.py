"""One question to a model on the way to the result."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks the model."""
    said = await ctx.delegate("capital_question", "What is the capital of France?")
    return Result(content=[{"type": "text", "text": said["text"]}])
