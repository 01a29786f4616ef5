"""The manifest of an installed package, `plugin.json`.

Owns the parts a worker acts on, one `Manifest` for each primitive. The supervisor has judged the file; this
module refuses only what it could not work with.
"""

from __future__ import annotations

import json

from .errors import LoadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_CONCURRENCY = 8
DEFAULT_DISK_BYTES = 268_435_456
DEFAULT_MAX_RUNTIME_SECONDS = 60
KINDS = ("tool", "task", "resource", "resource_template", "prompt")


class Manifest:
    """What a primitive runs and within which bounds. Sizes are bytes, times are seconds."""

    def __init__(self, raw: dict[str, Any]) -> None:
        limits = raw.get("limits") or {}
        self.id: str = raw["id"]
        self.version: str = raw["version"]
        self.kind: str = raw["kind"]
        self.entrypoint: str = raw["entrypoint"]
        self.input_schema: Any = raw.get("inputSchema")
        self.output_schema: Any = raw.get("outputSchema")
        self.elicitations = frozenset(raw.get("elicitations") or ())
        self.delegations = frozenset(raw.get("delegations") or ())
        self.concurrency: int = (raw.get("pool") or {}).get("concurrency") or DEFAULT_CONCURRENCY
        self.max_runtime: int = limits.get("maxRuntimeSeconds") or DEFAULT_MAX_RUNTIME_SECONDS
        self.memory_bytes: int = limits.get("memoryBytes") or 0
        self.files: int = limits.get("files") or 0
        self.disk_bytes: int = limits.get("diskBytes") or DEFAULT_DISK_BYTES
        if self.kind not in KINDS:
            raise LoadError(f"kind {self.kind!r} is none of {', '.join(KINDS)}")


def read(path: str) -> list[Manifest]:
    """Reads the manifest at `path`, an entry for each primitive; LoadError says what is wrong with it."""
    try:
        with open(path, "rb") as file:
            raw = json.load(file)
        parts: dict[str, dict[str, Any]] = raw.pop("primitives", None) or {}
        if not parts:
            return [Manifest(raw)]
        return [Manifest(_whole(raw, primitive, part)) for primitive, part in parts.items()]
    except OSError as error:
        raise LoadError(f"read {path}: {error.strerror}") from error
    except KeyError as error:
        raise LoadError(f"plugin.json has no {error.args[0]}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise LoadError(f"plugin.json: {error}") from error


def _whole(raw: dict[str, Any], primitive: str, part: dict[str, Any]) -> dict[str, Any]:
    """The part of one primitive with what all primitives of the package share."""
    limits = {**(raw.get("limits") or {}), **(part.get("limits") or {})}
    return {**raw, **part, "id": primitive, "limits": limits}
