"""A pipeline as something to loop over epoch after epoch, whose batches come as a training loop wants them."""

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

#: What the mask of rows that only repeat others is called.
PADDED = "padded"


class Worker(NamedTuple):
    """A loader worker."""

    number: int
    of: int
    #: What the workers of an iteration have in common.
    seed: int


class Iteration(Iterator["dict[str, Any]"]):
    """An iteration over a dataset, in this process. Its run begins with the first batch that is asked for, so
    that a state may be loaded before, and ends with the iteration."""

    def __init__(
        self, dataset: Dataset, settings: dict[str, Any], start: State, worker: Worker | None, *, is_late: bool
    ) -> None:
        self._dataset = dataset
        self._settings = settings
        self._start = start
        self._worker = worker
        #: Whether this is a worker that does not know the state which it is to go on from.
        self._is_late = is_late
        self._batches: BatchIterator | None = None
        #: Rows of the first and of the last batch that it gave.
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
            # What cannot be converted is not lost.
            batches.put_back(batch)
            raise

    def _opened(self) -> BatchIterator:
        if self._is_late:
            raise ConfigError("these loader workers began before resume(..) was called; make a new loader")
        if self._batches is None:
            settings = {**self._settings, "resume": self._start.to_dict()}
            self._batches = BatchIterator(self._dataset._pipeline, settings)
            weakref.finalize(self, self._batches.close).atexit = False
            if self._worker is None:
                self._dataset._running, self._dataset._is_over = self._batches, False
        return self._batches

    def state_dict(self) -> dict[str, Any]:
        """Where it is: behind the last batch that it gave. As of `BatchIterator`."""
        self._dataset._check_state()
        return self._start.to_dict() if self._batches is None else self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state. The next iteration is that of the epochs that follow.

        Raises:
            ResumeError: The state is of another stream, or of another number of loader workers.
            ConfigError: It is behind the end of the pipeline's epochs.
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
        """Stops its run, and waits for its threads and processes. It may be told to go on from a state."""
        if self._batches is not None:
            self._batches.close()
            self._start, self._batches = State.of(self._batches.state_dict()), None


