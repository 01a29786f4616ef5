"""pydantic models beside dataclasses: what the platform is told of them, and what handlers are given."""

import json
from pathlib import Path

import pydantic
from harness import called, described

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


MODELS = f"""
{PYDANTIC}
from dataclasses import dataclass
from typing import Self
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
    # The name comes to mean the dataclass.
    source = source.replace('"Node | None"', "Self | None")
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
