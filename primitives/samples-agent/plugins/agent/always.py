"""The hooks of every agent, in their order: prompt cache, knowledge, audit, message capture."""

from __future__ import annotations

import json
from typing import Any

import memory
import skills
import tokens
from hooks import Hook
from run import Answer, Run, ToolResult, ToolUse

CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
# The request is a text like others, and a skill is found by its first words.
QUERY_TOKENS = 500
MESSAGE = {
    "name": "message",
    "description": "Sends the user a short message while you work.",
    "inputSchema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["text"],
        "properties": {"text": {"type": "string", "maxLength": 1000}},
    },
}
MESSAGE_TOKENS = 250


class PromptCache(Hook):
    """Marks the end of the prefix that never changes (system prompt, tools, instructions), so that an endpoint may cache it."""

    async def before_model(self, run: Run) -> None:
        run.messages[0]["content"][0]["_meta"] = CACHE_MARK


class Knowledge(Hook):
    """Gives the model the user's memory and the skills that fit the request, just after the marked prefix."""

    async def before_model(self, run: Run) -> None:
        if run.turn != 1:
            return
        now = run.now()
        learned = await skills.learned(run.ctx, now)
        query = tokens.cut(run.request, QUERY_TOKENS)
        text, given = skills.block(skills.find(query, [*skills.bundled(), *learned], now))
        run.skills = [skill.name for skill in given if skill in learned]
        texts = [part for part in (await memory.recall(run.ctx), text) if part]
        run.messages[0]["content"][1:1] = [{"type": "text", "text": part} for part in texts]

    async def after_model(self, run: Run, answer: Answer) -> None:
        if not answer.uses and run.skills:
            await skills.mark_used(run.ctx, run.skills, run.now())


class Audit(Hook):
    """Writes a line of the call's log for each question to the model and each use of a tool, without texts and arguments.

    The platform's own audit has the call of each primitive and the tokens of each question besides.
    """

    def __init__(self) -> None:
        self._began: dict[str, float] = {}

    async def before_model(self, run: Run) -> None:
        await self._write(run, "model", turn=run.turn, tokens=tokens.count(json.dumps(run.messages)))

    async def before_tool(self, run: Run, use: ToolUse) -> ToolResult | None:
        self._began[use.id] = run.now()
        return None

    async def after_tool(self, run: Run, use: ToolUse, result: ToolResult) -> ToolResult:
        seconds = run.now() - self._began.pop(use.id, run.now())
        outcome = "error" if result.is_error else "ok"
        await self._write(run, "tool", tool=use.name, outcome=outcome, ms=round(seconds * 1000))
        return result

    async def _write(self, run: Run, event: str, **details: Any) -> None:
        await run.ctx.log("info", json.dumps({"event": f"agent.{event}", **details}))


class MessageCapture(Hook):
    """Offers the model a tool by which it writes to the user, and reports what it writes as progress. It is the last hook, so
    that it sees every change of the others."""

    async def before_model(self, run: Run) -> None:
        if MESSAGE not in run.tools:
            run.tools.append(MESSAGE)

    async def before_tool(self, run: Run, use: ToolUse) -> ToolResult | None:
        if use.name != MESSAGE["name"]:
            return None
        text = use.input.get("text") if isinstance(use.input, dict) else None
        if not isinstance(text, str) or not text:
            return ToolResult("message takes a text", is_error=True)
        await run.ctx.progress(run.percent(), tokens.cut(text, MESSAGE_TOKENS))
        return ToolResult("sent")
