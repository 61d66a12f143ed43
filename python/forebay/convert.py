"""Converts columns to NumPy arrays and PyTorch tensors."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from . import _forebay

class _Raise(enum.Enum):
    """The type of `RAISE`, the default for `nulls`: nulls raise an error. As an enum, it stays the same object when it
    is pickled."""

    RAISE = 0

    def __repr__(self) -> str:
        return "an error"


RAISE = _Raise.RAISE


def to_numpy(raw: _forebay.RawColumn, nulls: Any) -> Any:
    """Converts a column to NumPy; see `Column.numpy`."""
    plain = raw.plain()
    if plain is not None:
        values = np.asarray(plain)
        return np.ma.MaskedArray(values) if _is_mask(nulls) else values
    kind = raw.kind
    if kind in ("dense", "bool"):
        return _settled(raw, np.asarray(raw.memory()), nulls)
    if kind == "struct":
        return {part.name: to_numpy(part, nulls) for part in raw.fields()}
    if kind == "list":
        return _lists(raw, nulls)
    if kind == "variable":
        return _tensors(raw, nulls)
    values = np.empty(len(raw), dtype=object)
    values[:] = raw.values()
    return values


def _settled(raw: _forebay.RawColumn, values: np.ndarray, nulls: Any) -> Any:
    """Returns `values`, the elements of a column with nulls. The nulls are replaced by `nulls`, or masked."""
    inside = raw.gaps()
    gone = np.asarray(raw.nulls())
    missing = np.broadcast_to(gone.reshape(gone.shape + (1,) * (values.ndim - 1)), values.shape)
    if inside is not None:
        missing = missing | np.asarray(inside)
    if nulls is RAISE:
        rows = int(missing.reshape(len(raw), -1).any(axis=1).sum())
        raise ValueError(
            f'column "{raw.name}" has no value in {rows} of {len(raw)} rows, and a plain array '
            'cannot hold nulls; replace them, as in numpy(nulls=0), or mask them with numpy(nulls="mask")'
        )
    if _is_mask(nulls):
        return np.ma.MaskedArray(values, missing.copy())
    filled = values.copy()
    filled[missing] = nulls
    return filled


def _is_mask(nulls: Any) -> bool:
    return isinstance(nulls, str) and nulls == "mask"


def _lists(raw: _forebay.RawColumn, nulls: Any) -> list[Any]:
    """Returns, for each row, a view of the elements of its list; None for a null row."""
    elements, offsets = raw.elements()
    values = to_numpy(elements, nulls)
    missing = np.asarray(raw.nulls())
    starts = np.asarray(offsets)
    return [
        None if gone else _part(values, begin, end)
        for gone, begin, end in zip(missing.tolist(), starts[:-1].tolist(), starts[1:].tolist())
    ]


def _part(values: Any, begin: int, end: int) -> Any:
    """Returns the elements from `begin` to `end`; for structs, those of each field."""
    if isinstance(values, dict):
        return {name: _part(field, begin, end) for name, field in values.items()}
    return values[begin:end]


def _tensors(raw: _forebay.RawColumn, nulls: Any) -> list[Any]:
    shapes = np.asarray(raw.shapes()).tolist()
    return [
        None if row is None else row.reshape(shape)
        for row, shape in zip(_lists(raw, nulls), shapes)
    ]


def to_torch(raw: _forebay.RawColumn, nulls: Any) -> Any:
    """Converts a column to PyTorch; see `Column.torch`."""
    return _tensor(to_numpy(raw, nulls))


def _tensor(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _tensor(part) for name, part in values.items()}
    if isinstance(values, list):
        return [_tensor(row) for row in values]
    if not isinstance(values, np.ndarray):
        return values
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError('PyTorch has no masked arrays; replace the nulls by a value, as in torch(nulls=0)')
    if values.dtype == object:
        return values.tolist()
    import torch

    if values.dtype.kind in "mM":
        values = values.view(np.int64)
    # PyTorch has no read-only tensors, so read-only memory, such as that of a function's arguments, is copied.
    return torch.from_numpy(values if values.flags.writeable else values.copy())
