"""The table that importers return: candidates grouped by case, whatever the file looked like."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.candidate_sets import group_rows, offsets_of
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats, Grouping, Ints

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
    notes       what a reader noticed: what it left out, what looks wrong
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
    notes: tuple[CodedWarning, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_cases(self) -> int:
        return self.cases.height

    @property
    def n_candidates(self) -> int:
        return self.candidates.height

    @property
    def owner(self) -> Ints:
        """The place of each candidate's case."""
        return np.repeat(np.arange(self.n_cases), np.diff(self.offsets))

    def truncate(self, k: int) -> Table:
        """The first k candidates of every case."""
        sizes = np.diff(self.offsets)
        keep = np.arange(self.n_candidates) - np.repeat(self.offsets[:-1], sizes) < k
        return replace(self, candidates=self.candidates.filter(keep), offsets=offsets_of(np.minimum(sizes, k)))

    def select_cases(self, kept: Bools) -> Table:
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
    notes: tuple[CodedWarning, ...] = (),
) -> Table:
    """Group rows (columns named by role, `id` among them) into a table; case columns are those of the case's first row.

    A reference that is missing on some rows of a case is taken from the first row that has one. Of the same repeat
    index twice in a case the second is dropped, with a note, where the rows are equal; else it is refused, and so is a
    second value of the reference or of a column in `constant`; `where` names the place of a row.
    """
    repeat = rows["repeat"] if "repeat" in rows.columns else None
    grouping = group_rows(rows["id"], repeat)
    if repeat is not None and (row := grouping.find_duplicate(repeat)) is not None:
        kept, at, line = _drop_duplicates(rows)
        if line is None:
            said = f"case {rows['id'][row]!r} has {fields['repeat']} {repeat[row]} twice, with other values"
            raise InputError(f"{where(row)}: {said}: remove one or leave the field out")
        # once more without the duplicates: the grouping was made of other rows
        return from_rows(
            kept,
            fields,
            tag_names,
            lambda row: where(int(at[row])),
            form=form,
            sources=sources,
            constant=constant,
            notes=(*notes, line),
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
        notes=notes,
    )


def _drop_duplicates(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series, CodedWarning | None]:
    """Rows without those that are there again word for word, which row each was, and a line about it.

    Only rows with a repeat index can be distinguished from repeats that say the same.
    """
    # a row without a repeat index carries its own number and so equals no other
    alone = pl.when(pl.col("repeat").is_null()).then(pl.col("at")).alias("alone")
    marked = rows.with_row_index("at").with_columns(alone)
    same = marked.select(*rows.columns, "alone")
    kept = marked.unique(same.columns, keep="first", maintain_order=True)
    if kept.height == rows.height:
        return rows, marked["at"], None
    line = duplicates_note(rows.height - kept.height, rows["id"].filter(same.is_duplicated()))
    return kept.drop("at", "alone"), kept["at"], line


def duplicates_note(n: int, ids: pl.Series) -> CodedWarning:
    """What there is to say about rows that are there again, word for word.

    >>> str(duplicates_note(2, pl.Series(["a", "a", "b"])))
    '2 rows are there twice, word for word (case a, b): a resumed log? they count once'
    """
    return CodedWarning.of("duplicate-rows", n=n, cases=tuple(ids.unique(maintain_order=True)[:3]))


def _check_constant(
    name: str, column: pl.Series, first: pl.Series, grouping: Grouping, where: Callable[[int], str]
) -> None:
    """Refuse a case with two values of what a case has one of: most often two cases under one id."""
    owner = grouping.owner()
    # hashes compare lists, texts and nulls alike, in one pass
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


def case_column(table: Table, name: str) -> pl.Series:
    """A field that is one value a case, by its name in the file or by its role."""
    role = next((role for role, field_name in table.fields.items() if field_name == name), name)
    role = "case_id" if role == "id" else role
    for frame in (table.tags, table.cases):
        if role in frame.columns:
            return frame[role]
    if role in table.candidates.columns:
        raise InputError(f"field {name!r} is one value a candidate: expected one value a case")

    raise UnknownName("field", name, [*table.tags.columns, *table.fields.values()])


def segment_names(table: Table, name: str) -> list[str]:
    """The segment of every case by a field; "(none)" where the field is null."""
    column = case_column(table, name)
    if column.dtype.is_nested():
        raise InputError(f"field {name!r} holds lists or objects: expected one plain value a case")
    return segment_labels(column)


def segment_labels(column: pl.Series) -> list[str]:
    """Values as names of segments."""
    import polars as pl

    if column.dtype.is_float() and bool((column.drop_nulls() % 1 == 0).all()):
        column = column.cast(pl.Int64, strict=False)  # whole numbers are read as numbers; a name has no ".0"
    names: list[str | None] = column.cast(pl.String).to_list()
    return ["(none)" if n is None else n for n in names]


def case_codes(table: Table, name: str | None) -> Any:
    """Clusters as integers; a case without one is a cluster of its own."""
    if name is None:
        return None
    import polars as pl

    column = case_column(table, name).cast(pl.String)
    codes = column.rank("dense").cast(pl.Int64).to_numpy().astype(np.float64)
    alone = np.isnan(codes)
    # -1, -2, ...: codes that no rank has, one for each case without a cluster
    codes[alone] = -1.0 - np.arange(int(alone.sum()))
    return codes.astype(np.int64)


def case_numbers(table: Table, name: str | None) -> Floats | None:
    """Weights: finite and not negative, one a case."""
    if name is None:
        return None
    import polars as pl

    column = case_column(table, name)
    numbers = column.cast(pl.Float64, strict=False)
    # text that is not a number became null in the cast
    bad = (numbers.is_null() | ~numbers.is_finite() | (numbers < 0)).fill_null(value=True)
    if bad.any():
        at = int(bad.arg_true()[0])
        raise InputError(
            f"field {name!r}: case {table.cases['case_id'][at]!r}: expected a weight of 0 or more, found {column[at]!r}"
        )
    if not (numbers > 0).any():
        raise InputError(f"field {name!r}: every weight is 0")
    return numbers.to_numpy()
