"""The chain of hooks around the model and the tools.

Keeps true: hooks run one after the other in the order of the list, before and after, so that a hook sees what those before
it have changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from run import Answer, Run, ToolResult, ToolUse


class Hook:
    """A hook. Each method does nothing unless a subclass replaces it."""

    async def before_model(self, run: Run) -> None:
        """Runs before the model is asked, and may change the conversation, the tools and the models."""

    async def after_model(self, run: Run, answer: Answer) -> None:
        """Runs after the model has answered; the last answer of a run uses no tools."""

    async def before_tool(self, run: Run, use: ToolUse) -> ToolResult | None:
        """Runs before a tool is called. A result is given to the model in place of the tool's."""
        return None

    async def after_tool(self, run: Run, use: ToolUse, result: ToolResult) -> ToolResult:
        """Runs after a tool, and returns the result for the model."""
        return result


class Chain:
    """Hooks in their order."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self.hooks = tuple(hooks)

    async def before_model(self, run: Run) -> None:
        """Runs all hooks."""
        for hook in self.hooks:
            await hook.before_model(run)

    async def after_model(self, run: Run, answer: Answer) -> None:
        """Runs all hooks."""
        for hook in self.hooks:
            await hook.after_model(run, answer)

    async def before_tool(self, run: Run, use: ToolUse) -> ToolResult | None:
        """Runs the hooks up to the first one that has a result."""
        for hook in self.hooks:
            result = await hook.before_tool(run, use)
            if result is not None:
                return result
        return None

    async def after_tool(self, run: Run, use: ToolUse, result: ToolResult) -> ToolResult:
        """Runs all hooks, also for a result that a hook gave."""
        for hook in self.hooks:
            result = await hook.after_tool(run, use, result)
        return result
