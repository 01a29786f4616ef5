"""The blocking twin of `Context`, for plain functions, which run in a thread.

Keeps true: whatever waits here ends with `Cancelled` as soon as the call is cancelled.
"""

from __future__ import annotations

import asyncio

from .errors import Cancelled
from .questions import DEFAULT_DELEGATION_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from concurrent.futures import Future
    from datetime import datetime
    from typing import Any, TypeVar

    from .context import Context, Level
    from .storage import Keys, Storage, StoredValue
    from .values import Answer, Caller, Field, Resume, Secret

    Given = TypeVar("Given")


class SyncStorage:
    """The same methods as `Storage`, without `await`."""

    def __init__(self, storage: Storage, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._storage = storage
        self._wait = wait

    def get(self, key: str, user: bool = False) -> Any:
        """See `Storage.get`."""
        return self._wait(self._storage.get(key, user))

    def get_versioned(self, key: str, user: bool = False) -> StoredValue | None:
        """See `Storage.get_versioned`."""
        found: StoredValue | None = self._wait(self._storage.get_versioned(key, user))
        return found

    def put(
        self,
        key: str,
        value: Any,
        ttl_seconds: float | None = None,
        user: bool = False,
        *,
        if_version: int | None = None,
    ) -> int:
        """See `Storage.put`."""
        version: int = self._wait(self._storage.put(key, value, ttl_seconds, user, if_version=if_version))
        return version

    def list(self, prefix: str = "", user: bool = False) -> Keys:
        """See `Storage.list`."""
        keys: Keys = self._wait(self._storage.list(prefix, user))
        return keys

    def delete(self, key: str, user: bool = False) -> bool:
        """See `Storage.delete`."""
        deleted: bool = self._wait(self._storage.delete(key, user))
        return deleted


class SyncContext:
    """The same facts and methods as `Context`, without `await`. May be used from any thread."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._released = False
        self._waiting: set[Future[Any]] = set()
        self.request_id: str = context.request_id
        self.task_id: str = context.task_id
        self.caller: Caller = context.caller
        self.token: Secret = context.token
        self.idempotency_key: str = context.idempotency_key
        self.attributes: dict[str, str] = context.attributes
        self.deadline: datetime | None = context.deadline
        self.budget: int | None = context.budget
        self.work_dir: str = context.work_dir
        self.storage = SyncStorage(context.storage, self._wait)

    @property
    def cancelled(self) -> bool:
        """Whether the call is to end: return what there is. A preempted one goes on, elsewhere."""
        return self._context.cancelled

    @property
    def preempted(self) -> bool:
        """Whether the call is to save: its next checkpoint ends it here, to go on elsewhere."""
        return self._context.preempted

    @property
    def resume(self) -> Resume | None:
        """Where an earlier worker was lost; None in a call's first execution."""
        return self._context.resume

    def secret(self, name: str) -> Secret:
        """See `Context.secret`."""
        return self._context.secret(name)

    def progress(self, percent: float, message: str = "", gauges: Mapping[str, float] | None = None) -> None:
        """See `Context.progress`."""
        self._wait(self._context.progress(percent, message, gauges))

    def chunk(self, text: str = "", *, structured: Any = None, is_error: bool = False) -> None:
        """See `Context.chunk`."""
        self._wait(self._context.chunk(text, structured=structured, is_error=is_error))

    def artifact(
        self,
        name: str,
        data: bytes | str | os.PathLike[str] = b"",
        *,
        uri: str = "",
        type: str = "file",
        content_type: str = "application/octet-stream",
        description: str = "",
    ) -> str:
        """See `Context.artifact`."""
        return self._wait(
            self._context.artifact(
                name, data, uri=uri, type=type, content_type=content_type, description=description
            )
        )

    def log(self, level: Level, message: str) -> None:
        """See `Context.log`."""
        self._wait(self._context.log(level, message))

    def status(self, phase: str, metadata: Mapping[str, Any] | None = None) -> None:
        """See `Context.status`."""
        self._wait(self._context.status(phase, metadata))

    def resource_changed(self, uri: str) -> None:
        """See `Context.resource_changed`."""
        self._wait(self._context.resource_changed(uri))

    def elicitation_completed(self, elicitation_id: str) -> None:
        """See `Context.elicitation_completed`."""
        self._wait(self._context.elicitation_completed(elicitation_id))

    def elicit(
        self,
        elicitation_id: str,
        fields: Sequence[Field] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
        message: str = "",
        title: str = "",
        url: str = "",
    ) -> Answer:
        """See `Context.elicit`."""
        return self._wait(
            self._context.elicit(elicitation_id, fields, schema=schema, message=message, title=title, url=url)
        )

    def delegate(self, delegate_id: str, input: Any, *, timeout: float = DEFAULT_DELEGATION_SECONDS) -> Any:
        """See `Context.delegate`."""
        return self._wait(self._context.delegate(delegate_id, input, timeout=timeout))

    def converse(
        self,
        delegate_id: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "",
        timeout: float = DEFAULT_DELEGATION_SECONDS,
    ) -> Any:
        """See `Context.converse`."""
        asked = self._context.converse(
            delegate_id, messages, tools=tools, tool_choice=tool_choice, timeout=timeout
        )
        return self._wait(asked)

    def checkpoint(self, state: Any) -> None:
        """See `Context.checkpoint`."""
        self._wait(self._context.checkpoint(state))

    def release(self) -> None:
        """Wakes every thread that waits here, with Cancelled. Called on the event loop."""
        self._released = True
        for future in list(self._waiting):
            future.cancel()

    def _wait(self, coroutine: Coroutine[Any, Any, Given]) -> Given:
        if self._released:
            coroutine.close()
            raise Cancelled
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._waiting.add(future)
        try:
            if self._released:
                future.cancel()
            # concurrent.futures.CancelledError is not asyncio's; both mean the same here.
            return future.result()
        except BaseException as error:
            if type(error).__name__ == "CancelledError":
                raise Cancelled from None
            raise
        finally:
            self._waiting.discard(future)
