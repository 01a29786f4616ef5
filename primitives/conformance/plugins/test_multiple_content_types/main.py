"""Blocks of several kinds."""

from typing import Any

from asp_plugin import Context, Result, plugin

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@plugin.tool
async def handle(args: dict[str, Any], ctx: Context) -> Result:
    """A text, an image and a resource."""
    resource = {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": '{"test":"data","value":123}',
    }
    return Result(
        content=[
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "resource", "resource": resource},
        ]
    )
