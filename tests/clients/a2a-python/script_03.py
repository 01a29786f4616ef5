"""The last release of the official Python SDK for A2A 0.3 goes through what a client can do: script_03.py EDGE SERVER BINDING.

BINDING is `JSONRPC`, `HTTP+JSON` or `GRPC`. The bearer token is in ASP_TOKEN. steps.py has the steps and what is printed.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import os
import sys
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    FilePart,
    FileWithUri,
    Message,
    MessageSendConfiguration,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)
from a2a.utils import get_message_text

from channel import open_channel
from steps import run

TIMEOUT = 60


def part_kind(part):
    if isinstance(part.root, FilePart):
        return "url" if isinstance(part.root.file, FileWithUri) else "raw"
    return part.root.kind


def plain_task(task):
    return {
        "kind": "task",
        "id": task.id,
        "context": task.context_id,
        "state": task.status.state.value,
        "text": get_message_text(task.status.message) if task.status.message else "",
        "parts": [part_kind(part) for artifact in task.artifacts or [] for part in artifact.parts],
    }


def plain_event(event):
    """An event of the SDK is the task as it is then, and the update that made it so."""
    task, update = event
    is_artifact = update is not None and update.kind == "artifact-update"
    return {"kind": update.kind if update else "task", "state": None if is_artifact else task.status.state.value}


class Agent:
    # 0.3 lists no tasks, and what its SDK verifies is not the form of a card that 1.0 signs.
    list = None
    signature = None

    def __init__(self, http, found, binding):
        self.found = found
        config = {
            "httpx_client": http,
            "grpc_channel_factory": open_channel,
            "supported_transports": [binding],
            "use_client_preference": True,
        }
        self.streaming = ClientFactory(ClientConfig(**config)).create(found)
        self.blocking = ClientFactory(ClientConfig(streaming=False, **config)).create(found)

    async def card(self):
        extended = await self.blocking.get_card()
        return {
            "name": self.found.name,
            "url": self.found.url,
            "skills": [skill.id for skill in self.found.skills],
            "extended": [skill.id for skill in extended.skills],
        }

    def message(self, text, task=None):
        names = {"task_id": task["id"], "context_id": task["context"]} if task else {}
        return Message(role=Role.user, message_id=str(uuid4()), parts=[TextPart(text=text)], **names)

    async def send(self, text, task=None, immediately=False):
        configuration = MessageSendConfiguration(blocking=not immediately)
        event = await anext(self.blocking.send_message(self.message(text, task), configuration=configuration))
        if isinstance(event, Message):
            return {"kind": "message", "text": get_message_text(event)}
        return plain_task(event[0])

    async def stream(self, text):
        async for event in self.streaming.send_message(self.message(text)):
            yield plain_event(event)

    async def get(self, task_id):
        return plain_task(await self.blocking.get_task(TaskQueryParams(id=task_id)))

    async def cancel(self, task_id):
        return plain_task(await self.blocking.cancel_task(TaskIdParams(id=task_id)))

    async def subscribe(self, task_id):
        async for event in self.streaming.resubscribe(TaskIdParams(id=task_id)):
            yield plain_event(event)

    async def push(self, task_id):
        config = PushNotificationConfig(id="hook", url=os.environ["ASP_HOOK"])
        await self.blocking.set_task_callback(
            TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
        )


async def main(edge, server, binding):
    headers = {"Authorization": f"Bearer {os.environ['ASP_TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT) as http:
        found = await A2ACardResolver(http, f"{edge}/{server}").get_agent_card()
        await run(Agent(http, found, binding))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
