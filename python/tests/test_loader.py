"""PyTorch's loader and its workers: all workers of an iteration have the same epoch, and no rows are lost."""

import gc
import os
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

import forebay as fb  # noqa: E402
import udfs  # noqa: E402

#: Number of batches per epoch of `stream`.
STEPS = 16

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Python warns about every fork of a process with threads.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield
    # Failed loaders are in reference cycles with their errors. They are collected here, since otherwise a forked worker
    # of a later test might collect them.
    gc.collect()


def stream(table):
    return fb.read_parquet(table).select("id").shuffle(300, seed=5).batch(64)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def epoch(table, number):
    return [batch["id"].numpy().tolist() for batch in stream(table).run(first_epoch=number)]


def loader(dataset, workers, **options):
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_the_number_of_workers_may_change(table, context):
    dataset = stream(table).torch()
    for number, workers in enumerate((2, 4, 0, 1, 3)):
        options = {"multiprocessing_context": context} if workers else {}
        assert ids(loader(dataset, workers, **options)) == epoch(table, number), workers
        assert dataset.epoch == number + 1


def leave(worker):
    if worker == 1:
        os._exit(1)


def test_a_worker_that_dies_before_it_begins_leaves_the_others_in_step(table):
    dataset = stream(table).torch()
    assert ids(loader(dataset, 3)) == epoch(table, 0)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        ids(loader(dataset, 3, worker_init_fn=leave))
    # The failed iteration has consumed epoch 0 only if one of its workers had started.
    following = dataset.epoch
    assert following in (1, 2)
    assert ids(loader(dataset, 3)) == epoch(table, following)


def test_a_generator_that_is_seeded_anew(table):
    dataset = stream(table).torch()
    for number in range(3):
        torch.manual_seed(7)
        assert ids(loader(dataset, 2)) == epoch(table, number)


def test_two_loaders_at_once(table):
    dataset = stream(table).torch()
    pairs = list(zip(loader(dataset, 2), loader(dataset, 2)))
    # The loader whose workers start first gets epoch 0.
    assert sorted(ids(side) for side in zip(*pairs)) == sorted([epoch(table, 0), epoch(table, 1)])


def test_workers_that_live_on_leave_an_epoch_early(table):
    dataset = stream(table).torch()
    batches = loader(dataset, 2, persistent_workers=True)
    for number in range(3):
        for batch in batches:
            assert batch["id"].tolist() == epoch(table, number)[0]
            break
    assert ids(batches) == epoch(table, 3)


def test_set_epoch_keeps_a_state_of_that_epoch(table):
    run = stream(table).run(first_epoch=2)
    batch = [next(run) for _ in range(5)][-1]
    for state in (run.state_dict(), batch.token()):
        dataset = stream(table).torch(resume=state)
        got = []
        for number in (2, 3):
            dataset.set_epoch(number)
            got.append(ids(loader(dataset, 2)))
        assert got == [epoch(table, 2)[5:], epoch(table, 3)]
    dataset = stream(table).torch(resume=state)
    with pytest.warns(UserWarning, match=r"set_epoch\(0\) discards the state of epoch 2"):
        dataset.set_epoch(0)
    assert ids(dataset) == epoch(table, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_nulls(table, workers):
    pipeline = fb.read_parquet(table).select("id", "gaps").batch(40)
    filled = [batch["gaps"].tolist() for batch in loader(pipeline.torch(nulls=-1), workers)]
    assert sum(filled, []) == [-1 if number % 10 == 0 else number for number in range(1000)]
    with pytest.raises(ValueError, match="has no value in 4 of 40 rows"):
        next(iter(loader(pipeline.torch(), workers)))


def test_a_batch_that_cannot_be_converted_is_not_lost(table):
    dataset = fb.read_parquet(table).filter("id > 5").select("id", "gaps").batch(4).torch()
    steps = iter(dataset)
    assert next(steps)["id"].tolist() == [6, 7, 8, 9]
    before = dataset.state()
    for _ in range(2):
        with pytest.raises(ValueError, match="nulls=0"):
            next(steps)
    assert dataset.state() == before and dataset.stats().rows == 4
    again = dataset._pipeline.torch(resume=before, nulls=0)
    assert next(iter(again))["id"].tolist() == [10, 11, 12, 13]


def test_an_error_in_a_worker_knows_what_it_knows(table):
    pipeline = fb.read_parquet(table).map_batches(fb.udf(udfs._checked, reads=["id"], returns={"v": "int64"}, name="c"))
    with pytest.raises(fb.DataError) as raised:
        list(loader(pipeline.select("v").torch(), 1))
    error = raised.value
    assert (error.file, error.row, error.operator) == ("table.parquet", 7, "c")
    assert error.cause == "ValueError: it is seven"
    assert "in DataLoader worker process 0" in str(error) and "forebay.errors:" not in str(error)


def test_settings_are_checked_at_once(table):
    with pytest.raises(fb.ConfigError, match='unknown setting "thread"'):
        stream(table).torch(thread=3)
    with pytest.raises(fb.ConfigError, match="epochs must be at least 1"):
        stream(table).numpy(epochs=0)
    with pytest.raises(TypeError, match="turns is for run"):
        stream(table).torch(turns=3)


def test_the_length_of_what_goes_on(table):
    run = stream(table).run()
    [next(run) for _ in range(10)]
    dataset = stream(table).torch(resume=run.state_dict())
    assert len(dataset) == len(ids(dataset)) == 6
    assert len(dataset) == STEPS
    shares = [stream(table).torch(resume=run.state_dict(), rank=rank, world=2) for rank in range(2)]
    assert [len(share) for share in shares] == [len(ids(share)) for share in shares] == [3, 3]


@linux
def test_an_iteration_that_is_left_ends(table):
    from test_process import threads
    from test_udf_process import children

    before, others = set(threads()), set(children())

    def processes():
        # Excludes processes of earlier tests, which may still be ending.
        return set(children()) - others

    dataset = fb.read_parquet(table).select("id").map_batches(udfs.Add(1)).batch(8).repeat().torch(threads=2)
    for _batch in dataset:
        break
    gc.collect()
    assert processes() == set()
    # Threads for I/O are kept for the next run.
    assert set(threads()) - before <= {"forebay-io"}
    assert dataset.state()["token"]["cursor"]["rows"] == 8 and dataset.stats().batches == 1
    # A run that the program still refers to ends with `close`.
    steps = iter(dataset)
    next(steps)
    assert len(processes()) == 2
    dataset.close()
    assert processes() == set() and list(steps) == []


def ranks(rank, folder, table, out):
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        out.put((rank, [batch["id"].tolist() for batch in stream(table).torch()]))
        # No process exits before both are connected.
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def test_distributed_ranks_are_found(table, tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("torch was built without distributed")
    context = torch.multiprocessing.get_context("spawn")
    out = context.Queue()
    processes = [context.Process(target=ranks, args=(rank, str(tmp_path), table, out)) for rank in range(2)]
    [process.start() for process in processes]
    got = dict(out.get(timeout=120) for _ in processes)
    [process.join(60) for process in processes]
    place = [stream(table).run(rank=rank, world=2, uneven="pad") for rank in range(2)]
    assert [got[rank] for rank in range(2)] == [[batch["id"].numpy().tolist() for batch in run] for run in place]
