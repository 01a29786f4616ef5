"""Ways to die, to hang, and to break the protocol."""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from typing import Any

from asp_plugin import Context


def crash(args: dict[str, Any]) -> Any:
    """A native crash."""
    ctypes.string_at(0)


def abort(args: dict[str, Any]) -> Any:
    """What a failed assertion of a library does."""
    os.abort()


def hard_exit(args: dict[str, Any]) -> Any:
    """An end that looks clean."""
    os._exit(0)


def stop(args: dict[str, Any]) -> Any:
    """Alive, and silent."""
    os.kill(os.getpid(), signal.SIGSTOP)


def recursion(args: dict[str, Any]) -> Any:
    """A stack without end."""
    return recursion(args)


def raw_fd(args: dict[str, Any]) -> Any:
    """Garbage with a huge length prefix into every connected socket of the process."""
    hit = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as connection:
                connection.getpeername()
                connection.send(b"\xff\xff\xff\xff" * 1024)
                hit += 1
        except OSError:
            continue
    return {"hit": hit}


async def exit_(args: dict[str, Any], ctx: Context) -> Any:
    """What a script does when it is done."""
    sys.exit(0)


async def ignore_cancel(args: dict[str, Any], ctx: Context) -> Any:
    """Swallows every cancel."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def undeclared(args: dict[str, Any], ctx: Context) -> Any:
    """Asks what the spec does not declare, past the shim's own check."""
    from asp_plugin.wire import plugin_pb2 as wire

    question = wire.ElicitationRequested(request_id=ctx.request_id, elicitation_id="your_password")
    await ctx._call.send(elicitation=question)
    await asyncio.sleep(3600)


async def oversize_checkpoint(args: dict[str, Any], ctx: Context) -> Any:
    """A capsule of 1 MiB, past the shim's own check."""
    from asp_plugin.wire import plugin_pb2 as wire

    capsule = wire.Checkpoint(request_id=ctx.request_id, seq=1, capsule=bytes(1 << 20))
    await ctx._call.send(checkpoint=capsule)
    await asyncio.sleep(3600)


async def oversize_chunk(args: dict[str, Any], ctx: Context) -> Any:
    """A message of 5 MiB, past the shim's own check."""
    from asp_plugin.wire import plugin_pb2 as wire

    chunk = wire.ResultChunk(request_id=ctx.request_id, text="x" * (5 << 20))
    await ctx._call._outbox.put(wire.ServerMessage(chunk=chunk))
    await asyncio.sleep(3600)


MODES = {
    "crash": crash,
    "abort": abort,
    "hard_exit": hard_exit,
    "stop": stop,
    "recursion": recursion,
    "raw_fd": raw_fd,
}
ASYNC = {
    "exit": exit_,
    "ignore_cancel": ignore_cancel,
    "undeclared": undeclared,
    "oversize_checkpoint": oversize_checkpoint,
    "oversize_chunk": oversize_chunk,
}
