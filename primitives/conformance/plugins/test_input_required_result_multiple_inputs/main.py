"""Three questions at a time."""

import asyncio
from typing import Any

from asp_plugin import Context, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks all three before it waits for any."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("user_name"),
        ctx.delegate("greeting_text", "Generate a greeting"),
        ctx.delegate("client_roots", None),
    )
    text = f"{greeting['text']} {name.fields.get('name')}, {len(roots['json']['roots'])} roots"
    return Result(content=[{"type": "text", "text": text}])
