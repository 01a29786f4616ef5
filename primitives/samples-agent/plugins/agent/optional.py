"""Hooks that an agent may have. `main` lists those of this one; the places of the others are named there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import memory
import skills
import tokens
from hooks import Hook
from run import Answer, Run, ToolResult, ToolUse

SKILL = "application/vnd.protolabs.skill-v1+json"
MORE = {
    "name": "more_tools",
    "description": "Offers you all other tools from now on.",
    "inputSchema": {"type": "object", "additionalProperties": False},
}


class Enforcement(Hook):
    """Refuses tools that are not listed, and more calls of one than its bound. The platform's policy holds besides."""

    def __init__(self, bounds: dict[str, int]) -> None:
        self.bounds = bounds

    async def before_tool(self, run: Run, use: ToolUse) -> ToolResult | None:
        if not run.offers(use.name):
            return None
        if run.used.count(use.name) > self.bounds.get(use.name, 0):
            return ToolResult(f"{use.name} may not be called here, or not again", is_error=True)
        return None


class ToolDeferral(Hook):
    """Offers a few tools, and the others once the model asks for them: long lists of tools cost tokens in each turn."""

    def __init__(self, first: Iterable[str]) -> None:
        self.first = frozenset(first)
        self._deferred: list[dict[str, Any]] = []

    async def before_model(self, run: Run) -> None:
        if run.turn == 1:
            self._deferred = [tool for tool in run.tools if tool.get("delegate", "") not in self.first]
            run.tools[:] = [tool for tool in run.tools if tool not in self._deferred]
        if self._deferred and MORE not in run.tools:
            run.tools.append(MORE)

    async def before_tool(self, run: Run, use: ToolUse) -> ToolResult | None:
        if use.name != MORE["name"]:
            return None
        run.tools[:] = [tool for tool in run.tools if tool != MORE] + self._deferred
        self._deferred = []
        return ToolResult("all tools are offered")


class MemoryWriter(Hook):
    """Keeps a summary of the request once it is answered."""

    async def after_model(self, run: Run, answer: Answer) -> None:
        if not answer.uses:
            record = memory.summary(run.request, answer.text, run.used, run.now())
            run.remembered = await memory.remember(run.ctx, record)


class SkillIngest(Hook):
    """Keeps the steps of an answered request as a skill if its caller names one, and reports it as `skill-v1`."""

    async def after_model(self, run: Run, answer: Answer) -> None:
        if answer.uses or not run.learn:
            return
        now = run.now()
        steps = ", then ".join(run.used) or "no tool"
        text = tokens.cut(f"Request: {run.request}\nTools: {steps}", skills.TEXT_TOKENS)
        skill = skills.Skill(run.learn, tokens.cut(run.request, 40), text, used_at=now)
        if await skills.learn(run.ctx, skill, now):
            run.meta[SKILL] = {
                "name": skill.name,
                "description": skill.description,
                "prompt_template": skill.text,
                "tools_used": list(dict.fromkeys(run.used)),
                "created_at": datetime.fromtimestamp(now, UTC).isoformat(),
                "source_session_id": run.ctx.task_id,
            }


class Summarization(Hook):
    """Shortens the results of earlier turns once the conversation exceeds its budget."""

    def __init__(self, budget: int = 20_000, kept: int = 50) -> None:
        self.budget = budget
        self.kept = kept

    async def before_model(self, run: Run) -> None:
        results = [block for message in run.messages[:-1] for block in _results(message)]
        for block in results:
            if tokens.count(str(run.messages)) <= self.budget:
                return
            block["content"] = [
                {"type": "text", "text": tokens.cut(part["text"], self.kept)} for part in block["content"]
            ]


class ModelFallback(Hook):
    """Names models that are asked if the one before gives no answer; each is a delegate of the spec."""

    def __init__(self, models: Sequence[str]) -> None:
        self.models = list(models)

    async def before_model(self, run: Run) -> None:
        run.models[1:] = self.models


def _results(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in message["content"] if block["type"] == "tool_result"]
