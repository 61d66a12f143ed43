"""The columns of a pipeline's batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["Field", "Schema"]


@dataclass(frozen=True)
class Field:
    """A column's name and type."""

    #: Name of the column.
    name: str
    #: Type of the column: `Int32`, `Utf8`, `f32[224, 224, 3]` for a tensor of that shape, ..
    type: str
    #: True if the column may have nulls.
    nullable: bool
    #: Shape of the value in one row; None if the column's type does not determine the shape.
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class Schema(Mapping[str, Field]):
    """Columns by name, in the order of the batches. PyArrow and other libraries accept a schema as an Arrow schema."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._fields = {
            name: Field(name, kind, nullable, None if shape is None else tuple(shape))
            for name, kind, nullable, shape in plan.columns()
        }

    def __getitem__(self, name: str) -> Field:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __arrow_c_schema__(self) -> Any:
        """Arrow's C interface: the type."""
        return self._plan.__arrow_c_schema__()

    def __repr__(self) -> str:
        return "\n".join(map(str, self._fields.values()))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><b>{escape(field.name)}</b></td><td>{escape(field.type)}</td></tr>"
            for field in self._fields.values()
        )
        return f"<table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"
