"""Settings of runs, for type checkers and editors. `Pipeline.run` says what they mean; None is as if not given."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = ["DatasetSettings", "RankSettings", "RunSettings"]


class DatasetSettings(TypedDict, total=False):
    """Of a PyTorch dataset, which has its place and its state otherwise."""

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


class RankSettings(DatasetSettings, total=False):
    """Of a dataset that is told which rank it is."""

    rank: int | None
    world: int | None


class RunSettings(RankSettings, total=False):
    """Of a run."""

    resume: dict[str, Any] | str | bytes | None
    turn: int | None
    turns: int | None
