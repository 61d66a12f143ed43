"""Forebay's side: the SQL of each chain, and runs of `forebay run` as whole processes."""

import json
import subprocess
import time

from peers.chains import (BLUR, BOX, BRIGHTNESS, FIXED_SIGMA, GRAY_MEAN, GRAY_STD, JITTER, R1_SIZE, SHORTEST, SIGMA,
                          SIZE, THUMBNAIL_CROP)

DECODED = "decode_image(image)"
CROPPED = "crop({}, {}, {}, {}, {})".format(DECODED, *BOX)


def r1(decoded):
    flipped = f"random_hflip(random_resized_crop({decoded}, {R1_SIZE}, {R1_SIZE}))"
    gray = f"grayscale(color_jitter({flipped}, {JITTER}, {JITTER}, {JITTER}, {JITTER}))"
    return f"normalize(gaussian_blur({gray}, {BLUR}, {SIGMA[0]}, {SIGMA[1]}), {GRAY_MEAN}, {GRAY_STD})"


def r1_fixed(decoded):
    flipped = f"hflip(resize({decoded}, {R1_SIZE}, {R1_SIZE}))"
    gray = f"grayscale(color_jitter({flipped}, [{BRIGHTNESS}, {BRIGHTNESS}]))"
    return f"normalize(gaussian_blur({gray}, {BLUR}, {FIXED_SIGMA}), {GRAY_MEAN}, {GRAY_STD})"


R3 = f"normalize(center_crop(resize_shortest({DECODED}, {SHORTEST}), {SIZE}, {SIZE}), 'imagenet')"
R4 = f"normalize(random_hflip(random_resized_crop({DECODED}, {SIZE}, {SIZE})), 'imagenet')"
R4_FIXED = f"normalize(hflip(resize({CROPPED}, {SIZE}, {SIZE})), 'imagenet')"

#: The expression of each image chain, and that with fixed values for random ones.
PIXELS = {
    "r1": (r1(DECODED), r1_fixed(CROPPED)),
    "r3": (R3, R3),
    "r4": (R4, R4_FIXED),
    "resize": (f"resize({DECODED}, {SIZE}, {SIZE})",) * 2,
    "decode": (DECODED,) * 2,
    "small": (f"center_crop({DECODED}, {THUMBNAIL_CROP}, {THUMBNAIL_CROP})",) * 2,
}
#: The options of variants.
OPTIONS = {"statistical": " OPTIONS (relax = 'statistical')", "unindexed": " OPTIONS (index = 'off')"}
TABLE = "SELECT id, price * clicks AS spent, price * 0.01 AS hundredth FROM parquet('{}') WHERE clicks > 20"
CRITEO = "SELECT label, {}, {} FROM parquet('{{}}')".format(
    ", ".join(f"CAST(ln(CAST(greatest(coalesce(i{n}, 0), 0) + 1 AS DOUBLE)) AS REAL) AS i{n}" for n in range(1, 14)),
    ", ".join(f"coalesce(c{n}, 0) % 100000 AS c{n}" for n in range(1, 27)),
)


def query(workload, variant, data, is_fixed=False):
    """Returns the SQL of a workload over a folder or file."""
    if workload.chain == "criteo":
        text = CRITEO.format(data)
    elif workload.chain in ("table", "table-within"):
        shuffle = "GLOBALLY" if workload.chain == "table" else "WITHIN 100000 ROWS"
        text = f"{TABLE.format(data)} SHUFFLE {shuffle} SEED 1"
    else:
        pixels = PIXELS[workload.chain][is_fixed]
        if variant == "float":
            to_float = f"to_float({DECODED})"
            pixels = r1_fixed(CROPPED.replace(DECODED, to_float)) if is_fixed else r1(to_float)
        source = f"parquet('{data}')" if workload.data == "parquet" else f"images('{data}')"
        text = f"SELECT {pixels} AS pixels FROM {source}"
    # Rows of several shapes cannot be batched; they travel in the default of 256 rows.
    if workload.chain != "decode":
        text += f" BATCH {workload.batch}"
    # Outputs are compared with the tier that is timed.
    return text + OPTIONS.get(variant, "")


class Forebay:
    """A variant of Forebay over one workload; each measurement is a process."""

    def __init__(self, program, name, workload, data, sample, threads, pin):
        self.program, self.workload, self.data, self.sample = program, workload, data, sample
        self.variant = name.partition("-")[2]
        self.threads, self.pin = threads, pin

    def run(self, text, *more):
        command = [self.program, "run", "-q", "-e", text, "--threads", str(self.threads), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=self.pin)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[0])
        return done.stdout

    def write_outputs(self, path):
        """Writes the rows of the sample, computed with fixed values, to an Arrow file."""
        self.run(query(self.workload, self.variant, self.sample, is_fixed=True), "--out", str(path))

    def round(self):
        """Runs the epochs once, in a new process; returns its measurements."""
        text = query(self.workload, self.variant, self.data)
        told = json.loads(self.run(text, "--epochs", str(self.workload.epochs), "--json"))
        return {"rows": told["rows"], "seconds": told["seconds"], "cpu_seconds": told["cpu_seconds"],
                "peak_bytes": told["peak_memory_bytes"]}

    def first_batch(self):
        """Returns the seconds of a process that ends after its first batch; it has no imports to wait for."""
        text = query(self.workload, self.variant, self.data)
        begin = time.monotonic()
        told = json.loads(self.run(text, "--limit-batches", "1", "--json"))
        return {"seconds": time.monotonic() - begin, "without_imports": told["first_batch_seconds"]}

    def close(self):
        """Does nothing: no process is left."""
