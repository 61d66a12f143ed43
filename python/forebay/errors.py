"""What Forebay raises: a small hierarchy under `Error`."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
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
    """An error of its parts, which is how one is unpickled."""
    return kind(message, **known)


#: What the line begins with that carries an error's attributes through a `DataLoader`, which makes an error of
#: a worker's again of its class and its text.
_ATTRIBUTES = "\nforebay.errors: "


class Error(Exception):
    """Any error of Forebay's."""

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
        """Makes the text such that an error made of it has the attributes."""
        self.args = (f"{self.message}{_ATTRIBUTES}{json.dumps(self._attributes())}",)


class PlanError(Error):
    """The SQL or the calls are wrong.

    Attributes:
        line: Line of the SQL text, from 1, if the pipeline came from text.
        column: Column in that line, from 1.
        hint: What may help, or None.
    """

    _known: tuple[str, ...] = ("line", "column", "hint")
    line: int | None
    column: int | None
    hint: str | None


class SourceError(PlanError):
    """A source cannot be opened: no such file, an unknown option, no readable schema.

    Attributes:
        source: The source's name, or the call that names it.
    """

    _known = ("line", "column", "hint", "source")
    source: str | None


class DataError(Error):
    """A row failed and the pipeline's policy is to stop, or a file cannot be read at all.

    Attributes:
        location: Where the source is.
        file: The file, relative to the source; None where no single row failed.
        row: Row in the file, from 0.
        operator: The function or operator that failed.
        column: The output column; None where a filter failed.
        cause: What went wrong.
    """

    _known = ("location", "file", "row", "operator", "column", "cause")
    location: str | None
    file: str | None
    row: int | None
    operator: str | None
    column: str | None
    cause: str | None


class FunctionError(Error):
    """A Python function is at fault, whatever the row: its set-up fails, it fails in all of the first rows, an array
    that it returns is none of the declared type, shape or length, or its worker process died. A wrong value is the
    failure of its row, a `DataError`.

    Attributes:
        function: The function's name.
    """

    _known = ("function",)
    function: str | None


class UserTraceback(Exception):
    """Where a Python function raised what made an error: the `__cause__` of that error, as a text.

    The function may have run in another process, so this is not the exception itself.
    """

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ConfigError(Error):
    """A setting of a run makes no sense."""


class ResumeError(Error):
    """A run cannot go on from a token or a state: it is of another pipeline, other data or another seed (the
    message says what differs), or it is none."""


class MemoryLimitError(ConfigError):
    """The memory limit leaves no room to work in.

    Attributes:
        limit: Bytes that were allowed.
        minimum: Bytes that are needed.
    """

    _known = ("limit", "minimum")
    limit: int | None
    minimum: int | None


class InternalError(Error):
    """A broken promise of Forebay's own. Please report it."""
