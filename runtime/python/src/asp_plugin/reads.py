"""Resources and prompts: the two plain request-response services.

Owns the mapping of what a handler returns to contents and messages, and of its errors to gRPC statuses.
Refuses arguments the input schema does not allow. Keeps true: a status never carries a stack trace; a handler that asks
is ended, and called again from its start with the answers.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import grpc

from . import failures, json_text
from .errors import DelegationError, ElicitationError, NotFound, PluginError
from .named_secrets import find
from .questions import DEFAULT_DELEGATION_SECONDS, Questions, answered, delegation, elicitation, result
from .values import Caller, Content, Message, Prompt, Secret
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
    from typing import Any, NoReturn

    from .manifest import Manifest
    from .values import Answer, Field
    from .worker import Primitive, Worker

# Well below a message's 4 MiB, whatever the text encodes to.
PIECE = 256 * 1024
# The platform shows no more of a list.
MAX_LISTED = 1000
# A client is given no more of a completion (MCP, CompleteResult).
MAX_OFFERED = 100


class ReadContext:
    """What the handler of a resource or prompt sees of its request. An async one may ask."""

    def __init__(self, request: Any, manifest: Manifest | None = None) -> None:
        self._manifest = manifest
        self.may_ask = manifest is not None and bool(manifest.elicitations or manifest.delegations)
        self._questions = Questions()
        if "given" in request.DESCRIPTOR.fields_by_name:
            self._questions.take(request.given)
        self._asked = wire.Asked()
        self._asks = asyncio.Event()
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

    def secret(self, name: str) -> Secret:
        """See `Context.secret`."""
        return find(name)

    async def elicit(
        self,
        elicitation_id: str,
        fields: Sequence[Field] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        message: str = "",
        title: str = "",
        url: str = "",
    ) -> Answer:
        """Asks the user. The handler ends here, and runs again from its start when there is an answer.

        ElicitationError when nobody could be asked; a declined or cancelled question is an Answer.
        """
        if self._manifest is None or elicitation_id not in self._manifest.elicitations:
            raise ElicitationError(elicitation_id, "undeclared")
        given = self._questions.given(elicitation_id)
        if given is None:
            self._asked.elicitations.append(elicitation(elicitation_id, fields, schema, message, title, url))
            await self._end()
        self._questions.had(elicitation_id)
        return answered(given)

    async def delegate(
        self, delegate_id: str, input: Any, *, timeout: float = DEFAULT_DELEGATION_SECONDS
    ) -> Any:
        """Hands `input` (any JSON value) to a delegate, likewise. DelegationError when there is no result."""
        if self._manifest is None or delegate_id not in self._manifest.delegations:
            raise DelegationError(delegate_id, "undeclared")
        payload = json_text.to_bytes(input)
        correlation = self._questions.correlation(delegate_id, payload)
        given = self._questions.result(correlation)
        if given is None:
            self._asked.delegations.append(delegation(delegate_id, correlation, payload, timeout))
            await self._end()
        return result(delegate_id, given)

    async def _end(self) -> NoReturn:
        self._asks.set()
        # Whoever runs the handler cancels it.
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def questions(self) -> wire.Asked:
        """All that the handler asks at a time."""
        await self._asks.wait()
        # Tasks that were begun together ask one after the other.
        await asyncio.sleep(0)
        return self._asked

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


class Asks(Exception):
    """The handler asks before it can answer."""

    def __init__(self, asked: wire.Asked) -> None:
        super().__init__("asks")
        self.asked = asked


class Reads:
    """Behaviours of ResourcePlugin and PromptPlugin."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def read(self, request: wire.ReadResourceRequest, context: Any) -> None:
        """ResourcePlugin.Read: writes the contents in pieces."""
        primitive = await self._found(request.primitive, context)
        read = ReadContext(request, primitive.manifest)
        if request.completing:
            try:
                async with _until(read.seconds_left):
                    offered = await self._completed("resource", primitive, request)
                    await context.write(wire.ContentChunk(completion=offered))
            except Exception as error:
                await _abort(context, error)
            return

        async def written() -> None:
            returned = await self._handle("resource", primitive, request, read)
            was_plain = False
            async for item in _items(returned):
                is_plain = not isinstance(item, Content)
                content = Content(item) if is_plain else item
                # Plain items in a row are one content that is given piece by piece.
                for chunk in _chunks(content, request.uri, starts=not (is_plain and was_plain)):
                    await context.write(chunk)
                was_plain = is_plain

        try:
            async with _until(read.seconds_left):
                await _unless_it_asks(read, written())
        except Asks as asks:
            await context.write(wire.ContentChunk(asked=asks.asked))
        except Exception as error:
            await _abort(context, error)

    async def get(self, request: wire.GetPromptRequest, context: Any) -> wire.GetPromptResponse | None:
        """PromptPlugin.Get."""
        primitive = await self._found(request.name, context)
        read = ReadContext(request, primitive.manifest)
        try:
            async with _until(read.seconds_left):
                if request.completing:
                    offered = await self._completed("prompt", primitive, request)
                    return wire.GetPromptResponse(completion=offered)
                return _prompt(await _unless_it_asks(read, self._handle("prompt", primitive, request, read)))
        except Asks as asks:
            return wire.GetPromptResponse(asked=asks.asked)
        except Exception as error:
            await _abort(context, error)
            return None

    async def list_resources(self, request: wire.ListResourcesRequest, context: Any) -> Any:
        """ResourcePlugin.List: what the `list` hook says; nothing without one."""
        primitive = await self._found(request.primitive, context)
        infos = await self._listed("resource", wire.ResourceInfo, primitive, request, context)
        return wire.ListResourcesResponse(resources=infos)

    async def list_prompts(self, request: wire.ListPromptsRequest, context: Any) -> Any:
        """PromptPlugin.List, likewise, of every prompt: its request names none."""
        infos: list[Any] = []
        for primitive in self._worker.primitives.values():
            infos += await self._listed("prompt", wire.PromptInfo, primitive, request, context)
        return wire.ListPromptsResponse(prompts=infos)

    async def subscribe(self, request: wire.SubscribeRequest, context: Any) -> None:
        """ResourcePlugin.Subscribe: one message for each URI the `watch` hook yields."""
        primitive = await self._found(request.primitive, context)
        try:
            watch = primitive.plugin.hooks.get("watch")
            if watch is None:
                raise Refused(grpc.StatusCode.UNIMPLEMENTED, "the plugin watches nothing")
            async for uri in watch(ReadContext(request)):
                await context.write(wire.ResourceUpdated(uri=uri))
        except Exception as error:
            await _abort(context, error)

    async def _found(self, name: str, context: Any) -> Primitive:
        primitive = self._worker.find(name)
        if primitive is None:
            message = f"the package does not serve {json_text.text(name)}"
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, message)
            raise AssertionError
        return primitive

    async def _handle(self, kind: str, primitive: Primitive, request: Any, read: ReadContext) -> Any:
        plugin = primitive.plugin
        if plugin.kind != kind:
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, f"the plugin is a {plugin.kind}")
        arguments = json_text.from_bytes(request.arguments.value)
        arguments = {} if arguments is None else arguments
        fault = (await primitive.schemas()).input_fault(arguments)
        if fault is not None:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, fault.message)
        return await self._worker.call(plugin.handler, arguments, read)

    async def _completed(self, kind: str, primitive: Primitive, request: Any) -> wire.Completion:
        plugin = primitive.plugin
        hook = plugin.hooks.get("complete")
        if hook is None or plugin.kind != kind:
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, "the plugin completes nothing: it has no `complete` hook")
        known = dict(json_text.from_bytes(request.arguments.value) or {})
        typed = known.pop(request.completing, "")
        # Its context cannot ask: nobody is asked while somebody types.
        offered = list(await self._worker.call(hook, request.completing, typed, known, ReadContext(request)))
        return wire.Completion(
            values=[json_text.text(value) for value in offered[:MAX_OFFERED]], total=len(offered), has_more=len(offered) > MAX_OFFERED
        )

    async def _listed(
        self, kind: str, form: Any, primitive: Primitive, request: Any, context: Any
    ) -> list[Any]:
        plugin = primitive.plugin
        hook = plugin.hooks.get("list")
        if hook is None or plugin.kind != kind:
            return []
        try:
            infos = list(await self._worker.call(hook, ReadContext(request)))[:MAX_LISTED]
            return [_info(form, info) for info in infos]
        except Exception as error:
            await _abort(context, error)
            return []


