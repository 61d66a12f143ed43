"""Pickles functions together with their code, by `cloudpickle`, so that the reader need not import their module.

A process on this machine can import most modules, so only functions that no module has are pickled with their code for
it (`dumps`). A worker of a cluster has only what is installed there, so the code of all modules outside of the folders
for installed packages goes with a function (`dumps_for_workers`).

From release 3.1.3 on, `cloudpickle` drops the file name of a function's code, and a traceback then names
`<dynamic-code>`. Users need that name to find their mistake, so it is kept here.
"""

from __future__ import annotations

import io
import os
import site
import sys
import sysconfig
import threading
from collections import ChainMap
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

#: Held while modules are registered with `cloudpickle`, whose registry all threads share.
_REGISTRY = threading.Lock()


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


def dumps_for_workers(value: Any) -> bytes:
    """Returns `value`, pickled with the code of all its functions that are not part of an installed package. Raises
    `ImportError` if `cloudpickle` is missing."""
    import cloudpickle

    with _REGISTRY:
        known = cloudpickle.list_registry_pickle_by_value()
        modules = [module for module in _local_modules() if module.__name__ not in known]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            return dumps(value)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def versions() -> tuple[str, str]:
    """Returns the major and minor versions of Python and of `cloudpickle`. Functions travel between processes in which
    both are equal."""
    import cloudpickle

    return f"{sys.version_info[0]}.{sys.version_info[1]}", ".".join(cloudpickle.__version__.split(".")[:2])


def _local_modules() -> Iterator[ModuleType]:
    """Returns the imported modules that are files of Python code outside of the folders for installed packages."""
    own = __name__.partition(".")[0]
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    installed = tuple(os.path.realpath(folder) + os.sep for folder in folders)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            isinstance(module, ModuleType)
            and isinstance(file, str)
            and file.endswith(".py")
            and module.__name__ == name
            and name.partition(".")[0] != own
            and not os.path.realpath(file).startswith(installed)
        ):
            yield module


def _code_of_file(file: str, make: Any, parts: tuple[Any, ...]) -> CodeType:
    """Rebuilds a code object, and gives it the file name that it was pickled with."""
    code: CodeType = make(*parts)
    return code.replace(co_filename=file)
