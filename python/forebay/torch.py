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

#: A remedy that works without the library splitting batches.
_OWN = "leave the loader out of accelerator.prepare(..), and give each process batches of its own with pipeline.torch()"


def _place(rank: int | None, world: int | None) -> tuple[int, int]:
    """Returns rank and number of ranks: the given ones, else those of `torch.distributed` or of the launcher."""
    if rank is not None or world is not None:
        if rank is None or world is None:
            raise ValueError("rank and world must be given together")
        return rank, world
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class ForebayDataset(Dataset, torch.utils.data.IterableDataset[dict[str, Any]]):
    """A dataset of whole batches, as dictionaries of tensors. Texts become lists.

        loader = DataLoader(pipeline.torch(), batch_size=None)

    Each rank has its own batches. All ranks have the same number of batches, with the same number of rows if batches
    are counted in rows: in the last steps of an epoch, rows are repeated to achieve this, and the batch's `"padded"`
    marks them. With several loader workers, the stream is the same as without any. Forebay computes on all cores by
    itself, so loader workers are rarely needed.

    An iteration is one epoch, or all epochs of the pipeline's `repeat`. The next iteration continues with the next
    epoch, with loader workers too, unless `set_epoch` chooses another.

    The dataset's iterators have the `state_dict` and `load_state_dict` of torchdata's protocol, so the state of a
    `StatefulDataLoader` is exact: it resumes with the batch after the last one that the loop received. Such a state
    requires the same number of loader workers and, with workers, of ranks. `global_state` converts it to a state for
    any numbers, which `resume` accepts.
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
        #: The library that reads the latest iteration in this process, and the one that the process which started this
        #: loader worker knew.
        self._reader: Reader | None = None
        self._parents_reader: Reader | None = None

    def state(self) -> dict[str, Any]:
        """Returns the state of the latest iteration in this process, for `resume`. If the iteration is over, it is the
        state at the beginning of the next one.

        Use this method for loops over the dataset itself, or over a plain `DataLoader` without workers. A
        `StatefulDataLoader` keeps states by itself.

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
        have the epochs that follow. A loader with persistent workers must be made after this call.

        Args:
            state: The result of `global_state`, of `state`, or of an iterator's `state_dict`; or the token of a batch,
                if an iteration is one epoch. Each as a dictionary, or as JSON.

        Raises:
            ResumeError: The state is malformed.
            ConfigError: The state is after the end of an iteration's epochs.
        """
        self._go_on(state)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, also in persistent loader workers.

        If the next iteration is to resume from a state of this epoch, it still does. A state of another epoch is
        discarded, with a warning.

        Raises:
            ConfigError: The call comes from a library that counts epochs by itself, and would discard the state.
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
            # A loader worker does not know the process group of its parent.
            state["_given"] = _place(*self._given)
            # A loader worker that is not forked does not have its parent's stack, either.
            reader = self._found_reader()
            state["_parents_reader"] = None if reader is None else reader.sent()
        state["_reader"] = None
        return state

    def _found_reader(self) -> Reader | None:
        """Returns the known library that reads the dataset; None if there is none.

        Raises:
            ConfigError: The library would split batches that are already split between the ranks.
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
            # A loader may have made this iteration before it started to read, so the library is looked for again.
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
    """Converts the state of a `StatefulDataLoader` over a Forebay dataset to one for any number of loader workers and
    ranks, which `ForebayDataset.resume` and `pipeline.torch(resume=..)` accept.

        state = global_state(loader.state_dict())
        loader = StatefulDataLoader(pipeline.torch(resume=state), batch_size=None, num_workers=4)

    All ranks that have taken the same number of steps have the same state, so the state of any rank works for all. With
    loader workers and `snapshot_every_n_steps=n`, it is the state of the last snapshot plus the number of steps since.
    If the number of ranks differs, too, each rank computes one extra batch to skip these steps.

    Args:
        state: The result of the loader's `state_dict`.

    Raises:
        ResumeError: The state is of a loader over another dataset.
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
        # The state is that of the beginning of the next iteration.
        seed = lane.seed if lane.token is None else json.loads(lane.token)["stream"]["seed"]
        return State(None, lane.first_epoch + (lane.epochs or 1), lane.epochs, seed).to_dict()
    # All other workers take their turn before the worker that delivered the last batch does so again.
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
