"""Formats batches as plain-text tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Batch

#: Maximum number of characters of a formatted value.
WIDTH = 60


def batch_table(batch: Batch, rows: int) -> str:
    """Returns a table with the names of a batch's columns and its first rows, one row per line."""
    rows = min(rows, batch.num_rows)
    columns = [[name, *map(short, first_rows(column, rows))] for name, column in batch.items()]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*([value.ljust(width) for value in column] for column, width in zip(columns, widths)))
    count = f"{rows} of {batch.num_rows} rows, epoch {batch.epoch}, step {batch.step}"
    return "\n".join([*("  ".join(line).rstrip() for line in lines), count])


def first_rows(column: Any, rows: int) -> list[Any]:
    """Returns the first values of a column. For a column of tensors, returns its type instead of each value; only names
    of tensor types begin with a lower-case letter."""
    if column.type[0].islower():
        return [column.type] * rows
    return _rows(column.numpy(nulls="mask"), rows)


def _rows(values: Any, rows: int) -> list[Any]:
    if isinstance(values, dict):
        parts = {name: _rows(part, rows) for name, part in values.items()}
        return [{name: part[row] for name, part in parts.items()} for row in range(rows)]
    return list(values[:rows])


def short(value: Any) -> str:
    """Formats a value as one line of at most `WIDTH` characters."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = " ".join(str(value).split())
    return text if len(text) <= WIDTH else text[: WIDTH - 2] + ".."
