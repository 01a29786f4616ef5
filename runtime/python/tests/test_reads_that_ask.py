"""Resources and prompts that ask before they answer."""

import asyncio
import json

from harness import PATIENCE, run, wire, worker
from test_reads import method, read

PROMPT = """
    import asyncio
    from asp_plugin import DelegationError, plugin

    @plugin.prompt
    async def main(args, ctx):
        name, roots = await asyncio.gather(ctx.elicit("name"), ctx.delegate("roots", None))
        try:
            said = await ctx.delegate("model", name.fields["name"])
        except DelegationError as error:
            said = {"text": error.reason}
        return f"{name.fields['name']} {len(roots['json']['roots'])} {said['text']}"
"""
RESOURCE = """
    from asp_plugin import ElicitationError, plugin

    @plugin.resource
    async def main(args, ctx):
        yield "the first part"
        try:
            answer = await ctx.elicit("name")
        except ElicitationError as error:
            yield error.reason
            return
        yield answer.action
"""


async def get(channel, started, given):
    request = wire.GetPromptRequest(request_id="r1", given=given)
    async with asyncio.timeout(PATIENCE):
        return await method(channel, started, "PromptPlugin/Get", request, wire.GetPromptResponse)


def test_a_prompt_asks_what_it_asks_together_at_once_and_is_called_again_with_all_answers():
    async def test():
        declared = {"elicitations": ["name"], "delegations": ["roots", "model"]}
        async with worker(PROMPT, kind="prompt", **declared) as started:
            await started.ready()
            async with started.channel() as channel:
                given = wire.Resume()
                response = await get(channel, started, given)
                assert not response.messages
                assert [one.elicitation_id for one in response.asked.elicitations] == ["name"]
                (roots,) = response.asked.delegations
                assert roots.delegate_id == "roots"
                name = given.user_inputs.add(elicitation_id="name")
                name.fields.value = b'{"name": "Ada"}'
                said = given.delegation_results.add(correlation_id=roots.correlation_id)
                said.result.value = b'{"json": {"roots": [1, 2]}}'
                response = await get(channel, started, given)
                (model,) = response.asked.delegations
                assert (model.delegate_id, model.input.value) == ("model", b'"Ada"')
                given.delegation_results.add(correlation_id=model.correlation_id, error="unsupported")
                response = await get(channel, started, given)
                assert not response.HasField("asked")
                content = json.loads(response.messages[0].content.value)
                assert content["text"] == "Ada 2 unsupported"

    run(test())


def test_a_resource_that_asks_ends_with_its_questions_and_is_read_again_with_the_answer():
    async def test():
        async with worker(RESOURCE, kind="resource", elicitations=["name"]) as started:
            await started.ready()
            async with started.channel() as channel:
                chunks = await read(channel, started, "x://r")
                assert [one.elicitation_id for one in chunks[-1].asked.elicitations] == ["name"]
                for given, expected in (({"action": 1}, "decline"), ({"error": "unsupported"}, "unsupported")):
                    request = wire.ReadResourceRequest(uri="x://r", request_id="r1")
                    request.given.user_inputs.add(elicitation_id="name", **given)
                    call = method(channel, started, "ResourcePlugin/Read", request, wire.ContentChunk, stream=True)
                    async with asyncio.timeout(PATIENCE):
                        texts = [chunk.text async for chunk in call]
                    assert texts == ["the first part", expected]

    run(test())
