"""A resource of a template, which reflects what its URI says."""

import json
from typing import Any

from asp_plugin import Content, Context, plugin


@plugin.resource
async def handle(args: dict[str, Any], ctx: Context) -> Content:
    """The id of the URI, as data."""
    data = {"id": args["id"], "templateTest": True, "data": f"Data for ID: {args['id']}"}
    return Content(json.dumps(data), "application/json")
