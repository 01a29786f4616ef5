"""One log line, which only who asks for log lines gets."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Logs, and answers."""
    await ctx.log("info", "One line.")
    return Result(content=[{"type": "text", "text": "Logged one line."}])
