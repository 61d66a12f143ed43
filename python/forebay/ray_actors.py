"""Actors of Ray that compute leases, and the client's side of them.

The client cuts a stream into leases and puts their rows in order. An actor computes some leases at the same time. Which
actor computes what does not change the stream.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from . import _forebay
from .ray_cluster import CONTROL

if TYPE_CHECKING:
    from .ray_cluster import RayCluster

__all__ = ["Actor", "Actors"]

#: Bytes of the blobs (descriptions of jobs, and code of functions) that an actor, and the client of actors, keeps.
BLOB_BYTES = 512 << 20
#: Time after which runs fail if no actor has started. An autoscaler may have to start machines first.
START_SECONDS = 600

T = TypeVar("T")


class Blobs(Generic[T]):
    """The blobs that were used last, or references to them, by their hashes. Some thousand bytes count for each."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def add(self, name: str, blob: T, size: int) -> None:
        self._kept[name] = (blob, size + 4096)
        self._bytes += size + 4096
        while self._bytes > BLOB_BYTES and len(self._kept) > 1:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= dropped

    def get(self, name: str) -> T | None:
        if name not in self._kept:
            return None
        self._kept.move_to_end(name)
        return self._kept[name][0]


class Actor:
    """The class of the actors. Ray creates its objects, each in a process of its own."""

    def __init__(self, threads: int, memory_limit: int | str | None, data: list[tuple[str, str]]) -> None:
        try:
            from ._by_value import versions

            of_interpreter: tuple[str, str] | None = versions()
        except ImportError:
            of_interpreter = None
        self._worker = _forebay.RayWorker(threads, memory_limit, data, sys.executable, of_interpreter)
        self._blobs: Blobs[bytes] = Blobs()
        self._lock = threading.Lock()

    def ready(self) -> None:
        """Returns as soon as the actor runs."""

    def compute(self, number: int, payload: bytes, blobs: list[tuple[str, list[Any]]]) -> tuple[Any, ...]:
        """Computes a lease. `blobs` has references to blobs that this actor may lack."""
        import ray

        for name, (reference,) in blobs:
            if self._blob(name) is None:
                blob = ray.get(reference)
                with self._lock:
                    if self._blobs.get(name) is None:
                        self._blobs.add(name, blob, len(blob))
        result, cause = self._worker.compute(number, payload, self._blob)
        if result is None:
            return None, None, cause
        import numpy as np

        summary, rows = result
        # Ray carries the memory of arrays without another copy.
        return summary, np.asarray(rows), None

    def cancel(self, number: int) -> None:
        self._worker.cancel(number)

    def _blob(self, name: str) -> bytes | None:
        with self._lock:
            return self._blobs.get(name)


class Outcome(Protocol):
    """Takes the outcome of a lease (`python/src/ray/engine.rs`)."""

    def computed(self, worker: str, summary: bytes, rows: bytes) -> None: ...
    def unfit(self, worker: str, cause: str) -> None: ...
    def lost(self, worker: str, cause: str) -> None: ...
    def unavailable(self, cause: str) -> None: ...
    def refused(self, cause: str) -> None: ...


@dataclass
class Lease:
    """A lease without an outcome."""

    number: int
    payload: bytes
    outcome: Outcome
    #: The actor that computes the lease, and its name at that time; None while the lease waits for one.
    place: tuple[Place, str] | None = None


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
        #: Names of blobs that go to the actor with its next lease, because an actor missed them.
        self.wanted: set[str] = set()

    @property
    def name(self) -> str:
        """The name of the actor, which is new after each restart, because a restarted actor has forgotten all."""
        return f"ray-{self.index}.{self.losses}"

    def lose(self) -> None:
        """Notes that the actor was lost."""
        self.losses += 1
        self.is_ready = False
        self.busy = 0


