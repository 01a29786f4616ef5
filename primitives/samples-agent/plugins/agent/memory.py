"""Memory: a short summary of each request that was answered, for the user's next requests.

Keeps true: at most 10 summaries, and at most 2,000 tokens of them, reach the model; the oldest are dropped first.
"""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import Any

import records
import tokens

from asp_plugin import Context

KEY = "memory"
SUMMARIES = 10
TOKENS = 2000
REQUEST_TOKENS = 80
ANSWER_TOKENS = 160
MAX_TOOLS = 8
BLOCK = "<prior_sessions>\n{}\n</prior_sessions>"


def summary(request: str, answer: str, tools: list[str], now: float) -> dict[str, Any]:
    """Returns the record of an answered request."""
    return {
        "at": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M"),
        "request": tokens.cut(request, REQUEST_TOKENS),
        "answer": tokens.cut(answer, ANSWER_TOKENS),
        "tools": list(dict.fromkeys(tools))[:MAX_TOOLS],
    }


async def remember(ctx: Context, record: dict[str, Any]) -> bool:
    """Adds a summary and drops the oldest beyond the bound; `False` if it could not be stored."""
    return await records.update(ctx, KEY, lambda found: [*found, record][-SUMMARIES:])


async def recall(ctx: Context) -> str:
    """Returns the block for the model; empty if nothing is remembered."""
    return block(await records.load(ctx, KEY))


def block(found: records.Records) -> str:
    """Returns the newest summaries within the budget, in the order in which they were made."""
    texts = [_text(record) for record in reversed(found[-SUMMARIES:])]
    kept = tokens.first_within(texts, TOKENS - tokens.count(BLOCK))
    return BLOCK.format("\n".join(reversed(kept))) if kept else ""


def _text(record: dict[str, Any]) -> str:
    """Returns a summary as text, in which nothing looks like the end of the block."""
    named = [(name, record.get(name)) for name in ("at", "request", "answer")]
    parts = [f"{name}: {value}" for name, value in named if isinstance(value, str)]
    tools = record.get("tools")
    if isinstance(tools, list) and tools:
        parts.append(f"tools: {', '.join(map(str, tools))}")
    return "- " + html.escape("; ".join(parts), quote=False)
