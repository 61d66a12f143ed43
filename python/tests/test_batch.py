"""Batches: the conversion of columns to NumPy, PyTorch and Arrow."""

import ctypes
import importlib.util
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import forebay as fb
from forebay import col, fn


@pytest.fixture(scope="module")
def batch(table):
    return next(iter(fb.read_parquet(table).batch(40)))


def pixels(photos, *size, **settings):
    decoded = fn.decode_image(col("image"))
    image = fn.to_float(fn.resize(decoded, *size)) if size else decoded
    return fb.images(photos).select("label", pixels=image).shuffle(20, seed=1).batch(20)


def test_a_batch_is_a_mapping(batch):
    assert list(batch) == ["id", "x", "small", "flag", "name", "tokens", "gaps", "when"]
    assert (len(batch), batch.num_rows, batch.epoch, batch.step) == (8, 40, 0, 0)
    assert "id" in batch and "no" not in batch
    with pytest.raises(KeyError):
        batch["no"]
    assert batch.schema["small"] == "Int8" == batch["small"].type
    assert batch.row_keys[:2] == [("table.parquet", 0, 0), ("table.parquet", 1, 0)]
    assert batch.nbytes > 40 * 8 * 2
    assert repr(batch).startswith("Batch of 40 rows (epoch 0, step 0)\n  id: Int64\n")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("id", "int64"), ("x", "float64"), ("small", "int8"), ("flag", "bool"), ("when", "datetime64[ms]")],
)
def test_numbers_are_arrays(batch, name, dtype):
    column = batch[name]
    values = column.numpy()
    assert (values.dtype, values.shape) == (np.dtype(dtype), (40,))
    np.testing.assert_array_equal(values, pa.array(column).to_numpy(zero_copy_only=False))
    np.testing.assert_array_equal(np.asarray(column), values)


def address(values):
    return values.__array_interface__["data"][0]


def test_views_keep_the_memory(table):
    views = [batch["x"].numpy() for batch in fb.read_parquet(table).shuffle(100, seed=1).batch(10)]
    assert sorted(np.concatenate(views).tolist()) == [0.5 * i for i in range(1000)]


def test_texts_lists_and_nulls(batch):
    names = batch["name"].numpy()
    assert (names.dtype, names[39]) == (object, "row 39")
    tokens = batch["tokens"].numpy()
    assert [row.tolist() for row in tokens[:4]] == [[], [0], [0, 1], [0, 1, 2]]
    assert tokens[3].base is not None
    with pytest.raises(ValueError, match='"gaps" has no value in 4 of 40 rows'):
        batch["gaps"].numpy()
    assert batch["gaps"].null_count == 4
    assert batch["gaps"].numpy(nulls=-1)[:2].tolist() == [-1, 1]
    masked = batch["gaps"].numpy(nulls="mask")
    assert masked.mask[:2].tolist() == [True, False] and masked.sum() == sum(range(40)) - 60
    assert batch["id"].numpy(nulls="mask").mask is np.ma.nomask


def test_other_types(tmp_path):
    import datetime
    import decimal

    import pyarrow.parquet as pq

    day = datetime.date(2024, 2, 29)
    rows = pa.table(
        {
            "day": pa.array([day, None]),
            "price": pa.array([decimal.Decimal("1.50"), None]),
            "data": pa.array([b"a", None]),
            "pair": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
            "deep": pa.array([[[1], [2, 3]], None]),
            "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
            "half": pa.array(np.array([1.5, 2], np.float16)),
            "kind": pa.array(["u", "v"]).dictionary_encode(),
        }
    )
    pq.write_table(rows, tmp_path / "t.parquet")
    batch = next(iter(fb.read_parquet(tmp_path / "t.parquet")))
    assert batch["day"].numpy(nulls="mask")[0] == np.datetime64(day)
    assert batch["price"].numpy().tolist() == ["1.50", None]
    assert batch["data"].numpy().tolist() == [b"a", None]
    pair = batch["pair"].numpy()
    assert (pair["a"].tolist(), pair["b"].tolist()) == ([1, 2], ["x", None])
    deep = batch["deep"].numpy()
    assert [row.tolist() for row in deep[0]] == [[1], [2, 3]] and deep[1] is None
    assert batch["fixed"].numpy().tolist() == [[1, 2], [3, 4]]
    assert batch["half"].numpy().dtype == np.float16
    assert batch["kind"].numpy().tolist() == ["u", "v"]


