"""PyTorch: a pipeline as a dataset of whole batches."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from .iterator import BatchIterator, Stats
from .shard import worker_batches

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["ForebayDataset"]

#: Loader workers that a dataset can have.
WORKERS = 1024


class _Epochs:
    """Which epoch the next iteration begins with.

    Loader workers are processes, perhaps new ones for every epoch, and the loader's own process does not
    iterate. So the count is in memory that they share: the epoch to begin with, and for the loader's own
    process and for each worker how many epochs it has begun since.
    """

    def __init__(self, first: int) -> None:
        from multiprocessing.sharedctypes import RawArray

        self._cells = RawArray(ctypes.c_int64, 2 + WORKERS)
        self._cells[0] = first

    def set(self, epoch: int) -> None:
        """The next iteration begins with this epoch, in whatever process."""
        self._cells[:] = [epoch, *[0] * (1 + WORKERS)]

    def peek(self, worker: int | None = None) -> int:
        """The epoch that the next iteration of a worker (or of the loader's own process) begins with."""
        return self._cells[0] + self._cells[1 if worker is None else 2 + worker]

    def take(self, worker: int | None, epochs: int) -> int:
        """The epoch that an iteration begins with; the next one begins so many epochs later."""
        first = self.peek(worker)
        self._cells[1 if worker is None else 2 + worker] += epochs
        return first


def _place(rank: int | None, world: int | None) -> tuple[int, int]:
    """Rank and number of ranks: what was given, else what `torch.distributed` or the launcher says."""
    if rank is not None or world is not None:
        if rank is None or world is None:
            raise ValueError("rank and world are given together, or neither")
        return rank, world
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class ForebayDataset(torch.utils.data.IterableDataset[dict[str, Any]]):
    """Whole batches as dictionaries of tensors; texts stay lists.

        loader = DataLoader(pipeline.torch(), batch_size=None)

    Each rank has its own batches, and all ranks the same number of them. With several loader workers the
    stream is the same as with none; Forebay computes on all cores by itself, so none is the usual choice.

    An iteration is one epoch, or all epochs of the pipeline's `repeat`. The next one goes on with the next
    epoch by itself, with loader workers too, and `set_epoch` chooses another.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        rank: int | None = None,
        world: int | None = None,
        pin_memory: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        if rank is not None or world is not None:
            _place(rank, world)
        for name in ("rank", "world"):
            settings.pop(name, None)
        self._pipeline = pipeline
        self._given = (rank, world)
        self._pin_memory = pin_memory
        self._epochs = _Epochs(settings.pop("first_epoch", None) or 0)
        self._settings = settings
        self._running: BatchIterator | None = None

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins with this epoch, also in loader workers that live on."""
        self._epochs.set(int(epoch))

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration begins with, if there are no loader workers."""
        return self._epochs.peek()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = torch.utils.data.get_worker_info()
        rank, world = _place(*self._given)
        first = self._epochs.take(None if worker is None else worker.id, self._span() or 1)
        settings = {**self._settings, "first_epoch": first}
        if worker is None:
            self._running = self._pipeline.run(rank=rank, world=world, **settings)
            return self._alone(self._running)
        batches = worker_batches(self._pipeline, settings, rank, world, worker.id, worker.num_workers)
        return (batch.torch() for batch in batches)

    def _alone(self, batches: BatchIterator) -> Iterator[dict[str, Any]]:
        pin = self._pin_memory and torch.cuda.is_available()
        with batches:
            for batch in batches:
                tensors = batch.torch()
                yield {name: _pinned(part) for name, part in tensors.items()} if pin else tensors

    def _span(self) -> int | None:
        """Epochs of an iteration; None where it has no end."""
        given: int | None = self._settings.get("epochs")
        return given or self._pipeline._plan().clauses()["epochs"]

    def __len__(self) -> int:
        """Batches of an iteration for this rank.

        Raises:
            TypeError: The number is not known before the rows come, or there is no end.
        """
        rank, world = _place(*self._given)
        steps = self._pipeline._plan().steps({**self._settings, "rank": rank, "world": world})
        if steps is not None:
            return steps
        if self._span() is None:
            raise TypeError("a pipeline that repeats without end has no length")
        raise TypeError("how many batches the rows make is not known before they come")

    def stats(self) -> Stats | None:
        """What the latest iteration in this process has delivered; None before the first."""
        return None if self._running is None else self._running.stats()

    def __getstate__(self) -> dict[str, Any]:
        from multiprocessing.context import get_spawning_popen

        state = dict(self.__dict__, _running=None)
        if get_spawning_popen() is None:
            # A copy that shares nothing: it goes on where this one is.
            state["_epochs"] = self._epochs.peek()
        else:
            # A worker does not know what the process group of its parent is.
            state["_given"] = _place(*self._given)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        epochs = state["_epochs"]
        self.__dict__.update(state, _epochs=_Epochs(epochs) if isinstance(epochs, int) else epochs)


def _pinned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, list):
        return [_pinned(part) for part in value]
    if isinstance(value, dict):
        return {name: _pinned(part) for name, part in value.items()}
    return value
