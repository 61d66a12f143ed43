"""Runs that resume from the state of an iterator or a dataset, or from a token."""

import json
import pickle

import numpy as np
import pytest

import forebay as fb
from conftest import make_table
from forebay import col, fn


def stream(table, **batch):
    return fb.read_parquet(table).select("id", r=fn.random_int(0, 10**6)).shuffle(300, seed=5).batch(64, **batch)


def rows(batches):
    """Returns the epoch, step, values and row keys of each batch."""
    return [(b.epoch, b.step, b["id"].numpy().tolist(), b["r"].numpy().tolist(), b.row_keys) for b in batches]


def taken(iterator, count):
    return rows(next(iterator) for _ in range(count))


OTHERWISE = [{}, {"threads": 1}, {"threads": 3, "optimize": False}, {"segment_rows": 7}]


@pytest.mark.parametrize("step", [0, 1, 7, 15, 16, 17, 31, 32])
def test_an_iterator_goes_on_behind_the_batch_that_was_taken(table, step):
    pipeline = stream(table).repeat(2)
    whole = rows(pipeline)
    run = pipeline.run()
    assert taken(run, step) == whole[:step]
    state = json.loads(json.dumps(run.state_dict()))
    assert len(json.dumps(state)) < 2048
    for settings in OTHERWISE:
        assert rows(pipeline.run(resume=state, **settings)) == whole[step:]
        again = pipeline.run(**settings)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert rows(again) == whole[step:]
        # An iterator at its end can also resume from an earlier state.
        again.load_state_dict(state)
        assert rows(again) == whole[step:]
    assert rows(run) == whole[step:]


def test_a_state_tells_the_consumers_place_not_the_runs(table):
    run = stream(table).run()
    first = run.state_dict()
    batch = next(run)
    # The state does not change while the run computes batches ahead.
    states = [run.state_dict() for _ in range(3)]
    assert states[0] == states[1] == states[2] != first
    assert states[0]["token"] == json.loads(batch.token())
    assert first["token"]["cursor"]["rows"] == 0 and states[0]["token"]["cursor"]["rows"] == 64


def test_a_batch_has_a_token(table):
    pipeline = stream(table)
    batches = list(pipeline)
    whole = rows(batches)
    token = batches[4].token()
    assert json.loads(token)["forebay_token"] == 2
    for form in (token, json.loads(token), token.encode()):
        assert rows(pipeline.run(resume=form)) == whole[5:]
    assert pickle.loads(pickle.dumps(batches[4])).token() == token
    assert rows(pipeline.run(resume=batches[-1].token())) == []


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2), (2, 4)])
def test_another_number_of_ranks_goes_on(table, before, after):
    pipeline = stream(table)
    whole = rows(pipeline)
    runs = [pipeline.run(rank=rank, world=before) for rank in range(before)]
    got = [row for _ in range(3) for run in runs for row in taken(run, 1)]
    states = [run.state_dict() for run in runs]
    assert all(state == states[0] for state in states)
    runs = [rows(pipeline.run(rank=rank, world=after, resume=states[0])) for rank in range(after)]
    got += [row for step in zip(*runs) for row in step]
    # All rows of the stream are delivered once, in order. Steps are counted by the number of ranks that took them.
    assert [row[2:] for row in got if row[2]] == [row[2:] for row in whole]


def test_a_global_batch_has_the_same_rows_at_any_world(table):
    pipeline = stream(table, scope="global")
    whole = [batch.row_keys for batch in pipeline]

    def steps(world, resume, count):
        runs = [pipeline.run(rank=rank, world=world, resume=resume) for rank in range(world)]
        joined = []
        for _ in range(count):
            parts = [next(run) for run in runs]
            assert len({len(part.row_keys) for part in parts}) <= 2
            joined.append([key for part in parts for key in part.row_keys])
        return joined, runs[-1].state_dict()

    first, state = steps(1, None, 4)
    second, state = steps(2, state, 5)
    third, state = steps(1, state, 3)
    fourth, _ = steps(3, state, 4)
    assert first + second + third + fourth == whole


