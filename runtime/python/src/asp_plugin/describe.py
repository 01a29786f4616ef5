"""JSON Schemas (2020-12) of a handler's types.

Owns the translation of dataclasses, of the types of their fields and of pydantic models. Refuses a type that has
none, with its place and what to write instead. Keeps true: the same code gives the same schema, byte for byte.
Imported when the platform asks, never before.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import types
import typing
import uuid
from collections import abc

from . import json_text
from .convert import LISTS as MADE
from .convert import Misfit, plain
from .declared import Declared, NoSchema, is_model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Schema = dict[str, Any]

FORMAT = 1
SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    typing.Any: {},
    object: {},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}
LISTS = (list, tuple, abc.Sequence, abc.Iterable, abc.Collection)
SETS = (set, frozenset, abc.Set, abc.MutableSet)
MAPS = (dict, abc.Mapping, abc.MutableMapping)
# The factories of a default that make the same whenever they are called.
EMPTY = (list, dict, set, frozenset, tuple)
# What libraries of annotations (annotated-types, pydantic.Field) call a bound, and what JSON Schema calls it.
BOUNDS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "min_length": ("minLength", "minItems"),
    "max_length": ("maxLength", "maxItems"),
    "pattern": "pattern",
    "description": "description",
}


def describe(handler: Callable[..., Any]) -> Schema:
    """The answer to `InvokeRequest.describe`; NoSchema says which type has none."""
    declared = Declared(handler)
    arguments = declared.arguments
    return {
        "format": FORMAT,
        "inputSchema": None if arguments is None else _input(declared.name, arguments),
        "outputSchema": _output(declared.result),
        "artifactSchema": None,
    }


def _input(name: str, declared: Any) -> Schema:
    schema = _root(declared, "validation")
    if schema is None:
        raise NoSchema(
            f"arguments of {name}", f"`{_shown(declared)}` is no object: declare a dataclass, or a bare dict"
        )
    return schema


def _output(declared: Any) -> Schema | None:
    # A result that is no object, or a Result with content of its own, has no schema (MCP knows objects only).
    return None if declared is None else _root(declared, "serialization")


def _root(declared: Any, mode: str) -> Schema | None:
    """The schema with its `$defs`; None for what is no dataclass and no model."""
    if typing.get_origin(declared) is typing.Annotated:
        declared = typing.get_args(declared)[0]
    if not (dataclasses.is_dataclass(declared) and isinstance(declared, type)) and not is_model(declared):
        return None
    types = _Types(mode)
    schema = types.root(declared)
    if types.definitions:
        schema["$defs"] = dict(sorted(types.definitions.items()))
    return schema


class _Types:
    """The types that one schema is made of."""

    def __init__(self, mode: str) -> None:
        self.definitions: dict[str, Schema] = {}
        self._mode = mode
        self._names: dict[Any, str] = {}
        self._root: Any = None

    def root(self, declared: Any) -> Schema:
        self._root = declared
        return self._model(declared) if is_model(declared) else self._dataclass(declared)

    def of(self, declared: Any, place: str) -> Schema:
        """The schema of one field's type."""
        origin, arguments = typing.get_origin(declared), typing.get_args(declared)
        if origin is typing.Annotated:
            return _annotated(self.of(arguments[0], place), declared.__metadata__)
        if origin is typing.Literal:
            return _choices(list(arguments), place)
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.of(one, place) for one in arguments]}
        if isinstance(declared, typing.NewType):
            return self.of(declared.__supertype__, place)
        if (origin or declared) in LISTS + SETS + MAPS:
            return self._many(origin or declared, arguments, place)
        if isinstance(declared, abc.Hashable) and declared in SCALARS:
            return dict(SCALARS[declared])
        if declared is self._root:
            return {"$ref": "#"}
        if isinstance(declared, type):
            if issubclass(declared, enum.Enum):
                return self._named(declared, lambda: _choices([one.value for one in declared], place))
            if dataclasses.is_dataclass(declared):
                return self._named(declared, lambda: self._dataclass(declared))
            if is_model(declared):
                return self._named(declared, lambda: self._model(declared))
        raise NoSchema(
            place,
            f"`{_shown(declared)}` has no JSON Schema: use a dataclass, str, int, float, bool, list, dict[str, …],"
            " Literal, Enum, datetime, date, UUID or Any",
        )

    def _many(self, origin: Any, arguments: tuple[Any, ...], place: str) -> Schema:
        if origin in MAPS:
            if arguments and arguments[0] is not str:
                raise NoSchema(place, f"the keys of a JSON object are str, not {_shown(arguments[0])}")
            values = self.of(arguments[1], place) if arguments else {}
            return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            items = [self.of(one, place) for one in arguments]
            bounds = {"minItems": len(items), "maxItems": len(items)}
            return {"type": "array", "prefixItems": items, **bounds}
        schema: Schema = {"type": "array"}
        if arguments:
            schema["items"] = self.of(arguments[0], place)
        if origin in SETS:
            unhashable = _unhashable(arguments[0]) if arguments else None
            if unhashable is not None:
                raise NoSchema(
                    place, f"a set cannot hold `{_shown(unhashable)}`, it has no hash: use a list, or a frozen class"
                )
            schema["uniqueItems"] = True
        return schema

    def _named(self, declared: type, make: Callable[[], Schema]) -> Schema:
        """A reference to the type's definition, which is made once, so that a type may hold itself."""
        name = self._names.get(declared)
        if name is None:
            name, count = declared.__name__, 1
            while name in self.definitions:
                count += 1
                name = f"{declared.__name__}{count}"
            self._names[declared] = name
            self.definitions[name] = {}
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def _dataclass(self, declared: Any) -> Schema:
        hints = _hints(declared)
        properties: Schema = {}
        required: list[str] = []
        for field in dataclasses.fields(declared):
            if not field.init:
                continue
            place = f"{declared.__name__}.{field.name}"
            schema = properties[field.name] = self.of(hints[field.name], place)
            if field.default is not dataclasses.MISSING:
                schema["default"] = _default(field.default, place)
            elif field.default_factory in EMPTY:
                schema["default"] = _default(field.default_factory(), place)
            elif field.default_factory is dataclasses.MISSING:
                required.append(field.name)
            # Else its default is made by code, which may make another with each call: the field may be left out.
        text = inspect.cleandoc(declared.__doc__ or "")
        schema = {"type": "object"}
        # Without one of its own, a dataclass has its signature for a docstring.
        if text and not text.startswith(f"{declared.__name__}("):
            schema["description"] = text
        schema["properties"] = properties
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        return schema

    def _model(self, declared: Any) -> Schema:
        own = self._names.get(declared)
        # The second time each of its definitions bears the model's name too: another type has one of their names.
        for prefix in ("", f"{declared.__name__}."):
            template = f"#/$defs/{prefix}{{model}}"
            schema: Schema = declared.model_json_schema(mode=self._mode, ref_template=template)
            found = {prefix + name: one for name, one in schema.pop("$defs", {}).items()}
            # A model that holds itself is a reference to a definition, and a root has to say that it is an object.
            itself = schema.pop("$ref", "").removeprefix("#/$defs/")
            taken = {name for name, one in found.items() if self.definitions.get(name, one) != one}
            # `_named` keeps its name free for it.
            if not taken - ({own} & {itself}):
                self.definitions.update(found)
                return {**found.get(itself, {}), **schema}
        raise NoSchema(
            declared.__name__, f"it and another type hold different types of one name ({min(taken)}): rename one"
        )


