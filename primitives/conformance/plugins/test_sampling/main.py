"""A question to the client's model."""

from typing import Any

from asp_plugin import Context, DelegationError, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks, and tells what was said."""
    try:
        said = await ctx.delegate("test_sampling_question", args["prompt"])
    except DelegationError as error:
        return Result(content=[{"type": "text", "text": f"No answer: {error.reason}"}], is_error=True)
    return Result(content=[{"type": "text", "text": f"LLM response: {said['text']}"}])
