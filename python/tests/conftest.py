"""Fixtures and helpers: small data, and a cluster."""

import contextlib
import os
import re
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

#: Number of rows of the fixture `table`.
ROWS = 1000


def png(pixels: np.ndarray) -> bytes:
    """Returns an RGB image of bytes, `[height, width, 3]`, as a PNG file."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def make_photos(folder: Path, count: int, side: int = 32) -> Path:
    """Writes `count` images of two classes to a folder. All samples of image number n have the value n mod 256."""
    for number in range(count):
        place = folder / ("cats" if number % 2 == 0 else "dogs")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.full((side, side + 8, 3), number % 256, dtype=np.uint8)
        (place / f"{number:04}.png").write_bytes(png(pixels))
    return folder


def make_table(path: Path, rows: int = ROWS, group: int = 100) -> Path:
    """Writes a Parquet file of numbers, texts, lists and nulls, with row groups of `group` rows."""
    ids = np.arange(rows)
    columns = {
        "id": ids,
        "x": ids * 0.5,
        "small": (ids % 100).astype(np.int8),
        "flag": ids % 2 == 0,
        "name": [f"row {i}" for i in ids],
        "tokens": [list(range(i % 4)) for i in ids],
        "gaps": [None if i % 10 == 0 else int(i) for i in ids],
        "when": pa.array(ids, pa.timestamp("ms")),
    }
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a Parquet file of `ROWS` rows."""
    return make_table(tmp_path_factory.mktemp("table") / "table.parquet")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a folder of 40 images."""
    return make_photos(tmp_path_factory.mktemp("photos"), 40)


@contextlib.contextmanager
def started_cluster(command: str, *arguments: str) -> Iterator[str]:
    """Starts a scheduler and workers on free ports of this machine, and gives the address of the scheduler."""
    whole = [command, "cluster", "--port", "0", *arguments]
    with subprocess.Popen(whole, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = ""
            for line in process.stderr:
                said += line
                if found := re.search(r"run pipelines with --cluster (\S+)", line):
                    break
            else:
                raise AssertionError(f"{whole} ended: {said}")
            # What it logs later is read, since a full pipe would stop it.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1]
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="session")
def command() -> str:
    """The path of the command `forebay` with the feature `cluster`, which `run-tests` builds."""
    path = os.environ.get("FOREBAY_COMMAND")
    if path is None:
        pytest.skip("FOREBAY_COMMAND is not the path of the command forebay with the feature cluster")
    return path


@pytest.fixture(scope="session")
def cluster(command: str) -> Iterator[str]:
    """The address of a cluster of two workers."""
    with started_cluster(command, "--workers", "2", "--threads", "1") as address:
        yield address
