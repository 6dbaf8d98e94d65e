"""Locks between processes, and where files of a user are."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kofn.core.system import cache_folder, data_folders, lock_file

HOLD = """
import sys
from kofn.core.system import lock_file
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


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "KOFN_DATA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def test_the_cache_is_where_xdg_says_else_in_the_home(home, tmp_path, monkeypatch):
    assert cache_folder() == home / ".cache" / "kofn"
    (home / ".cache" / "kofn").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "kofn"
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == home / ".cache" / "kofn"


def test_files_of_earlier_versions_are_found_where_the_system_has_another_folder(home, monkeypatch):
    elsewhere = home / "Library" / "Caches" / "kofn"
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: elsewhere)
    assert cache_folder() == elsewhere
    (home / ".cache" / "kofn").mkdir(parents=True)
    assert cache_folder() == home / ".cache" / "kofn"


def test_without_a_home_nothing_is_put_in_the_current_folder(home, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert cache_folder().is_absolute()
    assert not cache_folder().exists()


def test_data_is_looked_for_where_one_says_here_and_in_the_cache(home, tmp_path, monkeypatch):
    cache = home / ".cache" / "kofn" / "data"
    assert data_folders() == [Path("data"), cache]
    monkeypatch.setenv("KOFN_DATA", "/given")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folders() == [Path("/given"), Path("data"), tmp_path / "kofn" / "data", cache]
