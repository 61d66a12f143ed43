"""Measurement: pinning to cores, CPU time and memory of a process and its children, medians and spreads."""

import os
import statistics
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def pinning(cores):
    """Returns a function that pins the calling process to some cores, to be run in a new process."""
    return lambda: os.sched_setaffinity(0, cores)


def processes(pid):
    """Returns a process and its descendants."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split()]
            except OSError:
                # The thread has ended since.
                pass
    return found


def cpu_seconds(pid):
    """Returns the CPU seconds of a process and its descendants, ended children included."""
    total = 0
    for one in processes(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # utime, stime, cutime, cstime: proc(5).
        total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def peak_bytes(pid):
    """Returns the sum of the greatest resident sizes of a process and its descendants."""
    total = 0
    for one in processes(pid):
        try:
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return total


def summary(values):
    """Returns the median, the least and the greatest of some values."""
    return statistics.median(values), min(values), max(values)
