"""`python -m forebay ..`: the command `forebay`, whose workers run Python functions in this interpreter.

The command is a program without an interpreter. It starts `FOREBAY_PYTHON` where a worker needs to call Python functions.
So there is one implementation of workers, no lock of an interpreter is held in them, and a function that crashes takes
only its own process with it.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def program() -> str | None:
    """Returns the path of the command: of this environment, otherwise of `PATH`."""
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    folders = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    return shutil.which("forebay", path=os.pathsep.join(folders)) or shutil.which("forebay")


def main() -> None:
    """Replaces this process by the command."""
    found = program()
    if found is None:
        sys.exit(
            "error: the command forebay is neither in this environment nor on PATH; install it from Forebay's folder with "
            "`cargo install --path . --features cluster`"
        )
    os.environ.setdefault("FOREBAY_PYTHON", sys.executable)
    os.execv(found, [found, *sys.argv[1:]])


if __name__ == "__main__":
    main()
