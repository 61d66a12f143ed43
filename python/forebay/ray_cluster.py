"""Clusters of Ray, whose actors compute the rows of pipelines."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _forebay
from .errors import ConfigError

if TYPE_CHECKING:
    from .ray_actors import Actors

__all__ = ["RayCluster", "ray"]

#: The group of an actor's threads for calls that do not wait for leases.
CONTROL = "control"


@dataclass(frozen=True)
class RayCluster:
    """Actors of a Ray cluster that read the data and compute the rows of pipelines. `forebay.ray` creates it.

    A `RayCluster` is only a description, so it can be pickled, and creating one starts nothing. The actors start with
    the first use, and all pipelines of a process with the same description share them. They end with the process, or
    by `stop`.
    """

    num_workers: int
    num_cpus: float = 1
    resources: tuple[tuple[str, float], ...] = ()
    threads: int = 1
    memory_limit: int | str | None = None
    data: tuple[tuple[str, str], ...] = ()
    max_restarts: int = -1

    @property
    def slots(self) -> int:
        """The number of leases that an actor computes at the same time: one more than it has threads, so that none of
        these waits while a result leaves."""
        return self.threads + 1

    def stop(self) -> None:
        """Ends the actors of this process, and the runs that use them. The next use starts new ones."""
        with _LOCK:
            started = _STARTED.pop((os.getpid(), self), None)
        if started is not None:
            started[1].stop()

    def _engine(self) -> _forebay.Cluster:
        """Returns this process's client of the actors, which are started if necessary."""
        if multiprocessing.parent_process() is not None:
            raise ConfigError(
                "forebay.ray works in the process that uses Ray, not in a child of it; "
                "use DataLoader(.., num_workers=0): the actors prepare the rows, so workers of a DataLoader gain nothing"
            )
        key = (os.getpid(), self)
        with _LOCK:
            # Actors that all died for good, or whose Ray has ended, are of no use.
            if key not in _STARTED or _STARTED[key][1].are_gone():
                try:
                    from .ray_actors import Actors

                    actors = Actors(self)
                except ImportError as error:
                    raise ConfigError("forebay.ray needs Ray: pip install ray") from error
                _STARTED[key] = (_forebay.Cluster.of_ray(actors), actors)
            return _STARTED[key][0]

    def _options(self) -> dict[str, Any]:
        """Returns the options of the actors, as `ray.remote` takes them."""
        return {
            "num_cpus": self.num_cpus,
            "resources": dict(self.resources),
            "max_restarts": self.max_restarts,
            # The client has another actor compute the lease of one that died, and counts how many died of it.
            "max_task_retries": 0,
            "max_concurrency": self.slots,
            "concurrency_groups": {CONTROL: 1},
        }

    def __str__(self) -> str:
        return f"ray({self.num_workers} workers)"


_LOCK = threading.Lock()
#: The clients of this process and, if it was forked, those of its parent, which are never used or freed here.
#: `_LOCK` guards them.
_STARTED: dict[tuple[int, RayCluster], tuple[_forebay.Cluster, Actors]] = {}


def ray(
    num_workers: int,
    *,
    num_cpus: float = 1,
    resources: Mapping[str, float] | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    data: Mapping[str, str] | None = None,
    max_restarts: int = -1,
) -> RayCluster:
    """Describes actors of a Ray cluster that compute the rows of pipelines.

        train = fb.images("/mnt/photos").select(..).shuffle(10_000, seed=42).batch(256)
        loader = DataLoader(train.cluster(fb.ray(num_workers=8)).torch(), batch_size=None)

    The batches are those of a run in one process, whatever the number of actors, and if some of them die. Ray has to be
    installed (`pip install ray`), and this package on all nodes. Ray is initialised with the first use, unless it is
    already: `ray.init(..)` before that chooses the cluster.

    Args:
        num_workers: Number of actors.
        num_cpus: Cores that each actor reserves.
        resources: Custom resources of Ray that each actor reserves, such as `{"cpu_node": 1}`.
        threads: Number of computing threads of each pipeline in an actor. By default, `num_cpus` rounded up.
        memory_limit: Memory limit of each pipeline in an actor, as bytes or as a text such as `"4GiB"`.
        data: Names of folders in pipelines, with the names that the folders have on the nodes.
        max_restarts: Number of times that Ray restarts an actor that died; -1 for no limit.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, found {num_workers}")
    threads = max(1, math.ceil(num_cpus)) if threads is None else threads
    if memory_limit is not None:
        _forebay.check_settings({"memory_limit": memory_limit})
    return RayCluster(
        num_workers=num_workers,
        num_cpus=num_cpus,
        resources=tuple(sorted((resources or {}).items())),
        threads=threads,
        memory_limit=memory_limit,
        data=tuple((data or {}).items()),
        max_restarts=max_restarts,
    )
