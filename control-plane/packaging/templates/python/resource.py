"""Greets everybody."""

from asp_plugin import ReadContext, plugin


@plugin.resource
async def run(args: dict, ctx: ReadContext) -> str:
    return "Hello, everybody!"
