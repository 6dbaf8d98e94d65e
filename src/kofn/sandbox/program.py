"""What a program in a sandbox may use, and how its process ended: plain values that travel to a worker and back."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1 << 20
SCRATCH_SIZE = 128 * MB  # bytes of each scratch folder of a sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """What one execution may use.

    seconds     on the clock; a process also gets no more seconds of CPU than this, and one
    memory      bytes of one process, and of all of them together
    file_size   bytes of one file
    disk        bytes of all files in the work folder
    files       files and folders in the work folder
    processes   at the same time, threads included
    output      bytes of standard output, and as many of standard error
    """

    seconds: float = 10.0
    memory: int = 1024 * MB
    file_size: int = 64 * MB
    disk: int = 256 * MB
    files: int = 10_000
    processes: int = 64
    output: int = 8 * MB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How one process came to its end.

    `status` is its exit status, 128 + n where signal n ended it; None where it never ran. `stopped` says why the
    harness stopped it, None where it ended by itself. `peak_memory` is that of its largest process, in bytes, and is
    never seen smaller than the process that started it.
    """

    output: bytes = b""
    stderr: bytes = b""
    status: int | None = None
    stopped: str | None = None
    timed_out: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0
