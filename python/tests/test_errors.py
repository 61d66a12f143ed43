"""Errors: their classes and attributes."""

import pickle

import pytest

import forebay as fb
from conftest import make_photos
from forebay import col, fn


@pytest.fixture
def damaged(tmp_path):
    folder = make_photos(tmp_path, 8)
    (folder / "dogs" / "0003.png").write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    return fb.images(folder).select("label", pixels=fn.resize(fn.decode_image(col("image")), 4, 4)).batch(4)


def test_a_failed_row_names_file_row_and_operator(damaged):
    with pytest.raises(fb.DataError) as raised:
        list(damaged)
    error = raised.value
    assert (error.file, error.row, error.column) == ("dogs/0003.png", 0, "pixels")
    assert "decode_image" in error.operator and error.cause
    assert "dogs/0003.png" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.file, again.row) == (str(error), error.file, error.row)


def test_after_a_failure_the_run_has_ended(damaged):
    run = damaged.run()
    with pytest.raises(fb.DataError):
        list(run)
    assert list(run) == []


POLICIES = [("skip", 7, "skipped"), ("replace", 8, "replaced"), ("null", 8, "nulled")]


@pytest.mark.parametrize(("policy", "rows", "count"), POLICIES)
def test_policies_let_the_run_go_on(damaged, policy, rows, count):
    run = damaged.options(on_error=policy).run()
    batches = list(run)
    stats = run.stats()
    assert (sum(batch.num_rows for batch in batches), getattr(stats, count)) == (rows, 1)
    (failure,) = stats.failures
    assert (failure.file, failure.column) == ("dogs/0003.png", "pixels")
    if policy == "null":
        pixels = [batch["pixels"] for batch in batches]
        assert sum(column.null_count for column in pixels) == 1
        with pytest.raises(ValueError, match='column "pixels" has no value in 1 of 4 rows'):
            [column.numpy() for column in pixels]
        assert pixels[1].numpy(nulls=7).shape == (4, 4, 4, 3)


def test_a_mistake_in_sql_is_shown_at_its_place():
    with pytest.raises(fb.PlanError) as raised:
        fb.sql("SELECT 1 AS one\nBATCH many").schema
    error = raised.value
    assert (error.line, error.column) == (2, 7)
    assert "2 | BATCH many\n  |       ^" in str(error)
    assert isinstance(error, fb.Error)


def test_a_mistake_in_a_call_has_a_hint(table):
    with pytest.raises(fb.PlanError) as raised:
        fb.read_parquet(table).select(col("idd")).schema
    assert raised.value.line is None
    assert raised.value.hint == 'did you mean "id"?'
    with pytest.raises(fb.PlanError, match='line 1, column 5: unknown column "y"'):
        fb.read_parquet(table).filter("x > y").schema


def test_a_source_that_is_not_there():
    with pytest.raises(fb.SourceError, match="no file or folder") as raised:
        next(iter(fb.read_parquet("nowhere.parquet")))
    assert raised.value.source == "parquet('nowhere.parquet')"
