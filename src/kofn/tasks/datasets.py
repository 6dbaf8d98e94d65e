"""Finds the data set of a task and reads its records: JSON, JSON lines, CSV, Parquet, folders and Hugging Face."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.core.folders import data_folders
from kofn.errors import InputError, MissingExtra, WorldError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kofn.tasks.spec import DatasetSpec

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_DEV = ("dev", "train", "validation", "val")  # splits to take few-shot examples from, the best first


class PlacedRecord(NamedTuple):
    """A record and where it stands."""

    where: str
    record: dict[str, Any]


def locate(spec: DatasetSpec, task: str, folder: Path | None, data: Path | None) -> Path | None:
    """The file or folder of a data set; None where the records are not in a file here.

    `data` is a file, or a folder to look in. A missing one is refused with a message that says how to get it.
    """
    if data is not None and not data.exists():
        raise InputError(f"{data}: no such file or folder: expected the data of task {task}")
    if data is not None and data.is_file():
        return data
    if spec.path is not None:
        names: Sequence[str] = (spec.path,)
        places = [data] if data is not None else [folder or Path()]
    else:
        names, places = spec.files, [data] if data is not None else data_folders()
    for place in places:
        for name in names:
            if (place / name).exists():
                return place / name
    # --data names a folder that is itself the data set, not one that holds it under a known name
    if data is not None and (
        spec.path is not None or spec.records is not None or any(path.suffix in SUFFIXES for path in data.iterdir())
    ):
        return data
    if spec.records is not None or (spec.hf is not None and data is None and find_spec("datasets") is not None):
        return None
    raise InputError(_missing(spec, task, names, places))


def _missing(spec: DatasetSpec, task: str, names: Sequence[str], places: Iterable[Path]) -> str:
    looked = f"looked for {' or '.join(names)} in {', '.join(str(p) for p in places)}" if names else "no file is named"
    ways = [f"get it from {spec.url}" if spec.url else "", "give it with --data PATH"]
    if spec.hf:
        ways.append(f"pip install 'kofn[datasets]' to fetch {spec.hf} from Hugging Face")
    return f"task {task}: its data is not here ({looked}): {', or '.join(w for w in ways if w)}"


def records_at(path: Path, *, subjects: bool = False) -> Iterator[PlacedRecord]:
    """The records of a file or of a folder of files; `subjects`: CSV files without a header, one file per subject."""
    if subjects and (path.is_dir() or path.suffix == ".csv"):
        return _subjects(path, "test")
    return _folder(path) if path.is_dir() else _file(path)


def _folder(path: Path) -> Iterator[PlacedRecord]:
    """Every file of records in a folder, by name; a record knows its `file`."""
    files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES or p.suffixes[-2:] == [".jsonl", ".gz"])
    if not files:
        raise InputError(f"{path}: no file of records in it: expected {', '.join(SUFFIXES)}")
    for file in files:
        for where, record in _file(file):
            yield PlacedRecord(where, {"file": file.name.partition(".")[0], **record})


def _file(path: Path) -> Iterator[PlacedRecord]:
    data = _bytes(path)
    # by content and not by suffix: downloads are renamed, and .json files often hold JSON lines
    if data.startswith(b"PAR1"):
        return _parquet(path)
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        raise InputError(f"{path}: the file is empty")
    if start.startswith(b"["):
        return _array(path, data)
    return _lines(path, data) if start.startswith(b"{") else _csv(path, data)


def _bytes(path: Path) -> bytes:
    import gzip
    import zlib

    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise InputError(f"{path}: cannot be decompressed: {problem}") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def _lines(path: Path, data: bytes) -> Iterator[PlacedRecord]:
    import orjson

    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as problem:
            raise InputError(f"{where}: expected one JSON object a line: {problem}") from None
        yield PlacedRecord(where, _object(record, where))


def _array(path: Path, data: bytes) -> Iterator[PlacedRecord]:
    import orjson

    try:
        records = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: not JSON: {problem}") from None
    for number, record in enumerate(records, start=1):
        where = f"{path}: record {number}"
        yield PlacedRecord(where, _object(record, where))


def _object(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected an object, found {str(record)[:40]!r}")
    return record


def _rows(path: Path, data: bytes) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file with the line each begins on; quoted fields may hold commas and line breaks."""
    import csv
    import io

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InputError(f"{path}: byte {problem.start} is not UTF-8") from None
    # strict, so that an open quote is an error and does not swallow the rest of the file as one field
    head = text.partition("\n")[0]
    comma = "\t" if path.suffix == ".tsv" or (head.count("\t") > head.count(",")) else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=comma, strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as problem:
        raise InputError(f"{path}: line {line}: not CSV: {problem}") from None


