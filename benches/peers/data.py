"""The inputs: a folder of the given photos, and what is made of them and of seeded numbers.

Each input has a sample, over which the outputs of contenders are compared. Samples of photos have 16 whose sides hold
the fixed box, and which no EXIF orientation turns, as not all peers apply it.
"""

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from peers.chains import BOX, THUMBNAIL

SAMPLE = 16
#: Sides of each of the four photos in a mosaic of 1280 x 960 pixels.
TILE = (640, 480)
THUMBNAILS_OF_PHOTO = 16
TABLE_ROWS = 2_000_000
CRITEO_ROWS = 500_000
EXIF_ORIENTATION = 0x112


def make(folder, count, work):
    """Makes all inputs in a working folder; returns the path of each, and that of its sample."""
    photos = usable(folder, count)
    if len(photos) < SAMPLE:
        raise SystemExit(f"{folder} has {len(photos)} JPEG photos in RGB or gray, {SAMPLE} are needed")
    sample = [path for path in photos if holds_box(path)][:SAMPLE]
    mosaics = [mosaic(photos[begin:begin + 4]) for begin in range(0, len(photos) - 3, 4)]
    thumbnails = [encoded for path in photos for encoded in thumbnails_of(path)]
    rng = np.random.default_rng(0)
    table(rng, work / "table.parquet")
    criteo(rng, work / "criteo.parquet")
    return {
        "photos": (link(photos, work / "photos"), link(sample, work / "photos_sample")),
        "mosaics": (write(mosaics, work / "mosaics"), write(mosaics[:SAMPLE], work / "mosaics_sample")),
        "thumbnails": (write(thumbnails, work / "thumbnails"), write(thumbnails[:SAMPLE], work / "thumbnails_sample")),
        "parquet": (parquet(photos, work / "photos.parquet"), parquet(sample, work / "photos_sample.parquet")),
        "table": (work / "table.parquet",) * 2,
        "criteo": (work / "criteo.parquet",) * 2,
    }


def usable(folder, count):
    """Returns the first photos of a folder that are JPEG files in RGB or gray."""
    found = []
    for path in sorted(p for p in Path(folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")):
        try:
            with Image.open(path) as image:
                if image.format == "JPEG" and image.mode in ("RGB", "L"):
                    found.append(path.resolve())
        except OSError:
            continue
        if len(found) == count:
            break
    return found


def holds_box(path):
    """True if the fixed box lies in the photo, the photo is colored, and no orientation turns it."""
    top, left, height, width = BOX
    with Image.open(path) as image:
        fits = image.width >= left + width and image.height >= top + height
        return fits and image.mode == "RGB" and image.getexif().get(EXIF_ORIENTATION, 1) == 1


def jpeg(image, **settings):
    out = io.BytesIO()
    image.save(out, "JPEG", **settings)
    return out.getvalue()


def mosaic(paths):
    """Returns four photos beside and below each other, as a JPEG file with 4:2:0 chroma."""
    whole = Image.new("RGB", (2 * TILE[0], 2 * TILE[1]))
    for number, path in enumerate(paths):
        with Image.open(path) as image:
            tile = image.convert("RGB").resize(TILE, Image.Resampling.LANCZOS)
        whole.paste(tile, (number % 2 * TILE[0], number // 2 * TILE[1]))
    return jpeg(whole, quality=90, subsampling="4:2:0")


def thumbnails_of(path):
    """Yields small squares of a photo, as JPEG files."""
    with Image.open(path) as image:
        side = min(image.size) // 4
        image = image.convert("RGB")
        for number in range(THUMBNAILS_OF_PHOTO):
            left, top = number % 4 * side, number // 4 * side
            yield jpeg(image.resize((THUMBNAIL, THUMBNAIL), box=(left, top, left + side, top + side)), quality=90)


def link(paths, folder):
    folder.mkdir()
    for number, path in enumerate(paths):
        os.symlink(path, folder / f"{number:06}.jpg")
    return folder


def write(files, folder):
    folder.mkdir()
    for number, file in enumerate(files):
        (folder / f"{number:06}.jpg").write_bytes(file)
    return folder


def parquet(paths, file):
    """Writes encoded photos to a Parquet file, without compression, as JPEG does not compress."""
    images = pa.array([path.read_bytes() for path in paths], pa.binary())
    pq.write_table(pa.table({"image": images}), file, row_group_size=50, compression="none")
    return file


def table(rng, file):
    columns = {
        "id": np.arange(TABLE_ROWS), "price": rng.random(TABLE_ROWS) * 200,
        "clicks": rng.integers(0, 100, TABLE_ROWS, dtype=np.int32), "unused": rng.random(TABLE_ROWS),
    }
    pq.write_table(pa.table(columns), file, row_group_size=50_000)


def criteo(rng, file):
    """Writes a label, 13 skewed numbers and 26 categories of different sizes; a seventh of the values is missing."""
    def column(values):
        return pa.array(values, mask=rng.random(CRITEO_ROWS) < 1 / 7)

    columns = {"label": rng.integers(0, 2, CRITEO_ROWS, dtype=np.int32)}
    for number in range(1, 14):
        columns[f"i{number}"] = column((rng.exponential(50, CRITEO_ROWS) - 2).astype(np.int32))
    for number in range(1, 27):
        ids = rng.integers(0, 2**32, 1 << (number % 13 + 2), dtype=np.int64)
        columns[f"c{number}"] = column(ids[rng.integers(0, len(ids), CRITEO_ROWS)])
    pq.write_table(pa.table(columns), file, row_group_size=50_000)
