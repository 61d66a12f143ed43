"""Pipelines on a cluster: the same batches, states and errors as in this process."""

import multiprocessing
import pickle
import warnings

import numpy as np
import pytest

import forebay as fb
from conftest import started_cluster
from forebay import col, fn


@pytest.fixture(autouse=True)
def forks_are_meant():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        yield


def stream(table):
    """Returns a pipeline in which a filter decides which rows there are."""
    return (
        fb.read_parquet(table)
        .filter(col("id") % 3 != 1)
        .select("id", r=fn.random_int(0, 10**6))
        .shuffle(300, seed=5)
        .batch(64)
    )


def pictures(photos):
    pixels = fn.random_hflip(fn.random_resized_crop(fn.decode_image(col("image")), 16, 16))
    return fb.images(photos).select("label", pixels=fn.normalize(pixels, "imagenet")).shuffle(32, seed=7).batch(8)


def contents(batches):
    """Returns the keys of the rows and the bytes of all columns of each batch."""
    return [(batch.row_keys, {name: batch[name].numpy().tobytes() for name in batch}) for batch in batches]


def test_a_cluster_yields_the_batches_of_this_process(table, photos, cluster):
    for pipeline in (stream(table), pictures(photos)):
        expected = contents(pipeline.run(epochs=2))
        assert len(expected) > 8
        assert contents(pipeline.cluster(cluster).run(epochs=2)) == expected
        assert contents(pipeline.run(epochs=2, cluster=cluster)) == expected
        # None and a cluster of another pipeline change nothing.
        assert contents(pipeline.cluster(cluster).cluster(None).run(epochs=2)) == expected


def test_ranks_divide_the_batches_of_a_cluster(table, cluster):
    pipeline = stream(table)
    for rank in range(2):
        place = {"rank": rank, "world": 2}
        assert contents(pipeline.run(**place, cluster=cluster)) == contents(pipeline.run(**place))


def test_questions_about_a_pipeline_go_to_the_cluster(table, cluster):
    here = stream(table)
    there = here.cluster(cluster)
    assert there.schema == here.schema
    assert there.steps(world=2) == here.steps(world=2, cluster=cluster) == here.steps(world=2)
    assert len(there.numpy(rank=0, world=2)) == here.steps(world=2)
    assert contents([there.preview(5).batch]) == contents([here.preview(5).batch])
    plan = there.save_plan()
    assert plan == here.save_plan(cluster=cluster)
    assert contents(there.run(plan=plan)) == contents(here)
    assert "Physical plan" in there.explain()
    assert "Measured" in here.explain(analyze=True, cluster=cluster)


def test_states_go_from_process_to_cluster_and_back(table, cluster):
    pipeline = stream(table)
    expected, got, state = contents(pipeline), [], None
    for place in (None, cluster, None, cluster):
        batches = pipeline.run(resume=state, cluster=place)
        got += contents(next(batches) for _ in range(2))
        state = batches.state_dict()
        batches.close()
    got += contents(pipeline.cluster(cluster).run(resume=state))
    assert got == expected


def test_sql_and_mixes_run_on_a_cluster(table, cluster):
    sql = f"""CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{table}';
              SELECT a.id, b.x FROM t a JOIN t b ON a.id = b.id SHUFFLE WITHIN 100 ROWS SEED 1 BATCH 32"""
    small, large = (fb.read_parquet(table).filter(rows).select("id") for rows in ("id < 300", "id >= 300"))
    mixed = fb.mix([(small, 0.7), (large, 0.3)]).shuffle(50, seed=3).batch(16)
    for pipeline in (fb.sql(sql), mixed):
        run = {"limit_batches": 12}
        assert contents(pipeline.run(cluster=cluster, **run)) == contents(pipeline.run(**run))
    with pytest.raises(fb.PlanError, match="call cluster on the mix"):
        fb.mix([(small.cluster(cluster), 0.7), (large, 0.3)])


def test_failed_rows_are_those_of_this_process(tmp_path, cluster):
    (tmp_path / "t.csv").write_text("n\n1\ntwo\n3\n")
    pipeline = fb.read_csv(tmp_path / "t.csv").select(n=col("n").cast("int64")).batch(1)
    errors = []
    for place in (None, cluster):
        with pytest.raises(fb.DataError) as caught:
            list(pipeline.run(cluster=place))
        run = pipeline.options(on_error="skip").run(cluster=place)
        assert [batch["n"].numpy().tolist() for batch in run] == [[1], [], [3]]
        errors.append((str(caught.value), caught.value.row, caught.value.column, run.stats().failures))
    assert errors[0] == errors[1]


