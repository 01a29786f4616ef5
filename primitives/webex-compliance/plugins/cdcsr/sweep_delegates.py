"""What the sweep makes of a delegate's answer.

A delegate is a model: the platform hands over its text and, where that is JSON, the value. Owns the reading
of both, and of prose that names a score. Keeps true: an answer that cannot be read counts as none.
"""

from __future__ import annotations

import json
import re
from typing import Any

import sweep_scan

from asp_plugin import Context, DelegationError

SECONDS = 30.0
# A model's answer is not trusted to be short.
MAX_ENTRIES = 100


async def ask(ctx: Context, delegate_id: str, text: str) -> tuple[Any, str]:
    """The delegate's answer and "", or None and why there is none."""
    try:
        answer = await ctx.delegate(delegate_id, {"text": text}, timeout=SECONDS)
    except DelegationError as error:
        return None, error.reason
    read = _read(answer)
    return (read, "") if read is not None else (None, "unreadable")


def _read(answer: Any) -> Any:
    """A list or an object, from whatever wraps it; None when it is neither."""
    if isinstance(answer, dict) and isinstance(answer.get("json"), (list, dict)):
        answer = answer["json"]
    elif isinstance(answer, dict) and isinstance(answer.get("text"), str):
        answer = _in_prose(answer["text"])
    elif isinstance(answer, str):
        answer = _in_prose(answer)
    if isinstance(answer, list):
        return answer[:MAX_ENTRIES]
    return answer if isinstance(answer, dict) else None


def _in_prose(text: str) -> Any:
    """The JSON a model put between words, or the score it names: "PII score 0.87, high"."""
    starts = [at for at in (text.find("["), text.find("{")) if at >= 0]
    end = max(text.rfind("]"), text.rfind("}"))
    if starts:
        try:
            return json.loads(text[min(starts) : end + 1])
        except ValueError:
            pass
    named = re.search(r"score\D{0,5}(0?\.\d+|[01](?:\.\d+)?)", text, re.I)
    return {"score": float(named.group(1))} if named else None


def risk(answer: Any) -> float | None:
    """0..1 from `{"score": x}` or from a list of kinds."""
    if isinstance(answer, dict):
        value = answer.get("score")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        return None
    if isinstance(answer, list):
        return sweep_scan.score(
            [kind for kind in answer if isinstance(kind, str) and kind in sweep_scan.RULES]
        )
    return None


def phrases(answer: Any) -> list[str]:
    """The strings of a list."""
    return [one for one in answer if isinstance(one, str)] if isinstance(answer, list) else []


def spans(answer: Any) -> list[dict[str, str]]:
    """The `{from, to, reason}` entries of a list."""
    found = []
    for one in answer if isinstance(answer, list) else []:
        if isinstance(one, dict) and "from" in one and "to" in one:
            found.append({key: str(one.get(key, ""))[:100] for key in ("from", "to", "reason")})
    return found
