"""Entries of a zip archive, zstd-compressed ones included, which Python's own reader supports only from 3.14."""

from __future__ import annotations

import zipfile
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Self

from kofn.errors import InputError
from kofn.importers.sources import MOST_TIMES, most_plain, zstd_module

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_ZSTD = 93  # number of the compression method in the zip specification (APPNOTE 4.4.5)
_LOCAL_HEADER = 30  # bytes of a local file header before its name (APPNOTE 4.3.7)
_CHUNK = 1 << 20


class DamagedEntry(ValueError):
    """An entry that cannot be read, and why; the archive's other entries may be intact."""


class Archive:
    """An open archive. A damaged one is refused in one line; a damaged entry when it is read."""

    def __init__(self, path: Path, source: str) -> None:
        try:
            self.zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError) as problem:
            raise InputError(
                f"{source}: a damaged zip archive ({str(problem).lower():.80}): cut off while it was written or copied?"
            ) from None
        self.entries = [entry for entry in self.zip.infolist() if not entry.is_dir()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.zip.close()

    def entry(self, name: str) -> zipfile.ZipInfo | None:
        """The entry of this name; of several, which a log that was appended to has, the last."""
        return self.zip.NameToInfo.get(name)

    def read(self, entry: zipfile.ZipInfo) -> bytes:
        """The plain bytes of an entry."""
        if entry.file_size > most_plain(entry.compress_size):
            raise DamagedEntry(f"it unpacks to {MOST_TIMES} times its size and more")
        try:
            return self._zstd(entry) if entry.compress_type == _ZSTD else self.zip.read(entry)
        except (zipfile.BadZipFile, zlib.error, zstd_module().ZstdError, ValueError, EOFError, OSError) as problem:
            raise DamagedEntry(str(problem).partition("\n")[0][:100]) from None
        except (NotImplementedError, RuntimeError) as problem:  # a method nobody here knows; a password
            raise DamagedEntry(f"{problem!s:.100}") from None

    def _zstd(self, entry: zipfile.ZipInfo) -> bytes:
        file = self.zip.fp
        assert file is not None
        file.seek(entry.header_offset)
        header = file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or not header.startswith(b"PK\x03\x04"):
            raise ValueError("its header is missing")
        # over the name and the extra field: their lengths here may differ from those in the central directory
        file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
        stream = zstd_module().ZstdFile(BytesIO(file.read(entry.compress_size)))
        parts, most = [], most_plain(entry.compress_size)
        for part in iter(lambda: stream.read(_CHUNK), b""):
            parts.append(part)
            if (most := most - len(part)) < 0:
                raise ValueError(f"it unpacks to {MOST_TIMES} times its size and more")
        plain = b"".join(parts)
        if zlib.crc32(plain) != entry.CRC:
            raise ValueError("its checksum is wrong")
        return plain
