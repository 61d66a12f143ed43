"""Python functions that the tests run. They are in a module, so that worker processes can import them."""

import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.compute

import forebay as fb


def every(concurrency, **options):
    """Returns the same function in each `mode`: numpy, arrow and rows."""
    options = {"deterministic": True, "concurrency": concurrency, **options}
    return [
        fb.udf(twice_numpy, reads=["id"], returns={"v": "int64"}, **options),
        fb.udf(twice_arrow, reads=["id"], returns={"v": pa.int64()}, mode="arrow", **options),
        fb.udf(twice_row, reads=["id"], returns={"v": np.int64}, mode="rows", **options),
    ]


def twice_numpy(ids):
    assert isinstance(ids, np.ndarray) and not ids.flags.writeable and not ids.flags.owndata
    return ids * 2


def twice_arrow(ids):
    assert isinstance(ids, pa.Array)
    return pa.compute.multiply(ids, 2)


def twice_row(number):
    assert isinstance(number, int)
    return number * 2


@fb.udf(reads=["id", "name"], returns={"next": "int64", "text": "str"}, deterministic=True)
def two(ids, names):
    return {"text": [name.upper() for name in names], "next": ids + 1}


@fb.udf(reads=["id"], returns={"next": "int64", "text": "str"}, mode="rows")
def two_by_row(number):
    return number + 1, f"ROW {number}"


TYPES = {
    "a": "float32",
    "b": "bool",
    "c": "bytes",
    "d": "list<int32>",
    "e": "tensor<float32>[2,3]",
    "f": "list<str>",
    "g": "uint8",
    "h": "datetime64[ms]",
}


def of_all_types(number):
    return {
        "a": None if number % 5 == 0 else number / 2,
        "b": number % 2 == 0,
        "c": bytes([number % 256]),
        "d": list(range(number % 3)),
        "e": np.full((2, 3), number, np.float32),
        "f": ["x"] * (number % 2),
        "g": number % 256,
        "h": np.datetime64(number, "ms"),
    }


def of_all_types_batch(ids):
    rows = [of_all_types(int(number)) for number in ids]
    columns = {name: [row[name] for row in rows] for name in TYPES}
    columns["e"] = np.stack(columns["e"])
    columns["g"] = np.array(columns["g"], np.uint8)
    columns["h"] = np.array(columns["h"])
    return columns


@fb.udf(reads=["gaps"], returns={"v": "int64"}, deterministic=True)
def plus_one(gaps):
    return gaps + 1


@fb.udf(reads=["id"], returns={"v": "int64"}, deterministic=True, concurrency=2)
def fails_on_7(ids):
    return _checked(ids)


def _checked(ids):
    if 7 in ids or 400 in ids:
        raise ValueError("it is seven")
    return ids.copy()


@fb.udf(reads=["id"], returns={"v": "int64"}, mode="rows", name="picky")
def fails_on_row_7(number):
    if number in (7, 400):
        raise KeyError(number)
    return number


@fb.udf(reads=["id"], returns={"v": "int64"})
def noted(ids):
    error = ValueError("the reason")
    if hasattr(error, "add_note"):
        error.add_note("a note")
    raise error


@fb.udf(reads=["pair", "things"], returns={"v": "str"}, mode="rows")
def shown(pair, things):
    return f"{pair} {things}"


def interrupted(number):
    return Interrupting()


class Interrupting:
    """A list that raises KeyboardInterrupt when an element is read."""

    def __len__(self):
        return 1

    def __getitem__(self, place):
        raise KeyboardInterrupt


SET_UP = 0


@fb.udf(reads=["id"], returns={"v": "int64", "process": "int64", "times": "int64"}, deterministic=True, concurrency=2, cost=1000)
class Add:
    """Returns ids plus a number, the process id, and how often the class was instantiated in this process."""

    def __init__(self, number, *, twice=False):
        global SET_UP
        SET_UP += 1
        self.number = number * (2 if twice else 1)

    def __call__(self, ids):
        return ids + self.number, np.full(len(ids), os.getpid()), np.full(len(ids), SET_UP)


@fb.udf(reads=["id"], returns={"v": "int64"}, concurrency=2)
class Broken:
    def __init__(self):
        raise OSError("no model here")


@fb.udf(reads=["id"], returns={"v": "int64"}, concurrency=2)
def killed(ids):
    os.kill(os.getpid(), signal.SIGKILL)


@fb.udf(reads=["id"], returns={"v": "int64"}, concurrency=2, batch_size=10)
def dies_on_7(ids):
    if 7 in ids:
        os.kill(os.getpid(), signal.SIGKILL)
    return ids.copy()


@fb.udf(reads=["id"], returns={"v": "int64"}, concurrency=2)
def left(ids):
    os._exit(3)


@fb.udf(reads=["id"], returns={"v": "int64"}, concurrency=2, batch_size=10)
def printing(ids):
    print("from a worker", flush=True)
    return ids.copy()


@fb.udf(reads=["id"], returns={"process": "int64"}, concurrency=2, batch_size=1)
def forever(ids):
    """Does not return for ids above 10."""
    while ids[0] > 10:
        pass
    return np.full(len(ids), os.getpid())


@fb.udf(reads=["x"], returns={"score": "float64"}, deterministic=True, cost=500)
def score(x):
    return x / 2


@fb.udf(reads=["x"], returns={"score": "float64"})
def undeclared(x):
    return x / 2


@fb.udf(reads=["id"], returns={"v": "int64"})
def mistaken(ids):
    return ids + nmae  # noqa: F821


@fb.udf(reads=["id"], returns={"v": "int64"}, mode="rows")
def mistaken_row(number):
    return number + nmae  # noqa: F821


@fb.udf(reads=["id"], returns={"v": "int64"}, mode="rows", deterministic=True)
def talkative(number):
    if number % 2:
        raise ValueError("begin " + "é" * 50_000 + " end")
    return number
