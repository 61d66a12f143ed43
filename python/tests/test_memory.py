"""A write into the memory of a batch, through any interface, never changes data of other batches, columns or arrays."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import forebay as fb
from forebay import col, fn

torch = pytest.importorskip("torch")


def fill(array):
    array[...] = 1


def by_torch(array):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.from_numpy(array).fill_(1)


#: Interfaces through which a program can write into the elements of a column.
ROUTES = {
    "numpy": lambda column: fill(column.numpy()),
    "asarray": lambda column: fill(np.asarray(column)),
    "array protocol": lambda column: fill(column.__array__()),
    "array interface": lambda column: fill(np.asarray(column._raw.memory())),
    "buffer protocol": lambda column: fill(np.frombuffer(memoryview(column.numpy()).cast("B"), np.uint8)),
    "from_numpy": lambda column: by_torch(column.numpy()),
    "torch": lambda column: column.torch().fill_(1),
    "dlpack": lambda column: torch.from_dlpack(column).fill_(1),
    "numpy dlpack": lambda column: by_torch(column.__array__()),
    "filled nulls": lambda column: fill(column.numpy(nulls=0)),
    "masked": lambda column: fill(column.numpy(nulls="mask").data),
}


def small(table, photos):
    """A pipeline whose batches are slices of one buffer, and whose columns `a` and `b` are the same buffer."""
    return fb.read_parquet(table).select(a="x", b="x", c="x + 1").batch(10)


def large(table, photos):
    """A pipeline of large batches of images, whose memory no other object uses."""
    pixels = fn.to_float(fn.resize(fn.decode_image(col("image")), 64, 64))
    return fb.images(photos).select(a=pixels, b="label", c="label + 1").batch(40).repeat(2)


def values(column):
    """Returns the values of a column as a list, and keeps no reference to its memory."""
    array = pa.array(column)
    array = getattr(array, "storage", array)
    return (array.flatten() if pa.types.is_fixed_size_list(array.type) else array).to_numpy().tolist()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("make", [small, large])
def test_no_other_consumer_sees_what_is_written(table, photos, make, route):
    expected = [{name: values(batch[name]) for name in batch} for batch in make(table, photos)]
    # An Arrow array that was created before a write is not changed by the write.
    batches = list(make(table, photos))
    records = [pa.record_batch(batch) for batch in batches]
    arrays = [pa.array(batch["a"]) for batch in batches]
    for batch in batches[:-1]:
        ROUTES[route](batch["a"])
    assert [{name: values(record.column(name)) for name in record.schema.names} for record in records] == expected
    assert [values(array) for array in arrays] == [batch["a"] for batch in expected]
    assert [{name: values(batch[name]) for name in batch} for batch in batches] == expected
    # A write into the first batch changes at most its own column, and no Arrow array that was created from it before.
    first, *others = make(table, photos)
    kept = first["a"].numpy()
    made = pa.array(first["a"]), pa.record_batch(first), pa.table(first)
    ROUTES[route](first["a"])
    fill(kept)
    assert [values(array) for array in (made[0], made[1].column("a"), made[2]["a"].combine_chunks())] == [expected[0]["a"]] * 3
    assert [values(first[name]) for name in "bc"] == [expected[0][name] for name in "bc"]
    assert [{name: values(batch[name]) for name in batch} for batch in others] == expected[1:]


def test_a_run_reads_nothing_that_was_written(table):
    pipeline = fb.read_parquet(table).select("id", "x", "tokens", "gaps").shuffle("global", seed=1).batch(16).repeat(2)
    expected = [pa.record_batch(batch).to_pylist() for batch in pipeline]
    seen = []
    for batch in pipeline:
        seen.append(pa.record_batch(batch).to_pylist())
        for name in batch:
            written = batch[name].torch(nulls=0)
            for part in written if isinstance(written, list) else [written]:
                part.fill_(-1)
    assert seen == expected


def test_without_a_copy_what_others_have_is_refused(table, photos):
    batch = next(iter(small(table, photos)))
    with pytest.raises(BufferError, match='another object uses the memory of column "a"'):
        batch["a"].__dlpack__(copy=False)
    with pytest.raises(ValueError, match='another object uses the memory of column "a"'):
        batch["a"].__array__(copy=False)
    own = next(iter(large(table, photos)))
    own["a"].__array__(copy=False)
    pa.array(own["a"])
    with pytest.raises(BufferError):
        own["a"].__dlpack__(copy=False)


def test_without_a_copy_what_is_stored_otherwise_is_refused(tmp_path):
    columns = {
        "day": pa.array([1, 2], pa.date32()),
        "word": pa.array([3, 4]),
        "flag": pa.array([True, False]),
        "text": pa.array(["a", "b"]),
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    rows = fb.read_parquet(tmp_path / "rows.parquet").with_column("word", "arrow_cast(word, 'Dictionary(Int32, Int64)')")
    batch = next(iter(rows.batch(2)))
    stored = {"day": "days in four bytes", "word": "a dictionary", "flag": "bits", "text": "Utf8"}
    assert "Dictionary" in batch["word"].type
    for name, how in stored.items():
        with pytest.raises(ValueError) as raised:
            batch[name].__array__(copy=False)
        assert str(raised.value) == f'the values of column "{name}" are stored in a form that NumPy cannot share ({how}); allow a copy'
        assert np.asarray(batch[name]).tolist() == batch[name].numpy().tolist()
    for name in ("word", "flag"):
        with pytest.raises(BufferError, match="are stored in a form"):
            batch[name].__dlpack__(copy=False)
        assert np.from_dlpack(batch[name]).tolist() == batch[name].numpy().tolist()
    with pytest.raises(BufferError, match='column "text" of Utf8 is not an array of one shape'):
        batch["text"].__dlpack__(copy=False)


def test_a_functions_arguments_are_read_only(table):
    @fb.udf(reads=["x", "tokens"], returns={"v": "int64"}, name="writes")
    def writes(x, tokens):
        for array in (x, tokens[3]):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                array.flags.writeable = True
        return np.arange(len(x))

    batch = next(iter(fb.read_parquet(table).map_batches(writes).batch(8)))
    assert batch["x"].numpy().tolist() == [0.5 * i for i in range(8)]