def test_a_folder_that_no_worker_has_is_reported(tmp_path, cluster):
    with pytest.raises(fb.Error, match="missing"):
        list(fb.read_parquet(tmp_path / "missing").cluster(cluster))


def test_a_pipeline_remembers_its_cluster(table, cluster):
    pipeline = stream(table).cluster(cluster).options(on_error="skip")
    assert repr(pipeline).endswith(f".cluster({cluster!r})")
    assert contents(pickle.loads(pickle.dumps(pipeline))) == contents(stream(table))


def test_a_description_of_a_cluster_is_as_good_as_its_address(table, cluster):
    assert contents(stream(table).run(cluster=fb.Cluster(cluster))) == contents(stream(table))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_leaves_the_rows_as_they_are(table, cluster, compression):
    assert contents(stream(table).cluster(cluster, compression=compression)) == contents(stream(table))


def test_the_status_names_the_workers(cluster):
    status = fb.Cluster(cluster).status()
    assert [worker["set_aside"] for worker in status["workers"]] == [[], []]


def test_access_is_refused_with_the_reason(table, command, monkeypatch):
    monkeypatch.setenv("FOREBAY_CLUSTER_TOKEN", "a secret")
    with started_cluster(command, "--workers", "1") as address:
        pipeline = stream(table).cluster(address)
        expected = contents(stream(table))
        assert contents(pipeline) == expected
        monkeypatch.delenv("FOREBAY_CLUSTER_TOKEN")
        assert contents(stream(table).cluster(address, token="a secret")) == expected
        assert "a secret" not in repr(fb.Cluster(address, token="a secret"))
        with pytest.raises(fb.Error, match="token"):
            list(stream(table).cluster(address, token="another one"))


def test_settings_that_make_no_sense_are_refused(table, tmp_path):
    pipeline = stream(table)
    with pytest.raises(TypeError, match='an address such as "node1:7100"'):
        pipeline.cluster(7100)
    with pytest.raises(TypeError, match="token: give the access to a cluster with its address"):
        pipeline.cluster(fb.Cluster("node1:7100"), token="secret")
    with pytest.raises(fb.ConfigError, match="none, lz4 or zstd"):
        list(pipeline.cluster("localhost:7100", compression="gzip"))
    with pytest.raises(fb.ConfigError, match="insecure"):
        list(pipeline.cluster("192.0.2.1:7100"))
    with pytest.raises(fb.ConfigError, match="missing.pem"):
        list(pipeline.cluster("localhost:7100", tls_ca=tmp_path / "missing.pem"))


def rows_of(pipeline, to):
    to.put(contents(pipeline))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_process_connects_by_itself(table, cluster, method):
    pipeline = stream(table).cluster(cluster)
    expected = contents(pipeline)
    context = multiprocessing.get_context(method)
    to = context.Queue()
    child = context.Process(target=rows_of, args=(pipeline, to))
    child.start()
    assert to.get(timeout=60) == expected
    child.join(60)
    assert child.exitcode == 0
    assert contents(pipeline) == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("used", [False, True])
def test_a_dataloader_over_a_cluster(photos, cluster, workers, used):
    torch = pytest.importorskip("torch")
    expected = [batch["pixels"].numpy() for batch in pictures(photos)]
    dataset = pictures(photos).torch(cluster=cluster)
    if used:
        # The connections of this process are not those of the loader's workers.
        assert len(dataset) == len(expected)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    got = [batch["pixels"].numpy() for batch in loader]
    assert len(got) == len(expected) == 5
    assert all(np.array_equal(a, b) for a, b in zip(got, expected))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_goes_from_process_to_cluster(table, cluster, workers):
    pytest.importorskip("torch")
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def loader(place):
        dataset = stream(table).torch(cluster=place)
        return torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [batch["id"].tolist() for batch in loader(None)]
        first = loader(cluster)
        batches = iter(first)
        got = [next(batches)["id"].tolist() for _ in range(4)]
        state = first.state_dict()
        del batches
        second = loader(None)
        second.load_state_dict(state)
        got += [batch["id"].tolist() for batch in second]
    assert got == expected
