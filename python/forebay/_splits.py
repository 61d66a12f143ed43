"""Detects libraries that read a dataset on behalf of a training loop: they split it between processes, read ahead,
and count epochs."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Reader", "counter", "found"]

#: Classes of libraries that split an iterable dataset between processes.
_SPLITTERS = {"DataLoaderDispatcher", "IterableDatasetShard"}
_LIBRARIES = {"accelerate", "transformers"}
#: Loader classes that read ahead of the loop, and set a dataset's epoch whenever they start to iterate.
_LOADERS = {"DataLoaderDispatcher", "DataLoaderShard"}
#: Methods in which the classes above iterate, or create loader workers.
_CALLS = {"__iter__", "__next__", "_fetch_batches", "__init__"}


@dataclass(frozen=True)
class Reader:
    """A library that reads a dataset on behalf of a loop."""

    #: The names of the library and of the class that reads.
    name: str
    processes: int
    #: True if a process gets only a part of what the library reads in it.
    splits: bool
    #: True if the library reads ahead of the loop.
    leads: bool
    #: True if one process reads for several processes, each of which gets a part.
    deals: bool
    #: True if the library splits each batch; false if it reads as many batches as there are processes.
    splits_batches: bool
    reader: weakref.ref[Any] | None

    def is_ahead(self) -> bool:
        """True if the library may have read batches that the loop has not received yet."""
        reader = None if self.reader is None else self.reader()
        return self.leads and not getattr(reader, "end_of_dataloader", False)

    def sent(self) -> Reader:
        """Returns this reader in a form that can be sent to another process."""
        return replace(self, reader=None)


def found() -> Reader | None:
    """Returns the known library on whose behalf the caller iterates; None if there is none.

    The library is found on the stack, since a dataset cannot know who iterates over it. The stack of a forked loader
    worker includes that of its parent.
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
    """Returns the library and class on the caller's stack that sets the epoch because it starts to iterate, or None."""
    for _, name, library in _callers({"__iter__"}, _LOADERS):
        return f"{library}'s {name}"
    return None


def _callers(calls: set[str], classes: set[str]) -> Iterator[tuple[Any, str, str]]:
    """Yields the objects on the stack that belong to one of `classes` and are in one of `calls`, each with its class
    and library."""
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
    """Returns the number of processes according to a library; 1 if the library does not report any."""
    state = getattr(sys.modules.get(f"{library}.state"), "PartialState", None)
    return 1 if state is None else int(getattr(state(), "num_processes", 1))
