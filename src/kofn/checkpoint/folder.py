"""The work folder: filled with the submission, put back to that between cases, and read without trusting it.

A program may leave anything behind: links that lead out of the folder, pipes, a thousand folders inside each other.
Nothing here follows a link, waits for a pipe, or goes deeper than a program has any business to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from kofn.checkpoint.process import size
from kofn.checkpoint.work import File, Tree
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kofn.checkpoint.work import Limits

LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".DS_Store"}
DEEPEST = 40
_TICK = 0.02  # seconds: two changes of a file that are further apart have different times
_MANY = 30  # files: of fewer it is quicker to write them again than to be sure
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


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


def tree_of(path: Path, *, name: str | None = None, packed: bool = False) -> Tree:
    """The files of a folder, or one file as `name`. `packed`: with their bytes, for another machine."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_file():
        files = [_file(path, name or path.name)]
    else:
        files = sorted(_walk(path), key=lambda f: f.name)
        if not any(stat.S_ISREG(f.mode) for f in files):
            raise InputError(f"{path}: there is no file in it: expected a submission")
    return joined([files], packed=packed)


def joined(parts: Iterable[Iterable[File]], *, packed: bool = False) -> Tree:
    """Several trees as one; of two files of a name the later counts."""
    found = {file.name: file for part in parts for file in part}
    digest = sha256()
    files = []
    for file in found.values():
        data = file.data if file.path is None else _read(file.path)
        files.append(replace(file, data=data, path=None) if packed else file)
        digest.update(
            repr((file.name, file.mode & 0o111, stat.S_IFMT(file.mode), file.link, len(data or b""))).encode()
        )
        digest.update(data or b"")
    return Tree(files=tuple(files), digest=digest.hexdigest())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path as text
            return file.read()
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def _walk(root: Path) -> Iterator[File]:
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        for entry in os.scandir(folder):
            if entry.name in LEFT_OUT:
                continue
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


class Oddity(NamedTuple):
    """Why a file could not be read: what stands where one was expected."""

    reason: str


class _Seen(NamedTuple):
    inode: int
    changed: int
    mode: int
    size: int

    @classmethod
    def of(cls, found: os.stat_result) -> _Seen:
        return cls(found.st_ino, found.st_ctime_ns, found.st_mode, found.st_size)


