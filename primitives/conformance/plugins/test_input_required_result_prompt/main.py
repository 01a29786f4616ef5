"""A prompt that asks the user before it is made."""

from typing import Any

from asp_plugin import Message, ReadContext, plugin


@plugin.prompt
async def handle(args: dict[str, Any], ctx: ReadContext) -> Message:
    """Asks for the context and uses it."""
    answer = await ctx.elicit("user_context")
    return Message(f"Use this context: {answer.fields.get('context', 'none')}")
