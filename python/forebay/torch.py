"""A PyTorch dataset over a pipeline, whose elements are whole batches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from ._splits import Reader, counter, found
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

#: Advice for errors about a library that splits batches between processes, which avoids the split.
_OWN = "leave the loader out of accelerator.prepare(..), and give each process batches of its own with pipeline.torch()"


def _place(rank: int | None, world: int | None) -> tuple[int, int]:
    """Returns the rank and the number of ranks: the arguments, otherwise those of `torch.distributed`, otherwise those
    in the environment variables RANK and WORLD_SIZE."""
    if rank is not None or world is not None:
        if rank is None or world is None:
            raise ValueError(f"rank and world must be set together, found rank={rank} and world={world}")
        return rank, world
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class ForebayDataset(Dataset, torch.utils.data.IterableDataset[dict[str, Any]]):
    """A dataset of whole batches, as dictionaries of tensors. Texts become lists.

        loader = DataLoader(pipeline.torch(), batch_size=None)

    Each rank has its own batches. All ranks have the same number of batches and, if batches are counted in rows, the
    same number of rows in each step. To achieve this, rows are repeated in the last steps of an epoch, and the batch's
    `"padded"` marks the repeated rows. The stream is the same with any number of loader workers. Forebay computes on
    all cores by itself, so loader workers are rarely needed.

    An iteration is one epoch, or all epochs of the pipeline's `repeat`. The next iteration continues with the next
    epoch, unless `set_epoch` chooses another epoch. This also holds with loader workers.

    The dataset's iterators have the `state_dict` and `load_state_dict` of torchdata's protocol, so the state of a
    `StatefulDataLoader` is exact: a loader that loads the state resumes with the batch after the last one that the loop
    received. Such a state requires the same number of loader workers and, with workers, the same number of ranks.
    `global_state` converts the state to a state for any numbers, which `resume` accepts.
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
        #: `_reader` is the library that reads the latest iteration in this process. `_parents_reader` is the library
        #: that the parent process of this loader worker has detected.
        self._reader: Reader | None = None
        self._parents_reader: Reader | None = None

    def state(self) -> dict[str, Any]:
        """Returns the state of the latest iteration in this process, for `resume`. If this iteration is over, returns
        the state at the beginning of the next iteration.

        Use this method for loops over the dataset itself, or over a plain `DataLoader` without workers. A
        `StatefulDataLoader` has its own `state_dict`.

        Raises:
            ValueError: No iteration has started in this process.
            ConfigError: A library reads ahead of the loop.
        """
        self._check_ahead()
        if self._running is None:
            raise ValueError("no iteration has started in this process; with loader workers, use a StatefulDataLoader")
        return self._state()

    def resume(self, state: dict[str, Any] | str) -> None:
        """Makes the next iteration resume from a state, with any number of ranks and loader workers. Later iterations
        continue with the epochs after it. A loader with persistent workers must be created after this call.

        Args:
            state: The result of `global_state`, of `state`, or of an iterator's `state_dict`, as a dictionary or as
                JSON. If an iteration is one epoch, the token of a batch is accepted, too.

        Raises:
            ResumeError: The state is malformed.
            ConfigError: The state is after the end of an iteration's epochs.
        """
        self._go_on(state)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, also in persistent loader workers.

        If the next iteration is set to resume from a state in this epoch, the state is kept. A state in another epoch
        is discarded, with a warning.

        Raises:
            ConfigError: The caller is a library that counts epochs by itself, and the call would discard the state.
        """
        epoch = int(epoch)
        state = self._pending()
        if state is not None:
            epochs = {state.epoch + 1} if state.is_over else {state.epoch, state.first_epoch}
            by = None if epoch in epochs else counter()
            if by is not None:
                raise ConfigError(
                    f"{by} counts the epochs by itself and is at epoch {epoch}, but the next iteration must have "
                    f"epoch {max(epochs)} to resume from its state: call set_epoch({max(epochs)}) of the prepared "
                    "loader first"
                )
        super().set_epoch(epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = torch.utils.data.get_worker_info()
        self._reader = self._found_reader() or (None if info is None else self._parents_reader)
        if self._reader is not None and self._reader.deals and info is not None and info.num_workers > 1:
            raise ConfigError(
                f"{self._reader.name} splits the stream of {info.num_workers} loader workers between "
                f"{self._reader.processes} processes, and no worker can check whether rows are lost: set "
                f"num_workers=0, or {_OWN}"
            )
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
            # A spawned loader worker has no access to the process group of its parent, so the rank is determined here.
            state["_given"] = _place(*self._given)
            # A loader worker that is not forked does not have the call stack of its parent, either, so the library is
            # detected here.
            reader = self._found_reader()
            state["_parents_reader"] = None if reader is None else reader.sent()
        state["_reader"] = None
        return state

    def _found_reader(self) -> Reader | None:
        """Returns the library that reads the dataset, such as Accelerate; None if no known library does.

        Raises:
            ConfigError: The library would split batches that are already split between the ranks.
        """
        world, reader = self._place()["world"], found()
        if reader is not None and reader.splits and world > 1:
            raise ConfigError(
                f"{reader.name} splits the batches between the {world} processes once more, although each process "
                "already has its own batches, so most rows would be lost: leave the loader out of "
                "accelerator.prepare(..), or let the library split the whole stream of pipeline.torch(rank=0, world=1)"
            )
        return reader

    def _check_follows(self, sizes: tuple[int, int] | None) -> None:
        if sizes is None:
            # A loader may have created this iteration before it started to read, so this is another attempt to detect
            # the library.
            self._reader = self._reader or self._found_reader()
            return
        reader = self._reader
        if reader is None or not reader.deals:
            return
        first, last = sizes
        if first != last:
            why = f"all batches but the last must have {first} rows, found {last}"
        elif reader.splits_batches and last % reader.processes:
            why = f"the rows of each batch but the last must be divisible by {reader.processes}, found {last}"
        else:
            return
        raise ConfigError(
            f"{reader.name} splits the stream between {reader.processes} processes and would lose rows: {why}; make "
            f"batches of one size (drop_remainder or pad_remainder with .batch), or {_OWN}"
        )

    def _check_state(self) -> None:
        if self._reader is not None and self._reader.deals:
            self._check_ahead()

    def _check_ahead(self) -> None:
        if self._reader is not None and self._reader.is_ahead():
            raise ConfigError(
                f"{self._reader.name} reads ahead of the loop, so a run that resumes from a state would skip batches "
                f"that the loop has not received: take states at the end of an epoch, or {_OWN}"
            )


def global_state(state: dict[str, Any]) -> dict[str, Any]:
    """Converts the state of a `StatefulDataLoader` over a Forebay dataset to a state for any number of loader workers
    and ranks, which `ForebayDataset.resume` and `pipeline.torch(resume=..)` accept.

        state = global_state(loader.state_dict())
        loader = StatefulDataLoader(pipeline.torch(resume=state), batch_size=None, num_workers=4)

    All ranks that have taken the same number of steps have the same state, so the state of any rank works for all. With
    loader workers and `snapshot_every_n_steps=n`, the result is the state of the last snapshot plus the number of steps
    since then. If a run with another number of ranks resumes from it, each rank computes one extra batch to skip these
    steps.

    Args:
        state: The result of the loader's `state_dict`.

    Raises:
        ResumeError: `state` does not come from a `StatefulDataLoader` over a Forebay dataset.
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
        raise ResumeError("not a state of a StatefulDataLoader over a Forebay dataset") from error
    if is_over:
        # The result is the state at the beginning of the next iteration.
        seed = lane.seed if lane.token is None else json.loads(lane.token)["stream"]["seed"]
        return State(None, lane.first_epoch + (lane.epochs or 1), lane.epochs, seed).to_dict()
    # `lane.turn` counts the steps to the next batch of the worker that delivered the last batch. Before that batch,
    # each of the other `lane.turns - 1` workers delivers one.
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
