"""How much of two processes is a Python function with `concurrency=2`?

    python benches/python_udf.py [--rows 10000] [--ms 1.0] [--rounds 3] [--threads N]

Forebay runs a NumPy function that spends so much CPU time a row, in two worker processes. The rival is two
processes, each pinned to a processor, that call the same function over the same rows, half of them each, in batches
of the same size, with nothing around them but a pipe for the sums. Rounds are interleaved; starting processes is
timed on neither side (both are warmed up by rows before the clock starts). Needs Linux, pyarrow and an installed
`forebay`; the package may be built without optimisation, as the work is in Python.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import forebay as fb

#: Rows of the rival's calls: those that Forebay makes of the declared cost.
CALL = 50
WIDTH = 64


def work(rows: np.ndarray, seconds: float) -> np.ndarray:
    """Spends CPU time on each row, and gives its sum."""
    out = np.empty(len(rows), dtype=np.float64)
    for row, values in enumerate(rows):
        until = time.thread_time() + seconds
        total = 0.0
        while time.thread_time() < until:
            total = float(np.sqrt(values).sum())
        out[row] = total
    return out


class Work:
    """The function, of a class so that the time is part of its set-up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, values: list[np.ndarray]) -> np.ndarray:
        return work(np.stack(values), self.seconds)


Worked = fb.udf(
    Work, reads=["values"], returns={"sum": "float64"}, deterministic=True, cost=1000, concurrency=2, name="work"
)


def rival(processor: int, rows: np.ndarray, seconds: float, pipe) -> None:
    """A pinned process: waits for the word, computes, tells."""
    os.sched_setaffinity(0, {processor})
    work(rows[:2], seconds)
    pipe.send("ready")
    pipe.recv()
    pipe.send(np.concatenate([work(rows[i : i + CALL], seconds) for i in range(0, len(rows), CALL)]))


def two_processes(rows: np.ndarray, seconds: float) -> tuple[float, np.ndarray]:
    context = multiprocessing.get_context("spawn")
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        raise SystemExit("two processors are needed")
    halves = np.array_split(rows, 2)
    pairs = [context.Pipe() for _ in halves]
    children = [
        context.Process(target=rival, args=(processor, half, seconds, pipe[1]))
        for processor, half, pipe in zip(processors, halves, pairs)
    ]
    [child.start() for child in children]
    [pipe[0].recv() for pipe in pairs]
    begun = time.perf_counter()
    [pipe[0].send("go") for pipe in pairs]
    sums = [pipe[0].recv() for pipe in pairs]
    took = time.perf_counter() - begun
    [child.join() for child in children]
    return took, np.concatenate(sums)


def forebay(path: Path, warm: Path, seconds: float, threads: int | None) -> tuple[float, np.ndarray]:
    function = Worked(seconds)
    # Another run on the same function keeps its processes, as they are shared.
    with fb.read_parquet(warm).map_batches(function).select("sum").batch(4).run(threads=threads) as other:
        next(other)
        begun = time.perf_counter()
        with fb.read_parquet(path).map_batches(function).select("sum").batch(256).run(threads=threads) as run:
            sums = [batch["sum"].numpy() for batch in run]
        took = time.perf_counter() - begun
    return took, np.concatenate(sums)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--ms", type=float, default=1.0, help="CPU time of a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None, help="compute threads of Forebay")
    options = parser.parse_args()
    seconds = options.ms / 1000
    rows = np.random.default_rng(0).random((options.rows, WIDTH))
    with tempfile.TemporaryDirectory() as folder:
        path, warm = Path(folder) / "rows.parquet", Path(folder) / "warm.parquet"
        pq.write_table(pa.table({"values": list(rows)}), path)
        pq.write_table(pa.table({"values": list(rows[:8])}), warm)
        ratios = []
        for number in range(options.rounds):
            theirs, expected = two_processes(rows, seconds)
            ours, found = forebay(path, warm, seconds, options.threads)
            np.testing.assert_array_equal(found, expected)
            ratios.append(theirs / ours)
            print(f"round {number}: two processes {theirs:.2f} s, forebay {ours:.2f} s, ratio {ratios[-1]:.3f}")
    print(f"median ratio {statistics.median(ratios):.3f} (load average {os.getloadavg()[0]:.1f})")


if __name__ == "__main__":
    main()
