"""Python functions in pipelines: their arguments, results and errors."""

import datetime
import functools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import forebay as fb
import udfs
from forebay import col, fn


def column(pipeline, name="v", **settings):
    return np.concatenate([np.asarray(batch[name].numpy()) for batch in pipeline.run(**settings)])


def semantic_hash(pipeline):
    return json.loads(pipeline.explain(format="json"))["semantic_hash"]


@pytest.mark.parametrize("concurrency", [0, 2])
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["numpy", "arrow", "rows"])
def test_every_mode_gives_the_same(table, mode, concurrency):
    twice = udfs.every(concurrency)[mode]
    pipeline = fb.read_parquet(table)
    assert column(pipeline.map_batches(twice)).tolist() == list(range(0, 2000, 2))
    as_expression = pipeline.filter(twice(col("id") + 1) <= 20).select(v=twice(col("id")) + 1)
    assert column(as_expression).tolist() == list(range(1, 20, 2))
    assert twice().__repr__().endswith("(col('id'))")


@pytest.mark.parametrize("function", [udfs.two, udfs.two_by_row])
def test_several_columns_come_of_one_call(table, function):
    pipeline = fb.read_parquet(table).select("id", "name").map_batches(function).batch(100)
    assert list(pipeline.schema) == ["id", "name", "next", "text"]
    batch = next(iter(pipeline))
    assert batch["next"].numpy().tolist() == list(range(1, 101))
    assert batch["text"].numpy()[3] == "ROW 3"
    assert str(pipeline.explain()).split("Chosen plan")[1].split("Optimiser")[0].count(f"{function.__name__}(id") == 1
    inside = fb.read_parquet(table).select(v=udfs.two(col("id"), col("name"))["next"])
    assert column(inside)[:3].tolist() == [1, 2, 3]


@pytest.mark.parametrize("concurrency", [0, 1])
@pytest.mark.parametrize(
    ("function", "mode"), [(udfs.of_all_types, "rows"), (udfs.of_all_types_batch, "numpy")], ids=["rows", "numpy"]
)
def test_every_type_comes_back(table, function, mode, concurrency):
    typed = fb.udf(function, reads=["id"], returns=udfs.TYPES, mode=mode, concurrency=concurrency)
    pipeline = fb.read_parquet(table).select("id").map_batches(typed).batch(10)
    assert pipeline.schema["e"].shape == (2, 3)
    table = pa.table(pa.record_batch(next(iter(pipeline)))).drop_columns("id")
    rows = table.set_column(4, "e", table["e"].combine_chunks().storage).to_pylist()
    for number, row in enumerate(rows):
        expected = udfs.of_all_types(number)
        expected["e"] = expected["e"].ravel().tolist()
        expected["h"] = expected["h"].item()
        assert row == expected


def test_nulls_are_masked(table):
    batch = next(iter(fb.read_parquet(table).map_batches(udfs.plus_one).batch(12)))
    assert batch["v"].numpy(nulls=-1).tolist() == [-1, *range(2, 11), -1, 12]


