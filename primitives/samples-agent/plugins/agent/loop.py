"""The loop: asks the model, calls the tools that it uses, and asks again with their results.

Owns the bounds of a request. Keeps true: a request ends after a bounded number of questions and calls, with an answer or
with an error that says why; a cancel ends it where it waits, and a lost worker's successor continues it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import tokens
from hooks import Chain
from run import Answer, Run, ToolResult, ToolUse

from asp_plugin import CheckpointError, DelegationError, PluginError

# Questions to the model.
TURNS = 8
# Calls of tools.
CALLS = 16
# Tokens of one result, and of all results of a turn.
RESULT_TOKENS = 4000
TURN_TOKENS = 16_000
# Conversation beyond which the model has to answer. With the results of one more turn it is below the 512 KiB of a question.
BYTES = 200 << 10
MODEL_SECONDS = 120.0
TOOL_SECONDS = 60.0
# Questions of one turn whose answer the platform rejects, because it uses a tool that was not offered for instance.
REJECTED = 2
CHECKPOINT_BYTES = 60_000
UNANSWERED = {
    "unsupported": "the operator has none for it (ASP_DELEGATE_URL), and the client has none that uses tools",
    "limited": "a limit is reached; try again later",
    "refused": "the model, or a policy of the platform, refused the question",
    "too_large": "the conversation is too large",
    "expired": f"it took longer than {MODEL_SECONDS:.0f} s",
    "invalid_output": "it used a tool that it was not offered",
}


async def work(run: Run, chain: Chain) -> str:
    """Returns the answer to the request. PluginError if there is none."""
    while True:
        run.turn += 1
        await run.ctx.progress(run.percent(), f"Asking the model, turn {run.turn}")
        await chain.before_model(run)
        must_answer = is_exhausted(run)
        answer = await ask(run, "none" if must_answer else "auto")
        if answer.uses and must_answer:
            spent = f"{run.turn} turns and {len(run.used)} calls"
            raise PluginError("TOO_LONG", f"the model had no answer after {spent}")
        await chain.after_model(run, answer)
        if not answer.uses:
            return answer.text
        limit = min(RESULT_TOKENS, TURN_TOKENS // len(answer.uses))
        results = await asyncio.gather(*(result_block(run, chain, use, limit) for use in answer.uses))
        run.messages.append({"role": "assistant", "content": answer.content})
        run.messages.append({"role": "user", "content": list(results)})
        await save(run)


def is_exhausted(run: Run) -> bool:
    """Whether a bound is reached, so that the model has to answer now."""
    size = len(json.dumps(run.messages, ensure_ascii=False).encode(errors="replace"))
    return run.turn >= TURNS or len(run.used) >= CALLS or size > BYTES


async def ask(run: Run, tool_choice: str) -> Answer:
    """Asks the models in their order until one answers."""
    reason = "unsupported"
    for model in run.models:
        for _ in range(REJECTED):
            try:
                given = await run.ctx.converse(
                    model, run.messages, tools=run.tools, tool_choice=tool_choice, timeout=MODEL_SECONDS
                )
                return read(given)
            except DelegationError as error:
                reason = error.reason
                if reason != "invalid_output":
                    break
    text = f"no model answered: {UNANSWERED.get(reason, reason)}"
    raise PluginError("MODEL_UNAVAILABLE", text, {"reason": reason})


def read(given: dict[str, Any]) -> Answer:
    """Returns the model's answer with the tools that it uses."""
    content = given["content"]
    blocks = [block for block in content if block["type"] == "tool_use"]
    uses = [ToolUse(block["id"], block["name"], block["input"]) for block in blocks]
    return Answer(given["text"], content, uses)


async def result_block(run: Run, chain: Chain, use: ToolUse, limit: int) -> dict[str, Any]:
    """Calls a tool, and returns the block with its result, of at most `limit` tokens."""
    # Counted before anything is awaited, so that calls at a time do not pass the bound together.
    run.used.append(use.name)
    refused = len(run.used) > CALLS
    result = ToolResult("no more calls", is_error=True) if refused else await chain.before_tool(run, use)
    if result is None:
        result = await call(run, use)
    result = await chain.after_tool(run, use, result)
    text = {"type": "text", "text": tokens.cut(result.text, limit)}
    return {"type": "tool_result", "toolUseId": use.id, "content": [text], "isError": result.is_error}


async def call(run: Run, use: ToolUse) -> ToolResult:
    """Calls a primitive of the server as the caller of the agent."""
    if not run.offers(use.name):
        return ToolResult(f"there is no tool {use.name}", is_error=True)
    try:
        given = await run.ctx.delegate(use.name, use.input, timeout=TOOL_SECONDS)
        return ToolResult(given["text"])
    except DelegationError as error:
        return ToolResult(f"{use.name} failed: {error.reason}", is_error=True)


async def save(run: Run) -> None:
    """Saves the conversation if it fits a checkpoint. Without one, a successor starts from an earlier turn."""
    state = run.state()
    if len(json.dumps(state).encode()) > CHECKPOINT_BYTES:
        return
    try:
        await run.ctx.checkpoint(state)
    except CheckpointError as error:
        await run.ctx.log("warn", f"the conversation was not saved: {error.reason}")
