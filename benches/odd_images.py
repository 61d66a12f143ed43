"""Does Forebay decode what Pillow decodes, to the same pixels?

    python3 -m venv venv && venv/bin/pip install numpy pillow
    cargo build --release --workspace --example decode_dump
    FOREBAY_TEST_DATA=DATA venv/bin/python benches/odd_images.py target/release/examples/decode_dump

DATA holds `odd_images/` (with CATALOG.tsv). Further GIF, BMP, TIFF, PNG and WebP files are made
here with Pillow. Forebay drops alpha without blending, keeps the high byte of 16 bits, and decodes the
first frame. In scope are files that Pillow decodes to 8-bit gray or RGB, including those made here; the
files of CATALOG.tsv are also counted separately. Other files than 8-bit gray or RGB JPEG, PNG and WebP
are listed with the reason.
"""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

warnings.simplefilter("ignore")
SIGNATURES = (b"\xff\xd8", b"\x89PNG", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*")


def reference(path):
    """Returns what Pillow makes of a file: its RGB bytes and mode, or an error."""
    try:
        with Image.open(path) as image:
            mode, kind = image.mode, image.format
            image = ImageOps.exif_transpose(image)
            if image.mode in ("RGBA", "RGBa"):
                rgb = np.asarray(image)[..., :3]
            elif image.mode in ("LA", "La"):
                rgb = np.repeat(np.asarray(image)[..., :1], 3, axis=2)
            elif image.mode.startswith("I;16") or image.mode == "I":
                gray = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
                rgb = np.repeat(gray[..., None], 3, axis=2)
            elif image.mode == "P" and "transparency" in image.info:
                rgb = np.asarray(image.convert("RGBA"))[..., :3]
            else:
                rgb = np.asarray(image.convert("RGB"))
            return rgb, mode, kind
    except Exception as error:  # Pillow raises many kinds on broken files
        return f"{type(error).__name__}: {error}", None, None


def generated(folder):
    """Makes GIF, BMP, TIFF, PNG and WebP files of many kinds with Pillow."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0:61, 0:83]
    rgb = np.stack([x * 3, y * 4, (x + y) * 2 % 256], axis=2).astype(np.uint8)
    rgb = np.clip(rgb.astype(int) + rng.integers(-9, 9, rgb.shape), 0, 255).astype(np.uint8)
    color = Image.fromarray(rgb)
    alpha = color.copy()
    alpha.putalpha(Image.fromarray((x * 3).astype(np.uint8)))
    wide = Image.fromarray((y.astype(np.uint16) * 900 + x.astype(np.uint16)))
    modes = {"RGB": color, "L": color.convert("L"), "P": color.quantize(64), "1": color.convert("1"),
             "RGBA": alpha, "LA": alpha.convert("LA"), "I;16": wide}
    for mode, image in modes.items():
        for suffix, options in [
            ("gif", [{}]), ("bmp", [{}]), ("png", [{}]), ("webp", [{"lossless": True}, {"quality": 80}]),
            ("tiff", [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"},
                      {"compression": "packbits"}]),
        ]:
            for number, option in enumerate(options):
                name = folder / f"{mode.replace(';', '')}_{number}.{suffix}"
                try:
                    image.save(name, **option)
                except (OSError, ValueError):
                    name.unlink(missing_ok=True)  # the format has no such mode
    frames = [color.quantize(32), color.transpose(Image.Transpose.ROTATE_180).quantize(32)]
    frames[0].save(folder / "frames.gif", save_all=True, append_images=frames[1:])
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for suffix in ("jpg", "png", "webp", "tiff"):
            options = {"exif": exif, **({"lossless": True} if suffix == "webp" else {})}
            if suffix == "jpg":
                options["quality"] = 95
            color.save(folder / f"orientation_{orientation}.{suffix}", **options)
    return sorted(folder.iterdir())


def in_catalog(row):
    """True if Pillow, according to the catalogue, decodes a file as 8-bit gray or RGB JPEG, PNG or WebP."""
    return (row.get("pillow_result") == "ok" and row["pillow_format"] in ("JPEG", "PNG", "WEBP")
            and row["mode"] in ("RGB", "L") and row["precision"] in ("", "8"))


def main():
    dump = sys.argv[1]
    data = Path(os.environ["FOREBAY_TEST_DATA"]) / "odd_images"
    with open(data / "CATALOG.tsv", newline="") as catalog:
        rows = {row["path"]: row for row in csv.DictReader(catalog, delimiter="\t")}
    with tempfile.TemporaryDirectory() as work:
        made = Path(work) / "made"
        made.mkdir()
        paths = [p for p in sorted(data.rglob("*")) if p.is_file()]
        paths = [p for p in paths if p.open("rb").read(4).startswith(SIGNATURES)]
        paths += generated(made)
        out = Path(work) / "out"
        run = subprocess.run([dump, str(out)], input="\n".join(map(str, paths)), text=True,
                             capture_output=True, check=False)
        answers = [json.loads(line) for line in run.stdout.splitlines()]
        if len(answers) != len(paths):
            sys.exit(f"the decoder died at {paths[len(answers)]}:\n{run.stderr[-2000:]}")
        slowest = max(answers, key=lambda a: a["seconds"])["seconds"]

        counts, far, missing, other = Counter(), [], [], []
        for number, (path, answer) in enumerate(zip(paths, answers)):
            found, mode, kind = reference(path)
            name = str(path.relative_to(data)) if data in path.parents else f"made/{path.name}"
            ours = "error" not in answer
            strict = in_catalog(rows.get(name, {}))
            counts["catalogue: Pillow decodes"] += strict
            counts["catalogue: decoded here"] += strict and ours
            if isinstance(found, str):
                counts["both refuse" if not ours else "decoded here alone"] += 1
                if ours:
                    other.append((name, "decoded here, refused by Pillow", found[:90]))
                continue
            bits = rows.get(name, {}).get("precision") or "8"
            in_scope = kind in ("JPEG", "PNG", "WEBP") and mode in ("RGB", "L") and bits == "8"
            group = "in scope" if in_scope else f"{kind} {mode}"
            counts[f"{group}: Pillow decodes"] += 1
            if not ours:
                (missing if in_scope else other).append((name, group, answer["error"][:90]))
                continue
            counts[f"{group}: decoded here"] += 1
            shape = (answer["height"], answer["width"], 3)
            pixels = np.frombuffer((out / f"{number}.rgb").read_bytes(), np.uint8).reshape(shape)
            if shape != found.shape:
                far.append((name, group, f"shape {shape} but {found.shape}"))
                continue
            error = np.abs(pixels.astype(int) - found.astype(int)).mean()
            counts[f"{group}: mean difference at most 2"] += error <= 2
            counts["catalogue: mean difference at most 2"] += strict and error <= 2
            if error > 2:
                far.append((name, group, f"mean difference {error:.2f}"))

    for group, count in sorted(counts.items()):
        print(f"{count:5}  {group}")
    for title, items in [("Not decoded here, in scope", missing), ("Far from Pillow", far), ("Other", other)]:
        print(f"\n{title}:")
        for item in items:
            print("  " + " | ".join(item))
    print(f"\n{len(paths)} files, slowest {slowest:.2f} s")
    below = slowest > 5
    for group in ("in scope", "catalogue"):
        all_of, here = counts[f"{group}: Pillow decodes"], counts[f"{group}: decoded here"]
        near = counts[f"{group}: mean difference at most 2"]
        print(f"{group}: {here}/{all_of} decoded ({100 * here / all_of:.1f} %), "
              f"{near}/{here} near ({100 * near / here:.1f} %)")
        below |= here < 0.95 * all_of or near < 0.99 * here
    if below:
        sys.exit("below the bar: 95 % decoded, 99 % near, 5 s a file")


if __name__ == "__main__":
    main()
