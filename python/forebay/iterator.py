"""The iterator over a run's batches."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _forebay
from .batch import Batch
from .errors import SourceError
from .state import State, read_resume

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["BatchIterator", "Failure", "Stats"]


@dataclass(frozen=True)
class Failure:
    """A failed row that did not stop the run."""

    #: Location of the source.
    location: str
    #: Path of the file, relative to `location`.
    file: str
    #: Number of the row in the file, from 0.
    row: int
    #: Name of the output column; None if a filter failed.
    column: str | None
    #: Name of the function or operator that failed.
    operator: str
    #: Message of the failure.
    cause: str


@dataclass(frozen=True)
class Stats:
    """Statistics of a run so far.

    `rows`, `batches` and `bytes` count what the iterator has delivered. The other counts include rows that the run has
    computed but not yet delivered.
    """

    #: Number of rows delivered.
    rows: int
    #: Number of batches delivered.
    batches: int
    #: Size of the delivered batches, in bytes.
    bytes: int
    #: Number of failed rows that were left out of the stream.
    skipped: int
    #: Number of failed rows that were replaced by another row.
    replaced: int
    #: Number of failed rows that stayed in the stream, with null in each failed column.
    nulled: int
    #: The first failures in stream order. Later failures are only counted.
    failures: tuple[Failure, ...]
    #: Number of rows read from the cache; None without a cache.
    cache_hits: int | None
    #: Number of rows computed because the cache lacked them; None without a cache.
    cache_misses: int | None
    #: Seconds from the start of the run until now, or until the run's end.
    wall_seconds: float
    #: CPU seconds of the whole process during `wall_seconds`.
    cpu_seconds: float
    #: Seconds from the start of the run until the first batch; None before the first batch.
    first_batch_seconds: float | None

    @property
    def rows_per_second(self) -> float:
        """Rows delivered per second of wall time."""
        return self.rows / max(self.wall_seconds, 1e-9)


class BatchIterator(Iterator[Batch]):
    """The batches of a run, in order.

    The run computes later batches in the background while the caller uses a batch. The run stops when the iterator is
    closed, garbage-collected or at its end. Ctrl-C interrupts the wait for a batch. Processes cannot share an iterator:
    each process must create its own.
    """

    def __init__(
        self, pipeline: Pipeline, settings: dict[str, Any], *, keep_remainder: bool = False, rows: int | None = None
    ) -> None:
        self._pipeline, settings = pipeline._placed(settings)
        self._other_batches = (keep_remainder, rows)
        self._settings = {name: value for name, value in settings.items() if name != "resume"}
        resume = settings.get("resume")
        self._begin(self._settings if resume is None else read_resume(resume, self._settings, self._pipeline))
        _LIVE.add(self)

    def _begin(self, settings: dict[str, Any]) -> None:
        self._run = self._pipeline._plan().run(settings, *self._other_batches)
        self._begun = settings
        self._turns = settings.get("turns") or 1
        #: Number of steps between the position of the run's token and the next batch.
        self._turn = settings.get("turn") or 0
        #: Number of steps before the position of the run's token that count towards `limit_batches`.
        self._taken = (self._settings.get("limit_batches") or 0) - (settings.get("limit_batches") or 0)
        self._before = (self._turn, self._taken)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        try:
            raw = self._run.next()
        except SourceError:
            # A file has changed since the pipeline was planned, so the next run must plan again.
            self._pipeline._planned = None
            raise
        if raw is None:
            raise StopIteration
        self._before = (self._turn, self._taken)
        self._taken += self._turn + 1
        self._turn = self._turns - 1
        return Batch(raw)

    def put_back(self, batch: Batch) -> None:
        """Takes back the latest batch, as if it had not been delivered: the next call of `__next__` delivers this batch
        again, and `state_dict` returns the state before this batch."""
        self._run.put_back(batch._raw)
        self._turn, self._taken = self._before

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the latest delivered batch. Batches that the run has computed ahead do not change the
        state.

        The state consists of plain values, which JSON can hold; `load_state_dict` and `run(resume=..)` accept it.

        A run with another number of ranks or threads, or with other rewrites, can resume from the state. A run of a
        pipeline with another meaning, other data or another seed refuses the state.
        """
        return State(
            self._run.token(),
            self._begun.get("first_epoch") or 0,
            self._begun.get("epochs") or self._pipeline._plan().clauses()["epochs"],
            turn=self._turn,
            turns=self._turns,
            world=self._begun.get("world") or 1,
            taken=None if self._settings.get("limit_batches") is None else self._taken,
            drops=self._begun.get("uneven") == "drop",
        ).to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes this iterator resume from a state, and stops its current run. The iterator then ends after the number
        of epochs in its own settings, counted from the first epoch of the iterator that returned the state.

        Raises:
            ResumeError: The state belongs to another stream. The iterator is unchanged.
        """
        settings = read_resume(state, self._settings, self._pipeline)
        before = self._run
        self._begin(settings)
        before.close()

    @property
    def steps(self) -> int | None:
        """Number of batches of the whole run; None if it is not known in advance."""
        return self._run.steps

    @property
    def seed(self) -> int:
        """The seed that the run uses."""
        return self._run.seed

    def stats(self) -> Stats:
        """The statistics of the run so far."""
        said = self._run.stats()
        failures = tuple(Failure(**failure) for failure in said.pop("failures"))
        return Stats(failures=failures, **said)

    def close(self) -> None:
        """Stops the run, and waits until its threads have ended. Delivered batches stay valid."""
        self._run.close()

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: The iterators whose runs may still have threads.
_LIVE: weakref.WeakSet[BatchIterator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stops the runs of all iterators when the interpreter exits."""
    for iterator in list(_LIVE):
        iterator.close()
    _forebay.shutdown()
