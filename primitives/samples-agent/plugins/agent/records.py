"""Lists of small records in the plugin's store, one list for each user.

Owns the form of a list: JSON objects, what matters least first. Keeps true: a list fits one value of the store, and ends
by itself if its user does not return; of two requests that end at the same moment both are kept; a store that is full or
unavailable fails no request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from asp_plugin import Context, PluginError

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
    except PluginError as error:
        await ctx.log("warn", f"the store did not return {key}: {_reason(error)}")
        return []


async def update(ctx: Context, key: str, change: Callable[[Records], Records]) -> bool:
    """Replaces a list by `change` of it; `False` if it could not be stored."""
    reason = ""
    for _ in range(TRIES):
        try:
            found = await ctx.storage.get_versioned(key, user=True)
            records = within(change(_records(found.value if found else None)))
            version = found.version if found else 0
            await ctx.storage.put(key, records, ttl_seconds=TTL_SECONDS, user=True, if_version=version)
            return True
        except PluginError as error:
            reason = _reason(error)
            if reason != "conflict":
                break
    await ctx.log("warn", f"the store did not keep {key}: {reason}")
    return False


def within(records: Records) -> Records:
    """Returns the last records that fit one value."""
    while records and len(json.dumps(records, ensure_ascii=False).encode(errors="replace")) > MAX_BYTES:
        records = records[1:]
    return records


def _records(value: Any) -> Records:
    """Reads a stored value; one of another form, of an earlier version for instance, is dropped."""
    return [record for record in value if isinstance(record, dict)] if isinstance(value, list) else []


def _reason(error: PluginError) -> str:
    """Returns the word of a StorageError."""
    return getattr(error, "reason", error.code)