def test_images_go_in_and_tensors_go_into_image_functions(photos):
    @fb.udf(returns="tensor<uint8>[4,4,3]")
    def darker(images):
        assert images.shape[1:] == (4, 4, 3) and not images.flags.writeable
        return images // 2

    image = fn.resize(fn.decode_image(col("image")), 4, 4)
    pipeline = fb.images(photos).select(a=fn.to_float(darker(image)), b=fn.to_float(image))
    batch = next(iter(pipeline))
    np.testing.assert_allclose(batch["a"].numpy(), (batch["b"].numpy() * 255).round() // 2 / 255, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_stream_does_not_depend_on_processes(table, threads):
    found = []
    for concurrency in (0, 1, 2):
        twice = udfs.every(concurrency, batch_size=7)[0]
        pipeline = fb.read_parquet(table).map_batches(twice).select("id", "v").shuffle(200, seed=3).batch(64)
        batches = [(b.epoch, b.step, b["id"].numpy().tolist(), b["v"].numpy().tolist(), b.row_keys)
                   for b in pipeline.repeat(2).run(threads=threads, segment_rows=128)]
        found.append((batches, semantic_hash(pipeline)))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == 32


def test_a_class_is_set_up_once_in_each_process(table):
    pipeline = fb.read_parquet(table).map_batches(udfs.Add(5, twice=True)).batch(1000)
    batch = next(iter(pipeline))
    assert batch["v"].numpy().tolist() == list(range(10, 1010))
    assert set(batch["times"].numpy()) == {1}
    # One worker process may have computed all rows before the other was ready.
    assert len(set(batch["process"].numpy())) in (1, 2)
    assert udfs.Add(5, twice=True).name == "udfs.Add(5, twice=True)"
    with pytest.raises(TypeError, match="found a ndarray; create such an object in the class's __init__"):
        udfs.Add(np.zeros(3))


# Errors


@pytest.mark.parametrize("function", [udfs.fails_on_7, udfs.fails_on_row_7])
def test_a_failed_row_names_function_file_row_and_shows_the_users_frames(table, function):
    with pytest.raises(fb.DataError) as raised:
        list(fb.read_parquet(table).map_batches(function))
    error = raised.value
    assert (error.file, error.row, error.column) == ("table.parquet", 7, "v")
    told = {"udfs.fails_on_7": "ValueError: it is seven", "picky": "KeyError: 7"}
    assert error.cause == told[error.operator] and function.name == error.operator
    assert str(error).endswith(f'row 7: {error.operator} for column "v": {error.cause}')
    trace = str(error.__cause__)
    assert isinstance(error.__cause__, fb.errors.UserTraceback)
    frames = [line for line in trace.splitlines() if line.startswith("  File ")]
    assert all("udfs.py" in frame for frame in frames) and len(frames) == (2 if function is udfs.fails_on_7 else 1)
    assert trace.endswith(error.cause)


POLICIES = [("skip", 998, "skipped"), ("replace", 1000, "replaced"), ("null", 1000, "nulled")]


@pytest.mark.parametrize("function", [udfs.fails_on_7, udfs.fails_on_row_7])
@pytest.mark.parametrize(("policy", "rows", "count"), POLICIES)
def test_policies_find_the_rows_of_a_batch(table, function, policy, rows, count):
    run = fb.read_parquet(table).map_batches(function).options(on_error=policy).run()
    batches = list(run)
    stats = run.stats()
    assert (sum(batch.num_rows for batch in batches), getattr(stats, count)) == (rows, 2)
    assert [(failure.row, failure.file) for failure in stats.failures] == [(7, "table.parquet"), (400, "table.parquet")]
    assert "Traceback" not in stats.failures[0].cause


def test_an_error_inside_an_expression_is_the_functions(table):
    pipeline = fb.read_parquet(table).filter(udfs.fails_on_row_7(col("id")) + 1 > 0).options(on_error="skip")
    run = pipeline.run()
    assert sum(batch.num_rows for batch in run) == 998
    assert {failure.operator for failure in run.stats().failures} == {"picky"}


def returning(value, returns="int64", mode="numpy"):
    return fb.udf(lambda ids: value(ids), reads=["id"], returns=returns, mode=mode, name="odd")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (returning(lambda ids: ids[1:]), r"expected int64 of shape \(1000,\), found int64 of shape \(999,\)"),
        (returning(lambda ids: ids * 0.5), r'found float64 of shape \(1000,\); convert it: \.astype\("int64"\)'),
        (returning(lambda ids: None), "found object of shape"),
        (returning(lambda ids: [1, 2]), "expected 1000 rows of int64, found 2"),
        (returning(lambda ids: "text", "str"), "expected 1000 rows of utf8, found a str"),
        (returning(lambda ids: pa.array([1.5] * 1000)), "expected int64, found float64"),
        (returning(lambda ids: pa.array([1])), "expected 1000 rows, found 1"),
        (returning(lambda ids: ids.reshape(-1, 1), "tensor<int64>[2]"), r"expected int64 of shape \(1000, 2\)"),
        (returning(lambda ids: {"a": ids}, {"a": "int64", "b": "int64"}), r"expected the columns \['a', 'b'\]"),
        (returning(lambda ids: (ids,), {"a": "int64", "b": "int64"}), "or a tuple in this order, found 1 values"),
        (returning(lambda ids: ids, "Decimal128(10, 2)"), "expected an Arrow array of decimal128"),
    ],
)
def test_a_wrong_output_says_what_was_expected_whatever_the_policy(table, function, why):
    # All 1000 rows are passed to the function in one call.
    function._options["batch_size"] = 1000
    with pytest.raises(fb.FunctionError, match=why) as raised:
        list(fb.read_parquet(table).map_batches(function).options(on_error="skip"))
    assert raised.value.function == "odd" and str(raised.value).startswith("odd: ")


