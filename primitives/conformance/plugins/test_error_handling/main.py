"""A tool error."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Fails in a way that a model can read."""
    text = "This tool intentionally returns an error for testing"
    return Result(content=[{"type": "text", "text": text}], is_error=True)
