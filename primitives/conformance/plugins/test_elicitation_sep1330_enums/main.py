"""A form for the user."""

import json
from typing import Any

from asp_plugin import Context, ElicitationError, Result, plugin


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """Asks, and tells what was answered."""
    try:
        answer = await ctx.elicit("test_elicitation_choices_form")
    except ElicitationError as error:
        return Result(content=[{"type": "text", "text": f"No answer: {error.reason}"}], is_error=True)
    text = f"Elicitation completed: action={answer.action}, content={json.dumps(answer.fields)}"
    return Result(content=[{"type": "text", "text": text}])
