"""Functions that create pipelines: from SQL, from files of one format, or as a mix of other pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from .describe import option
from .errors import PlanError
from .pipeline import Pipeline

__all__ = ["images", "mix", "read_arrow", "read_avro", "read_csv", "read_json", "read_parquet", "read_webdataset", "sql"]


def sql(text: str, *, name: str | None = None) -> Pipeline:
    """Makes a pipeline from SQL: statements that define tables and pipelines, and a query with its clauses.

    Args:
        text: The SQL statements.
        name: Name of the pipeline to use if `text` creates several; by default, the last one.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected SQL, found {text!r}")
    return Pipeline(("sql", text, name))


def images(location: str | os.PathLike[str], **options: Any) -> Pipeline:
    """Reads the image files of a folder, flat or with one folder per class.

    Args:
        location: The folder.
        **options: Options of the format, as in SQL's `OPTIONS (..)`.
    """
    return _files("images", location, options)


def read_parquet(location: str | os.PathLike[str], **options: Any) -> Pipeline:
    """Reads Parquet files: a file, a folder, or a pattern such as `"data/*.parquet"`."""
    return _files("parquet", location, options)


def read_csv(location: str | os.PathLike[str], **options: Any) -> Pipeline:
    """Reads CSV files: a file, a folder, or a pattern.

    Args:
        location: A file, a folder, or a pattern.
        **options: Options of the format: `delimiter`, `header`, ..
    """
    return _files("csv", location, options)


def read_json(location: str | os.PathLike[str], **options: Any) -> Pipeline:
    """Reads files of JSON lines: a file, a folder, or a pattern."""
    return _files("json", location, options)


def read_arrow(location: str | os.PathLike[str], **options: Any) -> Pipeline:
    """Reads Arrow IPC files: a file, a folder, or a pattern."""
    return _files("arrow", location, options)


def read_avro(location: str | os.PathLike[str], **options: Any) -> Pipeline:
    """Reads Avro files: a file, a folder, or a pattern."""
    return _files("avro", location, options)


def read_webdataset(location: str | os.PathLike[str], **options: Any) -> Pipeline:
    """Reads tar archives of samples in the layout of the `webdataset` library: a file, a folder, or a pattern."""
    return _files("webdataset", location, options)


def mix(
    arms: Iterable[tuple[Pipeline, float]], *, stop: Literal["first", "longest"] = "first"
) -> Pipeline:
    """Mixes pipelines by weight: `mix([(photos, 0.7), (drawings, 0.3)])`.

    Each arm is a pipeline that may only filter rows and compute columns. All arms must have the same columns. Other
    calls (`shuffle`, `batch`, `options`, ..) belong after `mix`: `mix(..).shuffle(..)`.

    Args:
        arms: Pipelines, each with a weight above 0.
        stop: The end of an epoch. `"first"`: when one arm runs out of rows. `"longest"`: when every arm has run out of
            rows at least once; an arm that runs out earlier starts again.
    """
    if stop not in ("first", "longest"):
        raise ValueError(f'stop must be "first" or "longest", found {stop!r}')
    parts = []
    for arm in arms:
        if not (isinstance(arm, (tuple, list)) and len(arm) == 2 and isinstance(arm[0], Pipeline)):
            raise TypeError(f"an arm of a mix must be a pipeline and its weight, found {arm!r}")
        pipeline, weight = arm
        if pipeline._cluster is not None:
            raise PlanError("an arm of a mix cannot have a cluster; call cluster on the mix: mix(..).cluster(..)")
        parts.append((pipeline._source, pipeline._steps, float(weight)))
    return Pipeline(("mix", tuple(parts), stop))


def _files(kind: str, location: str | os.PathLike[str], options: Mapping[str, Any]) -> Pipeline:
    texts = {key: option(value) for key, value in options.items() if value is not None}
    return Pipeline(("files", kind, os.fspath(location), texts))
