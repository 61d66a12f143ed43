"""The client's side of actors, over a Ray that does what a test says."""

import sys
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

import forebay as fb


class Task:
    """A call of an actor, which ends when a test says so."""

    def __init__(self, name, arguments):
        self.name, self.arguments, self.ends = name, arguments, Future()

    def future(self):
        return self.ends


class Method:
    def __init__(self, fake, name):
        self.fake, self.name = fake, name

    def options(self, **_):
        return self

    def remote(self, *arguments):
        if self.fake.is_broken:
            raise RuntimeError("Ray was shut down")
        self.fake.tasks.append(Task(self.name, arguments))
        return self.fake.tasks[-1]


class Lost(Exception):
    """The exception of a Ray whose actor died."""


class FakeRay:
    """Stands for the module `ray`."""

    def __init__(self):
        self.tasks, self.is_broken = [], False
        self.exceptions = SimpleNamespace(RayTaskError=KeyError)

    def remote(self, **_):
        def actor(*_):
            return SimpleNamespace(**{name: Method(self, name) for name in ("ready", "compute", "cancel")})

        return lambda _: SimpleNamespace(remote=actor)

    def put(self, blob):
        return ("reference", blob)

    def kill(self, _):
        pass

    def is_initialized(self):
        return not self.is_broken

    def named(self, name):
        """Returns the calls of a method that have not ended."""
        return [task for task in self.tasks if task.name == name and not task.ends.done()]


class Outcome(list):
    """The outcomes of a lease, of which the first counts."""

    def __getattr__(self, name):
        return lambda *arguments: self.append((name, *arguments))


class Rows(bytes):
    def tobytes(self):
        return bytes(self)


@pytest.fixture
def fake(monkeypatch):
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def ready(fake):
    [task.ends.set_result(None) for task in fake.named("ready")]


def started(fake, workers=2):
    from forebay.ray_actors import Actors

    actors = Actors(fb.ray(workers, num_cpus=1))
    ready(fake)
    return actors


def submit(actors, order, affinity=0, avoid=(), staging=(0.0, False)):
    outcome = Outcome()
    return actors.submit(b"lease", affinity, staging, order, list(avoid), outcome), outcome


class Clock:
    """A clock that a test sets, with its timers."""

    def __init__(self, monkeypatch):
        self.now, self.timers = 100.0, []
        monkeypatch.setattr("forebay.ray_actors.monotonic", lambda: self.now)
        monkeypatch.setattr("forebay.ray_actors.threading.Timer", self.timer)

    def timer(self, seconds, call):
        timer = SimpleNamespace(time=self.now + seconds, call=call)
        timer.start = lambda: self.timers.append(timer)
        timer.cancel = lambda: self.timers.remove(timer) if timer in self.timers else None
        return timer

    def advance(self, seconds):
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.time <= self.now]:
            self.timers.remove(timer)
            timer.call()


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def workers_of(actors):
    """Returns the number of leases that each actor computes, the largest first."""
    return sorted((place.busy for place in actors._places), reverse=True)


def test_leases_wait_for_slots_and_run_in_order(fake):
    actors = started(fake, workers=1)
    outcomes = [submit(actors, order)[1] for order in (5, 4, 3, 2)]
    running = fake.named("compute")
    assert len(running) == 2
    running[0].ends.set_result((b"summary", Rows(b"rows"), None))
    assert outcomes[0] == [("computed", "ray-0.0", b"summary", b"rows")]
    # Of those that waited, the lease with the lowest order runs.
    assert fake.named("compute")[-1].arguments[0] == 3


def test_a_lease_waits_for_the_actor_that_has_its_data(fake, clock):
    actors = started(fake)
    staging = (0.5, True)
    for order in range(2):
        submit(actors, order, staging=staging)
    assert workers_of(actors) == [2, 0]
    clock.advance(10)
    # Its actor is busy: the lease waits for as long as the other one would need to stage its data.
    held = submit(actors, 2, staging=staging)[0]
    assert workers_of(actors) == [2, 0]
    clock.advance(0.4)
    other = submit(actors, 3, affinity=1)[0]
    assert workers_of(actors) == [2, 1] and fake.named("compute")[-1].arguments[0] == other
    clock.advance(0.2)
    assert workers_of(actors) == [2, 2] and fake.named("compute")[-1].arguments[0] == held
    assert not clock.timers


