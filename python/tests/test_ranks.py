"""Two processes train with DDP, Accelerate or Lightning on rows that cannot be divided equally between them."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import forebay as fb  # noqa: E402
from conftest import make_table  # noqa: E402

PROGRAM = Path(__file__).with_name("ranks.py")
#: Number of rows: five batches of 4, 4, 4, 4 and 2 rows.
ROWS = 18


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return make_table(tmp_path_factory.mktemp("odd") / "odd.parquet", ROWS, 5)


def trained(library, table, folder):
    """Runs `ranks.py` with two ranks, and returns the parsed result of each rank."""
    if not torch.distributed.is_available():
        pytest.skip("torch was built without distributed")
    package = library.partition("_")[0]
    if package != "ddp" and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    ours = {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(PROGRAM), library, str(table), str(folder)]
    processes = [
        subprocess.Popen(
            [*command, str(rank)],
            env={**os.environ, **ours},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        texts = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        [process.kill() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(texts)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("library", ["ddp", "accelerate_own", "lightning"])
def test_every_row_comes_once_and_steps_are_equal(odd, tmp_path, library):
    ranks = trained(library, odd, tmp_path)
    assert [len(rank["steps"]) for rank in ranks] == [3, 3]
    for first, second in zip(ranks[0]["steps"], ranks[1]["steps"]):
        assert len(first["ids"]) == len(second["ids"]) > 0
    steps = [step for rank in ranks for step in rank["steps"]]
    assert all(math.isfinite(step["loss"]) for step in steps)
    rows = [row for step in steps for row, padded in zip(step["ids"], step["padded"]) if not padded]
    assert sorted(rows) == list(range(ROWS))
    assert sum(sum(step["padded"]) for step in steps) == 2
    # The ranks average their gradients, so their models have equal weights.
    assert ranks[0]["weights"] == ranks[1]["weights"]
    assert all(math.isfinite(weight) for weight in ranks[0]["weights"])


def test_accelerate_splits_a_stream_of_one_rank(odd, tmp_path):
    ranks = trained("accelerate_split", odd, tmp_path)
    assert len(ranks[0]["steps"]) == len(ranks[1]["steps"]) > 0
    steps = [step for rank in ranks for step in rank["steps"]]
    assert all(math.isfinite(step["loss"]) for step in steps)
    assert {row for step in steps for row in step["ids"]} == set(range(ROWS))
    assert ranks[0]["weights"] == ranks[1]["weights"]


def test_a_second_split_is_refused(odd, tmp_path):
    first, _ = trained("accelerate_twice", odd, tmp_path)
    assert len(first["steps"]) == 2
    for message in first["steps"]:
        assert "accelerate's DataLoaderDispatcher splits the batches between the 2 processes once more" in message
        assert "torch(rank=0, world=1)" in message


def test_a_shard_of_a_share_is_refused(odd):
    data_loader = pytest.importorskip("accelerate.data_loader")
    pipeline = fb.read_parquet(odd).select("id").batch(4)

    def shard(dataset):
        return data_loader.IterableDatasetShard(dataset, batch_size=1, num_processes=2, process_index=0)

    with pytest.raises(fb.ConfigError, match="accelerate's IterableDatasetShard splits the batches"):
        list(shard(pipeline.torch(rank=0, world=2)))
    assert [batch["id"].tolist() for batch in shard(pipeline.torch(rank=0, world=1))][0] == [0, 1, 2, 3]


def test_a_state_that_is_ahead_of_the_loop_is_refused(odd, tmp_path):
    ranks = trained("accelerate_states", odd, tmp_path)
    for rank, last in zip(ranks, [1, "ValueError: no iteration has started in this process"]):
        *ahead, end = rank["steps"]
        assert len(ahead) == 2
        for message in ahead:
            assert message.startswith("ConfigError: accelerate's DataLoaderDispatcher reads ahead of the loop")
        assert end == last or str(end).startswith(str(last))


def test_a_state_that_accelerates_count_of_epochs_would_give_up_is_refused(odd, tmp_path):
    ranks = trained("accelerate_resumed", odd, tmp_path)
    for rank in ranks:
        message = rank["steps"].pop(0)
        assert message.startswith("accelerate's DataLoaderDispatcher counts the epochs by itself and is at epoch 0")
        assert "call set_epoch(1) of the prepared loader first" in message
    pipeline = fb.read_parquet(odd).select("id").shuffle("global", seed=3).batch(4)
    expected = [batch["id"].numpy().tolist() for batch in pipeline.run(first_epoch=1)][1:]
    # Accelerate joins two batches of the stream, and gives each rank a half of the rows.
    first, second = (rank["steps"] for rank in ranks)
    assert first[0] + second[0] == expected[0] + expected[1]
    assert set(sum(first + second, [])) == set(sum(expected, []))


@pytest.fixture
def dispatcher(monkeypatch):
    """Returns a function that makes an Accelerate loader for three processes, of which only the reading one exists."""
    data_loader = pytest.importorskip("accelerate.data_loader")
    state = pytest.importorskip("accelerate.state").PartialState(cpu=True)
    monkeypatch.setattr(state, "num_processes", 3)

    def made(dataset, **options):
        return data_loader.DataLoaderDispatcher(dataset, batch_size=None, **options)

    return made


OWN = r"leave the loader out of accelerator\.prepare"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_split_of_batches_of_several_sizes_is_refused(odd, dispatcher, workers):
    pipeline = fb.read_parquet(odd).select("id").take(5).batch(4)
    several = pipeline.repeat(2).torch(rank=0, world=1)
    message = r"would lose rows: all batches but the last must have 4 rows, found 1; .*" + OWN
    with pytest.raises(fb.ConfigError, match=message):
        list(dispatcher(several, num_workers=workers))
    # Only a short batch at the end is allowed, and Accelerate completes it.
    (step,) = dispatcher(pipeline.torch(rank=0, world=1), num_workers=workers)
    assert step["id"].tolist() == [0, 1]


def test_a_split_of_batches_that_are_not_divisible_is_refused(odd, dispatcher):
    pipeline = fb.read_parquet(odd).select("id")
    with pytest.raises(fb.ConfigError, match="the rows of each batch but the last must be divisible by 3, found 4"):
        list(dispatcher(pipeline.batch(4).torch(rank=0, world=1), split_batches=True))
    steps = dispatcher(pipeline.batch(6).torch(rank=0, world=1), split_batches=True)
    assert [step["id"].tolist() for step in steps] == [[0, 1], [6, 7], [12, 13]]


def test_a_split_of_several_loader_workers_is_refused(odd, dispatcher):
    dataset = fb.read_parquet(odd).select("id").batch(4).torch(rank=0, world=1)
    with pytest.raises(fb.ConfigError, match="set num_workers=0, or " + OWN):
        list(dispatcher(dataset, num_workers=2))


def test_a_stateful_loader_that_reads_for_others_is_refused(odd, dispatcher):
    pytest.importorskip("torchdata.stateful_dataloader")
    dataset = fb.read_parquet(odd).select("id").batch(4).torch(rank=0, world=1)
    with pytest.raises(fb.ConfigError, match="DataLoaderDispatcher reads ahead of the loop"):
        list(dispatcher(dataset, use_stateful_dataloader=True))


def test_a_loader_of_one_process_reads_ahead_too(odd):
    data_loader = pytest.importorskip("accelerate.data_loader")
    pytest.importorskip("accelerate.state").PartialState(cpu=True)
    pipeline = fb.read_parquet(odd).select("id").batch(4)
    dataset = pipeline.torch(rank=0, world=1)
    told = []
    for _ in data_loader.DataLoaderShard(dataset, batch_size=None):
        try:
            told.append(dataset.state()["first_epoch"])
        except fb.ConfigError as error:
            told.append("DataLoaderShard reads ahead of the loop" in str(error))
    assert told == [True, True, True, True, 1]
    assert next(iter(dataset))["id"].tolist() == [0, 1, 2, 3]
    assert dataset.state()["token"] is not None
    run = pipeline.run(first_epoch=2)
    next(run)
    loader = data_loader.DataLoaderShard(pipeline.torch(rank=0, world=1, resume=run.state_dict()), batch_size=None)
    with pytest.raises(fb.ConfigError, match=r"call set_epoch\(2\) of the prepared loader first"):
        list(loader)
    loader.set_epoch(2)
    assert [batch["id"].tolist()[0] for batch in loader] == [4, 8, 12, 16]
