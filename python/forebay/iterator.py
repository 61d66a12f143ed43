"""Running a pipeline, batch by batch."""

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
    """A row that failed and did not stop the run."""

    #: Where the source is.
    location: str
    #: The file, relative to the source.
    file: str
    #: Row in the file, from 0.
    row: int
    #: The output column; None where a filter failed.
    column: str | None
    #: The function or operator that failed.
    operator: str
    #: What went wrong.
    cause: str


@dataclass(frozen=True)
class Stats:
    """What a run has delivered so far, and what became of failed rows.

    Rows, batches and bytes are those that the iterator has handed out. The others are of all rows that were
    computed, which run ahead of it.
    """

    #: Rows handed out.
    rows: int
    #: Batches handed out.
    batches: int
    #: Bytes handed out.
    bytes: int
    #: Failed rows left out.
    skipped: int
    #: Failed rows for which another row stood in.
    replaced: int
    #: Failed rows kept with nulls.
    nulled: int
    #: The first of the failures, in stream order.
    failures: tuple[Failure, ...]
    #: Rows read from the cache; None without a cache.
    cache_hits: int | None
    #: Rows computed because the cache did not have them; None without a cache.
    cache_misses: int | None
    #: Seconds since the run began, until it ended.
    wall_seconds: float
    #: Seconds that processors worked for this process meanwhile, whatever for.
    cpu_seconds: float
    #: Seconds until the first batch; None before it.
    first_batch_seconds: float | None

    @property
    def rows_per_second(self) -> float:
        """Rows handed out in a second."""
        return self.rows / max(self.wall_seconds, 1e-9)


class BatchIterator(Iterator[Batch]):
    """The batches of a run, in order.

    Work goes on in the background while a batch is used, and stops when the iterator is closed, dropped, or
    at its end. Ctrl-C interrupts the wait for a batch. It is no thing to share between processes: make one in
    each.
    """

    def __init__(
        self, pipeline: Pipeline, settings: dict[str, Any], *, keep_remainder: bool = False, rows: int | None = None
    ) -> None:
        self._pipeline = pipeline
        self._other_batches = (keep_remainder, rows)
        self._settings = {name: value for name, value in settings.items() if name != "resume"}
        resume = settings.get("resume")
        self._begin(self._settings if resume is None else read_resume(resume, self._settings, pipeline))
        _LIVE.add(self)

    def _begin(self, settings: dict[str, Any]) -> None:
        self._run = self._pipeline._plan().run(settings, *self._other_batches)
        self._begun = settings
        self._turns = settings.get("turns") or 1
        #: Steps between the token and the next batch.
        self._turn = settings.get("turn") or 0
        #: Steps before the token since the run began that counts towards the limit.
        self._taken = (self._settings.get("limit_batches") or 0) - (settings.get("limit_batches") or 0)
        self._before = (self._turn, self._taken)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        try:
            raw = self._run.next()
        except SourceError:
            # A file is no longer what it was; the next run plans with what it is.
            self._pipeline._planned = None
            raise
        if raw is None:
            raise StopIteration
        self._before = (self._turn, self._taken)
        self._taken += self._turn + 1
        self._turn = self._turns - 1
        return Batch(raw)

    def put_back(self, batch: Batch) -> None:
        """Takes the last batch back, as if it had not been handed out: it is the next one, and states are before
        it."""
        self._run.put_back(batch._raw)
        self._turn, self._taken = self._before

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer of the batches is: behind the last batch that it was given, however far the run
        is ahead of it. Plain values, which JSON can hold; `load_state_dict` and `run(resume=..)` take it.

        It serves any number of ranks, threads and rewrites, and is refused where the pipeline means something
        else, or the data or the seed is another.
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
        """Goes on from a state, wherever this iterator was. How many epochs there are is as this iterator's
        settings say, counted from where the iterator of the state began.

        Raises:
            ResumeError: The state is of another stream. The iterator is where it was.
        """
        settings = read_resume(state, self._settings, self._pipeline)
        before = self._run
        self._begin(settings)
        before.close()

    @property
    def steps(self) -> int | None:
        """Batches of the whole run, where known."""
        return self._run.steps

    @property
    def seed(self) -> int:
        """The seed in force."""
        return self._run.seed

    def stats(self) -> Stats:
        """What was delivered so far, and what became of failed rows."""
        said = self._run.stats()
        failures = tuple(Failure(**failure) for failure in said.pop("failures"))
        return Stats(failures=failures, **said)

    def close(self) -> None:
        """Stops the run and waits for its threads. What was handed out stays valid."""
        self._run.close()

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: The iterators that may have threads.
_LIVE: weakref.WeakSet[BatchIterator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends what still runs when the interpreter does."""
    for iterator in list(_LIVE):
        iterator.close()
    _forebay.shutdown()
