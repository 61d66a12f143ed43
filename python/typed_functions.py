"""Prints the types of `forebay.fn`, made of the catalogue: `python typed_functions.py > forebay/fn.pyi`."""

import inspect
import textwrap

from forebay import _forebay, fn

HEAD = '''"""Every function of Forebay's catalogue. Made by `typed_functions.py`; not to be edited."""

from collections.abc import Callable

from .expr import Expr, IntoExpr

# The first argument is the column that the function reads. A text would be a constant there, where a column is meant: col("image").
_First = Expr | bool | int | float | bytes | list[float] | tuple[float, ...]

# Other row-wise functions of SQL.
def __getattr__(name: str) -> Callable[..., Expr]: ...
'''


def declaration(entry: dict) -> str:
    """The declaration of a function, with its documentation."""
    parts = []
    for parameter in inspect.signature(getattr(fn, entry["name"])).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            parts += ["*", f"{parameter.name}: str | None = None"]
        elif parameter.default is parameter.empty:
            parts.append(f"{parameter.name}: {'IntoExpr' if parts else '_First'}")
        else:
            parts.append(f"{parameter.name}: IntoExpr = None")
    document = textwrap.indent(f'"""{fn.document(entry)}\n"""', "    ", lambda line: line.strip() != "")
    return f"def {entry['name']}({', '.join(parts)}) -> Expr:\n{document}\n"


if __name__ == "__main__":
    entries = sorted(_forebay.catalogue(), key=lambda entry: entry["name"])
    # Writing the file is the shell's matter, so that a check can compare without writing.
    import sys

    sys.stdout.write("\n".join([HEAD, *map(declaration, entries)]))
