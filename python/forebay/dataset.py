"""Datasets, which iterate over a pipeline epoch by epoch and convert its batches for a training loop."""

from __future__ import annotations

import json
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _forebay
from ._epochs import Epochs
from .batch import Batch
from .errors import ConfigError, Error, ResumeError
from .iterator import BatchIterator, Stats
from .state import State, read_resume

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["PADDED", "Dataset", "Iteration", "NumpyDataset"]

#: Name under which a converted batch has its mask of rows that only repeat other rows.
PADDED = "padded"


class Worker(NamedTuple):
    """A worker process of a PyTorch loader."""

    number: int
    of: int
    #: The loader's seed for the iteration, which is the same for all workers.
    seed: int


class Iteration(Iterator["dict[str, Any]"]):
    """An iteration over a dataset, in this process. The pipeline starts to run when the first batch is requested, so
    that a state can be loaded before. The run ends with the iteration."""

    def __init__(
        self, dataset: Dataset, settings: dict[str, Any], start: State, worker: Worker | None, *, is_late: bool
    ) -> None:
        self._dataset = dataset
        self._settings = settings
        self._start = start
        self._worker = worker
        #: True if this is a loader worker that started before `resume(..)` was called, and so does not have the state.
        self._is_late = is_late
        self._batches: BatchIterator | None = None
        #: Numbers of rows of the first delivered batch and of the latest one; None before the first batch.
        self._sizes: tuple[int, int] | None = None

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> dict[str, Any]:
        try:
            return self._next()
        except Error as error:
            if self._worker is not None:
                error.for_loader()
            raise

    def _next(self) -> dict[str, Any]:
        batches = self._opened()
        batch = next(batches, None)
        if batch is None:
            self._dataset._is_over = True
            raise StopIteration
        try:
            self._dataset._check_follows(self._sizes)
            converted = self._dataset._converted(batch)
            self._sizes = (batch.num_rows if self._sizes is None else self._sizes[0], batch.num_rows)
            return converted
        except BaseException:
            # The batch could not be converted. It is put back, so that the next call delivers it again.
            batches.put_back(batch)
            raise

    def _opened(self) -> BatchIterator:
        if self._is_late:
            raise ConfigError("these loader workers started before resume(..) was called; make a new loader")
        if self._batches is None:
            settings = {**self._settings, "resume": self._start.to_dict()}
            self._batches = BatchIterator(self._dataset._pipeline, settings)
            weakref.finalize(self, self._batches.close).atexit = False
            if self._worker is None:
                self._dataset._running, self._dataset._is_over = self._batches, False
        return self._batches

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the latest delivered batch, in the format of `BatchIterator.state_dict`."""
        self._dataset._check_state()
        return self._start.to_dict() if self._batches is None else self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes this iteration resume from a state. The dataset's next iteration starts with the epoch after those of
        the state's iteration.

        Raises:
            ResumeError: The state belongs to another stream, or to another number of loader workers.
            ConfigError: The state is after the end of the pipeline's epochs.
        """
        dataset, given = self._dataset, self._settings
        world = given.get("world") or 1
        turns = 1 if self._worker is None else self._worker.of
        start = State.of(state).among(turns, world, is_worker=self._worker is not None)
        start = start.at_world(world, given, dataset._pipeline)
        self.close()
        self._start = start
        self._is_late = False
        dataset._epochs.set(start.first_epoch + (dataset._span() or 1))

    def close(self) -> None:
        """Stops the run of this iteration, and waits for the threads and processes of the run. A state can still be
        loaded afterwards."""
        if self._batches is not None:
            self._batches.close()
            self._start, self._batches = State.of(self._batches.state_dict()), None


