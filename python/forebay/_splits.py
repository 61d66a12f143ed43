"""Detects libraries that read a dataset on behalf of a training loop. Such a library splits the dataset between
processes, reads ahead of the loop, and counts epochs."""

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
#: Loader classes that read ahead of the training loop, and that call a dataset's `set_epoch` whenever they start to
#: iterate.
_LOADERS = {"DataLoaderDispatcher", "DataLoaderShard"}
#: Methods in which the classes of `_SPLITTERS` and `_LOADERS` iterate over a dataset or create loader workers.
_CALLS = {"__iter__", "__next__", "_fetch_batches", "__init__"}


@dataclass(frozen=True)
class Reader:
    """A library that reads a dataset on behalf of a training loop."""

    #: The names of the library and of its class that reads the dataset, as in "accelerate's DataLoaderShard".
    name: str
    processes: int
    #: True if the library splits the batches that it reads between the processes.
    splits: bool
    #: True if the library reads batches ahead of the training loop.
    leads: bool
    #: True if one process reads the dataset and sends each of several processes a part of the rows.
    deals: bool
    #: True if the library splits each batch between the processes; false if each process gets whole batches.
    splits_batches: bool
    reader: weakref.ref[Any] | None

    def is_ahead(self) -> bool:
        """True if the library may have read batches that the loop has not received yet."""
        reader = None if self.reader is None else self.reader()
        return self.leads and not getattr(reader, "end_of_dataloader", False)

    def sent(self) -> Reader:
        """Returns a copy of this reader that can be pickled: without the weak reference."""
        return replace(self, reader=None)


def found() -> Reader | None:
    """Returns the library on whose behalf the caller iterates; None if none of the libraries in `_LIBRARIES` does.

    The library is found on the call stack, since a dataset is not told which code iterates over it. The stack of a
    forked loader worker includes the stack of the parent process.
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
    """Returns the names of the library and of its loader class that is starting to iterate on the caller's stack; None
    if there is none. Such a class sets the dataset's epoch."""
    for _, name, library in _callers({"__iter__"}, _LOADERS):
        return f"{library}'s {name}"
    return None


def _callers(calls: set[str], classes: set[str]) -> Iterator[tuple[Any, str, str]]:
    """Yields each object on the call stack that has one of `classes` and runs one of the methods `calls`, with the
    names of its class and library."""
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
    """Returns the number of processes that a library reports; 1 if the library reports none."""
    state = getattr(sys.modules.get(f"{library}.state"), "PartialState", None)
    return 1 if state is None else int(getattr(state(), "num_processes", 1))
