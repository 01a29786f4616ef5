"""One invoke from its start to its end.

Owns the life of a call: validation, the handler's task, cancel and deadline, exactly one completed or failed.
Refuses to send anything after that end. Keeps true: what the caller is told of a plugin's fault never holds a
stack trace; that goes to the log.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import time

from . import failures, json_text
from .context import Context
from .errors import Cancelled, CheckpointError, PluginError, TooLarge
from .questions import Questions
from .storage import StorageRequests
from .sync_context import SyncContext
from .values import Result, Resume, Secret
from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .outbox import Outbox
    from .worker import Primitive, Worker

MAX_MESSAGE = 4 * 1024 * 1024
MAX_CAPSULE = 64 * 1024
MAX_LOG = 16 * 1024
# Of a failure: enough for a sentence and the data to it.
MAX_CODE = 64
MAX_FAILURE = 4096
MAX_DETAILS = 64 * 1024
# What a result is as a rule JSON already; a list often holds values of the plugin's own.
JSON_TYPES = (dict, str, int, float, bool)

# Level of a log line on the wire, by its name. A name that the wire's levels lack is sent as its severity as well.
LEVELS = {
    "trace": wire.LogLine.TRACE,
    "debug": wire.LogLine.DEBUG,
    "info": wire.LogLine.INFO,
    "notice": wire.LogLine.INFO,
    "warn": wire.LogLine.WARN,
    "warning": wire.LogLine.WARN,
    "error": wire.LogLine.ERROR,
    "critical": wire.LogLine.ERROR,
    "alert": wire.LogLine.ERROR,
    "emergency": wire.LogLine.ERROR,
}

# The call whose handler runs, for the logging handler.
current: contextvars.ContextVar[Call | None] = contextvars.ContextVar("asp_plugin_call", default=None)

# How a call is stopped, and what the platform is told then where it gave no reason of its own.
ENDINGS = {
    "CANCELLED": "the call was cancelled",
    "DEADLINE": "the deadline passed",
    "YIELDED": "yielded its place; goes on from its checkpoint",
}


class Call:
    """One running invoke. Used on the event loop only."""

    def __init__(
        self, invoke: wire.InvokeRequest, worker: Worker, primitive: Primitive, outbox: Outbox
    ) -> None:
        self.invoke = invoke
        self.primitive = primitive
        self.request_id = invoke.request_id
        self.task_id = invoke.task_id
        self.worker = worker
        self.questions = Questions()
        self.storage_requests = StorageRequests()
        self.artifact_bytes = 0
        self.artifacts: set[str] = set()
        self.resume: Resume | None = None
        # Asked to finish the step in hand; asked to save and yield.
        self.soft = False
        self.preempted = False
        # Whether a checkpoint of this call is stored.
        self.saved = False
        self.ended = False
        self._outbox = outbox
        # What the call ends with, whatever its handler returns: CANCELLED or DEADLINE.
        self._stopping: str | None = None
        # The platform's words for it.
        self._reason = ""
        # Whether the handler was told that its step is over: once, it may clean up and return.
        self._step_ended = False
        self._threaded = False
        self._started = False
        self._seq = 0
        self._acks: dict[int, asyncio.Future[str]] = {}
        # One checkpoint at a time: the platform takes few without an acknowledgement.
        self._saving = asyncio.Lock()
        self._dropped_logs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    # === running

    def start(self) -> asyncio.Task[None]:
        """Starts the handler; the task ends when the call's end is queued."""
        loop = asyncio.get_running_loop()
        if self.invoke.HasField("deadline"):
            left = self.invoke.deadline.ToNanoseconds() / 1e9 - time.time()
        else:
            left = float(self.primitive.manifest.max_runtime)
        if left <= 0:
            self._stopping = "DEADLINE"
        else:
            self._timer = loop.call_later(left, self.stop, "DEADLINE")
        self._task = loop.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        self._started = True
        current.set(self)
        try:
            end = await self._outcome()
        except (asyncio.CancelledError, Cancelled):
            end = self._stopped()
        except PluginError as error:
            end = self._failed(error.code, error.message, error.details)
            if self.cancelled:
                # What a handler makes of its cancel is a cancel all the same.
                end = self._stopped()
        except SystemExit as error:
            where = failures.place(error)
            self.worker.crash(f"the plugin called sys.exit({error.code!r})" + (f" at {where}" if where else ""))
        except BaseException as error:
            self._log_now("error", failures.trace(error))
            end = self._failed("INTERNAL", failures.text(error))
            if self.cancelled:
                end = self._stopped()
        finally:
            if self._timer is not None:
                self._timer.cancel()
        self._flush_dropped()
        self.ended = True
        await self._outbox.put(end)

    async def _outcome(self) -> wire.ServerMessage:
        if self._stopping is not None:
            return self._stopped()
        if self.invoke.describe:
            return self._described()
        try:
            arguments = json_text.from_bytes(self.invoke.arguments.value)
        except ValueError:
            return self._failed("INVALID_ARGUMENT", "the arguments are not JSON")
        schemas = await self.primitive.schemas()
        fault = schemas.input_fault(arguments)
        if fault is not None:
            return self._failed("INVALID_ARGUMENT", *fault)
        read = self.primitive.reader()
        if read is not None:
            arguments = read(arguments, "")
        context = Context(self)
        if self.invoke.HasField("resume"):
            await self._restore(context)
        returned = await self._handle(self.primitive.plugin.handler, context, arguments)
        if self._stopping is not None:
            # The handler swallowed the cancel. A milder request is another matter: a result counts.
            return self._stopped()
        return self._completed(returned, schemas)

    async def _handle(self, function: Any, context: Context, *arguments: Any) -> Any:
        self._threaded = not self.worker.is_async(function)
        if not self._threaded:
            return await function(*arguments, context)
        blocking = SyncContext(context, asyncio.get_running_loop())
        return await self.worker.threads.run(blocking.release, function, *arguments, blocking)

    async def _restore(self, context: Context) -> None:
        resume = self.invoke.resume
        saved = json_text.from_bytes(resume.capsule) or {}
        self._seq = resume.seq
        self.saved = bool(resume.capsule)
        self.questions.restore(resume, saved.get("answered", {}))
        token = Secret(resume.resume_token)
        self.resume = Resume(saved.get("state"), resume.seq, resume.attempt, token)
        hook = self.primitive.plugin.hooks.get("resume")
        if hook is not None:
            state = await self._handle(hook, context, self.resume)
            if state is not None:
                self.resume = self.resume._replace(state=state)

    # === stopping

    def cancel(self, request: wire.CancelRequest) -> None:
        """Answers a cancel and acts on it."""
        answer = wire.CancelResponse(request_id=self.request_id, accepted=True)
        if request.mode == wire.CancelRequest.PREEMPT and not self.primitive.plugin.resumable:
            answer.accepted, answer.message = False, "the plugin cannot resume"
        self._outbox.urgent(wire.ServerMessage(cancel=answer))
        if not answer.accepted:
            return
        if request.mode == wire.CancelRequest.HARD:
            # The runtime's clock may be the first to say that the time is over.
            late = request.reason == "deadline"
            self.stop("DEADLINE" if late else "CANCELLED", "" if late else request.reason)
        elif request.mode == wire.CancelRequest.SOFT and not self.cancelled:
            self.soft, self._reason = True, request.reason
        elif request.mode == wire.CancelRequest.PREEMPT and not self.cancelled and not self.preempted:
            self.preempted, self._reason = True, request.reason
        if self._stopping is None and self.questions.any_open() and self.wants_to_stop() is not None:
            self._end_step()

    def wants_to_stop(self) -> str | None:
        """How the call is to end where a step ends; None when it may go on."""
        if self._stopping is not None:
            return self._stopping
        if self.soft:
            return "CANCELLED"
        return "YIELDED" if self.preempted and self.saved else None

    def stop(self, code: str, reason: str = "") -> None:
        """Cancels the handler, whatever it returns; the first code counts."""
        if self._stopping is not None or self.ended:
            return
        self._stopping, self._reason = code, reason
        # A task that never ran would be dropped without an end; it sees the reason when it starts.
        if self._task is not None and self._started:
            self._task.cancel()

    def _end_step(self) -> None:
        """Ends the step in hand: a handler that catches it may still return a result."""
        told = self._step_ended or self._threaded or self.ended
        if not told and self._task is not None and self._started:
            # The handler itself and not only the task that asks: a group of tasks would take the end of one
            # for nothing, and go on to a result that lacks its part.
            self._step_ended = True
            self._task.cancel()
        # A thread is not struck in the middle of its work; what waits in the context ends.
        self.questions.end()

    async def halt_here(self) -> None:
        """Ends the step if the call wants to stop: the cancel arrives while this waits."""
        if self.wants_to_stop() is not None:
            self._end_step()
            await asyncio.sleep(0)
            raise asyncio.CancelledError

    @property
    def cancelled(self) -> bool:
        """Whether the call is to end; not so for one that is to yield, which goes on elsewhere."""
        return self._stopping is not None or self.soft

    # === what the context sends

    async def send(self, **payload: Any) -> None:
        """Sends one event, waiting for room; drops it when the call has ended."""
        message = wire.ServerMessage(**payload)
        size = message.ByteSize()
        if size > MAX_MESSAGE:
            raise TooLarge(size)
        if not self.ended:
            await self._outbox.put(message)

    def log(self, level: str, text: str) -> bool:
        """Sends a log line if there is room; says whether the call still takes lines."""
        if self.ended:
            return False
        self._log_now(level, text)
        return True

    def _log_now(self, level: str, text: str) -> None:
        name = str(level).lower()
        if name not in LEVELS:
            raise ValueError(f"log: unknown level {name[:20]!r}; the levels are {', '.join(LEVELS)}")
        line = wire.LogLine(request_id=self.request_id, task_id=self.task_id, level=LEVELS[name])
        if name.upper() not in wire.LogLine.Level.keys():
            line.severity = name
        line.message = _bounded(text, MAX_LOG)
        line.at.FromNanoseconds(time.time_ns())
        if not self._outbox.offer(wire.ServerMessage(log=line)):
            self._dropped_logs += 1

    def _flush_dropped(self) -> None:
        if self._dropped_logs:
            print(f"{self.request_id}: {self._dropped_logs} log lines found no room", file=sys.stderr)

    async def checkpoint(self, state: Any) -> None:
        """Saves; returns when the platform has stored the state."""
        capsule = json_text.to_bytes({"state": state, "answered": self.questions.answered})
        if len(capsule) > MAX_CAPSULE:
            raise CheckpointError("too_large")
        async with self._saving:
            self._seq += 1
            seq = self._seq
            stored = self._acks[seq] = asyncio.get_running_loop().create_future()
            try:
                message = wire.Checkpoint(request_id=self.request_id, seq=seq, capsule=capsule)
                await self.send(checkpoint=message)
                error = await stored
            finally:
                del self._acks[seq]
        if error:
            raise CheckpointError(error)
        self.saved = True
        await self.halt_here()

    # === what the platform delivers

    def acknowledged(self, ack: wire.CheckpointAck) -> None:
        """Hands over the answer to a checkpoint."""
        waiting = self._acks.get(ack.seq)
        if waiting is not None and not waiting.done():
            waiting.set_result(ack.error)

    # === ends

    def _completed(self, returned: Any, schemas: Any) -> wire.ServerMessage:
        result = returned if isinstance(returned, Result) else Result(returned)
        end = wire.Completed(request_id=self.request_id, task_id=self.task_id, is_error=result.is_error)
        try:
            output, text = _encoded(result.output)
            if output is not None or not result.is_error:
                fault = schemas.output_fault(output)
                if fault is not None:
                    return self._failed("INVALID_OUTPUT", *fault)
            if output is not None or (schemas.has_output and not result.is_error):
                end.output.value = text
            if result.content is not None:
                end.content.value = json_text.to_bytes(result.content)
            if result.meta is not None:
                end.meta.value = json_text.to_bytes(result.meta)
        except (TypeError, ValueError) as error:
            awaitable = "; write `await` before what makes it" if inspect.isawaitable(result.output) else ""
            why = f"the result is not JSON: {error}{awaitable}"
            self._log_now("error", why)
            return self._failed("INVALID_OUTPUT", why if failures.is_development() else "the result is not JSON")
        message = wire.ServerMessage(completed=end)
        size = message.ByteSize()
        if size > MAX_MESSAGE:
            too_large = f"the result has {size} bytes, allowed are {MAX_MESSAGE}; keep it as an artifact (ctx.artifact)"
            return self._failed("INVALID_OUTPUT", too_large)
        return message

    def _described(self) -> wire.ServerMessage:
        """What the handler's types say; nothing of the plugin's runs."""
        from .describe import describe

        end = wire.Completed(request_id=self.request_id, task_id=self.task_id)
        end.output.value = json_text.to_bytes(describe(self.primitive.plugin.handler))
        return wire.ServerMessage(completed=end)

    def _stopped(self) -> wire.ServerMessage:
        ending = self.wants_to_stop()
        if ending is None:
            # A CancelledError of the handler's own making.
            why = "the handler was cancelled by its own code"
            self._log_now("error", why)
            return self._failed("INTERNAL", why if failures.is_development() else failures.FOR_CALLERS)
        code = "CANCELLED" if ending == "YIELDED" else ending
        message = self._failed(code, self._reason or ENDINGS[ending])
        message.failed.yielded = ending == "YIELDED"
        return message

    def _failed(self, code: str, message: str, details: Any = None) -> wire.ServerMessage:
        end = wire.Failed(request_id=self.request_id, task_id=self.task_id)
        end.code, end.message = _bounded(code, MAX_CODE), _bounded(message, MAX_FAILURE)
        if details is not None:
            try:
                text = json_text.to_bytes(details)
            except (TypeError, ValueError) as error:
                text = b""
                self._log_now("error", f"the details of a failure are not JSON: {error}")
            if len(text) <= MAX_DETAILS:
                end.details.value = text
            else:
                self._log_now("error", f"the details of a failure have {len(text)} bytes; left out")
        return wire.ServerMessage(failed=end)


def _encoded(output: Any) -> tuple[Any, bytes]:
    """A result as JSON, and its text."""
    if output is None or type(output) in JSON_TYPES:
        try:
            return output, json_text.to_bytes(output)
        except TypeError:
            # Somewhere in it is a value of the plugin's own.
            pass
    # Here and not above: a plugin without types need not load it.
    from .convert import plain

    output = plain(output)
    return output, json_text.to_bytes(output)


def _bounded(text: Any, size: int) -> str:
    """At most `size` bytes of UTF-8, whatever a plugin calls a text."""
    return str(text).encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
