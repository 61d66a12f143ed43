"""A worker process of a Python function. The worker reads rows from its standard input, and writes the function's
values to its standard output."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any, BinaryIO

#: True while this process is a worker that is importing and setting up its function. During that time, no function may
#: start workers.
SETTING_UP = False
#: The bytes that the worker writes before its first answer. `python/functions/src/frame.rs` skips all output before
#: them, such as text printed while Python started.
GREETING = b"\0forebay-worker\n"


def command() -> list[str]:
    """Returns the command that starts a worker process, with the interpreter and the module search path of this
    process."""
    if not sys.executable:
        raise RuntimeError("concurrency= starts worker processes with sys.executable, which is not set")
    code = f"import sys; sys.path[:] = {sys.path!r}; from forebay._worker import main; main()"
    return [sys.executable, "-c", code]


def main() -> None:
    """Answers requests until the pipe of requests is closed. The pipe is closed even if the parent process is
    killed."""
    global SETTING_UP
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The user's function must not read from the pipes or print to them, so standard input becomes empty, and standard
    # output goes to standard error.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # A file or a pipe would make standard output wait until a buffer is full.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _put(answers, GREETING)
    SETTING_UP = True
    frames: SimpleQueue[bytes | None] = SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_read, args=(requests, frames, busy), daemon=True).start()
    function: Any = None
    while (frame := frames.get()) is not None:
        try:
            if function is None:
                function, answer = _set_up(frame), b""
                SETTING_UP = False
            else:
                answer = function.answer(frame)
        except BaseException as error:
            _flush()
            _write(answers, b"\x01" + _told(error).encode())
            return
        busy.clear()
        _flush()
        _write(answers, b"\x00" + answer)


def probe() -> None:
    """Prints the versions that a worker of a cluster compares with those of its clients."""
    from . import __version__
    from ._by_value import versions

    python, cloudpickle = versions()
    told = {"forebay": __version__, "python": python, "cloudpickle": cloudpickle}
    print(f"forebay-versions {json.dumps(told)}")


def _flush() -> None:
    """Writes out what the function has printed: the parent process reads it after each answer."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _read(requests: BinaryIO, frames: SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Reads frames from the pipe into the queue. If the pipe is closed during a computation, ends the process, since no
    process waits for the result."""
    while True:
        head = requests.read(8)
        size = int.from_bytes(head, "little")
        frame = requests.read(size) if len(head) == 8 else b""
        if len(head) < 8 or len(frame) < size:
            if busy.is_set():
                os._exit(0)
            frames.put(None)
            return
        busy.set()
        frames.put(frame)


def _write(answers: BinaryIO, frame: bytes) -> None:
    _put(answers, len(frame).to_bytes(8, "little"), frame)


def _put(answers: BinaryIO, *parts: bytes) -> None:
    try:
        answers.writelines(parts)
        answers.flush()
    except BrokenPipeError:
        os._exit(0)


def _set_up(frame: bytes) -> Any:
    """Unpickles a function from the bytes `frame`, and instantiates its class if it has one."""
    from .udf import unpacked

    return unpacked(pickle.loads(frame))


def _told(error: BaseException) -> str:
    """Returns the message of a `Mistake` or `ValueError`; for any other exception, its type, message and traceback."""
    from ._results import Mistake
    from ._trace import CAUSE, bounded, cause_of

    return bounded(str(error), 2 * CAUSE) if isinstance(error, (Mistake, ValueError)) else cause_of(error)
