"""Processes and threads: Ctrl-C, the end of the interpreter, fork and spawn, the GIL."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest

import forebay as fb
from conftest import make_photos
from forebay import col, fn

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture(autouse=True)
def forks_are_meant():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        yield


def python(code, *arguments, **options):
    """Runs a Python program in a new process, and returns its exit code and output."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def threads():
    """Returns the names of all threads of this process, including those that Rust started."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                names.append(file.read().strip())
        except FileNotFoundError:
            # The thread has ended since the directory was listed.
            pass
    return names


def slow(folder, count=24):
    """Returns an endless pipeline whose batches take long to compute."""
    image = fn.gaussian_blur(fn.resize(fn.decode_image(col("image")), 256, 256), 21, 3)
    return fb.images(make_photos(folder, count, 64)).select(pixels=image).batch(8).repeat()


def test_import_takes_no_more_than_it_needs():
    code = "import forebay, sys; print([m for m in ('torch', 'pyarrow', 'pandas') if m in sys.modules])"
    assert python(code).stdout.strip() == "[]"


@linux
def test_no_run_leaves_threads_of_its_own(tmp_path):
    pipeline = slow(tmp_path)
    before = set(threads())
    for end in ("drop", "close", "error"):
        run = pipeline.run()
        next(run)
        assert any(name.startswith("forebay-compute") for name in threads())
        if end == "close":
            run.close()
        elif end == "error":
            with pytest.raises(RuntimeError), run:
                raise RuntimeError
        del run
        gc.collect()
        # Threads for I/O and computing threads are kept for the next run.
        assert set(threads()) - before <= {"forebay-io", "forebay-compute"}, end
        compute = [name for name in threads() if name.startswith("forebay-compute")]
        assert len(compute) <= (os.cpu_count() or 1), end


def test_the_interpreter_ends_while_a_run_goes_on(tmp_path):
    code = """
import sys
import forebay as fb
from forebay import col, fn
p = fb.images(sys.argv[1]).select(x=fn.resize(fn.decode_image(col("image")), 512, 512)).batch(4).repeat()
batches = iter(p)
next(batches)
print("done", flush=True)
"""
    ended = python(code, make_photos(tmp_path, 8))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


INTERRUPTED = """
import sys
import forebay as fb
from forebay import col, fn
p = fb.images(sys.argv[1]).select(x=fn.gaussian_blur(fn.resize(fn.decode_image(col("image")), 1024, 1024), 101, 30))
batches = iter(p.batch(4096).repeat())
try:
    print("waiting", flush=True)
    next(batches)
