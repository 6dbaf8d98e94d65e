"""A folder at a URL that every node of a cluster reaches: large values go through it instead of through Ray."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

from kofn.core.addresses import redact_address
from kofn.errors import InputError


def digest(data: bytes) -> str:
    """The name of a value that is kept under its content."""
    return blake2b(data, digest_size=16).hexdigest()


class SharedFolder:
    """Named values in a folder such as file:///mnt/x or s3://bucket/x; the URL is what fsspec understands."""

    def __init__(self, url: str) -> None:
        try:
            self._files, self._root = import_module("fsspec.core").url_to_fs(url)
        except ImportError as error:  # fsspec itself, or what it needs for this kind of URL
            raise InputError(f"shared path {redact_address(url)}: {error}; install what is missing") from None
        except ValueError as error:
            text = str(error).replace(url, redact_address(url))
            raise InputError(f"shared path {redact_address(url)}: {text}") from None
        self.url: str = self._files.unstrip_protocol(self._root)  # a relative path means nothing elsewhere

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def read(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(self._path(name))
        return data

    def remove(self, name: str) -> None:
        """Remove a value or a folder; one that is not there is removed already."""
        if self._files.exists(self._path(name)):
            self._files.rm(self._path(name), recursive=True)

    def keep(self, data: bytes) -> str:
        """Write a value under its digest, unless it is there. One that was cut off in writing is written again."""
        name = digest(data)
        path = self._path(name)
        if not self._files.exists(path) or self._files.size(path) != len(data):
            self.write(name, data)
        return name

    def fetch(self, name: str) -> bytes:
        """A value by its digest, from this machine if another process has fetched it before."""
        if self.url.startswith("file:"):
            return _verify_digest(self.read(name), name)
        cached = Path(tempfile.gettempdir()) / f"kofn-{os.getuid()}" / name
        if _is_private(cached.parent) and cached.is_file() and digest(data := cached.read_bytes()) == name:
            return data
        data = _verify_digest(self.read(name), name)
        if _is_private(cached.parent):
            _write_atomically(cached, data)
        return data


def _verify_digest(data: bytes, name: str) -> bytes:
    if digest(data) != name:
        raise OSError(f"{name} is damaged: it is not what was written under this name")
    return data


def _is_private(folder: Path) -> bool:
    """Make a folder in the shared /tmp that only we can enter; False where somebody else has made it before us."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a file that others see whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
