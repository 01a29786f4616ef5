"""Asks for a greeting."""

from asp_plugin import ReadContext, plugin


@plugin.prompt
async def run(args: dict[str, str], ctx: ReadContext) -> str:
    return f"Write a greeting for {args['name']}."
