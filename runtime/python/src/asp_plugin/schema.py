"""Validation of arguments and results by JSON Schema 2020-12, with the engine the gateway uses.

Refuses remote references and patterns that are not linear in time. Keeps true: formats are asserted, as the
gateway does, and what a message says of a result does not repeat the result.
"""

from __future__ import annotations

from typing import NamedTuple

from . import json_text
from .errors import LoadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .manifest import Manifest

MAX_MESSAGE = 1024


class Fault(NamedTuple):
    """What does not fit: a sentence that begins with the place, and the place alone (RFC 6901)."""

    message: str
    details: dict[str, str]


class Schemas:
    """The compiled schemas of a plugin."""

    def __init__(self, manifest: Manifest) -> None:
        self._input = _compile("inputSchema", manifest.input_schema, mask=None)
        self._output = _compile("outputSchema", manifest.output_schema, mask="the value")

    def input_fault(self, arguments: Any) -> Fault | None:
        """What is wrong with the arguments; None when nothing is."""
        return _fault(self._input, arguments)

    @property
    def has_output(self) -> bool:
        """Whether a result has a schema, and null is therefore a value."""
        return self._output is not None

    def output_fault(self, output: Any) -> Fault | None:
        """The same of a result."""
        return _fault(self._output, output)


def _compile(name: str, schema: Any, mask: str | None) -> Any:
    if schema is None:
        return None
    # Imported here: 25 ms that a plugin without schemas need not spend.
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema,
            validate_formats=True,
            mask=mask,
            pattern_options=jsonschema_rs.RegexOptions(),
            offline=True,
        )
    except Exception as error:  # whatever the engine says, the plugin cannot be served
        raise LoadError(f"{name}: {str(error).splitlines()[0]}") from error


def _fault(validator: Any, instance: Any) -> Fault | None:
    if validator is None:
        return None
    try:
        return _first(validator, instance)
    except UnicodeEncodeError:
        # The engine takes no text that UTF-8 cannot hold.
        return _first(validator, json_text.readable(instance))


def _first(validator: Any, instance: Any) -> Fault | None:
    # `is_valid` is the fast path: no error object is built.
    if validator.is_valid(instance):
        return None
    error = next(iter(validator.iter_errors(instance)))
    place = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.instance_path)
    message = f"{place or '/'}: {error.message}"
    return Fault(message[:MAX_MESSAGE], {"pointer": place})
