"""Labels from a file: one row per case or candidate, with the label of people and the verdict of the judge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.analysis.selectors import Selector
from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.document import Displayable
from kofn.core.fields import CASE_ROLES
from kofn.errors import InputError
from kofn.importers import SEPARATORS, kind_of
from kofn.importers.base import reject_damaged
from kofn.importers.scalars import FALSE, TRUE
from kofn.registry import aggregator
from kofn.runs.load import load_graded, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import CandidateSets
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.grade import Graded


ROLES: dict[str, tuple[str, ...]] = {
    "id": CASE_ROLES["id"],
    "index": ("index", "candidate", "candidate_index", "repeat"),
    "human": ("human", "label", "human_label", "person"),
    "judge": ("judge", "verdict", "judge_verdict"),
    "weight": ("weight",),
    "cluster": ("cluster",),
    "segment": ("segment",),
    "annotator": ("annotator", "annotator_id", "labeller", "rater", "by"),
}
DANGEROUS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a cell that begins so for a formula
_EMPTY = ("", "null", "none", "nan", "n/a")
_MOSTLY = 0.5  # values that are numbers and no verdicts, from which a column holds scores


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRows:
    """Things with verdicts or scores, one entry a row.

    human is None where nobody was asked (rows of a judge alone); NaN: not labelled. judge is None where the file says
    nothing of a judge; NaN: not graded. indices: the candidate's place, None where the row is about a whole set.
    scores: the values are scores, not verdicts. votes: where several annotators labelled, their labels, one row per
    thing and one column per annotator (NaN: none); `human` is then their majority (of scores the mean), NaN in a tie.
    """

    source: str
    ids: tuple[str, ...]
    indices: tuple[int, ...] | None = None
    human: NDArray[np.float64] | None = None
    judge: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None = None
    clusters: tuple[str | None, ...] | None
    fields: Mapping[str, tuple[str | None, ...]]
    scores: bool = False
    annotators: tuple[str, ...] = ()
    votes: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def human_values(self) -> NDArray[np.float64]:
        """What people said, of rows that they were asked about."""
        assert self.human is not None
        return self.human

    @property
    def judge_values(self) -> NDArray[np.float64]:
        """What the judge said, of rows that have a judge."""
        assert self.judge is not None
        return self.judge

    @property
    def tied(self) -> NDArray[np.bool_]:
        """The rows that annotators labelled, as many passing as failing."""
        if self.votes is None:
            return np.zeros(len(self), dtype=bool)
        return np.isnan(self.human_values) & np.isfinite(self.votes).any(axis=1)

    @property
    def of_candidates(self) -> bool:
        """Whether several rows are of one case: they have a place, or an id is there more than once."""
        return self.indices is not None or len(set(self.ids)) < len(self.ids)

    def things(self) -> list[tuple[str, int | None]]:
        """What a row is about: a case, or one of its candidates."""
        return list(zip(self.ids, self.indices or (None,) * len(self.ids), strict=True))

    def units(self) -> list[object] | None:
        """What is resampled together: the named cluster, else the case where it has several rows; None: each row."""
        if self.clusters is None:
            return list(self.ids) if self.of_candidates else None
        unclustered = self.ids if self.of_candidates else (None,) * len(self.ids)
        return [("cluster", c) if c is not None else unit for c, unit in zip(self.clusters, unclustered, strict=True)]

    def take(self, at: NDArray[np.intp]) -> LabelRows:
        """Some of the rows, in this order."""
        some = at.tolist()

        def of(column: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
            return None if column is None else column[at]

        return replace(
            self,
            ids=tuple(self.ids[i] for i in some),
            indices=None if self.indices is None else tuple(self.indices[i] for i in some),
            human=of(self.human),
            judge=of(self.judge),
            weights=of(self.weights),
            clusters=None if self.clusters is None else tuple(self.clusters[i] for i in some),
            fields={name: tuple(column[i] for i in some) for name, column in self.fields.items()},
            votes=of(self.votes),
        )


def read_labels(source: Any, threshold: float | None = None) -> LabelRows:
    """Labels from JSON lines, CSV, Parquet, rows or a frame, or from several files, one per annotator.

    Columns: id, human, and judge, index, segment, cluster, weight, annotator.
    human and judge are 0/1, true/false, pass/fail, yes/no, or scores; `threshold` makes scores verdicts. An empty
    human is not labelled yet; one that cannot be read is refused. A judge that says neither is not graded. With several
    annotators the label of a row is their majority (of scores the mean); a tie is no label, and is counted.
    """
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, Path)) for one in source):
        if len(source) > 1:
            return _rows_of_files([Path(one) for one in source], threshold)
        source = source[0]
    name = str(source) if isinstance(source, (str, Path)) else "labels"
    return by_majority(_rows(list(_records(source)), name, threshold, needed=("id", "human")))


def _rows_of_files(paths: Sequence[Path], threshold: float | None) -> LabelRows:
    """The rows of several files; those without an annotator take the name of their file."""
    records = []
    for path in paths:
        rows = list(_records(path))
        named = "annotator" in _columns([row for _, row in rows])
        records += [(f"{path}: {place}", row if named else {**row, "annotator": path.name}) for place, row in rows]
    return by_majority(_rows(records, " ".join(map(str, paths)), threshold, needed=("id", "human"), placed=True))


def by_majority(rows: LabelRows) -> LabelRows:
    """One row per thing: several annotators' labels of it become their majority, in the order of the file.

    >>> rows = [{"id": "q1", "human": h, "annotator": a} for a, h in (("Ann", 1), ("Ben", 0), ("Cleo", 1))]
    >>> found = read_labels(rows)
    >>> found.human_values.tolist(), found.annotators, found.votes.tolist()
    ([1.0], ('Ann', 'Ben', 'Cleo'), [[1.0, 0.0, 1.0]])
    """
    if not rows.annotators:
        return rows
    names = tuple(dict.fromkeys(rows.annotators))
    first: dict[tuple[str, int | None], int] = {}
    of = [first.setdefault(thing, len(first)) for thing in rows.things()]
    votes = np.full((len(first), len(names)), np.nan)
    column = {name: i for i, name in enumerate(names)}
    for row, thing, name, label in zip(range(len(rows)), of, rows.annotators, rows.human_values, strict=True):
        if np.isfinite(label):
            if np.isfinite(votes[thing, column[name]]):
                what = rows.ids[row] if rows.indices is None else f"{rows.ids[row]}, candidate {rows.indices[row]}"
                raise InputError(
                    f"{rows.source}: {name or 'an unnamed annotator'} labelled {what} twice: keep one row per annotator"
                )
            votes[thing, column[name]] = label
    there = np.isfinite(votes)
    given = there.sum(axis=1)
    mean = np.where(given > 0, np.nansum(votes, axis=1) / np.maximum(given, 1), np.nan)
    labelled = there.any(axis=0)  # a row that is not labelled yet has no annotator
    at = np.unique(of, return_index=True)[1]
    known = rows.take(at)
    judge = None if rows.judge is None else _first_finite(rows.judge, np.asarray(of), known.judge_values)
    majority = np.select([np.isnan(mean) | (mean == 0.5), mean > 0.5], [np.nan, 1.0], 0.0)
    return replace(
        known,
        human=mean if rows.scores else majority,
        judge=judge,
        annotators=tuple(name for name, one in zip(names, labelled, strict=True) if one),
        votes=votes[:, labelled],
    )


def _first_finite(values: NDArray[np.float64], of: NDArray[np.intp], known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per thing the first value of its rows that there is."""
    out = known.copy()
    for thing, value in zip(of.tolist(), values.tolist(), strict=True):
        if np.isnan(out[thing]):
            out[thing] = value
    return out


