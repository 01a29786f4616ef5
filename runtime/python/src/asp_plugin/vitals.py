"""What the interpreter tells of itself: its garbage collections and the blocks of its allocator.

CPython counts no bytes of its heap short of tracing every allocation, so none are told; the worker's resident memory
is the supervisor's to read. Keeps true: nothing here costs a call more than a clock reading a collection.
"""

from __future__ import annotations

import gc
import sys
from time import perf_counter_ns

from .wire import plugin_pb2 as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NANOS_PER_MICRO = 1_000


class _Collections:
    """Counts by the collector's own callbacks; a collection is never entered twice."""

    def __init__(self) -> None:
        self.count = 0
        self.nanos = 0
        self._began = 0

    def note(self, phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = perf_counter_ns()
        else:
            self.count += 1
            self.nanos += perf_counter_ns() - self._began


_collections = _Collections()


def begin() -> None:
    """Counts collections from now on."""
    gc.callbacks.append(_collections.note)


def read() -> wire.Vitals:
    """The figures of this moment."""
    return wire.Vitals(
        gc_count=_collections.count,
        gc_micros=_collections.nanos // NANOS_PER_MICRO,
        heap_blocks=sys.getallocatedblocks(),
    )
