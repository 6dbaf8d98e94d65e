"""The fork server itself (see `fork_server.py`): a program that forks on request, each time into another sandbox.

It is run by the Python that programs are to have, so it imports nothing of kofn. Over its socket it receives an
order in JSON (which sandbox, limits, user, environment) with the files of a program: input, output, errors, one for
what goes wrong before the program is read, and the filter of system calls. It answers with the process id of the fork,
by then a child of whoever adopts orphans. It is root's, and its forks are not: what it has mapped, they cannot change.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import socket
import struct
import sys
from typing import Any

_NAMESPACES = 0x6E020000  # all but that of users
_DUMPABLE, _SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES = 4, 22, 24, 38
_FILTER, _CAPABILITY_VERSION = 2, 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _control(*values: int) -> None:
    _check(_libc.prctl(*(ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:5])))


def _become(order: dict[str, Any], files: list[int]) -> None:
    """Take on what every program of the sandbox has, and give up everything else."""
    os.setsid()
    for number in range(3):
        os.dup2(files[number], number)
    seccomp = os.pread(files[4], 1 << 16, 0) if len(files) > 4 else b""
    os.dup2(files[3], 3, inheritable=False)
    os.closerange(4, 1 << 16)
    os.chdir(order["work"])
    os.umask(0o022)
    for name, (soft, hard) in order["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))
    for capability in range(64):
        _libc.prctl(_DROP_BOUND, ctypes.c_ulong(capability), 0, 0, 0)  # there may be fewer
    user = order["user"]
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    header = ctypes.create_string_buffer(struct.pack("II", _CAPABILITY_VERSION, 0))
    _check(_libc.capset(header, ctypes.create_string_buffer(24)))
    _control(_DUMPABLE, 1)  # a process of the user's own, who may look at it
    _control(_NO_NEW_PRIVILEGES, 1)
    if seccomp:  # let the kernel refuse what the filter says
        steps = ctypes.create_string_buffer(seccomp, len(seccomp))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(seccomp) // 8, ctypes.addressof(steps)))
        _control(_SECCOMP, _FILTER, ctypes.addressof(program))
    os.environ.clear()
    os.environ.update(order["env"])
    os.close(3)


def _fork(order: dict[str, Any], files: list[int], control: socket.socket) -> None:
    """Fork into the sandbox; returns there, and nowhere else. Who enters a process namespace is not in it itself."""
    try:
        # join its namespaces; of that of processes, only children of this one are part
        _check(_libc.setns(os.pidfd_open(order["first"]), _NAMESPACES))
        child = os.fork()
    except BaseException as problem:
        control.sendall(f"! {problem}".encode())
        os._exit(1)
    if child:
        control.sendall(str(child).encode())
        os._exit(0)
    try:
        control.detach()
        _become(order, files)
    except BaseException as problem:
        os.write(3, str(problem).encode())
        os._exit(1)


def _serve(control: socket.socket) -> None:
    """Fork whenever asked to; returns in the forks alone."""
    while True:
        request, files, _, _ = socket.recv_fds(control, 1 << 16, 8)
        if not request:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            _fork(json.loads(request), files, control)
            return
        for file in files:
            os.close(file)
        os.waitpid(pid, 0)
        control.sendall(b".")


def _read_program() -> tuple[str, Any]:
    """The word and the program that standard input holds; then it is empty."""
    with open(0, "rb", closefd=False) as file:
        word, _, program = file.read().decode().partition("\n")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in ("__main__", "program"):  # a program looks like any other module, and not like this one
        sys.modules[name] = type(sys)(name)
    return word, compile(program, "program.py", "exec", dont_inherit=True)


def _report(word: str, output: int) -> None:
    """Say that a program has come to its end, and end."""
    os.write(output, f"\n{word}".encode())
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()  # who started threads waits for them
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have closed it, or put something else there
            stream.flush()
    os._exit(0)  # taking an interpreter apart takes longer than most programs do


def _preload() -> socket.socket:
    """Load what programs are likely to want."""
    control = socket.socket(fileno=int(sys.argv[1]))
    packages, modules = json.loads(sys.argv[2])
    sys.path[:] = [*sys.path, *packages]
    for name in modules:
        importlib.import_module(name)
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    sys.argv[:] = ["-c"]
    gc.collect()
    gc.freeze()
    return control


if __name__ == "__main__":
    _serve(_preload())
    _word, _program = _read_program()
    _output = os.dup(1)
    # here, and not in a function: no deeper than in a program that was started
    exec(_program, sys.modules["program"].__dict__)  # noqa: S102 - in the sandbox
    _report(_word, _output)
