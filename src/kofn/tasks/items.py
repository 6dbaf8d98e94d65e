"""Finds the data set of a task, reads its records (JSON, CSV, Parquet, Hugging Face), and builds the items of them."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import defaultdict
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kofn.core.system import data_folders
from kofn.core.types import Case
from kofn.errors import InputError, UnknownName, WorldError, import_extra
from kofn.tasks.shapes import SHAPES, generic, label_options, plain_fields, with_fields
from kofn.tasks.stages import Item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kofn.tasks.shapes import Example, Option
    from kofn.tasks.spec import DatasetSpec, TaskSpec

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_DEV = ("dev", "train", "validation", "val")  # splits to take few-shot examples from, the best first

# --- records


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
    looked = f"looked for {' or '.join(names)} in {', '.join(map(str, places))}" if names else "no file is named"
    ways = [f"get it from {spec.url}"] if spec.url else []
    ways.append("give it with --data PATH")
    if spec.hf:
        ways.append(f"pip install 'kofn[datasets]' to fetch {spec.hf} from Hugging Face")
    raise InputError(f"task {task}: its data is not here ({looked}): {', or '.join(ways)}")


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
    text = data.removeprefix(b"\xef\xbb\xbf")
    # by content and not by suffix: downloads are renamed, and .json files often hold JSON lines
    if data.startswith(b"PAR1"):
        yield from _parquet(path)
    elif text.lstrip().startswith(b"["):
        try:
            records = orjson.loads(text)
        except orjson.JSONDecodeError as problem:
            raise InputError(f"{path}: not JSON: {problem}") from None
        for number, record in enumerate(records, start=1):
            yield _placed(record, f"{path}: record {number}")
    elif text.lstrip().startswith(b"{"):
        for number, line in enumerate(text.split(b"\n"), start=1):
            if line.strip():
                where = f"{path}: line {number}"
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError as problem:
                    raise InputError(f"{where}: expected one JSON object a line: {problem}") from None
                yield _placed(record, where)
    elif text.strip():
        rows = _rows(path, data)
        _, names = next(rows)
        for number, row in rows:
            where = f"{path}: line {number}"
            if len(row) != len(names):
                raise InputError(f"{where}: {len(row)} fields, and the header has {len(names)}")
            yield PlacedRecord(where, dict(zip(names, row, strict=True)))
    else:
        raise InputError(f"{path}: the file is empty")


def _placed(record: Any, where: str) -> PlacedRecord:
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected an object, found {str(record)[:40]!r}")
    return PlacedRecord(where, record)


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise InputError(f"{path}: cannot be decompressed: {problem}") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def _rows(path: Path, data: bytes) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file with the line each begins on; quoted fields may hold commas and line breaks."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InputError(f"{path}: byte {problem.start} is not UTF-8") from None
    # strict, so that an open quote is an error and does not swallow the rest of the file as one field
    head = text.partition("\n")[0]
    comma = "\t" if path.suffix == ".tsv" or (head.count("\t") > head.count(",")) else ","
    reader = csv.reader(StringIO(text, newline=""), delimiter=comma, strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as problem:
        raise InputError(f"{path}: line {line}: not CSV: {problem}") from None


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
    inside = path / split if (path / split).is_dir() else path
    files = [path] if path.is_file() else sorted(inside.glob(f"*_{split}.csv"))
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
    tried = [path.name.replace("test", split) for split in _DEV if "test" in path.name]
    tried += [f"{path.stem.removesuffix('_test')}_{split}{path.suffix}" for split in _DEV]
    names = list(dict.fromkeys(tried))
    for name in names:
        if name != path.name and (other := path.with_name(name)).exists():
            return records_at(other, subjects=subjects)
    raise InputError(f"{path}: no few-shot examples beside it: looked for {', '.join(names)}")


def hub_records(spec: DatasetSpec, split: str | None = None) -> Iterator[PlacedRecord]:
    """The records of a Hugging Face data set."""
    datasets = import_extra("datasets", "datasets", f"data set {spec.hf}")
    split = split or spec.split
    try:
        rows = datasets.load_dataset(spec.hf, spec.config, split=split)
    except Exception as problem:
        reason = " ".join(str(problem).split())[:200]
        raise WorldError(f"Hugging Face data set {spec.hf}: cannot be loaded: {reason}") from None
    for number, record in enumerate(rows):
        yield PlacedRecord(f"{spec.hf} {split}: row {number}", dict(record))


# --- items: a case, and the fields that its prompts may name


def items_of(spec: TaskSpec, placed: Iterable[PlacedRecord]) -> list[Item]:
    """Every record as an item. A record that cannot be read is refused with its place; so is an id that is twice."""
    rows = list(placed)
    examples = [_example(spec, row) for row in rows]
    # not so where an extractor of another kind looks for the options' texts
    labelled = spec.extract is None or spec.extract.startswith(("letter", "llm"))
    if labelled or spec.output_type == "multiple_choice":
        for at, found in enumerate(label_options(examples)):
            if isinstance(found, InputError):
                raise InputError(f"{rows[at].where}: {found}")
            examples[at] = found
    subjects = spec.shape is not None and SHAPES[spec.shape].subjects
    # the record's own id, else the task's name, or the subject, and the place from 0: in the file, so that a record
    # has the same id whatever --limit or --sample leave out
    counts: dict[str, int] = defaultdict(int)
    places: dict[str, str] = {}
    for row, example in zip(rows, examples, strict=True):
        start = example.tags["subject"] if subjects else spec.name
        one = example.id if example.id is not None else f"{start}/{counts[start]}"
        counts[start] += 1
        if one in places:
            raise InputError(f"{row.where}: id {one!r} is there already ({places[one]}): ids must differ")
        places[one] = row.where
    return [_item(*one) for one in zip(places, rows, examples, strict=True)]


def list_options(options: Sequence[Option]) -> str:
    """Options as a prompt lists them, one per line.

    >>> from kofn.tasks.shapes import Option
    >>> print(list_options([Option("A", "red"), Option("B", "blue")]))
    A) red
    B) blue
    """
    return "\n".join(str(option) for option in options)


def _example(spec: TaskSpec, row: PlacedRecord) -> Example:
    try:
        if spec.shape is None:
            return generic(row.record, spec.fields)
        return with_fields(SHAPES[spec.shape].example(row.record), row.record, spec.fields)
    except InputError as problem:
        raise InputError(f"{row.where}: {problem}") from None
    except (TypeError, ValueError, KeyError, AttributeError) as problem:
        raise InputError(f"{row.where}: not a record of shape {spec.shape or 'generic'}: {problem}") from None


def _item(case_id: str, row: PlacedRecord, example: Example) -> Item:
    tags = dict(example.tags)
    if example.group is not None:
        tags.setdefault("group", example.group)
    case = Case(
        id=case_id,
        input=example.question,
        references=example.references,
        choices=tuple(str(o) for o in example.options) or example.choices,
        tags=tags,
        weight=example.weight,
        cluster=example.cluster,
    )
    options = list_options(example.options)
    roles = {
        "id": case_id,
        "question": example.question,
        "input": example.question,
        "reference": example.references[0] if example.references else "",
        "options": options or "\n".join(example.choices),
        "question_and_options": f"{example.question}\n{options}" if options else example.question,
    }
    return Item(case=case, fields={**plain_fields(row.record), **tags, **roles})


def select_items(
    items: Sequence[Item], *, ids: Sequence[str] = (), limit: int | None = None, sample: int | None = None,
    group: str = "group", seed: int = 0,
) -> list[Item]:  # fmt: skip
    """Some of the items, in their order: those with these ids, then the first `limit`, then a stratified sample."""
    known, chosen = {item.case.id for item in items}, set(ids)
    for one in ids:
        if one not in known:
            raise UnknownName("id", one, sorted(known), hint=f"ids look like {items[0].case.id!r}")
    kept = [item for item in items if not ids or item.case.id in chosen][:limit]
    return kept if sample is None else sample_stratified(kept, sample, group, seed)


def sample_stratified(items: Sequence[Item], n: int, group: str, seed: int) -> list[Item]:
    """`n` items drawn with a seed, every group in proportion to its size; the order of the file is kept.

    Where proportions are not whole numbers the largest remainders are rounded up.
    """
    if n >= len(items):
        return list(items)
    places: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        places[item.fields.get(group, "")].append(at)
    # the largest remainder method, as seats are given to parties
    shares = {name: n * len(own) / len(items) for name, own in places.items()}
    counts = {name: int(share) for name, share in shares.items()}
    left = n - sum(counts.values())
    for name in sorted(shares, key=lambda g: counts[g] - shares[g])[:left]:
        counts[name] += 1
    draw = Random(seed)  # noqa: S311 - seeded, not secret
    kept = {at for name, own in places.items() for at in draw.sample(own, counts[name])}
    return [item for at, item in enumerate(items) if at in kept]
