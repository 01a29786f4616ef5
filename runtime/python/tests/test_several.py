"""A package with several primitives: each call reaches its own handler, with its own schemas, questions and hooks."""

import json

import grpc
import pytest
from harness import run, wire, worker

TOOL = {"version": "1.0.0", "kind": "tool", "limits": {"maxRuntimeSeconds": 60}}

WEATHER = """
    from dataclasses import dataclass
    import shared
    from asp_plugin import plugin

    shared.loads.append("main")

    @dataclass
    class Place:
        city: str

    @plugin.tool
    async def forecast(args: Place, ctx):
        return {"city": args.city, "loads": shared.loads}

    @plugin.tool(resumable=True)
    def sweep(args, ctx):
        ctx.elicit("region")

    def plain(args, ctx):
        return {"plain": True}
"""
STATIONS = """
    import shared
    from asp_plugin import plugin

    shared.loads.append("stations")

    @plugin.resource
    def read(args, ctx):
        return f"station {args['id']}"

    @plugin.list
    def listed(ctx):
        return [{"uri": "station://1", "name": "one"}]

    @plugin.resource
    def areas(args, ctx):
        return "area"

    @plugin.list(of=areas)
    def listed_areas(ctx):
        return [{"uri": "area://n", "name": "north"}]
"""


def package(primitives, **changes):
    """The manifest of a package, in which nothing of one primitive stands at the top."""
    top = {"kind": None, "entrypoint": None, "elicitations": None, "delegations": None}
    return {**top, "id": "weather", "primitives": primitives, **changes}


def weather(**changes):
    template = {"version": "1.0.0", "kind": "resource_template"}
    parts = {
        "forecast": {**TOOL, "entrypoint": "main.py", "inputSchema": {"type": "object", "required": ["city"]}},
        "sweep": {**TOOL, "kind": "task", "entrypoint": "main.py", "elicitations": ["region"]},
        "simple": {**TOOL, "entrypoint": "main.py:plain"},
        "stations": {**template, "entrypoint": "stations.py:read"},
        "areas": {**template, "entrypoint": "stations.py"},
    }
    return worker(WEATHER, files={"stations.py": STATIONS, "shared.py": "loads = []"}, **package(parts), **changes)


async def lists(started, primitive):
    async with started.channel() as channel:
        call = channel.unary_unary(
            "/asp.plugin.v1.ResourcePlugin/List",
            wire.ListResourcesRequest.SerializeToString,
            wire.ListResourcesResponse.FromString,
        )
        answer = await call(wire.ListResourcesRequest(primitive=primitive), metadata=started.metadata())
        return [info.uri for info in answer.resources]


def test_each_call_reaches_the_handler_of_its_primitive_and_code_is_loaded_once():
    async def test():
        async with weather() as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"city": "Oslo"}, primitive="forecast")
                assert await stream.output() == {"city": "Oslo", "loads": ["main", "stations"]}
                await stream.invoke({}, primitive="forecast")
                assert (await stream.failure()).code == "INVALID_ARGUMENT"
                await stream.invoke({}, primitive="simple")
                assert await stream.output() == {"plain": True}
                await stream.invoke({}, primitive="sweep")
                assert (await stream.next("elicitation")).elicitation.elicitation_id == "region"
                await stream.send(cancel=wire.CancelRequest(request_id="r1"))
                assert (await stream.failure()).code == "CANCELLED"
                assert stream.init.caps["checkpoint"] == "of sweep"

    run(test())


def test_a_primitive_that_the_package_does_not_serve_is_refused():
    async def test():
        async with weather() as started:
            await started.ready()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await lists(started, "radar")
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
            # Last: a worker ends with its session.
            async with started.session() as stream:
                await stream.invoke({}, primitive="radar")
                failed = await stream.failure()
                assert (failed.code, failed.message) == ("UNSUPPORTED", "the package does not serve radar")

    run(test())


def test_a_hook_is_of_its_file_or_of_the_handler_that_it_names():
    async def test():
        async with weather() as started:
            await started.ready()
            assert await lists(started, "stations") == ["station://1"]
            assert await lists(started, "areas") == ["area://n"]

    run(test())


def test_each_primitive_describes_its_own_types():
    async def test():
        async with weather() as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({}, primitive="forecast", describe=True)
                assert json.loads((await stream.end())[1].output.value)["inputSchema"]["required"] == ["city"]
                await stream.invoke({}, primitive="simple", describe=True)
                assert json.loads((await stream.end())[1].output.value)["inputSchema"] is None

    run(test())


def refusal(source, primitives):
    async def test():
        async with worker(source, **package(primitives)) as started:
            assert await started.exit_code() == 78
            return await started.stderr()

    return run(test())


def test_a_handler_that_no_name_tells_from_others_is_asked_for():
    both = {"forecast": {**TOOL, "entrypoint": "main.py"}, "radar": {**TOOL, "entrypoint": "main.py"}}
    said = refusal(WEATHER.replace("shared.loads", "[]").replace("import shared", ""), both)
    expected = "main.py has no tool named radar, only forecast, sweep: runtime.entrypoint names another, as main.py:forecast"
    assert expected in said


def test_no_two_primitives_share_a_handler_by_accident():
    one = "from asp_plugin import plugin\n\n@plugin.tool\ndef run(args, ctx):\n    return {}\n"
    first = {"greet": {**TOOL, "entrypoint": "main.py"}, "bye": {**TOOL, "entrypoint": "main.py"}}
    assert "main.py has no tool named greet, only run" in refusal(one, first)
    named = {"greet": {**TOOL, "entrypoint": "main.py"}, "bye": {**TOOL, "entrypoint": "main.py:run"}}
    assert "main.py defines no handler" in refusal(one, named)


def test_the_first_of_two_tools_keeps_its_entrypoint():
    two = "from asp_plugin import plugin\n\n@plugin.tool\ndef run(args, ctx):\n    return {'run': True}\n\n"
    two += "@plugin.tool\ndef bye(args, ctx):\n    return {'bye': True}\n"
    parts = {"greet": {**TOOL, "entrypoint": "main.py"}, "bye": {**TOOL, "entrypoint": "main.py:bye"}}

    async def test():
        async with worker(two, **package(parts)) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({}, primitive="greet")
                assert await stream.output() == {"run": True}
                await stream.invoke({}, primitive="bye")
                assert await stream.output() == {"bye": True}

    run(test())


def test_of_several_handlers_a_plugin_of_one_primitive_takes_the_one_of_its_name():
    async def test():
        async with worker(WEATHER, id="forecast", files={"shared.py": "loads = []"}) as started:
            await started.ready()
            async with started.session() as stream:
                await stream.invoke({"city": "Rome"})
                assert (await stream.output())["city"] == "Rome"

    run(test())
