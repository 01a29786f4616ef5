"""How a plugin's file names its handlers: `@plugin.tool` and its siblings.

Owns one registry per worker. Keeps true: at most one handler and one hook of each sort.
"""

from __future__ import annotations

from .errors import LoadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, overload

    Handler = TypeVar("Handler", bound=Callable[..., Any])

# Which decorator serves which kind of manifest.
SERVES = {
    "tool": "tool",
    "task": "tool",
    "resource": "resource",
    "resource_template": "resource",
    "prompt": "prompt",
}


class Plugin:
    """The registry behind the name `plugin`.

    A handler is `async def` or a plain `def`; a plain one runs in a thread of its own and gets the
    blocking twin of the context, so it may compute or wait as it likes.
    """

    def __init__(self) -> None:
        self.kind: str | None = None
        self.handler: Callable[..., Any] | None = None
        self.resumable = False
        self.hooks: dict[str, Callable[..., Any]] = {}

    if TYPE_CHECKING:

        @overload
        def tool(self, handler: Handler, /) -> Handler: ...
        @overload
        def tool(self, /, *, resumable: bool = False) -> Callable[[Handler], Handler]: ...

    def tool(self, handler: Any = None, /, *, resumable: bool = False) -> Any:
        """Marks `handler(args, ctx)` as the tool or task. Its types, dataclasses or pydantic models, are its schemas.

        `resumable` says that it looks at `ctx.resume` and goes on from its last checkpoint; the platform
        then runs it again after a worker was lost.
        """
        self.resumable = self.resumable or resumable
        if handler is None:
            return lambda function: self._claim("tool", function)
        return self._claim("tool", handler)

    def resource(self, handler: Handler) -> Handler:
        """Marks `handler(args, ctx)` as the reader: args are the URI template's variables, `ctx.uri` the URI.

        It returns str, bytes, a Content, or a list or (async) iterator of those.
        """
        return self._claim("resource", handler)

    def prompt(self, handler: Handler) -> Handler:
        """Marks `handler(args, ctx)` as the prompt; returns str, a Message, a list of those, or a Prompt."""
        return self._claim("prompt", handler)

    def on_session_start(self, hook: Handler) -> Handler:
        """Marks `hook(session)`: run once, before the first call. If it raises, the worker is not used."""
        return self._hook("session_start", hook)

    def on_resume(self, hook: Handler) -> Handler:
        """Marks `hook(resume, ctx)`: run before the handler of a resumed call.

        What it returns, unless None, becomes `ctx.resume.state`: the place to convert an older state.
        """
        self.resumable = True
        return self._hook("resume", hook)

    def list(self, hook: Handler) -> Handler:
        """Marks `hook(ctx)`: lists the resources or prompts there are, as dicts of their Info fields."""
        return self._hook("list", hook)

    def complete(self, hook: Handler) -> Handler:
        """Marks `hook(argument, value, known, ctx)`: lists the texts that could be meant by `value`, typed for
        `argument` of the prompt or template, best first; `known` has the others, as far as the client tells them.

        It is asked for arguments of which the spec says `completions: {argument: plugin}`.
        """
        return self._hook("complete", hook)

    def watch(self, hook: Handler) -> Handler:
        """Marks `async def hook(ctx)`: an async generator that yields the URI of what changed, or "" for `ctx.uri`,
        which somebody subscribed to. It is cancelled when nobody is any more.

        It is asked where the spec says `watched: plugin`; `ctx.caller` has the org alone.
        """
        return self._hook("watch", hook)

    def _claim(self, kind: str, handler: Handler) -> Handler:
        if not callable(handler):
            raise LoadError(f"@plugin.{kind} needs a function")
        if self.handler is not None:
            raise LoadError("a plugin has one handler; this one defines two")
        self.kind, self.handler = kind, handler
        return handler

    def _hook(self, name: str, hook: Handler) -> Handler:
        if name in self.hooks:
            raise LoadError(f"the hook {name} is defined twice")
        self.hooks[name] = hook
        return hook


plugin = Plugin()
