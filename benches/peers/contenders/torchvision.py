"""torchvision: `torchvision.io` decodes, and transforms v2 work on u8 tensors until they normalise."""

import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from peers.chains import (BLUR, BOX, BRIGHTNESS, FIXED_SIGMA, GRAY_MEAN, GRAY_STD, JITTER, MEAN, R1_SIZE, SHORTEST,
                          SIGMA, SIZE, STD, THUMBNAIL_CROP)
from peers.contenders.torch_loader import Folder, Parquet, loader

VERSIONS = {"torch": torch.__version__, "torchvision": torchvision.__version__}

TO_FLOAT = v2.ToDtype(torch.float32, scale=True)
NORMALIZE = v2.Compose([TO_FLOAT, v2.Normalize(MEAN, STD)])
NORMALIZE_GRAY = v2.Compose([TO_FLOAT, v2.Normalize([GRAY_MEAN], [GRAY_STD])])


def fixed_r4(image):
    return NORMALIZE(F.horizontal_flip(F.resize(F.crop(image, *BOX), [SIZE, SIZE], antialias=True)))


def fixed_r1(image):
    flipped = F.horizontal_flip(F.resize(F.crop(image, *BOX), [R1_SIZE, R1_SIZE], antialias=True))
    gray = F.rgb_to_grayscale(F.adjust_brightness(flipped, BRIGHTNESS))
    return NORMALIZE_GRAY(F.gaussian_blur(gray, [BLUR, BLUR], [FIXED_SIGMA, FIXED_SIGMA]))


R3 = v2.Compose([v2.Resize(SHORTEST, antialias=True), v2.CenterCrop(SIZE), NORMALIZE])
#: The transforms of each chain, and those with fixed values for random ones.
CHAINS = {
    "r1": (v2.Compose([v2.RandomResizedCrop(R1_SIZE, antialias=True), v2.RandomHorizontalFlip(),
                       v2.ColorJitter(JITTER, JITTER, JITTER, JITTER), v2.Grayscale(1),
                       v2.GaussianBlur(BLUR, SIGMA), NORMALIZE_GRAY]), fixed_r1),
    "r3": (R3, R3),
    "r4": (v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(), NORMALIZE]), fixed_r4),
    "resize": (v2.Resize((SIZE, SIZE), antialias=True),) * 2,
    "decode": (v2.Identity(),) * 2,
    "small": (v2.CenterCrop(THUMBNAIL_CROP),) * 2,
}


class Load:
    """Decodes a file or its bytes, and applies a chain."""

    def __init__(self, chain):
        self.chain = chain

    def __call__(self, file):
        encoded = read_file(file) if isinstance(file, str) else torch.frombuffer(bytearray(file), dtype=torch.uint8)
        return self.chain(decode_jpeg(encoded, mode=ImageReadMode.RGB))


def batches(workload, data, threads, is_fixed):
    dataset = Parquet if workload.data == "parquet" else Folder
    load = Load(CHAINS[workload.chain][is_fixed])
    return loader(dataset(data, load), workload.batch, threads, workload.chain != "decode")
