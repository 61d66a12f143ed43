"""A peer as the bench holds it: a process that runs one workload in another library."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from peers.measure import cpu_seconds, peak_bytes

SERVE = Path(__file__).resolve().parent / "serve.py"


class Peer:
    """The process of a peer, started at once. Its messages go to a log."""

    def __init__(self, name, workload, data, sample, threads, pin, log):
        self.command = [sys.executable, str(SERVE), name, workload.name, str(data), str(sample), str(threads)]
        counted = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "POLARS_MAX_THREADS")
        self.environment = {
            **os.environ, **{name: str(threads) for name in counted}, "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "DAFT_PROGRESS_BAR": "0",
            "DAFT_ANALYTICS_ENABLED": "0", "DO_NOT_TRACK": "1",
        }
        self.pin, self.log = pin, log
        self.process = self.start()
        self.versions = self.reply()["versions"]

    def start(self):
        return subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=open(self.log, "w"), text=True, env=self.environment, preexec_fn=self.pin)

    def reply(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            lines = Path(self.log).read_text().strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"exit code {self.process.returncode}")
        return json.loads(line)

    def ask(self, request):
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()
        return self.reply()

    def write_outputs(self, path):
        """Has the sample computed with fixed values, and its outputs written to a NumPy archive."""
        self.ask(f"outputs {path}")

    def round(self):
        """Runs the epochs once; returns the measurements of the peer and its worker processes."""
        before = cpu_seconds(self.process.pid)
        measured = self.ask("round")
        return {**measured, "cpu_seconds": cpu_seconds(self.process.pid) - before,
                "peak_bytes": peak_bytes(self.process.pid)}

    def first_batch(self):
        """Returns the seconds from the start of a new process to its first batch, and those after the imports."""
        self.close()
        begin = time.monotonic()
        self.process = self.start()
        self.reply()
        without_imports = self.ask("first")["seconds"]
        return {"seconds": time.monotonic() - begin, "without_imports": without_imports}

    def close(self):
        """Ends the process, which ends its worker processes."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
