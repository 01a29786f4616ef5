"""What is scanned and how it is judged: the bundled items, the query, the rules.

Owns the rule-based score. Keeps true: the same item has the same score in every run, and what leaves here
of an item's text is masked.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

# Kind of finding → how to find it, and how grave one is (0..1).
RULES: dict[str, tuple[re.Pattern[str], float]] = {
    "payment-card": (re.compile(r"\b\d(?:[ -]?\d){12,18}\b"), 0.9),
    "national-id": (re.compile(r"\b\d{3}-\d{2}-\d{4}\b"), 0.9),
    "credential": (re.compile(r"\b(?:password|api_key|secret)\s*[=:]\s*\S+", re.I), 0.85),
    "health": (re.compile(r"\b(?:diabetes|hiv|cancer|pregnan\w+)\b", re.I), 0.75),
    "address": (re.compile(r"\b\d+ [A-Z]\w+ (?:Street|Road|Avenue)\b"), 0.5),
    "email": (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]*\w"), 0.35),
    "phone": (re.compile(r"\b555-01\d\d\b"), 0.35),
    "legal": (re.compile(r"attorney-client privileged|litigation hold|breach of contract", re.I), 0.65),
}
LEGAL = frozenset({"legal"})
PERSONAL = frozenset(RULES) - LEGAL
# What a query may call a kind, or several.
WORDS: dict[str, frozenset[str]] = {
    "pii": PERSONAL,
    "personal data": PERSONAL,
    "restricted phrase": LEGAL,
    "restricted phrases": LEGAL,
    "legal": LEGAL,
    "credit card": frozenset({"payment-card"}),
    **{kind: frozenset({kind}) for kind in RULES},
}


def parse_time(text: str) -> datetime:
    """Reads an RFC 3339 time."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def load(domain: str, start: datetime, end: datetime) -> list[dict[str, Any]]:
    """The items of a domain within the range; each has id, at, text and, for calls, lines."""
    items = []
    for raw in json.loads((DATA / f"{domain}.json").read_text("utf-8")):
        if start <= parse_time(raw["at"]) <= end:
            lines = raw.get("transcript", [])
            text = raw.get("text") or " ".join(line["text"] for line in lines)
            items.append({"id": raw["id"], "at": raw["at"], "text": text, "lines": lines})
    return items


def compile_query(query: str) -> list[str]:
    """The alternatives of `a OR b`, in lower case; ValueError when there is none."""
    clauses = [clause.strip().lower() for clause in re.split(r"\s+OR\s+", query)]
    clauses = [clause for clause in clauses if clause]
    if not clauses:
        raise ValueError("the query is empty")
    return clauses


def kinds_in(text: str) -> list[str]:
    """Which rules find something, in the table's order."""
    return [kind for kind, (pattern, _) in RULES.items() if _hits(kind, pattern, text)]


def asked_for(clauses: list[str], text: str, kinds: list[str]) -> bool:
    """Whether an item is what the query looks for: a kind by one of its names, or all words of a clause."""
    lowered = text.lower()
    for clause in clauses:
        named = [members for word, members in WORDS.items() if re.search(rf"\b{re.escape(word)}\b", clause)]
        if any(members.intersection(kinds) for members in named):
            return True
        if not named and all(word in lowered for word in clause.split()):
            return True
    return False


def score(kinds: list[str]) -> float:
    """0..1: the chance that at least one of the findings is grave."""
    harmless = 1.0
    for kind in kinds:
        harmless *= 1 - RULES[kind][1]
    return round(1 - harmless, 2)


def blend(by_rules: float, by_model: float | None) -> float:
    """The rules' score, moved a little towards the model's."""
    return by_rules if by_model is None else round(0.7 * by_rules + 0.3 * by_model, 2)


def mask(text: str) -> str:
    """The text with every finding replaced by its kind, at most 120 characters."""
    for kind, (pattern, _) in RULES.items():
        if kind not in LEGAL:
            text = pattern.sub(f"[{kind}]", text)
    return text if len(text) <= 120 else text[:119] + "…"


def _hits(kind: str, pattern: re.Pattern[str], text: str) -> bool:
    found = pattern.findall(text)
    return any(_is_card(one) for one in found) if kind == "payment-card" else bool(found)


def _is_card(text: str) -> bool:
    """ISO/IEC 7812-1 Annex B (Luhn)."""
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
