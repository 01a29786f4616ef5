"""A prompt with a resource in it."""

from typing import Any

from asp_plugin import Context, Message, plugin


@plugin.prompt
async def handle(args: dict[str, Any], ctx: Context) -> list[Message]:
    """The resource, and what is to be done with it."""
    resource = {
        "uri": args["resourceUri"],
        "mimeType": "text/plain",
        "text": "Embedded resource content for testing.",
    }
    return [
        Message({"type": "resource", "resource": resource}),
        Message("Please process the embedded resource above."),
    ]
