"""What an importer hands on: the rows of a run, one form whatever the file looked like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from kofn.errors import InputError
from kofn.sets import group_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.sets import Grouping, Ints

CASE_COLUMNS = ("reference", "choices", "input", "cluster", "weight", "required", "ideal")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Candidates grouped by case.

    candidates  a row a candidate, those of one case together; columns (where known): text, answer, reference,
                passed (Int8), score, cost, seconds, tokens, reasoning, error, facets, candidate_weight, and
                `selector.NAME` for each named selector score
    cases       a row a case: case_id, and reference, choices, input, cluster, weight, required, ideal where known
    tags        a row a case: every other field that is one value a case
    offsets     candidates of case i are rows offsets[i]:offsets[i+1]
    fields      role -> the name it had in the file
    """

    candidates: pl.DataFrame
    cases: pl.DataFrame
    tags: pl.DataFrame
    offsets: Ints
    fields: Mapping[str, str]
    form: str
    sources: tuple[str, ...] = ()

    @property
    def n_cases(self) -> int:
        return self.cases.height

    @property
    def n_candidates(self) -> int:
        return self.candidates.height


def from_rows(
    rows: pl.DataFrame,
    fields: Mapping[str, str],
    tag_names: list[str],
    where: Callable[[int], str],
    *,
    form: str,
    sources: tuple[str, ...],
) -> Table:
    """Group rows (columns named by role, `id` among them) into a table; case columns are those of the case's first row.

    A reference that is missing on some rows of a case is taken from the first row that has one. The same repeat
    index twice in a case is refused, at the place `where` names.
    """
    repeat = rows["repeat"] if "repeat" in rows.columns else None
    grouping = group_rows(rows["id"], repeat)
    if repeat is not None and (row := grouping.repeated(repeat)) is not None:
        raise InputError(
            f"{sources[0]}: {where(row)}: case {rows['id'][row]!r} has {fields['repeat']} {repeat[row]} twice: "
            "remove the copy or leave the field out"
        )
    if grouping.order is not None:
        rows = rows[grouping.order]
    if "reference" in rows.columns and rows["reference"].null_count():
        rows = rows.with_columns(_fill_within(rows["reference"], grouping).alias("reference"))
    starts = grouping.offsets[:-1]
    first = {c: rows[c].gather(starts) for c in (*CASE_COLUMNS, *tag_names) if c in rows.columns}
    return Table(
        candidates=rows.drop(["id", *(c for c in CASE_COLUMNS if c != "reference"), *tag_names], strict=False),
        cases=pl.DataFrame([grouping.case_ids, *(first[c] for c in CASE_COLUMNS if c in first)]),
        tags=pl.DataFrame([first[c] for c in tag_names if c in first]),
        offsets=grouping.offsets,
        fields=fields,
        form=form,
        sources=sources,
    )


def _fill_within(column: pl.Series, grouping: Grouping) -> pl.Series:
    frame = pl.DataFrame({"case": grouping.owner(), "value": column})
    first = frame.drop_nulls("value").unique("case", keep="first").rename({"value": "first"})
    joined = frame.join(first, on="case", how="left", maintain_order="left")
    return joined.select(pl.coalesce("value", "first")).to_series()
