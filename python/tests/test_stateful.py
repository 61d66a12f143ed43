"""torchdata's StatefulDataLoader over a dataset: a loader resumes from every state with exactly the remaining
batches."""

import gc
import itertools
import json
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchdata.stateful_dataloader")

import forebay as fb  # noqa: E402
from forebay import fn  # noqa: E402
from forebay.torch import global_state  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

#: Number of batches per epoch of `stream`.
STEPS = 16


@pytest.fixture(autouse=True)
def forks_are_meant():
    with warnings.catch_warnings():
        # Python warns about every fork of a process with threads, and torchdata uses functions that PyTorch deprecates.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*set_vital")
        yield
    # Loaders are in reference cycles. They are collected here, since otherwise a forked worker of a later test might
    # collect them.
    gc.collect()


def stream(table, **batch):
    return fb.read_parquet(table).select("id", r=fn.random_int(0, 10**6)).shuffle(300, seed=5).batch(64, **batch)


def loader(dataset, workers, **options):
    if not isinstance(dataset, torch.utils.data.IterableDataset):
        dataset = dataset.torch()
    return StatefulDataLoader(dataset, batch_size=None, num_workers=workers, **options)


def rows(batches):
    """Returns the values of each batch, without padding rows."""
    found = []
    for batch in batches:
        own = ~batch.get("padded", torch.zeros(len(batch["id"]), dtype=torch.bool))
        found.append((batch["id"][own].tolist(), batch["r"][own].tolist()))
    return found


def epochs(pipeline, *which, **place):
    batches = itertools.chain.from_iterable(pipeline.run(first_epoch=epoch, epochs=1, **place) for epoch in which)
    return rows(batch.torch() for batch in batches)


def kept(state):
    """Returns the state after it was saved and loaded with PyTorch, as in a checkpoint."""
    import io

    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


WORKERS = pytest.mark.parametrize("workers", [0, 1, 2])


@WORKERS
@pytest.mark.parametrize("every", [1, 3, 50])
def test_the_plain_loop_goes_on_from_any_step(table, workers, every):
    pipeline = stream(table)
    whole = epochs(pipeline, 0, 1)
    for stop in (0, 3, STEPS - 1):
        dl = loader(pipeline, workers, snapshot_every_n_steps=every)
        state, got = dl.state_dict(), []
        for step, batch in enumerate(dl):
            if step == stop:
                break
            got += rows([batch])
            state = dl.state_dict()
        assert got == whole[:stop]
        again = loader(pipeline, workers, snapshot_every_n_steps=every)
        again.load_state_dict(kept(state))
        assert rows(again) == whole[stop:STEPS], stop
        # After the resumed epoch, the next iteration has the next epoch.
        assert rows(again) == whole[STEPS:], stop


@WORKERS
def test_a_state_before_the_first_iteration(table, workers):
    pipeline = stream(table)
    dl = loader(pipeline, workers)
    state = kept(dl.state_dict())
    # Requesting the state did not consume an epoch.
    assert rows(dl) == epochs(pipeline, 0)
    again = loader(pipeline, workers)
    again.load_state_dict(state)
    assert rows(again) == epochs(pipeline, 0)
    assert rows(again) == epochs(pipeline, 1)


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_a_state_at_the_end_of_an_epoch(table, workers, persistent):
    if persistent and not workers:
        pytest.skip("without workers, none live on")
    pipeline = stream(table)
    dl = loader(pipeline, workers, persistent_workers=persistent)
    assert rows(dl) == epochs(pipeline, 0)
    state = kept(dl.state_dict())
    again = loader(pipeline, workers, persistent_workers=persistent)
    again.load_state_dict(state)
    assert [rows(again), rows(again)] == [epochs(pipeline, 1), epochs(pipeline, 2)]
    assert rows(dl) == epochs(pipeline, 1)


@WORKERS
def test_a_state_of_a_later_epoch_twice(table, workers):
    """A state of a loader that has itself resumed from a state."""
    pipeline = stream(table)
    whole = epochs(pipeline, 1)
    dl = loader(pipeline, workers)
    rows(dl)
    steps = iter(dl)
    assert rows(itertools.islice(steps, 5)) == whole[:5]
    state = kept(dl.state_dict())
    second = loader(pipeline, workers)
    second.load_state_dict(state)
    steps = iter(second)
    assert rows(itertools.islice(steps, 4)) == whole[5:9]
    state = kept(second.state_dict())
    third = loader(pipeline, workers)
    third.load_state_dict(state)
    assert rows(third) == whole[9:]
    assert rows(third) == epochs(pipeline, 2)
    # The same loader can load the earlier state again.
    second.load_state_dict(state)
    assert rows(second) == whole[9:]
    assert rows(second) == epochs(pipeline, 2)


