"""Handlers that declare types: what the platform is told of them, and what they are given."""

import json

from harness import called, described

GREET = '''
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated, Literal

from asp_plugin import Context, plugin

class Tone(Enum):
    WARM = "warm"
    DRY = "dry"

@dataclass
class Person:
    """Who is greeted."""
    name: Annotated[str, "As they call themselves", {"minLength": 1}]
    born: date | None = None

@dataclass
class Greeting:
    people: list[Person]
    tone: Tone = Tone.WARM
    language: Literal["en", "de"] = "en"
    tags: dict[str, int] = field(default_factory=dict)

@dataclass
class Answer:
    texts: list[str]
    oldest: date | None
    first: Person

@plugin.tool
async def greet(args: Greeting, ctx: Context) -> Answer:
    texts = [f"{args.tone.name} {args.language} {one.name}" for one in args.people]
    born = [one.born for one in args.people if one.born is not None]
    assert all(isinstance(one, date) for one in born), born
    return Answer(texts, min(born, default=None), args.people[0])
'''

PERSON = {
    "type": "object",
    "description": "Who is greeted.",
    "properties": {
        "name": {"type": "string", "description": "As they call themselves", "minLength": 1},
        "born": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
    },
    "required": ["name"],
    "additionalProperties": False,
}
INPUT = {
    "type": "object",
    "properties": {
        "people": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
        "tone": {"$ref": "#/$defs/Tone", "default": "warm"},
        "language": {"type": "string", "enum": ["en", "de"], "default": "en"},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}},
    },
    "required": ["people"],
    "additionalProperties": False,
    "$defs": {"Person": PERSON, "Tone": {"type": "string", "enum": ["warm", "dry"]}},
}


def test_a_worker_says_what_its_handlers_types_say_and_runs_nothing():
    said = described(GREET)
    assert said["format"] == 1 and said["artifactSchema"] is None
    assert said["inputSchema"] == INPUT
    # The order of keys is the order of the file that is committed.
    assert list(said["inputSchema"]["properties"]) == ["people", "tone", "language", "tags"]
    output = said["outputSchema"]
    assert output["required"] == ["texts", "oldest", "first"]
    assert output["$defs"] == {"Person": PERSON}


def test_a_handler_gets_its_type_with_its_defaults_and_its_result_becomes_json():
    end = called(GREET, {"people": [{"name": "Ada", "born": "1815-12-10"}, {"name": "Bob"}]})
    assert json.loads(end.output.value) == {
        "texts": ["WARM en Ada", "WARM en Bob"],
        "oldest": "1815-12-10",
        "first": {"name": "Ada", "born": "1815-12-10"},
    }


def test_the_schema_that_was_described_is_the_one_that_calls_are_held_against():
    said = described(GREET)
    schemas = {"inputSchema": said["inputSchema"], "outputSchema": said["outputSchema"]}
    end = called(GREET, {"people": [{"name": "Ada"}], "tone": "dry", "language": "de"}, **schemas)
    assert json.loads(end.output.value)["texts"] == ["DRY de Ada"]
    end = called(GREET, {"people": [{"name": ""}]}, **schemas)
    assert (end.code, json.loads(end.details.value)) == ("INVALID_ARGUMENT", {"pointer": "/people/0/name"})


def test_an_argument_that_its_type_does_not_take_is_named_with_its_place():
    rows = [
        ({"people": [{"name": 3}]}, "/people/0/name", "not a text"),
        ({"people": [{"name": "Ada", "born": "soon"}]}, "/people/0/born", "not a date of RFC 3339"),
        ({"people": [{"name": "Ada", "age": 3}]}, "/people/0/age", "Person has no such field"),
        ({"people": [], "tone": "loud"}, "/tone", "not one of 'warm', 'dry'"),
        ({"people": [], "tags": {"a/b": "x"}}, "/tags/a~1b", "not a whole number"),
    ]
    for arguments, pointer, message in rows:
        end = called(GREET, arguments)
        assert (end.code, end.message) == ("INVALID_ARGUMENT", f"{pointer}: {message}")
        assert json.loads(end.details.value) == {"pointer": pointer}
    end = called(GREET, {})
    assert end.code == "INVALID_ARGUMENT" and "'people'" in end.message


def test_a_plain_function_has_types_too():
    source = '''
    from dataclasses import dataclass
    from asp_plugin import plugin

    @dataclass
    class Numbers:
        values: tuple[float, ...]
        scale: float = 1

    @dataclass
    class Sum:
        sum: float

    @plugin.tool
    def add(args: Numbers, ctx) -> Sum:
        return Sum(sum(args.values) * args.scale)
    '''
    assert described(source)["inputSchema"]["properties"]["values"] == {
        "type": "array",
        "items": {"type": "number"},
    }
    assert json.loads(called(source, {"values": [1, 2.5]}).output.value) == {"sum": 3.5}


