"""A training program that keeps checkpoints: a small network on small images, with fixed seeds.

    python train.py FOLDER CHECKPOINT LOSSES SETTINGS

The program resumes from the file CHECKPOINT if it exists, and appends a line for each step to the file LOSSES: the
number of the step, the exact loss, and the keys of the batch's rows.
"""

import json
import os
import sys

import torch

import forebay as fb
from forebay import col, fn

EPOCHS = 3
EVERY = 3


def pipeline(folder):
    pixels = fn.random_hflip(fn.random_resized_crop(fn.decode_image(col("image")), 16, 16))
    pixels = fn.to_chw(fn.normalize(pixels, "imagenet"))
    return (
        fb.images(folder).select("label", pixels=pixels).shuffle(32, seed=11).batch(16, drop_remainder=True).repeat(EPOCHS)
    )


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(16 * 9, 8),
    )


def main():
    folder, checkpoint, losses, settings = sys.argv[1:]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches, step = pipeline(folder).run(**json.loads(settings)), 0
    if os.path.exists(checkpoint):
        kept = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["rng"])
        batches.load_state_dict(kept["data"])
        step = kept["step"]
    with open(losses, "a") as log:
        for batch in batches:
            rows = batch.torch()
            loss = torch.nn.functional.cross_entropy(model(rows["pixels"]), rows["label"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(json.dumps([step, loss.item().hex(), batch.row_keys]) + "\n")
            log.flush()
            step += 1
            if step % EVERY == 0:
                kept = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "rng": torch.get_rng_state(),
                    "data": batches.state_dict(),
                    "step": step,
                }
                torch.save(kept, checkpoint + ".new")
                os.replace(checkpoint + ".new", checkpoint)
            # Waits for a line from the test, which may kill this process instead.
            print(step, flush=True)
            sys.stdin.readline()


main()
