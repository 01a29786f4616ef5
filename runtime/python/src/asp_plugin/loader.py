"""Loads the entrypoints of a package.

Owns the spellings: `file.py`, `file.py:function`, `package.module:function`; without a function, the file's
only handler or the one named like the primitive. Refuses what leads out of the package folder. Keeps true:
the folder is the only place added to the import path.
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
from .handlers import SERVES, Handler, plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from .handlers import Served
    from .manifest import Manifest


def load(manifests: list[Manifest], code: str) -> list[Served]:
    """Imports the entrypoints and returns each primitive's handler; LoadError says why there is none."""
    dependencies = os.path.join(code, DEPENDENCIES)
    sys.path[:0] = [code, dependencies] if os.path.isdir(dependencies) else [code]
    targets = [manifest.entrypoint.partition(":")[0] for manifest in manifests]
    # Each file once, however many primitives it serves.
    modules = {target: _module(code, target) for target in dict.fromkeys(targets)}
    alone = len(manifests) == 1
    return [
        plugin.served(_chosen(modules[target], manifest, manifests), alone=alone)
        for manifest, target in zip(manifests, targets, strict=True)
    ]


def _module(code: str, target: str) -> ModuleType:
    try:
        return _file(code, target) if target.endswith(".py") else importlib.import_module(target)
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
    library = name.partition(".")[0] or "..."
    return f"import {target}: {error}: list the library in requirements.txt beside the code: {library}"


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


def _chosen(module: ModuleType, manifest: Manifest, manifests: list[Manifest]) -> Handler:
    """The handler that the entrypoint of a primitive means."""
    wanted = SERVES[manifest.kind]
    target, _, name = manifest.entrypoint.partition(":")
    if name:
        return _named(module, name, manifest)
    others = [other.entrypoint.partition(":") for other in manifests if other is not manifest]
    taken = [getattr(module, other, None) for file, _, other in others if file == target and other]
    handlers = [handler for handler in plugin.handlers if all(handler.function is not one for one in taken)]
    own = [handler for handler in handlers if _is_of(handler, module)]
    if own or len(manifests) > 1:
        # Else the file imports another one, which marks its only handler.
        handlers = own
    found = [handler for handler in handlers if handler.kind == wanted]
    if not handlers:
        raise LoadError(
            f"{manifest.entrypoint} defines no handler: mark its function with @plugin.{wanted}"
            " (from asp_plugin import plugin)"
        )
    if not found:
        raise _another_kind(manifest, handlers[0])
    rivals = [other for other in manifests if other.entrypoint == target and SERVES[other.kind] == wanted]
    if len(found) == 1 and len(rivals) == 1:
        return found[0]
    function = manifest.id.replace("-", "_").replace(".", "_")
    for handler in found:
        if handler.name == function:
            return handler
    names = ", ".join(handler.name for handler in found)
    raise LoadError(
        f"{target} has no {wanted} named {function}, only {names}:"
        f" runtime.entrypoint names another, as {target}:{found[0].name}"
    )


def _another_kind(manifest: Manifest, handler: Handler) -> LoadError:
    return LoadError(f"{manifest.entrypoint} defines a {handler.kind}, the manifest says {manifest.kind}")


def _is_of(handler: Handler, module: ModuleType) -> bool:
    """Whether the module defines the handler or imports it by name."""
    function = handler.function
    return getattr(function, "__module__", None) == module.__name__ or any(
        value is function for value in vars(module).values()
    )


def _named(module: ModuleType, name: str, manifest: Manifest) -> Handler:
    """The function of this name, decorated or not."""
    wanted = SERVES[manifest.kind]
    function = getattr(module, name, None)
    if not callable(function):
        raise LoadError(f"{module.__name__} has no function {name}")
    for handler in plugin.handlers:
        if handler.function is function:
            if handler.kind != wanted:
                raise _another_kind(manifest, handler)
            return handler
    return Handler(wanted, function)
