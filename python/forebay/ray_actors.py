"""Actors of Ray that compute leases, and the client's side of them.

The client cuts a stream into leases and puts their rows in order; an actor computes one lease at a time on each of its
threads. Which actor computes what does not change the stream.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from . import _forebay

if TYPE_CHECKING:
    from .ray_cluster import RayCluster

__all__ = ["Actor", "Actors"]

#: Number of blobs (descriptions of jobs) that an actor, and the client of actors, keeps.
BLOBS = 64
#: Time after which runs fail if no actor has started. An autoscaler may have to start machines first.
START_SECONDS = 600
#: The group of an actor's threads for calls that do not wait for leases.
CONTROL = "control"


class Actor:
    """The class of the actors. Ray creates its objects, each in a process of its own."""

    def __init__(self, threads: int | None, memory_limit: int | str | None, data: list[tuple[str, str]]) -> None:
        self._worker = _forebay.RayWorker(threads, memory_limit, data, sys.executable)
        self._blobs: OrderedDict[str, bytes] = OrderedDict()

    def ready(self) -> None:
        """Returns as soon as the actor runs."""

    def compute(self, number: int, payload: bytes, blobs: list[tuple[str, list[Any]]]) -> tuple[Any, ...]:
        """Computes a lease. `blobs` has references to blobs that this actor may lack."""
        import ray

        for name, (reference,) in blobs:
            if name not in self._blobs:
                self._blobs[name] = ray.get(reference)
                while len(self._blobs) > BLOBS:
                    self._blobs.popitem(last=False)
        result, cause = self._worker.compute(number, payload, self._blobs.get)
        if result is None:
            return None, None, cause
        import numpy as np

        summary, rows = result
        # Ray carries the memory of arrays without another copy.
        return summary, np.asarray(rows), None

    def cancel(self, number: int) -> None:
        self._worker.cancel(number)


class Outcome(Protocol):
    """Takes the outcome of a lease (`python/src/ray_engine.rs`)."""

    def computed(self, worker: str, summary: bytes, rows: bytes) -> None: ...
    def unfit(self, worker: str, cause: str) -> None: ...
    def lost(self, worker: str, cause: str) -> None: ...
    def unavailable(self, cause: str) -> None: ...
    def refused(self, cause: str) -> None: ...


@dataclass(order=True)
class Lease:
    """A lease without an outcome. Leases are ordered by their places in their streams."""

    order: int
    number: int
    payload: bytes = field(compare=False)
    affinity: int = field(compare=False)
    #: Names of the actors that must not compute the lease, because they failed it before.
    avoid: frozenset[str] = field(compare=False)
    outcome: Outcome = field(compare=False)
    #: The actor that computes the lease; None while the lease waits for one.
    place: Place | None = field(compare=False, default=None)


class Place:
    """An actor, as its client sees it."""

    def __init__(self, index: int, handle: Any) -> None:
        self.index = index
        self.handle = handle
        #: Number of times that the actor was lost.
        self.losses = 0
        #: True from the time when the actor answered until it is lost.
        self.is_ready = False
        #: Number of leases that the actor computes.
        self.busy = 0
        #: Names of the blobs that the actor got.
        self.blobs: set[str] = set()

    @property
    def name(self) -> str:
        """The name of the actor, which is new after each restart, because a restarted actor has forgotten all."""
        return f"ray-{self.index}.{self.losses}"

    def weight(self, affinity: int) -> bytes:
        """Returns the weight of this actor for an affinity key. Leases with the key go to the actor of the largest
        weight, and few of them move when an actor comes or goes (rendezvous hashing; Thaler and Ravishankar, 1998)."""
        return blake2b(f"{self.index}/{affinity}".encode(), digest_size=8).digest()

    def forget(self) -> None:
        """Notes that the actor was lost."""
        self.losses += 1
        self.is_ready = False
        self.busy = 0
        self.blobs.clear()


class Actors:
    """Starts the actors of a cluster, and passes leases to them. Any thread may call it."""

    def __init__(self, cluster: RayCluster) -> None:
        import ray

        self._ray = ray
        self._slots = cluster.slots
        self._needs = {"CPU": cluster.num_cpus, **dict(cluster.resources)}
        self._lock = threading.Lock()
        #: References to the blobs, by their names.
        self._blobs: OrderedDict[str, Any] = OrderedDict()
        #: All leases without outcomes by their numbers, and a heap of those that wait.
        self._leases: dict[int, Lease] = {}
        self._waiting: list[Lease] = []
        self._next = 0
        #: The time since which no actor has been ready; None if one is.
        self._idle_since: float | None = time.monotonic()
        remote = ray.remote(**cluster._options())(Actor)
        arguments = (cluster.threads, cluster.memory_limit, list(cluster.data))
        self._places = [Place(index, remote.remote(*arguments)) for index in range(cluster.num_workers)]
        for place in tuple(self._places):
            self._await_start(place)

    def workers(self) -> list[str]:
        """Returns the names of the actors that are ready. Clients with leases call it every second, and leases fail then if
        no actor has started for long."""
        with self._lock:
            names = [place.name for place in self._places if place.is_ready]
            is_late = self._idle_since is not None and time.monotonic() - self._idle_since > START_SECONDS
            failed = self._drop_waiting() if is_late else []
        if failed:
            free = {name: amount for name, amount in self._ray.available_resources().items() if ":" not in name}
            cause = f"no actor has started for {START_SECONDS} s: each needs {self._needs}, and Ray has {free} free"
            for lease in failed:
                lease.outcome.refused(cause)
        return names

    def put(self, name: str, blob: bytes) -> None:
        """Makes a blob available to all actors."""
        reference = self._ray.put(blob)
        with self._lock:
            self._blobs[name] = reference
            self._blobs.move_to_end(name)
            while len(self._blobs) > BLOBS:
                self._blobs.popitem(last=False)
            # An actor that missed the blob was restarted, or has dropped it.
            for place in self._places:
                place.blobs.discard(name)

    def submit(self, payload: bytes, affinity: int, order: int, avoid: list[str], outcome: Outcome) -> int:
        """Has an actor compute a lease. Returns the number by which `cancel` knows the lease."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            lease = Lease(order, number, payload, affinity, frozenset(avoid), outcome)
            self._leases[number] = lease
            heapq.heappush(self._waiting, lease)
        self._assign()
        return number

    def cancel(self, number: int) -> None:
        """Cancels a lease, whose outcome nobody waits for."""
        with self._lock:
            lease = self._leases.get(number)
            if lease is None:
                return
            if lease.place is None:
                del self._leases[number]
                self._waiting.remove(lease)
                heapq.heapify(self._waiting)
                return
            handle = lease.place.handle
        handle.cancel.options(concurrency_group=CONTROL).remote(number)

    def stop(self) -> None:
        """Ends the actors."""
        with self._lock:
            places, self._places = self._places, []
        for place in places:
            self._ray.kill(place.handle)

    def _assign(self) -> None:
        """Has actors that have room compute the leases that wait, in stream order."""
        assigned: list[tuple[Lease, Place, str, list[tuple[str, list[Any]]]]] = []
        stranded: list[Lease] = []
        with self._lock:
            kept: list[Lease] = []
            while self._waiting:
                lease = heapq.heappop(self._waiting)
                fit = [place for place in self._places if place.name not in lease.avoid]
                free = [place for place in fit if place.is_ready and place.busy < self._slots]
                if not fit:
                    del self._leases[lease.number]
                    stranded.append(lease)
                elif not free:
                    kept.append(lease)
                else:
                    place = max(free, key=lambda place: place.weight(lease.affinity))
                    place.busy += 1
                    lease.place = place
                    # In a list, a reference stays a reference.
                    blobs = [(name, [blob]) for name, blob in self._blobs.items() if name not in place.blobs]
                    assigned.append((lease, place, place.name, blobs))
            # In order, a list is a heap.
            self._waiting = kept
        for lease in stranded:
            lease.outcome.unavailable("no actor is left that can compute the lease")
        for lease, place, name, blobs in assigned:
            compute = place.handle.compute.remote(lease.number, lease.payload, blobs)
            sent = [name for name, _ in blobs]
            compute.future().add_done_callback(partial(self._done, lease, place, name, sent))

    def _done(self, lease: Lease, place: Place, name: str, sent: list[str], done: Future[tuple[Any, ...]]) -> None:
        error = done.exception()
        is_lost = error is not None and not isinstance(error, self._ray.exceptions.RayTaskError)
        with self._lock:
            self._leases.pop(lease.number, None)
            is_current = place.name == name
            if is_current and is_lost:
                place.forget()
                self._note_ready()
            elif is_current:
                place.busy -= 1
                place.blobs.update(sent)
        if is_current and is_lost:
            self._await_start(place)
        if error is None:
            summary, rows, cause = done.result()
            if cause is None:
                lease.outcome.computed(name, summary, rows.tobytes())
            else:
                lease.outcome.unfit(name, cause)
        elif is_lost:
            lease.outcome.lost(name, str(error))
        else:
            lease.outcome.unfit(name, str(error))
        self._assign()

    def _await_start(self, place: Place) -> None:
        # Ray keeps the call until the actor has started again.
        ready = place.handle.ready.options(concurrency_group=CONTROL, max_task_retries=-1).remote()
        ready.future().add_done_callback(partial(self._started, place))

    def _started(self, place: Place, done: Future[None]) -> None:
        error = done.exception()
        with self._lock:
            place.is_ready = error is None
            # The actor cannot start, or was killed for good.
            if error is not None and place in self._places:
                self._places.remove(place)
            self._note_ready()
            failed = [] if self._places else self._drop_waiting()
        for lease in failed:
            lease.outcome.refused(f"no actor is left: {error}")
        self._assign()

    def _note_ready(self) -> None:
        if any(place.is_ready for place in self._places):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()

    def _drop_waiting(self) -> list[Lease]:
        leases, self._waiting = self._waiting, []
        for lease in leases:
            del self._leases[lease.number]
        return leases
