"""Compares Forebay with its peers: the same work over the same files, in turns, on one core and on all.

    cargo build --release
    python3 benches/peers target/release/forebay PHOTOS

PHOTOS is a folder of JPEG photos. The command makes a venv with all peers that PyPI has for this machine (8 GB;
`--python` names an interpreter to use instead). It compares the outputs of each contender with Forebay's, and leaves
out a contender whose outputs differ by more than the tolerance that `agreement.py` names. Then the contenders take
turns, so that a drift of the machine's speed affects all of them, pinned to one core and afterwards to all. All read
the same files from the page cache. Each peer has a process of its own, as TensorFlow and PyTorch do not load into one.

A complete run writes its tables to `benches/README.md` and its plot to `benches/peers.svg`. A run with fewer workloads,
photos or rounds than the defaults only prints them, unless `--write` asks for more.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from peers import environment  # noqa: E402
from peers.workloads import WORKLOADS  # noqa: E402

PHOTOS, ROUNDS = 300, 5


def arguments():
    names = [one.name for one in WORKLOADS]
    parser = argparse.ArgumentParser(prog="benches/peers", description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the command, built with `cargo build --release`")
    parser.add_argument("folder", metavar="PHOTOS", help="a folder of JPEG photos")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--photos", type=int, default=PHOTOS, help="number of photos")
    parser.add_argument("--workloads", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument("--cores", choices=("one", "all", "both"), default="both")
    parser.add_argument("--python", help="an interpreter with numpy, pillow, pyarrow, matplotlib and peers, "
                        "instead of that of the bench's own venv")
    parser.add_argument("--results", help="a JSON file for all measurements; tables and plot can be made of it again")
    parser.add_argument("--note", help="a sentence for the report, such as what else the machine did")
    parser.add_argument("--render", action="store_true", help="measure nothing, make tables and plot of --results")
    parser.add_argument("--write", action="store_true", help="write tables and plot of an incomplete run, too")
    given = parser.parse_args()
    given.workloads = given.workloads.split(",")
    unknown = set(given.workloads) - set(names)
    if unknown:
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}")
    if given.render and not given.results:
        parser.error("--render needs --results")
    if given.rounds < 1 or given.photos < 1:
        parser.error("--rounds and --photos must be at least 1")
    return given


def command(given):
    """Returns the command line that makes such results."""
    chosen = given.workloads if len(given.workloads) < len(WORKLOADS) else []
    words = [f"--workloads {','.join(chosen)}" if chosen else "",
             f"--rounds {given.rounds}" if given.rounds != ROUNDS else "",
             f"--photos {given.photos}" if given.photos != PHOTOS else "",
             f"--cores {given.cores}" if given.cores != "both" else ""]
    return " ".join(["python3 benches/peers target/release/forebay PHOTOS", *filter(None, words)])


def measure(given):
    """Runs all chosen workloads; returns everything that the report names."""
    from peers import data, rounds

    cores = sorted(os.sched_getaffinity(0))
    sets = {"one": [cores[:1]], "all": [cores], "both": [cores[:1], cores]}[given.cores]
    if len(cores) == 1:
        sets = [cores]
    program, begin = str(Path(given.program).resolve()), time.monotonic()
    results = {"command": command(given),
               "commit": environment.commit(), "machine": environment.machine(cores), "cores": len(cores),
               "rounds": given.rounds, "photos": given.photos, "versions": {}, "records": []}
    with tempfile.TemporaryDirectory(prefix="peers") as work:
        work = Path(work)
        inputs = data.make(given.folder, given.photos, work)
        results["photos"] = len(list(inputs["photos"][0].iterdir()))
        for workload in WORKLOADS:
            for pinned in sets if workload.name in given.workloads else []:
                print(f"{workload.title}, {len(pinned)} of {len(cores)} cores", flush=True)
                records, versions = rounds.measure(workload, pinned, program, inputs, given.rounds, work)
                results["versions"].update(versions)
                results["records"] += records
                for record in records:
                    print(f"    {rounds.describe(record)}", flush=True)
    results["minutes"] = (time.monotonic() - begin) / 60
    return results


def main():
    given = arguments()
    environment.enter(given.python)
    from peers import plot, report

    results = json.loads(Path(given.results).read_text()) if given.render else measure(given)
    if given.note:
        results["note"] = given.note
    if given.results:
        Path(given.results).write_text(json.dumps(results, indent=1))
    is_complete = (len(given.workloads) == len(WORKLOADS) and given.rounds >= ROUNDS and given.photos >= PHOTOS
                   and given.cores == "both")
    tables = report.tables(results)
    if given.write or given.render or is_complete:
        report.write(tables, environment.BENCHES / "README.md")
        plot.write(results, environment.BENCHES / "peers.svg")
    else:
        print(tables)
    return 1 if any("left_out" in record for record in results["records"]) else 0


if __name__ == "__main__":
    sys.exit(main())
