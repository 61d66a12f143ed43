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

#: What never needs a library that splits.
_OWN = "leave the loader out of accelerator.prepare(..), and give each process batches of its own with pipeline.torch()"


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
        #: The library that reads this process's latest iteration, and the one that was known in the process that this
        #: one is a loader worker of.
        self._reader: Reader | None = None
        self._parents_reader: Reader | None = None

    def state(self) -> dict[str, Any]:
        """Where the latest iteration in this process is, for `resume`; if it is over, the beginning of the next
        one. It is for loops over the dataset itself, or over a plain `DataLoader` without workers. A
        `StatefulDataLoader` keeps states by itself.

        Raises:
            ValueError: No iteration has begun in this process.
            ConfigError: A library reads ahead of the loop.
        """
        self._check_ahead()
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

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins with this epoch, also in loader workers that live on.

        If the next iteration is to go on from a state of this epoch, it does. A state of another epoch is given up,
        with a warning.

        Raises:
            ConfigError: A library that counts the epochs by itself would have the state given up.
        """
        epoch = int(epoch)
        state = self._pending()
        if state is not None:
            epochs = {state.epoch + 1} if state.is_over else {state.epoch, state.first_epoch}
            by = None if epoch in epochs else counter()
            if by is not None:
                raise ConfigError(
                    f"{by} counts the epochs by itself and is at epoch {epoch}, so that the state of epoch "
                    f"{max(epochs)}, from which the iteration is to go on, would be given up: call "
                    f"set_epoch({max(epochs)}) of the prepared loader first"
                )
        super().set_epoch(epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = torch.utils.data.get_worker_info()
        self._reader = self._found_reader() or (None if info is None else self._parents_reader)
        if self._reader is not None and self._reader.deals and info is not None and info.num_workers > 1:
            raise ConfigError(
                f"{self._reader.name} splits the stream of {info.num_workers} loader workers between "
                f"{self._reader.processes} processes, and none of the workers can tell whether all rows get there: set "
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
            # A worker does not know what the process group of its parent is.
            state["_given"] = _place(*self._given)
            # Nor does it have its parent's stack.
            reader = self._found_reader()
            state["_parents_reader"] = None if reader is None else reader.sent()
        state["_reader"] = None
        return state

    def _found_reader(self) -> Reader | None:
        """The library that reads the dataset, if it is one that is known.

        Raises:
            ConfigError: It splits what is split between the ranks already.
        """
        world, reader = self._place()["world"], found()
        if reader is not None and reader.splits and world > 1:
            raise ConfigError(
                f"{reader.name} splits the batches between the {world} processes once more, so that most of the rows would "
                "be lost: leave the loader out of accelerator.prepare(..), as each process has batches of its own "
                "already; or have the library split the whole stream, with pipeline.torch(rank=0, world=1)"
            )
        return reader

    def _check_follows(self, sizes: tuple[int, int] | None) -> None:
        if sizes is None:
            # A loader may have made the iterator before it read.
            self._reader = self._reader or self._found_reader()
            return
        reader = self._reader
        if reader is None or not reader.deals:
            return
        first, last = sizes
        if first != last:
            why = f"a batch of {last} rows is not the last one, and others have {first}"
        elif reader.splits_batches and last % reader.processes:
            why = f"a batch of {last} rows is not the last one, and {last} is not divisible by {reader.processes}"
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
                f"{self._reader.name} reads ahead of the loop, so the dataset is not where the loop is: take states at "
                f"the end of an epoch, or {_OWN}"
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
