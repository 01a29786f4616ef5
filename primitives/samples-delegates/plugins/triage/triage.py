"""Two delegations at a time: one that another tool answers, one that a model answers.

Which of them is a model is written in the specs; this code would not change if it were the other way round.
"""

from __future__ import annotations

import asyncio
from typing import Any

from asp_plugin import Context, DelegationError, plugin

SECONDS = 30.0


@plugin.tool
async def triage(args: dict[str, Any], ctx: Context) -> dict[str, str]:
    """Asks both and puts their answers together."""
    text = {"text": args["text"]}
    topic, urgency = await asyncio.gather(ask(ctx, "topic_of", text), ask(ctx, "urgency_of", text))
    result = {"topic": "other", "urgency": "unknown"}
    if topic:
        result["topic"] = topic["json"]["topic"]
    if urgency:
        # A model may leave out the quotes of a JSON string.
        result["urgency"] = urgency.get("json", urgency["text"])
    if "model" in urgency:
        result["model"] = urgency["model"]
    return result


async def ask(ctx: Context, delegate_id: str, text: dict[str, str]) -> dict[str, Any]:
    """The answer, which fits the delegate's output schema; empty where there is none."""
    try:
        return await ctx.delegate(delegate_id, text, timeout=SECONDS)
    except DelegationError as error:
        await ctx.log("warn", f"{delegate_id}: {error.reason}")
        return {}
