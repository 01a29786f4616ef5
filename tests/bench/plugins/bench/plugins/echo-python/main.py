"""Says what it was told."""

from asp_plugin import Context, plugin


@plugin.tool
async def run(args: dict, ctx: Context) -> dict:
    return {"text": args["text"]}
