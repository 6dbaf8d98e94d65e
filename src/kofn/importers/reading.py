"""Files, folders, patterns, addresses, standard input or frames as one table: the importer of each, tables merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from kofn.core.candidate_sets import histogram, offsets_of
from kofn.core.fields import GROUP_LISTS, PREFIXES, SELECTORS, long_fields, wide_names
from kofn.core.table import CASE_COLUMNS, from_rows
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName
from kofn.importers import jsonl
from kofn.importers.base import ReadOptions, reject_damaged
from kofn.importers.long_form import NUMBERED, check_named_fields, constant_columns, filter_cases, long_table
from kofn.importers.recognition import Peek
from kofn.importers.sources import PLAIN, SEPARATOR_LINE, SEPARATORS, check_readable, expand, kind_of, local
from kofn.registry import importers

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Sequence

    from kofn.core.table import Table
    from kofn.importers.base import Importer

_EXAMPLES = 3
_USUAL = 0.5  # sets are reported as incomplete only where at least this share of all has the largest size

# --- several tables as one: more candidates of the same cases, more cases, or repeats of one run


def combine(tables: Sequence[Table], options: ReadOptions) -> Table:
    """One table of several: rows appended file after file.

    Logs of several tasks number their cases alike, so their ids are prefixed with the task. Logs of several models are
    not one system, and are refused. The log of a second attempt repeats what succeeded in the first: it counts once.
    """
    tables, notes = _without_superseded(tables)
    models = {str(table.origin["model"]): table for table in tables if table.origin.get("model")}
    if len(models) > 1:
        (one, first), (two, second) = list(models.items())[:2]
        advice = "score each by itself (kofn compare compares them), or give --as-repeats where they are one system"
        raise InputError(
            f"{second.sources[0]}: outputs of {two}, where {first.sources[0]} has those of {one}: {advice}"
        )
    if len({str(table.origin["task"]) for table in tables if table.origin.get("task")}) > 1:
        tables = [_with_task_ids(table) for table in tables]
    whole = concatenate(tables, options)
    return replace(whole, notes=(*notes, *whole.notes))


def _without_superseded(tables: Sequence[Table]) -> tuple[list[Table], list[CodedWarning]]:
    """Tables without the rows that a later attempt of the same run has too, and notes on it."""
    out: list[Table] = []
    notes: list[CodedWarning] = []
    for at, table in enumerate(tables):
        run = table.origin.get("attempt_of")
        others = [(place, one) for place, one in enumerate(tables) if run and one.origin.get("attempt_of") == run]
        age = (str(table.origin.get("created")), at)
        kept = table
        if later := [one for place, one in others if (str(one.origin.get("created")), place) > age]:
            rows = ~_keys(table).is_in(pl.concat(map(_keys, later)).unique().implode())
            # reduceat would give a wrong sum for an empty set, but a log has rows alone, and so no empty sets
            sizes = np.add.reduceat(rows.cast(pl.Int64).to_numpy(), table.offsets[:-1])
            kept = replace(table, candidates=table.candidates.filter(rows), offsets=offsets_of(sizes))
            kept = kept.select_cases(sizes > 0)
        if lost := table.n_candidates - kept.n_candidates:
            notes.append(CodedWarning.of("superseded-rows", file=table.sources[0], n=lost))
        out += [kept] if kept.n_candidates else []
    return out, notes


def _keys(table: Table) -> pl.Series:
    """Case and repeat of every candidate, as one text."""
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    cases = pl.DataFrame({"case": table.cases["case_id"].gather(owner), "repeat": table.candidates["repeat"]})
    return cases.select(pl.concat_str(pl.all(), separator="\0")).to_series()


def _with_task_ids(table: Table) -> Table:
    """A table whose ids are prefixed with the task, and the task as a tag to segment by."""
    task = str(table.origin.get("task", ""))
    ids = table.cases.select(pl.concat_str(pl.lit(f"{task}/"), pl.col("case_id"))).to_series().alias("case_id")
    tags = table.tags
    if "task" not in tags.columns:
        tags = pl.DataFrame([*tags.iter_columns(), pl.Series("task", [task]).new_from_index(0, table.n_cases)])
    return replace(table, cases=table.cases.with_columns(ids), tags=tags)


def combine_repeats(tables: Sequence[Table], options: ReadOptions) -> Table:
    """Files as repeats of the same cases, matched by id, or by place where they have none.

    Without ids files of unequal length are refused: nothing says which rows belong together.
    """
    numbered = [table for table in tables if table.fields.get("id") in (None, NUMBERED)]
    if 0 < len(numbered) < len(tables):
        other = next(table for table in tables if table.fields.get("id") not in (None, NUMBERED))
        one, two = numbered[0].sources[0], other.sources[0]
        raise InputError(f"as repeats: {one} has no ids and {two} has: give every row the id of its case")
    if len(numbered) == len(tables) and len({table.n_cases for table in tables}) > 1:
        sizes = ", ".join(f"{table.sources[0]} has {table.n_cases:,}" for table in tables)
        raise InputError(f"as repeats: {sizes} cases: without ids rows are matched by place, so give each row its id")
    every = pl.concat([table.cases["case_id"] for table in tables]).unique()
    notes = []
    for table in tables:
        if n_missing := len(every) - table.n_cases:
            missing = every.filter(~every.is_in(table.cases["case_id"].implode())).sort()[:_EXAMPLES]
            file, cases = table.sources[0], tuple(missing)
            notes.append(CodedWarning.of("file-lacks-cases", file=file, n=n_missing, of=len(every), cases=cases))
    whole = concatenate(tables, options)
    if whole.n_cases == whole.n_candidates and len(tables) > 1:
        one, two = tables[0].sources[0], tables[1].sources[0]
        raise InputError(f"as repeats: no case of {one} is in {two}: their ids differ everywhere")
    return replace(whole, notes=(*whole.notes, *notes))


def concatenate(tables: Sequence[Table], options: ReadOptions) -> Table:
    """One table of several, rows appended file after file; files with the same content count twice, with a note."""
    frames, tags = [], dict[str, None]()
    for table in tables:
        rows = table.candidates.drop("repeat", strict=False)  # each file counts from the first: they would be copies
        owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
        own = [c for c in CASE_COLUMNS if c in table.cases.columns and c != "reference"]
        cases = pl.concat([table.cases.select(pl.col("case_id").alias("id"), *own), table.tags], how="horizontal")
        frames.append(pl.concat([cases[owner], rows], how="horizontal"))
        tags.update(dict.fromkeys(table.tags.columns))
    merged = pl.concat(frames, how="diagonal_relaxed")
    fields = {role: name for table in reversed(tables) for role, name in table.fields.items()}
    ends = np.cumsum([table.n_candidates for table in tables])
    names = [table.sources[0] for table in tables]
    table = from_rows(
        merged,
        fields,
        list(tags),
        lambda row: names[int(np.searchsorted(ends, row, side="right"))],
        form=" and ".join(dict.fromkeys(table.form for table in tables)),
        sources=tuple(source for table in tables for source in table.sources),
        constant=constant_columns(options, fields),
        notes=(*(note.about(t.sources[0]) for t in tables for note in t.notes), *_duplicate_file_notes(tables)),
    )
    labels = {name: better for table in reversed(tables) for name, better in table.labels.items()}
    shared = {k: v for k, v in tables[0].origin.items() if all(one.origin.get(k) == v for one in tables)}
    return replace(table, labels=labels, origin=shared)


def _duplicate_file_notes(tables: Sequence[Table]) -> Iterator[CodedWarning]:
    """A note for each file with the same candidates as an earlier one: a copy, a cache, or temperature 0."""
    for i, table in enumerate(tables):
        compared = [c for c in ("text", "answer", "score", "passed") if c in table.candidates.columns]
        for other in tables[:i]:
            if (
                table.n_candidates == other.n_candidates
                and table.cases["case_id"].equals(other.cases["case_id"])
                and set(table.candidates.columns) == set(other.candidates.columns)
                and table.candidates.select(compared).equals(other.candidates.select(compared))
            ):
                yield CodedWarning.of("same-file-twice", a=table.sources[0], b=other.sources[0])
                break


def with_size_note(table: Table) -> Table:
    """The table, with a note where most sets have one size and the rest fewer: repeats are missing there."""
    sizes = np.diff(table.offsets)
    some = tuple(table.cases["case_id"].filter(sizes < sizes.max(initial=0))[:_EXAMPLES])
    note = short_sets(histogram(sizes), some)
    return table if note is None else replace(table, notes=(*table.notes, note))


def short_sets(sizes: Counter[int], cases: tuple[str, ...] = ()) -> CodedWarning | None:
    """A note where most sets have the largest size and the rest are smaller, from the number of sets of each size.

    >>> from collections import Counter
    >>> str(short_sets(Counter({8: 99, 7: 1})))
    '1 of 100 cases have 7 of 8 repeats'
    """
    usual, n = max(sizes, default=0), sizes.total()
    short = n - sizes[usual]
    others = [count for size, count in sizes.items() if size != usual]
    if not short or sizes[usual] < _USUAL * n or sizes[usual] <= max(others):
        return None
    return CodedWarning.of("uneven-sets", n=short, of=n, least=min(sizes), usual=usual, cases=cases)


# --- reading


def read(
    paths: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    as_repeats: bool = False,
    of_run: Callable[[Path], Table | None] = lambda _: None,
) -> Table:
    """Read files, folders, patterns, addresses or standard input into one table.

    Candidates of the same id in several files are one set. With `as_repeats` the files are repeats of the same cases:
    rows without an id are matched by their place, and cases that some files lack are noted. `of_run` gives the table of
    a folder that holds a stored run, and None of any other.
    """
    options = options or ReadOptions()
    options = replace(options, keep=tuple(dict.fromkeys((*options.keep, *options.where))))
    if not paths:
        raise InputError("no files given")
    places = expand(paths)
    seen: set[str] = set()
    for place in places:
        real = place if "://" in place else str(Path(place).resolve())
        if real in seen:
            raise InputError(f"{place}: given twice: its candidates would count twice")
        seen.add(real)
    if as_repeats:
        if len(places) < 2:
            raise InputError(f"{places[0]}: one file is no repeats: give two or more files")
        tables = [_read_place(place, replace(options, by_line=True), of_run) for place in places]
        return with_size_note(combine_repeats(tables, options))
    tables = [_read_place(place, options, of_run) for place in places]
    return with_size_note(tables[0] if len(tables) == 1 else combine(tables, options))


def _read_place(place: str, options: ReadOptions, of_run: Callable[[Path], Table | None]) -> Table:
    if "://" not in place and Path(place).is_dir() and (table := of_run(Path(place))) is not None:
        return filter_cases(replace(table, sources=(place,), form="run"), options)
    with local(place) as (path, name):
        return replace(_read_file(Peek(path, name), options), sources=(name,))


def _read_file(peek: Peek, options: ReadOptions) -> Table:
    check_readable(peek.path)
    importer = importer_of(peek, options.format)
    if importer is not None:
        return importer.read(peek, options)
    kind = options.format if options.format in PLAIN else kind_of(peek.path)
    if kind == "parquet":
        table = read_parquet(peek.path, options)
    elif kind in SEPARATORS:
        # with --format csv the content may look like JSON, which has no separator: then it is a comma
        table = read_csv(peek.path, options, SEPARATORS.get(kind_of(peek.path), ","))
    else:
        table = jsonl.read(peek.path, options)
    return filter_cases(table, options)


def importer_of(peek: Peek, name: str | None = None) -> Importer | None:
    """The importer named, or the one that recognises this content; None for plain JSON lines, CSV or Parquet."""
    if name in PLAIN:
        return None
    known: dict[str, Importer] = importers()
    if name is not None:
        if name not in known:
            raise UnknownName("format", name, [*PLAIN, *known], hint="`kofn list importers` shows them all")
        return known[name]
    return next((one for one in known.values() if one.recognises(peek)), None)


# --- CSV, Parquet and data frames: one row per candidate, or per case with a list of outputs


def read_csv(path: Path, options: ReadOptions, separator: str = ",") -> Table:
    """Read CSV; every cell is text until its field's role says otherwise, so 007 stays 007."""
    with path.open("rb") as file:
        first = file.readline(16).removeprefix(b"\xef\xbb\xbf").strip(b"\r\n")  # room for a BOM and "sep=;"
    try:
        skipped = 1 if SEPARATOR_LINE.fullmatch(first) else 0
        raw = pl.read_csv(path, infer_schema=False, separator=separator, skip_lines=skipped)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as problem:
        detail = _not_utf8(path) or f"not readable as CSV: {str(problem).strip().partition(chr(10))[0]:.160}"
        raise InputError(f"{path}: {detail}") from None
    selectors = [c for c in raw.columns if c in SELECTORS]  # those called label. or selector. are numbers or an error
    raw = raw.with_columns([pl.col(c).cast(pl.Float64, strict=False) for c in selectors])
    return table_from_frame(raw, str(path), options, "csv")


