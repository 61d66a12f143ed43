"""Formats an exception of a Python function as text: the exception, and the traceback frames of the user's own code.

Every row of a run may fail with such a text, so the text is shortened as soon as it is created.
"""

from __future__ import annotations

import os
import traceback

__all__ = ["bounded", "cause_of", "head_of"]

#: Path prefix of this package's files, whose frames are left out of tracebacks.
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Maximum size of a failure's cause, in bytes (the limit of `udfs/src/failure.rs`), and of the exception's message
#: within the cause.
CAUSE = 4096
MESSAGE = 1024
#: Bytes reserved for the note `[.. n bytes left out ..]` in a shortened text.
_BETWEEN = 64


def bounded(text: str, limit: int) -> str:
    """Shortens `text` to at most `limit` bytes by removing its middle. The result is valid UTF-8."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    end = limit // 4
    first = data[: limit - end - _BETWEEN].decode("utf-8", "ignore")
    last = data[-end:].decode("utf-8", "ignore")
    left_out = len(data) - len(first.encode()) - len(last.encode())
    return f"{first} [.. {left_out} bytes left out ..] {last}"


def cause_of(error: BaseException) -> str:
    """Returns the type and message of the exception on one line, followed by the lines of the traceback."""
    told = traceback.TracebackException.from_exception(error)
    _narrow(told, set())
    frames = "".join(told.format()).rstrip()
    head = _head(told)
    return f"{head}\n{bounded(frames, CAUSE - len(head.encode()) - 1)}"


def head_of(error: BaseException) -> str:
    """Returns the exception's type and message."""
    return _head(traceback.TracebackException.from_exception(error))


def _head(told: traceback.TracebackException) -> str:
    # The last line of the text must be the message. The exception's notes would follow it, so they are removed.
    told.__dict__["__notes__"] = None
    return bounded(list(told.format_exception_only())[-1].strip(), MESSAGE)


def _narrow(told: traceback.TracebackException, seen: set[int]) -> None:
    """Removes the frames outside the user's code from the exception and from its causes, and shortens their
    messages."""
    if id(told) in seen:
        return
    seen.add(id(told))
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if _is_users(frame.filename)])
    message = told.__dict__.get("_str")
    if isinstance(message, str):
        told.__dict__["_str"] = bounded(message, MESSAGE)
    for other in (told.__cause__, told.__context__):
        if other is not None:
            _narrow(other, seen)


def _is_users(filename: str) -> bool:
    return not filename.startswith("<frozen ") and not os.path.abspath(filename).startswith(_OWN)
