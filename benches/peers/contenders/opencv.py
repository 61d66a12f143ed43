"""OpenCV: `imdecode` and `resize` without antialiasing, in a pool of threads, as neither holds the GIL."""

import glob
import math
import random
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np

from peers.chains import BOX, MEAN, SHORTEST, SIZE, STD, THUMBNAIL, THUMBNAIL_CROP

VERSIONS = {"opencv-python-headless": cv2.__version__}

SCALE = np.array([1 / (255 * std) for std in STD], np.float32)
SHIFT = np.array([mean / std for mean, std in zip(MEAN, STD)], np.float32)


def decode(path):
    return cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR_RGB)


def cropped(image, box, size):
    top, left, height, width = box
    return cv2.resize(image[top:top + height, left:left + width], (size, size), interpolation=cv2.INTER_LINEAR)


def normalized(image):
    out = np.multiply(image, SCALE, dtype=np.float32)
    out -= SHIFT
    return out


def random_box(height, width):
    """Draws the box of RandomResizedCrop, with torchvision's algorithm."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def r4(path):
    image = decode(path)
    image = cropped(image, random_box(*image.shape[:2]), SIZE)
    return normalized(cv2.flip(image, 1) if random.random() < 0.5 else image)


def fixed_r4(path):
    return normalized(cv2.flip(cropped(decode(path), BOX, SIZE), 1))


def r3(path):
    image = decode(path)
    height, width = image.shape[:2]
    factor = SHORTEST / min(height, width)
    image = cv2.resize(image, (int(width * factor + 1e-6), int(height * factor + 1e-6)), interpolation=cv2.INTER_LINEAR)
    top, left = (round((side - SIZE) / 2) for side in image.shape[:2])
    return normalized(image[top:top + SIZE, left:left + SIZE])


def resize(path):
    return cv2.resize(decode(path), (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)


def small(path):
    begin = (THUMBNAIL - THUMBNAIL_CROP) // 2
    return decode(path)[begin:begin + THUMBNAIL_CROP, begin:begin + THUMBNAIL_CROP]


#: The function of each chain, and that with fixed values for random ones.
CHAINS = {"r3": (r3, r3), "r4": (r4, fixed_r4), "resize": (resize,) * 2, "decode": (decode,) * 2,
          "small": (small,) * 2}


def batches(workload, data, threads, is_fixed):
    cv2.setNumThreads(1)
    paths = sorted(glob.glob(f"{data}/*"))
    chain = CHAINS[workload.chain][is_fixed]
    call = map if threads == 1 else ThreadPoolExecutor(threads).map
    collate = list if workload.chain == "decode" else np.stack

    def epoch():
        for begin in range(0, len(paths), workload.batch):
            yield collate(list(call(chain, paths[begin:begin + workload.batch])))

    return epoch
