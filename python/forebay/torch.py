"""PyTorch: a pipeline as a dataset of whole batches."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from .errors import ConfigError, ResumeError
from .iterator import BatchIterator, Stats
from .state import State

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["ForebayDataset", "global_state"]

#: Loader workers that a dataset can have.
WORKERS = 1024


class _Epochs:
    """Which epoch the next iteration begins with.

    Loader workers are processes, perhaps new ones for every epoch, and the loader's own process does not
    iterate. So the count is in memory that they share: the epoch to begin with, and for the loader's own
    process and for each worker how many epochs it has begun since.

    Where an iteration is to go on from a state, every process does so once: the state has a number, and each
    process notes the number of the last one that it went on from.
    """

    def __init__(self, first: int) -> None:
        from multiprocessing.sharedctypes import RawArray

        self._cells = RawArray(ctypes.c_int64, 2 + WORKERS)
        self._cells[0] = first
        self._resumed = RawArray(ctypes.c_int64, 2 + WORKERS)

    def set(self, epoch: int) -> None:
        """The next iteration begins with this epoch, in whatever process."""
        self._cells[:] = [epoch, *[0] * (1 + WORKERS)]
        self._resumed[0] = 0

    def resume(self, epoch: int, number: int) -> None:
        """The next iteration goes on in this epoch from the state of a number above 0, in whatever process."""
        self.set(epoch)
        self._resumed[0] = number

    def peek(self, worker: int | None = None) -> int:
        """The epoch that the next iteration of a worker (or of the loader's own process) begins with."""
        return self._cells[0] + self._cells[_cell(worker)]

    def take(self, worker: int | None, epochs: int) -> tuple[int, int]:
        """The epoch that an iteration begins with, and the number of the state that it goes on from, or 0. The
        next one begins so many epochs later."""
        first = self.peek(worker)
        self.begun(worker, first + epochs)
        pending = self.pending(worker)
        self._resumed[_cell(worker)] = self._resumed[0]
        return first, pending

    def pending(self, worker: int | None = None) -> int:
        """The number of the state that the next iteration goes on from, or 0."""
        number: int = self._resumed[0]
        return 0 if self._resumed[_cell(worker)] == number else number

    def begun(self, worker: int | None, following: int) -> None:
        """The next iteration of a worker begins with this epoch."""
        self._cells[_cell(worker)] = following - self._cells[0]


def _cell(worker: int | None) -> int:
    return 1 if worker is None else 2 + worker


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


class _Iteration(Iterator["dict[str, Any]"]):
    """An iteration over a dataset, in this process. Its run begins with the first batch that is asked for, so
    that a state may be loaded before."""

    def __init__(
        self,
        dataset: ForebayDataset,
        settings: dict[str, Any],
        start: State,
        worker: int | None,
        turns: int,
        is_late: bool,
    ) -> None:
        self._dataset = dataset
        self._settings = settings
        self._start = start
        self._worker = worker
        self._turns = turns
        #: Whether this is a worker that does not know the state which it is to go on from.
        self._is_late = is_late
        self._batches: BatchIterator | None = None

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> dict[str, Any]:
        tensors = next(self._opened()).torch()
        if self._worker is None and self._dataset._pin_memory and torch.cuda.is_available():
            return {name: _pinned(part) for name, part in tensors.items()}
        return tensors

    def _opened(self) -> BatchIterator:
        if self._is_late:
            raise ConfigError("these loader workers began before resume(..) was called; make a new loader")
        if self._batches is None:
            pipeline = self._dataset._pipeline
            self._batches = BatchIterator(pipeline, {**self._settings, "resume": self._start.to_dict()})
            if self._worker is None:
                self._dataset._running = self._batches
        return self._batches

    def state_dict(self) -> dict[str, Any]:
        return self._start.to_dict() if self._batches is None else self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        dataset, given = self._dataset, self._settings
        world = given["world"]
        is_worker = self._worker is not None
        start = State.of(state).among(self._turns, world, is_worker=is_worker).at_world(world, given, dataset._pipeline)
        if self._batches is not None:
            self._batches.close()
            self._batches = None
        self._start = start
        self._is_late = False
        dataset._epochs.begun(self._worker, start.first_epoch + (dataset._span() or 1))


class ForebayDataset(torch.utils.data.IterableDataset[dict[str, Any]]):
    """Whole batches as dictionaries of tensors; texts stay lists.

        loader = DataLoader(pipeline.torch(), batch_size=None)

    Each rank has its own batches, and all ranks the same number of them. With several loader workers the
    stream is the same as with none; Forebay computes on all cores by itself, so none is the usual choice.

    An iteration is one epoch, or all epochs of the pipeline's `repeat`. The next one goes on with the next
    epoch by itself, with loader workers too, and `set_epoch` chooses another.

    Its iterators have the `state_dict` and `load_state_dict` of torchdata's protocol, so the state of a
    `StatefulDataLoader` is exact: it goes on with the batch after the last one that the loop was given. It is for
    as many loader workers as before, and with workers for as many ranks. `global_state` makes of it a state for
    any number of either, which `resume` takes.
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
        for name in ("turn", "turns"):
            if settings.pop(name, None) is not None:
                raise TypeError(f"{name} is for run(..); loader workers take turns by themselves")
        self._pipeline = pipeline
        self._given = (rank, world)
        self._pin_memory = pin_memory
        self._epochs = _Epochs(settings.pop("first_epoch", None) or 0)
        self._settings = settings
        self._running: BatchIterator | None = None
        #: The state that an iteration goes on from, and its number.
        self._resume: tuple[int, State | None] = (0, None)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins with this epoch, also in loader workers that live on."""
        self._epochs.set(int(epoch))

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration begins with, if there are no loader workers."""
        return self._epochs.peek()

    def state(self) -> dict[str, Any]:
        """Where the latest iteration in this process is, for `resume`: for loops over the dataset itself, or over
        a plain `DataLoader` without workers. A `StatefulDataLoader` keeps states by itself.

        Raises:
            ValueError: No iteration has begun in this process.
        """
        if self._running is None:
            raise ValueError("no iteration has begun here; with loader workers, use a StatefulDataLoader")
        return self._running.state_dict()

    def resume(self, state: dict[str, Any] | str) -> None:
        """The next iteration goes on from a state, with any number of ranks and loader workers; those after it
        begin with the epochs that follow. A loader whose workers live on must be made after this call.

        Args:
            state: Of `global_state`, of `state`, or of an iterator over the pipeline; or a batch's token, where an
                iteration is one epoch. A dictionary, or JSON.
        """
        span = self._span()
        start = _position(state, span)
        self._resume = (self._resume[0] + 1, start)
        self._epochs.resume(start.first_epoch, self._resume[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = torch.utils.data.get_worker_info()
        worker, turns = (None, 1) if info is None else (info.id, info.num_workers)
        rank, world = _place(*self._given)
        first, number = self._epochs.take(worker, self._span() or 1)
        settings = {**self._settings, "rank": rank, "world": world, "turns": turns}
        start = State(None, first, self._span(), self._seed(), world=world)
        known, state = self._resume
        is_late = bool(number) and (state is None or known != number)
        if number and state is not None and not is_late:
            start = state.at_world(world, self._settings, self._pipeline)
        return _Iteration(self, settings, start.part(worker or 0, turns), worker, turns, is_late)

    def _seed(self) -> int:
        given: int | None = self._settings.get("seed")
        return (self._pipeline._plan().clauses()["seed"] or 0) if given is None else given

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
            state["_epochs"] = (self._epochs.peek(), self._epochs.pending())
        else:
            # A worker does not know what the process group of its parent is.
            state["_given"] = _place(*self._given)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(state["_epochs"], tuple):
            epoch, pending = state["_epochs"]
            self._epochs = _Epochs(epoch)
            if pending:
                self._epochs.resume(epoch, pending)


def _position(state: dict[str, Any] | str, span: int | None) -> State:
    """A state, or the state that a token makes where an iteration is one epoch."""
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except ValueError as error:
            raise ResumeError(f"no resume token: {error}") from error
    if not isinstance(state, dict) or "forebay_token" not in state:
        return State.of(state).among(1, 1)
    if span != 1:
        raise ResumeError("a token does not know where an iteration of several epochs began; take a state")
    return State(json.dumps(state), int(state.get("cursor", {}).get("epoch", 0)), span)


def global_state(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a `StatefulDataLoader` over a Forebay dataset as one for any number of loader workers and ranks,
    which `ForebayDataset.resume` and `pipeline.torch(resume=..)` take.

        state = global_state(loader.state_dict())
        loader = StatefulDataLoader(pipeline.torch(resume=state), batch_size=None, num_workers=4)

    All ranks have the same one, if all of them have taken the same number of steps; any of them serves all ranks.
    With loader workers and `snapshot_every_n_steps=n` it is the state of the last snapshot with the number of steps
    since. If the number of ranks differs too, each rank computes one batch more to pass over them.

    Args:
        state: What `state_dict` of the loader gave.

    Raises:
        ResumeError: It is the state of a loader over something else.
    """
    ahead = 0
    try:
        if "_snapshot" in state:
            snapshot = state["_snapshot"]
            last = snapshot["_worker_snapshots"][f"worker_{snapshot['_last_yielded_worker_id']}"]
            ahead = state["_steps_since_snapshot"]
        else:
            last = state
        lane = State.of(last["fetcher_state"]["dataset_iter_state"])
        is_over = state["_iterator_finished"]
    except (KeyError, TypeError) as error:
        raise ResumeError("this is no state of a StatefulDataLoader over a Forebay dataset") from error
    if is_over:
        # The next iteration is another one.
        seed = lane.seed if lane.token is None else json.loads(lane.token)["stream"]["seed"]
        return State(None, lane.first_epoch + (lane.epochs or 1), lane.epochs, seed).to_dict()
    # The other workers come before the one that gave the last batch has another turn.
    steps = lane.turn - (lane.turns - 1) + ahead
    return replace(lane, turn=steps, turns=1).to_dict()


def _pinned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, list):
        return [_pinned(part) for part in value]
    if isinstance(value, dict):
        return {name: _pinned(part) for name, part in value.items()}
    return value
