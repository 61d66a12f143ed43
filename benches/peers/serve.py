"""The process of a peer: it runs one workload in one library, a round for each line of standard input.

The first line on standard output tells that the library is imported. A request is `outputs PATH` (compute the
sample with fixed values, write the outputs to a NumPy archive), `round` or `first`.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from peers.workloads import WORKLOADS  # noqa: E402


def write_outputs(module, epoch, path):
    """Writes what an epoch yields: a column for each name, or an array for each image."""
    import numpy as np

    if hasattr(module, "columns"):
        parts = [module.columns(batch) for batch in epoch()]
        if "pixels" not in parts[0]:
            np.savez(path, **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
            return
        images = [image for part in parts for image in part["pixels"]]
    else:
        images = [np.asarray(image) for batch in epoch() for image in batch]
    np.savez(path, **{f"{number:06}": image for number, image in enumerate(images)})


def main():
    name, workload, data, sample, threads = sys.argv[1:]
    # Libraries print to standard output, which belongs to the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(**fields):
        print(json.dumps(fields), file=replies, flush=True)

    workload = next(one for one in WORKLOADS if one.name == workload)
    module = importlib.import_module(f"peers.contenders.{name}")
    reply(versions=module.VERSIONS)
    epoch = None
    for line in sys.stdin:
        request, _, path = line.strip().partition(" ")
        if request == "outputs":
            write_outputs(module, module.batches(workload, sample, 1, True), path)
            reply()
            continue
        begin = time.perf_counter()
        if epoch is None:
            epoch = module.batches(workload, data, int(threads), False)
        if request == "first":
            next(iter(epoch()))
            reply(seconds=time.perf_counter() - begin)
            # The first batch is all that is measured; workers and pools need not end in order.
            os._exit(0)
        begin = time.perf_counter()
        rows = sum(len(batch) for _ in range(workload.epochs) for batch in epoch())
        reply(rows=rows, seconds=time.perf_counter() - begin)


if __name__ == "__main__":
    main()
