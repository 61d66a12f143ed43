"""Helpers for the declaration of a Python function: its types, the arguments that construct its class, and its
import."""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["check_plain", "found", "type_of"]


def type_of(kind: Any) -> Any:
    """Returns a declared type as the extension module reads types: a name, or an object with Arrow's C interface."""
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
            "the arguments of a decorated class must be None, booleans, numbers, texts, bytes, or lists and "
            f"dictionaries of these, found a {type(value).__name__}; create such an object in the class's __init__"
        )


def found(module: str, qualname: str) -> Any:
    """Returns the object that the module has under the qualified name; None if the module has no such object."""
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
