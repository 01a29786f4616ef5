"""The values a handler is given and may return.

Owns no behaviour but hiding a secret from being printed.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Secret:
    """A token or a named secret. Prints as ***; `reveal()` gives its text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for an Authorization header or a connection's password."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "***"


class Caller(NamedTuple):
    """On whose behalf the call is made; any part may be empty."""

    tenant: str
    user: str
    session: str


class Resume(NamedTuple):
    """Where an earlier worker was lost: go on from `state` instead of starting."""

    # The last saved state; None when none was saved.
    state: Any
    seq: int
    # Which execution this is, from 2 on.
    attempt: int
    # Proof for the plugin's own services that this execution replaces the former one.
    token: Secret


class Session(NamedTuple):
    """What `on_session_start` is told."""

    worker_id: str
    work_dir: str
    environment: dict[str, str]

    def secret(self, name: str) -> Secret:
        """See `Context.secret`."""
        from .named_secrets import find

        return find(name)


class Field(NamedTuple):
    """One question of an elicitation. `type`: string, boolean or number."""

    name: str
    type: str = "string"
    required: bool = False
    label: str = ""


class Answer(NamedTuple):
    """What the user said. `action`: accept, decline or cancel; `fields` is empty unless accepted."""

    action: str
    fields: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """Whether the user gave the answers."""
        return self.action == "accept"


class Result(NamedTuple):
    """A tool's result where its output alone does not say it all."""

    output: Any = None
    # MCP content blocks (text, image, audio, resource_link); None: made from the output.
    content: list[dict[str, Any]] | None = None
    # The tool ran and failed in a way the model should read.
    is_error: bool = False
    # `_meta` of the result, such as the values of A2A's extensions; names that begin with `asp/` are left out.
    meta: dict[str, Any] | None = None


class Content(NamedTuple):
    """One content of a resource. An empty `uri` means the one that was read."""

    data: str | bytes
    mime_type: str = ""
    uri: str = ""


class Message(NamedTuple):
    """One message of a prompt. `content` is text or one MCP content block."""

    content: str | dict[str, Any]
    role: str = "user"


class Prompt(NamedTuple):
    """A prompt with a description of its own."""

    messages: list[Message]
    description: str = ""
