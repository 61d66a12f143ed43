"""Compares how fast Python gets batches with the command line running the same pipeline.

    python benches/python_rows.py FOREBAY [--photos FOLDER] [--rounds 5]

FOREBAY is the command, built with `cargo build --release`; the package is installed with `pip install ./python`. Both
sides run the same SQL in processes of their own, one after the other; a round runs each once, in changing order. Time
is from the opened run to its last batch, on both sides. Python asks each batch for NumPy arrays of all columns, and
where PyTorch is installed for tensors. Tables are made here; photos are those of FOLDER, a folder of images, if given.
"""

import argparse
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Number of rows of the table.
ROWS = 2_000_000


def make_table(path: Path) -> None:
    """Writes a table of numbers."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = np.arange(ROWS)
    rng = np.random.default_rng(0)
    columns = {"id": ids, "price": rng.random(ROWS), "clicks": rng.integers(0, 100, ROWS, dtype=np.int32)}
    pq.write_table(pa.table(columns), path, row_group_size=50_000)


def python_side(sql: str, kind: str) -> None:
    """Runs a pipeline in Python and prints the rows per second."""
    import forebay as fb

    if kind == "torch":
        # The time of this import is not measured.
        import torch  # noqa: F401
    run = fb.sql(sql).run()
    start = time.perf_counter()
    rows = 0
    for batch in run:
        rows += batch.num_rows
        if kind == "numpy":
            batch.numpy()
        elif kind == "torch":
            batch.torch()
    print(rows / (time.perf_counter() - start))


def rate(command: str, sql: str, kind: str) -> float:
    """Returns the rows per second of one side: of the command line, or of Python for a kind of array."""
    if kind == "command":
        told = subprocess.run([command, "-q", "run", "-e", sql, "--json"], check=True, capture_output=True, text=True)
        return json.loads(told.stdout)["rows_per_second"]
    told = subprocess.run(
        [sys.executable, __file__, "--side", kind, "--sql", sql, command], check=True, capture_output=True, text=True
    )
    return float(told.stdout)


def main() -> None:
    """Runs both sides in turns, and prints their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command")
    parser.add_argument("--photos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--sql", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        python_side(given.sql, given.side)
        return
    kinds = ["batches", "numpy"] + (["torch"] if importlib.util.find_spec("torch") else [])
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        make_table(table)
        pipelines = {
            "table, batches of 1024": f"SELECT id, price * 2 AS y, clicks FROM parquet('{table}') "
            "SHUFFLE WITHIN 100000 ROWS SEED 1 BATCH 1024 REPEAT 5",
            "table with a filter": f"SELECT id, price * 2 AS y, clicks FROM parquet('{table}') WHERE id % 3 > 0 "
            "SHUFFLE WITHIN 100000 ROWS SEED 1 BATCH 1024 REPEAT 5",
            "batches of 32 rows of two integers": f"SELECT id, clicks FROM parquet('{table}') BATCH 32 REPEAT 2",
        }
        if given.photos:
            pipelines["photos to 224 x 224 floats"] = (
                "SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 224, 224)), 'imagenet') "
                f"AS pixels FROM images('{given.photos}') SHUFFLE WITHIN 1000 ROWS SEED 1 BATCH 64 REPEAT 2"
            )
        for name, sql in pipelines.items():
            rates: dict[str, list[float]] = {kind: [] for kind in ["command", *kinds]}
            for turn in range(given.rounds + 1):
                order = ["command", *kinds]
                for kind in order[turn % len(order) :] + order[: turn % len(order)]:
                    found = rate(given.command, sql, kind)
                    # The first round only warms the file cache up.
                    if turn:
                        rates[kind].append(found)
            batch = int(re.search(r"BATCH (\d+)", sql)[1])
            microseconds = {kind: batch * 1e6 / statistics.median(found) for kind, found in rates.items()}
            told = []
            for kind in kinds:
                ratios = [of / by for of, by in zip(rates[kind], rates["command"])]
                spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                told.append(f"{kind} {spread}, {microseconds[kind]:,.1f} us a batch")
            command = f"{statistics.median(rates['command']):,.0f} rows/s, {microseconds['command']:,.1f} us a batch"
            print(f"{name}: the command {command}; {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
