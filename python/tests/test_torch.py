"""The PyTorch dataset: tensors, ranks, epochs, loader workers."""

import pickle
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

import forebay as fb  # noqa: E402
from forebay import col, fn  # noqa: E402


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Python warns about every fork of a process with threads.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        yield


def stream(table, **batch):
    return fb.read_parquet(table).select("id").shuffle(300, seed=5).batch(64, **batch)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def test_an_image_batch_is_shared_as_it_is(tmp_path):
    import pyarrow as pa

    from conftest import make_photos

    images = fb.images(make_photos(tmp_path, 64, 24))
    tensor = fn.to_chw(fn.to_float(fn.resize(fn.decode_image(col("image")), 224, 224)))
    batch = next(iter(images.select(pixels=tensor).batch(64)))
    pixels = batch["pixels"].torch()
    assert (pixels.shape, pixels.dtype) == ((64, 3, 224, 224), torch.float32)
    assert pixels.data_ptr() == batch["pixels"].numpy().ctypes.data
    pixels.mul_(0)
    assert batch["pixels"].numpy().max() == 0

    def address(column):
        return pa.array(column).storage.flatten().buffers()[1].address

    # Arrow shares the memory only while no writable tensor does.
    where = pixels.data_ptr()
    assert address(batch["pixels"]) != where
    del pixels
    assert address(batch["pixels"]) == address(batch["pixels"]) == where
    assert batch["pixels"].torch().data_ptr() != where


def test_tensors_may_always_be_written(table):
    batch = next(iter(fb.read_parquet(table).select(a="x", b="x", when="when", flag="flag", name="name").batch(10)))
    tensors = batch.torch()
    tensors["a"].zero_()
    assert tensors["b"].sum() == batch["a"].numpy().sum() != 0
    assert tensors["when"].dtype == torch.int64
    assert tensors["flag"].dtype == torch.bool
    assert tensors["name"][:2] == ["row 0", "row 1"]
    lists = next(iter(fb.read_parquet(table).select("tokens").batch(4))).torch()["tokens"]
    assert [row.tolist() for row in lists] == [[], [0], [0, 1], [0, 1, 2]]


def test_dlpack_shares_what_nobody_else_has(photos, table):
    pixels = fn.resize(fn.decode_image(col("image")), 4, 6)
    own = next(iter(fb.images(photos).select(pixels=pixels).batch(40)))["pixels"]
    assert torch.from_dlpack(own).data_ptr() == own.numpy().ctypes.data
    # Small batches are slices of one buffer, and two columns may share a buffer.
    first, *rest = fb.read_parquet(table).select(a="x", b="x").batch(10)
    expected = [batch["b"].numpy().tolist() for batch in rest]
    torch.from_dlpack(first["a"]).fill_(-1)
    assert first["a"].numpy().tolist() == first["b"].numpy().tolist() == [0.5 * i for i in range(10)]
    assert [batch["b"].numpy().tolist() for batch in rest] == expected
    with pytest.raises(BufferError, match='another object uses the memory of column "a"'):
        first["a"].__dlpack__(copy=False)


def test_a_dataset_goes_on_with_the_next_epoch(table):
    dataset = stream(table).torch()
    epochs = [ids(dataset) for _ in range(3)]
    expected = [ids_of_epoch(stream(table), epoch) for epoch in range(3)]
    assert epochs == expected and epochs[0] != epochs[1]
    assert dataset.epoch == 3
    dataset.set_epoch(1)
    assert ids(dataset) == expected[1]
    assert dataset.epoch == 2
    assert dataset.stats().rows == 1000


def ids_of_epoch(pipeline, epoch, **settings):
    return [batch["id"].numpy().tolist() for batch in pipeline.run(first_epoch=epoch, epochs=1, **settings)]


def test_repeat_is_all_epochs_in_a_row(table):
    dataset = stream(table).repeat(2).torch()
    assert len(dataset) == 32
    assert ids(dataset) == ids_of_epoch(stream(table), 0) + ids_of_epoch(stream(table), 1)
    assert ids(dataset)[:16] == ids_of_epoch(stream(table), 2)


