"""What a text is about, by its words: the first topic of which it has one."""

from __future__ import annotations

from typing import Any

from asp_plugin import Context, plugin

WORDS = {"billing": {"invoice", "refund", "paid", "price"}, "access": {"log", "login", "password", "locked"}}


@plugin.tool
async def topic(args: dict[str, Any], _ctx: Context) -> dict[str, str]:
    """Names the topic."""
    words = {word.strip(".,;:!?\"'") for word in args["text"].lower().split()}
    return {"topic": next((topic for topic, known in WORDS.items() if words & known), "other")}
