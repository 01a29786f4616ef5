"""The official Python SDK of A2A 1.0 goes through what a client can do: script.py EDGE SERVER VERSION BINDING.

VERSION is `1.0`, or `0.3` for the SDK's mode for it; BINDING is `JSONRPC`, `HTTP+JSON` or `GRPC`. The bearer token is in
ASP_TOKEN. steps.py has the steps and what is printed.
"""

import gc

# It lives for seconds: looking for garbage among the types that are made below takes a tenth of its time.
gc.disable()

import asyncio
import os
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_message_text, new_text_message
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt import PyJWK

from channel import open_channel
from steps import run

TIMEOUT = 60


def state_name(state):
    return TaskState.Name(state).removeprefix("TASK_STATE_").lower().replace("_", "-")


def plain_task(task):
    return {
        "kind": "task",
        "id": task.id,
        "context": task.context_id,
        "state": state_name(task.status.state),
        "text": get_message_text(task.status.message),
        "parts": [part.WhichOneof("content") for artifact in task.artifacts for part in artifact.parts],
    }


def plain_event(event):
    kind = event.WhichOneof("payload")
    payload = getattr(event, kind)
    status = payload.status if kind in ("task", "status_update") else None
    return {"kind": kind.replace("_", "-"), "state": status and state_name(status.state)}


def key_of(kid, jku):
    """The key of a signature, from the JWKS that its header names."""
    keys = httpx.get(jku, timeout=TIMEOUT).raise_for_status().json()["keys"]
    return PyJWK(next(key for key in keys if key["kid"] == kid))


class Agent:
    def __init__(self, http, found, version, binding):
        self.found = found
        # The SDK takes 1.0 wherever a card offers it, so what is to be spoken is all that it is shown.
        card = AgentCard()
        card.CopyFrom(found)
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(
            interface
            for interface in found.supported_interfaces
            if interface.protocol_version == version and interface.protocol_binding == binding
        )
        self.interface = card.supported_interfaces[0]
        config = {
            "httpx_client": http,
            "grpc_channel_factory": open_channel,
            "supported_protocol_bindings": [binding],
        }
        self.streaming = ClientFactory(ClientConfig(**config)).create(card)
        self.blocking = ClientFactory(ClientConfig(streaming=False, **config)).create(card)
        if version == "0.3":
            self.list = None

    async def card(self):
        extended = await self.blocking.get_extended_agent_card(GetExtendedAgentCardRequest())
        return {
            "name": self.found.name,
            "url": self.interface.url,
            "skills": [skill.id for skill in self.found.skills],
            "extended": [skill.id for skill in extended.skills],
        }

    async def signature(self):
        verify = create_signature_verifier(key_of, ["ES256", "EdDSA"])
        verify(self.found)
        changed = AgentCard()
        changed.CopyFrom(self.found)
        changed.name += "."
        try:
            verify(changed)
        except InvalidSignaturesError:
            return {"accepted": True, "changed": "refused"}
        return {"accepted": True, "changed": "accepted"}

    def request(self, text, task=None, immediately=False):
        names = {"task_id": task["id"], "context_id": task["context"]} if task else {}
        request = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER, **names))
        request.configuration.return_immediately = immediately
        return request

    async def send(self, text, task=None, immediately=False):
        event = await anext(self.blocking.send_message(self.request(text, task, immediately)))
        if event.HasField("message"):
            return {"kind": "message", "text": get_message_text(event.message)}
        return plain_task(event.task)

    async def stream(self, text):
        async for event in self.streaming.send_message(self.request(text)):
            yield plain_event(event)

    async def get(self, task_id):
        return plain_task(await self.blocking.get_task(GetTaskRequest(id=task_id)))

    async def cancel(self, task_id):
        return plain_task(await self.blocking.cancel_task(CancelTaskRequest(id=task_id)))

    async def list(self, context_id):
        listed = await self.blocking.list_tasks(ListTasksRequest(context_id=context_id))
        return [task.id for task in listed.tasks]

    async def subscribe(self, task_id):
        async for event in self.streaming.subscribe(SubscribeToTaskRequest(id=task_id)):
            yield plain_event(event)

    async def push(self, task_id):
        config = TaskPushNotificationConfig(task_id=task_id, id="hook", url=os.environ["ASP_HOOK"])
        await self.blocking.create_task_push_notification_config(config)


async def main(edge, server, version, binding):
    headers = {"Authorization": f"Bearer {os.environ['ASP_TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT) as http:
        found = await A2ACardResolver(http, f"{edge}/{server}").get_agent_card()
        await run(Agent(http, found, version, binding))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
