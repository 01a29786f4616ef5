"""The gRPC service of a worker.

Owns the routing of the three services and the token check before any of them. Refuses every call without the
worker's token, known method or not, and a second Session stream. Keeps true: a message is at most 4 MiB.
"""

from __future__ import annotations

# hmac.compare_digest itself; the module hmac would load OpenSSL before the first call needs it.
from _operator import _compare_digest as compare_digest

import grpc
from google.protobuf.empty_pb2 import Empty

from . import vitals
from .call import MAX_MESSAGE
from .errors import LoadError
from .reads import Reads
from .session import ProtocolFault, Session
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .worker import Worker

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    # One supervisor, one stream, and a few reads beside it.
    ("grpc.max_concurrent_streams", 256),
)


async def start(worker: Worker, path: str, token: str) -> grpc.aio.Server:
    """Serves on the Unix socket `path`; the worker is ready when this returns. LoadError when it cannot."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((_Router(worker, token),))
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise LoadError(f"cannot listen on {path}") from error
    await server.start()
    return server


class _Router(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, worker: Worker, token: str) -> None:
        self._worker = worker
        self._expected = f"Bearer {token}".encode()
        reads = Reads(worker)
        self._methods = {
            "/asp.plugin.v1.ToolPlugin/Session": grpc.stream_stream_rpc_method_handler(
                self._session, wire.ClientMessage.FromString, wire.ServerMessage.SerializeToString
            ),
            "/asp.plugin.v1.ToolPlugin/Health": grpc.unary_unary_rpc_method_handler(
                self._health, Empty.FromString, wire.InitResponse.SerializeToString
            ),
            "/asp.plugin.v1.ResourcePlugin/List": grpc.unary_unary_rpc_method_handler(
                reads.list_resources,
                wire.ListResourcesRequest.FromString,
                wire.ListResourcesResponse.SerializeToString,
            ),
            "/asp.plugin.v1.ResourcePlugin/Read": grpc.unary_stream_rpc_method_handler(
                reads.read, wire.ReadResourceRequest.FromString, wire.ContentChunk.SerializeToString
            ),
            "/asp.plugin.v1.ResourcePlugin/Subscribe": grpc.unary_stream_rpc_method_handler(
                reads.subscribe, wire.SubscribeRequest.FromString, wire.ResourceUpdated.SerializeToString
            ),
            "/asp.plugin.v1.PromptPlugin/List": grpc.unary_unary_rpc_method_handler(
                reads.list_prompts,
                wire.ListPromptsRequest.FromString,
                wire.ListPromptsResponse.SerializeToString,
            ),
            "/asp.plugin.v1.PromptPlugin/Get": grpc.unary_unary_rpc_method_handler(
                reads.get, wire.GetPromptRequest.FromString, wire.GetPromptResponse.SerializeToString
            ),
        }

    def service(self, details: Any) -> Any:
        """Finds the behaviour of a method, after the token was judged."""
        given = b""
        for key, value in details.invocation_metadata or ():
            if key == "authorization":
                given = value.encode() if isinstance(value, str) else value
        if not compare_digest(given, self._expected):
            return grpc.stream_stream_rpc_method_handler(_unauthenticated)
        return self._methods.get(details.method)

    async def _session(self, _requests: Any, context: Any) -> None:
        if self._worker.session is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the worker has its session")
        session = self._worker.session = Session(self._worker)
        try:
            await session.serve(context)
        except ProtocolFault as fault:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(fault))
        finally:
            self._worker.session_ended.set()

    async def _health(self, _request: Empty, _context: Any) -> wire.InitResponse:
        answer = self._worker.description()
        answer.vitals.CopyFrom(vitals.read())
        return answer


async def _unauthenticated(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid token is required")
