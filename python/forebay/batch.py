"""Batches and their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _forebay, convert
from .convert import RAISE

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["Batch", "Column"]


class Column:
    """A column of a batch.

    PyArrow, Polars and DuckDB accept a column as an Arrow array, without a copy. `numpy.asarray`, `torch.from_dlpack`
    and `jax.dlpack.from_dlpack` share the column's memory if no other object uses this memory, and copy the column
    otherwise. So a write into their result never changes another column, another batch or an Arrow array.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: _forebay.RawColumn) -> None:
        self._raw = raw

    @property
    def name(self) -> str:
        """The column's name."""
        return self._raw.name

    @property
    def type(self) -> str:
        """The column's type, for display: `Int32`, or `f32[224, 224, 3]` for a tensor."""
        return self._raw.type_text

    @property
    def null_count(self) -> int:
        """Number of nulls."""
        return self._raw.null_count

    def __len__(self) -> int:
        return len(self._raw)

    def numpy(self, nulls: Any = RAISE) -> Any:
        """Converts the column to NumPy.

        * Numbers, times and tensors of one shape: a writable view of the batch's memory, `[rows, *shape]`. Memory that
        another column, another batch or an Arrow array uses is copied, and so are booleans and dates.
        * Text and bytes: an array of objects, with None for rows without a value.
        * Lists, and tensors whose shape differs by row: a list of views, one per row.
        * Structs: a dictionary with an array for each field. In rows with a null struct, all fields are null. Lists of
        structs become a dictionary of lists.

        Args:
            nulls: The value for missing numbers, or `"mask"` for a masked array.
                Without it, nulls raise a ValueError.
        """
        return convert.to_numpy(self._raw, nulls)

    def torch(self, nulls: Any = RAISE) -> Any:
        """Converts the column to a writable tensor.

        The tensor shares the batch's memory, as the array of `numpy` does. Times become integers, text and bytes become
        lists, and lists become lists of tensors.

        Args:
            nulls: The value for missing numbers. Without it, nulls raise a ValueError.
        """
        return convert.to_torch(self._raw, nulls)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import numpy as np

        if copy is False and (why := self._copied()):
            raise ValueError(why)
        values = np.asarray(self.numpy())
        if dtype is not None and values.dtype != dtype:
            if copy is False:
                raise ValueError(f"converting a column of {values.dtype} to an array of {dtype} needs a copy")
            return values.astype(dtype)
        return values.copy() if copy else values

    def __dlpack__(self, *, copy: bool | None = None, **wanted: Any) -> Any:
        """The DLPack protocol. The consumer may write into the result, so memory that other objects use is copied.

        Raises:
            BufferError: The column is not an array of one shape. Or `copy` is False but a copy is necessary, because
                other objects use the memory or the values are not stored as an array.
        """
        if self._raw.kind not in ("dense", "bool"):
            raise BufferError(f'column "{self.name}" of {self.type} is not an array of one shape')
        if copy is False and (why := self._copied()):
            raise BufferError(why)
        values: np.ndarray = self.numpy()
        if copy or not values.flags.writeable:
            values = values.copy()
        return values.__dlpack__(**wanted)

    def _copied(self) -> str | None:
        """The reason why a writable array of the column's values must be a copy; None if the array can share the
        column's memory."""
        stored = self._raw.stored
        if stored is not None:
            form = f"in a form that NumPy cannot share ({stored})"
            return f'the values of column "{self.name}" are stored {form}; allow a copy'
        if self._raw.is_own:
            return None
        return f'another object uses the memory of column "{self.name}"; allow a copy'

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack protocol: returns the device of the memory, which is the CPU."""
        return (1, 0)

    def __arrow_c_schema__(self) -> Any:
        """Arrow's C interface: the type."""
        return self._raw.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Arrow's C interface: the type and the values."""
        return self._raw.__arrow_c_array__(requested_schema)

    def __repr__(self) -> str:
        return f"<Column {self.name}: {self.type}, {len(self)} rows>"


