"""candidates.parquet and cases.parquet: how they are written, their layout, and how other files refer to their texts.

reports.parquet repeats a column of texts while it is small. A large one is replaced in every row by a constant such as
`{"see":"candidates.parquet","column":"answer"}`: the rows there with the case_id of this row, in the order of `index`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from kofn.core.candidate_sets import offsets_of
from kofn.runs.files import CANDIDATES, CASES, digest, read_parquet
from kofn.runs.report_table import SCHEMA, encode_json, explode_structs, json_list, json_text, nest_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kofn.core.candidate_sets import Ints
    from kofn.scoring.result import ScoredResult


MAX_REPEATED = 200_000  # bytes of a column of texts that files beside candidates.parquet repeat


def write_tables(result: ScoredResult, directory: Path, more: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    """Write a run's Parquet files; the digest of each."""
    frames = {CANDIDATES: candidates_frame(result), CASES: cases_frame(result), **more}
    for name, frame in frames.items():
        frame.write_parquet(directory / name)
    return {name: digest(directory / name) for name in frames}


def candidates_frame(result: ScoredResult) -> pl.DataFrame:
    """A row a candidate: case_id, index, what was read, the answer, and score and passed a metric."""
    table = result.table
    sizes = np.diff(table.offsets)
    # these are stored per case (reference), per metric (passed) or as found (answer); the order is the repeat
    kept = [c for c in table.candidates.columns if c not in ("reference", "passed", "repeat", "answer")]
    columns = [
        table.cases["case_id"].gather(np.repeat(np.arange(len(sizes)), sizes)),
        pl.Series("index", np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes)),
        *table.candidates.select(kept).iter_columns(),
    ]
    first = result.scored[0].sets
    if first.answers is not None:
        columns.append(first.answers.alias("answer"))
    for one in result.scored:
        if one.metric:
            columns.append(pl.Series(f"score.{one.metric}", one.sets.values, nan_to_null=True))
            passed = pl.Series(f"passed.{one.metric}", one.sets.passes)
            columns.append((passed == 1).set(passed < 0, None))  # -1: not graded
    return pl.DataFrame(columns)


def cases_frame(result: ScoredResult) -> pl.DataFrame:
    """A row a case: its input, reference, tags, and the value of every aggregator under every metric."""
    table = result.table
    layout = layout_of(result)
    tags = [table.tags[name].alias(column) for name, column in layout["tags"].items()]
    values = [
        pl.Series(v["column"], result.case_values[v["metric"], v["aggregator"]], nan_to_null=True)
        for v in layout["values"]
    ]
    return pl.DataFrame([*table.cases.iter_columns(), *tags, *values])


def layout_of(result: ScoredResult) -> dict[str, Any]:
    """Which column of the files holds what: a tag may be called like an aggregator."""
    table = result.table
    values = [
        {"metric": metric, "aggregator": name, "column": f"{metric}.{name}" if metric else name}
        for metric, name in result.case_values
    ]
    return {
        "case_columns": table.cases.columns,
        "tags": _free_names(table.tags.columns, {*table.cases.columns, *(v["column"] for v in values)}),
        "values": values,
        "metrics": [
            {
                "metric": one.metric,
                "source": one.source,
                "beside_labels": one.beside_labels,
                "higher_is_better": one.sets.higher_is_better,
            }
            for one in result.scored
        ],
    }


def _free_names(names: Sequence[str], taken: set[str]) -> dict[str, str]:
    """A column for every name: its own where that is free.

    >>> _free_names(["a", "b", "tag.a"], {"a"})
    {'a': 'tag.tag.a', 'b': 'b', 'tag.a': 'tag.a'}
    """
    used = taken | {name for name in names if name not in taken}
    found = {}
    for name in names:
        column = name
        # "tag." until it is free: a tag may itself be called "tag.a"
        while name in taken and column in used:
            column = f"tag.{column}"
        used.add(column)
        found[name] = column
    return found


class _Place(NamedTuple):
    """A field of reports.parquet, and the column that it repeats: in `results` of every attribute, in `case` of one."""

    column: str
    field: str
    attribute: str | None
    file: str
    source: str

    @property
    def reference(self) -> str:
        return str(encode_json(reference_to(self.file, self.source)))


