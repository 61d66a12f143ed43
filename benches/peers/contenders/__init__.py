"""The contenders: each module runs the workloads in one library, as that library's users write them.

A module imports its library at once, and only the process of that contender imports the module. It defines
`VERSIONS`, the versions of what it runs, and `batches(workload, data, threads, is_fixed)`, which returns a
callable; each call of that yields the batches of one epoch. `len(batch)` is the number of rows. With
`is_fixed`, random functions have the fixed values of `chains.py`, and all work is in stored order.
"""

#: Names of contenders in tables and plots.
LABELS = {
    "forebay": "Forebay",
    "forebay-statistical": "Forebay, `relax = 'statistical'`",
    "forebay-float": "Forebay, `to_float` first",
    "forebay-unindexed": "Forebay, `index = 'off'`",
    "tf_data": "tf.data",
    "torchvision": "torchvision.io + v2",
    "pillow": "PIL + torchvision",
    "opencv": "OpenCV",
    "daft": "Daft",
    "polars": "Polars",
    "duckdb": "DuckDB",
}


def is_forebay(name):
    """True for the variants of Forebay, which run the command instead of a Python module."""
    return name.split("-")[0] == "forebay"
