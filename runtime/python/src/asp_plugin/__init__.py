"""Write a tool, resource or prompt for the Agentic Server Platform.

from asp_plugin import Context, plugin

@plugin.tool
async def greet(args: dict, ctx: Context) -> dict:
    await ctx.progress(50, "thinking of a greeting")
    return {"text": f"Hello, {args['name']}!"}
"""

from .context import Context
from .errors import (
    ArtifactError,
    Cancelled,
    CheckpointError,
    DelegationError,
    ElicitationError,
    NotFound,
    PluginError,
    TooLarge,
)
from .plugin import plugin
from .reads import ReadContext
from .sync_context import SyncContext
from .values import Answer, Caller, Content, Field, Message, Prompt, Result, Resume, Secret, Session

__all__ = [
    "Answer",
    "ArtifactError",
    "Caller",
    "Cancelled",
    "CheckpointError",
    "Content",
    "Context",
    "DelegationError",
    "ElicitationError",
    "Field",
    "Message",
    "NotFound",
    "PluginError",
    "Prompt",
    "ReadContext",
    "Result",
    "Resume",
    "Secret",
    "Session",
    "SyncContext",
    "TooLarge",
    "plugin",
]
