"""Compares the bytes that the workers of a cluster read with those that one process reads.

    cargo build --release --features cluster
    python3 benches/read_amplification.py target/release/forebay [WORKERS]

Needs pyarrow. A process reads what Linux counts in `rchar` of /proc/PID/io; what it receives from other processes is not
in there. Each run is one epoch with `SHUFFLE WITHIN 10000 ROWS`, over a table of small row groups and over one of large
ones, and as eight ranks beside each other. Digests are compared, too.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet

ROWS = 20_000_000
QUERY = "SELECT id, a, b FROM parquet('{}') AS t SHUFFLE WITHIN 10000 ROWS SEED 1 BATCH 1000"
RANKS = 8


def read_by(process):
    return int(re.search(r"rchar: (\d+)", Path(f"/proc/{process.pid}/io").read_text())[1])


def write_table(path, group):
    draw = numpy.random.default_rng(1)
    columns = {"id": numpy.arange(ROWS), "a": draw.random(ROWS), "b": draw.integers(0, 1 << 40, ROWS)}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=group, compression="none")


def await_workers(program, address, count):
    ready = 0
    while ready < count:
        time.sleep(0.2)
        status = subprocess.run([program, "status", "--cluster", address, "--json"], capture_output=True)
        if status.returncode == 0:
            ready = sum(worker["is_ready"] for worker in json.loads(status.stdout)["workers"])


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5

    def run(table, *more):
        words = [program, "run", "-e", QUERY.format(table), "--digest", *more]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ended(process):
        """Waits for a run, and returns its digest and the bytes that it read."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        read = read_by(process)
        digest = process.communicate()[0].split()[-1]
        if process.returncode != 0:
            sys.exit(f"a run ended with {process.returncode}")
        return digest, read

    def cluster(table, rank_words):
        """Returns the digests of clients beside each other, and the bytes that each worker read."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        words = [program, "worker", "--scheduler", address, "--threads", "1", "--slots", "1"]
        processes = [subprocess.Popen([program, "scheduler", "--listen", address], **quiet)]
        try:
            processes += [subprocess.Popen(words, **quiet) for _ in range(count)]
            await_workers(program, address, count)
            clients = [run(table, "--cluster", address, *words) for words in rank_words]
            digests = [ended(client)[0] for client in clients]
            return digests, [read_by(worker) for worker in processes[1:]]
        finally:
            for process in processes:
                process.kill()
                process.wait()

    with tempfile.TemporaryDirectory() as folder:
        for group in (5_000, 1_000_000):
            table = Path(folder) / f"{group}.parquet"
            write_table(table, group)
            size = table.stat().st_size
            rank_words = [["--rank", str(rank), "--world", str(RANKS)] for rank in range(RANKS)]
            digest, alone = ended(run(table))
            of_ranks = [ended(run(table, *words))[0] for words in rank_words]
            digests, read = cluster(table, [[]])
            if digests != [digest]:
                sys.exit(f"the cluster's digest is {digests}, that of one process {digest}")
            digests, by_ranks = cluster(table, rank_words)
            if digests != of_ranks:
                sys.exit("the digests of ranks differ from those of one process")
            shown = ", ".join(f"{of / size:.2f}" for of in read)
            print(
                f"row groups of {group:,} rows, a file of {size / 1e6:.0f} MB: one process reads {alone / size:.2f} times the file, "
                f"{count} workers {sum(read) / alone:.2f} times that (each of the file: {shown}), "
                f"{RANKS} ranks {sum(by_ranks) / sum(read):.2f} times what one rank does",
                flush=True,
            )


if __name__ == "__main__":
    main()
