"""Formats the parts of a pipeline's `repr`: the call that creates its source, and the calls after it."""

from __future__ import annotations

import os
from typing import Any

from .expr import shown


def option(value: Any) -> str:
    """Returns the value of an option as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def source_text(source: tuple[Any, ...]) -> str:
    """Returns the Python call that creates a pipeline with this source, as text."""
    if source[0] == "sql":
        name = "" if source[2] is None else f", name={source[2]!r}"
        return f'sql("""{source[1]}"""{name})'
    if source[0] == "mix":
        arms = ", ".join(f"({_in_a_line(arm, steps)}, {weight!r})" for arm, steps, weight in source[1])
        return f"mix([{arms}]{'' if source[2] == 'first' else ', stop=' + repr(source[2])})"
    call = "images" if source[1] == "images" else f"read_{source[1]}"
    options = "".join(f", {key}={value!r}" for key, value in source[3].items())
    return f"{call}({source[2]!r}{options})"


def _in_a_line(source: tuple[Any, ...], steps: tuple[Any, ...]) -> str:
    return source_text(source) + "".join("." + step_text(step) for step in steps)


def step_text(step: tuple[Any, ...]) -> str:
    """Returns the Python call that adds this step to a pipeline, as text, without the dot."""
    name, *arguments = step
    if name == "filter":
        return f"filter({shown(arguments[0])})"
    if name == "with_column":
        return f"with_column({arguments[0]!r}, {shown(arguments[1])})"
    if name == "select":
        return f"select({', '.join(map(shown, arguments[0]))})"
    if name == "shuffle":
        rows, seed = arguments
        given = "" if seed is None else f", seed={seed}"
        return f"shuffle({('global' if rows is None else rows)!r}{given})"
    if name == "batch":
        rows, remainder, is_global = arguments
        kept = "" if remainder == "keep" else f", {remainder}_remainder=True"
        return f"batch({rows}{kept}{', scope=' + repr('global') if is_global else ''})"
    if name == "pad":
        column, to, value = arguments
        said = [f"{key}={text}" for key, text in (("to", to), ("value", value)) if text is not None]
        return f"pad({', '.join([repr(column), *said])})"
    if name == "bucket_by":
        return f"bucket_by({shown(arguments[0])}, {list(arguments[1])})"
    if name == "batch_by_tokens":
        tokens, column, remainder, is_global = arguments
        kept = "" if remainder == "keep" else ", drop_remainder=True"
        return f"batch_by_tokens({tokens}, {column!r}{kept}{', scope=' + repr('global') if is_global else ''})"
    if name == "options":
        return f"options({arguments[1]})"
    if name == "cache":
        return f"cache({arguments[0]})"
    return f"{name}({', '.join('' if a is None else repr(a) for a in arguments)})"
