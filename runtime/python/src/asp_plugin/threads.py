"""Runs a plain function in a thread, so that it can be cancelled.

Owns the way a cancel enters a thread: the exception `Cancelled` is raised in it at its next bytecode
(PyThreadState_SetAsyncExc). A thread inside a C call that does not return is not reached; the platform
kills such a worker after its grace. Keeps true: the exception is raised in that function or not at all.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading

from .errors import Cancelled, PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor
    from typing import Any


class Threads:
    """The threads of a worker, at most `limit` of one executor, started when first used."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, on_cancel: Callable[[], None], function: Callable[..., Any], *args: Any) -> Any:
        """Runs `function(*args)` and returns its result.

        When the awaiting task is cancelled, raises Cancelled in the thread, calls `on_cancel` to wake it
        from what it waits for, and ends when the function has ended. PluginError when there is no thread for
        it, because the plugin has taken all that the worker may have; the function is not run then.
        """
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="handler")
        job = _Job(function, args)
        context = contextvars.copy_context()
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, context.run, job.run)
        except RuntimeError:
            # The executor has queued it all the same, would run it once a thread is free, and has lost count of
            # its idle threads: it ends with what it has, and the next call gets another.
            job.interrupt()
            self._pool.shutdown(wait=False)
            self._pool = None
            raise PluginError("OVERLOADED", "the worker has no thread for this call") from None
        cancelled = False
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:
                cancelled = True
                job.interrupt()
                on_cancel()
        returned, error = future.result()
        try:
            # After a cancel its exception, if any, is the cancel's or comes too late to matter; a plugin that ends
            # the process still does.
            if error is not None and (not cancelled or isinstance(error, SystemExit)):
                raise error
            if cancelled:
                raise asyncio.CancelledError
            return returned
        finally:
            # Its trace holds this frame.
            del error


class _Job:
    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        # Between the thread, which leaves, and the loop, which interrupts.
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._interrupted = False
        self._left = False

    def run(self) -> tuple[Any, BaseException | None]:
        """What the function returned and what it raised. A future never ends by a StopIteration, and makes another
        exception, without a trace, of a TimeoutError.
        """
        try:
            return self._run(), None
        except BaseException as error:
            return None, error

    def _run(self) -> Any:
        try:
            with self._lock:
                if self._interrupted:
                    raise Cancelled
                self._thread = threading.get_ident()
            try:
                return self._function(*self._args)
            finally:
                self._leave()
        except BaseException:
            # Cancelled may have struck inside `_leave` itself.
            self._leave()
            raise

    def _leave(self) -> None:
        with self._lock:
            self._left = True
            if self._interrupted and self._thread is not None:
                # Still pending, it would strike the thread's next job.
                _raise_in(self._thread, None)

    def interrupt(self) -> None:
        with self._lock:
            if self._interrupted or self._left:
                return
            self._interrupted = True
            if self._thread is not None:
                _raise_in(self._thread, Cancelled)


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    import ctypes

    raised = ctypes.py_object(exception) if exception is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
