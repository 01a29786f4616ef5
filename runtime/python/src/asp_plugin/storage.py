"""Keys and JSON values that outlive the call: those of the caller's org, or of the caller's user.

Owns the requests of one call. Keeps true: at most 16 wait for their answer, which the platform never exceeds; a request
whose handler no longer waits keeps its place until the answer is there.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from . import json_text
from .errors import StorageError
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .call import Call

MAX_OPEN = 16
MAX_VALUE = 64 * 1024
# In a class with a method `list` the name means that method.
Keys = list[str]


class StoredValue(NamedTuple):
    """A value and its version, which is another one after each put."""

    value: Any
    version: int


class StorageRequests:
    """Requests of one call that the platform has not answered."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_OPEN)
        self._open: dict[str, asyncio.Future[wire.DeliverStorageAnswer]] = {}
        self._sent = 0

    async def ask(self, call: Call, request: wire.StorageRequested) -> wire.DeliverStorageAnswer:
        """Sends a request and waits for its answer."""
        await self._slots.acquire()
        self._sent += 1
        request.request_id, request.correlation_id = call.request_id, str(self._sent)
        answer = self._open[request.correlation_id] = asyncio.get_running_loop().create_future()
        try:
            await call.send(storage_requested=request)
        except BaseException:
            # It was not sent, so no answer gives its place back.
            self._close(request.correlation_id)
            raise
        return await answer

    def deliver(self, answer: wire.DeliverStorageAnswer) -> None:
        """Hands over an answer; one that nobody waits for only gives a place back."""
        waiting = self._close(answer.correlation_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _close(self, correlation_id: str) -> asyncio.Future[wire.DeliverStorageAnswer] | None:
        waiting = self._open.pop(correlation_id, None)
        if waiting is not None:
            self._slots.release()
        return waiting


class Storage:
    """What the plugin keeps for the caller's org; with `user=True`, for the caller's user alone.

    Needs `storage: true` in the spec's `runtime`. StorageError says by its `reason` why there is no result. Keys have 1
    to 256 bytes and no control characters.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    async def get(self, key: str, user: bool = False) -> Any:
        """Returns the value of a key; None when there is none."""
        found = await self.get_versioned(key, user)
        return None if found is None else found.value

    async def get_versioned(self, key: str, user: bool = False) -> StoredValue | None:
        """Returns the value of a key with its version, for a put with `if_version`."""
        answer = await self._ask(user, get=wire.StorageGet(key=json_text.text(key)))
        if not answer.HasField("value"):
            return None
        return StoredValue(json_text.from_bytes(answer.value.value), answer.version)

    async def put(
        self,
        key: str,
        value: Any,
        ttl_seconds: float | None = None,
        user: bool = False,
        *,
        if_version: int | None = None,
    ) -> int:
        """Stores any JSON value of at most 64 KiB for `ttl_seconds`, 1 second to 90 days (30 days when None), and returns
        its version.

        With `if_version` only if the key has this version, or no value where it is 0; otherwise StorageError `conflict`.
        """
        text = json_text.to_bytes(value)
        if len(text) > MAX_VALUE:
            raise StorageError("too_large")
        put = wire.StoragePut(key=json_text.text(key), value=wire.Json(value=text), if_version=if_version)
        if ttl_seconds is not None:
            put.ttl.FromMilliseconds(int(ttl_seconds * 1000))
        return (await self._ask(user, put=put)).version

    async def list(self, prefix: str = "", user: bool = False) -> Keys:
        """Returns the keys that begin with `prefix`, in the order of their bytes."""
        keys: Keys = []
        while True:
            asked = wire.StorageList(prefix=json_text.text(prefix), after=keys[-1] if keys else "")
            page = await self._ask(user, list=asked)
            keys += page.keys
            if not page.has_more or not page.keys:
                return keys

    async def delete(self, key: str, user: bool = False) -> bool:
        """Deletes a key; says whether it had a value."""
        return (await self._ask(user, delete=wire.StorageDelete(key=json_text.text(key)))).deleted

    async def _ask(self, user: bool, **operation: Any) -> wire.DeliverStorageAnswer:
        request = wire.StorageRequested(of_user=user, **operation)
        answer = await self._call.storage_requests.ask(self._call, request)
        if answer.error:
            raise StorageError(answer.error)
        return answer