def test_tensors_of_one_shape(photos):
    batch = next(iter(pixels(photos, 4, 6)))
    values = batch["pixels"].numpy()
    assert (values.dtype, values.shape) == (np.float32, (20, 4, 6, 3))
    numbers = [int(file.split("/")[1][:4]) for file, _, _ in batch.row_keys]
    np.testing.assert_allclose(values[:, 0, 0, 0], np.array(numbers) / 255)
    chw = fb.images(photos).select(x=fn.to_chw(fn.resize(fn.decode_image(col("image")), 4, 6))).batch(8)
    assert next(iter(chw))["x"].numpy().shape == (8, 3, 4, 6)


def test_tensors_whose_shape_differs(photos):
    images = fb.images(photos).select(pixels=fn.decode_image(col("image")))
    rows = next(iter(images))["pixels"].numpy()
    assert [row.shape for row in rows] == [(32, 40, 3)] * 40
    assert rows[3].min() == rows[3].max()


def test_memory_that_nobody_else_has_may_be_written(photos, table):
    resized = fn.resize(fn.decode_image(col("image")), 4, 6)
    own = next(iter(fb.images(photos).select(pixels=resized).batch(40)))
    values = own["pixels"].numpy()
    values *= 0
    assert own["pixels"].numpy().max() == 0 and address(values) == address(own["pixels"].numpy())
    # Small batches share one buffer, so each conversion returns a copy. Two columns that share their memory are copied,
    # too, so a write into one does not change the other.
    part = next(iter(fb.images(photos).select(pixels=resized).batch(8)))
    assert address(part["pixels"].numpy()) != address(part["pixels"].numpy())
    same = next(iter(fb.read_parquet(table).select(a="x", b="x")))
    same["a"].numpy()[0] = -1
    assert same["a"].numpy()[0] == same["b"].numpy()[0] == 0


def test_dlpack(photos, batch):
    np.testing.assert_array_equal(np.from_dlpack(batch["x"]), batch["x"].numpy())
    assert batch["x"].__dlpack_device__() == (1, 0)
    tensor = np.from_dlpack(next(iter(pixels(photos, 4, 6)))["pixels"])
    assert tensor.shape == (20, 4, 6, 3)


def test_arrow_takes_batches_and_columns(batch, photos):
    record = pa.record_batch(batch)
    assert record.column("name").to_pylist()[:2] == ["row 0", "row 1"]
    assert pa.table(batch).num_rows == 40
    assert pa.schema(batch).names == list(batch)
    assert pa.array(batch["gaps"]).null_count == 4
    images = pa.record_batch(next(iter(pixels(photos, 4, 6))))
    tensors = images.column("pixels")
    assert tensors.type == pa.fixed_shape_tensor(pa.float32(), [4, 6, 3], dim_names=["H", "W", "C"])
    assert tensors.to_numpy_ndarray().shape == (20, 4, 6, 3)


def test_batches_pickle(batch, photos):
    again = pickle.loads(pickle.dumps(batch))
    assert (again.epoch, again.step, again.row_keys) == (batch.epoch, batch.step, batch.row_keys)
    assert pa.record_batch(again) == pa.record_batch(batch)
    images = next(iter(pixels(photos, 4, 6)))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(images))["pixels"].numpy(), images["pixels"].numpy())


def test_dictionaries_of_arrays(table, batch):
    trees = fb.read_parquet(table).select("id", "x").batch(100).numpy(limit_batches=2)
    assert [tree["id"].sum() for tree in trees] == [4950, 14950]
    assert set(batch.numpy(nulls=0)) == set(batch)


JAX = """
import sys, jax, forebay as fb
pipeline = fb.read_parquet(sys.argv[1]).select("id", "x", "small").batch(100)
batch = next(iter(pipeline))
taken = jax.dlpack.from_dlpack(batch["small"])
assert taken.tolist() == batch["small"].numpy().tolist(), taken
tree = next(iter(pipeline.numpy()))
on_device = jax.device_put(tree)
assert int(on_device["id"].sum()) == 4950 and jax.tree.structure(tree).num_leaves == 3, on_device
"""


