"""Worker processes of Python functions: their start, and their end in all cases."""

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

import forebay as fb
import udfs
from conftest import make_table

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, waits for pidfds")
FOLDER = os.path.dirname(udfs.__file__)


@pytest.fixture(autouse=True)
def forks_are_meant():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        yield


def children():
    """Returns the process ids of this process's children, including zombies."""
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                found += map(int, file.read().split())
        except FileNotFoundError:
            # The thread has ended since the directory was listed.
            pass
    return found


def ended(process):
    """Waits until a process has ended. Unlike `waitpid`, this also works for a process that is not a child."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 20)[0])
    finally:
        os.close(handle)


def script(tmp_path, code, *arguments):
    """Starts a Python program from a file, like a user's program."""
    path = tmp_path / "program.py"
    path.write_text(f"import sys\nsys.path.insert(0, {FOLDER!r})\n{code}")
    command = [sys.executable, path, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@linux
def test_processes_end_with_the_iterator(table):
    before = children()
    function = udfs.Add(1)
    pipeline = fb.read_parquet(table).map_batches(function).batch(10)

    def begun():
        run = pipeline.run(segment_rows=50)
        next(run)
        processes = function._function().processes()
        assert len(processes) == 2 and set(processes) <= set(children())
        return run, processes

    run, processes = begun()
    run.close()
    assert children() == before
    run, _ = begun()
    assert len(list(run)) == 99 and children() == before
    run, _ = begun()
    del run
    assert children() == before
    # Two iterators share the worker processes, which end when the last iterator is closed.
    (first, processes), (second, same) = begun(), begun()
    assert same == processes
    first.close()
    assert len(list(second)) == 99
    assert children() == before and function._function().processes() == []
    failing = fb.read_parquet(table).map_batches(udfs.fails_on_7)
    with pytest.raises(fb.DataError):
        list(failing)
    assert children() == before
    # Planning starts no worker processes.
    failing.explain()
    assert children() == before


@linux
def test_close_does_not_wait_for_what_is_computed(table):
    run = fb.read_parquet(table).map_batches(udfs.forever).batch(1).run(segment_rows=1)
    process = int(next(run)["process"].numpy()[0])
    assert process in children()
    run.close()
    assert process not in children()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (udfs.killed, r"udfs.killed: its worker process \d+ was killed by signal 9 \(SIGKILL"),
        (udfs.left, r"udfs.left: its worker process \d+ ended with exit code 3"),
    ],
)
def test_a_worker_that_dies_is_an_error(table, function, why):
    for policy in ("fail", "skip"):
        with pytest.raises(fb.FunctionError, match=why) as raised:
            list(fb.read_parquet(table).map_batches(function).options(on_error=policy))
        assert raised.value.function == function.name


def test_what_a_worker_prints_does_no_harm(table, capfd):
    rows = np.concatenate([batch["v"].numpy() for batch in fb.read_parquet(table).map_batches(udfs.printing)])
    assert rows.tolist() == list(range(1000))
    told = capfd.readouterr()
    assert told.out == "" and told.err.count("from a worker") == 100


NOISY = """
import os, subprocess
print("hello", "x" * 100_000, flush=True)
os.write(1, b"from below")
subprocess.run(["echo", "from a child"])
"""


