"""Expressions over the columns of a row.

An expression is only a description: nothing is computed before a pipeline runs. Operators have the meaning that they
have in SQL. So the quotient of two integers is an integer (cast one of them to `"float64"` to avoid this), and a
comparison with null is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

__all__ = ["Expr", "IntoExpr", "Value", "col", "lit", "sql_expr"]

#: A value that an expression can hold: a number, a text, bytes, a boolean, a list of numbers, or None.
Value = Union[None, bool, int, float, str, bytes, "list[float]", "tuple[float, ...]"]
#: An expression, or a value that stands for a literal expression.
IntoExpr = Union["Expr", Value]


class Expr:
    """An expression over the columns of a row. `col`, `lit`, `sql_expr`, the functions of `forebay.fn` and Python's
    operators create expressions."""

    __slots__ = ("_node",)
    # Without this attribute, `array + expression` would apply the operator to each element of the NumPy array.
    __array_ufunc__ = None

    def __init__(self, node: tuple[Any, ...]) -> None:
        self._node = node

    # Names and types

    def alias(self, name: str) -> Expr:
        """Names the column of this expression `name`."""
        return Expr(("alias", self._node, _text(name, "a name")))

    def cast(self, dtype: Any) -> Expr:
        """Converts the value of this expression to another type: `"float32"`, `"int64"`, `"bool"`, `"str"`, a NumPy
        dtype, ..

        A row whose value the type cannot represent fails.
        """
        name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or dtype.__name__
        return Expr(("cast", self._node, name))

    def pinned(self) -> Expr:
        """Pins this function call: no rewrite of the optimiser moves, drops or duplicates the call."""
        return Expr(("pinned", self._node))

    # Tests

    def is_null(self) -> Expr:
        """True for rows in which this expression is null."""
        return Expr(("is_null", self._node))

    def is_not_null(self) -> Expr:
        """True for rows in which this expression is not null."""
        return Expr(("is_not_null", self._node))

    def is_in(self, values: Iterable[IntoExpr]) -> Expr:
        """True if the value of this expression equals one of `values`."""
        if isinstance(values, (str, bytes)):
            raise TypeError(f"is_in takes a list of values, found {values!r}")
        return Expr(("in", self._node, tuple(node_of(value) for value in values)))

    def between(self, low: IntoExpr, high: IntoExpr) -> Expr:
        """True if `low <= value <= high`."""
        return Expr(("between", self._node, node_of(low), node_of(high)))

    def fill_null(self, value: IntoExpr) -> Expr:
        """The value of this expression, or `value` where this expression is null."""
        return Expr(("call", "coalesce", (self._node, node_of(value))))

    # Parts

    def __getitem__(self, key: str | int) -> Expr:
        """A field of a struct by name, or an element of a list by index. An index counts from 0, a negative one from
        the end."""
        if isinstance(key, str):
            return Expr(("call", "get_field", (self._node, ("lit", key))))
        if isinstance(key, int):
            place = key + 1 if key >= 0 else key
            return Expr(("call", "array_element", (self._node, ("lit", place))))
        raise TypeError(f"expected the name of a field or the index of an element, found {key!r}")

    def __iter__(self) -> Any:
        raise TypeError("an expression is one value per row, and cannot be iterated")

    # Arithmetic

    def __add__(self, other: IntoExpr) -> Expr:
        return _binary("+", self, other)

    def __radd__(self, other: IntoExpr) -> Expr:
        return _binary("+", other, self)

    def __sub__(self, other: IntoExpr) -> Expr:
        return _binary("-", self, other)

    def __rsub__(self, other: IntoExpr) -> Expr:
        return _binary("-", other, self)

    def __mul__(self, other: IntoExpr) -> Expr:
        return _binary("*", self, other)

    def __rmul__(self, other: IntoExpr) -> Expr:
        return _binary("*", other, self)

    def __truediv__(self, other: IntoExpr) -> Expr:
        return _binary("/", self, other)

    def __rtruediv__(self, other: IntoExpr) -> Expr:
        return _binary("/", other, self)

    def __mod__(self, other: IntoExpr) -> Expr:
        return _binary("%", self, other)

    def __rmod__(self, other: IntoExpr) -> Expr:
        return _binary("%", other, self)

    def __neg__(self) -> Expr:
        return Expr(("negative", self._node))

    def __abs__(self) -> Expr:
        return Expr(("call", "abs", (self._node,)))

    # Comparison

    def __eq__(self, other: IntoExpr) -> Expr:  # type: ignore[override]
        return _binary("=", self, other)

    def __ne__(self, other: IntoExpr) -> Expr:  # type: ignore[override]
        return _binary("!=", self, other)

    def __lt__(self, other: IntoExpr) -> Expr:
        return _binary("<", self, other)

    def __le__(self, other: IntoExpr) -> Expr:
        return _binary("<=", self, other)

    def __gt__(self, other: IntoExpr) -> Expr:
        return _binary(">", self, other)

    def __ge__(self, other: IntoExpr) -> Expr:
        return _binary(">=", self, other)

    __hash__ = None  # type: ignore[assignment]

    # Logic

    def __and__(self, other: IntoExpr) -> Expr:
        return _binary("and", self, other)

    def __rand__(self, other: IntoExpr) -> Expr:
        return _binary("and", other, self)

    def __or__(self, other: IntoExpr) -> Expr:
        return _binary("or", self, other)

    def __ror__(self, other: IntoExpr) -> Expr:
        return _binary("or", other, self)

    def __invert__(self) -> Expr:
        return Expr(("not", self._node))

    def __bool__(self) -> bool:
        raise TypeError(
            "an expression has no truth value before a pipeline runs; write & for and, | for or, ~ for not, "
            "each side in parentheses, and x.between(a, b) for a <= x <= b"
        )

    def __repr__(self) -> str:
        return shown(self._node)

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self._node,)


def col(name: str) -> Expr:
    """The column with exactly this name, including upper and lower case."""
    return Expr(("col", _text(name, "a column's name")))


def lit(value: Value) -> Expr:
    """A literal value. Most arguments that expect an expression also accept a number, a text or a list of numbers
    without `lit`."""
    return Expr(_literal(value))


def sql_expr(text: str) -> Expr:
    """The column named `text`, if there is such a column; otherwise, `text` as an expression in SQL: `"price * 2"`.

    In `Pipeline.select`, the text may contain several expressions: `"label, price * 2 AS double"`.
    """
    return Expr(("sql", _text(text, "SQL")))


def node_of(value: Any) -> tuple[Any, ...]:
    """Returns the syntax-tree node of an expression, or a literal node for a value."""
    return value._node if isinstance(value, Expr) else _literal(value)


def _literal(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (list, tuple)):
        return ("lit", tuple(float(number) for number in value))
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return ("lit", value)
    # The value may be a NumPy scalar, or an array of one element.
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return _literal(item())
    if hasattr(value, "tolist"):
        return _literal(value.tolist())
    raise TypeError(f"expected an expression or a value, found a {type(value).__name__}")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected {what}, found {value!r}")
    return value


def _binary(operator: str, left: Any, right: Any) -> Expr:
    return Expr(("binary", operator, node_of(left), node_of(right)))


def shown(node: tuple[Any, ...]) -> str:
    """Returns a node as the Python source code of its expression."""
    kind = node[0]
    if kind == "col":
        return f"col({node[1]!r})"
    if kind == "sql":
        return f"sql_expr({node[1]!r})"
    if kind == "lit":
        return repr(list(node[1]) if isinstance(node[1], tuple) else node[1])
    if kind == "call":
        return f"{node[1]}({', '.join(map(shown, node[2]))})"
    if kind == "udf":
        return f"{node[1].name}({', '.join(map(shown, node[2]))})"
    if kind == "stream":
        return f"stream={node[1]!r}"
    if kind == "binary":
        symbol = {"=": "==", "and": "&", "or": "|"}.get(node[1], node[1])
        return f"({shown(node[2])} {symbol} {shown(node[3])})"
    if kind == "not":
        return f"~{shown(node[1])}"
    if kind == "negative":
        return f"-{shown(node[1])}"
    inner = shown(node[1])
    if kind == "in":
        return f"{inner}.is_in([{', '.join(map(shown, node[2]))}])"
    if kind == "between":
        return f"{inner}.between({shown(node[2])}, {shown(node[3])})"
    if kind in ("alias", "cast"):
        return f"{inner}.{kind}({node[2]!r})"
    return f"{inner}.{kind}()"
