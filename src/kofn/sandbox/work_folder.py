"""The work folder: filled with the submission, made anew between cases, and read without trusting it.

A program may leave anything behind: links that lead out of the folder, pipes, a thousand folders inside each other.
Nothing here follows a link, waits for a pipe, or goes deeper than a program has any business to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from kofn.sandbox.file_tree import DEEPEST, read_contents, safe_name
from kofn.sandbox.usage import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kofn.sandbox.file_tree import File, Tree
    from kofn.sandbox.program import ProgramLimits

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _FLAGS
_EXACT = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _FLAGS
_TRIES = 5  # a server that keeps putting things in the way is given up on
_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)  # not a program's doing


class UnreadableFile(NamedTuple):
    """What stands where a file was expected, and cannot be read as one."""

    reason: str


class PathBlocked(Exception):
    """A file could not be put into the folder, because of what a program did there."""


class WorkFolder:
    """A work folder on disk. `uid` owns what is in it, where that is another user than this one."""

    def __init__(self, path: Path, uid: int | None = None) -> None:
        self.path, self._uid = path, uid
        self._removed = 0

    def reset(self, tree: Tree, files: Iterable[File] = ()) -> None:
        """A new folder with what `tree` says and then `files`. The old one goes, with whatever was done to it.

        Nothing of it is used again, not even the folder itself: modes, attributes and times could tell the next case
        of the one before.
        """
        self._renew()
        existing = {""}
        for file in tree.files:
            self._write_entry(file, existing)
        for file in files:
            self.put(file)

    def _renew(self) -> None:
        old = self._free_name()
        if self.path.exists():
            os.rename(self.path, old)  # noqa: PTH104 - a path that is not kept
        os.mkdir(self.path, 0o700)  # noqa: PTH102 - as above
        if self._uid is not None:
            os.chown(self.path, self._uid, self._uid)
        remove_tree(old)

    def _free_name(self) -> Path:
        """A name beside the folder that nothing has."""
        self._removed += 1
        return self.path.with_name(f"{self.path.name}.{self._removed}")

    def _write_entry(self, file: File, existing: set[str]) -> None:
        """Write one entry of a tree into a folder in which nothing is but what was laid before it."""
        self._make_folders(file.name.rpartition("/")[0], existing)
        path = f"{self.path}/{file.name}"
        if stat.S_ISDIR(file.mode):
            self._make_folders(file.name, existing)
        elif file.link is not None:
            os.symlink(file.link, path)  # noqa: PTH211 - a path as text
            if self._uid is not None:
                os.chown(path, self._uid, self._uid, follow_symlinks=False)
        else:
            self._write(file, path, None)

    def _make_folders(self, name: str, existing: set[str]) -> None:
        if name not in existing:
            self._make_folders(name.rpartition("/")[0], existing)
            os.mkdir(f"{self.path}/{name}", 0o755)  # noqa: PTH102 - many of them
            if self._uid is not None:
                os.chown(f"{self.path}/{name}", self._uid, self._uid)
            existing.add(name)

    def _write(self, file: File, name: str, at: int | None) -> None:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644 | (file.mode & 0o111), dir_fd=at)
        with open(fd, "wb", buffering=0) as out:  # noqa: PTH123 - a descriptor
            contents = memoryview(read_contents(file))
            while contents:
                contents = contents[out.write(contents) :]
            if self._uid is not None:
                os.fchown(fd, self._uid, self._uid)

    def put(self, file: File) -> None:
        """Write one file, whatever stands in its place; no link on the way is followed.

        A server may run in the folder meanwhile, and put other things there again and again: then it is in the way.
        """
        *folders, name = file.name.split("/")
        for _ in range(_TRIES):
            try:
                with self._open_parent(folders) as at:
                    self._take_away(name, at)
                    self._write(file, name, at)
                return
            except OSError as problem:
                if problem.errno in _OURS:
                    raise
                reason = problem.strerror
        raise PathBlocked(f"the file {file.name} of the case could not be put there: {reason}")

    @contextlib.contextmanager
    def _open_parent(self, folders: list[str]) -> Iterator[int]:
        """A descriptor of a folder in the folder, made where it is not there; a link or file in its place goes."""
        at = _open_folder(str(self.path), None)
        try:
            for name in folders:
                try:
                    below = _open_folder(name, at)
                except OSError as problem:
                    if problem.errno in (errno.ENOTDIR, errno.ELOOP):
                        os.unlink(name, dir_fd=at)
                    elif problem.errno != errno.ENOENT:
                        raise
                    os.mkdir(name, 0o755, dir_fd=at)
                    if self._uid is not None:
                        os.chown(name, self._uid, self._uid, dir_fd=at, follow_symlinks=False)
                    below = _open_folder(name, at)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    def _take_away(self, name: str, at: int) -> None:
        """Take away what has a name in a folder."""
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            _open_to_user(name, at)
            aside = self._free_name()
            os.rename(name, aside, src_dir_fd=at)
            remove_tree(aside)

    def read(self, name: str, most: int) -> bytes | UnreadableFile | None:
        """The bytes of a file the program made; None where there is none. Links are not followed."""
        *folders, last = safe_name(name).split("/")
        at = _open_folder(str(self.path), None)
        try:
            for folder in folders:
                below = _open_folder(folder, at)
                os.close(at)
                at = below
            fd = os.open(last, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=at)
        except OSError as problem:
            if problem.errno == errno.ENOENT:
                return None
            what = {errno.ELOOP: "a link, which is not followed", errno.ENOTDIR: "a link or file instead of a folder"}
            return UnreadableFile(what.get(problem.errno or 0, f"not readable: {problem.strerror}"))
        finally:
            os.close(at)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return UnreadableFile("not a regular file")
            if found.st_size > most:
                return UnreadableFile(f"larger than {format_size(most)}")
            return b"".join(iter(lambda: os.read(fd, 1 << 20), b""))[:most]
        finally:
            os.close(fd)

    def excess(self, limits: ProgramLimits, hidden: int = 0) -> str | None:
        """What there is too much of, if anything; `hidden` are bytes of files that have no name any more."""
        total, count = hidden, 0
        try:
            root = _open_folder(str(self.path), None)
            try:
                for found in _entries(root):
                    count += 1
                    total += found.st_blocks * 512
                    if count > limits.files:
                        return f"made more than {limits.files:,} files"
                    if total > limits.disk:
                        break
            finally:
                os.close(root)
        except FileNotFoundError:
            pass  # went while it was looked at
        except OSError as problem:
            if problem.errno == errno.ENAMETOOLONG:
                return f"made folders deeper than {DEEPEST}"
        return f"wrote more than {format_size(limits.disk)} of files" if total > limits.disk else None


def _entries(at: int, depth: int = 0) -> Iterator[os.stat_result]:
    """Everything in a folder, unfollowed; too deep is an OSError. What was closed to everybody is closed again."""
    if depth > DEEPEST:
        raise OSError(errno.ENAMETOOLONG, "too deep")
    with os.scandir(at) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    for name, what in found:
        yield what
        if stat.S_ISDIR(what.st_mode):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # it may go meanwhile
                below = _open_folder(name, at)
                try:
                    yield from _entries(below, depth + 1)
                finally:
                    if stat.S_IMODE(os.fstat(below).st_mode) != stat.S_IMODE(what.st_mode):
                        os.fchmod(below, stat.S_IMODE(what.st_mode))
                    os.close(below)


def _open_folder(name: str, at: int | None) -> int:
    """A descriptor of a folder, no link followed; one that the program closed to everybody is opened."""
    try:
        found = os.open(name, _FOLDER, dir_fd=at)
        if os.fstat(found).st_mode & 0o100:
            return found
        os.close(found)  # it can be listed, and nothing in it reached
    except PermissionError:
        pass
    _open_to_user(name, at)
    return os.open(name, _FOLDER, dir_fd=at)


def _open_to_user(name: str, at: int | None) -> None:
    """Let this user into a folder that a program closed: that very one, whatever takes its place meanwhile."""
    exact = os.open(name, _EXACT, dir_fd=at)
    try:
        mode = stat.S_IMODE(os.fstat(exact).st_mode)
        os.chmod(f"/proc/self/fd/{exact}", mode | 0o700)  # noqa: PTH101 - a descriptor
    finally:
        os.close(exact)


def remove_tree(path: Path) -> None:
    """Remove a folder with everything in it, however deep and whatever its permissions; a link is left alone.

    Only when nothing runs in it any more. Folders in it are moved beside it before they are emptied, so that no path is
    long. What cannot be removed stays, and is in nobody's way.
    """
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            beside = _empty(str(path))
            if beside:
                os.rmdir(beside)  # noqa: PTH106 - a path as text


def _empty(path: str) -> str:
    """Remove a folder; where other folders had to be moved before, the one they were moved to is returned."""
    waiting, count, beside = [path], 0, ""
    while waiting:
        folder = waiting.pop()
        os.chmod(folder, 0o700)  # noqa: PTH101 - paths as text, many of them; so below
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry, is_folder in found:
            if not is_folder:
                os.unlink(entry)  # noqa: PTH108
                continue
            beside = beside or tempfile.mkdtemp(prefix=".gone-", dir=os.path.dirname(path))  # noqa: PTH120
            count += 1
            os.chmod(entry, 0o700)  # noqa: PTH101
            os.rename(entry, f"{beside}/{count}")  # noqa: PTH104
            waiting.append(f"{beside}/{count}")
        os.rmdir(folder)  # noqa: PTH106
    return beside