class Dataset(ABC):
    """What the datasets of NumPy and of PyTorch have in common.

    An iteration is one epoch, or all epochs of the pipeline's `repeat`. The next one goes on with the next epoch
    by itself, and `set_epoch` chooses another.
    """

    def __init__(
        self, pipeline: Pipeline, settings: dict[str, Any], nulls: Any, padded: bool | None, *, uneven: str
    ) -> None:
        for name in ("turn", "turns", "resume"):
            if settings.pop(name, None) is not None:
                raise TypeError(f"{name} is for run(..), not for a dataset")
        if settings.get("uneven") is None:
            settings["uneven"] = uneven
        _forebay.check_settings(settings)
        self._padded = padded
        self._pipeline = pipeline
        self._nulls = nulls
        self._epochs = Epochs(settings.pop("first_epoch", None) or 0)
        self._settings = settings
        #: The run of the latest iteration in this process, which the iteration ends.
        self._running: BatchIterator | None = None
        #: Whether it has come to its end.
        self._is_over = False
        #: The number of the latest state to go on from, and the state.
        self._resume: tuple[int, State | None] = (0, None)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins with this epoch, also in loader workers that live on.

        If the next iteration is to go on from a state of this epoch, it does. A state of another epoch is given up,
        with a warning.
        """
        epoch = int(epoch)
        state = self._pending()
        if state is not None and epoch in (state.epoch, state.first_epoch) and not state.is_over:
            return
        if state is not None and not state.is_over:
            warnings.warn(
                f"set_epoch({epoch}) gives up the state of epoch {state.epoch} from which the next iteration was to go "
                f"on; begin with set_epoch({state.epoch})",
                stacklevel=2,
            )
        self._epochs.set(epoch)

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration begins with."""
        return self._epochs.peek()[0]

    def _pending(self) -> State | None:
        """The state that the next iteration goes on from."""
        number, state = self._resume
        return state if number and self._epochs.peek()[1] == number else None

    def _go_on(self, state: dict[str, Any] | str) -> None:
        span = self._span()
        start = _position(state, span).within(span)
        self._resume = (self._resume[0] + 1, start)
        self._epochs.set(start.first_epoch, self._resume[0])

    def _state(self) -> dict[str, Any]:
        """Behind the last batch of the latest iteration here; at the beginning of the next one if it is over, or there
        is none."""
        if self._running is not None and not self._is_over:
            return self._running.state_dict()
        state = self._pending() or State(None, self.epoch, self._span(), self._seed())
        return state.to_dict()

    def _place(self) -> dict[str, int]:
        """Which rank this is of how many, where the settings do not say."""
        return {}

    def _mask(self, batch: Batch) -> np.ndarray[Any, Any] | None:
        """Which rows of a batch only repeat others; None where that is not said."""
        given = self._padded
        if given is None:
            settings = {**self._settings, **self._place()}
            given = (settings.get("world") or 1) > 1 and self._repeats_rows()
        if not given:
            return None
        if PADDED in batch:
            raise ConfigError(
                f'the batches have a column "{PADDED}", which is what the mask of repeated rows is called; give the '
                "column another name, or leave the mask out with padded=False"
            )
        return np.arange(batch.num_rows) >= batch.num_rows - batch.padded

    def _repeats_rows(self) -> bool:
        """Whether rows may repeat so that ranks have equally many, or equally many batches."""
        uneven = self._settings["uneven"]
        # Where steps are dropped, the pipeline's option does not hold.
        return uneven == "pad" or uneven == "keep" and self._pipeline._plan().clauses()["equal_steps"] == "pad"

    def _check_follows(self, sizes: tuple[int, int] | None) -> None:
        """Refuses another batch behind a first and a last one of so many rows, if who reads them loses rows then."""

    def _check_state(self) -> None:
        """Refuses to say where an iteration is, if it is ahead of the loop."""

    @abstractmethod
    def _converted(self, batch: Batch) -> dict[str, Any]:
        """A batch as the training loop wants it."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._begun(None)

    def _begun(self, worker: Worker | None) -> Iteration:
        """A new iteration."""
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
        """Epochs of an iteration; None where it has no end."""
        given: int | None = self._settings.get("epochs")
        return given or self._pipeline._plan().clauses()["epochs"]

    def __len__(self) -> int:
        """Batches of the next iteration for this rank.

        Raises:
            TypeError: The number is not known before the rows come, or there is no end.
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
        raise TypeError("how many batches the rows make is not known before they come")

    def stats(self) -> Stats | None:
        """What the latest iteration in this process has delivered; None before the first."""
        return None if self._running is None else self._running.stats()

    def close(self) -> None:
        """Stops the latest iteration in this process, and waits for its threads and processes. An iteration that
        nobody holds any longer has stopped by itself."""
        if self._running is not None:
            self._running.close()

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__, _running=None)


class NumpyDataset(Dataset):
    """Batches as dictionaries of NumPy arrays, which JAX takes as pytrees.

        batches = train.numpy()
        for epoch in range(90):                 # each iteration is the next epoch
            for batch in batches:
                ...

    An iteration is one epoch, or all epochs of the pipeline's `repeat`; `set_epoch` chooses one. Its state is plain
    values, which Orbax keeps as JSON. The iterators have `state_dict` and `load_state_dict`, too.
    """

    def _converted(self, batch: Batch) -> dict[str, Any]:
        arrays = batch.numpy(self._nulls)
        mask = self._mask(batch)
        return arrays if mask is None else {**arrays, PADDED: mask}

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration is, behind the last batch that it gave; if it is over, or there is none, the
        beginning of the next one."""
        return self._state()

    def load_state_dict(self, state: dict[str, Any] | str) -> None:
        """The next iteration goes on from a state, and those after it have the epochs that follow.

        Args:
            state: Of this method's counterpart, or of an iterator over the pipeline; or a batch's token, where an
                iteration is one epoch. A dictionary, or JSON.
        """
        self._go_on(state)
        self._running = None

    def __enter__(self) -> NumpyDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