def read_judge_rows(path: Any, threshold: float | None = None) -> LabelRows | None:
    """Lines of a judge alone: id and judge, index, cluster and other fields; None where there is no judge."""
    from itertools import islice

    if "judge" not in _columns([record for _, record in islice(_records(path), 1)]):
        return None
    records = [
        (place, {k: v for k, v in row.items() if k.strip().lower() not in ROLES["human"]})
        for place, row in _records(path)
    ]
    return _rows(records, str(path) if isinstance(path, (str, Path)) else "rows", threshold, needed=("id", "judge"))


def _columns(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Role -> the name of its column."""
    seen = {name.strip().lower(): name for record in records for name in record}
    found = {role: next((seen[n] for n in names if n in seen), None) for role, names in ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}


def _records(source: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row as a mapping, with its place."""
    if not isinstance(source, (str, Path)):
        yield from ((f"row {i}", row) for i, row in enumerate(rows_of(source), 1))
        return
    path = Path(source)
    kind = kind_of(path)
    if kind == "parquet":
        import polars as pl

        with reject_damaged(str(path)):
            rows = pl.read_parquet(path).iter_rows(named=True)
        yield from ((f"row {i}", row) for i, row in enumerate(rows, 1))
    elif kind in SEPARATORS:
        yield from _csv_records(path, SEPARATORS[kind])
    else:
        yield from _json_records(path)


def _csv_records(path: Path, separator: str) -> Iterator[tuple[str, dict[str, Any]]]:
    import csv

    limit = csv.field_size_limit(1 << 30)  # of the whole process: given back below
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=separator, strict=True)
            rows = [(f"line {reader.line_num}", row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{path}: not readable as CSV in UTF-8: {problem}") from None
    finally:
        csv.field_size_limit(limit)
    for place, row in rows:
        if row.get(None) is not None:  # where csv puts what is beyond the header
            raise InputError(f"{path}: {place}: more cells than the header has")
        # without the quote that keeps spreadsheets from taking a cell for a formula
        yield (
            place,
            {
                name: cell[1:] if cell and cell[0] == "'" and cell[1:].startswith((*DANGEROUS, "'")) else cell
                for name, cell in row.items()
            },
        )


def _json_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import orjson

    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf").strip()  # the byte order mark of some editors
            if not text:
                continue
            try:
                record = orjson.loads(text)
            except orjson.JSONDecodeError as problem:
                raise InputError(f"{path}: line {number}: not JSON: {problem}") from None
            if not isinstance(record, dict):
                raise InputError(f"{path}: line {number}: expected a JSON object, found {type(record).__name__}")
            yield f"line {number}", record


def _rows(
    records: list[tuple[str, dict[str, Any]]],
    source: str,
    threshold: float | None,
    needed: tuple[str, ...],
    *,
    placed: bool = False,
) -> LabelRows:
    if not records:
        raise InputError(f"{source}: no rows")
    places, rows = [place for place, _ in records], [record for _, record in records]
    names = _columns(rows)
    for role in needed:
        if role not in names:
            seen = ", ".join(dict.fromkeys(name for row in rows[:20] for name in row))
            raise InputError(f"{source}: no column {role}: expected one of {', '.join(ROLES[role])}; found {seen}")
    where = places if placed else [f"{source}: {place}" for place in places]

    def column(role: str) -> list[Any] | None:
        return [row.get(names[role]) for row in rows] if role in names else None

    human, judge, scores = _verdicts(column("human"), column("judge"), where, threshold)
    ids = [_text(value) for value in column("id") or []]
    if None in ids:
        raise InputError(f"{where[ids.index(None)]}: no id: every row needs the id of its case")
    indices = _indices(column("index"), where)
    annotators = _annotators(column("annotator"), human, list(zip(ids, indices or (None,) * len(ids), strict=True)))
    if indices is not None and not annotators:
        # the same candidate twice is refused; the same id without places may be several of its candidates
        placed_at: set[object] = set()
        for place, case, index in zip(where, ids, indices, strict=True):
            if (case, index) in placed_at:
                raise InputError(f"{place}: duplicate row for candidate {index} of case {case!r}: keep one row")
            placed_at.add((case, index))
    taken = {names[role] for role in names if role != "segment" and (role != "annotator" or annotators)}
    others = dict.fromkeys(name for row in rows for name in row if name not in taken)
    return LabelRows(
        source=source,
        ids=tuple(map(str, ids)),
        indices=indices,
        human=human,
        judge=judge,
        weights=_weights(column("weight"), where),
        clusters=None if (given := column("cluster")) is None else tuple(map(_text, given)),
        fields={
            name: tuple(_text(row.get(name)) for row in rows)
            for name in others
            if not any(isinstance(row.get(name), (dict, list)) for row in rows)
        },
        scores=scores,
        annotators=annotators,
    )


def _annotators(
    values: list[Any] | None, human: NDArray[np.float64] | None, things: Sequence[tuple[str | None, int | None]]
) -> tuple[str, ...]:
    """Who labelled each row, "" where that is not given; empty where only one person did."""
    if values is None or human is None:
        return ()
    names = tuple((_text(value) or "").strip() for value in values)
    labelled = {name for name, label in zip(names, human, strict=True) if isfinite(label)}
    shared = len(set(zip(things, names, strict=True))) > len(set(things))
    return names if shared or len(labelled) > 1 else ()


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _indices(values: list[Any] | None, where: Sequence[str]) -> tuple[int, ...] | None:
    if values is None or all(_text(v) is None for v in values):
        return None
    out = []
    for place, value in zip(where, values, strict=True):
        number = _number(value)
        if not (isfinite(number) and number >= 0 and number == int(number)):
            raise InputError(f"{place}: index {value!r}: expected the candidate's place, a whole number from 0")
        out.append(int(number))
    return tuple(out)


def _weights(values: list[Any] | None, where: Sequence[str]) -> NDArray[np.float64] | None:
    if values is None or all(_text(v) is None for v in values):
        return None
    numbers = np.array([_number(v) for v in values])
    wrong = ~(np.isfinite(numbers) & (numbers > 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(
            f"{where[at]}: weight {values[at]!r}: expected a positive number, one over its chance to be drawn"
        )
    return numbers


def as_verdict(value: Any) -> float:
    """1.0 or 0.0 of what says pass or fail, NaN of anything else.

    >>> [as_verdict(v) for v in (True, "0", "Pass", "no", 1.0, "maybe", None, 0.7)]
    [1.0, 0.0, 1.0, 0.0, 1.0, nan, nan, nan]
    """
    if isinstance(value, (bool, int, float)):
        return float(value) if value in (0, 1) else nan
    word = value.strip().lower() if isinstance(value, str) else ""
    return 1.0 if word in TRUE else 0.0 if word in FALSE else nan


def _number(value: Any) -> float:
    """A finite number, also as text; NaN of anything else."""
    try:
        number = float(value) if isinstance(value, (bool, int, float, str)) else nan
    except (ValueError, OverflowError):
        return nan
    return number if isfinite(number) else nan


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _EMPTY
    return value is None or (isinstance(value, float) and not isfinite(value))


def _verdicts(
    human: list[Any] | None, judge: list[Any] | None, where: Sequence[str], threshold: float | None
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None, bool]:
    """Both columns as verdicts, or as scores where that is what they hold and no threshold makes them verdicts."""
    scored = [_holds_scores(column) for column in (human, judge) if column is not None]
    scores = threshold is None and any(scored)

    def one(value: Any) -> float:
        number = _number(value)
        if scores and isfinite(number):
            return number
        if threshold is not None and isfinite(number) and any(scored):
            return float(number >= threshold)
        return as_verdict(value)

    found = [None if column is None else np.array([one(v) for v in column], dtype=float) for column in (human, judge)]
    if human is not None and found[0] is not None:
        for place, value, read in zip(where, human, found[0], strict=True):
            if not isfinite(read) and not _is_empty(value):
                expectation = "a number" if scores else "1 or 0, pass or fail, yes or no, or nothing"
                raise InputError(f"{place}: human {str(value)[:40]!r}: expected {expectation}")
    return found[0], found[1], scores


def _holds_scores(column: Sequence[Any]) -> bool:
    """Whether a column holds scores: a number with a fraction, or mostly numbers other than 0 and 1, and no word.

    A few odd whole numbers among verdicts do not make it one: those are not graded.

    >>> [_holds_scores(c) for c in ([0, 1, 0.5], [4, 1, 5], [0, 1, 1, 0, 7], ["pass", 0.5])]
    [True, True, False, False]
    """
    numbers = [n for v in column if isfinite(n := _number(v)) and not isinstance(v, bool)]
    words = any(isfinite(as_verdict(v)) and not isfinite(_number(v)) for v in column)
    others = sum(n not in (0.0, 1.0) for n in numbers)
    return not words and (others > _MOSTLY * len(numbers) or any(n != int(n) for n in numbers))


DEFAULT_AGGREGATE = "any_pass"
DEFAULT_OF_SCORES = "mean"


@dataclass(frozen=True, kw_only=True)
class VerdictRows:
    """A judge's verdicts on candidates and, where there are sets, on sets; `weighted`: the cases have weights."""

    name: str
    metric: str
    candidates: LabelRows | None
    sets: LabelRows | None
    aggregate: str | None = None
    weighted: bool = False
    graded: GradedCandidates | None = None
    scored: Graded | None = None


def open_verdicts(
    source: Any,
    *,
    metric: str | None = None,
    aggregate: str | None = None,
    threshold: float | None = None,
    scores: bool = False,
    selected: bool = False,
    selector: str | None = None,
) -> VerdictRows:
    """Verdicts (or scores) from a run, a file, rows or a frame. `selected`: of sets, what a selector picks.

    Of a run the metric named, else that of its first judge, else the one called judge, else the first; of its sets
    what the aggregator says, any_pass unless named (the mean, of scores).
    """
    path = Path(source) if isinstance(source, (str, Path)) else None
    is_run = path.is_dir() if path is not None else isinstance(source, Displayable)
    if not is_run and metric is None and (rows := read_judge_rows(source, threshold)) is not None:
        if aggregate is not None:
            raise InputError(f"{rows.source}: --aggregate is for sets of candidates: this file has one verdict a line")
        of_candidates = rows.of_candidates
        return VerdictRows(
            name="rows" if path is None else path.name,
            metric="judge",
            candidates=rows if of_candidates else None,
            sets=None if of_candidates else rows,
        )

    run = load_graded(source)
    if metric is None:
        graded = [one.metric for one in run.result.scored]
        judges = [m for m in graded if m in run.result.judges] or [m for m in graded if "judge" in m.lower()]
        metric = judges[0] if judges else None
    scored = run.metric(metric)
    tags = run.table.tags
    fields = {tag: tuple(tags[tag].cast(str).to_list()) for tag in tags.columns}
    name = aggregate or (DEFAULT_OF_SCORES if scores else DEFAULT_AGGREGATE)
    scale = scale_of(run, scored.metric)
    if threshold is not None and scale is not None:  # on the rubric's scale: the run's scores are in [0, 1]
        threshold = (threshold - scale[0]) / (scale[1] - scale[0])
    sets = scored.sets if threshold is None else scored.sets.passing_from(threshold)
    candidates = _candidates(run, sets, fields, scores=scores)
    found = VerdictRows(
        name=run.name,
        metric=scored.metric,
        candidates=candidates,
        sets=_sets(run, sets, fields, name, scores=scores),
        aggregate=name,
        weighted=run.units()["weights"] is not None,
        graded=run,
        scored=scored,
    )
    if not selected:
        return found
    # sets pass where the selector's pick does; of equal scores the first, as the sheet has it
    rows = replace(candidates.take(picked_rows(found, selector)), indices=None)
    return replace(found, sets=rows, candidates=None, aggregate=f"the pick of {selector or 'the selector'}")


def scale_of(run: GradedCandidates | None, metric: str) -> tuple[float, float] | None:
    """The ends of the scale that a judge's rubric has; None for pass/fail, and for a metric that is no judge's."""
    entry = None if run is None else run.result.judges.get(metric)
    low, sign, high = str((entry or {}).get("scale", "")).partition("-")
    return (float(low), float(high)) if sign and low.isdigit() and high.isdigit() else None


def labels_on_run_scale(labels: LabelRows, verdicts: VerdictRows | None) -> LabelRows:
    """Scores that people gave on a rubric's scale, such as 1 to 5, in [0, 1] as the run has the judge's."""
    scale = None if verdicts is None else scale_of(verdicts.graded, verdicts.metric)
    if not labels.scores or scale is None or not bool((np.nan_to_num(labels.human_values) > 1).any()):
        return labels
    low, span = scale[0], scale[1] - scale[0]
    judge = None if labels.judge is None else (labels.judge - low) / span
    return replace(labels, human=(labels.human_values - low) / span, judge=judge)


def _clusters(run: GradedCandidates) -> tuple[str | None, ...] | None:
    codes = run.units()["clusters"]
    return None if codes is None else tuple(str(code) for code in codes)


def _candidates(
    run: GradedCandidates, sets: CandidateSets, fields: Mapping[str, tuple[str | None, ...]], *, scores: bool
) -> LabelRows:
    """A row a candidate: 1, 0, or NaN where it is not graded; or its score."""
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    clusters = _clusters(run)
    return LabelRows(
        source=str(run.path),
        ids=tuple(sets.case_ids.gather(owner).to_list()),
        indices=tuple((np.arange(owner.size) - sets.offsets[owner]).tolist()),
        judge=sets.values if scores else np.where(sets.passes == NOT_GRADED, np.nan, sets.passes.astype(float)),
        clusters=None if clusters is None else tuple(clusters[i] for i in owner),
        fields={name: tuple(column[i] for i in owner) for name, column in fields.items()},
        scores=scores,
    )


def _sets(
    run: GradedCandidates,
    sets: CandidateSets,
    fields: Mapping[str, tuple[str | None, ...]],
    aggregate: str,
    *,
    scores: bool,
) -> LabelRows:
    """A row a case: what the aggregator says of its set."""
    values = np.asarray(aggregator(aggregate)(sets), dtype=float)
    if not scores and not np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
        raise InputError(
            f"--aggregate {aggregate} gives other numbers than 0 and 1: take one that says pass or fail, as any_pass"
        )
    return LabelRows(
        source=str(run.path),
        ids=tuple(sets.case_ids.to_list()),
        judge=values,
        clusters=_clusters(run),
        fields=fields,
        scores=scores,
    )


def picked_rows(verdicts: VerdictRows, name: str | None) -> NDArray[np.intp]:
    """The row each set's selector ranks first; the first of those that tie; no row where nothing can be picked."""
    if verdicts.scored is None:
        raise InputError("--selected needs a run or a file of outputs: plain verdicts have no selector")
    sets = verdicts.scored.sets
    if name is None:
        if len(sets.selectors) != 1:
            known = ", ".join(sets.selectors) or "vote, length, first"
            raise InputError(f"--selected: which selector? give --by-selector, such as {known}")
        name = next(iter(sets.selectors))
    return picked_candidates(sets, name)


def picked_candidates(sets: CandidateSets, name: str) -> NDArray[np.intp]:
    """The row of each set that a selector ranks first, as `picked_rows` has them."""
    scores = Selector(name=name, by=name).scores(sets)
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    found = [
        low + int(np.argmax(ranked[low:high]))
        for low, high in zip(sets.offsets, sets.offsets[1:], strict=False)
        if high > low
    ]
    return np.array([place for place in found if np.isfinite(scores[place])], dtype=np.intp)
