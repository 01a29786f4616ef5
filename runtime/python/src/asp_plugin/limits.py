"""The worker's own bounds: the second fence behind the sandbox's.

Keeps true: a limit is only ever lowered, and a limit the machine refuses to set is no reason not to start,
because the sandbox holds the same bounds from outside.
"""

from __future__ import annotations

import faulthandler
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .manifest import Manifest

RECURSION = 1000
# What the interpreter, gRPC's threads and their stacks map beside the plugin's own data.
MEMORY_SLACK = 268_435_456


def apply(manifest: Manifest) -> None:
    """Sets the limits of this process from the manifest's."""
    faulthandler.enable()
    sys.setrecursionlimit(RECURSION)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, manifest.disk_bytes)
    if manifest.files:
        _lower(resource.RLIMIT_NOFILE, manifest.files)
    if manifest.memory_bytes:
        # Not the address space: that counts reservations nobody uses.
        _lower(resource.RLIMIT_DATA, manifest.memory_bytes + MEMORY_SLACK)


def _lower(what: int, wanted: int) -> None:
    _, hard = resource.getrlimit(what)
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(what, (bound, bound))
    except (ValueError, OSError) as error:
        print(f"limit {what} stays as it is: {error}", file=sys.stderr)
