"""A tool whose schema uses much of JSON Schema 2020-12."""

from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Tells which fields came."""
    return Result(content=[{"type": "text", "text": ", ".join(sorted(args))}])
