"""The files of a run are replaced all at once: at whatever step a writer ends, the old run is there, or the new one."""

from __future__ import annotations

import os
import subprocess
import sys

import polars as pl
import pytest

from kofn.errors import InputError, WorldError
from kofn.runs import files
from kofn.runs.files import check_new, recover, staging_folder

OLD, NEW = {"a": "1", "b": "1", "run.json": "1"}, {"a": "2", "b": "2", "run.json": "2"}
KILLED = """
import os, pathlib, sys
directory, step = pathlib.Path(sys.argv[1]), int(sys.argv[2])
count = 0
for name in ("mkdir", "rename", "replace", "rmdir", "write_text"):
    def instead(self, *given, real=getattr(pathlib.Path, name), **named):
        global count
        count += 1
        if count > step:
            os.kill(os.getpid(), 9)
        return real(self, *given, **named)
    setattr(pathlib.Path, name, instead)
from kofn.runs.files import staging_folder
with staging_folder(directory) as folder:
    for name in ("a", "b", "run.json"):
        (folder / name).write_text("2")
"""


def old_run(directory):
    directory.mkdir()
    for name, text in OLD.items():
        (directory / name).write_text(text)
    return directory


def content(directory):
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


def test_a_writer_killed_at_any_step_leaves_the_old_files_or_the_new_ones(tmp_path):
    seen = []
    for step in range(20):
        directory = old_run(tmp_path / f"run{step}")
        done = subprocess.run([sys.executable, "-c", KILLED, str(directory), str(step)])
        recover(directory)
        assert content(directory) in (OLD, NEW)
        seen.append(content(directory))
        with staging_folder(directory) as folder:  # and the next one finds nothing in its way
            (folder / "a").write_text("3")
        assert content(directory) == {**seen[-1], "a": "3"}
        assert {path.name for path in directory.iterdir()} == set(OLD)
        if done.returncode == 0:
            break
    assert done.returncode == 0
    assert seen[0] == OLD
    assert sum(found == NEW for found in seen) > 3  # also killed between the renaming and the moving


@pytest.mark.parametrize(
    ("problem", "raised"),
    [
        (ZeroDivisionError(), ZeroDivisionError),
        (OSError(28, "No space left on device"), WorldError),
        (pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)"), WorldError),
    ],
)
def test_what_goes_wrong_leaves_the_old_files(problem, raised, tmp_path):
    directory = old_run(tmp_path / "run")

    def write():
        with staging_folder(directory) as folder:
            (folder / "a").write_text("2")
            raise problem

    with pytest.raises(raised) as seen:
        write()
    assert raised is not WorldError or "No space left on device: what was there is kept" in str(seen.value)
    assert content(directory) == OLD
    assert {path.name for path in directory.iterdir()} == set(OLD)


def test_a_folder_with_what_a_killed_writer_left_is_new(tmp_path):
    for name in (".next.17/run.json", "store.lock", ".run.json.17.tmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    check_new(tmp_path)
    (tmp_path / "notes").write_text("")
    with pytest.raises(InputError, match="already there"):
        check_new(tmp_path)


def test_files_of_processes_that_are_gone_are_swept_and_no_others(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [f".a.{gone.pid}.tmp", f".a.{os.getpid()}.tmp", ".a.x.tmp", "a.1.tmp"]
    for name in names:
        (tmp_path / name).write_text("")
    files.remove_abandoned_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
