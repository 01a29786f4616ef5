"""State of one request while the agent works on it.

Owns the conversation, and its form as a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from asp_plugin import Context

# First text of every conversation: with the system prompt and the tools it is the prefix that never changes.
INSTRUCTIONS = (
    "The request follows. Call tools when you need them, several at a time if they do not depend on each other. "
    "When you know the answer, write it without calling a tool."
)


class ToolUse(NamedTuple):
    """One use of a tool by the model."""

    id: str
    name: str
    input: Any


class ToolResult(NamedTuple):
    """Text for the model; `is_error`: the tool failed or was refused."""

    text: str
    is_error: bool = False


class Answer(NamedTuple):
    """One answer of the model: final unless it uses tools."""

    text: str
    content: list[dict[str, Any]]
    uses: list[ToolUse]


@dataclass
class Run:
    """One request. Hooks change it."""

    ctx: Context
    request: str
    # MCP sampling messages.
    messages: list[dict[str, Any]]
    # Definitions, or `{"delegate": id}` for a primitive of the server.
    tools: list[dict[str, Any]]
    # Delegates to ask, in order.
    models: list[str]
    # Name for the skill that the request teaches; empty for none.
    learn: str = ""
    turn: int = 0
    # Names of the tools that were called, in order.
    used: list[str] = field(default_factory=list)
    # Names of the learned skills that the model was given.
    skills: list[str] = field(default_factory=list)
    remembered: bool = False
    # `_meta` of the result.
    meta: dict[str, Any] = field(default_factory=dict)
    # Seconds since 1970.
    now: Callable[[], float] = time.time

    @classmethod
    def begin(cls, ctx: Context, request: str, tools: Sequence[str], model: str, learn: str = "") -> Run:
        """Starts a request, or continues it where an earlier worker was lost."""
        texts = [{"type": "text", "text": INSTRUCTIONS}, {"type": "text", "text": request}]
        messages: list[dict[str, Any]] = [{"role": "user", "content": texts}]
        run = cls(ctx, request, messages, [{"delegate": tool} for tool in tools], [model], learn)
        if ctx.resume is not None and ctx.resume.state is not None:
            state = ctx.resume.state
            run.messages, run.turn = state["messages"], state["turn"]
            run.used, run.skills = state["used"], state["skills"]
        return run

    def state(self) -> dict[str, Any]:
        """Returns everything that another worker needs to continue."""
        return {"messages": self.messages, "turn": self.turn, "used": self.used, "skills": self.skills}

    def percent(self) -> float:
        """Returns how far the run is: it approaches 100 with each turn, since nobody knows how many there are."""
        return 100.0 - 100.0 * 0.75**self.turn

    def offers(self, name: str) -> bool:
        """Whether the model is offered this primitive."""
        return {"delegate": name} in self.tools