def test_a_wrong_value_of_a_row_is_that_rows_failure(table):
    function = returning(lambda number: "x" if number == 3 else number, mode="rows")
    run = fb.read_parquet(table).map_batches(function).options(on_error="skip").run()
    assert sum(batch.num_rows for batch in run) == 999
    assert "expected int64, found a str" in run.stats().failures[0].cause


class Raising:
    """A list that raises an exception when elements after the first `good` ones are read."""

    def __init__(self, good):
        self.good = good

    def __len__(self):
        return self.good + 1

    def __getitem__(self, place):
        if place >= self.good:
            raise KeyError(place)
        return place

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array")


def released():
    view = memoryview(b"abc")
    view.release()
    return view


ODD = {
    "text": (["a"], "int64", "expected int64, found a str"),
    "large": ([300], "uint8", "300 does not fit into uint8"),
    "huge": ([2**70], "uint64", "1180591620717411303424 does not fit into uint64"),
    "negative": ([-1], "uint64", "-1 does not fit into uint64"),
    "flag": ([True], "int32", "expected int32, found a bool"),
    "half": ([1.5], "int64", "expected int64, found a float"),
    "number": ([1], "bool", "expected boolean, found a int"),
    "number in a text": ([1], "str", "expected utf8, found a int"),
    "surrogate": (["\ud800"], "str", "expected utf8, found a text with a lone surrogate, which UTF-8 cannot hold"),
    "text in bytes": (["a"], "bytes", "expected binary, found a str"),
    "number in lists": ([1], "list<int32>", "expected list<int32>, found a int"),
    "text in a list": ([[1, "a"]], "list<int32>", "expected int32, found a str"),
    "array in lists": ([np.array([1.5])], "list<int32>", "expected int32, found a float"),
    "large in an array": ([np.array([2**40])], "list<int32>", "1099511627776 does not fit into int32"),
    "text in a list of lists": ([[[1], ["a"]]], "list<list<int32>>", "expected int32, found a str"),
    "tensor": ([np.zeros(3, "f4")], "tensor<float32>[2]", "expected float32 of shape (2,), found float32 of shape (3,)"),
    "time": (["now"], "datetime64[ms]", "expected timestamp(ms), found a str"),
    "duration as a time": ([np.timedelta64(5, "s")], "datetime64[ms]", "expected timestamp(ms), found a timedelta64"),
    "number as a time": ([1.5], "datetime64[ms]", "expected timestamp(ms), found a float"),
    "time as a duration": ([datetime.date(2020, 1, 1)], "timedelta64[ms]", "expected duration(ms), found a date"),
    "number as a duration": ([3], "timedelta64[ms]", "expected duration(ms), found a int"),
    "time in lists of durations": ([np.array([1], "M8[s]")], "list<timedelta64[ms]>", "found a datetime64"),
    "array that is no list": ([np.array(5)], "list<int32>", "expected list<int32>, found a int64"),
    "released memory": ([released()], "bytes", "reading the value raised ValueError: operation forbidden on released memoryview"),
    "list that raises": ([Raising(1)], "list<int32>", "reading the value raised KeyError: 1"),
    "list that raises half way": ([[[1], Raising(3)]], "list<list<int32>>", "reading the value raised KeyError: 3"),
    "tensor that raises": ([Raising(1)], "tensor<float32>[2]", "reading the value raised RuntimeError: no array"),
    "tensor in a list": ([[np.zeros(3, "f4")]], "list<tensor<float32>[2]>", "found float32 of shape (3,)"),
}
GOOD = {
    "int64": 5, "uint8": 5, "uint64": 2**63 + 1, "int32": 5, "bool": True, "str": "é", "bytes": b"\0",
    "list<int32>": [1, None, 3], "list<list<int32>>": [[1], []], "tensor<float32>[2]": np.ones(2, "f4"),
    "datetime64[ms]": np.datetime64("2020-01-02", "ms"), "timedelta64[ms]": datetime.timedelta(seconds=2),
    "list<timedelta64[ms]>": [np.timedelta64(1, "s")], "list<tensor<float32>[2]>": [np.ones(2, "f4")],
}  # fmt: skip


