"""A worker process of a Python function: it reads rows from a pipe, and writes their values to another."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any, BinaryIO

#: Whether this process is a worker that is still being set up: then no function may start workers.
SETTING_UP = False
#: What answers begin with; `udf_frame.rs` passes over what was printed before it.
GREETING = b"\0forebay-worker\n"


def command() -> list[str]:
    """What starts a worker: this interpreter, anew, which finds modules where this one does."""
    if not sys.executable:
        raise RuntimeError("concurrency= needs sys.executable to start processes by, which is not set")
    code = f"import sys; sys.path[:] = {sys.path!r}; from forebay._worker import main; main()"
    return [sys.executable, "-c", code]


def main() -> None:
    """Serves until the pipe ends, which it does with the parent, however that dies."""
    global SETTING_UP
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What the function prints, or reads, must not get between.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
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
            _write(answers, b"\x01" + _told(error).encode())
            return
        busy.clear()
        _write(answers, b"\x00" + answer)


def _read(requests: BinaryIO, frames: SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Takes frames off the pipe. At its end nobody waits for what is being computed."""
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
    """The function, ready to be called."""
    from .udf import unpacked

    return unpacked(pickle.loads(frame))


def _told(error: BaseException) -> str:
    """A mistake as its message; anything else with its frames."""
    from ._results import Mistake
    from ._trace import CAUSE, bounded, cause_of

    return bounded(str(error), 2 * CAUSE) if isinstance(error, (Mistake, ValueError)) else cause_of(error)
