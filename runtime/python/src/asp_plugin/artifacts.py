"""Sends an artifact's bytes, then says that it is there.

Keeps true: pieces are at most 64 KiB and follow each other without gaps, a name is used once in a call, and
the bytes of a call stay within the plugin's disk limit.
"""

from __future__ import annotations

import io
import os

from .errors import ArtifactError
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from .call import Call

PIECE = 64 * 1024
# As the platform bounds them.
MAX_ARTIFACTS = 256
MAX_TEXT = 4096


async def emit(
    call: Call, name: str, data: bytes | str | os.PathLike[str], event: wire.ArtifactEmitted
) -> str:
    """Sends `data` as the artifact `event` describes and returns its URI."""
    event.request_id, event.task_id = call.request_id, call.task_id
    if len(call.artifacts) >= MAX_ARTIFACTS:
        raise ArtifactError(f"a call has at most {MAX_ARTIFACTS} artifacts")
    if event.uri and not event.uri.startswith("https://"):
        raise ArtifactError("the URI of an artifact elsewhere begins with https://")
    if len(event.uri) + len(name) > MAX_TEXT // 3 or len(event.description) > MAX_TEXT // 4:
        # A quoted character may take three bytes a byte, one of a description four.
        raise ArtifactError("the artifact's name, URI or description is too long")
    if not event.uri:
        from urllib.parse import quote

        event.uri = f"report://{quote(call.task_id or call.request_id, safe='')}/{quote(name, safe='')}"
        if event.uri in call.artifacts:
            raise ArtifactError(f"the artifact {name} was sent already")
        call.artifacts.add(event.uri)
        with _open(data) as source:
            await _send(call, source, event)
    await call.send(artifact=event)
    return str(event.uri)


def _open(data: bytes | str | os.PathLike[str]) -> BinaryIO:
    if isinstance(data, str):
        return io.BytesIO(data.encode("utf-8"))
    if isinstance(data, os.PathLike):
        return open(data, "rb")
    return io.BytesIO(data)


async def _send(call: Call, source: BinaryIO, event: wire.ArtifactEmitted) -> None:
    # Here and not above: most plugins send no artifact, and starting fast matters to all.
    import hashlib

    digest = hashlib.sha256()
    offset = 0
    limit = call.primitive.manifest.disk_bytes
    # Known before the first piece, so that a refused artifact leaves none behind.
    size = source.seek(0, io.SEEK_END)
    source.seek(0)
    if call.artifact_bytes + size > limit:
        raise ArtifactError(f"the artifacts of a call may have {limit} bytes")
    call.artifact_bytes += size
    while offset < size:
        piece = source.read(min(PIECE, size - offset))
        if not piece:
            raise ArtifactError("the file became shorter while it was sent")
        digest.update(piece)
        data = wire.ArtifactData(request_id=call.request_id, uri=event.uri, offset=offset, data=piece)
        await call.send(artifact_data=data)
        offset += len(piece)
    event.size = offset
    event.sha256 = digest.hexdigest()
