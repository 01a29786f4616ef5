"""What can go wrong between a plugin and the platform.

Owns every exception a handler may raise or meet. `Cancelled` is a BaseException, like asyncio's
CancelledError, so that `except Exception` in a plugin does not swallow it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PluginError(Exception):
    """Ends the call as failed. Raise it with a code of your own: the caller sees all three parts.

    `code` is spelled LIKE_THIS; `details` is any JSON value.
    """

    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


def _undeclared(reason: str, key: str) -> str:
    """Where a question is declared, if its reason is that it is not."""
    return f": add it to primitiveDependencies.{key} of the spec" if reason == "undeclared" else ""


class ElicitationError(PluginError):
    """Nobody answered. `reason`: unsupported, expired or undeclared; the codes are those of every language."""

    def __init__(self, elicitation_id: str, reason: str) -> None:
        code = {"undeclared": "UNDECLARED", "expired": "INPUT_EXPIRED"}.get(reason, "INPUT_UNSUPPORTED")
        text = f"elicitation {elicitation_id}: {reason}" + _undeclared(reason, "elicitations")
        super().__init__(code, text, {"reason": reason})
        self.reason = reason


class DelegationError(PluginError):
    """The delegate gave no result. `reason`: a word of runtime/README.md, e.g. unsupported or expired."""

    def __init__(self, delegate_id: str, reason: str) -> None:
        code = "UNDECLARED" if reason == "undeclared" else "DELEGATION_FAILED"
        text = f"delegation {delegate_id}: {reason}" + _undeclared(reason, "delegations")
        super().__init__(code, text, {"reason": reason})
        self.reason = reason


class CheckpointError(PluginError):
    """The state was not saved. `reason`: too_large, stale or unavailable."""

    def __init__(self, reason: str) -> None:
        super().__init__("CHECKPOINT_FAILED", f"checkpoint: {reason}", {"reason": reason})
        self.reason = reason


class StorageError(PluginError):
    """The storage gave no result. `reason`: bad_key, bad_value, bad_ttl, too_large, storage_full, conflict, not_granted,
    too_many or unavailable. After `unavailable` a put or a delete may have happened."""

    def __init__(self, reason: str) -> None:
        super().__init__("STORAGE_FAILED", f"storage: {reason}", {"reason": reason})
        self.reason = reason


class SecretError(PluginError):
    """The primitive may not use the secret. The runtime's log says why."""

    def __init__(self, name: str) -> None:
        message = f"secret {name} is not granted to this primitive"
        super().__init__("SECRET_UNAVAILABLE", message, {"reason": "not_granted"})


class ArtifactError(PluginError):
    """The artifact was refused: a name used twice, or more bytes than the plugin may store."""

    def __init__(self, message: str) -> None:
        super().__init__("ARTIFACT_REFUSED", message)


class TooLarge(PluginError):
    """One message would be larger than the 4 MiB the protocol allows."""

    def __init__(self, size: int) -> None:
        super().__init__("TOO_LARGE", f"the message has {size} bytes, allowed are {4 << 20}")


class NotFound(PluginError):
    """A resource or prompt handler has nothing under this URI or name."""

    def __init__(self, message: str = "not found") -> None:
        super().__init__("NOT_FOUND", message)


class Cancelled(BaseException):
    """The call is to stop. Raised in plain (threaded) handlers; async ones get asyncio.CancelledError.

    Catch it only to clean up, and raise it again.
    """


class LoadError(Exception):
    """The plugin cannot be served: a bad manifest, entrypoint, handler or schema."""
