"""What a Python function returned, checked against what it declared, and taken apart for Arrow.

A column is handed over by its kind; `udf_build.rs` says how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Column", "Mistake", "by_column", "of_batch", "of_rows"]

#: A declared column: its name, its type as `returns=` writes it, and its kind.
Column = tuple[str, str, tuple[Any, ...]]


class Mistake(Exception):
    """The function itself is wrong, whatever the row."""


class _Wrong(Exception):
    """A row's value is of another type or shape than declared."""


def by_column(value: Any, columns: Sequence[Column], is_struct: bool) -> list[Any]:
    """The values of each column: of a mapping by name, of a tuple by place, or the one value."""
    names = [name for name, _, _ in columns]
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise _Wrong(f"expected the columns {names}, found {list(value)}")
        return [value[name] for name in names]
    if not is_struct:
        return [value]
    if isinstance(value, tuple) and len(value) == len(names):
        return list(value)
    found = f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
    raise _Wrong(f"expected a dictionary of {names}, or a tuple in this order, found {found}")


def of_batch(value: Any, columns: Sequence[Column], is_struct: bool, rows: int) -> list[tuple[Any, ...]]:
    """What a function over batches returned."""
    try:
        values = by_column(value, columns, is_struct)
    except _Wrong as wrong:
        raise Mistake(str(wrong)) from None
    parts = []
    for (name, named, kind), column in zip(columns, values):
        try:
            parts.append(_batch_column(column, named, kind, rows))
        except _Wrong as wrong:
            raise Mistake(f'column "{name}": {wrong}') from None
    return parts


def of_rows(
    values: Sequence[Any], columns: Sequence[Column], is_struct: bool
) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
    """What a function over rows returned, None for rows that failed; and rows whose value is wrong."""
    wrong: dict[int, str] = {}
    split: list[list[Any]] = [[None] * len(values) for _ in columns]
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            for column, part in zip(split, by_column(value, columns, is_struct)):
                column[row] = part
        except _Wrong as error:
            wrong[row] = f"TypeError: {error}"
    parts = []
    for (name, named, kind), column in zip(columns, split):
        found: dict[int, str] = {}
        parts.append(_row_column(column, named, kind, found))
        for row, why in found.items():
            wrong.setdefault(row, f'TypeError: column "{name}": {why}')
    return parts, wrong


def _batch_column(value: Any, named: str, kind: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
    if hasattr(value, "combine_chunks") and not hasattr(value, "__arrow_c_array__"):
        value = value.combine_chunks()
    if hasattr(value, "__arrow_c_array__"):
        return ("arrow", value)
    if kind[0] == "arrow":
        raise _Wrong(f"expected an Arrow array of {named}, found a {type(value).__name__}")
    if kind[0] in ("dense", "bool") and not isinstance(value, (list, tuple)):
        return _dense(value, named, kind, rows)
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        raise _Wrong(f"expected {rows} rows of {named}, found a {type(value).__name__}")
    if len(value) != rows:
        raise _Wrong(f"expected {rows} rows of {named}, found {len(value)}")
    wrong: dict[int, str] = {}
    values = value.tolist() if isinstance(value, np.ndarray) and kind[0] != "list" else list(value)
    parts = _row_column(values, named, kind, wrong)
    if wrong:
        row, why = min(wrong.items())
        raise _Wrong(f"row {row} of {rows}: {why}")
    return parts


def _dense(value: Any, named: str, kind: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
    """An array of one shape."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    dtype, shape = _dtype(kind)
    wanted = (rows, *shape)
    if array.dtype != dtype or array.shape != wanted:
        hint = f'; convert it: .astype("{dtype}")' if array.shape == wanted and array.dtype.kind != "O" else ""
        raise _Wrong(f"expected {dtype} of shape {wanted}, found {array.dtype} of shape {array.shape}{hint}")
    mask = None
    if isinstance(array, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(array).reshape(rows, -1).any(axis=1)
        mask = missing.astype(np.uint8).tobytes() if missing.any() else None
        array = array.filled() if dtype.kind not in "mM" else array.data
    return ("dense", array.tobytes(), mask)


def _dtype(kind: tuple[Any, ...]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    return (np.dtype(bool), ()) if kind[0] == "bool" else (np.dtype(kind[1]), tuple(kind[2]))


def _row_column(values: Sequence[Any], named: str, kind: tuple[Any, ...], wrong: dict[int, str]) -> tuple[Any, ...]:
    """Values row by row. Rows that are wrong are noted, and null."""
    if kind[0] == "arrow":
        raise Mistake(f"only Arrow batches can be of type {named}")
    if kind[0] == "list":
        return _lists(values, named, kind, wrong)
    if kind[0] in ("text", "bytes"):
        wanted: Any = str if kind[0] == "text" else (bytes, bytearray, memoryview)
        texts = []
        for row, value in enumerate(values):
            if value is not None and not isinstance(value, wanted):
                wrong[row] = _found(named, value)
                value = None
            texts.append(bytes(value) if kind[0] == "bytes" and value is not None else value)
        return (kind[0], texts)
    dtype, shape = _dtype(kind)
    array = np.zeros((len(values), *shape), dtype)
    mask = np.zeros(len(values), np.uint8)
    for row, value in enumerate(values):
        if value is None:
            mask[row] = 1
            continue
        try:
            array[row] = _element(value, dtype, shape, named)
        except (_Wrong, OverflowError, ValueError) as error:
            wrong[row] = str(error)
            mask[row] = 1
    return ("dense", array.tobytes(), mask.tobytes() if mask.any() else None)


def _element(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], named: str) -> Any:
    """A row's number or tensor."""
    if shape:
        array = np.asarray(value)
        if array.dtype != dtype or array.shape != shape:
            raise _Wrong(f"expected {dtype} of shape {shape}, found {array.dtype} of shape {array.shape}")
        return array
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    is_flag = isinstance(value, (bool, np.bool_))
    is_whole = isinstance(value, (int, np.integer)) and not is_flag
    fits = {
        "b": is_flag,
        "i": is_whole,
        "u": is_whole,
        "f": is_whole or isinstance(value, (float, np.floating)),
    }.get(dtype.kind, not isinstance(value, (str, bytes)))
    if not fits:
        raise _Wrong(_found(named, value))
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise _Wrong(f"{value} does not fit into {named}")
    return value


def _lists(values: Sequence[Any], named: str, kind: tuple[Any, ...], wrong: dict[int, str]) -> tuple[Any, ...]:
    """A list for each row."""
    inner, inner_named = kind[1], named[len("list<") : -1]
    items: list[Any] = []
    offsets, owners = [0], []
    mask = bytearray(len(values))
    for row, value in enumerate(values):
        if value is None or isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
            mask[row] = 1
            if value is not None:
                wrong[row] = _found(named, value)
        else:
            own = value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else list(value)
            items += own
            owners += [row] * len(own)
        offsets.append(len(items))
    inside: dict[int, str] = {}
    parts = _row_column(items, inner_named, inner, inside)
    for item, why in inside.items():
        wrong.setdefault(owners[item], why)
    return ("list", offsets, bytes(mask) if any(mask) else None, parts)


def _found(named: str, value: Any) -> str:
    return f"expected {named}, found a {type(value).__name__}"
