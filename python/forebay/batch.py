"""A batch: columns by name."""

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

    PyArrow, Polars and DuckDB take it as an Arrow array, without a copy. `numpy.asarray`, `torch.from_dlpack` and
    `jax.dlpack.from_dlpack` share its memory if nobody else has it, and else have a copy: what is written into them is
    seen by no other column, no other batch and no Arrow array.
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
        """The type as people read it: `Int32`, `f32[224, 224, 3]`, .."""
        return self._raw.type_text

    @property
    def null_count(self) -> int:
        """Rows without a value."""
        return self._raw.null_count

    def __len__(self) -> int:
        return len(self._raw)

    def numpy(self, nulls: Any = RAISE) -> Any:
        """The column for NumPy.

        * Numbers, times and tensors of one shape: a view of the batch's memory, `[rows, *shape]`. It may be
          written, so memory that anybody else has (another column, another batch, an Arrow array) is copied.
          Truth values and dates are copied.
        * Texts and bytes: an array of objects, with None where a row has no value.
        * Lists, and tensors whose shape differs by row: a list of views, one a row.
        * Structs: a dictionary of their fields, which have no value where the struct is null. A list of structs is
          such a dictionary, too.

        Args:
            nulls: What stands for numbers that are not there: a value, or `"mask"` for a masked array.
                Without it, nulls are a ValueError.
        """
        return convert.to_numpy(self._raw, nulls)

    def torch(self, nulls: Any = RAISE) -> Any:
        """The column as a tensor, which may be written.

        It shares the batch's memory, as `numpy` does. Times are their numbers; texts and bytes stay lists; lists become lists of tensors.

        Args:
            nulls: What stands for numbers that are not there. Without it, nulls are a ValueError.
        """
        return convert.to_torch(self._raw, nulls)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import numpy as np

        if copy is False and (why := self._copied()):
            raise ValueError(why)
        values = np.asarray(self.numpy())
        if dtype is not None and values.dtype != dtype:
            if copy is False:
                raise ValueError(f"a column of {values.dtype} is no array of {dtype} without a copy")
            return values.astype(dtype)
        return values.copy() if copy else values

    def __dlpack__(self, *, copy: bool | None = None, **wanted: Any) -> Any:
        """The DLPack protocol. What comes out may be written, whoever takes it, so memory that others have, too, is
        copied.

        Raises:
            BufferError: No copy is allowed, and others have the memory, or the values are stored otherwise; or the
                column is no array.
        """
        if self._raw.kind not in ("dense", "bool"):
            raise BufferError(f'column "{self.name}" of {self.type} is no array of one shape')
        if copy is False and (why := self._copied()):
            raise BufferError(why)
        values: np.ndarray = self.numpy()
        if copy or not values.flags.writeable:
            values = values.copy()
        return values.__dlpack__(**wanted)

    def _copied(self) -> str | None:
        """Why an array of its values that may be written is a copy; None where it is none."""
        stored = self._raw.stored
        if stored is not None:
            return f'the values of column "{self.name}" are stored otherwise ({stored}); allow a copy'
        return None if self._raw.is_own else f'others have the memory of column "{self.name}"; allow a copy'

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack protocol: the memory is the host's."""
        return (1, 0)

    def __arrow_c_schema__(self) -> Any:
        """Arrow's C interface."""
        return self._raw.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Arrow's C interface."""
        return self._raw.__arrow_c_array__(requested_schema)

    def __repr__(self) -> str:
        return f"<Column {self.name}: {self.type}, {len(self)} rows>"


class Batch(Mapping[str, Column]):
    """A batch of rows: a mapping of columns.

    PyArrow, Polars and DuckDB take it as an Arrow table without a copy: `pyarrow.record_batch(batch)`,
    `polars.DataFrame(batch)`.
    """

    __slots__ = ("_raw", "_places", "_step")

    def __init__(self, raw: _forebay.RawBatch, step: int | None = None) -> None:
        self._raw = raw
        self._step = raw.step if step is None else step
        self._places = {name: place for place, name in enumerate(raw.names)}

    @property
    def epoch(self) -> int:
        """The epoch that it is of, from 0."""
        return self._raw.epoch

    @property
    def step(self) -> int:
        """Its step in the epoch (in the whole run where batches cross epochs), from 0."""
        return self._step

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._raw.num_rows

    @property
    def padded(self) -> int:
        """Rows at its end that only repeat others: those of `uneven="pad"`, of `pad_remainder` and of `equal_steps =
        'pad'`."""
        return self._raw.padded

    @property
    def nbytes(self) -> int:
        """Bytes of its rows."""
        return self._raw.nbytes

    @property
    def schema(self) -> dict[str, str]:
        """The type of each column."""
        return {name: self[name].type for name in self}

    @property
    def row_keys(self) -> list[tuple[str, int, int]]:
        """Which rows these are: file (relative to its source), row in the file, and place among the rows
        that an `unnest` made of it. Of packs, those of the rows in them."""
        return self._raw.row_keys()

    def token(self) -> str:
        """What `run(resume=..)` goes on behind this batch with: JSON.

        It names a place in the stream: behind the step that the batch is of, at which all ranks are at once. So
        the tokens of all ranks at a step are equal, and each serves any number of ranks, threads and rewrites.
        """
        token = self._raw.token()
        if token is None:
            raise ValueError("this batch is of no run")
        return token

    def __getitem__(self, name: str) -> Column:
        return Column(self._raw.column(self._places[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def numpy(self, nulls: Any = RAISE) -> dict[str, Any]:
        """The columns for NumPy, by name; see `Column.numpy`. It is a pytree that JAX takes, if no column
        holds texts."""
        return {name: column.numpy(nulls) for name, column in self.items()}

    def torch(self, nulls: Any = RAISE) -> dict[str, torch.Tensor | Any]:
        """The columns as tensors, by name; see `Column.torch`."""
        return {name: column.torch(nulls) for name, column in self.items()}

    def __arrow_c_schema__(self) -> Any:
        """Arrow's C interface."""
        return self._raw.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Arrow's C interface."""
        return self._raw.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's C interface."""
        return self._raw.__arrow_c_stream__(requested_schema)

    def sheet(self, rows: int = 64, *, tile: int = 160, columns: int | None = None) -> bytes:
        """A contact sheet of the images, with their labels, as a PNG.

        Args:
            rows: Rows shown at most.
            tile: Pixels that an image is fitted into.
            columns: Rows of the batch beside each other; chosen for a square sheet if not given.
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
