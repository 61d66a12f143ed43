"""Pipelines: a source, and the operations that turn its rows into batches for training."""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from . import _forebay
from .batch import Batch
from .cluster import Cluster, on
from .ray_cluster import RayCluster
from .convert import RAISE
from .dataset import NumpyDataset
from .describe import option, source_text, step_text
from .expr import Expr, IntoExpr, node_of
from .iterator import BatchIterator
from .look import Explanation, Preview
from .schema import Schema

if TYPE_CHECKING:
    # Type checkers have stubs of `typing_extensions` even if the package is not installed.
    from typing_extensions import Unpack

    from .settings import ClusterAccess, DatasetSettings, RankSettings, RunSettings
    from .torch import ForebayDataset
    from .udf import Udf, UdfClass

__all__ = ["Pipeline"]


class Pipeline:
    """A pipeline.

    A pipeline is immutable: every call returns a new pipeline. A pipeline is only a description, so it can be pickled,
    and creating one reads no data. Mistakes raise an error when the schema, the plan or the rows are requested. Calls
    that filter rows and compute columns come first, then `shuffle`, `skip`, `take`, `pack` or `bucket_by`, `batch`,
    `pad` and `repeat`, in this order.

    `for batch in pipeline` runs the pipeline.
    """

    __slots__ = ("_source", "_steps", "_cluster", "_moved", "_planned", "__weakref__")

    def __init__(
        self,
        source: tuple[Any, ...],
        steps: tuple[tuple[Any, ...], ...] = (),
        cluster: Cluster | RayCluster | None = None,
    ) -> None:
        self._source = source
        self._steps = steps
        self._cluster = cluster
        #: This pipeline on the cluster that a setting `cluster` named last, with its plan.
        self._moved: Pipeline | None = None
        self._planned: tuple[int, _forebay.Cluster | None, _forebay.Plan] | None = None

    # Rows

    def filter(self, predicate: Expr | str) -> Pipeline:
        """Keeps the rows for which `predicate` is true: `filter(col("label") > 3)`, `filter("label > 3")`.

        A predicate that is a text is parsed as SQL.
        """
        return self._then("filter", _column(predicate))

    def select(self, *columns: Expr | str, **named: IntoExpr) -> Pipeline:
        """Keeps only the columns in the arguments, in the same order: `select("label", pixels=fn.resize(col("image"),
        224, 224))`.

        A text is the name of a column, or otherwise a select list in SQL. The names of keyword arguments become the
        names of their columns.
        """
        nodes = [_column(column) for column in columns]
        nodes += [("alias", _column(value), name) for name, value in named.items()]
        return self._then("select", tuple(nodes))

    def with_column(self, name: str, value: IntoExpr) -> Pipeline:
        """Replaces the column `name` at its position, or appends it if it is new. A value that is a text is parsed as
        SQL; use `lit("text")` for a literal text."""
        if not isinstance(name, str):
            raise TypeError(f"with_column expects a name and an expression, found the name {name!r}")
        return self._then("with_column", name, _column(value))

    def map_batches(self, function: Udf | UdfClass) -> Pipeline:
        """Adds the columns that a Python function returns. A returned column replaces a column of the same name. See
        `forebay.udf`."""
        from .udf import mapped

        return mapped(self, function)

    # Order

    def shuffle(self, rows: int | Literal["global"], *, seed: int | None = None) -> Pipeline:
        """Shuffles the rows of each epoch.

        Args:
            rows: Size of the windows within which rows are shuffled, each of at least this many stored rows; or
                `"global"` to shuffle all rows of the epoch together.
            seed: Seed of the order and of all random functions; 0 by default.
        """
        window = None if rows == "global" else _whole("shuffle", "rows", rows)
        return self._then("shuffle", window, None if seed is None else _whole("shuffle", "seed", seed))

    def seed(self, seed: int) -> Pipeline:
        """Seeds the random functions of a pipeline that does not shuffle."""
        return self._then("seed", _whole("seed", "seed", seed))

    def skip(self, rows: int) -> Pipeline:
        """Drops the first `rows` rows of each epoch."""
        return self._then("skip", _whole("skip", "rows", rows))

    def take(self, rows: int) -> Pipeline:
        """Keeps only the first `rows` rows of each epoch."""
        return self._then("take", _whole("take", "rows", rows))

    # Batches and epochs

    def pack(self, column: str, into: int) -> Pipeline:
        """Concatenates the sequences of a list column into packs of `into` elements.

        The rows of a batch are then packs. For each element of a pack, the new column `<column>_segment_ids` numbers
        its sequence (from 1; 0 for padding), and `<column>_positions` is its index in the sequence (from 0). Other
        columns become lists with one value per sequence."""
        return self._then("pack", _name("pack", column), _whole("pack", "into", into))

    def bucket_by(self, value: IntoExpr, boundaries: Iterable[int]) -> Pipeline:
        """Divides rows into buckets by a value, and fills each batch with rows of a single bucket.

        Args:
            value: The value that decides the bucket, such as `fn.array_length(col("tokens"))`. A text is parsed as SQL.
            boundaries: Ascending upper boundaries of the buckets, exclusive. A value belongs to the first bucket whose
                boundary is greater than the value, or to an additional last bucket.
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
        """Groups rows into batches.

        Args:
            rows: Number of rows per batch, for each rank. A pipeline without this call has batches of 256 rows.
            drop_remainder: True to drop the last rows if they do not fill a batch; by default the last batch is
                short.
            pad_remainder: True to fill the last batch by repeating its rows.
            scope: `"per_rank"` gives whole batches to the ranks in turn; `"global"` splits each batch among the ranks.
        """
        if drop_remainder and pad_remainder:
            raise ValueError("drop_remainder and pad_remainder exclude each other")
        if scope not in ("per_rank", "global"):
            raise ValueError(f'scope must be "per_rank" or "global", found {scope!r}')
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
        """Fills each batch with as many rows as fit into a maximum number of list elements (tokens). If the column is
        padded, each row counts with the length of the longest row of the batch.

        Args:
            tokens: Maximum number of elements per batch, for each rank.
            column: A list column whose elements are counted, or a column of numbers with the length of each row.
            drop_remainder: True to drop the last batch of an epoch.
            scope: As for `batch`.
        """
        if scope not in ("per_rank", "global"):
            raise ValueError(f'scope must be "per_rank" or "global", found {scope!r}')
        count = _whole("batch_by_tokens", "tokens", tokens)
        remainder = "drop" if drop_remainder else "keep"
        return self._then("batch_by_tokens", count, _name("batch_by_tokens", column), remainder, scope == "global")

    def pad(self, column: str, to: int | None = None, value: float | None = None) -> Pipeline:
        """Pads the sequences of a list column at their ends with `value` (0 by default), to `to` elements or, by
        default, to the length of the longest sequence of the batch.

        The new column `<column>_length` has the original lengths. This call comes after `batch`. In a pipeline with
        `pack`, the call sets the value that fills packs."""
        to = None if to is None else _whole("pad", "to", to)
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise TypeError(f"pad: value must be a number, found {value!r}")
        # The `repr` of a NumPy scalar would include its type.
        text = None if value is None else repr(int(value) if isinstance(value, numbers.Integral) else float(value))
        return self._then("pad", _name("pad", column), to, text)

    def repeat(self, epochs: int | None = None) -> Pipeline:
        """Repeats the pipeline for `epochs` epochs, or endlessly if `epochs` is None. If this call comes before
        `batch`, batches cross the ends of epochs."""
        return self._then("repeat", None if epochs is None else _whole("repeat", "epochs", epochs))

    # Options

    def options(self, **options: Any) -> Pipeline:
        """Sets options of SQL's `OPTIONS (..)`. Options that are not passed keep their values.

        Args:
            on_error: The policy for failed rows: `"fail"` (the default), `"skip"`, `"replace"` or `"null"`.
            relax: The kind of rewrites that the optimiser may use in addition to exact ones: `"none"` (the default),
                `"numeric"`, `"order"` or `"statistical"`.
            optimize: The optimiser switch: `"default"` or `"off"`.
            disable_rules: Names of rewrite rules to disable.
            cache_dir: Directory in which computed rows are cached between epochs and runs.
            cache_quota: Maximum size of the cache, as a number of bytes or as `"20GiB"`.
            cache_price: The price of keeping a byte in the cache, such as `"30 s/GB"`.
            index: The use of seek indexes: `"auto"` (a run of several epochs keeps indexes of its JPEG files, so that
                later epochs jump to the regions that they decode) or `"off"`. The stream is the same.
            equal_steps: Handling of a last step in which some rank has no batch. `"count"` (the default): this rank
                gets an empty batch. `"drop"`: the step is dropped for all ranks. `"pad"`: this rank repeats its
                previous batch.
            horizon: Number of windows for which rows may wait in an unfinished pack or in a bucket.
            error_budget: The maximum number of rows of an epoch that may fail. If more rows fail, the run stops,
                whatever `on_error` is. A number, or a share of the rows such as `"1 %"`.
            dead_letters: Folder of the dead-letter table, which records failed rows.
            dead_letter_bytes: Maximum size of a failed row's input for it to be stored in the dead-letter table, as a
                number of bytes or as `"1MiB"`.
        """
        given = {key: value for key, value in options.items() if value is not None}
        if not given:
            return self
        text = ", ".join(f"{key} = {_quoted(value)}" for key, value in given.items())
        return self._then("options", tuple(given), text)

    def cache(self, at: str = "auto", *, freezing_randomness: bool = False) -> Pipeline:
        """Sets the operator whose output rows are cached, in the directory of `options(cache_dir=..)`.

        Args:
            at: `"auto"` (the optimiser chooses the operator by cost, or none), `"off"`, or the function or output
                column whose rows are cached.
            freezing_randomness: True to cache rows although random functions computed them, so that all epochs have the
                random draws of the first one.
        """
        if at in ("auto", "off"):
            return self._then("cache", at.upper())
        quoted = at.replace('"', '""')
        return self._then("cache", f'AT "{quoted}"' + " FREEZING RANDOMNESS" * freezing_randomness)

    # Machines

    def cluster(self, cluster: str | Cluster | RayCluster | None, **access: Unpack[ClusterAccess]) -> Pipeline:
        """Has the workers of a cluster read the data and compute the rows: `cluster("node1:7100")`.

        The stream, its states and its errors are those of a run in this process, which only makes the batches. This
        process needs no access to the data. Paths are those of the workers; relative ones start at this process's
        folder. `preview`, `explain`, `steps` and `len` use the cluster, too.

        Python functions run on workers that were started with `--allow-python`. Their code is sent there.

        Args:
            cluster: Host and port of the scheduler, or a `forebay.Cluster`; or actors of Ray, as `forebay.ray` describes
                them. None to use this process alone.
            **access: The access to the cluster, as for `forebay.Cluster`.
        """
        return Pipeline(self._source, self._steps, on(cluster, access))

    # Schema, plans and previews

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
        """Explains the plan as written, the plan that the optimiser chose to run instead, and the reasons for this
        choice.

        Args:
            analyze: True to run an epoch first, and report the time that each operator took.
            verbose: True to report every rewrite that the optimiser applied.
            why_not: The name of a rewrite rule, to report the conditions because of which the rule was not applied.
            format: `"text"` or `"json"`; or `"svg"` or `"dot"` for a picture of both plans.
            **settings: As for `run`.
        """
        pipeline, given = self._placed({**settings})
        return Explanation(pipeline._plan().explain(given, analyze, verbose, why_not, format))

    def preview(self, rows: int = 16, **settings: Unpack[RunSettings]) -> Preview:
        """Returns the first `rows` rows, and computes no others. Notebooks display the result with images as
        pictures."""
        given = {"limit_batches": 1, "epochs": 1, **settings}
        with BatchIterator(self, given, keep_remainder=True, rows=_whole("preview", "rows", rows)) as batches:
            for batch in batches:
                return Preview(batch)
        raise ValueError("the pipeline has no rows to show")

    def steps(self, **settings: Unpack[RunSettings]) -> int | None:
        """Returns the number of batches per epoch for each rank, or None if this number is not known in advance.

        Args:
            **settings: As for `run`; the number depends on `world`.
        """
        pipeline, given = self._placed({**settings})
        return pipeline._plan().steps({**given, "epochs": 1})

    def save_plan(self, **settings: Unpack[RunSettings]) -> str:
        """Returns the plan that the optimiser chooses, and all facts that the choice depends on, as JSON.
        `run(plan=..)` repeats the choice on any machine."""
        pipeline, given = self._placed({**settings})
        return pipeline._plan().save(given)

    # Running

    def run(self, **settings: Unpack[RunSettings]) -> BatchIterator:
        """Runs the pipeline, and returns an iterator of batches.

        Args:
            rank: Rank of this process, from 0.
            world: Number of ranks.
            epochs: Number of epochs, which overrides the pipeline's `repeat`.
            first_epoch: Number of the first epoch, from 0.
            seed: Seed, which overrides the pipeline's seed.
            threads: Number of computing threads; by default, one per core.
            memory_limit: Memory for windows, segments and batches, as a number of bytes or a text such as
                `"2GiB"`.
            limit_batches: Number of batches after which the run ends. If the run resumes from a state, batches before
                the state count, too.
            optimize: False to run the plan as written.
            plan: A plan from `save_plan`. The optimiser uses the facts in the plan instead of those of this machine.
            resume: The position to resume from: `batch.token()`, or the `state_dict()` of an iterator, as a dictionary
                or as JSON. The number of threads or ranks, the memory limit and the rewrites may differ from those of
                the earlier run.
            uneven: Handling of steps whose rows cannot be divided equally between the ranks. `"keep"` (the default):
                some ranks get fewer rows than others, possibly none. `"pad"`: rows are repeated, so that every rank has
                as many rows as the rank with the most; `batch.padded` counts the repeated rows. `"drop"`: steps in
                which a rank has no batch are dropped. The setting is not part of the stream's identity: a run may
                resume from a state or token with another setting.
            turn: Number of the first batch to deliver, from 0, counted from the beginning of the run or from the
                position that it resumes from.
            turns: Stride between delivered batches. `turns` runs with the values 0, 1, .. of `turn` together deliver
                the batches of one run, and each batch is computed by only one of them. The workers of a `DataLoader`
                are such runs.
            cluster: The cluster that computes the rows: host and port of its scheduler, a `forebay.Cluster`, or
                `forebay.ray(..)`. See `cluster(..)`.

        Raises:
            ResumeError: `resume` belongs to another stream.
        """
        return BatchIterator(self, {**settings})

    def __iter__(self) -> Iterator[Batch]:
        """Calls `run()`. Each loop over a pipeline starts with epoch 0 again, and has one epoch, or the epochs of
        `repeat`. To continue with the next epoch, use `run(first_epoch=..)`, or loop over `numpy()` or `torch()`."""
        return self.run()

    def numpy(
        self,
        *,
        resume: dict[str, Any] | str | None = None,
        nulls: Any = RAISE,
        padded: bool | None = None,
        **settings: Unpack[RankSettings],
    ) -> NumpyDataset:
        """Returns a dataset of dictionaries of NumPy arrays, which JAX accepts as pytrees. Each loop over the dataset
        is the next epoch.

        The dataset's `state_dict` and `load_state_dict` use states that Orbax stores as JSON.

        Args:
            resume: The state from which the first iteration resumes, as for `NumpyDataset.load_state_dict`.
            nulls: The value for missing numbers, as for `Batch.numpy`. Without it, nulls raise a ValueError.
            padded: True to add the mask `"padded"`: booleans, true for rows that only repeat other rows. By default,
                the mask is added if there are several ranks and either `uneven="pad"` is set or the pipeline has
                `equal_steps = 'pad'`.
            **settings: As for `run`.
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
        """Returns an `IterableDataset` of whole batches, for `DataLoader(dataset, batch_size=None)`.

        Args:
            rank: Rank of this process; by default the rank in `torch.distributed`, otherwise the environment variable
                RANK, otherwise 0.
            world: Number of ranks; by default the number in `torch.distributed`, otherwise the environment variable
                WORLD_SIZE, otherwise 1.
            resume: The state from which the first iteration resumes, as for `ForebayDataset.resume`.
            nulls: The value for missing numbers, as for `Batch.torch`. Without it, nulls raise a ValueError.
            padded: True to add the mask `"padded"`: a `torch.bool` per row, true for rows that only repeat other rows.
                By default, the mask is added if there are several ranks and either `uneven` is `"pad"` or the pipeline
                has `equal_steps = 'pad'`.
            pin_memory: True to pin the memory of tensors, if there is a GPU and this process is not a loader worker.
            **settings: As for `run`, except that `uneven` is `"pad"` by default.
        """
        from .torch import ForebayDataset

        dataset = ForebayDataset(
            self, rank=rank, world=world, nulls=nulls, padded=padded, pin_memory=pin_memory, **settings
        )
        if resume is not None:
            dataset.resume(resume)
        return dataset

    # Internals

    def _then(self, name: str, *arguments: Any) -> Pipeline:
        return Pipeline(self._source, (*self._steps, (name, *arguments)), self._cluster)

    def _placed(self, settings: dict[str, Any]) -> tuple[Pipeline, dict[str, Any]]:
        """Returns the pipeline on the cluster that the settings name, and the other settings."""
        cluster = on(settings.get("cluster"), {})
        settings = {name: value for name, value in settings.items() if name != "cluster"}
        if cluster is None or cluster == self._cluster:
            return self, settings
        if self._moved is None or self._moved._cluster != cluster:
            self._moved = self.cluster(cluster)
        return self._moved, settings

    def _plan(self) -> _forebay.Plan:
        """Returns the plan, which is cached. A child process must plan again, since the plan uses threads of the
        parent, which do not exist in the child, and so must a pipeline whose actors of Ray were stopped."""
        engine = None if self._cluster is None else self._cluster._engine()
        if self._planned is None or self._planned[0] != os.getpid() or self._planned[1] is not engine:
            self._planned = (os.getpid(), engine, _forebay.Plan(self._source, self._steps, engine))
        return self._planned[2]

    def __reduce__(self) -> tuple[Any, ...]:
        return Pipeline, (self._source, self._steps, self._cluster)

    def __repr__(self) -> str:
        lines = [source_text(self._source), *("  ." + step_text(step) for step in self._steps)]
        if self._cluster is not None:
            lines.append(f"  .cluster({str(self._cluster)!r})")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from .html import pipeline_page

        return pipeline_page(self)


def _name(call: str, name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{call}: column must be a column's name, found {name!r}")
    return name


def _quoted(value: Any) -> str:
    return "'" + option(value).replace("'", "''") + "'"


def _column(value: Any) -> tuple[Any, ...]:
    return ("sql", value) if isinstance(value, str) else node_of(value)


def _whole(call: str, what: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 0:
        raise TypeError(f"{call}: {what} must be a whole number of at least 0, found {value!r}")
    return operator.index(value)
