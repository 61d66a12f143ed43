"""Parts of a function's declaration: types, the arguments of a class's set-up, and the name to import."""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["check_plain", "found", "type_of"]


def type_of(kind: Any) -> Any:
    """Returns a type in the form that the extension module reads: a name, or an object with Arrow's C interface."""
    if isinstance(kind, str) or hasattr(kind, "__arrow_c_schema__"):
        return kind
    import numpy as np

    return np.dtype(kind).name


def check_plain(value: Any) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            check_plain(item)
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            check_plain(item)
    elif value is not None and not isinstance(value, (bool, int, float, str, bytes)):
        raise TypeError(
            f"the arguments of a set-up must be numbers, texts, bytes, or lists and dictionaries of them, found a "
            f"{type(value).__name__}; make it in the class's __init__"
        )


def found(module: str, qualname: str) -> Any:
    """Returns the object that a module has under a name; None if there is none."""
    known = sys.modules.get(module)
    if known is None:
        try:
            known = importlib.import_module(module)
        except ImportError:
            return None
    at: Any = known
    for part in qualname.split("."):
        at = getattr(at, part, None)
    return at