def test_a_handler_without_types_says_nothing_and_gets_json():
    for arguments, result in [
        ("args", ""),
        ("args: dict", " -> dict"),
        ("args: dict[str, Any]", " -> None"),
        ("args: Mapping[str, Any]", " -> Any"),
        ("args: 'dict'", " -> Result"),
        ("args: Shape", " -> Shape"),
    ]:
        source = f'''
        from typing import Any, Mapping, TypedDict
        from asp_plugin import Result, plugin
        class Shape(TypedDict):
            name: str
        @plugin.tool
        async def greet({arguments}, ctx){result}:
            return Result({{"is": type(args).__name__}})
        '''
        said = described(source)
        assert (said["inputSchema"], said["outputSchema"]) == (None, None), arguments
        assert json.loads(called(source, {}).output.value) == {"is": "dict"}


def test_a_type_without_a_schema_is_named_with_its_place_and_a_way_out():
    rows = [
        ("when: complex", "Args.when: `complex` has no JSON Schema: use"),
        ("by: dict[int, str]", "Args.by: the keys of a JSON object are str, not int"),
        ("one: object = object()", "Args.one: its default is no JSON"),
        ("other: 'Missing'", "Args: the type of a field cannot be found"),
        ("tags: set[Tag]", "Args.tags: a set cannot hold `Tag`, it has no hash: use a list, or a frozen class"),
        ("tags: frozenset[tuple[int, Tag | None]]", "Args.tags: a set cannot hold `Tag`"),
        ("tags: set[list[int]]", "Args.tags: a set cannot hold `list`"),
    ]
    for field, message in rows:
        source = f'''
        from dataclasses import dataclass
        from asp_plugin import plugin
        @dataclass
        class Tag:
            name: str
        @dataclass
        class Args:
            {field}
        @plugin.tool
        async def greet(args: Args, ctx): ...
        '''
        failed = described(source)
        assert failed.code == "SCHEMA" and failed.message.startswith(message), failed.message
    failed = described("from asp_plugin import plugin\n@plugin.tool\nasync def greet(args: str, ctx): ...")
    assert failed.message.startswith("arguments of greet: `str` is no object")


def test_a_type_that_only_type_checkers_see_is_a_fault_of_the_build_and_not_of_a_call():
    source = '''
    from __future__ import annotations
    from typing import TYPE_CHECKING
    from asp_plugin import plugin
    if TYPE_CHECKING:
        from somewhere import Greeting
        from asp_plugin import Context
    @plugin.tool
    async def greet(args: Greeting, ctx: Context) -> dict:
        return args
    '''
    failed = described(source)
    assert failed.code == "SCHEMA" and "`Greeting` cannot be found" in failed.message
    assert json.loads(called(source, {"a": 1}).output.value) == {"a": 1}


def test_types_may_hold_themselves_and_share_a_name():
    source = '''
    from __future__ import annotations
    from dataclasses import dataclass, field
    from asp_plugin import Context, plugin
    import parts

    @dataclass
    class Tree:
        value: int
        children: list[Tree] = field(default_factory=list)
        node: Node | None = None
        other: parts.Node | None = None

    @dataclass
    class Node:
        left: Node | None = None

    @plugin.tool
    async def total(args: Tree, ctx: Context) -> dict:
        def add(tree):
            return tree.value + sum(add(one) for one in tree.children)
        return {"total": add(args), "nodes": [type(args.node.left).__module__, type(args.other).__module__]}
    '''
    parts = "from dataclasses import dataclass\n@dataclass\nclass Node:\n    name: str = ''\n"
    said = described(source, files={"parts.py": parts})["inputSchema"]
    assert said["properties"]["children"]["items"] == {"$ref": "#"}
    assert list(said["$defs"]) == ["Node", "Node2"]
    arguments = {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}
    arguments |= {"node": {"left": {}}, "other": {"name": "x"}}
    end = called(source, arguments, files={"parts.py": parts}, inputSchema=said)
    assert json.loads(end.output.value) == {"total": 6, "nodes": ["main", "parts"]}


def test_a_result_off_its_schema_or_without_a_zone_is_an_invalid_output_with_its_place():
    source = '''
    from dataclasses import dataclass
    from datetime import datetime
    from asp_plugin import plugin
    @dataclass
    class Answer:
        when: datetime
    @plugin.tool
    async def greet(args: dict, ctx) -> Answer:
        return Answer(datetime(2026, 1, 1) if args.get("naive") else "never")
    '''
    output = described(source)["outputSchema"]
    for naive in (True, False):
        end = called(source, {"naive": naive}, outputSchema=output)
        assert (end.code, json.loads(end.details.value)) == ("INVALID_OUTPUT", {"pointer": "/when"}), end
