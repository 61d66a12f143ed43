"""PIL: Pillow decodes, and torchvision's transforms work on its images until they become tensors."""

import numpy as np
import PIL
import torchvision
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import functional as F

from peers.chains import (BLUR, BOX, BRIGHTNESS, FIXED_SIGMA, GRAY_MEAN, GRAY_STD, JITTER, MEAN, R1_SIZE, SHORTEST,
                          SIGMA, SIZE, STD, THUMBNAIL_CROP)
from peers.contenders.torch_loader import Folder, loader

VERSIONS = {"pillow": PIL.__version__, "torchvision": torchvision.__version__}

NORMALIZE = v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])
NORMALIZE_GRAY = v1.Normalize([GRAY_MEAN], [GRAY_STD])
TO_BYTES = np.array


def fixed_r4(image):
    return NORMALIZE(F.hflip(F.resize(F.crop(image, *BOX), [SIZE, SIZE])))


def fixed_r1(image):
    gray = F.to_grayscale(F.adjust_brightness(F.hflip(F.resize(F.crop(image, *BOX), [R1_SIZE, R1_SIZE])), BRIGHTNESS))
    return NORMALIZE_GRAY(F.to_tensor(F.gaussian_blur(gray, [BLUR, BLUR], [FIXED_SIGMA, FIXED_SIGMA])))


R3 = v1.Compose([v1.Resize(SHORTEST), v1.CenterCrop(SIZE), NORMALIZE])
#: The transforms of each chain, and those with fixed values for random ones.
CHAINS = {
    "r1": (v1.Compose([v1.RandomResizedCrop(R1_SIZE), v1.RandomHorizontalFlip(),
                       v1.ColorJitter(JITTER, JITTER, JITTER, JITTER), v1.Grayscale(1), v1.ToTensor(),
                       v1.GaussianBlur(BLUR, SIGMA), NORMALIZE_GRAY]), fixed_r1),
    "r3": (R3, R3),
    "r4": (v1.Compose([v1.RandomResizedCrop(SIZE), v1.RandomHorizontalFlip(), NORMALIZE]), fixed_r4),
    "resize": (v1.Compose([v1.Resize((SIZE, SIZE)), TO_BYTES]),) * 2,
    "decode": (TO_BYTES,) * 2,
    "small": (v1.Compose([v1.CenterCrop(THUMBNAIL_CROP), TO_BYTES]),) * 2,
}


class Load:
    """Decodes a file and applies a chain."""

    def __init__(self, chain):
        self.chain = chain

    def __call__(self, path):
        return self.chain(Image.open(path).convert("RGB"))


def batches(workload, data, threads, is_fixed):
    load = Load(CHAINS[workload.chain][is_fixed])
    return loader(Folder(data, load), workload.batch, threads, workload.chain != "decode")
