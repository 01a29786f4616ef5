"""An agent: a loop in which a model uses tools of this server until it can answer a request.

The modules are `loop` (the loop and its bounds), `hooks` (the chain before and after model and tool), `always` and
`optional` (its hooks), `memory`, `skills`, `records` (the store) and `tokens`. A fork changes `TOOLS`, and the list of
`hook_chain`.
"""

from __future__ import annotations

from typing import Any

from always import Audit, Knowledge, MessageCapture, PromptCache
from hooks import Chain
from loop import work
from optional import MemoryWriter, SkillIngest
from run import Run

from asp_plugin import Context, Result, plugin

# Delegates that primitives of this server answer; the platform adds their descriptions and schemas.
TOOLS = ("search_catalog", "quote_price")
MODEL = "agent_model"


def hook_chain() -> Chain:
    """Returns the hooks in their order: a hook sees what those before it have changed.

    `optional` has more of them: Enforcement after PromptCache, ToolDeferral after Knowledge, Summarization and
    ModelFallback before MessageCapture.
    """
    return Chain([PromptCache(), Knowledge(), Audit(), MemoryWriter(), SkillIngest(), MessageCapture()])


@plugin.tool(resumable=True)
async def agent(args: dict[str, Any], ctx: Context) -> Result:
    """Works on a request."""
    run = Run.begin(ctx, args["request"], TOOLS, MODEL, learn=args.get("learn", ""))
    answer = await work(run, hook_chain())
    output = {"answer": answer, "turns": run.turn, "tools": run.used, "remembered": run.remembered}
    return Result(output, content=[{"type": "text", "text": answer}], meta=run.meta or None)
