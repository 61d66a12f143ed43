"""DuckDB: one query, ordered by a hash, read as Arrow batches."""

import duckdb

VERSIONS = {"duckdb": duckdb.__version__}

TABLE = """SELECT id, price * clicks AS spent, price * 0.01::DOUBLE AS hundredth FROM read_parquet('{}')
WHERE clicks > 20 ORDER BY hash(id, {})"""
CRITEO = "SELECT label, {}, {} FROM read_parquet('{{}}')".format(
    ", ".join(f"CAST(ln(CAST(greatest(coalesce(i{n}, 0), 0) + 1 AS DOUBLE)) AS REAL) AS i{n}" for n in range(1, 14)),
    ", ".join(f"coalesce(c{n}, 0) % 100000 AS c{n}" for n in range(1, 27)),
)


def batches(workload, data, threads, is_fixed):
    del is_fixed
    connection = duckdb.connect(config={"threads": threads})
    seed = 0

    def epoch():
        nonlocal seed
        seed += 1
        text = CRITEO.format(data) if workload.chain == "criteo" else TABLE.format(data, seed)
        return connection.sql(text).to_arrow_reader(workload.batch)

    return epoch


def columns(batch):
    """Returns the columns of a batch, for the comparison of outputs."""
    return {name: batch[name].to_numpy(zero_copy_only=False) for name in batch.schema.names}
