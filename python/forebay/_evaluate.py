"""Evaluates a Python function over rows, in this process or in a worker process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import convert
from ._results import Column, Mistake, of_batch, of_rows
from ._trace import cause_of
from .batch import Column as BatchColumn

if TYPE_CHECKING:
    from . import _forebay

__all__ = ["Evaluator", "Piece"]

#: The result of a call over consecutive rows: the number of rows, the result columns (None if all rows failed), and the
#: index and cause of each failed row.
Piece = tuple[int, "list[tuple[Any, ...]] | None", list[tuple[int, str]]]


class Evaluator:
    """Calls a function, or an object of a class. The class is instantiated once per process."""

    def __init__(
        self,
        target: Callable[..., Any],
        setup: tuple[tuple[Any, ...], dict[str, Any]] | None,
        mode: str,
        columns: list[Column],
        is_struct: bool,
    ) -> None:
        self._target = target
        self._setup = setup
        self._mode = mode
        self._columns = columns
        self._is_struct = is_struct
        self._made: Callable[..., Any] | None = target if setup is None else None
        self._lock = threading.Lock()
        # An object may have state, so only one thread at a time calls it. Several threads may call a function at the
        # same time.
        self._turns: contextlib.AbstractContextManager[Any] = (
            contextlib.nullcontext() if setup is None else threading.Lock()
        )

    def ready(self) -> Callable[..., Any]:
        """Returns the function or object to call. The first call instantiates the class, if there is one."""
        with self._lock:
            if self._made is None:
                args, named = self._setup or ((), {})
                try:
                    self._made = self._target(*args, **named)
                except Exception as error:
                    raise Mistake(f"its set-up failed: {cause_of(error)}") from None
                if not callable(self._made):
                    raise Mistake("an object of the class cannot be called: it has no __call__")
            return self._made

    def evaluate(self, rows: _forebay.Rows) -> list[Piece]:
        """Computes the function's values for `rows`. Each result covers consecutive rows, in order."""
        function = self.ready()
        with self._turns:
            if self._mode == "rows":
                return [self._row_by_row(function, rows)]
            pieces: list[Piece] = []
            self._batch(function, rows, pieces)
            return pieces

    def _batch(self, function: Callable[..., Any], rows: _forebay.Rows, pieces: list[Piece]) -> None:
        """Calls the function over all rows. If the call raises an exception, calls it over each half, down to single
        rows."""
        count = len(rows)
        arguments = [self._argument(column) for column in rows.columns()]
        try:
            value = function(*arguments)
        except Exception as error:
            if count == 1:
                pieces.append((1, None, [(0, cause_of(error))]))
                return
        else:
            pieces.append((count, of_batch(value, self._columns, self._is_struct, count), []))
            return
        half = count // 2
        self._batch(function, rows.slice(0, half), pieces)
        self._batch(function, rows.slice(half, count - half), pieces)

    def _row_by_row(self, function: Callable[..., Any], rows: _forebay.Rows) -> Piece:
        count = len(rows)
        columns = [_values(column) for column in rows.columns()]
        values: list[Any] = []
        failed: dict[int, str] = {}
        for row in range(count):
            try:
                values.append(function(*[column[row] for column in columns]))
            except Exception as error:
                failed[row] = cause_of(error)
                values.append(None)
        parts, wrong = of_rows(values, self._columns, self._is_struct)
        return count, parts, sorted({**wrong, **failed}.items())

    def _argument(self, column: _forebay.RawColumn) -> Any:
        if self._mode == "arrow":
            whole = BatchColumn(column)
            try:
                import pyarrow  # type: ignore[import-untyped]
            except ImportError:
                return whole
            return pyarrow.array(whole)
        return _array(column)


def _array(column: _forebay.RawColumn) -> Any:
    """Returns a column as a NumPy array; as a masked array if the column has nulls."""
    try:
        return convert.to_numpy(column, convert.RAISE)
    except ValueError:
        return convert.to_numpy(column, "mask")


def _values(column: _forebay.RawColumn) -> list[Any]:
    """Returns the rows of a column as Python values: numbers, texts, bytes, lists and dictionaries. Tensors become
    NumPy arrays."""
    missing: list[bool] = np.asarray(column.nulls()).tolist()
    if column.kind == "struct":
        fields = {part.name: _values(part) for part in column.fields()}
        return [
            None if gone else {name: part[row] for name, part in fields.items()} for row, gone in enumerate(missing)
        ]
    if column.kind == "list":
        elements, offsets = column.elements()
        values, starts = _values(elements), np.asarray(offsets).tolist()
        return [None if gone else values[starts[row] : starts[row + 1]] for row, gone in enumerate(missing)]
    array = _array(column)
    if isinstance(array, list):
        return array
    if array.ndim > 1:
        rows = array if column.gaps() is not None or not isinstance(array, np.ma.MaskedArray) else array.data
        return [None if gone else row for gone, row in zip(missing, rows)]
    if array.dtype.kind == "M":
        # Python's `datetime` has microseconds, but no nanoseconds.
        array = array.astype("datetime64[us]")
    plain: list[Any] = array.tolist()
    return plain
