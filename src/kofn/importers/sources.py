"""Where outputs are (patterns, standard input, compressed files, addresses), made local files; the kind of each.

The kind (JSON lines, CSV, Parquet) is told from the first bytes and never from the name.
"""

from __future__ import annotations

import glob
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from kofn.core.escape import redact_address
from kofn.errors import InputError, KofnError, WorldError, import_extra

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
MOST_TIMES = 500  # compressed better than this, a file was made to fill disks (a "zip bomb")
_ZSTD = 93  # number of the compression method in the zip specification (APPNOTE 4.4.5)
_LOCAL_HEADER = 30  # bytes of a local file header before its name (APPNOTE 4.3.7)
_CHUNK = 1 << 20
SEPARATORS = {"csv": ",", "tsv": "\t", "csv with semicolons": ";"}

# the line that Excel writes first, and reads, where the separator is not the one of its locale
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?', re.IGNORECASE)

PLAIN = {
    "jsonl": "JSON lines (long, wide or parallel lists), or a JSON array of such objects",
    "csv": "CSV with a candidate a row; tabs and semicolons too",
    "parquet": "Parquet with a candidate a row, or a case a row with a list of outputs",
}


def expand(paths: Sequence[str | Path]) -> list[str]:
    """Every file named, patterns replaced by what they match in order of name; a pattern without a match is refused.

    >>> expand(["-", "a.jsonl"])
    ['-', 'a.jsonl']
    """
    found: list[str] = []
    for path in map(str, paths):
        matches = [path]
        if is_remote(path):
            with _remote(path, "listed") as fsspec:
                if _PATTERN & set(path) and not path.startswith(("http://", "https://")):
                    files, _, _ = fsspec.get_fs_token_paths(path)
                    matches = sorted(files.unstrip_protocol(name) for name in files.glob(path))
        elif _PATTERN & set(path) and not Path(path).exists():
            matches = glob.glob(path, recursive=True)  # noqa: PTH207 - patterns with a root too
        if not matches:
            raise InputError(f"{path}: no file matches this pattern")
        found += sorted(matches, key=_natural_order) if len(matches) > 1 else matches
    return found


def is_remote(path: str) -> bool:
    """Whether a path is an address: s3://, gs://, https://, hf://, memory:// and whatever else fsspec knows.

    >>> is_remote("s3://bucket/run.jsonl"), is_remote("runs/a.jsonl")
    (True, False)
    """
    return "://" in path


def _natural_order(name: str) -> list[tuple[int, int, str]]:
    """A sort key by which rs2 comes before rs10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", name)]


@contextmanager
def local(path: str) -> Iterator[tuple[Path, str]]:
    """A path as a plain local file or folder, and what to call it; copies are gone afterwards."""
    place = Path(path)
    source = "standard input" if path == "-" else redact_address(path)
    # a pipe, as of <(zcat log.gz), can be read only once, and importers read a file several times: it is copied
    is_stream = is_remote(path) or path == "-" or place.is_fifo() or place.is_char_device()
    kind = None if is_stream else _compression(place)
    if not is_stream and kind is None:
        yield place, source
        return
    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        copy = place
        if is_stream:
            # the name goes with it: some importers learn the task from it, none decides by it alone
            copy = Path(folder) / (Path(source).name or "outputs")
            with _stream(path) as stream, copy.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            kind = _compression(copy)
        if kind is not None:
            plain = Path(folder) / f"plain-{copy.stem}" / (copy.name if kind == "UTF-16" else copy.stem)
            plain.parent.mkdir()
            _decompress(copy, plain, kind, source)
            copy = plain
        try:
            yield copy, source
        except InputError as problem:
            raise InputError(str(problem).replace(str(copy), source)) from None


def _compression(path: Path) -> str | None:
    """How a file is packed, by its first bytes; None for plain files, folders and what cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return None
    return next((name for magic, name in COMPRESSED.items() if head.startswith(magic)), None)


def _decompress(path: Path, to: Path, kind: str, source: str) -> None:
    from lzma import LZMAError

    most = most_plain(path.stat().st_size)
    with path.open("rb") as raw, to.open("wb") as out:
        plain = open_compressed(raw, kind)
        try:
            for chunk in iter(lambda: plain.read(1 << 20), b""):
                if (most := most - len(chunk)) < 0:
                    size = f"{MOST_TIMES} times its size and more"
                    raise InputError(f"{source}: a {kind} file of {size}: unpack it yourself")
                out.write(chunk)
        except InputError:  # a ValueError, too
            raise
        except (EOFError, ValueError, OSError, zlib.error, LZMAError, zstd_module().ZstdError) as problem:
            raise InputError(f"{source}: a damaged {kind} file: {str(problem).splitlines()[0]:.120}") from None


def most_plain(packed: int) -> int:
    """How large a compressed file may become: a gigabyte in any case, and beyond it `MOST_TIMES` its size."""
    return max(1 << 30, MOST_TIMES * packed)


