"""The steps of script.py and script_03.py: what a client of A2A does at the server `a2a-conformance`.

`run` takes an agent, an SDK's client with these methods:
  card()                          the agent's card, as a dict to print
  send(text, task, immediately)   a message, blocking unless `immediately`; `task` is an earlier answer that it continues
  stream(text)                    the events that a message causes, until their end
  get(id), cancel(id)             a task
  list(context)                   the ids of the tasks of a context; None in 0.3
  subscribe(id)                   the events of a task, until their end
  push(id)                        registers a webhook
  signature()                     a dict to print; None if the SDK verifies no cards of this form

A task is {"kind": "task", "id", "context", "state", "text", "parts"}: the text of its status and the kinds of the parts of its
artifacts. A message is {"kind": "message", "text"}. An event is {"kind", "state"}; state is None for an artifact. States have the
names of 0.3, parts those of 1.0.
"""

import json


async def step(name, work):
    """Prints one line of JSON: what the step saw, or its error."""
    try:
        seen = await work
    except Exception as error:
        seen = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"step": name, **seen}), flush=True)


async def send(agent):
    task = await agent.send("tck-complete-task by a client")
    got = await agent.get(task["id"])
    return {"kind": task["kind"], "state": task["state"], "got": got["state"], "same": got["id"] == task["id"]}


async def artifacts(agent):
    kinds = ("text", "file", "file-url", "data")
    return {kind: (await agent.send(f"tck-artifact-{kind} by a client"))["parts"] for kind in kinds}


async def failure(agent):
    return {"state": (await agent.send("tck-task-failure by a client"))["state"]}


def outline(events):
    return {
        "kinds": [event["kind"] for event in events],
        "states": [event["state"] for event in events if event["state"]],
    }


async def stream(agent):
    return outline([event async for event in agent.stream("tck-stream-basic by a client")])


async def question(agent):
    asked = await agent.send("tck-multi-turn by a client")
    answered = await agent.send("done", task=asked)
    same = all(asked[name] == answered[name] for name in ("id", "context"))
    return {"asked": asked["state"], "text": asked["text"], "answered": answered["state"], "same": same}


async def cancel(agent):
    running = await agent.send("tck-cancel by a client", immediately=True)
    ended = await agent.cancel(running["id"])
    return {"state": ended["state"], "same": ended["id"] == running["id"]}


async def listed(agent):
    task = await agent.send("tck-complete-task to be listed")
    return {"same": await agent.list(task["context"]) == [task["id"]]}


async def resubscribe(agent):
    running = await agent.send("tck-long-running by a client", immediately=True)
    return outline([event async for event in agent.subscribe(running["id"])])


async def push(agent):
    task = await agent.send("tck-complete-task by a client")
    await agent.push(task["id"])
    return {"registered": task["id"]}


async def run(agent):
    await step("card", agent.card())
    if agent.signature is not None:
        await step("signature", agent.signature())
    await step("send", send(agent))
    await step("message", agent.send("tck-message-response by a client"))
    await step("artifacts", artifacts(agent))
    await step("failure", failure(agent))
    await step("stream", stream(agent))
    await step("question", question(agent))
    await step("cancel", cancel(agent))
    if agent.list is not None:
        await step("list", listed(agent))
    await step("resubscribe", resubscribe(agent))
    await step("push", push(agent))