def test_the_epochs_of_a_run_that_goes_on_are_its_own(table):
    pipeline = stream(table)
    state = pipeline.run(first_epoch=3).state_dict()
    assert (state["first_epoch"], state["epochs"]) == (3, 1)
    run = pipeline.run(first_epoch=3)
    next(run)
    state = run.state_dict()
    assert [batch.epoch for batch in pipeline.run(resume=state)] == [3] * 15
    assert [batch.epoch for batch in pipeline.run(resume=state, epochs=2)] == [3] * 15 + [4] * 16
    token = next(pipeline.run(first_epoch=3)).token()
    with pytest.raises(fb.ConfigError, match="the token is in epoch 3, but this run has epochs 0 to 0"):
        pipeline.run(resume=token)
    assert len(rows(pipeline.run(resume=token, first_epoch=3))) == 15


def test_what_is_another_stream_is_refused_with_what_differs(tmp_path):
    path = make_table(tmp_path / "table.parquet")
    pipeline = stream(path)
    run = pipeline.run()
    next(run)
    state, token = run.state_dict(), next(run).token()

    def refused(other, match, **settings):
        for resume in (state, token, json.dumps(state)):
            with pytest.raises(fb.ResumeError, match=match):
                other.run(resume=resume, **settings)

    plain = fb.read_parquet(path).select("id", r=fn.random_int(0, 10**6))
    refused(pipeline, "the seed is 6, but was 5", seed=6)
    refused(plain.shuffle(300, seed=6).batch(64), "the seed is 6, but was 5")
    refused(plain.shuffle(300, seed=5).batch(65), "`batch 64 perrank keep` was in the token, `batch 65 perrank keep`")
    refused(plain.shuffle(301, seed=5).batch(64), "`shuffle within 300 rows` was in the token")
    refused(plain.filter("id > 2").shuffle(300, seed=5).batch(64), "its query differs")
    # The same pipeline written in SQL has the same stream.
    same = fb.sql(
        f"SELECT id, random_int(0, 1000000) AS r FROM parquet('{path}') SHUFFLE WITHIN 300 ROWS SEED 5 BATCH 64"
    )
    assert rows(same.run(resume=token)) == rows(pipeline.run(resume=token)) == rows(run)
    # If the pipeline sets no seed, the resumed run uses the seed in the token.
    unseeded = fb.read_parquet(path).select("id", r=fn.random_int(0, 10**6)).shuffle(300).batch(64)
    assert rows(unseeded.run(resume=token)) == rows(pipeline.run(resume=token))
    # An iterator that refuses a state keeps its position.
    other = plain.shuffle(300, seed=6).batch(64).run()
    first = next(other)
    with pytest.raises(fb.ResumeError):
        other.load_state_dict(state)
    assert next(other).step == first.step + 1
    make_table(path, rows=1100)
    refused(stream(path), r"the data has changed: 1 files, 1000 rows, \d+ bytes in the token, 1 files, 1100 rows")


@pytest.mark.parametrize("wrong", ["", "{", "{}", "[]", '{"forebay_token": 1}', '{"forebay_state": 9}', {}, {"a": 1}])
def test_what_is_no_token_is_refused(table, wrong):
    with pytest.raises((fb.ResumeError, fb.ConfigError, TypeError)):
        stream(table).run(resume=wrong)
    with pytest.raises((fb.ResumeError, fb.ConfigError)):
        stream(table).run().load_state_dict({"forebay_state": 1, "token": {"forebay_token": 2}, "first_epoch": 0})


def test_turns_and_states(table):
    """Runs that take turns (`turns=3`) deliver together the batches of one run, and each resumes from its own state."""
    pipeline = stream(table).repeat(2)
    whole = rows(pipeline)
    runs = [pipeline.run(turn=turn, turns=3) for turn in range(3)]
    assert [run.steps for run in runs] == [11, 11, 10]
    got = [row for _ in range(6) for run in runs for row in taken(run, 1)]
    assert got == whole[:18]
    got += taken(runs[0], 1)
    states = [json.loads(json.dumps(run.state_dict())) for run in runs]
    assert [state["turn"] for state in states] == [2, 2, 2]
    runs = [pipeline.run(turns=3, resume=state, threads=1) for state in states]
    order = [1, 2, 0] * 5
    got += [row for turn in order for row in rows(b for b in [next(runs[turn], None)] if b)]
    assert got == whole
    with pytest.raises(fb.ResumeError, match=r"from 3 loader worker\(s\) and 1 rank\(s\), but now there are 2 loader"):
        pipeline.run(turns=2, resume=states[0])
    with pytest.raises(fb.ResumeError, match=r"now there are 3 loader worker\(s\) and 2 rank\(s\)"):
        pipeline.run(turns=3, world=2, resume=states[0])


