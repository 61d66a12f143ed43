"""Libraries that read a dataset for a loop: they split it between processes, read ahead, and count its epochs."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Reader", "counter", "found"]

#: What hands parts of an iterable dataset to processes, and the libraries that have it.
_SPLITTERS = {"DataLoaderDispatcher", "IterableDatasetShard"}
_LIBRARIES = {"accelerate", "transformers"}
#: Loaders that read ahead of the loop, and tell a dataset its epoch whenever they iterate.
_LOADERS = {"DataLoaderDispatcher", "DataLoaderShard"}
#: Calls in which they iterate, or make loader workers.
_CALLS = {"__iter__", "__next__", "_fetch_batches", "__init__"}


@dataclass(frozen=True)
class Reader:
    """A library that reads a dataset."""

    #: The library and its class.
    name: str
    processes: int
    #: Whether it gives its process a part of what it reads.
    splits: bool
    #: Whether it reads before the loop asks.
    leads: bool
    #: Whether one process reads for several, each of which is given a part.
    deals: bool
    #: Whether each batch is split, rather than as many together as there are processes.
    splits_batches: bool
    reader: weakref.ref[Any] | None

    def is_ahead(self) -> bool:
        """Whether it has read what the loop was not given yet."""
        reader = None if self.reader is None else self.reader()
        return self.leads and not getattr(reader, "end_of_dataloader", False)

    def sent(self) -> Reader:
        """The same for another process."""
        return replace(self, reader=None)


def found() -> Reader | None:
    """The library on whose behalf the caller iterates, if it is one of these.

    It is looked for on the stack, as a dataset is not told who iterates over it. A loader worker that was forked has
    the stack of its parent.
    """
    for reader, name, library in _callers(_CALLS, _SPLITTERS | _LOADERS):
        processes = _processes(library)
        return Reader(
            f"{library}'s {name}",
            processes,
            name in _SPLITTERS,
            name in _LOADERS,
            name == "DataLoaderDispatcher" and processes > 1,
            bool(getattr(reader, "split_batches", False)),
            weakref.ref(reader),
        )
    return None


def counter() -> str | None:
    """The library and class that says the epoch on the caller's stack, if it does so because it iterates."""
    for _, name, library in _callers({"__iter__"}, _LOADERS):
        return f"{library}'s {name}"
    return None


def _callers(calls: set[str], classes: set[str]) -> Iterator[tuple[Any, str, str]]:
    """Objects of the libraries' classes in whose calls the caller is, with their class and library."""
    frame = sys._getframe(1)
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        if frame.f_code.co_name not in calls:
            continue
        caller = frame.f_locals.get("self")
        for base in type(caller).__mro__:
            library = base.__module__.partition(".")[0]
            if base.__name__ in classes and library in _LIBRARIES:
                yield caller, base.__name__, library


def _processes(library: str) -> int:
    """Processes that a library knows of; one where it does not say."""
    state = getattr(sys.modules.get(f"{library}.state"), "PartialState", None)
    return 1 if state is None else int(getattr(state(), "num_processes", 1))
