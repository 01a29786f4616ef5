"""Sends the user to a page. What is done there the shop knows: a real plugin asks it before it goes on."""

from asp_plugin import plugin


@plugin.tool
async def main(args, ctx):
    answer = await ctx.elicit("checkout", url=f"https://shop.example.com/checkout/{args['plan']}")
    if answer.action == "accept":
        await ctx.elicitation_completed("checkout")
    return {"subscribed": answer.action == "accept"}
