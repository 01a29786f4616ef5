"""One confirmation; the state between the requests is the platform's, and sealed."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks for the confirmation."""
    answer = await ctx.elicit("confirm")
    return Result(content=[{"type": "text", "text": f"state-ok: {answer.action}"}])
