"""Makes the arrays that `udfs/tests/torchvision.rs` and the crate's unit tests compare their results with.

    python3 -m venv venv && venv/bin/pip install numpy torch torchvision
    venv/bin/python benches/torchvision_golden.py udfs/tests/golden

Writes `functions.json` (cases: call, input, shape, tolerance), `functions.bin` (inputs and results) and
`parameters.json` (parameters that torchvision drew, for tests of distribution).
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torchvision
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

HEIGHT, WIDTH, SAMPLES = 29, 37, 1500


def picture():
    """Returns a picture with gradients, edges and noise, u8 [3, H, W]."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [x * 6, y * 8, ((x // 5 + y // 4) % 2) * 200 + 20]
    image = np.stack(planes).astype(int) + rng.integers(-12, 12, (3, HEIGHT, WIDTH))
    return torch.from_numpy(image.clip(0, 255).astype(np.uint8))


def cases(image):
    """Yields cases (call, input type, result, tolerance); the tolerance is in units of 1/255."""
    filters = {"bilinear": Mode.BILINEAR, "bicubic": Mode.BICUBIC, "nearest": Mode.NEAREST}
    floats = F.to_dtype(image, torch.float32, scale=True)
    for kind, source in (("u8", image), ("f32", floats)):
        exact = 0 if kind == "u8" else 1e-4
        rounded = 1 if kind == "u8" else 1e-2
        for name, mode in filters.items():
            for size in ((14, 20), (50, 61), (29, 12)):
                result = F.resize(source, list(size), mode, antialias=True)
                # The nearest pixel is copied exactly; other filters round twice.
                bar = exact if name == "nearest" else rounded
                yield ["resize", *size, name], kind, result, bar
        yield ["resize_shortest", 15], kind, F.resize(source, [15], antialias=True), rounded
        yield ["center_crop", 12, 40], kind, F.center_crop(source, [12, 40]), exact
        yield ["crop", -3, 5, 20, 40], kind, F.crop(source, -3, 5, 20, 40), exact
        for mode in ("constant", "edge", "reflect", "symmetric"):
            yield ["pad", [1, 2, 3, 4], 0, mode], kind, F.pad(source, [1, 2, 3, 4], 0, mode), exact
        yield ["hflip"], kind, F.horizontal_flip(source), exact
        yield ["vflip"], kind, F.vertical_flip(source), exact
        for degrees in (90, 180, 33.5, -71):
            for expand in (False, True):
                result = F.rotate(source, degrees, Mode.BILINEAR, expand=expand)
                yield ["rotate", degrees, "bilinear", expand], kind, result, rounded
        fill = 100 if kind == "u8" else 0.4
        result = F.rotate(source, 20, Mode.BILINEAR, expand=True, fill=fill)
        yield ["rotate", 20, "bilinear", True, fill], kind, result, rounded
        for factor in (0.0, 0.6, 1.4):
            same = [1.0, 1.0]
            yield ["color_jitter", [factor] * 2], kind, F.adjust_brightness(source, factor), rounded
            yield (["color_jitter", same, [factor] * 2], kind,
                   F.adjust_contrast(source, factor), rounded)
            yield (["color_jitter", same, same, [factor] * 2], kind,
                   F.adjust_saturation(source, factor), rounded)
        for turn in (-0.4, 0.1, 0.5):
            result = F.adjust_hue(source, turn)
            # Hue is a quotient of small differences, so a different rounding has twice the effect.
            yield ["color_jitter", same, same, same, [turn] * 2], kind, result, 2 * rounded
        yield ["grayscale", 1], kind, F.rgb_to_grayscale(source, 1), rounded
        yield ["grayscale", 3], kind, F.rgb_to_grayscale(source, 3), rounded
        for kernel, sigma in ((3, 0.5), (9, 1.7)):
            result = F.gaussian_blur(source, [kernel, kernel], [sigma, sigma])
            yield ["gaussian_blur", kernel, sigma], kind, result, rounded
        threshold = 128 if kind == "u8" else 0.5
        yield ["solarize", threshold], kind, F.solarize(source, threshold), exact
        yield ["posterize", 3], kind, F.posterize(source, 3), exact
        yield ["to_float"], kind, F.to_dtype(source, torch.float32, scale=True), 1e-4
        mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
        yield ["normalize", mean, std], kind, F.normalize(floats, mean, std), 1e-3


def parameters():
    """Returns parameters that torchvision draws for a 120 x 90 (height x width) image."""
    torch.manual_seed(5)
    image = torch.zeros(3, 120, 90)

    def drawn(transform, names):
        rows = []
        for _ in range(SAMPLES):
            made = transform.make_params([image])
            rows.append([float(made[name]) for name in names])
        return [sorted(column) for column in zip(*rows)]

    crop = v2.RandomResizedCrop((8, 8), antialias=True)
    places = v2.RandomCrop((50, 40), padding=None)
    erasing = v2.RandomErasing(1.0)
    jitter = v2.ColorJitter(0.4, 0.3, (0.5, 1.5), 0.1)
    factors = [jitter.make_params([image]) for _ in range(SAMPLES)]
    names = ["brightness_factor", "contrast_factor", "saturation_factor", "hue_factor"]
    erased = []
    for _ in range(SAMPLES):
        made = erasing.make_params([image])
        if made.get("v") is not None:
            erased.append([made["i"], made["j"], made["h"], made["w"]])
    return {
        "random_resized_crop": drawn(crop, ["top", "left", "height", "width"]),
        "random_crop": drawn(places, ["top", "left"]),
        "random_rotate": drawn(v2.RandomRotation((-30, 40)), ["angle"]),
        "gaussian_blur": [sorted(made) for made in
                          [[float(v2.GaussianBlur(3, (0.1, 2.0)).make_params([image])["sigma"][0])
                            for _ in range(SAMPLES)]]],
        "color_jitter": [sorted(float(f[name]) for f in factors) for name in names],
        "color_jitter_first": np.bincount([int(f["fn_idx"][0]) for f in factors], minlength=4).tolist(),
        "random_erasing": [sorted(map(float, column)) for column in zip(*erased)],
    }


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    image = picture()
    blob, listed = bytearray(), []

    def keep(tensor):
        array = tensor.permute(1, 2, 0).contiguous().numpy()
        start = len(blob)
        blob.extend(array.tobytes())
        return {"start": start, "shape": list(array.shape), "type": str(array.dtype)}

    source = keep(image)
    for call, kind, result, tolerance in cases(image):
        listed.append({"call": call, "input": kind, "tolerance": tolerance, **keep(result)})
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    document = {"versions": versions, "source": source, "cases": listed}
    (folder / "functions.json").write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n")
    (folder / "functions.bin").write_bytes(bytes(blob))
    drawn = parameters()
    rounded = {k: [[round(x, 5) for x in c] if isinstance(c, list) else c for c in v] for k, v in drawn.items()}
    (folder / "parameters.json").write_text(json.dumps(rounded, separators=(",", ":")) + "\n")
    print(len(listed), "cases,", len(blob), "bytes;", math.prod(image.shape), "samples of input")


if __name__ == "__main__":
    main()