def _csv(path: Path, data: bytes) -> Iterator[PlacedRecord]:
    rows = _rows(path, data)
    _, names = next(rows)
    for line, row in rows:
        where = f"{path}: line {line}"
        if len(row) != len(names):
            raise InputError(f"{where}: {len(row)} fields, and the header has {len(names)}")
        yield PlacedRecord(where, dict(zip(names, row, strict=True)))


def _parquet(path: Path) -> Iterator[PlacedRecord]:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as problem:
        raise InputError(f"{path}: not Parquet: {str(problem).partition(chr(10))[0]}") from None
    for number, record in enumerate(frame.iter_rows(named=True), start=1):
        yield PlacedRecord(f"{path}: row {number}", record)


def _subjects(path: Path, split: str) -> Iterator[PlacedRecord]:
    """`{subject}_{split}.csv` files, of a folder or of its folder `split`: question, four options, the right one.

    A first row that only names the columns is left out.
    """
    if path.is_file():
        files = [path]
    else:
        inside = path / split if (path / split).is_dir() else path
        files = sorted(inside.glob(f"*_{split}.csv"))
    if not files:
        raise InputError(f"{path}: no file named SUBJECT_{split}.csv in it")
    for file in files:
        subject = file.stem.removesuffix(f"_{split}")
        for line, row in _rows(file, _bytes(file)):
            if line == 1 and (row[0].strip().lower(), row[-1].strip().lower()) == ("question", "answer"):
                continue
            where = f"{file}: line {line}"
            if len(row) != 6:
                raise InputError(f"{where}: {len(row)} fields: expected a question, four options and the right one")
            yield PlacedRecord(where, {"question": row[0], "choices": row[1:5], "answer": row[5], "subject": subject})


def dev_records(path: Path, *, subjects: bool = False) -> Iterator[PlacedRecord]:
    """The examples that come with a data set: the `dev` files of a folder, or the file beside that is named so."""
    if subjects and path.is_dir():
        return _subjects(path, "dev")
    tried = [path.with_name(path.name.replace("test", split)) for split in _DEV if "test" in path.name]
    tried += [path.with_name(f"{path.stem.removesuffix('_test')}_{split}{path.suffix}") for split in _DEV]
    for other in dict.fromkeys(tried):
        if other != path and other.exists():
            return records_at(other, subjects=subjects)
    raise InputError(
        f"{path}: no few-shot examples beside it: looked for {', '.join(p.name for p in dict.fromkeys(tried))}"
    )


def hub_records(spec: DatasetSpec, split: str | None = None) -> Iterator[PlacedRecord]:
    """The records of a Hugging Face data set."""
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "datasets", f"data set {spec.hf}") from None
    split = split or spec.split
    try:
        rows = datasets.load_dataset(spec.hf, spec.config, split=split)
    except Exception as problem:
        reason = " ".join(str(problem).split())[:200]
        raise WorldError(f"Hugging Face data set {spec.hf}: cannot be loaded: {reason}") from None
    for number, record in enumerate(rows):
        yield PlacedRecord(f"{spec.hf} {split}: row {number}", dict(record))
