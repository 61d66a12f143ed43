"""Every function of Forebay's catalogue, as `fn.resize(col("image"), 224, 224)`.

The functions, their arguments and their documentation come from the catalogue that `forebay functions` prints;
completion and `help(fn.resize)` show them. Other row-wise SQL functions are available without documentation:
`fn.upper(col("name"))`.

The draws of a random function depend on the seed, the epoch, the row, and the call's position in the pipeline.
`stream="name"` makes two calls share their draws, for example those of an image and of its mask.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from . import _forebay
from .expr import Expr, node_of

_CATALOGUE: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in _forebay.catalogue()}


class _Parameter:
    """An argument of a catalogue function. `group` numbers the outermost bracket of the SQL signature that encloses the
    argument, from 0; None if the argument is required."""

    def __init__(self, name: str, group: int | None, doc: str) -> None:
        self.name = name
        self.group = group
        self.doc = doc


def parameters(entry: Mapping[str, Any]) -> list[_Parameter]:
    """Returns the arguments of a catalogue function, parsed from its SQL signature.

    Brackets enclose optional arguments. Within one bracket, a call may omit an argument only if it omits all later
    ones. If a function has several signatures, the first one names the arguments, and the one with the fewest arguments
    determines the required ones.
    """
    docs = dict(entry["arguments"])
    ways = [way[way.index("(") + 1 : way.rindex(")")] for way in entry["signature"].split(" or ")]
    needed = min(len(re.sub(r"\[.*\]", "", way).split(",")) for way in ways)
    depth, group, found = 0, -1, []
    for token in re.findall(r"\[|\]|\w+", ways[0]):
        if token == "[":
            group += depth == 0
            depth += 1
        elif token == "]":
            depth -= 1
        else:
            optional = depth > 0 or (len(ways) > 1 and len(found) >= needed)
            at = max(group, 0) if optional else None
            found.append(_Parameter(token, at, docs.get(token, "")))
    return found


def signature(entry: Mapping[str, Any]) -> inspect.Signature:
    """Returns the Python signature of a catalogue function."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shown = [
        inspect.Parameter(p.name, kind, default=inspect.Parameter.empty if p.group is None else None)
        for p in parameters(entry)
    ]
    if entry["random"]:
        shown.append(inspect.Parameter("stream", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature(shown)


def document(entry: Mapping[str, Any]) -> str:
    """Returns the docstring of a catalogue function."""
    lines = [entry["summary"], ""]
    if entry["arguments"]:
        lines.append("Args:")
        lines += [f"    {name}: {doc}" for name, doc in entry["arguments"]]
        if entry["random"]:
            lines.append("    stream: Name of draws to share with other calls.")
        lines.append("")
    lines += ["Returns:", f"    {entry['returns']}", ""]
    if entry["counterpart"]:
        lines += [f"Counterpart: {entry['counterpart']}", ""]
    lines += ["In SQL:", *(f"    {line}" for line in entry["example"].splitlines())]
    return "\n".join(lines)


def _arguments(name: str, known: list[_Parameter], given: Mapping[str, Any]) -> list[Any]:
    """Returns the values of `given` in the order of the arguments of the SQL function."""
    missing: dict[int, _Parameter] = {}
    values = []
    for parameter in known:
        value = given.get(parameter.name)
        if value is None and parameter.group is not None:
            missing.setdefault(parameter.group, parameter)
            continue
        before = None if parameter.group is None else missing.get(parameter.group)
        if before is not None:
            raise TypeError(
                f"{name}: {parameter.name} also needs the argument {before.name} ({before.name}: {before.doc})"
            )
        values.append(value)
    return values


def _make(entry: Mapping[str, Any]) -> Callable[..., Expr]:
    name, known, called = entry["name"], parameters(entry), signature(entry)

    def function(*args: Any, **kwargs: Any) -> Expr:
        try:
            given = called.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}; it is called as {entry['signature']}") from None
        values = _arguments(name, known, given)
        if known and known[0].group is None and values and isinstance(values[0], str):
            what = known[0].name
            raise TypeError(
                f"{name}: {what} is a column, found the text {values[0]!r}; write col({values[0]!r})"
            )
        nodes = [node_of(value) for value in values]
        if given.get("stream") is not None:
            nodes.append(("stream", given["stream"]))
        return Expr(("call", name, tuple(nodes)))

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = document(entry)
    function.__signature__ = called  # type: ignore[attr-defined]
    return function


def _other(name: str) -> Callable[..., Expr]:
    def function(*args: Any) -> Expr:
        return Expr(("call", name, tuple(node_of(value) for value in args)))

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = f"The SQL function {name}."
    return function


def __getattr__(name: str) -> Callable[..., Expr]:
    if name.startswith("_"):
        raise AttributeError(name)
    if name in _CATALOGUE:
        function = _make(_CATALOGUE[name])
    elif name in _forebay.sql_functions():
        function = _other(name)
    else:
        import difflib

        close = difflib.get_close_matches(name, _CATALOGUE, 1)
        hint = f"; did you mean {close[0]}?" if close else "; dir(forebay.fn) lists all"
        raise AttributeError(f"no function is called {name}{hint}")
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted(_CATALOGUE)


__all__ = sorted(_CATALOGUE)  # noqa: PLE0604
