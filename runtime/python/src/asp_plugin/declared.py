"""What a handler declares: the types of its arguments and of its result.

Refuses nothing: a bare dict, or a type that cannot be found, leaves JSON as it is. Keeps true: a plugin without
types pays nothing; this module is imported when the first call comes.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Mapping
from types import SimpleNamespace

from .errors import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# What says nothing of the JSON that comes: it is handed on as it is.
BARE = (dict, object, typing.Any, None, type(None), inspect.Parameter.empty)


class NoSchema(PluginError):
    """A declared type has no JSON Schema; the message says where it stands and what to write instead."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__("SCHEMA", f"{place}: {message}")


class Declared:
    """The types of one handler; None where it declares none."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.name: str = getattr(handler, "__name__", type(handler).__name__)
        self._function = inspect.unwrap(handler)
        if not inspect.isroutine(self._function):
            # An object may be the handler.
            self._function = type(handler).__call__
        signature = inspect.signature(handler)
        first = next(iter(signature.parameters.values()), None)
        self._raw = {
            "arguments": first.annotation if first is not None else inspect.Parameter.empty,
            "result": signature.return_annotation,
        }

    @property
    def arguments(self) -> Any:
        """The type of the first parameter; NoSchema when its name means nothing in the handler's module."""
        return self._resolved("arguments")

    @property
    def result(self) -> Any:
        """The type that is returned; likewise."""
        return self._resolved("result")

    def _resolved(self, part: str) -> Any:
        raw = self._raw[part]
        if raw in BARE:
            return None
        # Only this part: the context is often imported for type checkers alone.
        holder = SimpleNamespace(__annotations__={part: raw})
        scope = getattr(self._function, "__globals__", {})
        try:
            found = typing.get_type_hints(holder, globalns=scope, include_extras=True)[part]
        except Exception as error:  # an annotation is any expression
            raise NoSchema(
                f"{part} of {self.name}",
                f"`{raw}` cannot be found ({type(error).__name__}: {error}): define or import it at the top of the"
                " module, and not for type checkers only",
            ) from error
        return None if bare(found) else found


def bare(declared: Any) -> bool:
    """Whether the type says nothing of the members: a dict, Any or the like."""
    origin = typing.get_origin(declared) or declared
    if origin is typing.Annotated:
        return bare(typing.get_args(declared)[0])
    # A TypedDict is a dict when the program runs.
    return origin in BARE or (isinstance(origin, type) and issubclass(origin, Mapping))


def is_model(declared: Any) -> bool:
    """Whether it is a pydantic model: only where the plugin imported pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(declared, type) and issubclass(declared, pydantic.BaseModel)
