"""The main loop of a worker process: reads an item, calls the function, writes the result.

Only the standard library is imported here, and little of it: programs that a worker starts inherit its peak memory as
the floor of their own. A message is a header (kind, number of the item, length) and that many bytes.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO, Any

HEADER = struct.Struct("!BQQ")
LOAD, ITEM = 0, 1  # to a worker: the function's name and what is shared; an item
READY, UNUSABLE, DONE, RAISED = 2, 3, 4, 5  # from a worker: loaded, or why not; a result, or what was raised
MAX_MESSAGE = 500  # characters of a message that are kept


def main(fd: int, parent: int) -> None:
    """Serve the process at the other end of a socket until it closes it or dies."""
    _die_with(parent)
    os.set_inheritable(fd, False)  # a program under test must not be able to speak for the worker
    # the parent decides when to stop; a handler, unlike SIG_IGN, is not passed on to programs that are started here
    signal.signal(signal.SIGINT, lambda *_: None)
    with open(fd, "rb") as source, open(fd, "wb", closefd=False) as sink:
        try:
            _serve(source, sink)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)  # nobody listens any more


def _die_with(parent: int) -> None:
    """Be killed when the parent dies, however it dies; elsewhere than on Linux the closed socket ends a worker."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that
        os._exit(0)


def _serve(source: IO[bytes], sink: IO[bytes]) -> None:
    function, shared = None, None
    while len(head := source.read(HEADER.size)) == HEADER.size:
        kind, index, size = HEADER.unpack(head)
        body = source.read(size)
        if len(body) < size:
            return
        if kind == LOAD:
            function, shared, kind, answer = _load(body)
        else:
            kind, answer = _call(function, shared, body)
        sink.write(HEADER.pack(kind, index, len(answer)))
        sink.write(answer)
        sink.flush()


def _load(body: bytes) -> tuple[Any, Any, int, bytes]:
    """The function and the shared value of `name, newline, pickle`, and the answer to the parent."""
    end = body.index(b"\n")
    try:
        return find_function(body[:end].decode()), pickle.loads(memoryview(body)[end + 1 :]), READY, b""  # noqa: S301 - our own
    except BaseException as error:  # an import may raise anything
        return None, None, UNUSABLE, format_error(error).encode()


def _call(function: Any, shared: Any, body: bytes) -> tuple[int, bytes]:
    """The answer to an item; whatever is raised, SystemExit too, is an answer and not the end of the worker."""
    step = "the item cannot be unpickled in a worker: "
    try:
        item = pickle.loads(body)  # noqa: S301 - our own
        step = ""
        result = function(shared, item)
        step = "the result cannot be pickled: "
        return DONE, pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        return RAISED, (step + format_error(error)).encode()


def find_function(name: str) -> Any:
    """What a name such as "package.module:Class.function" stands for.

    >>> find_function("os.path:join") is os.path.join
    True
    """
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def format_error(error: BaseException) -> str:
    """An exception as "Type: message" in one line of bounded length that can be encoded.

    >>> format_error(ValueError("bad\\n  input")), format_error(SystemExit())
    ('ValueError: bad input', 'SystemExit')
    """
    try:
        text = " ".join(str(error).split())
    except Exception:  # a __str__ of the user's
        text = "its message cannot be read"
    text = text.encode(errors="backslashreplace").decode()[:MAX_MESSAGE]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
