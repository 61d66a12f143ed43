"""Forebay: a query compiler for ML input pipelines.

    import forebay as fb
    from forebay import col, fn

    train = (
        fb.images("photos/train")
        .select("label", pixels=fn.normalize(
            fn.random_hflip(fn.random_resized_crop(fn.decode_image(col("image")), 224, 224)), "imagenet"))
        .shuffle(10_000, seed=42)
        .batch(256, drop_remainder=True)
    )
    for batch in train:
        step(batch["pixels"].torch(), batch["label"].torch())

The stream of samples is a pure function of the pipeline, the data, the seed and the epoch. Threads, memory and
rewrites change the speed of the stream, but never its contents.
"""

from . import errors, fn
from ._forebay import __version__
from .batch import Batch, Column
from .cluster import Cluster
from .errors import (
    ClusterError,
    ConfigError,
    DataError,
    Error,
    FunctionError,
    InternalError,
    MemoryLimitError,
    PlanError,
    ResumeError,
    SourceError,
)
from .expr import Expr, col, lit, sql_expr
from .iterator import BatchIterator, Failure, Stats
from .look import Explanation, Preview
from .pipeline import Pipeline
from .ray_cluster import RayCluster, ray
from .read import images, mix, read_arrow, read_avro, read_csv, read_json, read_parquet, read_webdataset, sql
from .schema import Field, Schema
from .udf import udf

__all__ = [
    "Batch",
    "BatchIterator",
    "Cluster",
    "ClusterError",
    "Column",
    "ConfigError",
    "DataError",
    "Error",
    "Explanation",
    "Expr",
    "Failure",
    "Field",
    "FunctionError",
    "InternalError",
    "MemoryLimitError",
    "Pipeline",
    "PlanError",
    "Preview",
    "RayCluster",
    "ResumeError",
    "Schema",
    "SourceError",
    "Stats",
    "__version__",
    "col",
    "errors",
    "fn",
    "images",
    "lit",
    "mix",
    "ray",
    "read_arrow",
    "read_avro",
    "read_csv",
    "read_json",
    "read_parquet",
    "read_webdataset",
    "sql",
    "sql_expr",
    "udf",
]
