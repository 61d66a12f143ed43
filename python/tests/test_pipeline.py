"""Pipelines: their streams, their descriptions, and the errors for mistakes in them."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import forebay as fb
from conftest import make_table
from forebay import col, fn, lit


def ids(batches):
    return [batch["id"].numpy().tolist() for batch in batches]


def semantic_hash(pipeline):
    return json.loads(pipeline.explain(format="json"))["semantic_hash"]


def test_calls_give_the_stream_of_the_same_sql(table):
    built = (
        fb.read_parquet(table)
        .filter(col("id") % 3 == 0)
        .select("id", twice=col("x") * 2)
        .shuffle(150, seed=7)
        .skip(3)
        .take(200)
        .batch(16, drop_remainder=True)
        .repeat(2)
    )
    written = fb.sql(
        f"""SELECT id, x * 2 AS twice FROM parquet('{table}') WHERE id % 3 = 0
            SHUFFLE WITHIN 150 ROWS SEED 7 SKIP 3 TAKE 200 BATCH 16 DROP REMAINDER REPEAT 2"""
    )
    assert ids(built) == ids(written)
    assert semantic_hash(built) == semantic_hash(written)
    epochs = [batch.epoch for batch in built]
    assert epochs == [0] * 12 + [1] * 12


def test_sql_defines_tables_and_pipelines_and_goes_on_with_calls(table):
    text = f"""
        CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{table}';
        CREATE PIPELINE a AS SELECT id FROM t BATCH 10;
        CREATE PIPELINE b AS SELECT id, x FROM t WHERE id < 100 SHUFFLE WITHIN 50 ROWS SEED 3;
    """
    assert list(fb.sql(text).schema) == ["id", "x"]
    assert list(fb.sql(text, name="a").schema) == ["id"]
    going_on = fb.sql(text).filter("id >= 50").batch(8)
    assert sorted(sum(ids(going_on), [])) == list(range(50, 100))
    assert ids(going_on) == ids(fb.sql(text.replace("id < 100", "id < 100 AND id >= 50").rstrip()[:-1] + " BATCH 8"))
    with pytest.raises(fb.PlanError, match="shuffle is called twice"):
        fb.sql(text).shuffle(10).schema
    with pytest.raises(fb.PlanError, match="the SQL defines no pipeline"):
        fb.sql(f"CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{table}'").schema
    with pytest.raises(fb.PlanError, match='unknown pipeline "c"'):
        fb.sql(text, name="c").schema


def test_a_pipeline_is_immutable_and_runs_again_the_same(table):
    base = fb.read_parquet(table).select("id")
    shuffled = base.shuffle("global", seed=1).batch(100)
    assert ids(base.batch(1000)) == [list(range(1000))]
    first, second = ids(shuffled), ids(shuffled)
    assert first == second != ids(base.batch(100))
    assert sorted(sum(first, [])) == list(range(1000))


def test_columns_are_made_replaced_and_named(table):
    pipeline = fb.read_parquet(table).with_column("x", col("x") + 1).with_column("kind", lit("a")).select(
        "x", "kind", half="id / 2", name=col("name")
    )
    assert list(pipeline.schema) == ["x", "kind", "half", "name"]
    batch = next(iter(pipeline.batch(3)))
    assert batch["x"].numpy().tolist() == [1, 1.5, 2]
    assert batch["kind"].numpy().tolist() == ["a"] * 3


def test_every_reader_reads(tmp_path, photos):
    import pyarrow as pa

    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    (tmp_path / "t.json").write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n')
    (tmp_path / "t.csv").write_text("1;a\n2;b\n")
    named = fb.read_csv(tmp_path / "t.csv", delimiter=";", header=False).select(id="column_1")
    for pipeline in (fb.read_arrow(tmp_path / "t.arrow"), fb.read_json(tmp_path / "t.json"), named):
        assert ids(pipeline) == [[1, 2]]
    with pytest.raises(fb.SourceError):
        fb.read_avro(tmp_path / "t.csv").schema
    labels = [batch["label"].numpy() for batch in fb.images(photos).select("label")]
    assert np.bincount(np.concatenate(labels)).tolist() == [20, 20]


def test_ranks_share_the_stream(table):
    pipeline = fb.read_parquet(table).select("id").shuffle(300, seed=2).batch(64)
    alone = ids(pipeline)
    ranks = [ids(pipeline.run(rank=rank, world=3)) for rank in range(3)]
    assert [len(rank) for rank in ranks] == [pipeline.steps(rank=0, world=3)] * 3 == [6] * 3
    dealt = [batch for turn in zip(*ranks) for batch in turn]
    assert [batch for batch in dealt if batch] == alone
    split = pipeline.run(rank=1, world=2), fb.read_parquet(table).batch(64, scope="global").run(rank=1, world=2)
    assert [len(next(run)["id"]) for run in split] == [64, 32]


def test_settings_of_a_run(table):
    pipeline = fb.read_parquet(table).select("id").shuffle(100, seed=1).batch(100)
    base = ids(pipeline)
    assert ids(pipeline.run(threads=1, memory_limit="64MiB", optimize=False)) == base
    assert ids(pipeline.run(seed=2)) != base
    assert ids(pipeline.run(first_epoch=1)) == ids(pipeline.run(epochs=2))[10:] != base
    assert ids(pipeline.run(limit_batches=2)) == base[:2]
    assert ids(pipeline.run(plan=pipeline.save_plan())) == base
    run = pipeline.run(seed=5, epochs=3)
    assert (run.seed, run.steps) == (5, 30)
    for settings, message in [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"rank": 2, "world": 2}, "rank 2 does not exist in a world of 2"),
        ({"threads": -1}, "threads must be a whole number"),
        ({"memory_limit": "3 apples"}, "expected a size"),
        ({"worlds": 2}, "unknown setting"),
        ({"plan": "{}"}, "plan"),
    ]:
        with pytest.raises(fb.Error, match=message):
            pipeline.run(**settings)
    with pytest.raises(fb.MemoryLimitError) as raised:
        pipeline.run(memory_limit=1)
    assert raised.value.minimum > raised.value.limit == 1


def test_options_and_cache(table, tmp_path):
    pipeline = fb.read_parquet(table).select("id", v=col("x") * 2).batch(100).repeat(2)
    plain = ids(pipeline)
    cached = pipeline.options(cache_dir=tmp_path / "it's cached", cache_quota="1GiB").cache("v")
    with cached.run() as run:
        assert ids(run) == plain
        stats = run.stats()
        assert stats.cache_hits == stats.cache_misses == 1000
    assert pipeline.options() is pipeline
    with pytest.raises(fb.PlanError, match="cache needs a directory"):
        pipeline.cache("v").schema
    with pytest.raises(fb.PlanError, match="on_error expects 'fail', 'skip'"):
        pipeline.options(on_error="ignore").schema
    with pytest.raises(fb.PlanError, match='unknown option "on_eror"'):
        pipeline.options(on_eror="skip").schema
    base = fb.sql(f"SELECT id FROM parquet('{table}') OPTIONS (on_error = 'skip')").options(relax="order")
    assert "on_error skip, relax order" in base.explain()


def test_a_pipeline_is_its_description(table):
    pipeline = (
        fb.read_csv("a.csv", header=False)
        .filter("x > 1")
        .select("x", y=fn.resize(col("image"), 2, 2))
        .shuffle("global", seed=3)
        .batch(4, drop_remainder=True)
        .repeat()
        .options(on_error="skip")
    )
    assert repr(pipeline).splitlines() == [
        "read_csv('a.csv', header='false')",
        "  .filter(sql_expr('x > 1'))",
        "  .select(sql_expr('x'), resize(col('image'), 2, 2).alias('y'))",
        "  .shuffle('global', seed=3)",
        "  .batch(4, drop_remainder=True)",
        "  .repeat()",
        "  .options(on_error = 'skip')",
    ]
    assert repr(pickle.loads(pickle.dumps(pipeline))) == repr(pipeline)
    stream = fb.read_parquet(table).select("id").shuffle(100, seed=4).batch(50)
    next(iter(stream))
    assert ids(pickle.loads(pickle.dumps(stream))) == ids(stream)


def test_calls_out_of_order_and_wrong_arguments(table):
    base = fb.read_parquet(table)
    with pytest.raises(fb.PlanError, match="take must come before batch"):
        base.batch(2).take(1).schema
    with pytest.raises(fb.PlanError, match="batch expects a number of rows of at least 1"):
        base.batch(0).schema
    for call in (
        lambda: base.batch("2"),
        lambda: base.take(-1),
        lambda: base.shuffle(1.5),
        lambda: base.repeat(True),
        lambda: base.with_column(col("x"), 1),
        lambda: base.select(object()),
        lambda: fb.sql(3),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="exclude each other"):
        base.batch(2, drop_remainder=True, pad_remainder=True)
    with pytest.raises(ValueError, match="scope"):
        base.batch(2, scope="all")


def test_schema(photos):
    import pyarrow as pa

    decoded = fn.decode_image(col("image"))
    pipeline = fb.images(photos).select("label", any=decoded, pixels=fn.resize(decoded, 4, 6))
    schema = pipeline.schema
    assert str(schema["pixels"]) == "pixels: u8[4, 6, 3]"
    assert (schema["pixels"].shape, schema["any"].shape, schema["label"].shape) == ((4, 6, 3), None, None)
    assert repr(schema) == "label: Int32\nany: u8[H, W, 3]\npixels: u8[4, 6, 3]"
    assert pa.schema(schema).names == ["label", "any", "pixels"]


def test_explain(table):
    pipeline = fb.read_parquet(table).filter("id > 3").select("id").batch(10)
    assert pipeline.explain().startswith("Pipeline pipeline\n")
    assert "Measured" in pipeline.explain(analyze=True)
    assert "<svg" in pipeline.explain(format="svg")
    assert pipeline.explain(format="dot").startswith("digraph")
    assert pipeline.explain(verbose=True) != pipeline.explain()
    assert pipeline.explain(why_not="filter-swap")
    with pytest.raises(fb.Error):
        pipeline.explain(why_not="no-such-rule")


def test_stats(table):
    run = fb.read_parquet(table).select("id").batch(100).run()
    assert run.stats().first_batch_seconds is None
    next(run), next(run)
    stats = run.stats()
    assert (stats.rows, stats.batches, stats.bytes) == (200, 2, 1600)
    assert 0 < stats.first_batch_seconds <= stats.wall_seconds
    list(run)
    ended = run.stats()
    assert (ended.rows, ended.batches, ended.failures) == (1000, 10, ())
    assert run.stats() == ended and ended.rows_per_second > 0
    assert ended.cache_hits is None


def test_an_iterator_ends_when_it_is_closed(table):
    with fb.read_parquet(table).select("id").batch(10).repeat().run() as run:
        batch = next(run)
    assert list(run) == []
    assert batch["id"].numpy().tolist() == list(range(10))
    run.close()


def test_a_file_that_changed_is_planned_again(tmp_path):
    path = make_table(tmp_path / "table.parquet", rows=100)
    pipeline = fb.read_parquet(path).select("id")
    assert sum(batch.num_rows for batch in pipeline) == 100
    make_table(path, rows=300)
    with pytest.raises(fb.SourceError, match="changed since the pipeline was planned.*the next run plans again"):
        list(pipeline)
    assert sum(batch.num_rows for batch in pipeline) == 300


def test_a_cache_at_a_column_of_any_name(table, tmp_path):
    pipeline = fb.read_parquet(table).select(**{'a"b': col("x") * 2}).options(cache_dir=str(tmp_path)).cache('a"b')
    assert list(pipeline.schema) == ['a"b'] and len(list(pipeline)) == 4


def test_previews_at_once(table):
    pipeline = fb.read_parquet(table).select("id")
    counts = list(range(1, 9)) * 10
    with ThreadPoolExecutor(8) as pool:
        previews = list(pool.map(pipeline.preview, counts))
    assert [preview.batch.num_rows for preview in previews] == counts
