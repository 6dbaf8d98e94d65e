"""Where outputs are: files, patterns, folders, standard input, compressed files, and addresses such as s3://."""

from __future__ import annotations

import glob
import shutil
import sys
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kofn.errors import InputError, MissingExtra, WorldError
from kofn.values import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\xff\xfe": "UTF-16",  # what Excel saves as Unicode text
    b"\xfe\xff": "UTF-16",
}
_PATTERN = frozenset("*?[")
MOST_TIMES = 500  # what is packed better than this was made to be


def expand(paths: Sequence[str | Path]) -> list[str]:
    """Every file named, patterns replaced by what they match in order of name; a pattern without a match is refused.

    >>> expand(["-", "a.jsonl"])
    ['-', 'a.jsonl']
    """
    found: list[str] = []
    for path in map(str, paths):
        if is_remote(path):
            found += _remote_matches(path)
        elif _PATTERN & set(path) and not Path(path).exists():
            matches = sorted(glob.glob(path, recursive=True), key=_in_order)  # noqa: PTH207 - patterns with a root too
            if not matches:
                raise InputError(f"{path}: no file matches this pattern")
            found += matches
        else:
            found.append(path)
    return found


def is_remote(path: str) -> bool:
    """Whether a path is an address: s3://, gs://, https://, hf://, memory:// and whatever else fsspec knows.

    >>> is_remote("s3://bucket/run.jsonl"), is_remote("runs/a.jsonl")
    (True, False)
    """
    return "://" in path


def _in_order(name: str) -> list[tuple[int, int, str]]:
    """rs2 before rs10."""
    import re

    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


@contextmanager
def local(path: str) -> Iterator[tuple[Path, str]]:
    """A path as a plain local file or folder, and what to call it; copies are gone afterwards."""
    place = Path(path)
    shown = "standard input" if path == "-" else redacted(path)
    if not is_remote(path) and path != "-" and not place.is_fifo() and not place.is_char_device():
        if (kind := _compression(place)) is None:
            yield place, shown
            return
    else:
        kind = None
    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        # the name goes with it: some importers learn the task from it, none decides by it alone
        copy = Path(folder) / (Path(shown).name or "outputs")
        if kind is None:
            with _stream(path) as stream, copy.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            kind = _compression(copy)
        else:
            copy = place
        if kind is not None:
            plain = Path(folder) / f"plain-{copy.stem}" / (copy.name if kind == "UTF-16" else copy.stem)
            plain.parent.mkdir()
            _decompress(copy, plain, kind, shown)
            copy = plain
        try:
            yield copy, shown
        except InputError as problem:
            raise InputError(str(problem).replace(str(copy), shown)) from None


def _compression(path: Path) -> str | None:
    """How a file is packed, by its first bytes; None for plain files, folders and what cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return None
    return next((name for magic, name in COMPRESSED.items() if head.startswith(magic)), None)


def _decompress(path: Path, to: Path, kind: str, shown: str) -> None:
    from lzma import LZMAError

    most = most_plain(path.stat().st_size)
    with path.open("rb") as raw, to.open("wb") as out:
        plain = opened(raw, kind)
        try:
            for chunk in iter(lambda: plain.read(1 << 20), b""):
                if (most := most - len(chunk)) < 0:
                    raise InputError(
                        f"{shown}: a {kind} file of {MOST_TIMES} times its size and more: unpack it yourself"
                    )
                out.write(chunk)
        except InputError:
            raise
        except (EOFError, ValueError, OSError, zlib.error, LZMAError) as problem:
            raise InputError(f"{shown}: a damaged {kind} file: {str(problem).splitlines()[0]:.120}") from None


def most_plain(packed: int) -> int:
    """How large something packed may become: any gigabyte, and beyond it `MOST_TIMES` its size.

    No text of outputs is packed so well, and a file made to fill a disk is.
    """
    return max(1 << 30, MOST_TIMES * packed)


def opened(raw: IO[bytes], kind: str) -> Any:
    """The plain bytes of a compressed file."""
    if kind == "UTF-16":
        import codecs

        return codecs.EncodedFile(raw, "utf-8", "utf-16")
    if kind == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=raw)
    if kind == "bzip2":
        import bz2

        return bz2.BZ2File(raw)
    if kind == "xz":
        import lzma

        return lzma.LZMAFile(raw)
    return Zstd(raw)


class Zstd:
    """A zstd stream whose faults, and its early end, are ValueErrors."""

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard

        self.raw = raw
        self.decompressor = zstandard.ZstdDecompressor().decompressobj()

    def read(self, size: int) -> bytes:
        import zstandard

        plain = b""
        try:
            while not plain:
                if self.decompressor.eof:  # one frame after another is one file
                    rest = self.decompressor.unused_data or self.raw.read(size)
                    if not rest:
                        return b""
                    self.decompressor = zstandard.ZstdDecompressor().decompressobj()
                elif not (rest := self.raw.read(size)):
                    raise ValueError("it ends too early")
                plain = self.decompressor.decompress(rest)
        except zstandard.ZstdError as problem:
            raise ValueError(str(problem)) from None
        return plain


@contextmanager
def _stream(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    if not is_remote(path):
        with Path(path).open("rb") as file:
            yield file
        return
    fsspec = _fsspec(path)
    try:
        with fsspec.open(path, "rb") as file:
            yield file
    except FileNotFoundError as problem:
        status = getattr(problem.__cause__, "status", 404)  # a web server's failure comes as a file that is not there
        if status != 404:
            raise WorldError(f"{redacted(path)}: cannot be fetched: the server answers {status}") from None
        raise InputError(f"{redacted(path)}: no such file") from None
    except (ImportError, ValueError) as problem:
        raise InputError(f"{redacted(path)}: {str(problem).splitlines()[0]:.160}") from None
    except InputError:
        raise
    except Exception as problem:  # whatever the other side's client raises
        raise WorldError(f"{redacted(path)}: cannot be fetched: {_why(problem, path)}") from None


def _why(problem: Exception, path: str) -> str:
    """What went wrong, without what the address may hold of secrets."""
    told = str(problem).replace(path, redacted(path)).partition("?")[0]
    return f"{type(problem).__name__}: {told:.120}"


def _remote_matches(path: str) -> list[str]:
    fsspec = _fsspec(path)
    if not _PATTERN & set(path) or path.startswith(("http://", "https://")):
        return [path]
    try:
        files, _, _ = fsspec.get_fs_token_paths(path)
        found = sorted(files.unstrip_protocol(name) for name in files.glob(path))
    except (ImportError, ValueError) as problem:
        raise InputError(f"{redacted(path)}: {str(problem).splitlines()[0]:.160}") from None
    except Exception as problem:  # as above
        raise WorldError(f"{redacted(path)}: cannot be listed: {_why(problem, path)}") from None
    if not found:
        raise InputError(f"{path}: no file matches this pattern")
    return sorted(found, key=_in_order)


def _fsspec(path: str) -> Any:
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("fsspec", "remote", f"reading {path.partition('://')[0]}:// paths") from None
    return fsspec
