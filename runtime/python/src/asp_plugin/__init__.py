"""Write a tool, resource or prompt for the Agentic Server Platform.

    from asp_plugin import Context, plugin

    @dataclass
    class Greeting:
        name: str

    @plugin.tool
    async def greet(args: Greeting, ctx: Context) -> dict:
        await ctx.progress(50, "thinking of a greeting")
        return {"text": f"Hello, {args.name}!"}

Names are imported when they are first used: the worker has settings to make before gRPC is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context
    from .errors import (
        ArtifactError,
        Cancelled,
        CheckpointError,
        DelegationError,
        ElicitationError,
        NotFound,
        PluginError,
        SecretError,
        StorageError,
        TooLarge,
    )
    from .handlers import plugin
    from .reads import ReadContext
    from .storage import Storage, StoredValue
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
    "SecretError",
    "Session",
    "Storage",
    "StorageError",
    "StoredValue",
    "SyncContext",
    "TooLarge",
    "plugin",
]

_MODULES = ("handlers", "errors", "values", "context", "sync_context", "storage", "reads")


def __getattr__(name: str) -> Any:
    """Finds a name where it is defined (PEP 562) and keeps it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    for module in _MODULES:
        found = import_module(f".{module}", __name__)
        if hasattr(found, name):
            value = globals()[name] = getattr(found, name)
            return value
    raise AttributeError(name)