@asynccontextmanager
async def _until(seconds: float | None) -> AsyncIterator[None]:
    """Bounds what runs in it by the deadline. A TimeoutError of the plugin's own, of a socket for one, is another thing."""
    try:
        async with asyncio.timeout(seconds) as clock:
            yield
    except TimeoutError:
        if not clock.expired():
            raise
        raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed") from None


async def _unless_it_asks(read: ReadContext, handling: Coroutine[Any, Any, Any]) -> Any:
    """What the handler comes to; Asks, after its end, when it asks."""
    if not read.may_ask:
        return await handling
    handled = asyncio.create_task(handling)
    asked = asyncio.create_task(read.questions())
    try:
        await asyncio.wait((handled, asked), return_when=asyncio.FIRST_COMPLETED)
        if handled.done():
            return handled.result()
        raise Asks(asked.result())
    finally:
        for task in (handled, asked):
            task.cancel()
        await asyncio.gather(handled, asked, return_exceptions=True)


async def _abort(context: Any, error: Exception) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    status, message = grpc.StatusCode.INTERNAL, failures.text(error)
    if isinstance(error, Refused):
        status, message = error.status, error.message
    elif isinstance(error, NotFound):
        status, message = grpc.StatusCode.NOT_FOUND, error.message
    elif isinstance(error, PluginError):
        status, message = grpc.StatusCode.UNKNOWN, f"{error.code}: {error.message}"
    else:
        print(failures.trace(error), file=sys.stderr)
    await context.abort(status, json_text.text(message))


