"""Lists of small records in the plugin's store, one list for each user.

Owns the form of a list: JSON objects, what matters least first. Keeps true: a list fits one value of the store, and ends
by itself if its user does not return; a store that is full or unavailable fails no request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from asp_plugin import Context

Records = list[dict[str, Any]]

# Below the 64 KiB of one value.
MAX_BYTES = 60_000
TTL_SECONDS = 90 * 24 * 3600
# Another request of the same user may change the list between reading and writing.
TRIES = 3


async def load(ctx: Context, key: str) -> Records:
    """Returns a list; empty if there is none, or if it cannot be read now."""
    try:
        return _records(await ctx.storage.get(key, user=True))
    except Exception as error:
        await _warn(ctx, key, error)
        return []


async def update(ctx: Context, key: str, change: Callable[[Records], Records]) -> bool:
    """Replaces a list by `change` of it; `False` if it could not be stored."""
    for attempt in range(1, TRIES + 1):
        try:
            records = within(change(_records(await ctx.storage.get(key, user=True))))
            await ctx.storage.put(key, records, ttl_seconds=TTL_SECONDS, user=True)
            return True
        except Exception as error:
            if getattr(error, "code", "") != "conflict" or attempt == TRIES:
                await _warn(ctx, key, error)
                return False
    return False


def within(records: Records) -> Records:
    """Returns the last records that fit one value."""
    while records and len(json.dumps(records, ensure_ascii=False).encode(errors="replace")) > MAX_BYTES:
        records = records[1:]
    return records


def _records(value: Any) -> Records:
    """Reads a stored value; one of another form, of an earlier version for instance, is dropped."""
    return [record for record in value if isinstance(record, dict)] if isinstance(value, list) else []


async def _warn(ctx: Context, key: str, error: Exception) -> None:
    """Logs what the store refused; an error without a code is a fault of this code."""
    code = getattr(error, "code", None)
    if code is None:
        raise error
    await ctx.log("warn", f"the store did not keep or return {key}: {code}")
