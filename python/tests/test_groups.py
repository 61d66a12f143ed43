"""Packs, buckets, batches by tokens, padding and mixes: they equal the same pipelines in SQL, and have the expected
contents."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
from conftest import make_photos
from forebay import col, fn


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A file of rows with lists of one to nine elements. All elements of a list are the row's id."""
    ids = np.arange(200)
    rows = {"id": ids, "tokens": [[int(i)] * int(1 + i * 31 % 9) for i in ids]}
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    pq.write_table(pa.table(rows), path, row_group_size=40)
    return path


def semantic_hash(pipeline):
    return json.loads(pipeline.explain(format="json"))["semantic_hash"]


def contents(pipeline, **settings):
    columns = lambda batch: pa.record_batch(batch).to_pydict()  # noqa: E731
    return [(batch.epoch, batch.step, columns(batch), batch.row_keys) for batch in pipeline.run(**settings)]


def same(built, written):
    assert semantic_hash(built) == semantic_hash(written)
    rows = contents(built)
    assert rows == contents(written)
    assert len(rows) > 1
    return rows


def length(row):
    return 1 + row * 31 % 9


def test_packs(texts):
    built = fb.read_parquet(texts).shuffle(50, seed=3).pack("tokens", 16).batch(4, drop_remainder=True)
    written = fb.sql(
        f"SELECT * FROM parquet('{texts}') SHUFFLE WITHIN 50 ROWS SEED 3 PACK tokens INTO 16 BATCH 4 DROP REMAINDER"
    )
    seen = []
    for _, _, columns, keys in same(built, written):
        assert sum(len(ids) for ids in columns["id"]) == len(keys)
        assert len(columns["tokens"]) == 4
        packs = zip(columns["id"], columns["tokens"], columns["tokens_segment_ids"], columns["tokens_positions"])
        for ids, tokens, segments, positions in packs:
            expected = [(i, nth, place) for nth, i in enumerate(ids, 1) for place in range(length(i))]
            expected += [(0, 0, 0)] * (16 - len(expected))
            assert list(zip(tokens, segments, positions)) == expected
            seen += ids
    assert len(seen) == len(set(seen)) > 150
    batch = next(iter(built))
    assert batch["tokens"].numpy().shape == (4, 16)
    assert built.schema["id"].type == "List(Int64)"
    assert list(built.schema) == list(batch)


def test_buckets(texts):
    built = fb.read_parquet(texts).select("id", "tokens").shuffle(50, seed=3)
    built = built.bucket_by(fn.array_length(col("tokens")), [4, 7]).batch(8).options(horizon=100)
    written = fb.sql(
        f"""SELECT id, tokens FROM parquet('{texts}') SHUFFLE WITHIN 50 ROWS SEED 3
            BUCKET BY array_length(tokens) BOUNDARIES (4, 7) BATCH 8 OPTIONS (horizon = 100)"""
    )
    rows = same(built, written)
    buckets = [{np.searchsorted([4, 7], len(t), "right") for t in columns["tokens"]} for _, _, columns, _ in rows]
    assert all(len(bucket) == 1 for bucket in buckets)
    assert set.union(*buckets) == {0, 1, 2}
    assert sorted(i for _, _, columns, _ in rows for i in columns["id"]) == list(range(200))
    # The expression may be a text. Another horizon gives the pipeline another meaning.
    text = fb.read_parquet(texts).select("id", "tokens").shuffle(50, seed=3)
    text = text.bucket_by("array_length(tokens)", (4, 7)).batch(8)
    assert semantic_hash(text.options(horizon=100)) == semantic_hash(built)
    assert semantic_hash(text.options(horizon=1)) != semantic_hash(built)


def test_batches_by_tokens_and_padding(texts):
    built = fb.read_parquet(texts).select("id", "tokens").batch_by_tokens(40, "tokens").pad("tokens")
    written = fb.sql(f"SELECT id, tokens FROM parquet('{texts}') BATCH BY TOKENS 40 ON tokens PAD tokens")
    for _, _, columns, _ in same(built, written):
        lengths = [length(i) for i in columns["id"]]
        assert columns["tokens_length"] == lengths
        longest = max(lengths)
        assert longest * len(lengths) <= 40
        padded = zip(columns["id"], columns["tokens"], lengths)
        assert all(tokens == [i] * n + [0] * (longest - n) for i, tokens, n in padded)
    built = fb.read_parquet(texts).batch(8, scope="global").pad("tokens", to=12)
    written = fb.sql(f"SELECT * FROM parquet('{texts}') BATCH 8 GLOBAL PAD tokens TO 12")
    rows = same(built, written)
    assert all(len(tokens) == 12 for _, _, columns, _ in rows for tokens in columns["tokens"])
    built = fb.read_parquet(texts).batch(8).pad("tokens", value=-1)
    assert "pad('tokens', value=-1)" in repr(built)
    written = fb.sql(f"SELECT * FROM parquet('{texts}') BATCH 8 PAD tokens WITH -1")
    rows = same(built, written)
    assert any(tokens[-1] == -1 for _, _, columns, _ in rows for tokens in columns["tokens"])
    built = fb.read_parquet(texts).select("tokens").pack("tokens", 10).batch(2).pad("tokens", value=np.int16(-2))
    written = fb.sql(f"SELECT tokens FROM parquet('{texts}') PACK tokens INTO 10 BATCH 2 PAD tokens WITH -2")
    rows = same(built, written)
    assert any(tokens[-1] == -2 for _, _, columns, _ in rows for tokens in columns["tokens"])
    built = fb.read_parquet(texts).batch_by_tokens(40, "tokens", drop_remainder=True, scope="global")
    written = fb.sql(f"SELECT * FROM parquet('{texts}') BATCH BY TOKENS 40 ON tokens GLOBAL DROP REMAINDER")
    same(built, written)