_PLACES = (
    _Place("results", "actual", None, CANDIDATES, "answer"),
    _Place("results", "expected", None, CASES, "reference"),
    _Place("case", "value", "input", CASES, "input"),
)


def reference_to(file: str, column: str) -> dict[str, str]:
    """What stands in place of a text that another file holds."""
    return {"see": file, "column": column}


def is_large(column: pl.Series | None) -> bool:
    """Whether a column of texts, or of lists of texts, is referred to instead of repeated.

    >>> is_large(pl.Series(["short"])), is_large(pl.Series(["long " * 100] * 3000)), is_large(pl.Series([1, 2]))
    (False, True, False)
    """
    if column is None:
        return False
    if column.dtype == pl.List(pl.String):
        column = column.explode()
    return column.dtype == pl.String and int(column.str.len_bytes().sum()) > MAX_REPEATED


def with_references(reports: pl.DataFrame, answers: pl.Series | None, cases: pl.DataFrame) -> pl.DataFrame:
    """Case reports as reports.parquet keeps them, of a run with these answers of candidates and these cases."""
    columns = {(CANDIDATES, "answer"): answers}
    columns |= {(CASES, name): cases[name] for name in ("reference", "input") if name in cases.columns}
    for place in _PLACES:
        if is_large(columns.get((place.file, place.source))):
            constant = pl.repeat(place.reference, reports.height, eager=True)
            reports = _replace(reports, place, constant, only_references=False)
    return reports


def with_texts(reports: pl.DataFrame, answers: pl.Series | None, offsets: Ints, cases: pl.DataFrame) -> pl.DataFrame:
    """Case reports with the texts that they refer to, of these answers and cases in the order of the reports."""
    for place in _referring(reports):
        if place.file == CANDIDATES:
            assert answers is not None
            values = json_list(answers, offsets)
        else:
            values = json_text(cases[place.source])
        reports = _replace(reports, place, values, only_references=True)
    return reports


def with_stored_texts(reports: pl.DataFrame, directory: Path) -> pl.DataFrame:
    """The same, the texts read from the files of the run."""
    places = _referring(reports)
    if not places:
        return reports
    cases, _ = read_parquet(directory / CASES, columns=["case_id", *_columns(places, CASES)])
    answers, sizes = None, np.zeros(cases.height, dtype=np.int64)
    if _columns(places, CANDIDATES):
        candidates, _ = read_parquet(directory / CANDIDATES, columns=["case_id", "answer"])
        answers = candidates["answer"]
        counts = candidates.group_by("case_id", maintain_order=True).len()
        known = cases.select("case_id").join(counts, on="case_id", how="left", maintain_order="left")
        sizes = known["len"].fill_null(0).to_numpy().astype(np.int64)
    return with_texts(reports, answers, offsets_of(sizes), cases)


def _columns(places: Sequence[_Place], file: str) -> list[str]:
    return [place.source for place in places if place.file == file]


def _referring(reports: pl.DataFrame) -> list[_Place]:
    """The fields that hold references: all rows of a field do, or none."""
    first = reports.head(1)
    return [place for place in _PLACES if explode_structs(first, place.column)[place.field].eq(place.reference).any()]


def _replace(reports: pl.DataFrame, place: _Place, values: pl.Series, *, only_references: bool) -> pl.DataFrame:
    """One field of the structs in a column of lists, by a value of each row."""
    flat = explode_structs(reports, place.column)
    wanted: Any = pl.lit(value=True) if place.attribute is None else pl.col("attribute") == place.attribute
    if only_references:
        wanted &= pl.col(place.field) == place.reference
    new = values.gather(flat["row"])
    flat = flat.with_columns(pl.when(wanted).then(new).otherwise(pl.col(place.field)).alias(place.field))
    nested = nest_rows(flat.drop("row"), flat["row"], reports.height)
    return reports.with_columns(nested.alias(place.column)).cast({place.column: SCHEMA[place.column]})