@pytest.mark.parametrize("policy", ["skip", "null", "replace", "fail"])
@pytest.mark.parametrize("mode", ["rows", "numpy"])
@pytest.mark.parametrize("case", ODD)
def test_a_wrong_value_in_a_declared_column_follows_the_policy(table, case, mode, policy):
    (odd,), returns, why = ODD[case]

    def one(number):
        return odd if number in (3, 7) else GOOD[returns]

    def batch(numbers):
        return [one(number) for number in numbers.tolist()]

    function = fb.udf(one if mode == "rows" else batch, reads=["id"], returns={"v": returns}, mode=mode, name="odd")
    pipeline = fb.read_parquet(table).take(20).select("id").map_batches(function).batch(10).options(on_error=policy)
    if policy == "fail":
        with pytest.raises(fb.DataError) as raised:
            list(pipeline)
        assert (raised.value.row, raised.value.operator, raised.value.column) == (3, "odd", "v")
        assert raised.value.cause.startswith('TypeError: column "v": ') and why in raised.value.cause
        return
    run = pipeline.run()
    rows = [row for batch in run for row in pa.record_batch(batch).to_pylist()]
    stats = run.stats()
    assert [failure.row for failure in stats.failures] == [3, 7]
    assert all(why in failure.cause for failure in stats.failures)
    good = rows[0]["v"]
    assert good is not None and good != []
    expected = {
        "skip": [(i, good) for i in range(20) if i not in (3, 7)],
        "null": [(i, None if i in (3, 7) else good) for i in range(20)],
        "replace": [(i + (i in (3, 7)), good) for i in range(20)],
    }[policy]
    assert [(row["id"], row["v"]) for row in rows] == expected


def test_lists_are_read_as_they_are(table):
    odd = [[], None, [1, None, -3], (4, 5), np.array([6, 7], "i4"), np.array([8], "u1"), range(3), [np.int64(9), np.array(1)]]
    told = [[], None, [1, None, -3], [4, 5], [6, 7], [8], [0, 1, 2], [9, 1]]
    function = returning(lambda i: odd[i % len(odd)], "list<int32>", mode="rows")
    batch = next(iter(fb.read_parquet(table).select("id").map_batches(function).batch(1000)))
    assert pa.array(batch["<lambda>"]).to_pylist() == [told[i % len(told)] for i in range(1000)]


MASKED = {
    "int64": [np.ma.masked, np.ma.array(5, mask=True), 1],
    "float32": [np.ma.masked, np.ma.array(5.0, mask=True), 1.0],
    "float16": [np.ma.masked, np.ma.array(5.0, mask=True), 1.0],
    "bool": [np.ma.masked, np.ma.array(True, mask=True), True],
    "str": [np.ma.masked, "a"],
    "bytes": [np.ma.masked, b"a"],
    "datetime64[s]": [np.ma.masked, np.ma.array(np.datetime64(5, "s"), mask=True), datetime.datetime(2020, 1, 1)],
    "list<int64>": [np.ma.masked, [np.ma.masked, 1], np.ma.array([1, 2], mask=[True, False])],
    "list<datetime64[s]>": [[np.ma.masked], np.ma.array(np.array([1, 2], "M8[ns]"), mask=[True, True])],
    "tensor<float64>[2]": [
        np.ma.masked,
        np.ma.array([1.0, 2.0], mask=[False, True]),
        [np.ma.masked, 1.0],
        np.ma.array([1.0, 2.0]),
    ],
}
TOLD = {
    "int64": [None, None, 1],
    "float32": [None, None, 1.0],
    "float16": [None, None, 1.0],
    "bool": [None, None, True],
    "str": [None, "a"],
    "bytes": [None, b"a"],
    "datetime64[s]": [None, None, datetime.datetime(2020, 1, 1)],
    "list<int64>": [None, [None, 1], [None, 2]],
    "list<datetime64[s]>": [[None], [None, None]],
    "tensor<float64>[2]": [None, None, None, [1.0, 2.0]],
}


@pytest.mark.parametrize("mode", ["rows", "numpy"])
@pytest.mark.parametrize("returns", MASKED)
def test_what_is_masked_is_null(table, returns, mode):
    values = MASKED[returns]

    def batch(numbers):
        return [values[number] for number in numbers.tolist()]

    function = fb.udf(values.__getitem__ if mode == "rows" else batch, reads=["id"], returns={"v": returns}, mode=mode, name="odd")
    pipeline = fb.read_parquet(table).select("id").take(len(values)).map_batches(function).batch(10)
    (batch,) = pipeline
    array = pa.array(batch["v"])
    assert getattr(array, "storage", array).to_pylist() == TOLD[returns]


