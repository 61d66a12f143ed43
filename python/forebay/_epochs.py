"""The epoch of an iteration, shared by all processes that take part in it."""

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

#: Maximum number of remembered iterations that not all loader workers have started, because some of them died.
OPEN = 8
#: Maximum size of the stored state, in bytes; more is never written.
SIZE = 1 << 20


class Epochs:
    """The epoch of the next iteration.

    Loader workers are processes, possibly new ones for every epoch, and the loader's own process does not iterate. So
    the state is kept in an unnamed file that they share. It is read and written under a file lock, which the system
    releases if a process dies.

    The first worker of an iteration advances the epoch, and the others get the same one. An iteration is identified
    by the number of its workers and the seed of their loader. Both may repeat, if workers are persistent or a
    generator is seeded again. So a worker that has already started an iteration with this identity starts the next
    one.

    If an iteration resumes from a state, that state has a number above 0.
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
        """Sets the epoch of the next iteration, and the number of the state that it resumes from."""
        with self._held() as known:
            known.update(next=epoch, number=number)

    def peek(self) -> tuple[int, int]:
        """Returns the epoch of the next iteration, and the number of the state that it resumes from."""
        with self._held() as known:
            return known["next"], known["number"]

    def begin(self, epochs: int, worker: int = 0, workers: int = 1, seed: int = 0) -> tuple[int, int]:
        """Starts an iteration of `epochs` epochs, or joins the one that another loader worker has started.

        Returns the first epoch of the iteration, and the number of the state that it resumes from.
        """
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
        """Yields the shared state, locked for reading and changing."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            known = json.loads(os.pread(self._file, SIZE, 0).partition(b"\n")[0])
            yield known
            self._write(known)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _write(self, known: dict[str, Any]) -> None:
        # The state is written at once, so a killed process writes all of it or nothing. If an earlier state was
        # longer, the rest of it remains after the end of the line.
        os.pwrite(self._file, json.dumps(known).encode() + b"\n", 0)

    def __reduce__(self) -> Any:
        if get_spawning_popen() is None:
            # The copy shares nothing with this object, and starts at the current epoch.
            return Epochs, self.peek()
        return _shared, (reduction.DupFd(self._file),)


def _shared(handle: Any) -> Epochs:
    epochs = Epochs.__new__(Epochs)
    epochs._hold(handle.detach())
    return epochs
