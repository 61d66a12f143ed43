"""Training that is killed and resumes from its last checkpoint has exactly the losses of uninterrupted training."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
image = pytest.importorskip("PIL.Image")

PROGRAM = Path(__file__).with_name("train.py")
#: Number of steps of the whole training: 3 epochs of 120 images in batches of 16.
STEPS = 21


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """A folder of small JPEG images of eight classes."""
    folder = tmp_path_factory.mktemp("classes")
    noise = np.random.default_rng(5)
    for number in range(120):
        label = number % 8
        pixels = noise.integers(0, 120, (24, 20, 3), dtype=np.uint8)
        pixels[label * 2 : label * 2 + 6, :, label % 3] += 120
        place = folder / f"class{label}"
        place.mkdir(exist_ok=True)
        image.fromarray(pixels).save(place / f"{number:03}.jpg")
    return folder


def train(classes, folder, settings, kill_at=None):
    """Runs the program `train.py`, and kills it (SIGKILL) after step `kill_at`. Returns the lines of the file of
    losses."""
    losses = folder / "losses"
    command = [sys.executable, str(PROGRAM), str(classes), str(folder / "checkpoint"), str(losses), json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) == kill_at:
                process.kill()
                break
            process.stdin.write("\n")
            process.stdin.flush()
        process.stdin.close()
        ended = process.wait(60)
    assert ended == (0 if kill_at is None else -9)
    return [json.loads(line) for line in losses.read_text().splitlines()]


def check(classes, folder, otherwise, kills):
    """Trains without interruption, and again with kills and the settings `otherwise` in turn, and compares the losses."""
    (folder / "whole").mkdir()
    whole = train(classes, folder / "whole", {})
    assert [step for step, _, _ in whole] == list(range(STEPS))
    assert float.fromhex(whole[-1][1]) < float.fromhex(whole[0][1])
    (folder / "killed").mkdir()
    places = sorted(random.Random(1).sample(range(1, STEPS), kills))
    for kill, settings in zip([*places, None], itertools.cycle(otherwise)):
        lines = train(classes, folder / "killed", settings, kill)
    # The steps after each last checkpoint were repeated, and every repetition had the same rows and loss.
    assert {step for step, _, _ in lines} == set(range(STEPS))
    assert len(lines) > STEPS
    for step, loss, keys in lines:
        assert [step, loss, keys] == whole[step]


def test_losses_are_equal_bit_for_bit(classes, tmp_path):
    # Unchanged, one thread, without the optimiser, and a low memory limit.
    otherwise = [{}, {"threads": 1}, {"optimize": False, "threads": 3}, {"memory_limit": "64MiB", "threads": 2}]
    check(classes, tmp_path, otherwise, 5)


def test_losses_are_equal_on_a_cluster_and_off_it(classes, tmp_path, cluster):
    check(classes, tmp_path, [{"cluster": cluster}, {}], 3)