def _hints(declared: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(declared, include_extras=True)
    except Exception as error:  # an annotation is any expression
        raise NoSchema(
            declared.__name__, f"the type of a field cannot be found ({type(error).__name__}: {error})"
        ) from error


def _default(default: Any, place: str) -> Any:
    try:
        default = plain(default)
        json_text.to_bytes(default)
        return default
    except (TypeError, ValueError, Misfit) as error:
        raise NoSchema(place, f"its default is no JSON: {error}") from error


def _unhashable(declared: Any) -> Any:
    """The type, or the one within it, whose values no set takes; None when a set may take them."""
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if isinstance(declared, typing.NewType):
        return _unhashable(declared.__supertype__)
    parts = arguments[:1] if origin is typing.Annotated else arguments
    if origin in (typing.Annotated, typing.Union, types.UnionType, tuple):
        return next((one for one in map(_unhashable, parts) if one is not None), None)
    kind = origin or declared
    made = dict if kind in MAPS else MADE.get(kind, kind)
    return kind if getattr(made, "__hash__", None) is None else None


def _annotated(schema: Schema, metadata: tuple[Any, ...]) -> Schema:
    """Adds what `Annotated` says: a text describes, a dict holds keywords of JSON Schema."""
    for said in metadata:
        if isinstance(said, str):
            schema["description"] = said
        elif isinstance(said, dict):
            schema.update(said)
        else:
            for one in (said, *getattr(said, "metadata", ())):
                _bounds(schema, one)
    return schema


def _bounds(schema: Schema, said: Any) -> None:
    for name, keyword in BOUNDS.items():
        value = getattr(said, name, None)
        if value is not None and not callable(value):
            if isinstance(keyword, tuple):
                keyword = keyword[schema.get("type") == "array"]
            schema[keyword] = value


def _choices(values: list[Any], place: str) -> Schema:
    """An enum, with the type where all values have one."""
    kinds = {SCALARS.get(type(value), {}).get("type") for value in values}
    if None in kinds:
        raise NoSchema(place, "its values are no JSON")
    return {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}


def _shown(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared)
