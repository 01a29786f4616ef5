"""One text block."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """The text that the suite documents."""
    return Result(content=[{"type": "text", "text": "This is a simple text response for testing."}])