def test_mixes(texts, table):
    texts_arm, table_arm = fb.read_parquet(texts).select("id"), fb.read_parquet(table).filter("id < 300").select("id")
    for stop in ("first", "longest"):
        built = fb.mix([(texts_arm, 0.7), (table_arm, 0.3)], stop=stop).shuffle(50, seed=3).batch(16)
        said = "" if stop == "first" else ", stop => 'longest'"
        written = fb.sql(
            f"""SELECT * FROM MIX ((SELECT id FROM parquet('{texts}')) WEIGHT 0.7,
                (SELECT id FROM parquet('{table}') WHERE id < 300) WEIGHT 0.3{said})
                SHUFFLE WITHIN 50 ROWS SEED 3 BATCH 16"""
        )
        rows = same(built, written)
        files = [file for *_, keys in rows for file, _, _ in keys]
        assert 0.55 < files.count("texts.parquet") / len(files) < 0.85
    # A mix of whole sources and of SQL texts. Table names of a text are visible only in this text.
    sql = fb.sql(f"CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{table}'; SELECT id FROM t WHERE id > 900")
    fewer = sql.filter("id > 950")
    outer = fb.mix([(fb.read_parquet(texts).select("id"), 2), (sql, 1), (fewer, 1)]).filter("id <> 5").batch(10)
    assert sum(len(keys) for *_, keys in contents(outer)) > 50
    # A mix can be resumed, split over ranks, pickled and printed.
    run = built.run()
    for _ in range(3):
        next(run)
    rest = contents(built)[3:]
    assert contents(built, resume=run.state_dict(), threads=1) == rest
    ranks = [contents(built, rank=rank, world=2) for rank in range(2)]
    assert [step[2] for steps in zip(*ranks) for step in steps if step[3]] == [row[2] for row in contents(built)]
    import pickle

    assert semantic_hash(pickle.loads(pickle.dumps(built))) == semantic_hash(built)
    assert repr(built).startswith("mix([(read_parquet(") and "stop='longest'" in repr(built)


def test_mistakes(texts, table):
    rows = fb.read_parquet(texts)
    with pytest.raises(fb.PlanError, match="WEIGHT expects a number above 0"):
        fb.mix([(rows, 1), (rows, 0)]).schema
    with pytest.raises(fb.PlanError, match='has no column "tokens"'):
        fb.mix([(rows, 1), (fb.read_parquet(table).select("id"), 1)]).schema
    with pytest.raises(fb.PlanError, match="a pipeline without clauses"):
        fb.mix([(rows.batch(3), 1), (rows, 1)]).schema
    with pytest.raises(fb.PlanError, match="an arm of a mix cannot have options or a cache"):
        fb.mix([(rows.options(on_error="skip"), 1), (rows, 1)]).schema
    with pytest.raises(TypeError, match="an arm of a mix must be a pipeline and its weight"):
        fb.mix([rows])
    with pytest.raises(fb.PlanError, match="a MIX inside a MIX is not supported yet"):
        fb.mix([(fb.mix([(rows, 1), (rows, 2)]), 1), (rows, 1)]).batch(2).schema
    with pytest.raises(ValueError, match="stop must be"):
        fb.mix([(rows, 1)], stop="last")
    with pytest.raises(fb.PlanError, match="PACK needs a list of numbers"):
        rows.pack("id", 10).batch(2).schema
    with pytest.raises(fb.PlanError, match="on_error = 'replace' with PACK"):
        rows.pack("tokens", 10).batch(2).options(on_error="replace").schema
    with pytest.raises(fb.PlanError, match="boundaries in ascending order"):
        rows.bucket_by("id", [3, 2]).batch(2).schema
    with pytest.raises(fb.PlanError, match="pad must come after batch"):
        rows.pad("tokens").schema
    with pytest.raises(TypeError, match="into must be a whole number"):
        rows.pack("tokens", 1.5)
    with pytest.raises(TypeError, match="column must be a column's name"):
        rows.pad(col("tokens"))
    with pytest.raises(TypeError, match="value must be a number"):
        rows.pad("tokens", value="x")
    with pytest.raises(ValueError, match="scope must be"):
        rows.batch_by_tokens(10, "tokens", scope="all")


@pytest.fixture
def damaged(tmp_path):
    folder = make_photos(tmp_path / "photos", 20)
    for number in (3, 4, 9):
        (place,) = folder.glob(f"*/{number:04}.png")
        place.write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    return fb.images(folder).select("label", pixels=fn.resize(fn.decode_image(col("image")), 4, 4)).batch(4)


def test_options_of_errors_are_those_of_sql(damaged, tmp_path):
    letters = tmp_path / "letters.parquet"
    given = {"on_error": "skip", "error_budget": 10, "dead_letters": letters, "dead_letter_bytes": "1MiB"}
    pipeline = damaged.options(**given, equal_steps="drop")
    # Error budgets and dead-letter tables are not part of a stream's meaning, but `equal_steps` is.
    assert semantic_hash(pipeline) == semantic_hash(damaged.options(on_error="skip", equal_steps="drop"))
    assert semantic_hash(pipeline) != semantic_hash(damaged.options(on_error="skip"))
    assert sum(batch.num_rows for batch in pipeline) == 17
    with pytest.raises(fb.PlanError, match="error_budget"):
        damaged.options(error_budget="many").schema
    with pytest.raises(fb.PlanError, match="dead_letter_bytes"):
        damaged.options(dead_letter_bytes="many").schema
