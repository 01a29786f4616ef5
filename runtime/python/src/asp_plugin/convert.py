"""JSON into the declared types, and values of those types back into JSON.

Refuses what a type does not take, with the place of the value (RFC 6901), and what fits too many ways to be told
apart. Keeps true: nothing of a type is looked at twice, as a converter is made once; what is omitted gets the default
of its dataclass; a small value cannot keep a worker busy.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import types
import typing
import uuid
from collections import abc

from .declared import bare, is_model
from .errors import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Reader = Callable[[Any, str], Any]

LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.Iterable: list,
    abc.Collection: list,
    abc.Set: frozenset,
    abc.MutableSet: set,
}

# Items and members that may be converted for types of a union that turn out not to be meant, in one value.
MAX_WASTED = 20_000


class Misfit(PluginError):
    """A value does not fit its declared type."""

    def __init__(self, place: str, message: str, code: str = "INVALID_ARGUMENT") -> None:
        super().__init__(code, f"{place or '/'}: {message}", {"pointer": place})


class TooAmbiguous(Misfit):
    """The value would be converted too often: no further type of a union is tried."""


def reader(declared: Any) -> Reader | None:
    """What makes a value of the type, one at a time; None where JSON is taken as it is."""
    return None if declared is None or bare(declared) else _Readers().root(declared)


class _Readers:
    """Converters by type, so that a type may hold itself."""

    def __init__(self) -> None:
        self._known: dict[Any, Reader] = {}
        # Of the value in hand: the objects, items and members begun, and those of them that led nowhere.
        self._steps = 0
        self._wasted = 0

    def root(self, declared: Any) -> Reader:
        read_whole = self.of(declared)

        def read(value: Any, place: str) -> Any:
            self._steps = self._wasted = 0
            return read_whole(value, place)

        return read

    def of(self, declared: Any) -> Reader:
        origin, arguments = typing.get_origin(declared), typing.get_args(declared)
        if origin is typing.Annotated:
            return self.of(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return self._either([self.of(one) for one in arguments])
        if isinstance(declared, typing.NewType):
            return self.of(declared.__supertype__)
        kind = origin or declared
        if kind in LISTS:
            return self._list(kind, arguments)
        if isinstance(kind, type) and issubclass(kind, abc.Mapping):
            return self._map(arguments)
        if isinstance(kind, type):
            return self._class(kind)
        return _literal(arguments) if origin is typing.Literal else _as_it_is

    def _class(self, kind: type) -> Reader:
        if kind in SCALARS:
            return SCALARS[kind]
        if issubclass(kind, enum.Enum):
            return _made(kind, f"one of {', '.join(repr(one.value) for one in kind)}")
        if is_model(kind):
            return _model(kind)
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind)
        return _as_it_is

    def _list(self, kind: Any, arguments: tuple[Any, ...]) -> Reader:
        make = LISTS[kind]
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            fixed = [self.of(one) for one in arguments]
        else:
            fixed = None
        each = self.of(arguments[0]) if arguments else _as_it_is

        def read(value: Any, place: str) -> Any:
            if not isinstance(value, list) or (fixed is not None and len(value) != len(fixed)):
                raise Misfit(place, "not a list" if fixed is None else f"not a list of {len(fixed)}")
            readers = fixed or (each,) * len(value)
            pairs = zip(readers, value, strict=True)
            items = []
            for index, (read, one) in enumerate(pairs):
                self._steps += 1
                items.append(read(one, f"{place}/{index}"))
            try:
                return make(items)
            except TypeError as error:
                # Of a set: an item's class says that it has a hash, and what it holds has none.
                raise Misfit(place, str(error)) from error

        return read

    def _map(self, arguments: tuple[Any, ...]) -> Reader:
        each = self.of(arguments[1]) if len(arguments) == 2 else _as_it_is

        def read(value: Any, place: str) -> Any:
            if not isinstance(value, dict):
                raise Misfit(place, "not an object")
            members = {}
            for key, one in value.items():
                self._steps += 1
                members[key] = each(one, _below(place, key))
            return members

        return read

    def _dataclass(self, kind: Any) -> Reader:
        if kind in self._known:
            return self._known[kind]
        fields: dict[str, Reader] = {}

        def read(value: Any, place: str) -> Any:
            if not isinstance(value, dict):
                raise Misfit(place, "not an object")
            self._steps += 1
            for key in value:
                if key not in fields:
                    raise Misfit(_below(place, key), f"{kind.__name__} has no such field")
            given = {key: read(value[key], _below(place, key)) for key, read in fields.items() if key in value}
            try:
                return kind(**given)
            except (TypeError, ValueError) as error:
                # A field is missing, or its author's own __post_init__ refuses.
                raise Misfit(place, str(error)) from error

        self._known[kind] = read
        hints = typing.get_type_hints(kind, include_extras=True)
        names = [one.name for one in dataclasses.fields(kind) if one.init]
        # What holds nothing goes first: it tells the types of a union apart before what they hold is converted.
        names.sort(key=lambda name: not _holds_nothing(hints[name]))
        fields.update({name: self.of(hints[name]) for name in names})
        return read

    def _either(self, readers: list[Reader]) -> Reader:
        def read(value: Any, place: str) -> Any:
            furthest = None
            for one in readers:
                steps = self._steps
                wasted = self._wasted
                try:
                    return one(value, place)
                except TooAmbiguous:
                    raise
                except Misfit as misfit:
                    # Without its frames, which hold it: thousands of such circles are what makes this slow.
                    misfit.__traceback__ = None
                    # The one that came furthest is about the type that was meant.
                    if furthest is None or len(misfit.details["pointer"]) > len(furthest.details["pointer"]):
                        furthest = misfit
                # A look at the object's own fields is free, so that long lists of small objects pass; what the
                # types within wasted is part of these steps. Types that hold each other double it at each level.
                self._wasted = wasted + max(0, self._steps - steps - 1)
                if self._wasted > MAX_WASTED:
                    raise TooAmbiguous(place, "too large or too ambiguous for its types")
            raise furthest or Misfit(place, "fits no type")

        return read


def _holds_nothing(declared: Any) -> bool:
    """Whether a value of the type is read at a glance: a scalar, an enum, a literal or one of several such."""
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is typing.Annotated:
        return _holds_nothing(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return all(map(_holds_nothing, arguments))
    if isinstance(declared, typing.NewType):
        return _holds_nothing(declared.__supertype__)
    if isinstance(declared, type) and origin is None:
        return declared in SCALARS or issubclass(declared, enum.Enum)
    return origin is typing.Literal


def _as_it_is(value: Any, _place: str) -> Any:
    return value


def _below(place: str, key: str) -> str:
    return f"{place}/{key.replace('~', '~0').replace('/', '~1')}"


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise Misfit(place, "not a text")
    return value


def _whole(value: Any, place: str) -> int:
    # JSON Schema's integer may be written 3.0.
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value % 1 == 0)):
        raise Misfit(place, "not a whole number")
    return int(value)


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misfit(place, "not a number")
    try:
        return float(value)
    except OverflowError:
        raise Misfit(place, "too large a number") from None


def _truth(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise Misfit(place, "neither true nor false")
    return value


def _nothing(value: Any, place: str) -> None:
    if value is not None:
        raise Misfit(place, "not null")


def _made(make: Callable[[Any], Any], what: str) -> Reader:
    def read(value: Any, place: str) -> Any:
        try:
            return make(value)
        except (TypeError, ValueError, AttributeError):
            raise Misfit(place, f"not {what}") from None

    return read


def _moment(value: str) -> datetime.datetime:
    # RFC 3339 takes both letters in lower case too.
    return datetime.datetime.fromisoformat(value.upper())


def _model(kind: Any) -> Reader:
    def read(value: Any, place: str) -> Any:
        try:
            return kind.model_validate(value)
        except ValueError as error:  # pydantic.ValidationError is one
            first = next(iter(error.errors()), {}) if hasattr(error, "errors") else {}
            for part in first.get("loc", ()):
                place = _below(place, str(part))
            raise Misfit(place, str(first.get("msg", error))) from error

    return read


def _literal(choices: tuple[Any, ...]) -> Reader:
    def read(value: Any, place: str) -> Any:
        for choice in choices:
            # As in JSON Schema, 1.0 is 1, and true is not.
            if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                return choice
        raise Misfit(place, f"not one of {', '.join(map(repr, choices))}")

    return read


SCALARS: dict[Any, Reader] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    type(None): _nothing,
    datetime.datetime: _made(_moment, "a date and time of RFC 3339 that a datetime holds"),
    datetime.date: _made(datetime.date.fromisoformat, "a date of RFC 3339"),
    uuid.UUID: _made(uuid.UUID, "a UUID"),
}


def plain(value: Any, place: str = "") -> Any:
    """The JSON of a value: dataclasses and models become objects. What is no JSON is left for the encoder to refuse."""
    if isinstance(value, enum.Enum):
        return plain(value.value, place)
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {key: plain(one, _below(place, str(key))) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one, f"{place}/{index}") for index, one in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        # The same set in the same order, as far as there is one.
        return sorted((plain(one, place) for one in value), key=repr)
    if isinstance(value, type):
        return value
    if dataclasses.is_dataclass(value):
        fields = (one.name for one in dataclasses.fields(value) if one.init)
        return {name: plain(getattr(value, name), _below(place, name)) for name in fields}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        raise Misfit(place, "a datetime without a time zone: say datetime.now(UTC)", "INVALID_OUTPUT")
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value