def test_what_is_printed_while_a_worker_starts_does_no_harm(table, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(NOISY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    function = fb.udf(udfs.twice_numpy, reads=["id"], returns={"v": "int64"}, concurrency=2)
    batches = list(fb.read_parquet(table).map_batches(function))
    assert sum(int(batch["v"].numpy().sum()) for batch in batches) == 2 * 499500


@linux
def test_a_lost_process_is_that_runs_alone(table):
    rows = fb.read_parquet(table)
    # Segments of 10 rows and one thread keep this run from computing far ahead.
    other = rows.filter("id >= 500").map_batches(udfs.dies_on_7).batch(10).run(segment_rows=10, threads=1)
    first = next(other)
    with pytest.raises(fb.FunctionError, match="was killed by signal 9"):
        list(rows.map_batches(udfs.dies_on_7))
    rows = [first, *other]
    assert sum(batch.num_rows for batch in rows) == 500


@linux
def test_a_process_that_was_ended_while_idle_is_replaced(table, tmp_path):
    function = udfs.Add(1)
    # When the first batch is delivered, all rows have been computed, and the run keeps its worker processes. One of
    # them may still be setting up.
    few = fb.read_parquet(make_table(tmp_path / "few.parquet", rows=10))
    run = few.map_batches(function).batch(5).run()
    for process in set(next(run)["process"].numpy().tolist()):
        os.kill(process, signal.SIGKILL)
        assert ended(process)
    assert sum(batch.num_rows for batch in fb.read_parquet(table).map_batches(function)) == 1000
    assert len(list(run)) == 1


RUNNING = """
import forebay as fb, udfs
if __name__ == "__main__":
    run = fb.read_parquet(sys.argv[1]).map_batches(udfs.forever).batch(1).run(segment_rows=1)
    batch = next(run)
    try:
        print(*udfs.forever._function().processes(), flush=True)
        list(run)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        run.close()
"""


@linux
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_their_parent(table, tmp_path, end):
    with script(tmp_path, RUNNING, table) as program:
        processes = list(map(int, program.stdout.readline().split()))
        assert len(processes) == 2
        program.send_signal(end)
        assert program.wait(20) == (0 if end == signal.SIGINT else -end)
        assert all(map(ended, processes))
        rest, errors = program.communicate()
    assert rest == ("interrupted\n" if end == signal.SIGINT else "") and errors == ""


LEFT_OPEN = """
import forebay as fb, udfs
if __name__ == "__main__":
    run = fb.read_parquet(sys.argv[1]).map_batches(udfs.Add(1)).batch(1).run(segment_rows=10)
    print(int(next(run)["process"].numpy()[0]), flush=True)
"""


@linux
def test_processes_end_with_the_interpreter(table, tmp_path):
    with script(tmp_path, LEFT_OPEN, table) as program:
        out, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, "")
    assert ended(int(out))


MAIN = """
if len(sys.argv) > 2:
    sys.modules["cloudpickle"] = None
import forebay as fb

@fb.udf(reads=["id"], returns={"v": "int64"}, concurrency=2)
def own(ids):
    return helper(ids)

def helper(ids):
    if ids[0] < 0:
        raise ValueError("negative")
    return ids * 7

GUARD
    p = fb.read_parquet(sys.argv[1]).map_batches(own)
    print(sum(int(batch["v"].numpy().sum()) for batch in p))
"""


PROMPT = MAIN.replace("if len(sys.argv) > 2:", "import sys\nif len(sys.argv) > 2:").replace("GUARD", "if True:")


@pytest.mark.parametrize("plain", [False, True], ids=["cloudpickle", "pickle"])
def test_functions_of_a_notebook(table, plain):
    if not plain:
        pytest.importorskip("cloudpickle")
    command = [sys.executable, "-c", PROMPT, str(table), *(["plain"] if plain else [])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if plain:
        assert "ConfigError: __main__.own is defined in a notebook" in ended.stderr and "pip install cloudpickle" in ended.stderr
    else:
        assert (ended.stdout, ended.stderr) == (f"{7 * 499500}\n", "")


@pytest.mark.parametrize("plain", [False, True], ids=["cloudpickle", "pickle"])
def test_functions_of_the_main_module(table, tmp_path, plain):
    if not plain:
        pytest.importorskip("cloudpickle")
    code = MAIN.replace("GUARD", 'if __name__ == "__main__":')
    with script(tmp_path, code, table, *(["plain"] if plain else [])) as program:
        out, errors = program.communicate(timeout=60)
    assert (out, errors) == (f"{7 * 499500}\n", "")


def test_a_main_module_without_a_guard_is_told_so(table, tmp_path):
    with script(tmp_path, MAIN.replace("GUARD", "if True:"), table, "plain") as program:
        out, errors = program.communicate(timeout=60)
    assert out == "" and 'under: if __name__ == "__main__":' in errors and program.returncode == 1


def total(pipeline, out):
    out.put(sum(int(batch["v"].numpy().sum()) for batch in pipeline))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("daemon", [False, True])
def test_functions_run_in_child_processes(table, method, daemon):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    pipeline = fb.read_parquet(table).map_batches(udfs.Add(0)).batch(10)
    # The parent has a run in progress, whose worker processes the children must not use.
    run = pipeline.run(segment_rows=50)
    next(run)
    context = multiprocessing.get_context(method)
    out = context.Queue()
    # Workers of a DataLoader are daemon processes, which must not have children of `multiprocessing`.
    workers = [context.Process(target=total, args=(pipeline, out), daemon=daemon) for _ in range(2)]
    [worker.start() for worker in workers]
    assert [out.get(timeout=60) for _ in workers] == [499500] * 2
    [worker.join(60) for worker in workers]
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(list(run)) == 99
