"""Two processes train on rows that do not divide by them: with DDP, Accelerate and Lightning."""

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
#: Five batches of 4, 4, 4, 4 and 2 rows.
ROWS = 18


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return make_table(tmp_path_factory.mktemp("odd") / "odd.parquet", ROWS, 5)


def trained(library, table, folder):
    """What the program wrote, by rank."""
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
    # Gradients were averaged, so the models are one.
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
