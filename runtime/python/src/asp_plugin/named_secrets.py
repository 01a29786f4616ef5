"""The operator's named secrets that this process may use.

Owns them for the whole process: every primitive that it serves may use the same ones. They are in no environment.
"""

from __future__ import annotations

from .errors import SecretError
from .values import Secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_granted: dict[str, Secret] = {}


def hold(granted: Mapping[str, str]) -> None:
    """Takes what the platform's first message has."""
    _granted.update((name, Secret(text)) for name, text in granted.items())


def find(name: str) -> Secret:
    """Returns a secret; SecretError when it is not granted."""
    secret = _granted.get(name)
    if secret is None:
        raise SecretError(name)
    return secret
