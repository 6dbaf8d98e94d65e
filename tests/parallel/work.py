"""Functions that workers run in the tests of engines, and how to see what is left of the workers."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def add(shared: Any, item: Any) -> Any:
    return (shared, item)


def square(shared: int, item: int) -> int:
    return item * item + (shared or 0)


def slow_square(shared: float, item: int) -> int:
    time.sleep(shared)
    return item * item


def slow_for(shared: Any, item: float) -> None:
    time.sleep(item)


def until_there(shared: Any, item: Any) -> None:
    """An item that is a path takes until there is such a file."""
    if item:
        until(Path(item).exists)


def peak_memory(shared: Any, item: Any) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024


def sized(shared: bytes, item: int) -> bytes:
    return shared[:1] * item


def who(shared: Any, item: Any) -> int:
    return os.getpid()


def what(shared: Any, item: str) -> Any:
    """Do what the item says; only some items come back."""
    return {
        "fine": lambda: "fine",
        "raise": lambda: _raise(ValueError("first line\nsecond line")),
        "long": lambda: _raise(ValueError("x" * 10_000)),
        "mute": lambda: _raise(Mute()),
        "exit": lambda: sys.exit(4),
        "_exit": lambda: os._exit(3),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "segfault": lambda: ctypes.string_at(0),
        "lambda": lambda: lambda: 0,
        "orphan": _die_and_leave_the_socket_to_a_child,
    }[item]()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _raise(error: Exception) -> None:
    raise error


def _die_and_leave_the_socket_to_a_child() -> None:
    if os.fork():
        os._exit(7)
    time.sleep(600)


def die_once(shared: str, item: int) -> int:
    """Item 3 kills its worker when it runs for the first time; `shared` is a folder for the marks."""
    mark = Path(shared) / f"seen-{item}"
    if item == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item


class Counted:
    """A value that notes each time it is unpickled."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __setstate__(self, state: Any) -> None:
        self.folder = state[1]["folder"] if isinstance(state, tuple) else state["folder"]
        (Path(self.folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()


def with_counted(shared: Counted, item: int) -> int:
    return item


class OnlyThere:
    """Can be pickled, but not read again."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise RuntimeError("not here")


def give_unreadable(shared: Any, item: Any) -> Any:
    return OnlyThere()


def modules(shared: Any, item: Any) -> list[str]:
    return sorted({name.partition(".")[0] for name in sys.modules})


def interrupt_and_go_on(shared: Any, item: Any) -> int:
    """SIGINT must not end a worker, and a program that it starts must be able to be interrupted."""
    os.kill(os.getpid(), signal.SIGINT)
    program = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    return subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, check=False).returncode


def speak(shared: Any, item: Any) -> str:
    print(f"said {item}")  # noqa: T201
    return sys.stdin.read()


def sleep_and_tell(shared: str, item: int) -> None:
    """Note the worker and a program that it starts in a folder, and never end."""
    child = subprocess.Popen(["sleep", "600"])
    (Path(shared) / f"pid-{os.getpid()}").touch()
    (Path(shared) / f"pid-{child.pid}").touch()
    time.sleep(600)


def first_returns(shared: str, item: int) -> None:
    """Item 0 returns when another has begun that never ends."""
    if item:
        sleep_and_tell(shared, item)
    until(lambda: reported_pids(Path(shared)))


def reported_pids(folder: Path) -> set[int]:
    return {int(p.name.partition("-")[2]) for p in folder.glob("pid-*")}


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Any) -> bool:
    """Whether something becomes true: `wait_until`, which workers do not import."""
    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
