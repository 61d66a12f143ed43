"""Exceptions of Python functions as text: what was raised, and the user's own frames."""

from __future__ import annotations

import os
import traceback

#: The folder of this package, whose frames are nobody's business.
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def cause_of(error: BaseException) -> str:
    """The exception's type and message, and then, on lines of their own, where it was raised."""
    told = traceback.TracebackException.from_exception(error)
    _narrow(told, set())
    frames = "".join(told.format()).rstrip()
    # Notes stand behind the message, whose last line it is to be.
    told.__dict__["__notes__"] = None
    head = list(told.format_exception_only())[-1].strip()
    return f"{head}\n{frames}"


def _narrow(told: traceback.TracebackException, seen: set[int]) -> None:
    """Leaves out the frames that are not the user's, of the exception and of those that led to it."""
    if id(told) in seen:
        return
    seen.add(id(told))
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if _is_users(frame.filename)])
    for other in (told.__cause__, told.__context__):
        if other is not None:
            _narrow(other, seen)


def _is_users(filename: str) -> bool:
    return not filename.startswith("<frozen ") and not os.path.abspath(filename).startswith(_OWN)
