"""Rows that cannot be divided equally between ranks: some are repeated so that all ranks have the same number, and a
mask marks the repeated rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

import forebay as fb  # noqa: E402
import udfs  # noqa: E402

ROWS = 37


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    path = tmp_path_factory.mktemp("few") / "few.parquet"
    rows = {"id": list(range(ROWS)), "tokens": [list(range(i % 4)) for i in range(ROWS)]}
    pq.write_table(pa.table(rows), path, row_group_size=10)
    return path


def stream(path):
    return fb.read_parquet(path).shuffle(12, seed=5)


def by_rank(pipeline, world, **settings):
    """Returns, for each rank, its batches as pairs of the ids and of the mask of repeated rows."""
    found = []
    for rank in range(world):
        dataset = pipeline.torch(rank=rank, world=world, **settings)
        batches = [(flat(batch["id"]), batch["padded"]) for batch in dataset]
        assert all(mask.dtype == torch.bool for _, mask in batches)
        found.append([(ids, mask.tolist()) for ids, mask in batches])
    return found


def flat(ids):
    """Returns the ids of a batch as a list; in a batch of packs, a list of ids for each pack."""
    return [row.tolist() for row in ids]


def own(ranks):
    """Returns the rows of all ranks that are not padding."""
    return [row for batches in ranks for ids, mask in batches for row, repeats in zip(ids, mask) if not repeats]


SHAPES = {
    "kept remainder": lambda p: p.batch(4),
    "one batch": lambda p: p.batch(100),
    "fewer rows than ranks": lambda p: p.take(2).batch(4),
    "one row": lambda p: p.take(1).batch(1),
    "dropped remainder": lambda p: p.batch(5, drop_remainder=True),
    "split batches": lambda p: p.batch(8, scope="global"),
    "split batches smaller than the world": lambda p: p.batch(2, scope="global"),
    "a filter": lambda p: p.filter("id % 3 = 1").batch(2),
    "several epochs": lambda p: p.batch(4).repeat(2),
    "epochs that batches cross": lambda p: p.repeat(2).batch(4),
    "buckets": lambda p: p.bucket_by("array_length(tokens)", [2, 3]).batch(3),
    "padded steps": lambda p: p.batch(4).options(equal_steps="pad"),
    "padded steps of few rows": lambda p: p.take(2).batch(4).options(equal_steps="pad"),
    "packs": lambda p: p.filter("id < 9").pack("tokens", 4).batch(2),
    "split packs": lambda p: p.filter("id < 9").pack("tokens", 4).batch(4, scope="global"),
}


@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_rank_has_as_many_rows_in_every_step(few, shape, world):
    pipeline = SHAPES[shape](stream(few).select("id", "tokens"))
    ranks = by_rank(pipeline, world)
    steps = [[len(ids) for ids, _ in batches] for batches in ranks]
    assert steps == [steps[0]] * world and 0 not in steps[0] and steps[0]
    kept = [[flat(batch["id"].torch()) for batch in pipeline.run(rank=rank, world=world)] for rank in range(world)]
    for rank, batches in zip(kept, ranks):
        for rows, (ids, mask) in zip(rank, batches):
            # Padding comes after the rank's own rows, which are the same as without padding.
            assert mask == sorted(mask) and ids[: len(rows)] == rows
    if "padded" not in shape:
        expected = [row for batch in pipeline.run() for row in flat(batch["id"].torch())]
        assert sorted(map(str, own(ranks))) == sorted(map(str, expected))


def test_batches_by_tokens_are_never_empty(few):
    pipeline = stream(few).select("id", "tokens").batch_by_tokens(9, "tokens")
    for world in (2, 3, 4):
        ranks = by_rank(pipeline, world)
        assert len({len(batches) for batches in ranks}) == 1
        assert all(ids for batches in ranks for ids, _ in batches)
        assert sorted(own(ranks)) == list(range(ROWS))


def test_no_rows_are_no_steps(few):
    pipeline = stream(few).filter("id < 0").select("id").batch(4)
    assert by_rank(pipeline, 2) == [[], []]


@pytest.mark.parametrize("shape", ["kept remainder", "split batches", "fewer rows than ranks", "a filter", "packs"])
def test_what_is_padded_depends_on_neither_threads_nor_workers(few, shape):
    pipeline = SHAPES[shape](stream(few).select("id", "tokens"))
    expected = by_rank(pipeline, 3)
    assert by_rank(pipeline, 3, threads=1, segment_rows=1, optimize=False) == expected
    for rank in range(3):
        dataset = pipeline.torch(rank=rank, world=3)
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        assert [(flat(batch["id"]), batch["padded"].tolist()) for batch in loader] == expected[rank]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shape", ["kept remainder", "split batches", "fewer rows than ranks", "several epochs"])
def test_a_state_goes_on_at_the_padded_step(few, shape, workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    pipeline = SHAPES[shape](stream(few).select("id"))
    expected = by_rank(pipeline, 3)

    def loader(rank):
        dataset = pipeline.torch(rank=rank, world=3)
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    for rank in range(3):
        steps = len(expected[rank])
        for stop in {1, steps - 1} - {0}:
            first = loader(rank)
            batches = iter(first)
            for _ in range(stop):
                next(batches)
            state = first.state_dict()
            del batches
            again = loader(rank)
            again.load_state_dict(state)
            assert [(flat(b["id"]), b["padded"].tolist()) for b in again] == expected[rank][stop:]


def test_padding_is_no_part_of_the_streams_identity(few):
    pipeline = stream(few).select("id").batch(4)
    tokens = {}
    for uneven in ("keep", "pad", "drop"):
        runs = [pipeline.run(rank=rank, world=3, uneven=uneven) for rank in range(3)]
        tokens[uneven] = [[json.loads(batch.token()) for batch in run] for run in runs]
        assert tokens[uneven][0] == tokens[uneven][1] == tokens[uneven][2]
    assert tokens["keep"] == tokens["pad"] and tokens["drop"][0] == tokens["keep"][0][:3]
    # A token of a run with `uneven="keep"` resumes in a run with padding, whose next step is padded.
    token = json.dumps(tokens["keep"][1][2])
    batch = next(iter(pipeline.torch(rank=2, world=3, resume=token)))
    assert (batch["padded"].tolist(), len(batch["id"])) == ([True], 1)


def test_steps_are_dropped_on_request_only(few):
    pipeline = stream(few).select("id").batch(4)
    for rank in range(3):
        dataset = pipeline.torch(rank=rank, world=3, uneven="drop")
        assert len(dataset) == len([batch["id"] for batch in dataset]) == 3
        assert "padded" not in next(iter(dataset))
        kept = pipeline.torch(rank=rank, world=3, uneven="keep")
        assert [len(batch["id"]) for batch in kept][3] == [1, 0, 0][rank]
    with pytest.raises(fb.ConfigError, match='uneven must be "pad", "drop" or "keep", found "some"'):
        pipeline.torch(uneven="some")


def test_the_mask_is_there_where_ranks_are_padded(few):
    pipeline = stream(few).select("id").batch(30, pad_remainder=True)
    assert "padded" not in next(iter(pipeline.torch())) and "padded" not in next(iter(pipeline.numpy()))
    assert [batch["padded"].sum().item() for batch in pipeline.torch(padded=True)] == [0, 23]
    assert [batch.padded for batch in pipeline] == [0, 23]
    assert "padded" not in next(iter(pipeline.torch(rank=0, world=2, padded=False)))
    last = list(stream(few).select("id").batch(20).numpy(rank=0, world=3, uneven="pad"))[-1]
    assert last["padded"].dtype == np.bool_ and not last["padded"].any()
    taken = stream(few).select("id", padded="id").batch(4)
    with pytest.raises(fb.ConfigError, match='the batches have a column "padded"'):
        next(iter(taken.torch(rank=0, world=2)))


def test_failed_rows_are_made_up_for(few):
    pipeline = fb.read_parquet(few).map_batches(udfs.fails_on_row_7).select("id", "v").batch(4)
    runs = by_rank(pipeline.options(on_error="skip"), 2)
    # Rank 1 has the second batch, whose last row, row 7, fails. The batch repeats its first row instead.
    assert runs[1][0] == ([4, 5, 6, 4], [False, False, False, True])
    assert sorted(own(runs)) == [row for row in range(ROWS) if row != 7]
    alone = pipeline.options(on_error="skip").torch(rank=0, world=1)
    assert [len(batch["id"]) for batch in alone][:2] == [4, 3]


@pytest.mark.parametrize(
    ("failed", "size", "expected"),
    [
        ({0}, 3, ([1, 1, 1], 1)),
        ({1}, 4, ([0, 0, 0, 0], 2)),
        (set(), 3, ([0, 1, 0], 1)),
    ],
)
def test_rows_that_stand_in_are_no_padding(few, failed, size, expected):
    @fb.udf(reads=["id"], returns={"v": "int64"}, mode="rows", deterministic=True)
    def picky(number):
        if number in failed:
            raise ValueError("no")
        return number

    pipeline = fb.read_parquet(few).take(2).select("id").map_batches(picky).batch(size, pad_remainder=True)
    (batch,) = pipeline.options(on_error="replace")
    assert (batch["id"].numpy().tolist(), batch.padded) == expected
    own = {"skip": [row for row in (0, 1) if row not in failed], "null": [0, 1]}
    for policy, rows in own.items():
        (batch,) = pipeline.options(on_error=policy)
        assert batch["id"].numpy().tolist()[: batch.num_rows - batch.padded] == rows


@pytest.mark.parametrize("make", ["numpy", "torch"])
def test_steps_that_repeat_have_a_mask(few, make):
    pipeline = stream(few).select("id").batch(4).options(equal_steps="pad")
    for settings in ({}, {"uneven": "keep"}, {"uneven": "pad"}):
        counted = []
        for rank in range(3):
            for batch in getattr(pipeline, make)(rank=rank, world=3, **settings):
                counted += batch["id"][~batch["padded"]].tolist()
        assert sorted(counted) == list(range(ROWS))
    # `uneven="drop"` overrides the pipeline's `equal_steps`.
    dropped = [len(list(getattr(pipeline, make)(rank=rank, world=3, uneven="drop"))) for rank in range(3)]
    assert dropped == [3, 3, 3]
    assert "padded" not in next(iter(getattr(pipeline, make)(rank=0, world=3, uneven="drop")))
    assert "padded" not in next(iter(getattr(pipeline, make)(rank=0, world=1)))


def test_a_batch_without_a_good_row_is_an_error(few):
    pipeline = fb.read_parquet(few).map_batches(udfs.fails_on_row_7).select("id", "v").batch(1).options(on_error="skip")
    with pytest.raises(fb.DataError, match="every row of this rank's batch failed, so none can be repeated"):
        list(pipeline.torch(rank=1, world=2))
