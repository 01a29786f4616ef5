"""The skills of agent.py and agent_03.py, and the server of both.

A skill is a generator of steps, and each agent reports them in the types of its SDK:
  ("message", text)   the answer, without a task
  ("work", text)      progress of the task
  ("piece", text)     a piece of the artifact `words`
  ("data", value)     the artifact `numbers`
  ("ask", text)       a question; its answer runs `answered`
The task is completed after its last step, unless that is a question.
"""

import asyncio
import json
import socket

import uvicorn

DESCRIPTIONS = {
    "say": "Says the message at once.",
    "count": "Counts the words of the message.",
    "ask": "Asks for a day.",
    "wait": "Works until it is cancelled.",
}
QUESTION = "Which day?"


async def steps(skill, text):
    if skill == "say":
        yield "message", f"said {text}"
    elif skill == "count":
        words = text.split()
        for number, word in enumerate(words, 1):
            yield "work", f"word {number}"
            yield "piece", f"{number}:{word} "
        yield "data", {"words": len(words)}
    elif skill == "ask":
        yield "ask", QUESTION
    elif skill == "wait":
        yield "work", text
        await asyncio.Event().wait()
    else:
        raise ValueError(f"no such skill: {skill}")


async def answered(text):
    yield "piece", f"on {text}"


def say(**members):
    """Prints a line of JSON for the test."""
    print(json.dumps(members), flush=True)


def serve(app_at):
    """Serves the application that `app_at` returns for its origin, at a free port."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app_at(f"http://127.0.0.1:{port}"), log_level="warning"))
    say(port=port)
    asyncio.run(server.serve(sockets=[listening]))
