"""Agreement: outputs of a peer are compared with Forebay's before either is timed.

Images are compared on the scale 0 to 255, after normalising is undone. Chains with random functions are compared
with fixed values. Peers that antialias agree to a greatest difference. tf.data and OpenCV do other work when they
resize: they do not antialias, and tf.data's R3 crops before it resizes. tf.data decodes with the fast DCT. A mean
difference bounds theirs.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from peers.chains import GRAY_MEAN, GRAY_STD, MEAN, STD


@dataclass(frozen=True)
class Tolerance:
    """A bound of differences: of the greatest one, or of their mean."""

    kind: str
    bound: float


#: Tables agree to the last bits of a double, and Criteo's logarithms to those of a single.
TABLES = {"table": 1e-14, "table-within": 1e-14, "criteo": 1e-6}
EXACT = Tolerance("max", 0)
#: One rounding to a byte, in another order of sums.
ROUNDED = Tolerance("max", 1)
#: Several such roundings after each other.
ROUNDED_AGAIN = Tolerance("max", 2)
#: A resize without antialiasing; the bound is wide, as large photos are reduced to a fifth.
ALIASED = Tolerance("mean", 12)
#: The fast DCT, which is tf.data's default.
FAST_DCT = Tolerance("mean", 2)
TOLERANCES = {
    ("r1", "pillow"): ROUNDED_AGAIN,
    ("resize", "daft"): ROUNDED_AGAIN,
    **{(chain, peer): ALIASED for chain in ("r1", "r3", "r4", "resize") for peer in ("tf_data", "opencv")},
    **{(chain, peer): EXACT for chain in ("decode", "small") for peer in ("torchvision", "pillow", "opencv")},
    **{(chain, "tf_data"): FAST_DCT for chain in ("decode", "small")},
}


def tolerance(chain, contender):
    """Returns the tolerance of a peer's outputs in a chain."""
    return Tolerance("relative", TABLES[chain]) if chain in TABLES else TOLERANCES.get((chain, contender), ROUNDED)


def compare(chain, contender, ours, theirs):
    """Compares two outputs; returns a text with the measured difference, and raises ValueError beyond the tolerance."""
    allowed = tolerance(chain, contender)
    if allowed.kind == "relative":
        measured = relative(chain, ours, theirs)
        text = f"{measured:.0e} of a value"
    else:
        greatest, mean = differences(chain, ours, theirs)
        measured = greatest if allowed.kind == "max" else mean
        text = f"max {greatest:.1f}, mean {mean:.2f}"
    if measured > allowed.bound:
        raise ValueError(f"outputs differ: {text}, allowed is {allowed.kind} {allowed.bound}")
    return "equal" if measured == 0 else f"{text} (allowed: {allowed.kind} {allowed.bound})"


def compare_tiers(chain, exact, relaxed):
    """Returns the difference of a relaxed tier from the exact one as text; the tier itself bounds it."""
    greatest, mean = differences(chain, exact, relaxed)
    return "equal" if greatest == 0 else f"max {greatest:.1f}, mean {mean:.2f}"


def relative(chain, ours, theirs):
    """Returns the greatest difference of two tables, relative to the values; shuffled rows are sorted by their id."""
    if ours.keys() != theirs.keys():
        raise ValueError(f"columns differ: {', '.join(ours)} and {', '.join(theirs)}")
    if chain != "criteo":
        ours, theirs = ({name: rows[name][np.argsort(rows["id"])] for name in rows} for rows in (ours, theirs))
    greatest = 0.0
    for name, values in ours.items():
        if len(values) != len(theirs[name]):
            raise ValueError(f"numbers of rows differ: {len(values)} and {len(theirs[name])}")
        # Most values are far from 0; near it, a difference counts as that from 1e-9.
        values = values.astype(np.float64)
        apart = np.abs(values - theirs[name]) / np.maximum(np.abs(values), 1e-9)
        greatest = max(greatest, float(np.max(apart, initial=0)))
        if np.isnan(apart).any():
            raise ValueError(f"{name} has values that are no numbers")
    return greatest


def differences(chain, ours, theirs):
    """Returns the greatest and the mean difference of images, on the scale 0 to 255."""
    if len(ours) != len(theirs):
        raise ValueError(f"numbers of images differ: {len(ours)} and {len(theirs)}")
    greatest, total, samples = 0.0, 0.0, 0
    for one, other in zip(ours, theirs):
        if other.shape[-1] not in (1, 3):
            # PyTorch lays images out as planes.
            other = other.transpose(1, 2, 0)
        if one.shape != other.shape:
            raise ValueError(f"shapes differ: {one.shape} and {other.shape}")
        apart = np.abs(on_bytes(chain, one) - on_bytes(chain, other))
        if np.isnan(apart).any():
            raise ValueError("an image has values that are no numbers")
        greatest, total, samples = max(greatest, float(apart.max())), total + float(apart.sum()), samples + apart.size
    # In single precision, normalising and undoing it adds less than a thousandth.
    return round(greatest, 3), total / samples


def on_bytes(chain, image):
    """Returns an image on the scale 0 to 255, in double precision, with what normalising did undone."""
    image = image.astype(np.float64)
    if chain == "r1":
        return (image * GRAY_STD + GRAY_MEAN) * 255
    return (image * STD + MEAN) * 255 if chain in ("r3", "r4") else image


def read_ours(path):
    """Reads the Arrow file of a run of Forebay: a list of images, or the columns of a table."""
    rows = pa.ipc.open_file(path).read_all().combine_chunks()
    if "pixels" not in rows.column_names:
        return {name: rows[name].to_numpy() for name in rows.column_names}
    images = []
    for chunk in rows["pixels"].chunks:
        if isinstance(chunk, pa.FixedShapeTensorArray):
            images += list(chunk.to_numpy_ndarray())
        else:
            data, shapes = chunk.storage.field("data"), chunk.storage.field("shape")
            images += [data[row].values.to_numpy().reshape(shapes[row].as_py()) for row in range(len(data))]
    return images


def read_theirs(path):
    """Reads the NumPy archive of a peer: a list of images, or the columns of a table."""
    with np.load(path) as archive:
        if archive.files and archive.files[0].isdigit():
            return [archive[name] for name in archive.files]
        return {name: archive[name] for name in archive.files}
