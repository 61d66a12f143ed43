"""Python functions on the workers of a cluster: the same batches and errors as in this process."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay as fb
import udfs
from conftest import started_cluster
from forebay import _by_value, col, fn


@pytest.fixture(scope="module")
def workers(command):
    """The address of a cluster of two workers that run Python functions."""
    allowed = ("--allow-python", "--python", sys.executable)
    with started_cluster(command, "--workers", "2", "--threads", "2", *allowed) as address:
        yield address


class Scale:
    """Multiplies by a table of numbers, which is made once in each process."""

    def __init__(self, size, factor=3.0):
        self.table = np.linspace(0, factor, size)

    def __call__(self, ids, x):
        return (x * self.table[ids % len(self.table)]).astype(np.float32)


class DiesOnce:
    """Kills its process if a file exists, which it removes."""

    def __init__(self, path):
        self.path = path

    def __call__(self, ids):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)
            os.kill(os.getpid(), signal.SIGKILL)
        return ids * 2


class FailsOnce(DiesOnce):
    """Cannot be set up if a file exists, which it removes."""

    def __init__(self, path):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
            raise OSError("no model here")
        super().__init__(path)


class DiesAlways:
    def __call__(self, ids):
        os.kill(os.getpid(), signal.SIGKILL)


def contents(batches):
    """Returns the keys of the rows and the values of all columns of each batch."""
    return [(batch.row_keys, pa.record_batch(batch).to_pydict()) for batch in batches]


def in_class(target, *args, **options):
    return fb.udf(target, reads=["id"], returns={"v": "int64"}, deterministic=True, **options)(*args)


def where(ids):
    """Returns the process, and whether the module of this function was imported there."""
    return np.full(len(ids), os.getpid()), np.full(len(ids), __name__ in sys.modules)


def talks(ids):
    print(f"{len(ids)} rows")
    print("to standard error", file=sys.stderr)
    return ids.copy()


def stream(table, *functions):
    """Returns a pipeline of functions in which a filter decides which rows there are."""
    rows = fb.read_parquet(table).filter(col("id") % 3 != 1).shuffle(300, seed=5)
    for function in functions:
        rows = rows.map_batches(function)
    return rows.batch(64)


def seen(until):
    """Calls `until` until it returns a true value, and returns the value. Fails after a minute."""
    end = time.monotonic() + 60
    while not (value := until()):
        assert time.monotonic() < end
    return value


@pytest.mark.parametrize("concurrency", [None, 2])
def test_line_48_python_functions_run_on_workers(table, workers, concurrency):
    for function in udfs.every(concurrency):
        pipeline = stream(table, function)
        expected = contents(pipeline.run(epochs=2))
        assert len(expected) > 16
        assert contents(pipeline.run(epochs=2, cluster=workers)) == expected


def test_classes_structs_and_all_types_travel(table, workers):
    scale = fb.udf(
        Scale, reads=["id", "x"], returns={"scaled": "float32"}, deterministic=True, concurrency=2, cost=100
    )
    types = {"returns": udfs.TYPES, "reads": ["id"], "deterministic": True}
    whole, rows = (
        fb.udf(target, mode=mode, name=f"types.{mode}", **types)
        for target, mode in ((udfs.of_all_types_batch, "numpy"), (udfs.of_all_types, "rows"))
    )
    for functions in ([scale(50), udfs.two], [scale(50, factor=2.0)], [whole], [rows]):
        pipeline = stream(table, *functions)
        assert contents(pipeline.run(cluster=workers)) == contents(pipeline)


def test_a_function_of_pixels_and_draws(photos, workers):
    def brighter(pixels):
        return np.clip(pixels.astype(np.int16) + 20, 0, 255).astype(np.uint8)

    function = fb.udf(brighter, returns="tensor<uint8>[16,16,3]", deterministic=True)
    pixels = fn.random_hflip(fn.random_resized_crop(fn.decode_image(col("image")), 16, 16))
    pipeline = fb.images(photos).select("label", pixels=function(pixels)).shuffle(32, seed=7).batch(8)
    expected = contents(pipeline.run(epochs=2))
    assert len(expected) == 10
    assert contents(pipeline.run(epochs=2, cluster=workers)) == expected


def test_code_travels_and_states_do_not_depend_on_it(table, workers):
    """A worker has neither the test's modules nor its state: the code is part of the job, and not of the stream."""
    function = fb.udf(where, reads=["id"], returns={"process": "int64", "known": "bool"}, concurrency=1)
    with pytest.warns(UserWarning, match="not declared deterministic"):
        batches = list(stream(table, function).run(cluster=workers))
    processes = {int(p) for batch in batches for p in batch["process"].numpy()}
    assert processes and os.getpid() not in processes
    assert not any(batch["known"].numpy().any() for batch in batches)
    pipeline = stream(table, fb.udf(Scale, reads=["id", "x"], returns={"v": "float32"}, deterministic=True)(9))
    expected, got, state = contents(pipeline), [], None
    for place in (workers, None, workers):
        run = pipeline.run(resume=state, cluster=place)
        got += contents(next(run) for _ in range(3))
        state = run.state_dict()
        run.close()
    assert got + contents(pipeline.run(resume=state)) == expected


