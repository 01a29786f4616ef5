"""Resources and prompts: the two plain request-response services.

Owns the mapping of what a handler returns to contents and messages, and of its errors to gRPC statuses.
Refuses arguments the input schema does not allow. Keeps true: a status never carries a stack trace.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import traceback
from datetime import UTC, datetime

import grpc

from . import json_text
from .errors import NotFound, PluginError
from .values import Caller, Content, Message, Prompt, Secret
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from .worker import Worker

# Well below a message's 4 MiB, whatever the text encodes to.
PIECE = 256 * 1024
# A list longer than this is a plugin's mistake and would not fit a message.
MAX_LISTED = 10_000


class ReadContext:
    """What the handler of a resource or prompt sees of its request."""

    def __init__(self, request: Any) -> None:
        ctx = request.ctx
        self.request_id: str = request.request_id
        self.uri: str = getattr(request, "uri", "")
        self.name: str = getattr(request, "name", "")
        self.caller = Caller(ctx.tenant_id, ctx.user_id, ctx.session_id)
        self.token = Secret(getattr(request, "access_token", ""))
        self.attributes: dict[str, str] = dict(getattr(request, "attrs", ()))
        self.seconds_left: float | None = None
        if "deadline" in request.DESCRIPTOR.fields_by_name and request.HasField("deadline"):
            self.seconds_left = request.deadline.ToNanoseconds() / 1e9 - time.time()

    @property
    def deadline(self) -> datetime | None:
        """Absolute end of the request as it was when the request came."""
        if self.seconds_left is None:
            return None
        return datetime.fromtimestamp(time.time() + self.seconds_left, UTC)


class Refused(Exception):
    """A gRPC status the caller is to see."""

    def __init__(self, status: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Reads:
    """Behaviours of ResourcePlugin and PromptPlugin."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def read(self, request: wire.ReadResourceRequest, context: Any) -> None:
        """ResourcePlugin.Read: writes the contents in pieces."""
        try:
            async with asyncio.timeout(ReadContext(request).seconds_left):
                returned = await self._handle("resource", request)
                async for content in _contents(returned):
                    for chunk in _chunks(content, request.uri):
                        await context.write(chunk)
        except Exception as error:
            await _abort(context, error)

    async def get(self, request: wire.GetPromptRequest, context: Any) -> wire.GetPromptResponse | None:
        """PromptPlugin.Get."""
        try:
            async with asyncio.timeout(ReadContext(request).seconds_left):
                return _prompt(await self._handle("prompt", request))
        except Exception as error:
            await _abort(context, error)
            return None

    async def list_resources(self, request: wire.ListResourcesRequest, context: Any) -> Any:
        """ResourcePlugin.List: what the `list` hook says; nothing without one."""
        infos = await self._listed("resource", request, context)
        return wire.ListResourcesResponse(resources=[wire.ResourceInfo(**info) for info in infos])

    async def list_prompts(self, request: wire.ListPromptsRequest, context: Any) -> Any:
        """PromptPlugin.List, likewise."""
        infos = await self._listed("prompt", request, context)
        return wire.ListPromptsResponse(prompts=[wire.PromptInfo(**info) for info in infos])

    async def subscribe(self, request: wire.SubscribeRequest, context: Any) -> None:
        """ResourcePlugin.Subscribe: one message for each URI the `watch` hook yields."""
        try:
            watch = self._worker.plugin.hooks.get("watch")
            if watch is None:
                raise Refused(grpc.StatusCode.UNIMPLEMENTED, "the plugin watches nothing")
            async for uri in watch(ReadContext(request)):
                await context.write(wire.ResourceUpdated(uri=uri))
        except Exception as error:
            await _abort(context, error)

    async def _handle(self, kind: str, request: Any) -> Any:
        plugin = self._worker.plugin
        if plugin.kind != kind:
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, f"the plugin is a {plugin.kind}")
        arguments = json_text.from_bytes(request.arguments.value)
        arguments = {} if arguments is None else arguments
        fault = (await self._worker.schemas()).input_fault(arguments)
        if fault is not None:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, fault.message)
        return await self._worker.call(plugin.handler, arguments, ReadContext(request))

    async def _listed(self, kind: str, request: Any, context: Any) -> list[dict[str, str]]:
        plugin = self._worker.plugin
        hook = plugin.hooks.get("list")
        if hook is None or plugin.kind != kind:
            return []
        try:
            return list(await self._worker.call(hook, ReadContext(request)))[:MAX_LISTED]
        except Exception as error:
            await _abort(context, error)
            return []


async def _abort(context: Any, error: Exception) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    status, message = grpc.StatusCode.INTERNAL, "the plugin failed; its log says why"
    if isinstance(error, Refused):
        status, message = error.status, error.message
    elif isinstance(error, NotFound):
        status, message = grpc.StatusCode.NOT_FOUND, error.message
    elif isinstance(error, PluginError):
        status, message = grpc.StatusCode.UNKNOWN, f"{error.code}: {error.message}"
    elif isinstance(error, TimeoutError):
        status, message = grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed"
    else:
        traceback.print_exception(error)
    await context.abort(status, message)


async def _contents(returned: Any) -> AsyncIterator[Content]:
    """One content or many, given at once or one after the other."""
    if isinstance(returned, (str, bytes, Content)):
        yield _content(returned)
    elif inspect.isasyncgen(returned) or hasattr(returned, "__aiter__"):
        async for item in returned:
            yield _content(item)
    else:
        for item in returned:
            yield _content(item)


def _content(item: Any) -> Content:
    return item if isinstance(item, Content) else Content(item)


def _chunks(content: Content, asked: str) -> list[wire.ContentChunk]:
    uri = content.uri or asked
    chunks = []
    # An empty content is one empty piece.
    for at in range(0, max(len(content.data), 1), PIECE):
        chunk = wire.ContentChunk(uri=uri, mime_type=content.mime_type)
        piece = content.data[at : at + PIECE]
        if isinstance(piece, str):
            chunk.text = piece
        else:
            chunk.blob = piece
        chunks.append(chunk)
    return chunks


def _prompt(returned: Any) -> wire.GetPromptResponse:
    prompt = returned
    if not isinstance(prompt, Prompt):
        messages = returned if isinstance(returned, list) else [returned]
        prompt = Prompt(messages)
    response = wire.GetPromptResponse(description=prompt.description)
    for message in prompt.messages:
        given = message if isinstance(message, Message) else Message(message)
        content = given.content
        block = {"type": "text", "text": content} if isinstance(content, str) else content
        response.messages.add(role=given.role, content=wire.Json(value=json_text.to_bytes(block)))
    return response
