"""Compares a cluster of one worker, and an actor of Ray, with one process, with tf.data service and with Ray Data: rows per second of CPU.

    python3 -m venv venv && venv/bin/pip install numpy pillow torch torchvision tensorflow-cpu 'ray[data]'
    cargo build --release --features cluster && venv/bin/pip install ./python
    venv/bin/python benches/service.py target/release/forebay PHOTOS

The work is R4 (decode, random resized crop 224, random horizontal flip, batches of 32), ending in u8 or normalised to f32.
All processes of a contender count: client, worker, scheduler and what these start. Each is run for a few and for many
epochs, and the difference of the two runs counts, so that starting costs nothing. The contenders take turns.
tf.data crops while decoding and does not antialias.
"""

import contextlib
import ctypes
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from peers.tf_crop import cropped

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0")
ROUNDS = int(os.environ.get("ROUNDS", "3"))
FEW, MANY = (int(n) for n in os.environ.get("EPOCHS", "2,12").split(","))
PHOTOS = 300
THREADS = 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ENDS = ("u8", "f32")
# Line by which a contender says that its work is done.
ENDED = b"ended\n"


def paths(folder):
    return sorted(p for p in Path(folder).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))[:PHOTOS]


def query(folder, end):
    pixels = "random_hflip(random_resized_crop(decode_image(image), 224, 224))"
    if end == "f32":
        pixels = f"normalize({pixels}, 'imagenet')"
    return f"SELECT {pixels} AS pixels FROM images('{folder}') TAKE {PHOTOS} BATCH 32"


def client(program, folder, end, epochs, *more):
    command = [program, "run", "-e", query(folder, end), "--threads", str(THREADS), "--epochs", str(epochs), "--json", *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def one_process(program, folder, end, epochs):
    client(program, folder, end, epochs)


def cluster(program, folder, end, epochs):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen([program, "scheduler", "--listen", address], **quiet)
    worker = subprocess.Popen([program, "worker", "--scheduler", address, "--slots", str(THREADS),
                               "--threads", str(THREADS)], **quiet)
    try:
        client(program, folder, end, epochs, "--cluster", address)
    finally:
        worker.kill()
        scheduler.kill()
        worker.wait()
        scheduler.wait()


def tf_data_service(_, folder, end, epochs):
    if os.environ.get("SERVICE_PART") != "client":
        import tensorflow as tf

        service = tf.data.experimental.service
        dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
        address = dispatcher.target.split("://")[1]
        worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
        # The client is a process of its own, or its reads would not leave the worker's process.
        command = [sys.executable, __file__, *sys.argv[1:]]
        environment = {**os.environ, "SERVICE_PART": "client", "SERVICE_ADDRESS": dispatcher.target}
        # The client must not say that all is done; its CPU counts as that of a child that this process waited for.
        subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        del worker, dispatcher
        return
    import tensorflow as tf

    mean, std = tf.constant(MEAN), tf.constant(STD)

    def one(file):
        image = cropped(file)
        if end == "u8":
            return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)
        return (image / 255.0 - mean) / std

    files = [p.read_bytes() for p in paths(folder)]
    data = tf.data.Dataset.from_tensor_slices(files).repeat(epochs).map(one, num_parallel_calls=THREADS).batch(32)
    data = data.apply(tf.data.experimental.service.distribute(
        "distributed_epoch", os.environ["SERVICE_ADDRESS"], compression=None))
    assert sum(int(batch.shape[0]) for batch in data) == len(files) * epochs


def ray_data(_, folder, end, epochs):
    import numpy as np
    import ray
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2

    chain = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    if end == "f32":
        chain += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    chain = v2.Compose(chain)

    def some(batch):
        torch.set_num_threads(1)
        tensors = [torch.frombuffer(bytearray(f), dtype=torch.uint8) for f in batch["bytes"]]
        return {"pixels": np.stack([chain(decode_jpeg(t, mode=ImageReadMode.RGB)).numpy() for t in tensors])}

    ray.init(num_cpus=THREADS, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = 0
    for _ in range(epochs):
        data = ray.data.from_items([{"bytes": p.read_bytes()} for p in paths(folder)])
        for batch in data.map_batches(some, batch_size=32).iter_batches(batch_size=32):
            rows += len(batch["pixels"])
    assert rows == len(paths(folder)) * epochs


def on_ray(_, folder, end, epochs):
    import forebay
    import ray

    ray.init(num_cpus=THREADS, include_dashboard=False, log_to_driver=False, logging_level="error")
    actors = forebay.ray(num_workers=1, num_cpus=THREADS, threads=THREADS)
    rows = 0
    for batch in forebay.sql(query(folder, end)).run(epochs=epochs, cluster=actors):
        rows += len(batch["pixels"].numpy())
    assert rows == len(paths(folder)) * epochs


CONTENDERS = {"one process": one_process, "cluster": cluster, "tf.data service": tf_data_service,
              "on Ray": on_ray, "Ray Data": ray_data}


def adopt():
    """Makes this process the parent of whatever its children leave behind, so that it can end them."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def descendants(process):
    """Yields the numbers of all processes that `process` and its children have started, and that have not ended."""
    # Any thread may have started a child.
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, thread.read_text().split()):
                yield child
                yield from descendants(child)


def cpu_of(process):
    """Returns the seconds of CPU of a process and of the children that it has waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def cpu_of_all(arguments):
    """Runs this program with `arguments`; returns the seconds of CPU of all processes that it starts."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as contender:
        # All processes are alive until the contender is told to go on. Those of Ray are not waited for when they end.
        if not any(line == ENDED for line in contender.stdout):
            raise SystemExit(f"{' '.join(arguments[2:])} failed")
        used = sum(cpu_of(process) for process in descendants(os.getpid()))
        contender.stdin.close()
    for process in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return used


def main():
    program, folder = sys.argv[1], sys.argv[2]
    if len(sys.argv) > 3:
        contender, end, epochs = sys.argv[3:]
        CONTENDERS[contender](program, folder, end, int(epochs))
        sys.stdout.buffer.write(ENDED)
        sys.stdout.flush()
        sys.stdin.read()
        return
    adopt()
    rows = (MANY - FEW) * len(paths(folder))
    chosen = os.environ.get("CONTENDERS", ",".join(CONTENDERS)).split(",")
    rates = {(name, end): [] for end in ENDS for name in chosen}
    for _ in range(ROUNDS):
        for name, end in rates:
            few, many = (cpu_of_all([program, folder, name, end, str(epochs)]) for epochs in (FEW, MANY))
            rates[name, end].append(rows / (many - few))
    for end in ENDS:
        first = statistics.median(rates[chosen[0], end])
        for name in chosen:
            values = rates[name, end]
            median = statistics.median(values)
            print(f"{end}: {median:6.0f} rows per second of CPU  {name}  ({min(values):.0f} to {max(values):.0f}; "
                  f"{median / first:.2f} of {chosen[0]})")


if __name__ == "__main__":
    main()
