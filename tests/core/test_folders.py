"""Where files of a user are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kofn.core.folders import cache_folder, data_folders


@pytest.fixture(autouse=True)
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


def test_without_a_home_nothing_is_put_in_the_current_folder(monkeypatch):
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