def test_a_function_that_is_not_deterministic_runs_with_a_warning(table, workers):
    pipeline = fb.read_parquet(table).map_batches(udfs.undeclared).batch(100)
    with pytest.warns(UserWarning, match="the function udfs.undeclared is not declared deterministic"):
        got = contents(pipeline.run(cluster=workers))
    assert got == contents(pipeline)


def test_failed_rows_are_those_of_this_process(table, tmp_path, workers):
    function = fb.udf(udfs.fails_on_row_7._target, **{**udfs.fails_on_row_7._options, "deterministic": True})
    pipeline = fb.read_parquet(table).select("id").map_batches(function).batch(50)
    told = []
    for place in (None, workers):
        with pytest.raises(fb.DataError) as caught:
            list(pipeline.run(cluster=place))
        error = caught.value
        assert "udfs.py" in str(error.__cause__)
        letters = tmp_path / f"letters-{len(told)}"
        run = pipeline.options(on_error="skip", dead_letters=str(letters)).run(cluster=place)
        rows = contents(run)
        kept = pq.read_table(letters).to_pydict()
        told.append((str(error), error.row, error.column, error.cause, str(error.__cause__), rows, kept))
    assert told[0] == told[1]
    assert told[0][1] == 7 and len(told[0][-1]["error"]) == 2


def test_mistakes_of_functions_are_those_of_this_process(table, workers):
    def short(ids):
        return ids[1:]

    wrong = fb.udf(short, reads=["id"], returns={"v": "int64"}, name="short", deterministic=True)
    for function in (udfs.mistaken, udfs.mistaken_row, wrong):
        pipeline = fb.read_parquet(table).map_batches(function).batch(100).options(on_error="skip")
        told = []
        for place in (None, workers):
            with warnings.catch_warnings(), pytest.raises(fb.FunctionError) as caught:
                warnings.simplefilter("ignore", UserWarning)
                list(pipeline.run(cluster=place))
            told.append((str(caught.value), caught.value.function, str(caught.value.__cause__)))
        assert told[0] == told[1]


def test_what_functions_print_reaches_the_client(table, workers, capfd):
    function = fb.udf(talks, reads=["id"], returns={"v": "int64"}, deterministic=True, batch_size=10)
    run = fb.read_parquet(table).map_batches(function).run(cluster=workers)
    ids = np.concatenate([batch["v"].numpy() for batch in run])
    assert ids.tolist() == list(range(1000))
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.count("10 rows") == told.err.count("to standard error") == 100


def test_a_killed_process_is_recovered(table, tmp_path, workers):
    marker = tmp_path / "marker"
    marker.touch()
    function = in_class(DiesOnce, str(marker), name="dies_once", concurrency=2)
    got = contents(stream(table, function).run(cluster=workers))
    assert not marker.exists()
    assert got == contents(stream(table, function))
    events = seen(lambda: [event for worker in fb.Cluster(workers).status()["workers"] for event in worker["events"]])
    assert any("dies_once" in event and "signal 9" in event and "computes its rows again" in event for event in events)


def test_rows_that_kill_each_process_end_the_run(table, workers):
    pipeline = fb.read_parquet(table).map_batches(in_class(DiesAlways, name="always")).batch(50)
    with pytest.raises(fb.FunctionError, match=r"always\(\): its worker process \d+ was killed by signal 9") as raised:
        list(pipeline.options(on_error="skip").run(cluster=workers))
    assert raised.value.function == "always()"
    # Nothing else is disturbed.
    pipeline = stream(table, udfs.two)
    assert contents(pipeline.run(cluster=workers)) == contents(pipeline)