def packed(table):
    lists = fb.read_parquet(table).select("id", "tokens", r=fn.random_int(0, 10**6)).shuffle(100, seed=1)
    return lists.pack("tokens", 16).batch(8)


@pytest.mark.parametrize("world", [1, 2])
def test_packs_that_wait_for_their_batch_are_carried(table, world):
    pipeline = packed(table)

    def told(batch):
        columns = {name: [np.asarray(row).tolist() for row in column] for name, column in batch.numpy().items()}
        return batch.step, columns, batch.row_keys

    whole = [told(batch) for batch in pipeline.run(world=world)]
    run = pipeline.run(world=world)
    for step in range(1, 5):
        next(run)
        state = run.state_dict()
        assert [told(batch) for batch in pipeline.run(world=world, resume=state, threads=1)] == whole[step:]


def test_a_state_behind_the_end_is_refused(table):
    pipeline = stream(table)
    run = pipeline.repeat(5).run()
    taken(run, 40)
    state = run.state_dict()
    for other in (pipeline, pipeline.repeat(2)):
        with pytest.raises(fb.ConfigError, match="the state is in epoch 2, but a run of [12] epoch"):
            other.run(resume=state)
        with pytest.raises(fb.ConfigError, match="set more epochs with repeat"):
            other.numpy(resume=state)
    assert len(rows(pipeline.repeat(3).run(resume=state))) == 8
    # A state exactly at the end of a run is accepted, and has no batches left.
    taken(run, 8)
    assert rows(pipeline.repeat(3).run(resume=run.state_dict())) == []


def test_a_limit_counts_what_was_before_the_state(table):
    pipeline = stream(table).repeat(2)
    whole = rows(pipeline)[:20]
    run = pipeline.run(limit_batches=20)
    assert taken(run, 4) == whole[:4]
    run = pipeline.run(limit_batches=20, resume=run.state_dict())
    assert taken(run, 5) == whole[4:9]
    state = run.state_dict()
    assert rows(pipeline.run(limit_batches=20, resume=state)) == whole[9:]
    assert len(rows(pipeline.run(resume=state))) == 32 - 9
    taken(run, 11)
    assert rows(pipeline.run(limit_batches=20, resume=run.state_dict())) == []
    # The state of a run without a limit does not count its batches towards a later limit.
    run = pipeline.run()
    assert taken(run, 4) == whole[:4]
    assert rows(pipeline.run(limit_batches=3, resume=run.state_dict())) == whole[4:7]


def test_a_cache_does_not_show(table, tmp_path):
    pipeline = (
        fb.read_parquet(table).select("id", r=col("x") * 2).shuffle(300, seed=5).batch(64).repeat(2)
    ).options(cache_dir=str(tmp_path / "cache"))
    whole = rows(pipeline)
    run = pipeline.run()
    assert taken(run, 20) == whole[:20]
    assert rows(pipeline.run(resume=run.state_dict())) == whole[20:]


def test_a_pinned_plan_goes_on_above_the_exact_tier(photos):
    """If rewrites may change pixels (`relax="statistical"`), a state belongs to the plan, too."""
    pixels = fn.normalize(fn.random_hflip(fn.resize(fn.decode_image(col("image")), 12, 12)), "imagenet")
    built = fb.images(photos).select("label", pixels=pixels).shuffle(16, seed=2).batch(6).options(relax="statistical")
    plan = built.save_plan()
    whole = [batch["pixels"].numpy().tobytes() for batch in built.run(plan=plan)]
    run = built.run(plan=plan)
    taken = [next(run)["pixels"].numpy().tobytes() for _ in range(3)]
    state = json.dumps(run.state_dict())
    run.close()
    rest = [batch["pixels"].numpy().tobytes() for batch in built.run(plan=plan, resume=state, threads=1)]
    assert taken + rest == whole
    # A run with another plan refuses the state.
    with pytest.raises(fb.ResumeError, match="plan"):
        built.run(optimize=False, resume=state)