class Dataset(ABC):
    """The base class of the datasets for NumPy and PyTorch.

    An iteration is one epoch, or all epochs of the pipeline's `repeat`. The next iteration continues with the next
    epoch, unless `set_epoch` chooses another epoch.
    """

    def __init__(
        self, pipeline: Pipeline, settings: dict[str, Any], nulls: Any, padded: bool | None, *, uneven: str
    ) -> None:
        for name in ("turn", "turns", "resume"):
            if settings.pop(name, None) is not None:
                raise TypeError(f"{name} is for run(..), not for a dataset")
        if settings.get("uneven") is None:
            settings["uneven"] = uneven
        pipeline, settings = pipeline._placed(settings)
        _forebay.check_settings(settings)
        self._padded = padded
        self._pipeline = pipeline
        self._nulls = nulls
        self._epochs = Epochs(settings.pop("first_epoch", None) or 0)
        self._settings = settings
        #: The run of the latest iteration in this process; None before the first one. The run stops when its iteration
        #: ends.
        self._running: BatchIterator | None = None
        #: True if the latest iteration in this process has ended.
        self._is_over = False
        #: The latest state that was set to resume from, and its number, counted from 1; `(0, None)` if none was set.
        self._resume: tuple[int, State | None] = (0, None)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, also in persistent loader workers.

        If the next iteration is set to resume from a state in this epoch, the state is kept. A state in another epoch
        is discarded, with a warning.
        """
        epoch = int(epoch)
        state = self._pending()
        if state is not None and epoch in (state.epoch, state.first_epoch) and not state.is_over:
            return
        if state is not None and not state.is_over:
            warnings.warn(
                f"set_epoch({epoch}) discards the state of epoch {state.epoch}, from which the next iteration would "
                f"have resumed; to resume from this state, call set_epoch({state.epoch}) first",
                stacklevel=2,
            )
        self._epochs.set(epoch)

    @property
    def epoch(self) -> int:
        """Returns the epoch of the next iteration."""
        return self._epochs.peek()[0]

    def _pending(self) -> State | None:
        """Returns the state that the next iteration resumes from; None if the iteration starts at the beginning of an
        epoch."""
        number, state = self._resume
        return state if number and self._epochs.peek()[1] == number else None

    def _go_on(self, state: dict[str, Any] | str) -> None:
        span = self._span()
        start = _position(state, span).within(span)
        self._resume = (self._resume[0] + 1, start)
        self._epochs.set(start.first_epoch, self._resume[0])

    def _state(self) -> dict[str, Any]:
        """Returns the state after the latest batch of the latest iteration in this process. If this iteration is over,
        or no iteration has started, returns the state at the beginning of the next iteration."""
        if self._running is not None and not self._is_over:
            return self._running.state_dict()
        state = self._pending() or State(None, self.epoch, self._span(), self._seed())
        return state.to_dict()

    def _place(self) -> dict[str, int]:
        """Returns the settings `rank` and `world` if the dataset determines them itself; otherwise an empty
        dictionary."""
        return {}

    def _mask(self, batch: Batch) -> np.ndarray[Any, Any] | None:
        """Returns a mask over the rows of a batch, true for rows that only repeat other rows; None if the dataset adds
        no mask."""
        given = self._padded
        if given is None:
            settings = {**self._settings, **self._place()}
            given = (settings.get("world") or 1) > 1 and self._repeats_rows()
        if not given:
            return None
        if PADDED in batch:
            raise ConfigError(
                f'the batches have a column "{PADDED}", but this is the name of the mask of repeated rows; give the '
                "column another name, or leave out the mask with padded=False"
            )
        return np.arange(batch.num_rows) >= batch.num_rows - batch.padded

    def _repeats_rows(self) -> bool:
        """True if the settings allow rows to be repeated so that all ranks have the same number of rows or batches."""
        uneven = self._settings["uneven"]
        # With `uneven="drop"`, steps are dropped, and the pipeline's `equal_steps` does not apply.
        return uneven == "pad" or uneven == "keep" and self._pipeline._plan().clauses()["equal_steps"] == "pad"

    def _check_follows(self, sizes: tuple[int, int] | None) -> None:
        """Raises an error if a library that reads this dataset would lose rows, now that another batch follows. `sizes`
        are the numbers of rows of the first and of the latest delivered batch; None before the first batch."""

    def _check_state(self) -> None:
        """Raises an error if a library has read batches ahead of the training loop, since a run resumed from the
        iteration's state would skip these batches."""

    @abstractmethod
    def _converted(self, batch: Batch) -> dict[str, Any]:
        """Converts a batch for the training loop."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._begun(None)

    def _begun(self, worker: Worker | None) -> Iteration:
        """Returns a new iteration, in loader worker `worker` or, if this is None, in the process of the training
        loop."""
        span = self._span()
        first, number = self._epochs.begin(span or 1, *(worker or ()))
        turn, turns = (0, 1) if worker is None else worker[:2]
        settings = {**self._settings, **self._place(), "turns": turns}
        world = settings.get("world") or 1
        start = State(None, first, span, self._seed(), world=world, drops=settings["uneven"] == "drop")
        known, state = self._resume
        is_late = bool(number) and known != number
        if number and state is not None and not is_late:
            start = state.at_world(world, self._settings, self._pipeline)
        return Iteration(self, settings, start.part(turn, turns), worker, is_late=is_late)

    def _seed(self) -> int:
        given: int | None = self._settings.get("seed")
        return (self._pipeline._plan().clauses()["seed"] or 0) if given is None else given

    def _span(self) -> int | None:
        """Returns the number of epochs of an iteration; None if the iteration is endless."""
        given: int | None = self._settings.get("epochs")
        return given or self._pipeline._plan().clauses()["epochs"]

    def __len__(self) -> int:
        """Returns the number of batches of the next iteration for this rank.

        Raises:
            TypeError: The number of batches is not known in advance, or is infinite.
        """
        settings = {**self._settings, **self._place()}
        state = self._pending()
        if state is not None:
            settings = read_resume(state.to_dict(), settings, self._pipeline)
        steps = self._pipeline._plan().steps(settings)
        if steps is not None:
            return steps
        if self._span() is None:
            raise TypeError("a pipeline that repeats without end has no length")
        raise TypeError("the number of batches is not known before the rows are read")

    def stats(self) -> Stats | None:
        """Returns the statistics of the latest iteration in this process; None before the first iteration."""
        return None if self._running is None else self._running.stats()

    def close(self) -> None:
        """Stops the latest iteration in this process, and waits for its threads and processes. Without this call, an
        iteration stops when it is garbage-collected."""
        if self._running is not None:
            self._running.close()

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__, _running=None)


class NumpyDataset(Dataset):
    """Batches as dictionaries of NumPy arrays, which JAX accepts as pytrees.

        batches = train.numpy()
        for epoch in range(90):                 # each iteration is the next epoch
            for batch in batches:
                ...

    An iteration is one epoch, or all epochs of the pipeline's `repeat`; `set_epoch` chooses the epoch. The dataset's
    state consists of plain values, which Orbax stores as JSON. The iterators have `state_dict` and `load_state_dict`,
    too.
    """

    def _converted(self, batch: Batch) -> dict[str, Any]:
        arrays = batch.numpy(self._nulls)
        mask = self._mask(batch)
        return arrays if mask is None else {**arrays, PADDED: mask}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the latest batch of the latest iteration. If this iteration is over, or no iteration
        has started, returns the state at the beginning of the next iteration."""
        return self._state()

    def load_state_dict(self, state: dict[str, Any] | str) -> None:
        """Makes the next iteration resume from a state. Later iterations continue with the epochs after it.

        Args:
            state: The result of `state_dict` of this dataset or of an iterator over the pipeline, as a dictionary or as
                JSON. If an iteration is one epoch, the token of a batch is accepted, too.
        """
        self._go_on(state)
        self._running = None

    def __enter__(self) -> NumpyDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _position(state: dict[str, Any] | str, span: int | None) -> State:
    """Parses a state. If an iteration is one epoch (`span` is 1), a token is accepted, too, and converted to a
    state."""
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except ValueError as error:
            raise ResumeError(f"not a resume token: {error}") from error
    if not isinstance(state, dict) or "forebay_token" not in state:
        return State.of(state).among(1, 1)
    if span != 1:
        raise ResumeError("a token does not contain the first epoch of an iteration over several epochs; use a state")
    return State(json.dumps(state), int(state.get("cursor", {}).get("epoch", 0)), span)


