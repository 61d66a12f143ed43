"""Formats batches and pipelines as HTML, which notebooks display."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

from .text import first_rows, short

if TYPE_CHECKING:
    from .batch import Batch
    from .pipeline import Pipeline

#: Length of the longer side of a displayed image, in pixels.
SIDE = 96
#: Maximum number of rows that a table displays.
ROWS = 16


def batch_table(batch: Batch, rows: int = ROWS) -> str:
    """Returns a batch as an HTML table that displays columns of images as pictures."""
    images = dict(batch._raw.thumbnails(rows, SIDE))
    shown = min(rows, batch.num_rows)
    columns: dict[str, list[str]] = {}
    for name, column in batch.items():
        if name in images:
            columns[name] = [_picture(png) for png in images[name]]
        else:
            columns[name] = [escape(short(value)) for value in first_rows(column, shown)]
    head = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in batch.schema.items())
    body = "".join(
        "<tr>" + "".join(f"<td>{values[row]}</td>" for values in columns.values()) + "</tr>"
        for row in range(shown)
    )
    of = f"{shown} of {batch.num_rows} rows, epoch {batch.epoch}, step {batch.step}"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{of}</small>"


def pipeline_page(pipeline: Pipeline) -> str:
    """Returns the columns of a pipeline and its plan as a picture. If the pipeline cannot be planned, returns its
    `repr` and the error."""
    try:
        columns = pipeline.schema._repr_html_()
        picture = pipeline.explain(format="svg")
    except Exception as error:
        return f"<pre>{escape(repr(pipeline))}\n\n{escape(str(error))}</pre>"
    return f"{columns}<div>{picture}</div>"


def _picture(png: bytes | None) -> str:
    if png is None:
        return "<i>no image</i>"
    data = base64.b64encode(png).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" style="image-rendering: pixelated">'
