"""The workloads: what is computed, over which data, and by whom."""

from dataclasses import dataclass

IMAGES = ("tf_data", "torchvision", "pillow", "opencv")


@dataclass(frozen=True)
class Workload:
    """A chain over a data set, its batches, and its contenders beside Forebay."""

    name: str
    title: str
    #: Name of the computation: a key of `contenders/forebay.py` and of the peers' tables.
    chain: str
    #: Name of the input in `data.py`.
    data: str
    contenders: tuple
    #: Further settings of Forebay.
    variants: tuple = ()
    batch: int = 32
    #: Epochs of a measured run.
    epochs: int = 3
    unit: str = "photos"
    #: True if a new process is timed from its start to its first batch.
    is_first_batch: bool = False


R1 = "decode, RandomResizedCrop 244, flip, jitter, gray, blur 11, normalise to f32"
R3 = "decode, resize 256, centre crop 224, normalise to f32"
R4 = "decode, RandomResizedCrop 224, flip, normalise to f32"
UNINDEXED = ("forebay-unindexed",)
RELAXED = ("forebay-statistical",)
TABLES = ("polars", "duckdb", "daft")

WORKLOADS = (
    Workload("r1", f"R1: {R1}", "r1", "photos", ("tf_data", "torchvision", "pillow"), ("forebay-float", *RELAXED)),
    Workload("r3", f"R3: {R3}", "r3", "photos", IMAGES, (*UNINDEXED, *RELAXED)),
    Workload("r4-1", f"R4, 1 epoch: {R4}", "r4", "photos", IMAGES, epochs=1),
    Workload("r4-2", "R4, 2 epochs", "r4", "photos", IMAGES, epochs=2),
    Workload("r4-10", "R4, 10 epochs", "r4", "photos", IMAGES, (*UNINDEXED, *RELAXED), epochs=10),
    Workload("r4-256", "R4, 2 epochs, batches of 256", "r4", "photos", IMAGES, batch=256, epochs=2),
    Workload("r3-mosaics", "R3 of 1280-pixel mosaics, 4:2:0", "r3", "mosaics", IMAGES),
    Workload("r4-mosaics", "R4 of 1280-pixel mosaics, 4:2:0", "r4", "mosaics", IMAGES, UNINDEXED),
    Workload("resize", "Decode and resize to 224 x 224", "resize", "photos", (*IMAGES, "daft")),
    Workload("decode", "Decode only", "decode", "photos", IMAGES),
    Workload("small", "Small files: decode, centre crop 64, u8", "small", "thumbnails", IMAGES, batch=256),
    Workload("parquet", "Parquet of encoded photos: decode and resize to 224 x 224", "resize", "parquet",
             ("torchvision", "daft")),
    Workload("table-globally", "Table: filter, arithmetic, `SHUFFLE GLOBALLY`, batches of 1024", "table", "table",
             TABLES, batch=1024, unit="rows"),
    Workload("table-within", "Table: the same with `SHUFFLE WITHIN 100000 ROWS` (the peers shuffle globally)",
             "table-within", "table", TABLES, batch=1024, unit="rows"),
    Workload("criteo", "Criteo-style columns: 13 logarithms, 26 indices, batches of 4096", "criteo", "criteo",
             TABLES, batch=4096, unit="rows"),
    Workload("first", "First batch of R4, from the start of the process", "r4", "photos", IMAGES,
             epochs=1, is_first_batch=True),
)
