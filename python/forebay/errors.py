"""The exceptions of Forebay: a small hierarchy under `Error`."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "ClusterError",
    "ConfigError",
    "DataError",
    "Error",
    "FunctionError",
    "InternalError",
    "MemoryLimitError",
    "PlanError",
    "ResumeError",
    "SourceError",
    "UserTraceback",
]


def _again(kind: type[Error], message: str, known: dict[str, Any]) -> Error:
    """Creates an error from its class, message and attributes. Unpickling an error calls this function."""
    return kind(message, **known)


#: The start of the line with an error's attributes as JSON. A `DataLoader` recreates an error of a worker from its
#: class and text alone, so the attributes are appended to the text.
_ATTRIBUTES = "\nforebay.errors: "


class Error(Exception):
    """The base class of Forebay's errors."""

    _known: tuple[str, ...] = ()

    def __init__(self, message: str = "", **known: Any) -> None:
        if _ATTRIBUTES in message:
            message, _, rest = message.partition(_ATTRIBUTES)
            line, _, rest = rest.partition("\n")
            known = {**json.loads(line), **known}
            message += rest and f"\n{rest}"
        super().__init__(message)
        self.message = message
        for name in self._known:
            setattr(self, name, known.get(name))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, self._attributes())

    def _attributes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._known}

    def for_loader(self) -> None:
        """Appends the attributes to the text, so that an error which a `DataLoader` recreates from the text has the
        attributes."""
        self.args = (f"{self.message}{_ATTRIBUTES}{json.dumps(self._attributes())}",)


class PlanError(Error):
    """The SQL text or the Python calls of a pipeline contain a mistake.

    Attributes:
        line: Line of the SQL text, from 1; None if the pipeline does not come from a text.
        column: Position of the character in that line, from 1; None if `line` is None.
        hint: A possible remedy, or None.
    """

    _known: tuple[str, ...] = ("line", "column", "hint")
    line: int | None
    column: int | None
    hint: str | None


class SourceError(PlanError):
    """A source cannot be opened: a missing file, an unknown option, an unreadable schema.

    Attributes:
        source: Name of the source, or the Python call that creates the source.
    """

    _known = ("line", "column", "hint", "source")
    source: str | None


class DataError(Error):
    """A row failed and the pipeline has `on_error = 'fail'`, or a whole file cannot be read.

    Attributes:
        location: Location of the source.
        file: Path of the file, relative to `location`; None if the error is not about a single row.
        row: Number of the row in the file, from 0; None if the error is not about a single row.
        operator: Name of the function or operator that failed.
        column: Name of the output column; None if a filter failed.
        cause: Message of the failure.
    """

    _known = ("location", "file", "row", "operator", "column", "cause")
    location: str | None
    file: str | None
    row: int | None
    operator: str | None
    column: str | None
    cause: str | None


class FunctionError(Error):
    """An error of a Python function itself, rather than of a single row. Its set-up raised an exception, all of the
    first rows failed, the function returned an array whose type, shape or length is not the declared one, or its worker
    process died. A single wrong value only fails its row, which may raise a `DataError`.

    Attributes:
        function: Name of the function.
    """

    _known = ("function",)
    function: str | None


class UserTraceback(Exception):
    """The traceback of an exception in a Python function, as text. It is the `__cause__` of Forebay's error.

    The function may have run in another process, so the exception itself is not available.
    """

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ClusterError(Error):
    """The cluster cannot be reached, refuses the run, or has no worker that can compute it."""


class ConfigError(Error):
    """A setting of a run is invalid."""


class ResumeError(Error):
    """A run cannot resume from a token or a state. The token or state belongs to another pipeline, other data or
    another seed (the message says which), or it is malformed."""


class MemoryLimitError(ConfigError):
    """The memory limit is too low for the run.

    Attributes:
        limit: The memory limit, in bytes.
        minimum: The smallest limit under which the run fits, in bytes.
    """

    _known = ("limit", "minimum")
    limit: int | None
    minimum: int | None


class InternalError(Error):
    """An error caused by a bug in Forebay. Please report the bug."""
