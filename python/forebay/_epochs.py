"""The epoch of an iteration, which all loader workers of the iteration share."""

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

#: Maximum number of stored iterations that some loader workers have not started. Such an iteration stays stored if a
#: worker has died.
OPEN = 8
#: Number of bytes read from the file at once. The stored state is always smaller.
SIZE = 1 << 20


class Epochs:
    """The epoch of the next iteration over a dataset, shared between processes.

    Loader workers are processes, possibly new ones for every epoch, and the loader's own process does not iterate. So
    all of these processes share an unnamed file with the epoch. A process reads and writes the file under a file lock,
    which the operating system releases if the process dies.

    The first worker that starts an iteration advances the stored epoch, and all workers of the iteration get the same
    epoch. An iteration is identified by the number of its workers and the seed of their loader. Two iterations may have
    the same identity, if workers are persistent or a generator is seeded again. So a worker that has already started an
    iteration with this identity starts a new iteration.

    Each state that an iteration resumes from has a number, counted from 1. The number 0 means that the iteration starts
    at the beginning of an epoch.
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
        """Sets the epoch of the next iteration, and the number of the state that the iteration resumes from."""
        with self._held() as known:
            known.update(next=epoch, number=number)

    def peek(self) -> tuple[int, int]:
        """Returns the epoch of the next iteration, and the number of the state that the iteration resumes from."""
        with self._held() as known:
            return known["next"], known["number"]

    def begin(self, epochs: int, worker: int = 0, workers: int = 1, seed: int = 0) -> tuple[int, int]:
        """Starts an iteration of `epochs` epochs, or joins the iteration that another loader worker has started.

        Returns the first epoch of the iteration, and the number of the state that the iteration resumes from.
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
        """Locks the shared file, yields its contents, and writes the changed contents back."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            known = json.loads(os.pread(self._file, SIZE, 0).partition(b"\n")[0])
            yield known
            self._write(known)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _write(self, known: dict[str, Any]) -> None:
        # The state is written with one call, so a killed process writes the whole state or nothing. If the earlier
        # state was longer, its last bytes stay in the file after the end of the line, and are ignored.
        os.pwrite(self._file, json.dumps(known).encode() + b"\n", 0)

    def __reduce__(self) -> Any:
        if get_spawning_popen() is None:
            # Outside of process spawning, pickling makes a copy that shares nothing with this object. The copy starts
            # at the current epoch.
            return Epochs, self.peek()
        return _shared, (reduction.DupFd(self._file),)


def _shared(handle: Any) -> Epochs:
    epochs = Epochs.__new__(Epochs)
    epochs._hold(handle.detach())
    return epochs
