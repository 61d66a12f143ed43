"""Pipelines whose rows are computed by actors of Ray: the same batches, states and errors as in this process."""

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time

import pytest

import forebay as fb
from forebay import col, fn
from forebay.ray_actors import Actors
from forebay.ray_cluster import _STARTED
from test_cluster import (  # noqa: F401 (the tests run here with this module's fixture `cluster`)
    contents,
    pictures,
    stream,
    test_a_cluster_yields_the_batches_of_this_process,
    test_a_folder_that_no_worker_has_is_reported,
    test_failed_rows_are_those_of_this_process,
    test_questions_about_a_pipeline_go_to_the_cluster,
    test_ranks_divide_the_batches_of_a_cluster,
    test_sql_and_mixes_run_on_a_cluster,
    test_states_go_from_process_to_cluster_and_back,
)

ray = pytest.importorskip("ray")

#: Two actors of one thread each, which reserve so little that those of other tests start beside them.
TWO = fb.ray(num_workers=2, num_cpus=0.25)


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    """A Ray cluster in processes of this machine."""
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    options = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 200 << 20}
    # The paths of Ray's sockets are long, so that of their folder has to be short.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        ray.init(**options, log_to_driver=False, configure_logging=False, _temp_dir=folder)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def cluster(local_ray):
    """The cluster of the tests of `test_cluster`."""
    return TWO


@pytest.fixture
def actors(local_ray):
    """A description of two actors that no other test uses."""
    described = fb.ray(num_workers=2, num_cpus=0.25, threads=1)
    yield described
    described.stop()


def started(cluster) -> Actors:
    return _STARTED[os.getpid(), cluster][1]


def process_of(actors: Actors, index: int) -> int:
    """Returns the id of an actor's process."""
    return ray.get(actors._places[index].handle.__ray_call__.remote(lambda _: os.getpid()))


def test_a_killed_actor_changes_nothing(photos, actors):
    pipeline = pictures(photos)
    expected = contents(pipeline.run(epochs=60))
    contents(pipeline.run(epochs=1, cluster=actors))
    places = started(actors)._places
    processes = [process_of(started(actors), index) for index in range(len(places))]
    batches = pipeline.run(epochs=60, cluster=actors)
    got = contents(next(batches) for _ in range(3))
    # Actors that are stopped keep the leases that they have, so the one that is killed has some.
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    victim = max(range(len(places)), key=lambda index: places[index].busy)
    os.kill(processes[victim], signal.SIGKILL)
    for process in processes:
        if process != processes[victim]:
            os.kill(process, signal.SIGCONT)
    got += contents(batches)
    assert got == expected
    # Ray may tell that an actor died after another one computed its leases.
    deadline = time.monotonic() + 60
    while places[victim].losses == 0:
        assert time.monotonic() < deadline, "the actor had no lease when it was killed"
        time.sleep(0.05)


def test_the_others_do_the_work_of_an_actor_that_died_for_good(table, actors):
    expected = contents(stream(table))
    assert contents(stream(table).cluster(actors)) == expected
    ray.kill(started(actors)._places[0].handle)
    assert contents(stream(table).cluster(actors)) == expected
    assert contents(stream(table).cluster(actors)) == expected


def test_new_actors_start_after_the_last_one_is_gone(table, actors):
    pipeline = stream(table).cluster(actors)
    expected = contents(stream(table))
    assert contents(pipeline) == expected
    actors.stop()
    assert contents(pipeline) == expected
    before = started(actors)
    batches = pipeline.run(epochs=1000)
    next(batches)
    for place in tuple(before._places):
        ray.kill(place.handle)
    with pytest.raises(fb.Error, match="no actor of Ray is left"):
        list(batches)
    assert contents(pipeline) == expected
    assert started(actors) is not before


