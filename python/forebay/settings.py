"""Settings of runs, for type checkers and editors. `Pipeline.run` documents the settings. None selects the default."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from .cluster import Cluster
    from .ray_cluster import RayCluster

__all__ = ["ClusterAccess", "DatasetSettings", "RankSettings", "RunSettings"]


class ClusterAccess(TypedDict, total=False):
    """Access to a cluster, and compression. `forebay.Cluster` documents it."""

    token: str | None
    tls_cert: str | os.PathLike[str] | None
    tls_key: str | os.PathLike[str] | None
    tls_ca: str | os.PathLike[str] | None
    insecure: bool
    compression: Literal["none", "lz4", "zstd"]


class DatasetSettings(TypedDict, total=False):
    """Settings of a PyTorch dataset. `Pipeline.torch` has separate arguments for the rank and for the state to resume
    from."""

    epochs: int | None
    first_epoch: int | None
    seed: int | None
    threads: int | None
    memory_limit: int | str | None
    limit_batches: int | None
    optimize: bool | None
    plan: str | None
    segment_rows: int | None
    uneven: Literal["pad", "drop", "keep"] | None
    cluster: str | Cluster | RayCluster | None


class RankSettings(DatasetSettings, total=False):
    """Settings of a dataset for NumPy, including its rank."""

    rank: int | None
    world: int | None


class RunSettings(RankSettings, total=False):
    """Settings of a run."""

    resume: dict[str, Any] | str | bytes | None
    turn: int | None
    turns: int | None
