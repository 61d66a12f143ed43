"""What notebooks show."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from .errors import Error

if TYPE_CHECKING:
    from .batch import Batch
    from .pipeline import Pipeline

#: Pixels of an image's longer side.
SIDE = 96
#: Rows of a table.
ROWS = 16
#: Characters of a value.
WIDTH = 60


def batch_table(batch: Batch, rows: int = ROWS) -> str:
    """A batch as a table, its images as pictures."""
    images = dict(batch._raw.thumbnails(rows, SIDE))
    shown = min(rows, batch.num_rows)
    columns: dict[str, list[str]] = {}
    for name, column in batch.items():
        if name in images:
            columns[name] = [_picture(png) for png in images[name]]
        else:
            columns[name] = [escape(_short(value)) for value in _rows(column.numpy(nulls="mask"), shown)]
    head = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in batch.schema.items())
    body = "".join(
        "<tr>" + "".join(f"<td>{values[row]}</td>" for values in columns.values()) + "</tr>"
        for row in range(shown)
    )
    of = f"{shown} of {batch.num_rows} rows, epoch {batch.epoch}, step {batch.step}"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{of}</small>"


def pipeline_page(pipeline: Pipeline) -> str:
    """A pipeline's plan as a picture, and its columns; its description where it cannot be planned."""
    try:
        columns = pipeline.schema._repr_html_()
        picture = pipeline.explain(format="svg")
    except Error as error:
        return f"<pre>{escape(repr(pipeline))}\n\n{escape(str(error))}</pre>"
    return f"{columns}<div>{picture}</div>"


def _rows(values: Any, rows: int) -> list[Any]:
    """The first rows of a column as NumPy has it."""
    if isinstance(values, dict):
        parts = {name: _rows(part, rows) for name, part in values.items()}
        return [{name: part[row] for name, part in parts.items()} for row in range(rows)]
    return list(values[:rows])


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        text = value
    else:
        text = " ".join(str(value).split())
    return text if len(text) <= WIDTH else text[: WIDTH - 2] + ".."


def _picture(png: bytes | None) -> str:
    if png is None:
        return "<i>no image</i>"
    data = base64.b64encode(png).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" style="image-rendering: pixelated">'
