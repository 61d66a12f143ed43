"""Daft: photos are downloaded, decoded and resized by its expressions; tables are filtered and shuffled."""

import glob

import daft
from daft import DataType, col
from daft.functions import decode_image, resize

from peers.chains import SIZE

VERSIONS = {"daft": daft.__version__}


def resized(encoded):
    return resize(decode_image(encoded, mode="RGB"), SIZE, SIZE).alias("pixels")


def photos(folder):
    return daft.from_pydict({"path": sorted(glob.glob(f"{folder}/*"))}).select(resized(col("path").download()))


def table(path):
    rows = daft.read_parquet(path).where(col("clicks") > 20)
    return rows.select(col("id"), (col("price") * col("clicks")).alias("spent"),
                       (col("price") * 0.01).alias("hundredth")).shuffle(seed=1)


def criteo(path):
    numbers = [(col(f"i{n}").fill_null(0).clip(min=0) + 1).cast(DataType.float64()).ln().cast(DataType.float32())
               .alias(f"i{n}") for n in range(1, 14)]
    indices = [(col(f"c{n}").fill_null(0) % 100_000).alias(f"c{n}") for n in range(1, 27)]
    return daft.read_parquet(path).select(col("label"), *numbers, *indices)


def batches(workload, data, threads, is_fixed):
    # Daft takes as many threads as the process has cores.
    del threads, is_fixed
    if workload.chain in ("table", "table-within"):
        frame = table(data)
    elif workload.chain == "criteo":
        frame = criteo(data)
    elif workload.data == "parquet":
        frame = daft.read_parquet(data).select(resized(col("image")))
    else:
        frame = photos(data)
    return frame.into_batches(workload.batch).iter_partitions


def columns(batch):
    """Returns the columns of a batch, for the comparison of outputs."""
    if "pixels" in batch.column_names():
        return {"pixels": batch.to_pydict()["pixels"]}
    return {name: column.to_numpy() for name, column in zip(batch.column_names(), batch.to_arrow().columns)}
