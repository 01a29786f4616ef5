"""One image block."""

from typing import Any

from asp_plugin import Context, Result, plugin

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """An image of one pixel."""
    return Result(content=[{"type": "image", "data": PIXEL, "mimeType": "image/png"}])
