"""Pickles functions together with their code, by `cloudpickle`, so that the reader need not import their module.

From release 3.1.3 on, `cloudpickle` drops the file name of a function's code, and a traceback then names
`<dynamic-code>`. Users need that name to find their mistake, so it is kept here.
"""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any


def dumps(value: Any) -> bytes:
    """Returns `value`, pickled with the code of its functions. Raises `ImportError` if `cloudpickle` is missing."""
    from cloudpickle import CloudPickler  # type: ignore[import-untyped]

    reduce_code = CloudPickler.dispatch_table[CodeType]

    def with_file(code: CodeType) -> Any:
        return _code_of_file, (code.co_filename, *reduce_code(code)[:2])

    class Pickler(CloudPickler):  # type: ignore[misc]
        dispatch_table = ChainMap({CodeType: with_file}, CloudPickler.dispatch_table)

    written = io.BytesIO()
    Pickler(written).dump(value)
    return written.getvalue()


def _code_of_file(file: str, make: Any, parts: tuple[Any, ...]) -> CodeType:
    """Rebuilds a code object, and gives it the file name that it was pickled with."""
    code: CodeType = make(*parts)
    return code.replace(co_filename=file)