def test_a_masked_struct_is_null(table):
    function = returning(lambda i: np.ma.masked if i == 1 else (i, "a"), {"a": "int64", "b": "str"}, mode="rows")
    (batch,) = fb.read_parquet(table).select("id").take(3).map_batches(function).batch(10)
    assert pa.record_batch(batch).to_pydict() == {"id": [0, 1, 2], "a": [0, None, 2], "b": ["a", None, "a"]}


def test_times_in_lists_keep_their_unit(table):
    odd = [np.array([5], "M8[s]"), np.array([5_000_000_000], "M8[ns]"), [np.datetime64(5, "s")], np.array([[5]], "M8[s]")]
    told = [[datetime.datetime(1970, 1, 1, 0, 0, 5)]] * 3
    function = returning(lambda i: odd[i], "list<datetime64[ms]>", mode="rows")
    pipeline = fb.read_parquet(table).select("id").map_batches(function)
    (batch,) = pipeline.take(3).batch(10)
    assert pa.array(batch["<lambda>"]).to_pylist() == told
    nested = returning(lambda i: odd[3], "list<list<datetime64[ms]>>", mode="rows")
    (batch,) = fb.read_parquet(table).select("id").map_batches(nested).take(1).batch(10)
    assert pa.array(batch["<lambda>"]).to_pylist() == [told[:1]]
    ticks = returning(lambda i: np.array([3 * 10**9], "m8[ns]"), "list<timedelta64[s]>", mode="rows")
    (batch,) = fb.read_parquet(table).select("id").map_batches(ticks).take(1).batch(10)
    assert pa.array(batch["<lambda>"]).to_pylist() == [[datetime.timedelta(seconds=3)]]


def test_a_tensor_that_requires_a_gradient_fails_its_row(table):
    torch = pytest.importorskip("torch")
    function = returning(lambda i: torch.ones(2, requires_grad=i == 3), {"v": "tensor<float32>[2]"}, mode="rows")
    run = fb.read_parquet(table).select("id").map_batches(function).options(on_error="skip").run()
    assert sum(batch.num_rows for batch in run) == 999
    assert "reading the value raised RuntimeError: Can't call numpy()" in run.stats().failures[0].cause


def test_a_mapping_that_raises_fails_its_row(table):
    class Mine(dict):
        def __getitem__(self, name):
            raise OSError("gone")

    function = returning(lambda i: Mine(a=i) if i == 3 else {"a": i}, {"a": "int64"}, mode="rows")
    run = fb.read_parquet(table).select("id").map_batches(function).options(on_error="skip").run()
    assert sum(batch.num_rows for batch in run) == 999
    assert "OSError: gone" in run.stats().failures[0].cause


@pytest.mark.parametrize("concurrency", [0, 1])
def test_an_interrupt_while_a_value_is_read_ends_the_call(table, concurrency):
    function = fb.udf(udfs.interrupted, reads=["id"], returns={"v": "list<int64>"}, mode="rows", concurrency=concurrency)
    with pytest.raises(fb.FunctionError):
        list(fb.read_parquet(table).select("id").map_batches(function).options(on_error="skip"))


# Functions that fail in all rows, and very many failures


@pytest.mark.parametrize("concurrency", [0, 1])
@pytest.mark.parametrize("policy", ["skip", "null", "replace"])
@pytest.mark.parametrize("function", [udfs.mistaken, udfs.mistaken_row])
def test_a_mistake_of_the_code_is_no_empty_epoch(table, function, policy, concurrency):
    function = fb.udf(function._target, **{**function._options, "concurrency": concurrency})
    pipeline = fb.read_parquet(table).select("id").map_batches(function).batch(250).options(on_error=policy)
    told = set()
    for settings in ({}, {"threads": 1, "segment_rows": 7}, {"optimize": False, "segment_rows": 1000}):
        with pytest.raises(fb.FunctionError) as raised:
            list(pipeline.run(**settings))
        told.add(str(raised.value))
        assert "nmae" in str(raised.value.__cause__) and "udfs.py" in str(raised.value.__cause__)
    (message,) = told
    assert raised.value.function == function.name
    assert message.startswith(
        f"{function.name} failed with NameError in every one of the first 100 rows, so the function is at fault rather "
        "than the rows, and on_error does not apply: correct it; the first: "
    )
    assert "table.parquet, row 0: " in message and message.endswith("name 'nmae' is not defined")


