"""What has to be so before gRPC is imported. The worker imports this module before any other of the package.

Keeps true: nothing of it is left for the plugin to see.
"""

from __future__ import annotations

import gc
import os

FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

# gRPC's fork handling would stop its threads, and so the session, around every fork of the plugin's, and
# start them again in the child. It is read while gRPC is imported.
os.environ[FORK_SUPPORT] = "0"
# What is imported stays: collecting while it grows is time lost before the worker is ready.
gc.disable()


def imported() -> None:
    """Ends the exceptions made for importing."""
    del os.environ[FORK_SUPPORT]
    gc.freeze()
    gc.enable()
