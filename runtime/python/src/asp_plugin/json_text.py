"""JSON as the protocol carries it: UTF-8 text without NaN or infinities."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_bytes(value: Any) -> bytes:
    """Encodes; ValueError or TypeError when `value` is no JSON value."""
    # A lone surrogate is written as its escape (RFC 8259 section 8.2): UTF-8 cannot hold it.
    return _encode(value).encode("utf-8", "backslashreplace")


# What UTF-8 cannot hold: `json` joins pairs, so that these are alone.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def readable(value: Any) -> Any:
    """A copy with U+FFFD in the place of each lone surrogate, as the gateway reads such text."""
    return json.loads(_LONE_SURROGATE.sub("\ufffd", _encode(value)))


def text(value: str | None) -> str:
    """The text with U+FFFD in the place of each lone surrogate, for fields of the protocol that are not JSON."""
    if value is None or value.isascii():
        return value or ""
    return _LONE_SURROGATE.sub("\ufffd", value)


def from_bytes(text: bytes) -> Any:
    """Decodes; empty text is None. ValueError when it is no JSON."""
    return json.loads(text) if text else None
