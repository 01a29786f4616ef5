#!/usr/bin/env python3
"""Runs a command beside another one, and ends it once the other one has failed: `scripts/beside.py ASIDE... -- COMMAND...`.

COMMAND keeps the terminal, because it may ask for a password. ASIDE has a process group of its own, so that all of it can
be ended.

>>> beside(["true"], ["true"])
(0, 0)
>>> beside(["false"], ["true"])
(1, 0)
>>> beside(["sh", "-c", "sleep 600; true"], ["false"])
(-15, 1)
"""

import os
import signal
import subprocess
import sys


def beside(aside, command):
    """Returns the exit codes of both; that of an ended one is the negative number of its signal."""
    running = subprocess.Popen(aside, start_new_session=True)
    try:
        status = subprocess.call(command)
        if status == 0:
            return running.wait(), status
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGTERM)
    return running.wait(), status


if __name__ == "__main__":
    # Ends the other command, as an interrupt does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    between = sys.argv.index("--")
    codes = beside(sys.argv[1:between], sys.argv[between + 1 :])
    if codes[1] and codes[0] < 0:
        print(f"beside: `{' '.join(sys.argv[1:between])}` was ended, because the command beside it failed", file=sys.stderr)
    sys.exit(1 if any(codes) else 0)