except KeyboardInterrupt:
    batches.close()
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_interrupts_the_wait_for_a_batch(tmp_path):
    folder = make_photos(tmp_path, 400)
    command = [sys.executable, "-c", INTERRUPTED, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        says(process, "waiting\n")
        process.send_signal(signal.SIGINT)
        says(process, "interrupted\n")
        assert process.wait(timeout=60) == 0, process.stderr.read()


def says(process, line):
    """Checks the next line of a process."""
    found = process.stdout.readline()
    if found != line:
        errors = process.stderr.read()
        raise AssertionError(f"{found!r}, exit status {process.wait(timeout=60)}: {errors}")


def test_other_threads_run_while_a_batch_is_awaited(tmp_path):
    run = slow(tmp_path).run(threads=1)
    ticks, done = [0], threading.Event()

    def spin():
        while not done.is_set():
            ticks[0] += 1

    beside = threading.Thread(target=spin)
    beside.start()
    try:
        counts = []
        for _ in range(3):
            before = ticks[0]
            next(run)
            counts.append(ticks[0] - before)
    finally:
        done.set()
        beside.join()
        run.close()
    assert max(counts) > 1000


def test_threads_may_share_an_iterator(table):
    run = fb.read_parquet(table).select("id").batch(1).run()
    seen, parts = [], []

    def drain():
        mine = [int(batch["id"].numpy()[0]) for batch in run]
        parts.append(mine)
        seen.extend(mine)

    workers = [threading.Thread(target=drain) for _ in range(4)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert sorted(seen) == list(range(1000))
    assert all(part == sorted(part) for part in parts)


def total(pipeline, out):
    out.put(sum(int(batch["id"].numpy().sum()) for batch in pipeline))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pipeline_runs_in_child_processes(table, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    pipeline = fb.read_parquet(table).select("id").shuffle(100, seed=1).batch(10)
    # At the time of the fork, the parent has a plan and a run in progress.
    run = pipeline.run()
    next(run)
    context = multiprocessing.get_context(method)
    out = context.Queue()
    children = [context.Process(target=total, args=(pipeline, out)) for _ in range(3)]
    [child.start() for child in children]
    assert [out.get(timeout=60) for _ in children] == [499500] * 3
    [child.join(60) for child in children]
    assert [child.exitcode for child in children] == [0] * 3
    # The run of the parent process continues.
    assert len(list(run)) == 99


def crossed(run, out):
    try:
        next(run)
    except fb.ConfigError as error:
        out.put(str(error))
    run.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_iterator_that_crosses_a_fork_says_so(table):
    run = fb.read_parquet(table).select("id").batch(10).run()
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=crossed, args=(run, out))
    child.start()
    assert "call iter(pipeline) in the child" in out.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert len(list(run)) == 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forking_again_and_again_while_a_run_goes_on(tmp_path):
    """A child process does not wait for a lock that a thread of the parent held at the time of the fork."""
    decode = fn.resize(fn.decode_image(col("image")), 256, 256)
    pipeline = fb.images(make_photos(tmp_path, 24)).select(pixels=fn.to_float(decode)).batch(8)
    context = multiprocessing.get_context("fork")
    with pipeline.repeat().run() as run:
        for _ in range(10):
            next(run)
            child = context.Process(target=list, args=(pipeline,))
            child.start()
            child.join(20)
            # A child that hangs is killed, since the test run would wait for it at the end.
            child.kill()
            assert child.exitcode == 0


RESIDENT = """
import statistics, sys
import forebay as fb
from forebay import col, fn
x = fn.to_float(fn.resize(fn.decode_image(col("image")), 224, 224))
rows = fb.images(sys.argv[1]).select("label", x=x)
def batched(rows):
    return rows.shuffle(64, seed=1).batch(32)
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
ends = []  # Resident memory after each epoch.
def grown():
    # The number of batches that are alive is bounded, but rises and falls. A leak grows with the epochs.
    third = len(ends) // 3
    return int(statistics.median(ends[-third:]) - statistics.median(ends[third:-third])) >> 20
"""
FLAT = {
    "numpy": """
p = batched(rows)
for epoch in range(80):
    for batch in p.run(first_epoch=epoch):
        batch.numpy()
    ends.append(resident())
print(grown())
""",
    "torch": """
@fb.udf(reads=["x"], returns={"y": "tensor<float32>[224,224,3]"}, deterministic=True)
def negative(x):
    return -x
batches = batched(rows.map_batches(negative)).torch()
for epoch in range(40):
    for batch in batches:
        batch["y"].mul_(2)
    ends.append(resident())
print(grown())
""",
    # A persistent worker reports its own resident memory in its batches.
    "workers": """
import numpy, torch
@fb.udf(reads=["label"], returns={"resident": "int64"})
def told(label):
    return numpy.full(len(label), resident())
dataset = batched(rows.map_batches(told)).torch()
loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
for epoch in range(40):
    for batch in loader:
        last = int(batch["resident"][0])
    ends.append(last)
print(grown())
""",
}


@linux
@pytest.mark.parametrize("way", FLAT)
def test_memory_is_flat_over_epochs(tmp_path, way):
    if way != "numpy":
        pytest.importorskip("torch")
    # The C library keeps a memory arena per thread, which would hide a leak, so there is only one arena.
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    ended = python(RESIDENT + FLAT[way], make_photos(tmp_path, 128), env=environment)
    # Python warns about every fork of a process with threads.
    assert [line for line in ended.stderr.splitlines() if "fork" not in line] == []
    # A batch has 19 MB, or 38 MB with the column of the function. The limits in MiB are between two and four batches.
    assert int(ended.stdout) < (40 if way == "numpy" else 120)
