"""What kind of file this is (JSON lines, CSV, Parquet), told from its first bytes and never from its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

SEPARATORS = {"csv": ",", "tsv": "\t", "csv with semicolons": ";"}

# the line that Excel writes first, and reads, where the separator is not the one of its locale
SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?', re.IGNORECASE)

PLAIN = {
    "jsonl": "JSON lines (long, wide or parallel lists), or a JSON array of such objects",
    "csv": "CSV with a candidate a row; tabs and semicolons too",
    "parquet": "Parquet with a candidate a row, or a case a row with a list of outputs",
}


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
            raise InputError(
                f"{path}: a folder with Parquet in it is scored in parts, which keeps no candidate: give its files, "
                f"such as '{path}/**/*.parquet' (or, in Python, part_size='auto')"
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
    if not start and not _has_content(path):
        raise InputError(f"{path}: the file is empty: expected JSON lines, CSV or Parquet")
    if not start or start[:1] in b"{[":
        return "jsonl"
    header = start.partition(b"\n")[0]
    if separator_line := SEPARATOR_LINE.fullmatch(header.strip(b"\r")):
        return _named_separator(path, separator_line[1].decode(errors="replace"))
    kind = max(SEPARATORS, key=lambda name: header.count(SEPARATORS[name].encode()))
    if SEPARATORS[kind].encode() in header:
        return kind
    line = header[:40].decode(errors="replace").strip()
    raise InputError(f"{path}: line 1: expected a JSON object, a CSV header or Parquet, found {line!r}")


def _named_separator(path: Path, sign: str) -> str:
    """The kind of a CSV file whose first line names its separator, as Excel writes and reads it."""
    kind = next((kind for kind, separator in SEPARATORS.items() if separator == sign), None)
    if kind is None:
        raise InputError(
            f"{path}: line 1: sep={sign}: expected a comma, a semicolon or a tab: save it with one of these"
        )
    return kind


def _has_content(path: Path) -> bool:
    with path.open("rb") as file:
        return any(chunk.strip() for chunk in iter(lambda: file.read(1 << 20), b""))
