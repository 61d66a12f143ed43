"""The results of `Pipeline.explain` and `Pipeline.preview`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .batch import Batch

__all__ = ["Explanation", "Preview"]


class Explanation(str):
    """The text or SVG picture that `Pipeline.explain` returns. Notebooks display the text unchanged, or the picture."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from html import escape

        return str(self) if self.startswith("<svg") else f"<pre>{escape(self)}</pre>"


class Preview:
    """The first rows of a pipeline, for display."""

    def __init__(self, batch: Batch) -> None:
        #: The rows, as a batch.
        self.batch = batch

    def save(self, path: str | os.PathLike[str], *, tile: int = 160) -> None:
        """Writes a contact sheet of the images, with their labels, as a PNG."""
        png = self.batch.sheet(self.batch.num_rows, tile=tile)
        with open(path, "wb") as file:
            file.write(png)

    def __repr__(self) -> str:
        from .text import batch_table

        return batch_table(self.batch, self.batch.num_rows)

    def _repr_html_(self) -> str:
        from .html import batch_table

        return batch_table(self.batch, self.batch.num_rows)
