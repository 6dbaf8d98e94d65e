"""The files of a submission or of a problem, as they are read from the disk and sent to workers."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kofn.errors import InputError, WorldError
from kofn.sandbox.usage import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file, folder (`mode` has S_IFDIR) or link of a tree: its bytes here, or at a path of this machine.

    `stamp` tells whether the file at the path is still the one that was read first.
    """

    name: str
    mode: int
    data: bytes | None = None
    path: str | None = None
    link: str | None = None
    stamp: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files a work folder begins with, and the digest of them."""

    files: tuple[File, ...] = ()
    digest: str = ""


LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".DS_Store"}


DEEPEST = 40


def safe_name(name: str) -> str:
    """A relative path inside a folder, in one spelling; refused where it leads out or nowhere.

    >>> safe_name("./data//in.txt")
    'data/in.txt'
    >>> safe_name("../secret")
    Traceback (most recent call last):
    kofn.errors.InputError: file name '../secret': expected a path inside the work folder
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise InputError(f"file name {name!r}: expected a path inside the work folder")
    if len(path.parts) > DEEPEST:
        raise InputError(f"file name {name[:40]!r}...: deeper than {DEEPEST} folders")
    return str(path)


def read_tree(path: Path, *, name: str | None = None, most: int | None = None) -> Tree:
    """The files of a folder, or one file as `name`; more than `most` bytes of them are refused."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_file():
        files = [_file(path, name or path.name)]
    else:
        files = sorted(_walk(path), key=lambda f: f.name)
        if not any(stat.S_ISREG(f.mode) for f in files):
            raise InputError(f"{path}: there is no file in it: expected a submission")
    total = sum(os.lstat(file.path).st_size for file in files if file.path is not None)
    if most is not None and total > most:
        raise InputError(
            f"{path}: {format_size(total)} of files, more than the {format_size(most)} that a work folder may hold"
        )
    return merge_trees([files])


def merge_trees(parts: Iterable[Iterable[File]], *, packed: bool = False) -> Tree:
    """Several trees as one; of two files of a name the later counts."""
    found: dict[str, File] = {}
    for part in parts:
        found = _overlay(found, {file.name: file for file in part})
    digest = sha256()
    files = []
    for file in found.values():
        stamp, data = (None, file.data) if file.path is None else _read(file.path)
        files.append(replace(file, data=data, path=None) if packed else replace(file, stamp=stamp))
        digest.update(
            repr((file.name, file.mode & 0o111, stat.S_IFMT(file.mode), file.link, len(data or b""))).encode()
        )
        digest.update(data or b"")
    return Tree(files=tuple(files), digest=digest.hexdigest())


def _overlay(below: dict[str, File], above: dict[str, File]) -> dict[str, File]:
    """The files of two trees; of two that cannot both be there, such as `a` and `a/b`, the upper one is."""
    folders = {"/".join(parts[:i]) for name in above for parts in [name.split("/")] for i in range(1, len(parts))}
    no_folders = {name for name, file in above.items() if not stat.S_ISDIR(file.mode)}

    def stays(file: File) -> bool:
        parts = file.name.split("/")
        inside = any("/".join(parts[:i]) in no_folders for i in range(1, len(parts)))
        return not inside and (stat.S_ISDIR(file.mode) or file.name not in folders)

    return {name: file for name, file in below.items() if stays(file) and name not in above} | above


def _read(path: str) -> tuple[tuple[int, ...], bytes]:
    """What a file holds, and how to tell later that it still does."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path as text
            return _stamp(os.fstat(file.fileno())), file.read()
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_contents(file: File) -> bytes:
    """What a file holds; refused where it is no longer what it was when its tree was read."""
    if file.path is None:
        return file.data or b""
    stamp, data = _read(file.path)
    if file.stamp is not None and stamp != file.stamp:
        raise WorldError(f"{file.path}: was changed while it was verified: run the same command again")
    return data


def _walk(root: Path) -> Iterator[File]:
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name not in LEFT_OUT]
        for entry in found:
            path = folder / entry.name
            name = path.relative_to(root).as_posix()
            safe_name(name)
            yield _file(path, name)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)


def _file(path: Path, name: str) -> File:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return File(name=name, mode=mode, link=os.readlink(path))  # noqa: PTH115 - as text
    if stat.S_ISDIR(mode):
        return File(name=name, mode=mode)
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: neither a file, a folder nor a link")
    return File(name=name, mode=mode, path=str(path))