def read_parquet(path: Path, options: ReadOptions) -> Table:
    """Read Parquet, only the columns that mean something here unless everything is wanted."""
    with reject_damaged(str(path)):
        columns = pl.read_parquet_schema(path)
        check_named_fields(columns, str(path), options)
        wide = any(isinstance(columns.get(name), pl.List) for name in wide_names(options.fields))
        raw = pl.read_parquet(path, columns=None if wide else needed_columns(list(columns), options))
    return table_from_frame(raw, str(path), options, "parquet")


def needed_columns(columns: list[str], options: ReadOptions) -> list[str]:
    """The columns that mean something here; all where everything is wanted."""
    if options.everything:
        return columns
    roles = {name for role, name in long_fields(columns, options.fields).items() if role != "input"}
    return [c for c in columns if c in roles or c in options.keep or c in SELECTORS or c.startswith(PREFIXES)]


def table_from_frame(raw: pl.DataFrame, source: str, options: ReadOptions, form: str) -> Table:
    """A table from a frame: a row a candidate, or a row a case with a list of outputs."""
    if not raw.height:
        raise InputError(f"{source}: no rows")
    check_named_fields(raw.columns, source, options)
    lists = (*wide_names(options.fields), *GROUP_LISTS)
    if any(isinstance(raw.schema.get(name), pl.List) for name in lists):
        return jsonl.read_records(raw.iter_rows(named=True), options, source)
    return long_table(raw, source, lambda row: f"row {row + 1}", options, form)


def _not_utf8(path: Path) -> str | None:
    """Which line is not UTF-8, if that is what is wrong."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f"line {number}: not UTF-8: save the file as UTF-8"
    return None
