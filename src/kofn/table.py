"""What an importer hands on: the rows of a run, one form whatever the file looked like."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.errors import InputError
from kofn.sets import group_rows, offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from kofn.sets import Grouping, Ints

    Bools = NDArray[np.bool_]

CASE_COLUMNS = ("reference", "choices", "input", "cluster", "weight", "required", "ideal")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Candidates grouped by case.

    candidates  a row a candidate, those of one case together; columns (where known): text, answer, reference,
                passed (Int8), score, cost, seconds, tokens, reasoning, error, facets, candidate_weight,
                `selector.NAME` for each named selector score, and `label.NAME` for each grade another tool gave
    cases       a row a case: case_id, and reference, choices, input, cluster, weight, required, ideal where known
    tags        a row a case: every other field that is one value a case
    offsets     candidates of case i are rows offsets[i]:offsets[i+1]
    fields      role -> the name it had in the file
    labels      NAME of each `label.NAME` -> whether more of it is better
    told        what a reader noticed, a line each: what it left out, what looks wrong
    origin      where a log came from, where it says so: tool, task, model, version, ...
    """

    candidates: pl.DataFrame
    cases: pl.DataFrame
    tags: pl.DataFrame
    offsets: Ints
    fields: Mapping[str, str]
    form: str
    sources: tuple[str, ...] = ()
    labels: Mapping[str, bool] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_cases(self) -> int:
        return self.cases.height

    @property
    def n_candidates(self) -> int:
        return self.candidates.height

    def truncate(self, k: int) -> Table:
        """The first k candidates of every case."""
        sizes = np.diff(self.offsets)
        keep = np.arange(self.n_candidates) - np.repeat(self.offsets[:-1], sizes) < k
        return replace(self, candidates=self.candidates.filter(keep), offsets=offsets_of(np.minimum(sizes, k)))

    def of_cases(self, kept: Bools) -> Table:
        """The cases where `kept` is true, with all their candidates."""
        sizes = np.diff(self.offsets)
        return replace(
            self,
            candidates=self.candidates.filter(np.repeat(kept, sizes)),
            cases=self.cases.filter(kept),
            tags=self.tags.filter(kept) if self.tags.width else self.tags,
            offsets=offsets_of(sizes[kept]),
        )


def from_rows(
    rows: pl.DataFrame,
    fields: Mapping[str, str],
    tag_names: list[str],
    where: Callable[[int], str],
    *,
    form: str,
    sources: tuple[str, ...],
    constant: Iterable[str] = (),
    labels: Mapping[str, bool] | None = None,
    told: tuple[str, ...] = (),
    origin: Mapping[str, Any] | None = None,
) -> Table:
    """Group rows (columns named by role, `id` among them) into a table; case columns are those of the case's first row.

    A reference that is missing on some rows of a case is taken from the first row that has one. Of the same repeat
    index twice in a case the second is dropped, and told, where the rows are equal; else it is refused, and so is a
    second value of the reference or of a column in `constant`; `where` names the place of a row.
    """
    repeat = rows["repeat"] if "repeat" in rows.columns else None
    grouping = group_rows(rows["id"], repeat)
    if repeat is not None and (row := grouping.repeated(repeat)) is not None:
        kept, at, line = _without_copies(rows)
        if line is None:
            said = f"case {rows['id'][row]!r} has {fields['repeat']} {repeat[row]} twice, with other values"
            raise InputError(f"{where(row)}: {said}: remove one or leave the field out")
        return from_rows(
            kept,
            fields,
            tag_names,
            lambda row: where(int(at[row])),
            form=form,
            sources=sources,
            constant=constant,
            labels=labels,
            told=(*told, line),
            origin=origin,
        )
    if grouping.order is not None:
        rows = rows[grouping.order]
    if "reference" in rows.columns and rows["reference"].null_count():
        rows = rows.with_columns(_fill_within(rows["reference"], grouping).alias("reference"))
    starts = grouping.offsets[:-1]
    first = {c: rows[c].gather(starts) for c in (*CASE_COLUMNS, *tag_names) if c in rows.columns}
    for name in dict.fromkeys(("reference", *constant)):
        if name in first:
            _check_constant(fields.get(name, name), rows[name], first[name], grouping, where)
    return Table(
        candidates=rows.drop(["id", *(c for c in CASE_COLUMNS if c != "reference"), *tag_names], strict=False),
        cases=pl.DataFrame([grouping.case_ids, *(first[c] for c in CASE_COLUMNS if c in first)]),
        tags=pl.DataFrame([first[c] for c in tag_names if c in first]),
        offsets=grouping.offsets,
        fields=fields,
        form=form,
        sources=sources,
        labels=labels or {},
        told=told,
        origin=origin or {},
    )


def _without_copies(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, str | None]:
    """Rows without those that are there again word for word, which row each was, and a line about it.

    Only rows with a repeat index can be told from repeats that say the same.
    """
    alone = pl.when(pl.col("repeat").is_null()).then(pl.col("at")).alias("alone")
    marked = rows.with_row_index("at").with_columns(alone)
    same = marked.select(*rows.columns, "alone")
    kept = marked.unique(same.columns, keep="first", maintain_order=True)
    if kept.height == rows.height:
        return rows, marked["at"], None
    line = copies_told(rows.height - kept.height, rows["id"].filter(same.is_duplicated()))
    return kept.drop("at", "alone"), kept["at"], line


def copies_told(n: int, ids: pl.Series) -> str:
    """What there is to say about rows that are there again, word for word.

    >>> copies_told(2, pl.Series(["a", "a", "b"]))
    '2 rows are there twice, word for word (case a, b): a resumed log? they count once'
    """
    named = ", ".join(ids.unique(maintain_order=True)[:3])
    rows, they = ("1 row is", "it counts") if n == 1 else (f"{n:,} rows are", "they count")
    return f"{rows} there twice, word for word (case {named}): a resumed log? {they} once"


def _check_constant(
    name: str, column: pl.Series, first: pl.Series, grouping: Grouping, where: Callable[[int], str]
) -> None:
    """Refuse a case with two values of what a case has one of: most often two cases under one id."""
    owner = grouping.owner()
    differs = column.hash().to_numpy() != first.hash().to_numpy()[owner]
    if not differs.any():
        return
    row = int(differs.argmax())
    case = int(owner[row])
    place = row if grouping.order is None else int(grouping.order[row])
    here, before = (str(v.to_list() if isinstance(v, pl.Series) else v)[:40] for v in (column[row], first[case]))
    raise InputError(
        f"{where(place)}: case {grouping.case_ids[case]!r} has {name} {here!r} here and {before!r} before: "
        f"a case has one {name}; are these two cases, or several models, under one id?"
    )


def _fill_within(column: pl.Series, grouping: Grouping) -> pl.Series:
    frame = pl.DataFrame({"case": grouping.owner(), "value": column})
    first = frame.drop_nulls("value").unique("case", keep="first").rename({"value": "first"})
    joined = frame.join(first, on="case", how="left", maintain_order="left")
    return joined.select(pl.coalesce("value", "first")).to_series()
