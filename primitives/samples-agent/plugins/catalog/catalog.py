"""Items of the shop, found by the words of their names."""

from __future__ import annotations

from typing import Any

from asp_plugin import Context, plugin

ITEMS = {"K-1": "red kettle", "K-2": "blue kettle", "T-1": "blue teapot", "C-1": "white cup"}


@plugin.tool
async def catalog(args: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    """Finds the items whose names have all the words."""
    words = set(args["words"].lower().split())
    found = [{"id": item, "name": name} for item, name in ITEMS.items() if words <= set(name.split())]
    return {"items": found}
