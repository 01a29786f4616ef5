"""Greets someone by name."""

from asp_plugin import Context, plugin


@plugin.tool
async def run(args: dict, ctx: Context) -> dict:
    await ctx.progress(50, "finding the words")
    return {"greeting": f"Hello, {args['name']}!"}
