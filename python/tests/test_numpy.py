"""Datasets of NumPy arrays: their epochs and states."""

import importlib.util
import json
import pickle
import subprocess
import sys

import pytest

import forebay as fb


def stream(table):
    return fb.read_parquet(table).select("id").shuffle(300, seed=5).batch(64)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def epoch(table, number, **settings):
    return [batch["id"].numpy().tolist() for batch in stream(table).run(first_epoch=number, **settings)]


def test_each_loop_is_the_next_epoch(table):
    batches = stream(table).numpy()
    assert [ids(batches) for _ in range(3)] == [epoch(table, number) for number in range(3)]
    assert batches.epoch == 3 and batches.stats().rows == 1000
    batches.set_epoch(7)
    assert ids(batches) == epoch(table, 7)
    assert len(batches) == 16
    # A new dataset starts with epoch 0, like a loop over the pipeline.
    assert ids(stream(table).numpy()) == epoch(table, 0) == [batch["id"].numpy().tolist() for batch in stream(table)]
    assert ids(stream(table).numpy(first_epoch=2)) == epoch(table, 2)
    assert ids(stream(table).numpy(rank=1, world=2)) == epoch(table, 0, rank=1, world=2)


def test_it_goes_on_from_a_state(table):
    batches = stream(table).numpy()
    begun = batches.state_dict()
    ids(batches)
    steps = iter(batches)
    assert ids(next(steps) for _ in range(3)) == epoch(table, 1)[:3]
    state = json.loads(json.dumps(batches.state_dict()))
    assert state == steps.state_dict()
    for made in (stream(table).numpy(resume=state), stream(table).numpy(resume=json.dumps(state))):
        assert ids(made) == epoch(table, 1)[3:]
        assert ids(made) == epoch(table, 2)
    batches.load_state_dict(state)
    assert batches.state_dict() == state and len(batches) == 13
    copy = pickle.loads(pickle.dumps(batches))
    assert ids(batches) == ids(copy) == epoch(table, 1)[3:]
    # After the end of an iteration, its state resumes with the next epoch.
    again = stream(table).numpy(resume=batches.state_dict())
    assert ids(again) == ids(batches) == epoch(table, 2)
    again.load_state_dict(begun)
    assert ids(again) == epoch(table, 0)
    steps.load_state_dict(state)
    assert ids(steps) == epoch(table, 1)[3:]


def test_it_ends_with_its_block(table):
    with stream(table).numpy() as batches:
        steps = iter(batches)
        next(steps)
    assert list(steps) == []


def test_nulls(table):
    pipeline = fb.read_parquet(table).select("gaps").batch(40)
    assert next(iter(pipeline.numpy(nulls=-1)))["gaps"][:2].tolist() == [-1, 1]
    assert next(iter(pipeline.numpy(nulls="mask")))["gaps"].mask[:2].tolist() == [True, False]
    steps = iter(pipeline.numpy())
    for _ in range(2):
        with pytest.raises(ValueError, match="no value in 4 of 40 rows"):
            next(steps)


ORBAX = """
import sys, forebay as fb, orbax.checkpoint as ocp
batches = fb.read_parquet(sys.argv[1]).select("id").shuffle(300, seed=5).batch(64).numpy()
steps = iter(batches)
[next(steps) for _ in range(5)]
with ocp.CheckpointManager(sys.argv[2]) as manager:
    manager.save(1, args=ocp.args.Composite(data=ocp.args.JsonSave(batches.state_dict())))
    manager.wait_until_finished()
    state = manager.restore(1, args=ocp.args.Composite(data=ocp.args.JsonRestore()))["data"]
rest = [batch["id"].tolist() for batch in steps]
batches.load_state_dict(state)
assert [batch["id"].tolist() for batch in batches] == rest and len(rest) == 11
"""


def test_orbax_keeps_states(table, tmp_path):
    # Runs in a separate process, since JAX warns about forks, which later tests need.
    if not importlib.util.find_spec("orbax"):
        pytest.skip("needs Orbax")
    subprocess.run([sys.executable, "-c", ORBAX, str(table), str(tmp_path / "kept")], check=True, timeout=120)
