"""The batches of a rank, shared out over loader workers.

A `DataLoader` takes batches from its workers in turn. So worker `w` of `W` makes the rank's batches `w`,
`w + W`, `w + 2W`, .., and the loader's stream is that of one process: the same batches in the same order.

Where batches are dealt to ranks, worker `w` of rank `r` does as rank `r + world * w` of `world * W` would, and
computes its own rows alone. What has no such rank (`scope="global"`, packs and buckets, padded and continuous
batches, filters that draw) is run whole by every worker, which passes on its own batches: right, but no faster
than one worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .batch import Batch
from .errors import ConfigError
from .iterator import BatchIterator

if TYPE_CHECKING:
    from . import _forebay
    from .pipeline import Pipeline

__all__ = ["worker_batches"]


def is_dealt(clauses: _forebay.Clauses) -> bool:
    """Whether a loader worker can be a rank of its own."""
    is_plain = clauses["is_dealt"] and clauses["batch_rows"] is not None
    return is_plain and not (clauses["is_global"] or clauses["continuous"] or clauses["remainder"] == "pad")


def worker_batches(
    pipeline: Pipeline, settings: dict[str, Any], rank: int, world: int, worker: int, workers: int
) -> Iterator[Batch]:
    """The batches that one of a rank's loader workers makes."""
    settings = {**settings, "rank": rank, "world": world}
    clauses = pipeline._plan().clauses()
    if workers == 1:
        yield from _closing(BatchIterator(pipeline, settings))
    elif is_dealt(clauses):
        yield from _dealt(pipeline, settings, clauses, worker, workers)
    else:
        yield from _stepped(pipeline, settings, worker, workers)


def _closing(batches: BatchIterator) -> Iterator[Batch]:
    with batches:
        yield from batches


def _stepped(pipeline: Pipeline, settings: dict[str, Any], worker: int, workers: int) -> Iterator[Batch]:
    """Every batch is made, and every `workers`th passed on."""
    for place, batch in enumerate(_closing(BatchIterator(pipeline, settings))):
        if place % workers == worker:
            yield batch


def _dealt(
    pipeline: Pipeline, settings: dict[str, Any], clauses: _forebay.Clauses, worker: int, workers: int
) -> Iterator[Batch]:
    """Only the worker's own batches are made, epoch by epoch: which steps are its own depends on the steps
    of the epochs before."""
    rank, world = settings["rank"], settings["world"]
    epochs = settings.get("epochs") or clauses["epochs"]
    epoch = settings.get("first_epoch") or 0
    limit = settings.get("limit_batches")
    end = None if epochs is None else epoch + epochs
    # Steps of the rank in the epochs before, over all workers.
    done = 0
    while (end is None or epoch < end) and (limit is None or done < limit):
        turn = (worker - done) % workers
        own = {
            **settings,
            "first_epoch": epoch,
            "epochs": 1,
            "rank": rank + world * turn,
            "world": world * workers,
            "limit_batches": None,
        }
        batches = BatchIterator(pipeline, own, keep_remainder=True)
        rows = batches._run.epoch_rows
        if rows is None:
            # What a draw decides on is counted epoch by epoch.
            batches.close()
            rest = {**settings, "first_epoch": epoch, "epochs": None if end is None else end - epoch}
            yield from _stepped(pipeline, rest, worker, workers)
            return
        size = clauses["batch_rows"] or 1
        planned = rows // size if clauses["remainder"] == "drop" else -(-rows // size)
        total = -(-planned // world)
        with batches:
            for batch in batches:
                step = turn + workers * batch.step
                if step >= total or (limit is not None and done + step >= limit):
                    break
                # With drop_remainder the last rows are nobody's; a rank that is left over steps with none.
                is_whole = rank + world * step < planned
                raw = batch._raw if is_whole else batch._raw.head(0)
                yield Batch(raw, step)
        if total == 0 and end is None:
            raise ConfigError("an epoch has no batches, so repeating it without end would never yield one")
        done += total
        epoch += 1
