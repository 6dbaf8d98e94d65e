"""Small problems and submissions for tests, and whether programs can be run here at all."""

from __future__ import annotations

import functools
import textwrap
from typing import TYPE_CHECKING

import pytest

from kofn.errors import InputError
from kofn.sandbox.drivers import find_sandbox

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
name: small
version: 2
entry: python main.py
timeout: {timeout}
limits: {limits}
checkpoints:
  one:
    groups:
      basic:
        type: Core
        cases:
          - id: hello
            args: [there]
            stdin: "input"
            expected: {{output: "hello there", files: {{out.txt: "SECRET-ANSWER"}}}}
"""


# a program that tells what it sees of the sandbox
PROBE = """
import os, resource, socket, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Groups", "Umask")
print({name: status[name].strip() for name in names})
print(status["Seccomp"].strip(), status["Seccomp_filters"].strip(), status["SigIgn"].strip(), status["SigBlk"].strip())
print(len(set(status["Uid"].split())), os.getuid() != 0, os.getgid() != 0, os.geteuid() == os.getuid())
names = ("CPU", "DATA", "FSIZE", "CORE", "NOFILE", "NPROC", "AS", "STACK")
print({name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in names})
print(sorted(os.environ.items()), os.getcwd(), sys.argv, sys.flags, sys.path, __name__)
print(sorted(os.listdir("/")), os.listdir("/proc/1"), os.listdir("/work"), socket.gethostname(), os.listdir("/tmp"))
print([name for _, name in socket.if_nameindex()], sys.stdin.read() == "", sys.stdout.encoding)
print([os.readlink(f"/proc/self/fd/{n}").partition(":")[0] for n in range(3)])
print(os.access("/usr", os.W_OK), os.access("/work", os.W_OK), os.path.exists("/etc/shadow"))
print(sorted(line.split()[1] for line in open("/proc/self/mounts")))
"""


@functools.cache
def no_sandbox() -> str | None:
    """Why programs cannot be run here, if they cannot."""
    try:
        find_sandbox()
    except InputError as problem:
        return str(problem)
    return None


def need_sandbox() -> None:
    """Skip the test where there is no sandbox."""
    if no_sandbox() is not None:
        pytest.skip(f"no sandbox: {no_sandbox()}")


def problem_in(folder: Path, config: str = CONFIG, *, timeout: float = 60, limits: str = "{}", **files: str) -> Path:
    """A problem in a folder; `files` are further files of it, by name with __ for /."""
    problem = folder / "problem"
    problem.mkdir(parents=True, exist_ok=True)
    (problem / "config.yaml").write_text(
        config.format(timeout=timeout, limits=limits) if "{timeout}" in config else config
    )
    for name, text in files.items():
        path = problem / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return problem


def submission_in(folder: Path, code: str, name: str = "sub") -> Path:
    """A submission of one main.py."""
    submission = folder / name
    submission.mkdir(parents=True, exist_ok=True)
    (submission / "main.py").write_text(textwrap.dedent(code))
    return submission
