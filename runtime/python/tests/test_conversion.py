"""Values that are hard to convert: ambiguous, long, without a hash, made by code or held by a dict."""

import json

from harness import called, described, run, worker

EXPRESSIONS = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal, Union
from asp_plugin import plugin
made = 0

@dataclass
class Binary:
    left: Expression
    right: Expression
    {add}
    def __post_init__(self):
        global made
        made += 1

@dataclass
class Add(Binary):
    {add}

@dataclass
class Mul(Binary):
    {mul}

Expression = Union[Add, Mul, int]

@dataclass
class Args:
    expression: Expression

@plugin.tool
async def evaluate(args: Args, ctx):
    return {{"made": made, "is": type(args.expression).__name__}}
"""


def nested(depth, innermost, **told):
    """An expression in an expression: what tells the types apart is its last member."""
    value = innermost
    for _ in range(depth):
        value = {"left": value, "right": 1, **told}
    return {"expression": value}


def test_a_type_of_a_union_is_told_by_its_literal_before_what_it_holds_is_converted():
    source = EXPRESSIONS.format(add="op: Literal['add']", mul="op: Literal['mul']")
    # Each level once, and not twice as often as the level around it.
    end = called(source, nested(30, 1, op="mul"))
    assert json.loads(end.output.value) == {"made": 30, "is": "Mul"}


def test_a_small_value_that_fits_its_types_in_too_many_ways_is_refused_and_the_next_call_is_not():
    source = EXPRESSIONS.format(add="pass", mul="pass")

    async def call():
        async with worker(source) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke(nested(30, "no number"))
                failed = await stream.failure()
                await stream.invoke(nested(30, 1), "r2")
                return failed, await stream.output("r2")

    failed, output = run(call())
    assert failed.code == "INVALID_ARGUMENT"
    assert failed.message.endswith(": too large or too ambiguous for its types"), failed.message
    assert output["is"] == "Add"


def test_a_long_list_of_a_unions_last_type_is_no_ambiguity():
    source = """
    from dataclasses import dataclass
    from typing import Literal
    from asp_plugin import plugin

    @dataclass
    class Text:
        text: str
        kind: Literal["text"] = "text"

    @dataclass
    class Gap:
        kind: Literal["gap"]

    @dataclass
    class Args:
        parts: list[Text | Gap | None]
        vector: list[float]

    @plugin.tool
    async def count(args: Args, ctx):
        return {"gaps": sum(type(one) is Gap for one in args.parts), "numbers": len(args.vector)}
    """
    end = called(source, {"parts": [{"kind": "gap"}] * 110_000, "vector": [0] * 150_000})
    assert json.loads(end.output.value) == {"gaps": 110_000, "numbers": 150_000}


def test_a_set_holds_what_has_a_hash_and_an_item_that_turns_out_to_have_none_is_named():
    source = """
    from dataclasses import dataclass
    from asp_plugin import plugin

    @dataclass(frozen=True)
    class Tag:
        name: str
        parts: list[str] | None = None

    @dataclass
    class Args:
        tags: set[Tag]

    @plugin.tool
    async def count(args: Args, ctx):
        return {"tags": sorted(one.name for one in args.tags)}
    """
    assert described(source)["inputSchema"]["properties"]["tags"]["uniqueItems"] is True
    end = called(source, {"tags": [{"name": "b"}, {"name": "a"}]})
    assert json.loads(end.output.value) == {"tags": ["a", "b"]}
    end = called(source, {"tags": [{"name": "b", "parts": []}]})
    assert (end.code, json.loads(end.details.value)) == ("INVALID_ARGUMENT", {"pointer": "/tags"})


def test_a_default_that_code_makes_is_not_in_the_schema_and_its_field_may_be_left_out():
    source = """
    from dataclasses import dataclass, field
    from uuid import UUID, uuid4
    from asp_plugin import plugin

    def never():
        raise RuntimeError("runs when a call comes")

    @dataclass
    class Args:
        key: UUID = field(default_factory=uuid4)
        other: str = field(default_factory=never)
        tags: set[str] = field(default_factory=set)
        count: int = 3

    @plugin.tool
    async def keep(args: Args, ctx):
        return {"is": type(args.key).__name__}
    """
    schema = described(source)["inputSchema"]
    defaults = {name: one["default"] for name, one in schema["properties"].items() if "default" in one}
    assert (defaults, "required" in schema) == ({"tags": [], "count": 3}, False)
    assert json.loads(called(source, {"other": "x"}).output.value) == {"is": "UUID"}


def test_a_dict_that_holds_a_dataclass_is_a_result_as_a_list_of_them_is():
    source = """
    from dataclasses import dataclass
    from datetime import date
    from asp_plugin import plugin

    @dataclass
    class Person:
        name: str
        born: date

    @plugin.tool
    async def find(args: dict, ctx) -> dict:
        if args.get("other"):
            return {"found": object()}
        return {"found": [Person("Ada", date(1815, 12, 10))]}
    """
    schema = {
        "type": "object",
        "properties": {"found": {"type": "array", "items": {"type": "object", "required": ["born"]}}},
    }
    end = called(source, {}, outputSchema=schema)
    assert json.loads(end.output.value) == {"found": [{"name": "Ada", "born": "1815-12-10"}]}
    end = called(source, {"other": True})
    assert (end.code, end.message) == ("INVALID_OUTPUT", "the result is not JSON")


def test_a_literal_and_an_enum_take_the_integer_that_is_written_as_a_float_and_no_boolean():
    source = """
    from dataclasses import dataclass
    from enum import Enum
    from typing import Literal
    from asp_plugin import plugin

    class Size(Enum):
        SMALL = 1

    @dataclass
    class Args:
        level: Literal[1, 2]
        size: Size = Size.SMALL

    @plugin.tool
    async def run(args: Args, ctx):
        return {"level": args.level, "size": args.size.name}
    """
    end = called(source, {"level": 2.0, "size": 1.0})
    assert end.output.value == b'{"level":2,"size":"SMALL"}'
    refused = called(source, {"level": True})
    assert (refused.code, json.loads(refused.details.value)) == ("INVALID_ARGUMENT", {"pointer": "/level"})


def test_a_moment_of_rfc_3339_is_taken_in_either_case_and_one_that_a_datetime_cannot_hold_is_named():
    source = """
    from dataclasses import dataclass
    from datetime import datetime
    from asp_plugin import plugin

    @dataclass
    class Args:
        at: datetime

    @plugin.tool
    async def run(args: Args, ctx):
        return {"at": args.at.isoformat()}
    """
    for text in ("2026-01-02t03:04:05z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"):
        output = called(source, {"at": text}).output
        assert json.loads(output.value) == {"at": "2026-01-02T03:04:05+00:00"}, text
    leap = called(source, {"at": "2016-12-31T23:59:60Z"})
    assert (leap.code, leap.message) == (
        "INVALID_ARGUMENT",
        "/at: not a date and time of RFC 3339 that a datetime holds",
    )