@WORKERS
def test_a_state_after_a_load_without_iterating(table, workers):
    pipeline = stream(table)
    dl = loader(pipeline, workers)
    steps = iter(dl)
    rows(itertools.islice(steps, 7))
    state = kept(dl.state_dict())
    for _ in range(2):
        dl = loader(pipeline, workers)
        dl.load_state_dict(state)
        state = kept(dl.state_dict())
    assert rows(dl) == epochs(pipeline, 0)[7:]
    again = loader(pipeline, workers)
    again.load_state_dict(state)
    assert rows(again) == epochs(pipeline, 0)[7:]


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_live_on(table, workers):
    pipeline = stream(table)
    dl = loader(pipeline, workers, persistent_workers=True)
    assert rows(dl) == epochs(pipeline, 0)
    steps = iter(dl)
    assert rows(itertools.islice(steps, 3)) == epochs(pipeline, 1)[:3]
    state = kept(dl.state_dict())
    again = loader(pipeline, workers, persistent_workers=True)
    again.load_state_dict(state)
    assert [rows(again), rows(again)] == [epochs(pipeline, 1)[3:], epochs(pipeline, 2)]
    again.dataset.set_epoch(7)
    assert rows(again) == epochs(pipeline, 7)


def test_spawned_workers(table):
    pipeline = stream(table)
    dl = loader(pipeline, 2, multiprocessing_context="spawn")
    steps = iter(dl)
    rows(itertools.islice(steps, 5))
    again = loader(pipeline, 2, multiprocessing_context="spawn")
    again.load_state_dict(kept(dl.state_dict()))
    assert rows(again) == epochs(pipeline, 0)[5:]


@WORKERS
def test_several_epochs_in_an_iteration(table, workers):
    pipeline = stream(table).repeat(3)
    whole = rows(batch.torch() for batch in pipeline)
    for stop in (STEPS - 1, STEPS, 2 * STEPS + 3):
        dl = loader(pipeline, workers)
        steps = iter(dl)
        assert rows(itertools.islice(steps, stop)) == whole[:stop]
        again = loader(pipeline, workers)
        again.load_state_dict(kept(dl.state_dict()))
        assert rows(again) == whole[stop:]
        # The next iteration has the next three epochs.
        assert rows(itertools.islice(iter(again), 1)) == epochs(stream(table), 3)[:1]


CASES = {
    "a filter": lambda t: fb.read_parquet(t).filter("id % 3 = 1").select("id", r=fn.random_int(0, 9)).batch(30),
    "a filter that draws": lambda t: (
        fb.read_parquet(t).filter(fn.random_bool(0.5)).select("id", r=fn.random_int(0, 9)).seed(3).batch(30)
    ),
    "padded": lambda t: stream(t, pad_remainder=True),
    "split batches": lambda t: stream(t, scope="global"),
    "buckets": lambda t: (
        fb.read_parquet(t).select("id", r=fn.random_int(0, 9)).shuffle(100, seed=4).bucket_by("id % 40", [10, 30]).batch(8)
    ),
    "dropped remainder": lambda t: stream(t, drop_remainder=True),
    "a mix": lambda t: (
        fb.mix([(fb.read_parquet(t).select("id", r=fn.random_int(0, 9)), 2), (fb.read_parquet(t).select("id", r="id"), 1)])
        .shuffle(100, seed=4)
        .batch(50)
    ),
    "continuous": lambda t: (
        fb.read_parquet(t).select("id", r=fn.random_int(0, 9)).shuffle(100, seed=4).repeat(2).batch(300)
    ),
}


@WORKERS
@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_batches(table, workers, case):
    pipeline = CASES[case](table)
    whole = rows(batch.torch() for batch in pipeline)
    for stop in (1, 4):
        dl = loader(pipeline, workers)
        steps = iter(dl)
        assert rows(itertools.islice(steps, stop)) == whole[:stop]
        again = loader(pipeline, workers)
        again.load_state_dict(kept(dl.state_dict()))
        assert rows(again) == whole[stop:]


