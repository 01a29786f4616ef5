"""Counts tokens: a quarter of the characters, rounded up, whatever the model."""

from __future__ import annotations

from collections.abc import Iterable

CHARACTERS = 4


def count(text: str) -> int:
    """Returns the number of tokens of a text."""
    return -(-len(text) // CHARACTERS)


def cut(text: str, limit: int) -> str:
    """Returns a text of at most `limit` tokens; one that was cut ends with an ellipsis."""
    characters = limit * CHARACTERS
    return text if len(text) <= characters else text[: characters - 1] + "…"


def first_within(texts: Iterable[str], budget: int) -> list[str]:
    """Returns the first texts that together fit the budget; the first one that does not fit ends them."""
    found = []
    for text in texts:
        budget -= count(text)
        if budget < 0:
            break
        found.append(text)
    return found
