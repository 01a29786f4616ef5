"""Okapi BM25 over a few short documents (Robertson and Zaragoza, 2009)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

K1 = 1.2
B = 0.75
WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Returns the words of a text in lower case."""
    return WORD.findall(text.lower())


def scores(query: str, documents: Sequence[str]) -> list[float]:
    """Returns how well each document fits the query; 0 if they have no word in common."""
    counts = [Counter(words(document)) for document in documents]
    lengths = [count.total() for count in counts]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    found = [0.0] * len(documents)
    for word in set(words(query)):
        having = sum(word in count for count in counts)
        weight = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        for at, count in enumerate(counts):
            norm = K1 * (1 - B + B * lengths[at] / average)
            found[at] += weight * count[word] * (K1 + 1) / (count[word] + norm)
    return found
