"""Splits the results of a Python function into columns, and checks the types and shapes of arrays.

Each column is passed to `udf/build.rs` in the transfer format of its type. `udf/build.rs` checks the single values of
columns that are lists.
"""

from __future__ import annotations

import datetime
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._trace import cause_of, head_of

__all__ = ["Column", "Mistake", "by_column", "gathered", "of_batch", "of_rows"]

#: A declared column: name, type as written in `returns=`, and transfer format of the values.
Column = tuple[str, str, tuple[Any, ...]]


class Mistake(Exception):
    """An error of the function itself, not of a single row. It becomes a `FunctionError`."""


class _Wrong(Exception):
    """The error for a value whose type or shape differs from the declared one."""


def by_column(value: Any, columns: Sequence[Column], is_struct: bool) -> list[Any]:
    """Returns one value per declared column. A mapping is read by column name, and a tuple by position. Any other value
    is that of the only column."""
    names = [name for name, _, _ in columns]
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise _Wrong(f"expected the columns {names}, found {reprlib.repr(list(value))}")
        return [value[name] for name in names]
    if not is_struct:
        return [value]
    if isinstance(value, tuple) and len(value) == len(names):
        return list(value)
    found = f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
    raise _Wrong(f"expected a dictionary of {names}, or a tuple in this order, found {found}")


def of_batch(value: Any, columns: Sequence[Column], is_struct: bool, rows: int) -> list[tuple[Any, ...]]:
    """Splits the result of a function that is called with whole batches into one part per column."""
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
    values: list[Any], columns: Sequence[Column], is_struct: bool
) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
    """Splits the results of a function that is called for each row into columns. The result of a failed row is None.
    Also returns the errors of the rows whose results do not have the declared columns, by row number."""
    if not is_struct and not any(issubclass(kind, Mapping) for kind in set(map(type, values))):
        return [("values", values)], {}
    wrong: dict[int, str] = {}
    split: list[list[Any]] = [[None] * len(values) for _ in columns]
    for row, value in enumerate(values):
        if value is None or value is np.ma.masked:
            continue
        try:
            for column, part in zip(split, by_column(value, columns, is_struct)):
                column[row] = part
        except _Wrong as error:
            wrong[row] = f"TypeError: {error}"
        except Exception as error:
            # The result may be a mapping type of the user, whose methods may raise any exception.
            wrong[row] = cause_of(error)
    return [("values", column) for column in split], wrong


def _batch_column(value: Any, named: str, kind: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
    if hasattr(value, "combine_chunks") and not hasattr(value, "__arrow_c_array__"):
        value = value.combine_chunks()
    if hasattr(value, "__arrow_c_array__"):
        return ("arrow", value)
    if kind[0] == "arrow":
        raise _Wrong(f"expected an Arrow array of {named}, found a {type(value).__name__}")
    are_objects = isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1
    if kind[0] in ("dense", "bool") and not isinstance(value, (list, tuple)) and not are_objects:
        return _dense(value, named, kind, rows)
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        raise _Wrong(f"expected {rows} rows of {named}, found a {type(value).__name__}")
    if len(value) != rows:
        raise _Wrong(f"expected {rows} rows of {named}, found {len(value)}")
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    return ("values", value)


def _dense(value: Any, named: str, kind: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
    """Converts an array whose first dimension is the rows of the batch, and checks its type and shape."""
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


def gathered(
    values: list[Any], named: str, kind: tuple[Any, ...]
) -> tuple[bytes, bytes | None, list[tuple[int, str]]]:
    """Converts times, half floats and tensors one by one. Returns the bytes of the elements, a mask of the nulls, and
    the index and error of each wrong value. A wrong value becomes null."""
    dtype, shape = _dtype(kind)
    if shape and all(type(v) is np.ndarray and v.dtype == dtype and v.shape == shape for v in values):
        return b"".join([value.tobytes() for value in values]), None, []
    array = np.zeros((len(values), *shape), dtype)
    mask = np.zeros(len(values), np.uint8)
    wrong = []
    for number, value in enumerate(values):
        try:
            element = None if value is None else _element(value, dtype, shape, named)
            if element is not None:
                array[number] = element
                continue
        except _Wrong as error:
            wrong.append((number, str(error)))
        except Exception as error:
            wrong.append((number, f"reading the value raised {head_of(error)}"))
        mask[number] = 1
    return array.tobytes(), mask.tobytes() if mask.any() else None, wrong


#: The types of Python and NumPy scalars that are accepted for a declared type, by the NumPy kind of the declared type.
_SCALARS: dict[str, tuple[type, ...]] = {
    "f": (int, float, np.integer, np.floating),
    "M": (np.datetime64, datetime.date),
    "m": (np.timedelta64, datetime.timedelta),
}


def _element(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], named: str) -> Any:
    """Converts a time, a half float or a tensor. Returns None if the value is masked."""
    if shape:
        if not isinstance(value, np.ndarray) and _is_masked(value):
            return None
        array = np.asarray(value)
        if array.dtype != dtype or array.shape != shape:
            raise _Wrong(f"expected {dtype} of shape {shape}, found {array.dtype} of shape {array.shape}")
        return None if _is_masked(value) else array
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if value is np.ma.masked:
        return None
    # `timedelta64` is a subclass of `np.integer`, and `bool` is a subclass of `int`, but neither is accepted as a
    # float.
    is_other = dtype.kind == "f" and isinstance(value, (np.timedelta64, bool))
    if is_other or not isinstance(value, _SCALARS[dtype.kind]):
        raise _Wrong(f"expected {named}, found a {type(value).__name__}")
    return value


def _is_masked(value: Any) -> bool:
    """True if any element of an array or of nested lists is masked."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_masked, value))
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())