def open_compressed(raw: IO[bytes], kind: str) -> Any:
    """The plain bytes of a compressed file."""
    from bz2 import BZ2File
    from codecs import EncodedFile
    from gzip import GzipFile
    from lzma import LZMAFile

    if kind == "UTF-16":
        return EncodedFile(raw, "utf-8", "utf-16")
    if kind == "gzip":
        return GzipFile(fileobj=raw)
    if kind == "bzip2":
        return BZ2File(raw)
    return LZMAFile(raw) if kind == "xz" else zstd_module().ZstdFile(raw)


def zstd_module() -> Any:
    """The module for zstd: part of the standard library from Python 3.14 on."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


@contextmanager
def _stream(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    if not is_remote(path):
        with Path(path).open("rb") as file:
            yield file
        return
    with _remote(path, "fetched") as fsspec:
        try:
            with fsspec.open(path, "rb") as file:
                yield file
        except FileNotFoundError as problem:
            status = getattr(problem.__cause__, "status", 404)  # a web server's failure comes as one that is not there
            if status != 404:
                raise WorldError(f"{redact_address(path)}: cannot be fetched: the server answers {status}") from None
            raise InputError(f"{redact_address(path)}: no such file") from None


@contextmanager
def _remote(path: str, what: str) -> Iterator[Any]:
    """fsspec, and its failures as errors that hold none of the secrets that the address may hold."""
    fsspec = import_extra("fsspec", "remote", f"reading {path.partition('://')[0]}:// paths")
    shown = redact_address(path)
    try:
        yield fsspec
    except KofnError:
        raise
    except (ImportError, ValueError) as problem:
        raise InputError(f"{shown}: {str(problem).splitlines()[0]:.160}") from None
    except Exception as problem:  # whatever the other side's client raises
        text = str(problem).replace(path, shown).partition("?")[0]
        raise WorldError(f"{shown}: cannot be {what}: {type(problem).__name__}: {text:.120}") from None


# --- zip archives, with zstd-compressed entries, which Python's own reader supports only from 3.14


class DamagedEntry(ValueError):
    """An entry that cannot be read, and why; the archive's other entries may be intact."""


class Archive:
    """An open archive. A damaged one is refused in one line; a damaged entry when it is read."""

    def __init__(self, path: Path, source: str) -> None:
        try:
            self.zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError) as problem:
            what = f"a damaged zip archive ({str(problem).lower():.80})"
            raise InputError(f"{source}: {what}: cut off while it was written or copied?") from None
        self.entries = [entry for entry in self.zip.infolist() if not entry.is_dir()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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


# --- kinds of files


def check_readable(path: Path) -> None:
    """Refuse a path that does not exist or cannot be opened."""
    try:
        if path.is_dir():
            next(path.iterdir(), None)
            return
        with path.open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def kind_of(path: Path) -> str:
    """jsonl, parquet or one of SEPARATORS, by the first bytes; anything else is refused with what was seen."""
    check_readable(path)
    if path.is_dir():
        if any(path.rglob("*.parquet")):
            advice = f"give its files, such as '{path}/**/*.parquet' (or, in Python, part_size='auto')"
            raise InputError(
                f"{path}: a folder with Parquet in it is scored in parts, which keeps no candidate: {advice}"
            )
        raise InputError(f"{path}: is a directory of nothing that is known: give its files, such as {path}/*.jsonl")
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        raise InputError(f"{path}: a zip archive that is no Inspect log: unpack it and give its files")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):  # `read` has made it UTF-8 by now
        raise InputError(f"{path}: UTF-16 text: save the file as UTF-8")
    if b"\0" in head:
        raise InputError(f"{path}: a binary file: expected JSON lines, CSV or Parquet")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        with path.open("rb") as file:
            if not any(chunk.strip() for chunk in iter(lambda: file.read(1 << 20), b"")):
                raise InputError(f"{path}: the file is empty: expected JSON lines, CSV or Parquet")
    if start[:1] in b"{[":  # the empty start, too
        return "jsonl"
    header = start.partition(b"\n")[0]
    if separator_line := SEPARATOR_LINE.fullmatch(header.strip(b"\r")):
        sign = separator_line[1].decode(errors="replace")
        if named := next((kind for kind, separator in SEPARATORS.items() if separator == sign), None):
            return named
        expected = "expected a comma, a semicolon or a tab: save it with one of these"
        raise InputError(f"{path}: line 1: sep={sign}: {expected}")
    kind = max(SEPARATORS, key=lambda name: header.count(SEPARATORS[name].encode()))
    if SEPARATORS[kind].encode() in header:
        return kind
    line = header[:40].decode(errors="replace").strip()
    raise InputError(f"{path}: line 1: expected a JSON object, a CSV header or Parquet, found {line!r}")