class Actors:
    """Starts the actors of a cluster, and passes leases to them. Any thread may call it.

    No outcome is set, and Ray is not called, while the lock is held.
    """

    def __init__(self, cluster: RayCluster) -> None:
        import ray

        self._ray = ray
        self._slots = cluster.slots
        self._needs = {"CPU": cluster.num_cpus, **dict(cluster.resources)}
        self._lock = threading.Lock()
        self._blobs: Blobs[Any] = Blobs()
        #: All leases without outcomes by their numbers, and those of them that wait for an actor.
        self._leases: dict[int, Lease] = {}
        self._waiting = _forebay.LeaseQueue()
        self._next = 0
        #: Places leases again that wait for an actor which has their data staged; None if none does.
        self._alarm: threading.Timer | None = None
        remote = ray.remote(**cluster._options())(Actor)
        arguments = (cluster.threads, cluster.memory_limit, list(cluster.data))
        self._places = [Place(index, remote.remote(*arguments)) for index in range(cluster.num_workers)]
        #: Ends runs if no actor starts; None while one is ready.
        self._timer: threading.Timer | None = None
        with self._lock:
            self._watch_starts()
        for place in tuple(self._places):
            self._await_start(place)

    def workers(self) -> list[str]:
        """Returns the names of the actors that are ready."""
        with self._lock:
            return [place.name for place in self._places if place.is_ready]

    def put(self, name: str, blob: bytes) -> None:
        """Makes a blob, which an actor misses, available to all actors."""
        with self._lock:
            is_known = self._blobs.get(name) is not None
        reference = None if is_known else self._ray.put(blob)
        with self._lock:
            if self._blobs.get(name) is None and reference is not None:
                self._blobs.add(name, reference, len(blob))
            for place in self._places:
                place.wanted.add(name)

    def submit(
        self,
        payload: bytes,
        affinity: int,
        staging: tuple[float, bool],
        order: int,
        avoid: list[str],
        outcome: Outcome,
    ) -> int:
        """Has an actor compute a lease. Returns the number by which `cancel` knows the lease.

        `staging` is the time in seconds that staging the data of the lease takes, and True if this is most of the data
        of its affinity key. Actors named in `avoid` failed the lease before."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._leases[number] = Lease(number, payload, outcome)
            self._waiting.add(number, order, affinity, staging, avoid)
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
                self._waiting.remove(number)
                return
            place, _ = lease.place
        place.handle.cancel.options(concurrency_group=CONTROL).remote(number)

    def stop(self) -> None:
        """Ends the actors, and the runs that use them."""
        with self._lock:
            places, self._places = self._places, []
            self._watch_starts()
        if self._ray.is_initialized():
            for place in places:
                self._ray.kill(place.handle)
        self._assign()

    def are_gone(self) -> bool:
        """Returns True if no actor will compute anything any more."""
        with self._lock:
            return not self._places or not self._ray.is_initialized()

    def _assign(self) -> None:
        """Has actors that have room compute the leases that wait, in stream order."""
        with self._lock:
            taken, stranded, is_over = *self._take(), not self._places
        for lease in stranded:
            if is_over:
                lease.outcome.refused("no actor of Ray is left")
            else:
                lease.outcome.unavailable("no actor of Ray is left that can compute the lease")
        for lease, place, name, blobs in taken:
            sent = [blob for blob, _ in blobs]
            try:
                computed = place.handle.compute.remote(lease.number, lease.payload, blobs).future()
            except Exception as error:  # Ray was shut down, or begun anew.
                self._end(lease, place, name, [], error, None)
            else:
                computed.add_done_callback(partial(self._done, lease, place, name, sent))

    def _take(self) -> tuple[list[tuple[Lease, Place, str, list[tuple[str, list[Any]]]]], list[Lease]]:
        """Takes the leases that actors can compute now, each with its actor, the actor's name and the blobs that it
        lacks; and the leases that no actor may compute."""
        names = {place.name: place for place in self._places}
        slots = {name: self._slots - place.busy for name, place in names.items() if place.is_ready}
        free = [(name, count) for name, count in slots.items() if count > 0]
        placed, stranded, again = self._waiting.place(free, set(names), monotonic())
        self._set_alarm(again)
        taken = []
        for number, name in placed:
            lease, place = self._leases[number], names[name]
            lease.place = (place, name)
            place.busy += 1
            found = {blob: self._blobs.get(blob) for blob in place.wanted}
            # In a list, a reference stays a reference.
            blobs = [(blob, [reference]) for blob, reference in found.items() if reference is not None]
            taken.append((lease, place, name, blobs))
        return taken, [self._leases.pop(number) for number in stranded]

    def _set_alarm(self, time: float | None) -> None:
        """Has leases placed again at `time`."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if time is None else threading.Timer(max(0, time - monotonic()), self._assign)
        if self._alarm is not None:
            self._alarm.daemon = True
            self._alarm.start()

    def _done(self, lease: Lease, place: Place, name: str, sent: Iterable[str], done: Future[tuple[Any, ...]]) -> None:
        error = done.exception()
        self._end(lease, place, name, sent, error, None if error else done.result())

    def _end(
        self,
        lease: Lease,
        place: Place,
        name: str,
        sent: Iterable[str],
        error: BaseException | None,
        result: tuple[Any, ...] | None,
    ) -> None:
        """Ends a lease that the actor `place` computed, or failed, while it had the name `name`."""
        is_lost = error is not None and not isinstance(error, self._ray.exceptions.RayTaskError)
        with self._lock:
            self._leases.pop(lease.number, None)
            self._waiting.ended(lease.number, monotonic() if error is None else None)
            is_current = place.name == name
            if is_current and is_lost:
                place.lose()
                self._watch_starts()
            elif is_current:
                place.busy -= 1
                place.wanted.difference_update(sent)
        if is_current and is_lost:
            self._await_start(place)
        if result is not None:
            summary, rows, cause = result
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
        try:
            # Ray keeps the call until the actor has started again.
            ready = place.handle.ready.options(concurrency_group=CONTROL, max_task_retries=-1).remote().future()
        except Exception:  # As above.
            self._started(place, False)
        else:
            ready.add_done_callback(lambda done: self._started(place, done.exception() is None))

    def _started(self, place: Place, is_ready: bool) -> None:
        with self._lock:
            place.is_ready = is_ready
            # The actor cannot start, or was killed for good.
            if not is_ready and place in self._places:
                self._places.remove(place)
            self._watch_starts()
        self._assign()

    def _watch_starts(self) -> None:
        """Sets the time at which runs end, unless an actor is ready or none is left to wait for."""
        is_late = self._places and not any(place.is_ready for place in self._places)
        if is_late and self._timer is None:
            self._timer = threading.Timer(START_SECONDS, self._give_up)
            self._timer.daemon = True
            self._timer.start()
        elif not is_late and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        """Ends the leases that wait, since no actor has started."""
        with self._lock:
            if self._timer is None:
                return
            self._timer = None
            leases = [self._leases.pop(number) for number in self._waiting.clear()]
            self._watch_starts()
        available = self._ray.available_resources() if self._ray.is_initialized() else {}
        free = {name: amount for name, amount in available.items() if ":" not in name}
        for lease in leases:
            lease.outcome.refused(
                f"no actor has started for {START_SECONDS} s: each needs {self._needs}, and Ray has {free} free"
            )
