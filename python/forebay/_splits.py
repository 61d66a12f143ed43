"""Libraries that split a dataset between processes: one that does so to the batches of a rank loses rows."""

from __future__ import annotations

import sys

__all__ = ["second_split"]

#: What hands parts of an iterable dataset to processes, and the libraries that have it.
_SPLITTERS = {"DataLoaderDispatcher", "IterableDatasetShard"}
_LIBRARIES = {"accelerate", "transformers"}
#: Calls in which they iterate.
_CALLS = {"__iter__", "__next__", "_fetch_batches"}


def second_split() -> str | None:
    """The library and class on whose behalf the caller iterates, if it is one that splits what it gets.

    It is looked for on the stack, as a dataset is not told who iterates over it. A loader worker that was forked has
    the stack of its parent.
    """
    frame = sys._getframe(1)
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        if frame.f_code.co_name not in _CALLS:
            continue
        for base in type(frame.f_locals.get("self")).__mro__:
            library = base.__module__.partition(".")[0]
            if base.__name__ in _SPLITTERS and library in _LIBRARIES:
                return f"{library}'s {base.__name__}"
    return None
