"""JSON as the protocol carries it: UTF-8 text without NaN or infinities."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_bytes(value: Any) -> bytes:
    """Encodes; ValueError or TypeError when `value` is no JSON value."""
    # A lone surrogate is written as its escape (RFC 8259 section 8.2): UTF-8 cannot hold it.
    return _encode(value).encode("utf-8", "backslashreplace")


def from_bytes(text: bytes) -> Any:
    """Decodes; empty text is None. ValueError when it is no JSON."""
    return json.loads(text) if text else None
