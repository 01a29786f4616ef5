"""An argument that a header mirrors."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Tells the argument."""
    return Result(content=[{"type": "text", "text": args.get("region", "none")}])
