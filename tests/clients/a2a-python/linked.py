"""The official Python SDK of A2A 1.0 uses a skill that needs a linked account: linked.py EDGE SERVER SKILL.

The bearer token is in ASP_TOKEN. Prints the task as one line of JSON when its message is answered, and again when it has ended.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import json
import os
import sys

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest, TaskState
from google.protobuf.json_format import MessageToDict

TIMEOUT = 60
WAITS = (TaskState.TASK_STATE_AUTH_REQUIRED, TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
# Seconds between two looks at a task.
LOOK = 0.1


async def main(edge, server, skill):
    headers = {"Authorization": f"Bearer {os.environ['ASP_TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT) as http:
        factory = ClientFactory(ClientConfig(streaming=False, httpx_client=http))
        agent = await factory.create_from_url(f"{edge}/{server}")
        message = new_text_message("{}", role=Role.ROLE_USER)
        message.metadata.update({"skill": skill})
        task = (await anext(agent.send_message(SendMessageRequest(message=message)))).task
        print(json.dumps(MessageToDict(task)), flush=True)
        while task.status.state in WAITS:
            await asyncio.sleep(LOOK)
            task = await agent.get_task(GetTaskRequest(id=task.id))
        print(json.dumps(MessageToDict(task)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
