"""One audio block."""

from typing import Any

from asp_plugin import Context, Result, plugin

SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """A sound of one sample."""
    return Result(content=[{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}])
