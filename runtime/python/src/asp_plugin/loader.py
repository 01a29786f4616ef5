"""Loads the entrypoint of a plugin.

Owns the three spellings: `file.py`, `file.py:function`, `package.module:function`. Refuses what leads out
of the package folder. Keeps true: the folder is the only place added to the import path.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback

from . import failures
from .errors import LoadError
from .failures import DEPENDENCIES
from .handlers import SERVES, plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from .handlers import Plugin
    from .manifest import Manifest


def load(manifest: Manifest, code: str) -> Plugin:
    """Imports the entrypoint and returns the plugin it defined; LoadError says why it cannot be served."""
    dependencies = os.path.join(code, DEPENDENCIES)
    sys.path[:0] = [code, dependencies] if os.path.isdir(dependencies) else [code]
    target, _, name = manifest.entrypoint.partition(":")
    try:
        module = _file(code, target) if target.endswith(".py") else importlib.import_module(target)
    except LoadError:
        raise
    except ModuleNotFoundError as error:
        _print_trace(error)
        raise LoadError(_missing(target, error)) from error
    except BaseException as error:  # whatever the plugin's own code raised, sys.exit included
        where = failures.place(error)
        _print_trace(error)
        at = f"{where}: " if where else ""
        raise LoadError(f"import {target}: {at}{type(error).__name__}: {error}") from error
    wanted = SERVES[manifest.kind]
    if name:
        _choose(module, name, wanted)
    if plugin.handler is None:
        raise LoadError(
            f"{manifest.entrypoint} defines no handler: mark its function with @plugin.{wanted}"
            " (from asp_plugin import plugin)"
        )
    if plugin.kind != wanted:
        raise LoadError(f"{manifest.entrypoint} defines a {plugin.kind}, the manifest says {manifest.kind}")
    return plugin


def _print_trace(error: BaseException) -> None:
    """Prints the plugin's own part of the trace: the import system and this package are no help to its author."""
    lines = traceback.format_list(failures.own_part(traceback.extract_tb(error.__traceback__)))
    if lines or isinstance(error, SyntaxError):
        print("".join([*lines, *traceback.format_exception_only(error)]), end="", file=sys.stderr)


def _missing(target: str, error: ModuleNotFoundError) -> str:
    """Says where the module that is not there belongs."""
    name = error.name or ""
    if name and (target == name or target.startswith(f"{name}.")):
        return f"there is no module {name} in the package; runtime.entrypoint names it"
    wheel = name.partition(".")[0] or "..."
    return (
        f"import {target}: {error}: a library lies beside the code:"
        f" pip install --target {DEPENDENCIES} {wheel}"
    )


def _file(code: str, target: str) -> ModuleType:
    root = os.path.realpath(code)
    path = os.path.realpath(os.path.join(root, target))
    if not path.startswith(root + os.sep):
        raise LoadError(f"{target} is outside the package")
    name = os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise LoadError(f"{target} is not in the package")
    module = importlib.util.module_from_spec(spec)
    # As the import system does: a module that imports its siblings may be imported by them.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _choose(module: ModuleType, name: str, wanted: str) -> None:
    """Takes the named function, decorated or not."""
    function = getattr(module, name, None)
    if not callable(function):
        raise LoadError(f"{module.__name__} has no function {name}")
    if plugin.handler is None:
        plugin.kind, plugin.handler = wanted, function
    elif plugin.handler is not function:
        raise LoadError(f"{module.__name__} defines another handler than {name}")
