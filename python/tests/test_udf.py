"""Python functions in pipelines: what they take and give, their errors, and what the optimiser makes of them."""

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
    # One may have done all before the other was ready.
    assert len(set(batch["process"].numpy())) in (1, 2)
    assert udfs.Add(5, twice=True).name == "udfs.Add(5, twice=True)"
    with pytest.raises(TypeError, match="found a ndarray; make it in the class's __init__"):
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
        (returning(lambda ids: ["a"] * 1000), "row 0 of 1000: expected int64, found a str"),
        (returning(lambda ids: [300] * 1000, "uint8"), "300 does not fit into uint8"),
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
    # A call of 1000 rows.
    function._options["batch_size"] = 1000
    with pytest.raises(fb.FunctionError, match=why) as raised:
        list(fb.read_parquet(table).map_batches(function).options(on_error="skip"))
    assert raised.value.function == "odd" and str(raised.value).startswith("odd: ")


def test_a_wrong_value_of_a_row_is_that_rows_failure(table):
    function = returning(lambda number: "x" if number == 3 else number, mode="rows")
    run = fb.read_parquet(table).map_batches(function).options(on_error="skip").run()
    assert sum(batch.num_rows for batch in run) == 999
    assert "expected int64, found a str" in run.stats().failures[0].cause


def test_a_failed_set_up_shows_the_users_frames(table):
    for function in (udfs.Broken(), fb.udf(udfs.Broken._target, reads=["id"], returns="int64")()):
        with pytest.raises(fb.FunctionError, match=r"its set-up failed: OSError: no model here$") as raised:
            list(fb.read_parquet(table).map_batches(function))
        assert raised.value.function == "udfs.Broken()"
        trace = str(raised.value.__cause__)
        assert trace.count("  File ") == 1 and "udfs.py" in trace


def test_mistakes_of_a_declaration(table):
    pipeline = fb.read_parquet(table)
    with pytest.raises(TypeError, match="takes a function that forebay.udf decorated"):
        pipeline.map_batches(print)
    with pytest.raises(TypeError, match=r"does not say which columns it reads: udf\(reads=\[..\]\)"):
        pipeline.map_batches(fb.udf(print, returns="int64"))
    with pytest.raises(fb.PlanError, match="udfs.score reads 1 columns, found 2 arguments"):
        pipeline.select(v=udfs.score(col("x"), col("x"))).schema
    with pytest.raises(ValueError, match='no type is called "complex"'):
        pipeline.map_batches(returning(print, "complex")).schema
    with pytest.raises(ValueError, match="expected a tensor such as"):
        pipeline.map_batches(returning(print, "tensor<int8>[a]")).schema
    for wrong in ({"mode": "pandas"}, {"concurrency": -1}, {"version": True}, {"cost": -1}, {"batch_size": 0}):
        with pytest.raises(ValueError):
            fb.udf(print, returns="int64", **wrong)
    two = pipeline.select(a=returning(print)(col("id")), b=returning(print)(col("id")))
    with pytest.raises(fb.PlanError, match="two functions of the pipeline are called odd"):
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
