"""Lets the client's model use a tool of this plugin's until it has an answer."""

from asp_plugin import plugin

ADD = {
    "name": "add",
    "description": "Adds two numbers.",
    "inputSchema": {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    },
}
MAX_ROUNDS = 8


def told(block):
    try:
        text, failed = str(block["input"]["a"] + block["input"]["b"]), False
    except (KeyError, TypeError):
        text, failed = "add takes two numbers, a and b", True
    content = [{"type": "text", "text": text}]
    return {"type": "tool_result", "toolUseId": block["id"], "content": content, "isError": failed}


@plugin.tool
async def main(args, ctx):
    messages = [{"role": "user", "content": {"type": "text", "text": args["question"]}}]
    added = 0
    said = {"text": ""}
    for _ in range(MAX_ROUNDS):
        said = await ctx.converse("thinker", messages, tools=[ADD])
        uses = [block for block in said["content"] if block["type"] == "tool_use"]
        if not uses:
            break
        added += len(uses)
        messages.append({"role": "assistant", "content": said["content"]})
        messages.append({"role": "user", "content": [told(block) for block in uses]})
    return {"answer": said["text"], "added": added}
