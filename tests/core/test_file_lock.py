"""Locks between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from kofn.core.file_lock import lock_file

HOLD = """
import sys
from kofn.core.file_lock import lock_file
file = open(sys.argv[1], "a")
lock_file(file.fileno())
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_process_even_if_that_is_killed(tmp_path):
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with path.open("a") as file:
            with pytest.raises(BlockingIOError):
                lock_file(file.fileno(), timeout=0.02)
            other.kill()
            other.wait()
            lock_file(file.fileno())


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_waiting_ends_when_the_lock_is_free(tmp_path, timeout):
    (tmp_path / "lock").touch()
    first, second = (os.open(tmp_path / "lock", os.O_RDWR) for _ in range(2))
    lock_file(first)
    got = threading.Event()
    waiter = threading.Thread(target=lambda: (lock_file(second, timeout=timeout), got.set()))
    waiter.start()
    assert not got.wait(0.05)
    os.close(first)
    assert got.wait(60)
    waiter.join()
    os.close(second)


def test_a_folder_can_be_locked_too(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    lock_file(first)
    with pytest.raises(BlockingIOError):
        lock_file(second)
    os.close(first)
    lock_file(second)
    os.close(second)