def failing(rows, kinds=(ValueError,)):
    def picky(number):
        if number in rows:
            raise kinds[number % len(kinds)]("no")
        return number

    return fb.udf(picky, reads=["id"], returns={"v": "int64"}, mode="rows", deterministic=True)


@pytest.mark.parametrize("policy", ["skip", "null"])
def test_only_the_first_hundred_rows_tell_of_a_mistake(table, policy):
    def run(function, **calls):
        pipeline = fb.read_parquet(table).select("id").map_batches(function)
        run = pipeline.batch(30).options(on_error=policy).run(**calls)
        return sum(batch.num_rows for batch in run), run.stats()

    assert run(failing(range(99)))[0] == (901 if policy == "skip" else 1000)
    assert run(failing(range(100), (ValueError, KeyError)))[0] == (900 if policy == "skip" else 1000)
    assert run(failing(range(1, 1000)))[0] == (1 if policy == "skip" else 1000)
    for settings in ({}, {"threads": 1, "segment_rows": 3}, {"segment_rows": 999}):
        with pytest.raises(fb.FunctionError, match="picky failed with ValueError in every one of the first 100 rows"):
            run(failing(range(100)), **settings)


def test_a_short_epoch_of_failures_is_a_mistake_too(table):
    pipeline = fb.read_parquet(table).select("id").take(7).map_batches(failing(range(7))).options(on_error="skip")
    for epochs in (1, 3):
        with pytest.raises(fb.FunctionError, match="in every one of the first 7 rows"):
            list(pipeline.run(epochs=epochs))
    # If some rows succeed, if a filter drops the failed rows, or if another operator than a Python function fails, the
    # run does not stop.
    some = fb.read_parquet(table).select("id").map_batches(failing(range(3, 1000))).filter("id < 3")
    assert sum(batch.num_rows for batch in some.options(on_error="skip")) == 3
    casts = fb.read_parquet(table).select(v="CAST(name AS BIGINT)").take(200).options(on_error="skip")
    assert sum(batch.num_rows for batch in casts) == 0


def test_the_number_of_arguments_is_checked_before_anything_runs(table):
    def pair(a, b):
        return a

    class Pair:
        def __init__(self, size):
            self.size = size

        def __call__(self, a, b):
            return a

    pipeline = fb.read_parquet(table)
    options = {"returns": {"v": "int64"}, "mode": "rows"}
    with pytest.raises(fb.PlanError, match=r"pair cannot be called with 1 column\(s\): missing a required argument: 'b'"):
        pipeline.map_batches(fb.udf(pair, reads=["id"], **options))
    with pytest.raises(fb.PlanError, match="too many positional arguments"):
        pipeline.select(v=fb.udf(pair, **options)(col("id"), col("x"), col("x")))
    with pytest.raises(fb.PlanError, match="missing a required argument: 'b'"):
        pipeline.map_batches(fb.udf(Pair, reads=["id"], **options)(3))
    with pytest.raises(TypeError, match="the set-up of .*Pair: missing a required argument: 'size'"):
        fb.udf(Pair, reads=["id", "x"], **options)()
    pipeline.map_batches(fb.udf(Pair, reads=["id", "x"], **options)(3))
    pipeline.map_batches(fb.udf(lambda *columns: columns[0], reads=["id", "x"], **options))


def test_what_a_decorator_gives_is_not_asked_of_the_columns(table):
    def with_rate(function):
        @functools.wraps(function)
        def wrapper(*columns):
            return function(0.5, *columns)

        return wrapper

    @with_rate
    def scaled(rate, number):
        return number * rate

    class Static:
        @staticmethod
        def __call__(number):
            return number / 2

    class OfClass:
        @classmethod
        def __call__(cls, number):
            return number / 2

    class Decorated:
        @with_rate
        def __call__(*given):
            return given[0] * given[2]

    pipeline = fb.read_parquet(table).take(3)
    options = {"reads": ["id"], "returns": {"v": "float64"}, "mode": "rows"}
    functions = [fb.udf(scaled, **options), *(fb.udf(made, **options)() for made in (Static, OfClass, Decorated))]
    for function in functions:
        assert column(pipeline.map_batches(function)).tolist() == [0.0, 0.5, 1.0]
    for made in (Static, OfClass):
        with pytest.raises(fb.PlanError, match="too many positional arguments"):
            pipeline.map_batches(fb.udf(made, **{**options, "reads": ["id", "x"]})())


