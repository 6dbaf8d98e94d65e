"""The seccomp filter: system calls that a program in the sandbox may not make, for bubblewrap's `--seccomp`.

Few are forbidden, and none that an ordinary program needs. Memory that belongs to no process (`memfd_create`, System V
shared memory, queues and semaphores) would pass every limit, so these answer as a kernel without them does, and
programs fall back on files. `fallocate` would pass the limit of a file. Reaching into other processes (`ptrace` and
its kin) would reach bubblewrap's own. New namespaces, mounts, keys and the kernel's own virtual machines are doors that
nobody behind them needs.
"""

from __future__ import annotations

import os
import platform
import struct
import sys
from functools import cache
from typing import NamedTuple

_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EOPNOTSUPP = 1, 38, 95
_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # where they stand in what a filter is given
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000  # calls of another width under the same architecture

# the same numbers everywhere: io_uring, clone3, memfd_secret; open_tree to fspick, pidfd_getfd, mount_setattr
_MISSING_EVERYWHERE, _FORBIDDEN_EVERYWHERE = (425, 426, 427, 435, 447), (428, 429, 430, 431, 432, 433, 438, 442)


class _Architecture(NamedTuple):
    """The numbers of an architecture.

    missing     shmget, semget, msgget, memfd_create, userfaultfd
    forbidden   mount, umount2, pivot_root, add_key, request_key, keyctl, unshare, perf_event_open, setns, bpf, ptrace,
                process_vm_readv, process_vm_writev
    """

    architecture: int
    clone: int
    fallocate: int
    missing: tuple[int, ...]
    forbidden: tuple[int, ...]


_ARCHITECTURES = {
    "x86_64": _Architecture(
        architecture=0xC000003E,
        clone=56,
        fallocate=285,
        missing=(29, 64, 68, 319, 323),
        forbidden=(165, 166, 155, 248, 249, 250, 272, 298, 308, 321, 101, 310, 311),
    ),
    "aarch64": _Architecture(
        architecture=0xC00000B7,
        clone=220,
        fallocate=47,
        missing=(194, 190, 186, 279, 282),
        forbidden=(40, 39, 41, 217, 218, 219, 97, 241, 268, 280, 117, 270, 271),
    ),
}


def filter_program(machine: str) -> bytes | None:
    """The filter for a machine, as the kernel reads it; None where its calls are not known here.

    >>> len(filter_program("x86_64")) % 8, filter_program("abacus")
    (0, None)
    """
    if machine not in _ARCHITECTURES:
        return None
    numbers = _ARCHITECTURES[machine]
    answers = dict.fromkeys((*numbers.missing, *_MISSING_EVERYWHERE), _ERROR | _ENOSYS)
    answers |= dict.fromkeys((*numbers.forbidden, *_FORBIDDEN_EVERYWHERE), _ERROR | _EPERM)
    answers[numbers.fallocate] = _ERROR | _EOPNOTSUPP
    # a classic BPF program; the two numbers after an operation are how many steps to skip where it holds, and where not
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, numbers.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | _ENOSYS),
    ]
    for number, answer in answers.items():
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    steps += [
        (_EQUAL, 0, 3, numbers.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _ERROR | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def filter_descriptor() -> int | None:
    """A file with the filter, at its beginning, for a bubblewrap that is started now; None where there is none."""
    fd = _filter_file()
    if fd is not None:
        os.lseek(fd, 0, os.SEEK_SET)
    return fd


@cache
def _filter_file() -> int | None:
    found = filter_program(platform.machine()) if sys.platform == "linux" and sys.byteorder == "little" else None
    if found is None:
        return None
    fd = os.memfd_create("filter")  # one file for all programs of this process: bubblewrap reads it from its position
    os.write(fd, found)
    return fd
