"""Handlers that declare types: what the platform is told of them, and what they are given."""

import json
from pathlib import Path

import pydantic
from harness import run, worker

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


def described(source, **manifest):
    """What a worker answers to `describe`: the JSON of its completion, or its failure."""

    async def ask():
        async with worker(source, **manifest) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"any": "thing"}, describe=True)
                _, end = await stream.end()
                return end if hasattr(end, "code") else json.loads(end.output.value)

    return run(ask())


def called(source, arguments, **manifest):
    """How a call with these arguments ends."""

    async def call():
        async with worker(source, **manifest) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke(arguments)
                return (await stream.end())[1]

    return run(call())


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


# As a package would bring it in its site-packages.
PYDANTIC = f"import sys; sys.path.append({str(Path(pydantic.__file__).parents[1])!r})"


def test_a_pydantic_model_is_a_type_where_the_plugin_imports_pydantic():
    source = f'''
    {PYDANTIC}
    from dataclasses import dataclass
    from datetime import date
    from pydantic import BaseModel, Field
    from asp_plugin import plugin

    class Person(BaseModel):
        name: str = Field(min_length=1, description="Who is greeted")
        born: date | None = None

    @dataclass
    class Greeting:
        who: Person

    class Answer(BaseModel):
        text: str
        again: Person

    @plugin.tool
    async def greet(args: Greeting, ctx) -> Answer:
        return Answer(text=f"{{type(args.who).__name__}} {{args.who.name}}", again=args.who)
    '''
    said = described(source)
    name = said["inputSchema"]["$defs"]["Person"]["properties"]["name"]
    assert (name["minLength"], name["description"]) == (1, "Who is greeted")
    assert said["inputSchema"]["properties"]["who"] == {"$ref": "#/$defs/Person"}
    assert said["outputSchema"]["properties"]["again"] == {"$ref": "#/$defs/Person"}
    schemas = {"inputSchema": said["inputSchema"], "outputSchema": said["outputSchema"]}
    end = called(source, {"who": {"name": "Ada", "born": "1815-12-10"}}, **schemas)
    assert json.loads(end.output.value) == {
        "text": "Person Ada",
        "again": {"name": "Ada", "born": "1815-12-10"},
    }
    end = called(source, {"who": {"name": "Ada", "born": "soon"}})
    assert (end.code, json.loads(end.details.value)) == ("INVALID_ARGUMENT", {"pointer": "/who/born"})


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


MODELS = f"""
{PYDANTIC}
from dataclasses import dataclass
from pydantic import BaseModel
from asp_plugin import plugin

class Node(BaseModel):
    name: str
    next: "Node | None" = None
"""


def test_a_pydantic_model_that_holds_itself_is_a_field_and_a_root():
    source = MODELS + """
@dataclass
class Args:
    node: Node

@plugin.tool
async def follow(args: Args, ctx) -> Node:
    return args.node.next
"""
    said = described(source)
    schemas = {"inputSchema": said["inputSchema"], "outputSchema": said["outputSchema"]}
    node = said["inputSchema"]["$defs"]["Node"]
    assert (list(node["properties"]), node["required"]) == (["name", "next"], ["name"])
    assert said["outputSchema"]["type"] == "object"
    end = called(source, {"node": {"name": "a", "next": {"name": "b"}}}, **schemas)
    assert json.loads(end.output.value) == {"name": "b", "next": None}
    end = called(source, {"node": {"name": "a", "next": {}}}, **schemas)
    assert (end.code, json.loads(end.details.value)) == ("INVALID_ARGUMENT", {"pointer": "/node/next"})


def test_a_dataclass_and_a_model_of_one_name_each_keep_their_schema():
    source = MODELS + """
Model = Node

class Chain(BaseModel):
    first: Model

@dataclass
class Node:
    weight: int

@dataclass
class Args:
    mine: Node
    chain: Chain
    model: Model

@plugin.tool
async def weigh(args: Args, ctx) -> dict:
    return {"weight": args.mine.weight, "names": [args.chain.first.name, args.model.next.name]}
"""
    source = source.replace('"Node | None"', '"Self | None"').replace("@dataclass", "from typing import Self\n@dataclass", 1)
    said = described(source)
    arguments = {"mine": {"weight": 3}, "chain": {"first": {"name": "a"}}}
    arguments["model"] = {"name": "b", "next": {"name": "c"}}
    end = called(source, arguments, inputSchema=said["inputSchema"])
    assert json.loads(end.output.value) == {"weight": 3, "names": ["a", "c"]}
    for place in ("mine", "model"):
        end = called(source, {**arguments, place: {}}, inputSchema=said["inputSchema"])
        assert (end.code, json.loads(end.details.value)) == ("INVALID_ARGUMENT", {"pointer": f"/{place}"})


def test_models_that_cannot_be_told_apart_by_name_are_a_fault_of_the_build():
    source = MODELS + """
def chain(kind):
    class Part(BaseModel):
        value: kind
    class Chain(BaseModel):
        part: Part
    return Chain

@dataclass
class Args:
    one: chain(int)
    two: chain(str)
    three: chain(bool)

@plugin.tool
async def join(args: Args, ctx) -> dict: ...
"""
    failed = described(source)
    assert failed.code == "SCHEMA" and failed.message.startswith("Chain: "), failed.message
    assert "(Chain.Part)" in failed.message


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
