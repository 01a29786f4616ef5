"""Greets everybody."""

from asp_plugin import ReadContext, plugin


@plugin.resource
async def run(args: dict[str, str], ctx: ReadContext) -> str:
    return "Hello, everybody!"
