"""Where one worker runs programs: its work folder, filled with the files of a submission, and read without trusting it.

A program may leave anything behind: links that lead out of the folder, pipes, a thousand folders inside each other.
Nothing here follows a link, waits for a pipe, or goes deeper than a program has any business to. The scratch folder
that holds all work folders is removed however the run ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.format import format_size
from kofn.core.system import process_exists
from kofn.errors import InputError, WorldError
from kofn.sandbox.base import WorkerDirectories, is_root
from kofn.sandbox.process import SCRATCH_SIZE, RunningProgram, adopt_orphans, most_inodes, unlinked_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kofn.sandbox.base import Sandbox
    from kofn.sandbox.process import Monitor, ProcessResult, ProgramLimits


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
        most_size = f"the {format_size(most)} that a work folder may hold"
        raise InputError(f"{path}: {format_size(total)} of files, more than {most_size}")
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
        contents = data or b""
        facts = (file.name, file.mode & 0o111, stat.S_IFMT(file.mode), file.link, len(contents))
        digest.update(repr(facts).encode())
        digest.update(contents)
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
            found = os.fstat(file.fileno())
            return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns), file.read()
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


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

    def fill(self, tree: Tree | None, files: Iterable[File]) -> None:
        """Put `files` into the folder, or into a new one with what `tree` says."""
        if tree is not None:
            self.reset(tree)
        for file in files:
            self.put(file)

    def reset(self, tree: Tree) -> None:
        """A new folder with what `tree` says. The old one goes, with whatever was done to it.

        Nothing of it is used again, not even the folder itself: modes, attributes and times could tell the next case
        of the one before.
        """
        old = self._free_name()
        if self.path.exists():
            os.rename(self.path, old)  # noqa: PTH104 - a path that is not kept
        os.mkdir(self.path, 0o700)  # noqa: PTH102 - as above
        if self._uid is not None:
            os.chown(self.path, self._uid, self._uid)
        remove_tree(old)
        existing = {""}
        for file in tree.files:  # into a folder in which nothing is but what was laid before it
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

    def _free_name(self) -> Path:
        """A name beside the folder that nothing has."""
        self._removed += 1
        return self.path.with_name(f"{self.path.name}.{self._removed}")

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


_PREFIX = "kofn-verify-"


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for work folders, gone at the end; those of processes that were killed go too."""
    _remove_leftovers(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    try:
        with _signals_as_exceptions():
            yield folder
    finally:
        remove_tree(Path(folder))


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Let a request to end (SIGTERM, SIGHUP) end this process as any exception would: what it made is taken away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes of this user left: real folders of its own, for anybody can put a link there."""
    # the pid in the name tells whose folder it is: a process that lives still uses its own
    for left in folder.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            found = left.lstat()
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if ours and pid.isdigit() and not process_exists(int(pid)):
                remove_tree(left)


_INTERVAL = 0.5  # seconds between two checks of how full the folders are


class Workspace:
    """Where one worker runs programs, one at a time: a sandbox and its directories."""

    def __init__(self, sandbox: Sandbox, root: Path | None = None) -> None:
        self.sandbox = sandbox
        self.root = Path(tempfile.mkdtemp(prefix="kofn-", dir=root))
        self.directories = WorkerDirectories.create(self.root)
        # in a user namespace the user inside is the one outside
        user = self.directories.uid if sandbox.isolated and is_root() else None
        self.folder = WorkFolder(self.directories.work, user)
        adopt_orphans()

    def run(
        self, argv: Sequence[str], *, limits: ProgramLimits, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> ProcessResult:
        """Run a program to its end."""
        result = self.start(argv, limits=limits, env=env or {}, stdin=stdin).wait(limits.seconds)
        if (problem := self.sandbox.failure(result)) is not None:
            raise WorldError(f"the sandbox does not work any more: {problem}")
        return result

    def start(
        self, argv: Sequence[str], *, limits: ProgramLimits, env: Mapping[str, str], stdin: bytes = b""
    ) -> RunningProgram:
        """Start a program; the caller waits for it."""
        launch = self.sandbox.launch(argv, self.directories, limits, env)
        return RunningProgram(launch, limits=limits, monitor=self.monitor(limits), stdin=stdin)

    def monitor(self, limits: ProgramLimits) -> Monitor:
        """Whether the work folder, or a scratch folder in memory, is too full; checked now and then."""
        next_check = 0.0

        def excess(pids: Sequence[int]) -> str | None:
            nonlocal next_check
            now = time.monotonic()
            if now < next_check:
                return None
            next_check = now + _INTERVAL
            device = os.lstat(self.folder.path).st_dev
            # a file that was deleted while it is open takes room on the disk and is found by no listing
            reason = self.folder.excess(limits, unlinked_bytes(pids, device))
            if reason is None:
                most = max(most_inodes(pid, self.sandbox.scratch_folders, SCRATCH_SIZE) for pid in pids)
                return f"made more than {limits.files:,} files" if most > limits.files else None
            return reason

        return excess

    def close(self) -> None:
        """Remove everything; whoever made the folder around it may have done so already."""
        remove_tree(self.root)
