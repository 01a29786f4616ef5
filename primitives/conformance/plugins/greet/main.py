"""A greeting, at once."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Greets."""
    return Result(content=[{"type": "text", "text": f"Hello, {args['name']}!"}])