def test_actors_that_lost_a_job_get_it_again(table, actors):
    expected = contents(stream(table))
    assert contents(stream(table).cluster(actors)) == expected
    # A restarted actor has no jobs and no blobs, also where no lease noticed the restart.
    for place in started(actors)._places:
        ray.get(place.handle.__ray_call__.remote(lambda actor: actor.__init__(1, None, [])))
    assert contents(stream(table).cluster(actors)) == expected


def test_a_run_that_is_closed_cancels_its_leases(photos, actors):
    # A photo takes seconds, and a lease many photos.
    pixels = fn.gaussian_blur(fn.resize(fn.decode_image(col("image")), 1024, 1024), 101, 30)
    slow = fb.images(photos).select(pixels=pixels).batch(1).repeat()
    batches = slow.run(cluster=actors)
    next(batches)
    batches.close()
    deadline = time.monotonic() + 60
    while started(actors)._leases or any(place.busy for place in started(actors)._places):
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    assert contents(pictures(photos).cluster(actors)) == contents(pictures(photos))


class Scaler:
    """A function whose set-up is done once in a process."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, id):
        return id * self.factor


def test_functions_run_in_actors(table, actors):
    doubled = fb.udf(lambda id: id * 2, returns="int64", name="doubled", deterministic=True)
    scaled = fb.udf(Scaler, returns="int64", deterministic=True)(3)
    columns = {"a": doubled(col("id")), "b": scaled(col("id"))}
    pipeline = fb.read_parquet(table).select("id", **columns).shuffle(100, seed=2).batch(32)
    expected = contents(pipeline)
    batches = pipeline.run(cluster=actors)
    got = contents(next(batches) for _ in range(2))
    os.kill(process_of(started(actors), 1), signal.SIGKILL)
    got += contents(batches)
    assert got == expected


def test_folders_have_other_names_on_the_nodes(table, tmp_path):
    (tmp_path / "here").symlink_to(table.parent)
    renamed = fb.ray(num_workers=1, num_cpus=0.25, data={"/data/of/the/client": str(tmp_path / "here")})
    try:
        there = fb.read_parquet(f"/data/of/the/client/{table.name}").select("id").batch(100)
        found = [batch["id"].numpy().tolist() for batch in there.run(cluster=renamed)]
    finally:
        renamed.stop()
    assert found == [batch["id"].numpy().tolist() for batch in fb.read_parquet(table).select("id").batch(100)]


def test_actors_that_cannot_start_are_reported(table, monkeypatch):
    monkeypatch.setattr("forebay.ray_actors.START_SECONDS", 0)
    impossible = fb.ray(num_workers=1, resources={"no_such_node": 1})
    try:
        with pytest.raises(fb.Error, match="no actor has started for 0 s: each needs .*'no_such_node': 1"):
            list(stream(table).run(cluster=impossible))
    finally:
        impossible.stop()


def run_in_child(pipeline, out):
    try:
        list(pipeline)
        out.put("ran")
    except fb.ConfigError as error:
        out.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_is_told_what_to_do(table, method):
    context = multiprocessing.get_context(method)
    out = context.Queue()
    child = context.Process(target=run_in_child, args=(stream(table).cluster(TWO), out))
    child.start()
    assert "num_workers=0" in out.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0


def test_a_description_starts_nothing_and_is_pickled(table):
    described = fb.ray(num_workers=3, resources={"gpu_node": 0.5}, data={"/a": "/b"})
    assert pickle.loads(pickle.dumps(described)) == described
    assert (os.getpid(), described) not in _STARTED
    assert repr(stream(table).cluster(described)).endswith(".cluster('ray(3 workers)')")
    with pytest.raises(ValueError, match="num_workers must be at least 1"):
        fb.ray(num_workers=0)


def test_torch_loaders_read_from_actors(table):
    torch = pytest.importorskip("torch")
    pipeline = stream(table)
    expected = [batch["id"].tolist() for batch in pipeline.torch()]
    loader = torch.utils.data.DataLoader(pipeline.torch(cluster=TWO), batch_size=None)
    assert [batch["id"].tolist() for batch in loader] == expected