async def _items(returned: Any) -> AsyncIterator[str | bytes | Content]:
    """One content or many, given at once or one after the other."""
    if isinstance(returned, (str, bytes, Content)):
        yield returned
    elif inspect.isasyncgen(returned) or hasattr(returned, "__aiter__"):
        async for item in returned:
            yield _content(item)
    elif isinstance(returned, (dict, bytearray, memoryview)) or not hasattr(returned, "__iter__"):
        # A dict's keys would pass for contents.
        _content(returned)
    else:
        for item in returned:
            yield _content(item)


def _content(item: Any) -> str | bytes | Content:
    if isinstance(item, (str, bytes, Content)):
        return item
    raise TypeError(
        f"a resource returns str, bytes, a Content, or a list or iterator of those, not {type(item).__name__}"
    )


def _info(form: Any, info: Any) -> Any:
    """An entry of a list as its message."""
    fields = list(form.DESCRIPTOR.fields_by_name)
    unknown = sorted(set(info) - set(fields)) if isinstance(info, dict) else [type(info).__name__]
    if unknown:
        raise TypeError(f"an entry of the list is a dict of {', '.join(fields)}: unknown are {', '.join(map(str, unknown))}")
    return form(**info)


def _chunks(content: Content, asked: str, *, starts: bool) -> list[wire.ContentChunk]:
    uri = content.uri or asked
    data = json_text.text(content.data) if isinstance(content.data, str) else content.data
    chunks = []
    # An empty content is one empty piece.
    for at in range(0, max(len(data), 1), PIECE):
        chunk = wire.ContentChunk(uri=uri, mime_type=content.mime_type, starts=starts and at == 0)
        piece = data[at : at + PIECE]
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
    response = wire.GetPromptResponse(description=json_text.text(prompt.description))
    for message in prompt.messages:
        given = message if isinstance(message, Message) else Message(message)
        content = given.content
        if not isinstance(content, (str, dict)):
            raise TypeError(
                f"a prompt returns str, a Message, a list of those, or a Prompt, not {type(content).__name__}"
            )
        block = {"type": "text", "text": content} if isinstance(content, str) else content
        response.messages.add(role=given.role, content=wire.Json(value=json_text.to_bytes(block)))
    return response
