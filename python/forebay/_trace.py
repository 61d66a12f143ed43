"""Exceptions of Python functions as text: what was raised, and the user's own frames.

A run may have one of each row, so they are bounded where they are made.
"""

from __future__ import annotations

import os
import traceback

__all__ = ["bounded", "cause_of", "head_of"]

#: The folder of this package, whose frames are nobody's business.
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Bytes of a cause at most, as in `udfs/src/failure.rs`, and of the message in it.
CAUSE = 4096
MESSAGE = 1024
#: Bytes of the words that stand for what was left out.
_BETWEEN = 64


def bounded(text: str, limit: int) -> str:
    """A text of so many bytes at most: its beginning and its end, where it is longer. It can be encoded."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    end = limit // 4
    first = data[: limit - end - _BETWEEN].decode("utf-8", "ignore")
    last = data[-end:].decode("utf-8", "ignore")
    left_out = len(data) - len(first.encode()) - len(last.encode())
    return f"{first} [.. {left_out} bytes left out ..] {last}"


def cause_of(error: BaseException) -> str:
    """The exception's type and message, and then, on lines of their own, where it was raised."""
    told = traceback.TracebackException.from_exception(error)
    _narrow(told, set())
    frames = "".join(told.format()).rstrip()
    head = _head(told)
    return f"{head}\n{bounded(frames, CAUSE - len(head.encode()) - 1)}"


def head_of(error: BaseException) -> str:
    """The exception's type and message."""
    return _head(traceback.TracebackException.from_exception(error))


def _head(told: traceback.TracebackException) -> str:
    # Notes stand behind the message, whose last line it is to be.
    told.__dict__["__notes__"] = None
    return bounded(list(told.format_exception_only())[-1].strip(), MESSAGE)


def _narrow(told: traceback.TracebackException, seen: set[int]) -> None:
    """Leaves out the frames that are not the user's, and the middle of long messages, of the exception and of those
    that led to it."""
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