@pytest.mark.parametrize("rank", [0, 1])
@WORKERS
def test_ranks(table, rank, workers):
    pipeline = stream(table)
    place = {"rank": rank, "world": 2}
    whole = epochs(pipeline, 0, **place)
    dl = loader(pipeline.torch(**place), workers)
    steps = iter(dl)
    assert rows(itertools.islice(steps, 3)) == whole[:3]
    again = loader(pipeline.torch(**place), workers)
    again.load_state_dict(kept(dl.state_dict()))
    assert rows(again) == whole[3:]


def joined(pipeline, world, workers, resume=None, stop=None, **options):
    """Returns the batches of all ranks in stream order, and the state of each rank's loader."""
    ranks, states = [], []
    for rank in range(world):
        dl = loader(pipeline.torch(rank=rank, world=world, resume=resume), workers, **options)
        steps = iter(dl)
        ranks.append(rows(itertools.islice(steps, stop)))
        states.append(kept(dl.state_dict()))
    return [row for step in zip(*ranks) for row in step if row[0]], states


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("before", [(1, 0), (1, 2), (2, 1), (2, 3)])
@pytest.mark.parametrize("after", [(1, 0), (2, 0), (3, 2)])
def test_a_global_state_serves_any_ranks_and_workers(table, before, after, every):
    pipeline = stream(table)
    whole = epochs(pipeline, 0)
    got, states = joined(pipeline, *before, stop=3, snapshot_every_n_steps=every)
    assert got == whole[: 3 * before[0]]
    for state in states:
        state = json.loads(json.dumps(global_state(state)))
        assert joined(pipeline, *after, resume=state)[0] == whole[len(got) :]


