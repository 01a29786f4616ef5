"""Prices of the shop."""

from __future__ import annotations

from typing import Any

from asp_plugin import Context, PluginError, plugin

CENTS = {"K-1": 3500, "K-2": 3900, "T-1": 2900, "C-1": 650}


@plugin.tool
async def quote(args: dict[str, Any], _ctx: Context) -> dict[str, int]:
    """Works out a price."""
    if args["item"] not in CENTS:
        raise PluginError("UNKNOWN_ITEM", f"the catalog has no item {args['item']}")
    return {"cents": CENTS[args["item"]] * args.get("count", 1)}
