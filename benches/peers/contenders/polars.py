"""Polars: a lazy scan, collected, sampled with shuffling, and sliced."""

import polars as pl

VERSIONS = {"polars": pl.__version__}


def table(path):
    rows = pl.scan_parquet(path).filter(pl.col("clicks") > 20).select(
        "id", spent=pl.col("price") * pl.col("clicks"), hundredth=pl.col("price") * 0.01)
    return rows.collect().sample(fraction=1.0, shuffle=True)


def criteo(path):
    numbers = [(pl.col(f"i{n}").fill_null(0).clip(0) + 1).cast(pl.Float64).log().cast(pl.Float32)
               for n in range(1, 14)]
    indices = [pl.col(f"c{n}").fill_null(0) % 100_000 for n in range(1, 27)]
    return pl.scan_parquet(path).select("label", *numbers, *indices).collect()


def batches(workload, data, threads, is_fixed):
    # The number of threads is set in the environment, before the import.
    del threads, is_fixed
    frame = criteo if workload.chain == "criteo" else table
    return lambda: frame(data).iter_slices(workload.batch)


def columns(batch):
    """Returns the columns of a batch, for the comparison of outputs."""
    return {name: batch[name].to_numpy() for name in batch.columns}