def test_jax_takes_batches(table):
    # Runs in a separate process, since JAX warns about forks, which later tests need.
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs JAX")
    subprocess.run([sys.executable, "-c", JAX, str(table)], check=True, timeout=120)


def test_what_is_no_array_has_no_dlpack(batch):
    for name in ("name", "tokens"):
        with pytest.raises(BufferError, match=f'column "{name}"'):
            batch[name].__dlpack__()


@pytest.fixture
def odd(tmp_path):
    """A file of rows with nulls inside fixed-size lists, and with lists of values that are not numbers."""
    rows = pa.table(
        {
            "id": range(100),
            "fixed": pa.array([[1, None if i % 2 else 2] if i % 4 < 3 else None for i in range(100)], pa.list_(pa.float32(), 2)),
            "things": pa.array([[{"k": i, "w": 0.5}] * (i % 3) for i in range(100)]),
            "late": [[None if i == 90 else i] for i in range(100)],
        }
    )
    pa.parquet.write_table(rows, tmp_path / "odd.parquet")
    return fb.read_parquet(tmp_path / "odd.parquet")


def test_nulls_inside_rows(odd):
    fixed = next(iter(odd.batch(4)))["fixed"]
    with pytest.raises(ValueError, match="no value in 2 of 4 rows"):
        fixed.numpy()
    assert fixed.numpy(nulls=-1).tolist() == [[1, 2], [1, -1], [1, 2], [-1, -1]]
    assert fixed.numpy(nulls="mask").mask.tolist() == [[False, False], [False, True], [False, False], [True, True]]


def test_null_structs(tmp_path):
    # The fields of a null struct contain arbitrary values, which must become null.
    gone = pa.array([number % 2 == 0 for number in range(4)])
    inner = pa.StructArray.from_arrays([pa.array(range(4)), pa.array(["x"] * 4)], ["a", "b"], mask=gone)
    outer = pa.StructArray.from_arrays([inner.filter(pa.array([True] * 4))], ["in"], mask=pa.array([False, True] * 2))
    rows = pa.table({"pair": inner, "deep": outer})
    with pa.OSFile(str(tmp_path / "s.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    pipeline = fb.read_arrow(tmp_path / "s.arrow")
    batch = next(iter(pipeline))
    assert batch["pair"].null_count == 2
    with pytest.raises(ValueError, match="no value in 2 of 4 rows"):
        batch["pair"].numpy()
    pair = batch["pair"].numpy(nulls=-1)
    assert (pair["a"].tolist(), pair["b"].tolist()) == ([-1, 1, -1, 3], [None, "x", None, "x"])
    assert batch["deep"].numpy(nulls=-1)["in"]["a"].tolist() == [-1] * 4
    shown = fb.udf(repr, name="repr", reads=["pair"], returns={"v": "str"}, mode="rows")
    assert next(iter(pipeline.map_batches(shown)))["v"].numpy()[:2].tolist() == ["None", "{'a': 1, 'b': 'x'}"]


def test_lists_of_structs(odd):
    batch = list(odd.batch(10))[3]
    things = batch["things"].numpy()
    assert [row["k"].tolist() for row in things[:4]] == [[], [31], [32, 32], []]
    assert "[31]" in batch._repr_html_() and "[31]" in repr(odd.skip(30).preview(10))


def test_lists_are_those_of_the_batch(odd):
    batches = list(odd.select("late").batch(10))
    assert [row.tolist() for batch in batches[:9] for row in batch["late"].numpy()] == [[i] for i in range(90)]
    with pytest.raises(ValueError, match="no value in 1 of 10 rows"):
        batches[9]["late"].numpy()
    elements, offsets = batches[3]["late"]._raw.elements()
    assert len(elements) == 10 and np.asarray(offsets).tolist() == list(range(11))


def test_memory_is_given_back(photos):
    """A view of a batch's memory stays readable after the batch is deleted."""
    batch = next(iter(pixels(photos, 4, 6)))
    view = batch["pixels"].numpy()
    start, expected = address(view), view[0, 0, 0, 0]
    del batch
    assert ctypes.c_float.from_address(start).value == expected == view[0, 0, 0, 0]
