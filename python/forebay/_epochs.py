"""Which epoch an iteration begins with, agreed on by all processes that take part in it."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

__all__ = ["Epochs"]

#: Iterations kept in mind of which not all loader workers have begun: those of workers that died.
OPEN = 8
#: Bytes that are read; more than what is written.
SIZE = 1 << 20


class Epochs:
    """The epoch of the next iteration.

    Loader workers are processes, perhaps new ones for every epoch, and the loader's own process does not iterate.
    So what is agreed on is in a file that they share, which has no name. Whoever reads or writes it has its lock,
    which the system takes back from a process that dies.

    The first worker of an iteration advances the epoch, and the others are told the same one. The workers of an
    iteration have in common how many they are and the seed of their loader. Those may be the same again, for
    workers that live on or a generator that is seeded anew; so a worker that has begun an iteration of this name
    begins the next one of the name.

    Where an iteration is to go on from a state, that state has a number above 0.
    """

    def __init__(self, first: int, number: int = 0) -> None:
        handle, path = tempfile.mkstemp()
        os.unlink(path)
        self._hold(handle)
        self._write({"next": first, "number": number, "open": []})

    def _hold(self, handle: int) -> None:
        self._file = handle
        weakref.finalize(self, os.close, handle).atexit = False

    def set(self, epoch: int, number: int = 0) -> None:
        """The next iteration begins with this epoch, and goes on from the state of a number."""
        with self._held() as known:
            known.update(next=epoch, number=number)

    def peek(self) -> tuple[int, int]:
        """The epoch that the next iteration begins with, and the number of the state that it goes on from."""
        with self._held() as known:
            return known["next"], known["number"]

    def begin(self, epochs: int, worker: int = 0, workers: int = 1, seed: int = 0) -> tuple[int, int]:
        """Begins an iteration of so many epochs, or takes part in the one that another worker has begun. The
        epoch that it begins with, and the number of the state that it goes on from."""
        with self._held() as known:
            name = [workers, seed]
            for iteration in known["open"]:
                if iteration["name"] == name and worker not in iteration["begun"]:
                    break
            else:
                iteration = {"name": name, "begun": [], "epoch": known["next"], "number": known["number"]}
                known.update(next=known["next"] + epochs, number=0, open=[*known["open"], iteration][-OPEN:])
            iteration["begun"].append(worker)
            if len(iteration["begun"]) == workers:
                known["open"].remove(iteration)
            return iteration["epoch"], iteration["number"]

    @contextmanager
    def _held(self) -> Iterator[dict[str, Any]]:
        """What is agreed on, to be read and changed while no other process does."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            known = json.loads(os.pread(self._file, SIZE, 0).partition(b"\n")[0])
            yield known
            self._write(known)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _write(self, known: dict[str, Any]) -> None:
        # In one piece, of which a process that is killed writes all or nothing. What a longer one left stays behind
        # the end of the line.
        os.pwrite(self._file, json.dumps(known).encode() + b"\n", 0)

    def __reduce__(self) -> Any:
        if get_spawning_popen() is None:
            # A copy that shares nothing: it goes on where this one is.
            return Epochs, self.peek()
        return _shared, (reduction.DupFd(self._file),)


def _shared(handle: Any) -> Epochs:
    epochs = Epochs.__new__(Epochs)
    epochs._hold(handle.detach())
    return epochs
