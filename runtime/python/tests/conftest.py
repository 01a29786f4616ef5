"""Lets the tests import the harness beside them, and the package from its sources.

The workers run the package as installed for the interpreter that ASP_PLUGIN_PYTHON names (default: the
tests' own).
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]