class Batch(Mapping[str, Column]):
    """A batch of rows: a mapping from names to columns.

    PyArrow, Polars and DuckDB accept a batch as an Arrow table without a copy: `pyarrow.record_batch(batch)`,
    `polars.DataFrame(batch)`.
    """

    __slots__ = ("_raw", "_places", "_step")

    def __init__(self, raw: _forebay.RawBatch, step: int | None = None) -> None:
        self._raw = raw
        self._step = raw.step if step is None else step
        self._places = {name: place for place, name in enumerate(raw.names)}

    @property
    def epoch(self) -> int:
        """The epoch of the batch, from 0."""
        return self._raw.epoch

    @property
    def step(self) -> int:
        """Number of the batch's step, from 0, counted in the epoch or, if batches cross epochs, in the whole run."""
        return self._step

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._raw.num_rows

    @property
    def padded(self) -> int:
        """Number of rows at the end of the batch that only repeat other rows. The options `uneven="pad"`,
        `pad_remainder` and `equal_steps = 'pad'` repeat rows."""
        return self._raw.padded

    @property
    def nbytes(self) -> int:
        """Size of the batch's rows, in bytes."""
        return self._raw.nbytes

    @property
    def schema(self) -> dict[str, str]:
        """The type of each column, for display."""
        return {name: self[name].type for name in self}

    @property
    def row_keys(self) -> list[tuple[str, int, int]]:
        """The keys of the batch's rows: path of the file (relative to its source), row number in the file, and index
        among the rows that `unnest` created from this stored row, all from 0. If the rows of the batch are packs, the
        keys of the rows within the packs."""
        return self._raw.row_keys()

    def token(self) -> str:
        """Returns the token, as JSON, with which `run(resume=..)` resumes after this batch.

        The token names the position in the stream after the batch's step. All ranks take a step together, so their
        tokens after this step are equal. A run may resume from the token with another number of ranks or threads, or
        with other rewrites.
        """
        token = self._raw.token()
        if token is None:
            raise ValueError("this batch does not belong to a run")
        return token

    def __getitem__(self, name: str) -> Column:
        return Column(self._raw.column(self._places[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def numpy(self, nulls: Any = RAISE) -> dict[str, Any]:
        """Converts the columns to a dictionary of NumPy arrays; see `Column.numpy`. JAX accepts the result as a pytree
        if no column holds text."""
        # Without a `Column` for each, converting a batch of two short columns takes a seventh less time.
        return {name: convert.to_numpy(self._raw.column(place), nulls) for name, place in self._places.items()}

    def torch(self, nulls: Any = RAISE) -> dict[str, torch.Tensor | Any]:
        """Converts the columns to a dictionary of tensors; see `Column.torch`."""
        return {name: convert.to_torch(self._raw.column(place), nulls) for name, place in self._places.items()}

    def __arrow_c_schema__(self) -> Any:
        """Arrow's C interface: the type."""
        return self._raw.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Arrow's C interface: the type and the rows."""
        return self._raw.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's C interface: a stream that consists of this batch."""
        return self._raw.__arrow_c_stream__(requested_schema)

    def sheet(self, rows: int = 64, *, tile: int = 160, columns: int | None = None) -> bytes:
        """Returns a contact sheet of the images, with their labels, as a PNG.

        Args:
            rows: Maximum number of rows shown.
            tile: Pixels per side of the tile that each image is fitted into.
            columns: Number of the batch's rows per line of the sheet; by default the sheet is about square.
        """
        return self._raw.sheet(rows, tile, columns)

    def __repr__(self) -> str:
        head = f"Batch of {self.num_rows} rows (epoch {self.epoch}, step {self.step})"
        return "\n".join([head, *(f"  {name}: {kind}" for name, kind in self.schema.items())])

    def _repr_html_(self) -> str:
        from .html import batch_table

        return batch_table(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._raw.pack(), self._step)


def _unpickled(packed: tuple[Any, ...], step: int) -> Batch:
    return Batch(_forebay.RawBatch.unpack(*packed), step)