def test_another_worker_computes_what_one_cannot_set_up(table, tmp_path, workers, caplog):
    marker = tmp_path / "marker"
    marker.touch()
    pipeline = stream(table, in_class(FailsOnce, str(marker)))
    got = contents(pipeline.run(cluster=workers))
    assert not marker.exists()
    assert "its set-up failed: OSError: no model here" in caplog.text
    assert got == contents(pipeline)


class Warned(Exception):
    pass


@pytest.fixture
def warnings_end_runs():
    """Ends a run with its first log record. A run that no worker can compute waits for a minute for other workers."""

    class Handler(logging.Handler):
        def emit(self, record):
            raise Warned(record.getMessage())

    logger, handler = logging.getLogger("forebay"), Handler()
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


def test_workers_that_cannot_run_a_function_say_why(table, cluster, workers, monkeypatch, warnings_end_runs):
    def refusal(function, place):
        run = stream(table, function).run(cluster=place)
        with pytest.raises(Warned) as raised:
            list(run)
        run.close()
        return str(raised.value)

    assert "its set-up failed: OSError: no model here" in refusal(in_class(udfs.Broken._target), workers)
    copied = fb.udf(udfs.score._target, **udfs.score._options)
    assert "`python -m forebay worker --allow-python`" in refusal(copied, cluster)
    monkeypatch.setattr(_by_value, "versions", lambda: ("2.7", "3.1"))
    copied = fb.udf(udfs.score._target, **udfs.score._options)
    assert "the client has Python 2.7, and the worker has Python 3" in refusal(copied, workers)


def test_a_function_that_cannot_be_pickled_is_refused(table, workers):
    lock = threading.Lock()

    def locked(ids):
        with lock:
            return ids.copy()

    function = fb.udf(locked, reads=["id"], returns={"v": "int64"}, name="locked", deterministic=True)
    with pytest.raises(fb.ConfigError, match='function "locked" cannot be sent to workers: .*lock'):
        list(fb.read_parquet(table).map_batches(function).batch(9).run(cluster=workers))


@pytest.mark.parametrize("processes", [0, 2])
def test_a_dataloader_over_functions_on_a_cluster(table, workers, processes):
    torch = pytest.importorskip("torch")
    function = fb.udf(Scale, reads=["id", "x"], returns={"v": "float32"}, deterministic=True)(9)
    pipeline = fb.read_parquet(table).select("id", "x").map_batches(function).shuffle(300, seed=5).batch(64)
    expected = [batch["v"].numpy().tolist() for batch in pipeline]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        loader = torch.utils.data.DataLoader(pipeline.torch(cluster=workers), batch_size=None, num_workers=processes)
        assert [batch["v"].tolist() for batch in loader] == expected


PROGRAM = """
import sys
import numpy as np
import forebay as fb
from helpers import half

@fb.udf(reads=["x"], returns={"v": "float64"}, deterministic=True)
def of_main(x):
    return half(x) + 1

pipeline = fb.read_parquet(sys.argv[1]).map_batches(of_main).batch(50)
here, there = ([batch["v"].numpy().tolist() for batch in pipeline.run(cluster=place)] for place in (None, sys.argv[2]))
assert len(here) == 20 and there == here
print("equal")
"""


def test_a_program_and_its_modules_travel(table, workers, tmp_path):
    (tmp_path / "helpers.py").write_text("SHARE = 2\ndef half(x):\n    return x / SHARE\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "program.py", table, workers]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "equal\n", done.stderr


def test_python_m_forebay_is_the_command_with_this_interpreter(command, table, tmp_path, monkeypatch):
    start = tmp_path / "start.sh"
    start.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m forebay "$@"\n')
    start.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(command), os.environ["PATH"]]))
    with started_cluster(str(start), "--workers", "1", "--allow-python") as address:
        pipeline = stream(table, udfs.two)
        assert contents(pipeline.run(cluster=address)) == contents(pipeline)
    # In this environment or in another folder, there is no such command.
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = subprocess.run([sys.executable, "-m", "forebay", "status"], capture_output=True, text=True)
    assert missing.returncode == 1 and "--features cluster" in missing.stderr
