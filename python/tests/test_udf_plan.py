"""Python functions in plans: their optimisation, identity and pickling."""

import pickle
import subprocess
import sys

import pytest

import forebay as fb
import udfs
from forebay import col
from test_udf import column, semantic_hash


def chosen(pipeline):
    text = str(pipeline.explain()).split("Chosen plan")[1].split("Optimiser")[0]
    return [line.strip() for line in text.splitlines() if line.strip().startswith(("Project", "Filter"))]


def test_a_declared_function_is_moved_and_an_undeclared_one_is_not(table):
    base = fb.read_parquet(table)
    filtered = base.map_batches(udfs.score).select("id", "score").filter(col("id") < 9)
    filtering, computing = chosen(filtered)[-1], chosen(filtered)[0]
    assert filtering == "Filter id < 9" and "score = udfs.score(x)" in computing
    assert "Written plan (500 ms" in str(filtered.explain())
    fixed = base.map_batches(udfs.undeclared).select("id", "score").filter(col("id") < 9)
    assert "udfs.undeclared(x)" in chosen(fixed)[-1]
    why = str(fixed.explain(why_not="filter-below-row"))
    assert "one of them calls a function that is not declared deterministic" in why
    assert column(filtered, "score").tolist() == column(fixed, "score").tolist() == [i / 4 for i in range(9)]


def test_an_undeclared_function_is_neither_merged_nor_doubled(table):
    calls = []

    @fb.udf(reads=["id"], returns={"v": "int64"})
    def counted(ids):
        calls.append(len(ids))
        return ids.copy()

    v = col("v")
    pipeline = fb.read_parquet(table).map_batches(counted).select(a=v + 1, b=v * 2, c=v).filter(col("a") > 1)
    assert len(list(pipeline.batch(2000))[0]["a"]) == 999
    assert sum(calls) == 1000
    calls.clear()
    twice = fb.read_parquet(table).select(a=counted(col("id")), b=counted(col("id")))
    list(twice)
    assert sum(calls) == 2000


def test_only_a_declared_function_is_cached(table, tmp_path):
    def cached(function, calls):
        base = fb.read_parquet(table).map_batches(function).select("v").batch(100).repeat(3)
        base = base.options(cache_dir=tmp_path / function.name)
        counts = [len(list(base)), sum(calls)]
        return counts, str(base.explain(verbose=True))

    for deterministic in (True, None):
        calls = []

        def dear(ids, calls=calls):
            calls.append(len(ids))
            return ids.copy()

        function = fb.udf(dear, reads=["id"], returns={"v": "int64"}, deterministic=deterministic, cost=10_000,
                          name=f"dear{bool(deterministic)}")
        counts, text = cached(function, calls)
        assert counts == [30, 1000 if deterministic else 3000]
        assert ("is not declared deterministic" in text) is not deterministic


def test_a_filter_that_may_change_its_mind_is_refused_over_ranks(table):
    pipeline = fb.read_parquet(table).map_batches(udfs.undeclared).filter(col("score") > 3).batch(10)
    assert sum(batch.num_rows for batch in pipeline) == 987
    with pytest.raises(fb.ConfigError, match="is not declared deterministic"):
        pipeline.run(rank=0, world=2)
    declared = fb.read_parquet(table).map_batches(udfs.score).filter(col("score") > 3).batch(10)
    rows = [sum(batch.num_rows for batch in declared.run(rank=rank, world=2)) for rank in (0, 1)]
    assert sum(rows) == 987


def test_the_semantic_hash_knows_name_arguments_and_version(table):
    def of(function):
        return semantic_hash(fb.read_parquet(table).select(v=function(col("id"))))

    def again(version=1, name="noted", **options):
        return of(fb.udf(udfs.twice_numpy, returns="int64", version=version, name=name, **options))

    assert again() == again(concurrency=2, cost=5, deterministic=True)
    assert len({again(), again(version=2), again(name="other")}) == 3
    assert len({of(udfs.Add(1)), of(udfs.Add(2)), of(udfs.Add(1, twice=True))}) == 3
    code = (
        "import sys, json; sys.path[:0] = sys.argv[2:]; import forebay as fb, udfs; from forebay import col\n"
        "p = fb.read_parquet(sys.argv[1]).select(v=udfs.Add(1)(col('id')))\n"
        "print(json.loads(p.explain(format='json'))['semantic_hash'])"
    )
    folder = udfs.__file__.rpartition("udfs.py")[0]
    other = subprocess.run([sys.executable, "-c", code, str(table), folder], capture_output=True, text=True, timeout=60)
    assert other.stdout.strip() == of(udfs.Add(1)), other.stderr


# Pickling


def test_functions_pickle_by_name(table):
    assert pickle.loads(pickle.dumps(udfs.score)) is udfs.score
    assert pickle.loads(pickle.dumps(udfs.Add)) is udfs.Add
    pipeline = fb.read_parquet(table).map_batches(udfs.Add(5)).map_batches(udfs.score)
    again = pickle.loads(pickle.dumps(pipeline))
    assert semantic_hash(again) == semantic_hash(pipeline)
    assert column(again)[:3].tolist() == [5, 6, 7]
    plain = pickle.loads(pickle.dumps(fb.udf(udfs.twice_numpy, returns="int64")))
    assert plain._target is udfs.twice_numpy


def test_a_closure_needs_cloudpickle(table, monkeypatch):
    function = fb.udf(lambda ids: ids * 3, reads=["id"], returns={"v": "int64"}, concurrency=1, name="thrice")
    pipeline = fb.read_parquet(table).map_batches(function)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cloudpickle", None)
        with pytest.raises(pickle.PicklingError, match="at the top of a module, or install cloudpickle"):
            pickle.dumps(pipeline)
        with pytest.raises(pickle.PicklingError, match="install cloudpickle"):
            pipeline.schema
    pytest.importorskip("cloudpickle")
    again = pickle.loads(pickle.dumps(pipeline))
    assert column(again)[:3].tolist() == column(pipeline)[:3].tolist() == [0, 3, 6]
