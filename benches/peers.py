"""Compares the training chain (R4) with its peers, on one thread each.

    python3 -m venv venv && venv/bin/pip install numpy pillow torch torchvision tensorflow-cpu
    cargo build --release
    venv/bin/python benches/peers.py target/release/forebay PHOTOS

R4: decode, random resized crop 224, random horizontal flip, normalise to f32, batches of 32. PHOTOS is
a folder of photos in the page cache; the peers hold them in memory. The contenders take turns, so that a
drift of the machine's speed affects all of them; a contender's figure is the median of its rounds. tf.data
crops while decoding and does not antialias. Each contender computes on one thread, but its other work
(Forebay reads files) may use further cores. So Forebay is also measured with two threads, and with all
of its threads on one core.
"""

import io
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tf_crop import cropped

os.environ.update(OMP_NUM_THREADS="1", TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1",
                  TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
ROUNDS = int(os.environ.get("ROUNDS", "7"))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photos(folder):
    paths = sorted(p for p in Path(folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    return [p.read_bytes() for p in paths[:300]]


def pillow(files):
    from PIL import Image
    from torchvision import transforms as v1

    chain = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(),
                        v1.Normalize(MEAN, STD)])
    return lambda: [chain(Image.open(io.BytesIO(f)).convert("RGB")) for f in files]


def torch_io(files):
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    chain = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
                        v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    tensors = [torch.frombuffer(bytearray(f), dtype=torch.uint8) for f in files]
    return lambda: [chain(decode_jpeg(t, mode=ImageReadMode.RGB)) for t in tensors]


def tf_data(files):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    mean, std = tf.constant(MEAN), tf.constant(STD)

    def one(file):
        image = cropped(file)
        return (image / 255.0 - mean) / std

    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    data = tf.data.Dataset.from_tensor_slices(files).map(one, num_parallel_calls=1).batch(32)
    data = data.with_options(options)

    def run():
        for _ in data:
            pass

    return run


PEERS = {"tf.data decode_and_crop": tf_data, "torchvision.io + v2": torch_io, "PIL + torchvision": pillow}


SQL = """SELECT normalize(random_hflip(random_resized_crop(decode_image(image), 224, 224)), 'imagenet') AS pixels
FROM images('{}') BATCH 32"""
# Number of epochs of a run of Forebay: enough that starting the process weighs no more than for the peers.
EPOCHS = 10
OURS = {"forebay": (1,), "forebay, one core": (1, ("taskset", "-c", "0")), "forebay, 2 threads": (2,)}


def forebay(program, folder, threads, prefix=()):
    command = [*prefix, program, "run", "-e", SQL.format(folder), "--threads", str(threads),
               "--epochs", str(EPOCHS), "--json"]
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(line)["rows_per_second"]


def serve(name, folder):
    """Runs a round of a peer for each line of standard input, and prints the photos per second."""
    files = photos(folder)
    run = PEERS[name](files)
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run()
        print(len(files) / (time.perf_counter() - begin), flush=True)


def main():
    program, folder = sys.argv[1], sys.argv[2]
    if len(sys.argv) > 3:
        return serve(sys.argv[3], folder)
    # Each peer has a process, since TensorFlow and PyTorch do not load into one.
    peers = {}
    for name in PEERS:
        command = [sys.executable, __file__, program, folder, name]
        peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)
        if peer.stdout.readline().strip() == "ready":
            peers[name] = peer
        else:
            print(f"{name}: left out, it did not start")
    rates = {name: [] for name in [*peers, *OURS]}
    for _ in range(ROUNDS):
        for name, peer in peers.items():
            peer.stdin.write("\n")
            peer.stdin.flush()
            rates[name].append(float(peer.stdout.readline()))
        for name, settings in OURS.items():
            rates[name].append(forebay(program, folder, *settings))
    for peer in peers.values():
        peer.stdin.close()
        peer.wait()
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, median in medians.items():
        spread = f"{min(rates[name]):.0f} to {max(rates[name]):.0f}"
        print(f"{median:8.0f} photos/s  {name}  ({spread}; forebay is {medians['forebay'] / median:.2f}x)")
    for one in ("forebay", "forebay, one core"):
        pairs = [y / x for x, y in zip(rates[one], rates["forebay, 2 threads"])]
        print(f"2 threads: {statistics.median(pairs):.2f}x {one} ({min(pairs):.2f} to {max(pairs):.2f})")


if __name__ == "__main__":
    main()
