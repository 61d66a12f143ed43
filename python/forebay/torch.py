"""PyTorch: a pipeline as a dataset of whole batches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from ._splits import second_split
from .batch import Batch
from .convert import RAISE
from .dataset import PADDED, Dataset, Worker
from .errors import ConfigError, ResumeError
from .state import State

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .pipeline import Pipeline
    from .settings import DatasetSettings

__all__ = ["ForebayDataset", "global_state"]


def _place(rank: int | None, world: int | None) -> tuple[int, int]:
    """Rank and number of ranks: what was given, else what `torch.distributed` or the launcher says."""
    if rank is not None or world is not None:
        if rank is None or world is None:
            raise ValueError("rank and world are given together, or neither")
        return rank, world
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class ForebayDataset(Dataset, torch.utils.data.IterableDataset[dict[str, Any]]):
    """Whole batches as dictionaries of tensors; texts stay lists.

        loader = DataLoader(pipeline.torch(), batch_size=None)

    Each rank has its own batches, and all ranks the same number of them, with the same number of rows where batches
    are counted in rows: in the last steps of an epoch rows repeat for that, and the batch's `"padded"` says which. With
    several loader workers the stream is the same as with none; Forebay computes on all cores by itself, so none is the
    usual choice.

    An iteration is one epoch, or all epochs of the pipeline's `repeat`. The next one goes on with the next
    epoch by itself, with loader workers too, and `set_epoch` chooses another.

    Its iterators have the `state_dict` and `load_state_dict` of torchdata's protocol, so the state of a
    `StatefulDataLoader` is exact: it goes on with the batch after the last one that the loop was given. It is for
    as many loader workers as before, and with workers for as many ranks. `global_state` makes of it a state for
    any number of either, which `resume` takes.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        rank: int | None = None,
        world: int | None = None,
        nulls: Any = RAISE,
        padded: bool | None = None,
        pin_memory: bool = False,
        **settings: Unpack[DatasetSettings],
    ) -> None:
        if rank is not None or world is not None:
            _place(rank, world)
        super().__init__(pipeline, {**settings}, nulls, padded, uneven="pad")
        self._given = (rank, world)
        self._pin_memory = pin_memory

    def state(self) -> dict[str, Any]:
        """Where the latest iteration in this process is, for `resume`; if it is over, the beginning of the next
        one. It is for loops over the dataset itself, or over a plain `DataLoader` without workers. A
        `StatefulDataLoader` keeps states by itself.

        Raises:
            ValueError: No iteration has begun in this process.
        """
        if self._running is None:
            raise ValueError("no iteration has begun here; with loader workers, use a StatefulDataLoader")
        return self._state()

    def resume(self, state: dict[str, Any] | str) -> None:
        """The next iteration goes on from a state, with any number of ranks and loader workers; those after it
        begin with the epochs that follow. A loader whose workers live on must be made after this call.

        Args:
            state: Of `global_state`, of `state`, or of an iterator over the pipeline; or a batch's token, where an
                iteration is one epoch. A dictionary, or JSON.

        Raises:
            ResumeError: It is none.
            ConfigError: It is behind the end of an iteration's epochs.
        """
        self._go_on(state)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._check_splits()
        info = torch.utils.data.get_worker_info()
        return self._begun(None if info is None else Worker(info.id, info.num_workers, info.seed - info.id))

    def _place(self) -> dict[str, int]:
        rank, world = _place(*self._given)
        return {"rank": rank, "world": world}

    def _converted(self, batch: Batch) -> dict[str, Any]:
        tensors = batch.torch(self._nulls)
        mask = self._mask(batch)
        if mask is not None:
            tensors[PADDED] = torch.from_numpy(mask)
        if self._pin_memory and torch.utils.data.get_worker_info() is None and torch.cuda.is_available():
            return {name: _pinned(part) for name, part in tensors.items()}
        return tensors

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if get_spawning_popen() is not None:
            # A worker does not know what the process group of its parent is.
            state["_given"] = _place(*self._given)
            # Nor does it have its parent's stack.
            self._check_splits()
        return state

    def _check_splits(self) -> None:
        world = self._place()["world"]
        splitter = second_split() if world > 1 else None
        if splitter is not None:
            raise ConfigError(
                f"{splitter} splits the batches between the {world} processes once more, so that most of the rows would "
                "be lost: leave the loader out of accelerator.prepare(..), as each process has batches of its own "
                "already; or have the library split the whole stream, with pipeline.torch(rank=0, world=1)"
            )


def global_state(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a `StatefulDataLoader` over a Forebay dataset as one for any number of loader workers and ranks,
    which `ForebayDataset.resume` and `pipeline.torch(resume=..)` take.

        state = global_state(loader.state_dict())
        loader = StatefulDataLoader(pipeline.torch(resume=state), batch_size=None, num_workers=4)

    All ranks have the same one, if all of them have taken the same number of steps; any of them serves all ranks.
    With loader workers and `snapshot_every_n_steps=n` it is the state of the last snapshot with the number of steps
    since. If the number of ranks differs too, each rank computes one batch more to pass over them.

    Args:
        state: What `state_dict` of the loader gave.

    Raises:
        ResumeError: It is the state of a loader over something else.
    """
    ahead = 0
    try:
        if "_snapshot" in state:
            snapshot = state["_snapshot"]
            last = snapshot["_worker_snapshots"][f"worker_{snapshot['_last_yielded_worker_id']}"]
            ahead = state["_steps_since_snapshot"]
        else:
            last = state
        lane = State.of(last["fetcher_state"]["dataset_iter_state"])
        is_over = state["_iterator_finished"]
    except (KeyError, TypeError) as error:
        raise ResumeError("this is no state of a StatefulDataLoader over a Forebay dataset") from error
    if is_over:
        # The next iteration is another one.
        seed = lane.seed if lane.token is None else json.loads(lane.token)["stream"]["seed"]
        return State(None, lane.first_epoch + (lane.epochs or 1), lane.epochs, seed).to_dict()
    # The other workers come before the one that gave the last batch has another turn.
    steps = lane.turn - (lane.turns - 1) + ahead
    return replace(lane, turn=steps, turns=1).to_dict()


def _pinned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, list):
        return [_pinned(part) for part in value]
    if isinstance(value, dict):
        return {name: _pinned(part) for name, part in value.items()}
    return value