@pytest.mark.parametrize("stop", [3, 7])
@pytest.mark.parametrize(("before", "after"), [(None, "drop"), ("drop", None), ("drop", "drop")])
@pytest.mark.parametrize("world", [2, 3])
def test_a_state_behind_its_token_serves_other_ways_to_be_uneven(table, world, before, after, stop):
    # An epoch has five batches. Two ranks take three steps per epoch, or two if the last step, in which rank 1 has no
    # batch, is dropped.
    pipeline = fb.read_parquet(table).select("id", r=fn.random_int(0, 10**6)).shuffle(300, seed=5).take(300).batch(64)
    pipeline = pipeline.repeat(4)
    steps = [[], []]
    states = []
    for rank in range(2):
        dl = loader(pipeline.torch(rank=rank, world=2, uneven=before), 1, snapshot_every_n_steps=100)
        steps[rank] = rows(itertools.islice(iter(dl), stop))
        states.append(json.loads(json.dumps(global_state(dl.state_dict()))))
    assert states[0] == states[1] and states[0]["turn"] == stop
    taken = [row for step in zip(*steps) for row in step if row[0]]
    epoch, ahead = divmod(stop, 2 if before else 3)
    per_epoch = [epochs(pipeline, number) for number in range(4)]
    most = 4 if before else 5
    assert taken == [row for whole in per_epoch[:epoch] for row in whole[:most]] + per_epoch[epoch][: 2 * ahead]
    left = [per_epoch[epoch][2 * ahead :], *per_epoch[epoch + 1 :]]
    if after:
        left = [whole[: len(whole) // world * world] for whole in left]
    ranks = [rows(loader(pipeline.torch(rank=rank, world=world, uneven=after, resume=states[0]), 0)) for rank in range(world)]
    assert [row for step in zip(*ranks) for row in step if row[0]] == [row for whole in left for row in whole]


def test_without_workers_a_loaders_state_serves_any_world(table):
    pipeline = stream(table)
    whole = epochs(pipeline, 0)
    dl = loader(pipeline.torch(rank=0, world=1), 0)
    rows(itertools.islice(iter(dl), 3))
    state = kept(dl.state_dict())
    ranks = []
    for rank in range(2):
        dl = loader(pipeline.torch(rank=rank, world=2), 0)
        dl.load_state_dict(state)
        ranks.append(rows(dl))
    assert [row for step in zip(*ranks) for row in step if row[0]] == whole[3:]


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_of_another_world_are_refused(table, workers):
    pipeline = stream(table)
    dl = loader(pipeline.torch(rank=0, world=2), workers)
    rows(itertools.islice(iter(dl), 3))
    again = loader(pipeline.torch(rank=0, world=3), workers)
    again.load_state_dict(kept(dl.state_dict()))
    with pytest.raises(fb.ResumeError, match="global_state"):
        next(iter(again))


@WORKERS
def test_a_global_state_of_a_loader_that_is_over_or_has_not_begun(table, workers):
    pipeline = stream(table)
    dl = loader(pipeline, workers)
    begun = global_state(kept(dl.state_dict()))
    rows(dl)
    over = global_state(kept(dl.state_dict()))
    for other in (0, 3):
        assert rows(loader(pipeline.torch(resume=begun), other)) == epochs(pipeline, 0)
        assert rows(loader(pipeline.torch(resume=over), other)) == epochs(pipeline, 1)


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_follow_what_was_resumed(table, persistent):
    pipeline = stream(table)
    run = pipeline.run(first_epoch=2)
    batch = [next(run) for _ in range(5)][-1]
    for state in (run.state_dict(), batch.token()):
        dl = loader(pipeline.torch(resume=state), 2, persistent_workers=persistent)
        assert rows(dl) == epochs(pipeline, 2)[5:]
        assert rows(dl) == epochs(pipeline, 3)
    dataset = dl.dataset
    dataset.resume(state)
    if persistent:
        with pytest.raises(fb.ConfigError, match="make a new loader"):
            rows(dl)
    else:
        assert rows(dl) == epochs(pipeline, 2)[5:]
    dataset.set_epoch(1)
    assert rows(loader(dataset, 2)) == epochs(pipeline, 1)


@WORKERS
def test_a_limit_goes_on(table, workers):
    pipeline = stream(table)
    whole = epochs(pipeline, 0)[:10]
    for stop in (1, 4, 10):
        dl = loader(pipeline.torch(limit_batches=10), workers)
        assert rows(itertools.islice(iter(dl), stop)) == whole[:stop]
        again = loader(pipeline.torch(limit_batches=10), workers)
        again.load_state_dict(kept(dl.state_dict()))
        assert rows(again) == whole[stop:]
        # The limit applies to each iteration separately.
        assert rows(again) == epochs(pipeline, 1)[:10]
        state = global_state(kept(dl.state_dict()))
        assert rows(loader(pipeline.torch(limit_batches=10, resume=state), 3)) == whole[stop:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_behind_the_end_is_refused(table, workers):
    dl = loader(stream(table).repeat(3), workers)
    rows(itertools.islice(iter(dl), 20))
    again = loader(stream(table), workers)
    again.load_state_dict(kept(dl.state_dict()))
    with pytest.raises(fb.ConfigError, match="the state is in epoch 1, but a run of 1 epoch"):
        rows(again)
    with pytest.raises(fb.ConfigError, match="the state is in epoch 1"):
        stream(table).torch(resume=global_state(dl.state_dict()))


def test_a_dataset_alone_has_states(table):
    import pickle

    from torch.utils.data import DataLoader

    pipeline = stream(table)
    dataset = pipeline.torch()
    with pytest.raises(ValueError, match="no iteration has started"):
        dataset.state()
    steps = iter(DataLoader(dataset, batch_size=None))
    rows(itertools.islice(steps, 4))
    state = json.loads(json.dumps(dataset.state()))
    other = pipeline.torch()
    other.resume(state)
    copy = pickle.loads(pickle.dumps(other))
    assert rows(other) == rows(copy) == epochs(pipeline, 0)[4:]
    copy = pickle.loads(pickle.dumps(other))
    assert rows(other) == rows(copy) == epochs(pipeline, 1)


def test_a_state_of_another_stream_is_refused(table):
    dl = loader(stream(table), 0)
    rows(itertools.islice(iter(dl), 2))
    state = kept(dl.state_dict())
    other = fb.read_parquet(table).select("id", r="id").batch(64)
    for workers, of in ((0, state), (2, None)):
        if of is None:
            dl = loader(stream(table), 2)
            rows(itertools.islice(iter(dl), 2))
            of = kept(dl.state_dict())
        again = loader(other, workers)
        again.load_state_dict(of)
        with pytest.raises(fb.ResumeError, match="the pipeline means something else"):
            rows(again)
    begun = loader(stream(table), 0).state_dict()
    again = loader(stream(table).torch(seed=8), 0)
    again.load_state_dict(begun)
    with pytest.raises(fb.ResumeError, match="the seed is 8, but was 5 when the state was saved"):
        rows(again)
    with pytest.raises(fb.ResumeError, match="not a state of a StatefulDataLoader"):
        global_state({})