def test_length_is_that_of_the_rank(table):
    assert len(stream(table).torch()) == 16
    assert len(stream(table).torch(rank=1, world=3)) == 6
    assert len(stream(table, drop_remainder=True).torch()) == 15
    assert len(stream(table).torch(epochs=2, limit_batches=20)) == 20
    assert len(stream(table).torch(rank=0, world=2)) == len(ids(stream(table).torch(rank=0, world=2)))
    with pytest.raises(TypeError, match="without end"):
        len(stream(table).repeat().torch())
    filtered = fb.read_parquet(table).filter("id % 7 = 0").select("id").batch(10)
    with pytest.raises(TypeError, match="not known before the rows are read"):
        len(filtered.torch())
    # With several ranks, the filtered rows are counted in advance, so that all ranks take the same number of steps.
    assert len(filtered.torch(rank=0, world=2)) == 8


def test_rank_and_world_of_the_launcher(table, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ids(stream(table).torch()) == ids_of_epoch(stream(table), 0, rank=1, world=4)
    with pytest.raises(ValueError, match="together"):
        stream(table).torch(rank=1)


CASES = {
    "short last batch": (lambda t: stream(t), 1),
    "dropped remainder": (lambda t: stream(t, drop_remainder=True), 1),
    "ranks that are left over": (lambda t: stream(t), 3),
    "ranks that are left over, dropped remainder": (lambda t: stream(t, drop_remainder=True), 4),
    "several epochs": (lambda t: stream(t).repeat(3), 1),
    "a filter": (lambda t: fb.read_parquet(t).filter("id % 3 = 1").select("id").shuffle(100, seed=2).batch(30), 2),
    "padded": (lambda t: stream(t, pad_remainder=True), 3),
    "split batches": (lambda t: stream(t, scope="global"), 2),
    "continuous": (lambda t: fb.read_parquet(t).select("id").shuffle(100, seed=2).repeat(2).batch(300), 1),
    "equal steps": (lambda t: stream(t).options(equal_steps="drop"), 3),
    "packs": (
        lambda t: fb.sql(f"SELECT id, tokens FROM parquet('{t}') SHUFFLE WITHIN 100 ROWS PACK tokens INTO 8 BATCH 10"),
        1,
    ),
    "a random filter": (
        lambda t: fb.read_parquet(t).filter(fn.random_bool(0.5)).select("id").seed(3).batch(50).repeat(2),
        1,
    ),
}


def place_and_rows(batch):
    return batch.epoch, batch.step, [np.asarray(row).tolist() for row in batch["id"].numpy()]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("workers", [2, 3])
def test_loader_workers_give_the_stream_of_one_process(table, case, workers):
    make, world = CASES[case]
    pipeline = make(table)
    for rank in range(world):
        place = {"rank": rank, "world": world}
        alone = [place_and_rows(batch) for batch in pipeline.run(**place)]
        for limit in (None, 5):
            settings = {**place, "turns": workers, "limit_batches": limit}
            runs = [pipeline.run(turn=worker, **settings) for worker in range(workers)]
            parts = [[place_and_rows(batch) for batch in run] for run in runs]
            turns = [part[turn] for turn in range(len(alone)) for part in parts if turn < len(part)]
            assert turns == alone[:limit]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_data_loader_with_workers(table, context):
    dataset = stream(table).torch()
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context)
    assert len(loader) == 16
    # Each epoch has new workers, and `set_epoch` is not called.
    assert [ids(loader) for _ in range(2)] == [ids_of_epoch(stream(table), epoch) for epoch in range(2)]
    dataset.set_epoch(7)
    assert ids(loader) == ids_of_epoch(stream(table), 7)


def test_workers_that_live_on_hear_set_epoch(table):
    dataset = stream(table).torch()
    loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
    assert [ids(loader) for _ in range(2)] == [ids_of_epoch(stream(table), epoch) for epoch in range(2)]
    dataset.set_epoch(5)
    assert ids(loader) == ids_of_epoch(stream(table), 5)
    del loader


def test_datasets_pickle(table):
    dataset = stream(table).torch(rank=1, world=2)
    ids(dataset)
    again = pickle.loads(pickle.dumps(dataset))
    assert ids(again) == ids(dataset) == ids_of_epoch(stream(table), 1, rank=1, world=2, uneven="pad")


def test_torchdatas_loader_runs_it(table):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = torchdata.StatefulDataLoader(stream(table).torch(), batch_size=None, num_workers=0)
        assert ids(loader) == ids_of_epoch(stream(table), 0)
