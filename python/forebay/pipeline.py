"""Pipelines: what to read, and what happens to the rows on their way to the trainer."""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from . import _forebay
from .batch import Batch
from .convert import RAISE
from .dataset import NumpyDataset
from .describe import option, source_text, step_text
from .expr import Expr, IntoExpr, node_of
from .iterator import BatchIterator
from .look import Explanation, Preview
from .schema import Schema

if TYPE_CHECKING:
    # Type checkers know it without its being installed.
    from typing_extensions import Unpack

    from .settings import DatasetSettings, RankSettings, RunSettings
    from .torch import ForebayDataset
    from .udf import Udf, UdfClass

__all__ = ["Pipeline"]


class Pipeline:
    """A pipeline.

    It is immutable: every call gives a new one. It is a description, so making one reads nothing, and it
    pickles; mistakes surface when its schema, its plan or its rows are asked for. Calls that shape rows come
    first, then `shuffle`, `skip`, `take`, `pack` or `bucket_by`, `batch`, `pad` and `repeat`, in this order.

    `for batch in pipeline` runs it.
    """

    __slots__ = ("_source", "_steps", "_planned", "__weakref__")

    def __init__(self, source: tuple[Any, ...], steps: tuple[tuple[Any, ...], ...] = ()) -> None:
        self._source = source
        self._steps = steps
        self._planned: tuple[int, _forebay.Plan] | None = None

    # Rows

    def filter(self, predicate: Expr | str) -> Pipeline:
        """Keeps the rows for which a predicate is true: `filter(col("label") > 3)`, `filter("label > 3")`.

        A text is SQL.
        """
        return self._then("filter", _column(predicate))

    def select(self, *columns: Expr | str, **named: IntoExpr) -> Pipeline:
        """Keeps these columns, in this order: `select("label", pixels=fn.resize(col("image"), 224, 224))`.

        A text is a column's name, or else what may stand after SELECT in SQL. Keywords name their columns.
        """
        nodes = [_column(column) for column in columns]
        nodes += [("alias", _column(value), name) for name, value in named.items()]
        return self._then("select", tuple(nodes))

    def with_column(self, name: str, value: IntoExpr) -> Pipeline:
        """Replaces a column in its place, or appends a new one. A text is SQL; `lit("text")` is a text."""
        if not isinstance(name, str):
            raise TypeError(f"with_column takes a name and an expression, found the name {name!r}")
        return self._then("with_column", name, _column(value))

    def map_batches(self, function: Udf | UdfClass) -> Pipeline:
        """Adds the columns that a Python function returns, or replaces those of their names; see `forebay.udf`."""
        from .udf import mapped

        return mapped(self, function)

    # Order

    def shuffle(self, rows: int | Literal["global"], *, seed: int | None = None) -> Pipeline:
        """Orders the rows of each epoch at random.

        Args:
            rows: Rows travel within windows of at least this many stored rows; `"global"` for one window of
                all rows.
            seed: Seeds the order and all random functions; 0 if it is given nowhere.
        """
        window = None if rows == "global" else _whole("shuffle", "rows", rows)
        return self._then("shuffle", window, None if seed is None else _whole("shuffle", "seed", seed))

    def seed(self, seed: int) -> Pipeline:
        """Seeds the random functions of a pipeline that does not shuffle."""
        return self._then("seed", _whole("seed", "seed", seed))

    def skip(self, rows: int) -> Pipeline:
        """Drops the first rows of each epoch."""
        return self._then("skip", _whole("skip", "rows", rows))

    def take(self, rows: int) -> Pipeline:
        """Keeps the first rows of each epoch."""
        return self._then("take", _whole("take", "rows", rows))

    # Batches and epochs

    def pack(self, column: str, into: int) -> Pipeline:
        """Puts the sequences of a list column end to end into packs of `into` elements. A batch then has packs as
        rows, with `<column>_segment_ids` (1, 2, .. in a pack, 0 where it is free) and `<column>_positions` (from 0
        in each sequence); other columns become lists with a value for each sequence."""
        return self._then("pack", _name("pack", column), _whole("pack", "into", into))

    def bucket_by(self, value: IntoExpr, boundaries: Iterable[int]) -> Pipeline:
        """Fills each batch with rows of one bucket.

        Args:
            value: What decides, such as `fn.array_length(col("tokens"))`; a text is SQL.
            boundaries: Ascending. A value belongs to the first bucket whose boundary is above it, or to the last.
        """
        limits = [_whole("bucket_by", "each boundary", boundary) for boundary in boundaries]
        return self._then("bucket_by", _column(value), tuple(limits))

    def batch(
        self,
        rows: int,
        *,
        drop_remainder: bool = False,
        pad_remainder: bool = False,
        scope: Literal["per_rank", "global"] = "per_rank",
    ) -> Pipeline:
        """Gathers rows.

        Args:
            rows: Rows of a batch, for each rank. Without this call it is 256.
            drop_remainder: Whether rows that do not fill a batch are dropped; else the last one is short.
            pad_remainder: Whether the last batch is filled by repeating its rows.
            scope: `"per_rank"` deals whole batches to the ranks in turn; `"global"` splits each over them.
        """
        if drop_remainder and pad_remainder:
            raise ValueError("drop_remainder and pad_remainder exclude each other")
        if scope not in ("per_rank", "global"):
            raise ValueError(f'scope is "per_rank" or "global", found {scope!r}')
        remainder = "drop" if drop_remainder else "pad" if pad_remainder else "keep"
        return self._then("batch", _whole("batch", "rows", rows), remainder, scope == "global")

    def batch_by_tokens(
        self,
        tokens: int,
        column: str,
        *,
        drop_remainder: bool = False,
        scope: Literal["per_rank", "global"] = "per_rank",
    ) -> Pipeline:
        """Gathers rows as long as they have at most so many elements in a list column; where the column is
        padded, each row counts as long as the longest.

        Args:
            tokens: Elements of a batch, for each rank.
            column: A list, or a number that says how long a row is.
            drop_remainder: Whether the last rows of an epoch are dropped.
            scope: As of `batch`.
        """
        if scope not in ("per_rank", "global"):
            raise ValueError(f'scope is "per_rank" or "global", found {scope!r}')
        count = _whole("batch_by_tokens", "tokens", tokens)
        remainder = "drop" if drop_remainder else "keep"
        return self._then("batch_by_tokens", count, _name("batch_by_tokens", column), remainder, scope == "global")

    def pad(self, column: str, to: int | None = None, value: float | None = None) -> Pipeline:
        """Makes the sequences of a list column equally long, with `value` (0 by default) at their ends: as long as
        the longest of the batch, or `to` elements. Their own lengths are in `<column>_length`. Follows `batch`; after
        `pack`, it says what is at the ends of packs."""
        to = None if to is None else _whole("pad", "to", to)
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise TypeError(f"pad: value is a number, found {value!r}")
        # NumPy's scalars are written with their type.
        text = None if value is None else repr(int(value) if isinstance(value, numbers.Integral) else float(value))
        return self._then("pad", _name("pad", column), to, text)

    def repeat(self, epochs: int | None = None) -> Pipeline:
        """Runs several epochs, or epochs without end. Before `batch`, batches cross the ends of epochs."""
        return self._then("repeat", None if epochs is None else _whole("repeat", "epochs", epochs))

    # Options

    def options(self, **options: Any) -> Pipeline:
        """Sets what SQL has in `OPTIONS (..)`; the others stay as they are.

        Args:
            on_error: When a row fails: `"fail"` (the default), `"skip"`, `"replace"` or `"null"`.
            relax: Rewrites that are allowed beyond exact ones: `"none"`, `"numeric"`, `"order"`,
                `"statistical"`.
            optimize: `"default"` or `"off"`.
            disable_rules: Names of rewrite rules that are left out.
            cache_dir: Directory that keeps computed rows from epoch to epoch.
            cache_quota: Bytes that they may take, as a number or as `"20GiB"`.
            cache_price: What keeping a byte costs.
            equal_steps: What a rank does in the last step if no batch is left for it: `"count"` (a batch of no
                rows, the default), `"drop"` (nobody steps) or `"pad"` (its batch before once more).
            horizon: Windows after which packs and buckets hold no rows open.
            error_budget: Failed rows of an epoch at which the run stops, whatever `on_error` says: a number, or a
                part of the rows such as `"1 %"`.
            dead_letters: Folder for a table of the failed rows.
            dead_letter_bytes: Largest input of a failed row that is kept in that table, as a number or `"1MiB"`.
        """
        given = {key: value for key, value in options.items() if value is not None}
        if not given:
            return self
        text = ", ".join(f"{key} = {_quoted(value)}" for key, value in given.items())
        return self._then("options", tuple(given), text)

    def cache(self, at: str = "auto", *, freezing_randomness: bool = False) -> Pipeline:
        """Says where rows are kept from epoch to epoch, in the directory of `options(cache_dir=..)`.

        Args:
            at: `"auto"` (where it pays), `"off"`, or the function or output column to keep the rows of.
            freezing_randomness: Whether the draws of the first epoch are kept with the rows.
        """
        if at in ("auto", "off"):
            return self._then("cache", at.upper())
        quoted = at.replace('"', '""')
        return self._then("cache", f'AT "{quoted}"' + " FREEZING RANDOMNESS" * freezing_randomness)

    # Looking at it

    @property
    def schema(self) -> Schema:
        """The columns of the batches."""
        return Schema(self._plan())

    def explain(
        self,
        *,
        analyze: bool = False,
        verbose: bool = False,
        why_not: str | None = None,
        format: Literal["text", "json", "svg", "dot"] = "text",
        **settings: Unpack[RunSettings],
    ) -> Explanation:
        """What was written, what was chosen to run instead, and why.

        Args:
            analyze: Whether an epoch is run first, to say where time goes.
            verbose: Whether every step of the optimiser is told.
            why_not: The name of a rewrite rule: then it is told what stopped it.
            format: `"text"`, `"json"`, or both plans as a picture: `"svg"`, `"dot"`.
            **settings: As of `run`.
        """
        return Explanation(self._plan().explain({**settings}, analyze, verbose, why_not, format))

    def preview(self, rows: int = 16, **settings: Unpack[RunSettings]) -> Preview:
        """The first rows, with images as pictures in a notebook. Only these rows are computed."""
        given = {"limit_batches": 1, "epochs": 1, **settings}
        with BatchIterator(self, given, keep_remainder=True, rows=_whole("preview", "rows", rows)) as batches:
            for batch in batches:
                return Preview(batch)
        raise ValueError("the pipeline has no rows to show")

    def steps(self, **settings: Unpack[RunSettings]) -> int | None:
        """Batches of an epoch for each rank, where known before the rows come.

        Args:
            **settings: As of `run`; `world` decides.
        """
        return self._plan().steps({**settings, "epochs": 1})

    def save_plan(self, **settings: Unpack[RunSettings]) -> str:
        """The chosen plan, and all that it was chosen by, as JSON: `run(plan=..)` has the same plan anywhere."""
        return self._plan().save({**settings})

    # Running it

    def run(self, **settings: Unpack[RunSettings]) -> BatchIterator:
        """Runs the pipeline: an iterator of batches.

        Args:
            rank: This rank, from 0.
            world: Number of ranks.
            epochs: Number of epochs, instead of the pipeline's.
            first_epoch: First epoch, from 0.
            seed: Seed, instead of the pipeline's.
            threads: Compute threads; all cores if not given.
            memory_limit: Bytes for windows, segments and batches: a number, or such as `"2GiB"`.
            limit_batches: Batches after which the run ends, with those before the state that it goes on from.
            optimize: Whether the plan is rewritten.
            plan: A plan of `save_plan`, to be planned by.
            resume: Where to go on: `batch.token()`, or `state_dict()` of an iterator, as a dictionary or as JSON.
                Threads, ranks, world, memory and rewrites may be others than they were.
            uneven: What a rank gets in a step whose rows do not divide by the ranks: `"keep"`, what is left for it,
                perhaps nothing (the default); `"pad"`, as many rows as the rank that has most, by repeating rows, which
                `batch.padded` counts; `"drop"`, no step in which a rank has no batch. It is no part of the stream's
                identity: states and tokens serve whatever is said here.
            turn: The first of the batches that are given, from 0.
            turns: Every which batch is given. Several runs that take turns have the batches of one, and none
                computes what another one gives; the workers of a `DataLoader` do so.

        Raises:
            ResumeError: What `resume` says is of another stream.
        """
        return BatchIterator(self, {**settings})

    def __iter__(self) -> Iterator[Batch]:
        """`run()`: each loop over a pipeline begins with epoch 0 again, and has one epoch, or those of `repeat`. What
        goes on with the next epoch is `run(first_epoch=..)`, or a loop over `numpy()` or `torch()`."""
        return self.run()

    def numpy(
        self,
        *,
        resume: dict[str, Any] | str | None = None,
        nulls: Any = RAISE,
        padded: bool | None = None,
        **settings: Unpack[RankSettings],
    ) -> NumpyDataset:
        """Dictionaries of NumPy arrays, which JAX takes as pytrees, to loop over: each loop is the next epoch.

        It has a `state_dict` and `load_state_dict`, whose state Orbax keeps as JSON.

        Args:
            resume: Where the first iteration goes on, as `NumpyDataset.load_state_dict` takes it.
            nulls: What stands for numbers that are not there, as of `Batch.numpy`. Without it, nulls are a ValueError.
            padded: Whether batches have the mask `"padded"`: truth values, true for rows that only repeat others. If it
                is not said, they have it where several ranks are padded: with `uneven="pad"`, or if the pipeline says
                `equal_steps = 'pad'`.
            **settings: As of `run`.
        """
        dataset = NumpyDataset(self, {**settings}, nulls, padded, uneven="keep")
        if resume is not None:
            dataset.load_state_dict(resume)
        return dataset

    def torch(
        self,
        *,
        rank: int | None = None,
        world: int | None = None,
        resume: dict[str, Any] | str | None = None,
        nulls: Any = RAISE,
        padded: bool | None = None,
        pin_memory: bool = False,
        **settings: Unpack[DatasetSettings],
    ) -> ForebayDataset:
        """The pipeline as an `IterableDataset` of whole batches, for `DataLoader(dataset, batch_size=None)`.

        Args:
            rank: This rank; by default that of `torch.distributed`, else of the environment, else 0.
            world: Number of ranks, likewise.
            resume: Where the first iteration goes on, as `ForebayDataset.resume` takes it.
            nulls: What stands for numbers that are not there, as of `Batch.torch`. Without it, nulls are a ValueError.
            padded: Whether batches have the mask `"padded"`: a `torch.bool` for each row, true for those that only
                repeat others. If it is not said, they have it where several ranks are padded, which `uneven="pad"` and
                `equal_steps = 'pad'` do.
            pin_memory: Whether tensors are pinned, where there is a GPU and no loader worker.
            **settings: As of `run`, but `uneven` is `"pad"` if it is not said.
        """
        from .torch import ForebayDataset

        dataset = ForebayDataset(
            self, rank=rank, world=world, nulls=nulls, padded=padded, pin_memory=pin_memory, **settings
        )
        if resume is not None:
            dataset.resume(resume)
        return dataset

    # Its parts

    def _then(self, name: str, *arguments: Any) -> Pipeline:
        return Pipeline(self._source, (*self._steps, (name, *arguments)))

    def _plan(self) -> _forebay.Plan:
        """The plan. A child of a process plans for itself: its parent's threads are not there."""
        if self._planned is None or self._planned[0] != os.getpid():
            self._planned = (os.getpid(), _forebay.Plan(self._source, self._steps))
        return self._planned[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return Pipeline, (self._source, self._steps)

    def __repr__(self) -> str:
        lines = [source_text(self._source), *("  ." + step_text(step) for step in self._steps)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from .html import pipeline_page

        return pipeline_page(self)


def _name(call: str, name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{call}: column is a column's name, found {name!r}")
    return name


def _quoted(value: Any) -> str:
    return "'" + option(value).replace("'", "''") + "'"


def _column(value: Any) -> tuple[Any, ...]:
    return ("sql", value) if isinstance(value, str) else node_of(value)


def _whole(call: str, what: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 0:
        raise TypeError(f"{call}: {what} is a whole number of at least 0, found {value!r}")
    return operator.index(value)