def test_a_lease_waits_as_long_as_staging_took(fake, clock):
    actors = started(fake)
    submit(actors, 0, staging=(0.2, True))
    clock.advance(0.6)
    fake.named("compute")[0].ends.set_result((b"", Rows(), None))
    for order in range(1, 4):
        submit(actors, order, staging=(0.2, True))
    assert workers_of(actors) == [2, 0]
    clock.advance(0.5)
    assert workers_of(actors) == [2, 0]
    clock.advance(0.2)
    assert workers_of(actors) == [2, 1]


def test_a_lease_that_waits_runs_as_soon_as_its_actor_is_free(fake, clock):
    actors = started(fake)
    for order in range(3):
        submit(actors, order, staging=(0.5, True))
    (busy,) = [place for place in actors._places if place.busy]
    fake.named("compute")[0].ends.set_result((b"", Rows(), None))
    assert len(fake.named("compute")) == 2 and busy.busy == 2 and not clock.timers


def test_a_lease_does_not_wait_for_an_actor_that_forgot_its_data(fake, clock):
    actors = started(fake)
    for order in range(3):
        submit(actors, order, staging=(0.5, True))
    assert workers_of(actors) == [2, 0]
    fake.named("compute")[0].ends.set_exception(Lost("died"))
    assert workers_of(actors) == [1, 0] and not clock.timers
    ready(fake)
    assert len(actors.workers()) == 2


def test_a_lease_that_waits_is_cancelled_without_a_call(fake):
    actors = started(fake, workers=1)
    submitted = [submit(actors, order) for order in range(3)]
    actors.cancel(submitted[2][0])
    assert not fake.named("cancel")
    actors.cancel(submitted[0][0])
    assert [task.arguments for task in fake.named("cancel")] == [(submitted[0][0],)]
    for task in fake.named("compute"):
        task.ends.set_result((None, None, "cancelled"))
    assert not actors._leases and not fake.named("compute") and submitted[2][1] == []


def test_a_lost_actor_has_a_new_name_and_its_old_leases_do_not_count(fake):
    actors = started(fake, workers=1)
    (_, first), (_, second) = submit(actors, 0), submit(actors, 1)
    old = fake.named("compute")
    old[0].ends.set_exception(Lost("died"))
    assert first == [("lost", "ray-0.0", "died")] and actors.workers() == []
    ready(fake)
    assert actors.workers() == ["ray-0.1"]
    third = submit(actors, 2)[1]
    # The answer to the other lease comes late.
    old[1].ends.set_exception(Lost("died"))
    assert second == [("lost", "ray-0.0", "died")]
    assert actors.workers() == ["ray-0.1"] and actors._places[0].busy == 1
    fake.named("compute")[0].ends.set_result((None, None, "no folder"))
    assert third == [("unfit", "ray-0.1", "no folder")]


def test_leases_avoid_actors(fake):
    actors = started(fake)
    avoided = {submit(actors, order, affinity=order, avoid=["ray-0.0"])[0] for order in range(2)}
    running = fake.named("compute")
    assert {task.arguments[0] for task in running} == avoided and actors._places[1].busy == 2
    assert submit(actors, 9, avoid=["ray-0.0", "ray-1.0"])[1][0][0] == "unavailable"
    other = submit(actors, 3, affinity=3)[0]
    assert fake.named("compute")[-1].arguments[0] == other and actors._places[0].busy == 1


def test_blobs_go_to_actors_once(fake):
    actors = started(fake, workers=1)
    actors.put("hash", b"blob")
    submit(actors, 0)
    assert fake.named("compute")[0].arguments[2] == [("hash", [("reference", b"blob")])]
    fake.named("compute")[0].ends.set_result((b"", Rows(), None))
    submit(actors, 1)
    assert fake.named("compute")[0].arguments[2] == []
    actors.put("hash", b"blob")
    submit(actors, 2)
    assert fake.named("compute")[1].arguments[2] == [("hash", [("reference", b"blob")])]


def test_runs_end_when_ray_ends(fake):
    actors = started(fake)
    fake.is_broken = True
    outcome = submit(actors, 0)[1]
    assert outcome == [("lost", outcome[0][1], "Ray was shut down")]
    outcome = submit(actors, 1)[1]
    assert outcome[0][0] == "lost"
    assert submit(actors, 2)[1] == [("refused", "no actor of Ray is left")]
    assert actors.are_gone() and not actors._leases
