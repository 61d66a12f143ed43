"""Expressions: their descriptions, and the rows that they compute."""

import pickle

import numpy as np
import pytest

import forebay as fb
from forebay import col, fn, lit, sql_expr


def rows(pipeline, name="v"):
    return np.concatenate([np.asarray(batch[name].numpy()) for batch in pipeline])


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        (col("id") + 1, "id + 1"),
        (1 + col("id"), "1 + id"),
        (col("id") - lit(2), "id - 2"),
        (5 - col("id"), "5 - id"),
        (col("id") * 3, "id * 3"),
        (col("id") / 2, "id / 2"),
        (col("x") / 2, "x / 2"),
        (7.5 / (col("x") + 1), "7.5 / (x + 1)"),
        (col("id") % 7, "id % 7"),
        (-col("x"), "-x"),
        (abs(col("x") - 10), "abs(x - 10)"),
        (col("id").cast("float32"), "CAST(id AS FLOAT)"),
        (col("id").cast(np.int16), "CAST(id AS SMALLINT)"),
        (col("id") == 3, "id = 3"),
        (col("id") != 3, "id <> 3"),
        ((col("id") < 3) | (col("id") >= 990), "id < 3 OR id >= 990"),
        ((col("id") <= 30) & (col("id") > 20) & ~col("flag"), "id <= 30 AND id > 20 AND NOT flag"),
        (col("id").is_in([1, 2, 500]), "id IN (1, 2, 500)"),
        (col("id").between(3, 5), "id BETWEEN 3 AND 5"),
        (col("gaps").is_null(), "gaps IS NULL"),
        (col("gaps").is_not_null(), "gaps IS NOT NULL"),
        (col("gaps").fill_null(-1), "coalesce(gaps, -1)"),
        (col("tokens")[0].fill_null(9), "coalesce(tokens[1], 9)"),
        (col("tokens")[-1].fill_null(9), "coalesce(tokens[-1], 9)"),
        (fn.octet_length(col("name")), "octet_length(name)"),
        (sql_expr("id * 2"), "id * 2"),
        (sql_expr("id") * sql_expr("x + 1"), "id * (x + 1)"),
        (fn.random_uniform(0, 10), "random_uniform(0, 10)"),
        (fn.random_uniform(stream="s"), "random_uniform(stream => 's')"),
    ],
)
def test_an_expression_means_what_its_sql_means(table, expression, sql):
    built = fb.read_parquet(table).select("id", v=expression)
    written = fb.sql(f"SELECT id, {sql} AS v FROM parquet('{table}')")
    np.testing.assert_array_equal(rows(built), rows(written))
    assert built.schema["v"].type == written.schema["v"].type
    assert hash_of(built) == hash_of(written)


def hash_of(pipeline):
    import json

    return json.loads(pipeline.explain(format="json"))["semantic_hash"]


def test_literals(table):
    named = fb.read_parquet(table).take(1).select(
        a=lit("it's"), b=lit(True), c=lit(None), d=lit(2**63), e=lit(np.float32(0.5)), f=lit(b"\x00\xff")
    )
    batch = next(iter(named))
    assert batch["a"].numpy().tolist() == ["it's"]
    assert batch["b"].numpy().tolist() == [True]
    assert batch["c"].numpy().tolist() == [None]
    assert batch["d"].numpy().tolist() == [2**63]
    assert batch["e"].numpy().tolist() == [0.5]
    assert batch["f"].numpy().tolist() == [b"\x00\xff"]
    with pytest.raises(OverflowError):
        fb.read_parquet(table).select(v=lit(2**64)).schema
    with pytest.raises(TypeError, match="found a dict"):
        lit({})


def test_a_text_is_a_column_by_its_exact_name_or_else_sql(tmp_path):
    (tmp_path / "t.csv").write_text("Some Name,b\n1,2\n")
    batch = next(iter(fb.read_csv(tmp_path / "t.csv").select("Some Name", "b * 2 AS twice")))
    assert list(batch) == ["Some Name", "twice"]
    assert batch["twice"].numpy().tolist() == [4]


def test_an_expression_has_no_truth_value(table):
    with pytest.raises(TypeError, match="write & for and"):
        fb.read_parquet(table).filter(col("id") > 1 and col("id") < 3)
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(col("id"))
    with pytest.raises(TypeError, match="is_in takes a list"):
        col("name").is_in("abc")
    with pytest.raises(TypeError):
        {col("id")}


def test_expressions_show_and_pickle():
    expression = (fn.resize(col("image"), 2, 3, filter="nearest").pinned().alias("x") > 1) & ~col("y").is_null()
    text = "((resize(col('image'), 2, 3, 'nearest').pinned().alias('x') > 1) & ~col('y').is_null())"
    assert repr(expression) == text
    assert repr(pickle.loads(pickle.dumps(expression))) == text