@pytest.mark.parametrize("concurrency", [0, 1])
def test_failures_are_bounded(table, concurrency, tmp_path):
    function = fb.udf(udfs.talkative._target, **{**udfs.talkative._options, "concurrency": concurrency})
    pipeline = fb.read_parquet(table).select("id").map_batches(function)
    with pytest.raises(fb.DataError) as raised:
        list(pipeline)
    error = raised.value
    assert error.row == 1 and error.cause.startswith("ValueError: begin ééé") and error.cause.endswith("ééé end")
    assert "bytes left out" in error.cause and len(error.cause.encode()) <= 1024
    assert len(str(error).encode()) < 2048 and len(str(error.__cause__).encode()) < 4096
    assert "udfs.py" in str(error.__cause__)
    letters = tmp_path / "letters"
    run = pipeline.options(on_error="skip", dead_letters=str(letters)).run()
    assert sum(batch.num_rows for batch in run) == 500
    assert max(len(failure.cause.encode()) for failure in run.stats().failures) <= 1024
    causes = pa.parquet.read_table(letters)["error"].to_pylist()
    assert len(causes) == 500 and max(len(cause.encode()) for cause in causes) <= 4096


def test_builtins_failures_are_bounded(tmp_path):
    rows = {"id": [0, 1], "text": ["1", "x" * 100_000]}
    pa.parquet.write_table(pa.table(rows), tmp_path / "long.parquet")
    with pytest.raises(fb.DataError) as raised:
        list(fb.read_parquet(tmp_path / "long.parquet").select(v="CAST(text AS BIGINT)"))
    assert raised.value.row == 1 and len(raised.value.cause) <= 4096 and "bytes left out" in raised.value.cause


def test_a_failed_set_up_shows_the_users_frames(table):
    for function in (udfs.Broken(), fb.udf(udfs.Broken._target, reads=["id"], returns="int64")()):
        with pytest.raises(fb.FunctionError, match=r"its set-up failed: OSError: no model here$") as raised:
            list(fb.read_parquet(table).map_batches(function))
        assert raised.value.function == "udfs.Broken()"
        trace = str(raised.value.__cause__)
        assert trace.count("  File ") == 1 and "udfs.py" in trace


def test_mistakes_of_a_declaration(table):
    pipeline = fb.read_parquet(table)
    with pytest.raises(TypeError, match="expects a function decorated with forebay.udf"):
        pipeline.map_batches(print)
    with pytest.raises(TypeError, match=r"does not declare the columns that it reads: use udf\(reads=\[..\]\)"):
        pipeline.map_batches(fb.udf(print, returns="int64"))
    with pytest.raises(fb.PlanError, match="udfs.score reads 1 columns, found 2 arguments"):
        pipeline.select(v=udfs.score(col("x"), col("x"))).schema
    with pytest.raises(ValueError, match='unknown type "complex"'):
        pipeline.map_batches(returning(print, "complex")).schema
    with pytest.raises(ValueError, match="expected a tensor such as"):
        pipeline.map_batches(returning(print, "tensor<int8>[a]")).schema
    for wrong in ({"mode": "pandas"}, {"concurrency": -1}, {"version": True}, {"cost": -1}, {"batch_size": 0}):
        with pytest.raises(ValueError):
            fb.udf(print, returns="int64", **wrong)
    two = pipeline.select(a=returning(print)(col("id")), b=returning(print)(col("id")))
    with pytest.raises(fb.PlanError, match="two functions of the pipeline have the name odd"):
        two.schema


def test_a_note_does_not_hide_the_message(table):
    with pytest.raises(fb.DataError) as raised:
        list(fb.read_parquet(table).map_batches(udfs.noted))
    assert raised.value.cause == "ValueError: the reason"
    assert "the reason" in str(raised.value.__cause__)


def test_rows_are_values_of_python(tmp_path):
    rows = {"pair": [{"a": 1}, None], "things": [[{"k": 1, "w": [2]}], [None]]}
    pa.parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    told = column(fb.read_parquet(tmp_path / "rows.parquet").map_batches(udfs.shown)).tolist()
    assert told == ["{'a': 1} [{'k': 1, 'w': [2]}]", "None [None]"]
