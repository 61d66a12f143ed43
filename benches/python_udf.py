"""Compares a Python function with `concurrency=2` with two processes, and lists of Python's with arrow mode.

    python benches/python_udf.py [--rows 10000] [--ms 1.0] [--rounds 3] [--threads N]
    python benches/python_udf.py --lists [--rows 7473] [--rounds 3] [--threads N]

Forebay runs a NumPy function that spends so much CPU time a row, in two worker processes. The rival is two
processes, each pinned to a processor, that call the same function over the same rows, half of them each, in batches
of the same size, with nothing around them but a pipe for the sums. Rounds are interleaved; starting processes is
timed on neither side (both are warmed up by rows before the clock starts). Needs Linux, pyarrow and an installed
`forebay`; the package may be built without optimisation, as the work is in Python.

With `--lists`, a tokeniser returns a list of whole numbers for each text: by rows, over batches as lists, and in Arrow mode, where
PyArrow makes the array of them. The rival of the first two is the third; all do the same work in plain Python, whose time
alone is told, too. Needs a package that was built with optimisation.
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

#: Rows per call of the rival: as many as Forebay chooses for the declared cost.
CALL = 50
WIDTH = 64


def work(rows: np.ndarray, seconds: float) -> np.ndarray:
    """Spends CPU time on each row, and returns the sum of each row."""
    out = np.empty(len(rows), dtype=np.float64)
    for row, values in enumerate(rows):
        until = time.thread_time() + seconds
        total = 0.0
        while time.thread_time() < until:
            total = float(np.sqrt(values).sum())
        out[row] = total
    return out


class Work:
    """The measured function. It is a class, so that its time per row is an argument of its set-up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, values: list[np.ndarray]) -> np.ndarray:
        return work(np.stack(values), self.seconds)


Worked = fb.udf(
    Work, reads=["values"], returns={"sum": "float64"}, deterministic=True, cost=1000, concurrency=2, name="work"
)


def rival(processor: int, rows: np.ndarray, seconds: float, pipe) -> None:
    """A process pinned to a processor: sets up, waits for a message, computes its rows, and sends the sums."""
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
    # The other run keeps the function's worker processes alive, so that they need not start during the measured run.
    with fb.read_parquet(warm).map_batches(function).select("sum").batch(4).run(threads=threads) as other:
        next(other)
        begun = time.perf_counter()
        with fb.read_parquet(path).map_batches(function).select("sum").batch(256).run(threads=threads) as run:
            sums = [batch["sum"].numpy() for batch in run]
        took = time.perf_counter() - begun
    return took, np.concatenate(sums)


def tokens_of(text: str) -> list[int]:
    """Returns one whole number for each word of a text, and one for each word's first three letters."""
    return [hash_of[part] for word in text.split() for part in (word, word[:3])]


#: The numbers of words and of their beginnings.
hash_of: dict[str, int] = {}


def by_row(text: str) -> list[int]:
    return tokens_of(text)


def by_batch(texts: np.ndarray) -> list[list[int]]:
    return [tokens_of(text) for text in texts]


def by_arrow(texts: pa.Array) -> pa.Array:
    return pa.array([tokens_of(text) for text in texts.to_pylist()], pa.list_(pa.int32()))


def lists(rows: int, rounds: int, threads: int | None) -> None:
    draw = np.random.default_rng(0)
    words = ["".join(map(chr, draw.integers(97, 123, size))) for size in draw.integers(2, 10, 5000)]
    hash_of.update({part: number for number, word in enumerate(words) for part in (word, word[:3])})
    texts = [" ".join(draw.choice(words, size)) for size in draw.integers(40, 160, rows)]
    functions = {"rows": (by_row, "rows"), "numpy": (by_batch, "numpy"), "arrow": (by_arrow, "arrow")}
    times: dict[str, list[float]] = {name: [] for name in ("python", *functions)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.parquet"
        pq.write_table(pa.table({"text": texts}), path)
        for number in range(rounds):
            begun = time.perf_counter()
            expected = sum(len(tokens_of(text)) for text in texts)
            times["python"].append(time.perf_counter() - begun)
            for name, (function, mode) in functions.items():
                declared = fb.udf(function, reads=["text"], returns={"tokens": "list<int32>"}, mode=mode, deterministic=True)
                pipeline = fb.read_parquet(path).map_batches(declared).select("tokens").batch(256)
                begun = time.perf_counter()
                with pipeline.run(threads=threads) as run:
                    found = sum(len(pa.array(batch["tokens"]).flatten()) for batch in run)
                times[name].append(time.perf_counter() - begun)
                assert found == expected
            print(f"round {number}: " + ", ".join(f"{name} {spent[-1]:.2f} s" for name, spent in times.items()))
    arrow = statistics.median(times["arrow"])
    for name in ("rows", "numpy"):
        ratio = statistics.median(times[name]) / arrow
        print(f"{expected} tokens of {rows} texts: {name} mode takes {ratio:.2f} times what arrow mode takes")
    print(f"(load average {os.getloadavg()[0]:.1f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=None, help="10000; of lists 7473")
    parser.add_argument("--lists", action="store_true", help="what lists of Python's cost")
    parser.add_argument("--ms", type=float, default=1.0, help="CPU time of a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None, help="compute threads of Forebay")
    options = parser.parse_args()
    if options.lists:
        return lists(options.rows or 7473, options.rounds, options.threads)
    options.rows = options.rows or 10_000
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