class Folder:
    """A work folder on disk. `uid` owns what is in it, where that is another user than this one."""

    def __init__(self, path: Path, uid: int | None = None) -> None:
        self.path, self._uid = path, uid
        self._tree = Tree()
        self._seen: dict[str, _Seen] = {}
        self._released = 0  # when it was last handed to a program

    def reset(self, tree: Tree, files: Iterable[File] = ()) -> None:
        """Leave what `tree` says and nothing else, then add `files`.

        What is still what was put there is not written again. A file's change time tells, for no program can set it:
        it is another one after every change that did not come in the same tick of the clock. So a large tree is given
        a tick before it is used; the files of a small one are too young to be sure of, and written again.
        """
        if tree is not self._tree or not self._tidied(tree):
            self._begin_again(tree)
        for file in files:
            self.put(file)
        self._released = time.time_ns()

    def _begin_again(self, tree: Tree) -> None:
        clear(self.path)
        self._tree, self._seen = tree, {}
        for file in tree.files:
            self._lay(file)
        if len(tree.files) > _MANY:
            time.sleep(_TICK)

    def _tidied(self, tree: Tree) -> bool:
        """Take away what does not belong and lay what was changed; False where it is easier to begin again."""
        settled = self._released - int(_TICK * 1e9)
        there = set()
        try:
            for name, found in self._entries():
                before = self._seen.get(name)
                now = _Seen.of(found)
                folder = stat.S_ISDIR(found.st_mode)
                same = before is not None and (
                    (folder and stat.S_ISDIR(before.mode) and before.mode == now.mode)
                    or (before == now and before.changed < settled)
                )
                if same:
                    there.add(name)
                elif folder:
                    return False
                else:
                    os.unlink(self.path / name)  # noqa: PTH108 - a link itself, not what it leads to
        except OSError:
            return False
        for file in tree.files:
            if file.name not in there:
                self._lay(file)
        return True

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Everything in the folder by its path, unfollowed; too deep or too much of it is an OSError."""
        waiting = [("", 0)]
        while waiting:
            inside, depth = waiting.pop()
            if depth > DEEPEST:
                raise OSError(errno.ENAMETOOLONG, "too deep")
            with os.scandir(os.path.join(self.path, inside)) as entries:  # noqa: PTH118 - many of them
                found = [(f"{inside}/{e.name}" if inside else e.name, e.stat(follow_symlinks=False)) for e in entries]
            for name, what in found:
                yield name, what
                if stat.S_ISDIR(what.st_mode):
                    waiting.append((name, depth + 1))

    def _lay(self, file: File) -> None:
        """Put a file of the tree, and remember how it looks."""
        self.put(file)
        self._seen[file.name] = _Seen.of(os.lstat(self.path / file.name))

    def put(self, file: File) -> None:
        """Write one file, folder or link, whatever stands in its place; no link on the way is followed."""
        *folders, name = file.name.split("/")
        with self._inside(folders) as at:
            if stat.S_ISDIR(file.mode):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=at)
                    self._own(name, at)
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
            if file.link is not None:
                os.symlink(file.link, name, dir_fd=at)
                self._own(name, at)
                return
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644 | (file.mode & 0o111), dir_fd=at)
            with open(fd, "wb", buffering=0) as out:  # noqa: PTH123 - as above
                out.write(_read(file.path) if file.path is not None else file.data or b"")
                if self._uid is not None:
                    os.fchown(fd, self._uid, self._uid)

    @contextlib.contextmanager
    def _inside(self, folders: list[str]) -> Iterator[int]:
        """A descriptor of a folder in the folder, made where it is not there; a link or file in its place goes."""
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        try:
            for name in folders:
                try:
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=at)
                except OSError as problem:
                    if problem.errno in (errno.ENOTDIR, errno.ELOOP):
                        os.unlink(name, dir_fd=at)
                    elif problem.errno != errno.ENOENT:
                        raise
                    os.mkdir(name, 0o755, dir_fd=at)
                    self._own(name, at)
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=at)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    def _own(self, name: str, at: int) -> None:
        if self._uid is not None:
            os.chown(name, self._uid, self._uid, dir_fd=at, follow_symlinks=False)

    def read(self, name: str, most: int) -> bytes | Oddity | None:
        """The bytes of a file the program made; None where there is none. Links are not followed."""
        *folders, last = safe_name(name).split("/")
        at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        try:
            for folder in folders:
                below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=at)
                os.close(at)
                at = below
            fd = os.open(last, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=at)
        except OSError as problem:
            if problem.errno == errno.ENOENT:
                return None
            what = {errno.ELOOP: "a link, which is not followed", errno.ENOTDIR: "a link or file instead of a folder"}
            return Oddity(what.get(problem.errno or 0, f"not readable: {problem.strerror}"))
        finally:
            os.close(at)
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return Oddity("not a regular file")
            if found.st_size > most:
                return Oddity(f"larger than {size(most)}")
            return file.read(most)

    def overfull(self, limits: Limits) -> str | None:
        """What there is too much of, if anything."""
        total = count = 0
        try:
            for _, found in self._entries():
                count += 1
                total += found.st_blocks * 512
                if count > limits.files:
                    return f"made more than {limits.files:,} files"
                if total > limits.disk:
                    return f"wrote more than {size(limits.disk)} of files"
        except FileNotFoundError:
            return None  # went while it was looked at
        except OSError as problem:
            return f"made folders deeper than {DEEPEST}" if problem.errno == errno.ENAMETOOLONG else None
        return None


def clear(path: Path) -> None:
    """Remove everything in a folder, however deep it is and whatever its permissions are."""
    if not os.listdir(path):  # noqa: PTH208 - names are all that is needed
        return
    with contextlib.suppress(OSError, RecursionError):
        _open_up(path)
        for entry in path.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for entry in path.iterdir():  # deeper than Python goes
        subprocess.run(["rm", "-rf", "--", str(entry)], check=False, capture_output=True)  # noqa: S603, S607 - its own


def remove(path: Path) -> None:
    """Remove a folder with everything in it; one that is not there is removed already."""
    if path.is_dir():
        clear(path)
        with contextlib.suppress(OSError):
            path.rmdir()


def _open_up(path: Path) -> None:
    """Let this user into folders that a program closed."""
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)  # noqa: PTH118 - a bare path of os.walk
            if not os.path.islink(inner):  # noqa: PTH114 - as above
                os.chmod(inner, 0o700)  # noqa: PTH101 - as above
