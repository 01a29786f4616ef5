"""How a plugin's file names its handlers: `@plugin.tool` and its siblings.

Owns one registry per worker. Keeps true: a primitive has one handler and at most one hook of each sort.
"""

from __future__ import annotations

from .errors import LoadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, overload

    Function = TypeVar("Function", bound=Callable[..., Any])

# Which decorator serves which kind of manifest.
SERVES = {
    "tool": "tool",
    "task": "tool",
    "resource": "resource",
    "resource_template": "resource",
    "prompt": "prompt",
}


class Handler:
    """The function behind a decorator."""

    def __init__(self, kind: str, function: Callable[..., Any], resumable: bool = False) -> None:
        self.kind = kind
        self.function = function
        self.resumable = resumable

    @property
    def name(self) -> str:
        """The function's name; empty for an object without one."""
        return str(getattr(self.function, "__name__", ""))


class Served:
    """The handler of one primitive, with its hooks."""

    def __init__(
        self, kind: str, handler: Callable[..., Any], resumable: bool, hooks: dict[str, Any]
    ) -> None:
        self.kind = kind
        self.handler = handler
        self.resumable = resumable or "resume" in hooks
        self.hooks = hooks


class Hook:
    """A function that the worker calls beside a handler."""

    def __init__(self, name: str, function: Callable[..., Any], of: Callable[..., Any] | None) -> None:
        self.name = name
        self.function = function
        self.of = of


class Plugin:
    """The registry behind the name `plugin`.

    A package may have several handlers, in one file or in many: `runtime.entrypoint` of a spec names one.

    A handler is `async def` or a plain `def`; a plain one runs in a thread of its own and gets the
    blocking twin of the context, so it may compute or wait as it likes.
    """

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self._hooks: list[Hook] = []

    if TYPE_CHECKING:

        @overload
        def tool(self, handler: Function, /) -> Function: ...
        @overload
        def tool(self, /, *, resumable: bool = False) -> Callable[[Function], Function]: ...

    def tool(self, handler: Any = None, /, *, resumable: bool = False) -> Any:
        """Marks `handler(args, ctx)` as the tool or task. Its types, dataclasses or pydantic models, are its schemas.

        `resumable` says that it looks at `ctx.resume` and goes on from its last checkpoint; the platform
        then runs it again after a worker was lost.
        """
        if handler is None:
            return lambda function: self._claim("tool", function, resumable)
        return self._claim("tool", handler, resumable)

    def resource(self, handler: Function) -> Function:
        """Marks `handler(args, ctx)` as the reader: args are the URI template's variables, `ctx.uri` the URI.

        It returns str, bytes, a Content, or a list or (async) iterator of those.
        """
        return self._claim("resource", handler)

    def prompt(self, handler: Function) -> Function:
        """Marks `handler(args, ctx)` as the prompt; returns str, a Message, a list of those, or a Prompt."""
        return self._claim("prompt", handler)

    def on_session_start(self, hook: Function) -> Function:
        """Marks `hook(session)`: run once, before the first call. If it raises, the worker is not used."""
        self._hook("session_start", hook, None)
        return hook

    # A hook belongs to each handler of its file, or to the one that `of` names: `@plugin.list(of=stations)`.

    def on_resume(self, hook: Any = None, /, *, of: Any = None) -> Any:
        """Marks `hook(resume, ctx)`: run before the handler of a resumed call.

        What it returns, unless None, becomes `ctx.resume.state`: the place to convert an older state.
        """
        return self._hook("resume", hook, of)

    def list(self, hook: Any = None, /, *, of: Any = None) -> Any:
        """Marks `hook(ctx)`: lists the resources or prompts there are, as dicts of their Info fields."""
        return self._hook("list", hook, of)

    def complete(self, hook: Any = None, /, *, of: Any = None) -> Any:
        """Marks `hook(argument, value, known, ctx)`: lists the texts that could be meant by `value`, typed for
        `argument` of the prompt or template, best first; `known` has the others, as far as the client tells them.

        It is asked for arguments of which the spec says `completions: {argument: plugin}`.
        """
        return self._hook("complete", hook, of)

    def watch(self, hook: Any = None, /, *, of: Any = None) -> Any:
        """Marks `async def hook(ctx)`: an async generator that yields the URI of what changed, or "" for `ctx.uri`,
        which somebody subscribed to. It is cancelled when nobody is any more.

        It is asked where the spec says `watched: plugin`; `ctx.caller` has the org alone.
        """
        return self._hook("watch", hook, of)

    def served(self, chosen: Handler, *, alone: bool) -> Served:
        """The handler with its hooks; `alone` says that the process serves no other primitive."""
        function = chosen.function
        hooks: dict[str, Any] = {}
        for names_it in (False, True):
            found: dict[str, Any] = {}
            for hook in self._hooks:
                of_file = hook.of is None and (alone or _together(hook, chosen))
                is_its = hook.of is function if names_it else of_file
                if not is_its or hook.name == "session_start":
                    continue
                if hook.name in found:
                    raise LoadError(f"the hook {hook.name} is defined twice")
                found[hook.name] = hook.function
            hooks.update(found)
        return Served(chosen.kind, function, chosen.resumable, hooks)

    def session_hooks(self) -> tuple[Callable[..., Any], ...]:
        """The hooks that run before the first call of the process."""
        return tuple(hook.function for hook in self._hooks if hook.name == "session_start")

    def _claim(self, kind: str, handler: Function, resumable: bool = False) -> Function:
        if not callable(handler):
            raise LoadError(f"@plugin.{kind} needs a function")
        self.handlers.append(Handler(kind, handler, resumable))
        return handler

    def _hook(self, name: str, hook: Any, of: Any) -> Any:
        if hook is None:
            return lambda function: self._hook(name, function, of)
        if of is not None and all(handler.function is not of for handler in self.handlers):
            raise LoadError(f"@plugin.{name}(of=...) names a function that no decorator above it marks")
        self._hooks.append(Hook(name, hook, of))
        return hook


def _together(hook: Hook, handler: Handler) -> bool:
    """Whether the two are of one file."""
    return bool(getattr(hook.function, "__module__", "") == getattr(handler.function, "__module__", None))


plugin = Plugin()
