"""Runs jobs on a cluster for long, and tells whether its processes stay as they are.

    cargo build --release --features cluster
    python3 benches/soak.py target/release/forebay PHOTOS [MINUTES]

A scheduler and a worker run all the time, and a second worker is killed and started again and again. Clients start, end,
and are killed in the middle. Each minute, the script prints the memory (RSS), threads and open files of the two
processes that stay, and the files below their temporary folders. It fails if one of them grows, or if a client that was
not killed has other rows than a run in one process.
"""

import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

QUERY = """SELECT random_hflip(random_resized_crop(decode_image(image), 64, 64)) AS pixels
           FROM images('{folder}') SHUFFLE WITHIN 1000 ROWS SEED 1 TAKE {rows} BATCH 16"""
#: The part of the run after which processes have what they need.
WARM = 0.25
#: Growth from then on that is no leak: memory in MB, threads, open files, files on disk.
GROWTH = {"MB": 40, "threads": 8, "files": 16, "on disk": 4}


def usage(process, folder):
    status = Path(f"/proc/{process.pid}/status").read_text()
    number = lambda name: int(re.search(rf"{name}:\s+(\d+)", status)[1])
    open_files = len(os.listdir(f"/proc/{process.pid}/fd"))
    on_disk = sum(len(files) for _, _, files in os.walk(folder))
    return {"MB": number("VmRSS") // 1024, "threads": number("Threads"), "files": open_files, "on disk": on_disk}


def main():
    program, folder = sys.argv[1:3]
    minutes = float(sys.argv[3]) if len(sys.argv) > 3 else 30
    draw = random.Random(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    folders = {name: tempfile.mkdtemp() for name in ("scheduler", "worker", "other worker", "client")}

    def start(name, *arguments, **more):
        environment = {**os.environ, "TMPDIR": folders[name]}
        return subprocess.Popen([program, *arguments], env=environment, **{**quiet, **more})

    def other_worker():
        return start("other worker", "worker", "--scheduler", address, "--threads", "1", "--slots", "1")

    def run(rows, *more):
        query = QUERY.format(folder=folder, rows=rows)
        return start("client", "run", "-e", query, "--digest", *more, stdout=subprocess.PIPE, text=True)

    expected = {rows: run(rows).communicate()[0].split()[-1] for rows in (32, 64, 160)}
    stay = {
        "scheduler": start("scheduler", "scheduler", "--listen", address),
        "worker": start("worker", "worker", "--scheduler", address, "--threads", "1", "--slots", "1"),
    }
    other, counts = other_worker(), {"ended": 0, "killed": 0, "worker killed": 0}
    begin, next_minute, samples = time.monotonic(), 0.0, []
    try:
        while (now := time.monotonic() - begin) < minutes * 60:
            if now >= next_minute:
                samples.append({name: usage(process, folders[name]) for name, process in stay.items()})
                print(f"{now / 60:5.1f} min  {counts}  {samples[-1]}", flush=True)
                next_minute += 60
            rows = draw.choice(sorted(expected))
            client = run(rows, "--cluster", address)
            chance = draw.random()
            if chance < 0.25:
                time.sleep(draw.uniform(0.05, 1.0))
                client.kill()
                client.communicate()
                counts["killed"] += 1
                continue
            if chance < 0.4:
                other.kill()
                other.wait()
                other = other_worker()
                counts["worker killed"] += 1
            digest = client.communicate()[0].split()[-1:]
            if client.returncode != 0 or digest != [expected[rows]]:
                sys.exit(f"a client ended with {client.returncode} and {digest} instead of {expected[rows]}")
            counts["ended"] += 1
        dead = [name for name, process in stay.items() if process.poll() is not None]
        if dead:
            sys.exit(f"ended by themselves: {dead}")
    finally:
        for process in (other, *stay.values()):
            process.kill()
            process.wait()
    warm = samples[int(len(samples) * WARM)]
    grown = [
        f"{name}: {what} from {warm[name][what]} to {samples[-1][name][what]}"
        for name in stay
        for what, most in GROWTH.items()
        if samples[-1][name][what] > warm[name][what] + most
    ]
    if grown:
        sys.exit("grown: " + "; ".join(grown))
    print(f"flat over {minutes:g} minutes: {counts}")


if __name__ == "__main__":
    main()
