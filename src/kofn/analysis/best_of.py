"""The best-of-n table: for every k, what any candidate, the pick and the vote reach, and the cost of k."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kofn.aggregators.passes import PassAt
from kofn.aggregators.scores import SelectedAt, best_of_draws
from kofn.analysis.pass_curve import CaseMeans, independent_pass_rate, k_ladder, largest_k, vote_columns, weighted_mean
from kofn.analysis.selectors import with_selector, with_values
from kofn.core.candidate_sets import NOT_GRADED, offsets_of
from kofn.core.warnings import CodedWarning, with_code
from kofn.errors import InputError
from kofn.stats.beta_binomial import extrapolate
from kofn.stats.corrected_curve import ASSUMES, corrected_curve
from kofn.stats.intervals import at_rows
from kofn.stats.judge_accuracy import FEW_LABELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from kofn.analysis.selectors import Selector
    from kofn.core.candidate_sets import CandidateSets, Floats
    from kofn.core.types import Estimate
    from kofn.scoring.configuration import GradingConfig
    from kofn.stats.beta_binomial import BetaBinomial
    from kofn.stats.corrected_curve import Rates


MEASURES = ("any", "selected", "majority")
MEASURE_OF_USE = {"any": "any", "vote": "majority", "select": "selected"}
EVERY_K = 64  # so many rows are shown one by one; beyond, a ladder
FARTHEST = 10_000  # candidates that are extrapolated to


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfRow:
    """What k candidates reach and cost. None where undefined or not known.

    any, selected, majority   with ends `_low`, `_high`; `independent` is 1 - (1 - p)^k from the pooled p
    cost, tokens              of k candidates: k times the mean of a candidate
    seconds                   the expected longest of k (asked side by side); `seconds_sequential` one after the other
    gain                      of the measure, for each candidate since the row before, on the same cases
    gain_per_cost             the gain over what a candidate costs
    corrected                 any@k of a judge's verdicts, corrected for its errors
    extrapolated              beyond what was measured: any@k of the fitted population, nothing else
    """

    k: int
    n: int
    n_missing: int
    mean: float | None = None
    any: float | None = None
    any_low: float | None = None
    any_high: float | None = None
    independent: float | None = None
    selected: float | None = None
    selected_low: float | None = None
    selected_high: float | None = None
    majority: float | None = None
    majority_low: float | None = None
    majority_high: float | None = None
    cost: float | None = None
    tokens: float | None = None
    seconds: float | None = None
    seconds_sequential: float | None = None
    gain: float | None = None
    gain_per_cost: float | None = None
    corrected: float | None = None
    corrected_low: float | None = None
    corrected_high: float | None = None
    extrapolated: bool = False

    def value(self, measure: str) -> float | None:
        """What a measure says at this k."""
        found: float | None = getattr(self, measure)
        return found

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOf:
    """The rows, k = 1 first, of all cases or of one segment; `unit` is what `gain_per_cost` counts in."""

    rows: tuple[BestOfRow, ...]
    measure: str
    unit: str
    n_cases: int
    segment: str | None = None
    cost: float | None = None
    tokens: float | None = None
    model: BetaBinomial | None = None
    rates: Rates | None = None
    notes: tuple[CodedWarning, ...] = ()

    @property
    def measured(self) -> tuple[BestOfRow, ...]:
        """Without what is extrapolated."""
        return tuple(row for row in self.rows if not row.extrapolated)

    def to_dict(self) -> dict[str, Any]:
        model = self.model
        described = None if model is None else {"kind": model.kind, "a": model.a, "b": model.b, "words": model.words()}
        return {
            **{name: getattr(self, name) for name in ("segment", "n_cases", "measure")},
            "cost_unit": self.unit,
            "cost_per_candidate": self.cost,
            "tokens_per_candidate": self.tokens,
            "curve": [row.to_dict() for row in self.rows],
            "extrapolation": described,
            "judge": None if self.rates is None else {**self.rates._asdict(), "assumption": ASSUMES},
            "notes": list(map(str, self.notes)),
            "coded_notes": [note.to_dict() for note in self.notes],
        }


class JudgeErrors(NamedTuple):
    """0/1 verdicts of people and of the judge on the same candidates; the case and the weight of each, where known."""

    human: ArrayLike
    judge: ArrayLike
    cases: Sequence[str] | None = None
    weights: ArrayLike | None = None
    notes: tuple[CodedWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfOptions:
    """What a table is to hold: the measure whose gain counts, who selects, how far beyond n, what people said."""

    measure: str = "any"
    selector: Selector | None = None
    extend: int | None = None
    labels: JudgeErrors | None = None
    cost: float | None = None  # of a candidate, where the candidates do not say

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise InputError(f"measure: expected one of {', '.join(MEASURES)}, not {self.measure!r}")
        if self.measure == "selected" and self.selector is None:
            raise InputError("measure selected needs a selector: name a column of scores, vote, length or a function")
        if self.extend is not None and not 1 <= self.extend <= FARTHEST:
            raise InputError(f"extend takes a number of candidates from 1 to {FARTHEST:,}, not {self.extend}")


def best_of(
    sets: CandidateSets,
    options: GradingConfig,
    request: BestOfOptions | None = None,
    *,
    tokens: Floats | None = None,
    weights: Floats | None = None,
    clusters: Floats | None = None,
) -> BestOf:
    """The table for every k up to the size that 95% of the graded sets reach, over cases.

    `tokens` is one number a candidate. A k beyond `largest_k` is extrapolated where `asked.extend` says so.

    >>> from kofn.scoring.configuration import GradingConfig
    >>> from kofn.core.candidate_sets import CandidateSets
    >>> found = best_of(CandidateSets.from_lists([[1, 0, 0], [0, 0, 0], [1, 1, 0]]), GradingConfig())
    >>> [(row.k, round(row.any, 3), row.gain and round(row.gain, 3)) for row in found.rows]
    [(1, 0.333, None), (2, 0.556, 0.222), (3, 0.667, 0.111)]
    """
    request = request or BestOfOptions()
    ks = k_values(largest_k(sets))
    if not ks:
        raise InputError("nothing is graded: there is no curve to draw")
    cases = CaseMeans(options, weights, clusters)
    columns, notes = measure_columns(sets, ks, request.selector)
    if request.measure not in columns:
        vote = request.measure == "majority"
        raise InputError(
            f"measure {request.measure}: {_no_vote(notes) if vote else 'there is nothing to compute it from'}"
        )
    spending = _Spending.of(sets, tokens, ks, weights, request.cost)
    found = {name: [cases.estimate(column) for column in of_k] for name, of_k in columns.items()}
    gains = _gains(columns[request.measure], ks, cases)
    rows = [_row(i, k, found, gains, spending) for i, k in enumerate(ks)]
    table = BestOf(
        rows=tuple(rows),
        measure=request.measure,
        unit=spending.unit,
        n_cases=len(sets),
        cost=spending.cost,
        tokens=spending.tokens,
        notes=(*notes, *spending.notes, *cases.notes(), *_uneven_notes(sets, ks)),
    )
    units: dict[str, Any] = {"weights": weights, "clusters": clusters, "level": options.level, "seed": options.seed}
    if request.labels is not None:
        table = _with_correction(table, sets, request.labels, units)
    return _with_extension(table, sets, request.extend, spending, units) if request.extend else table


def k_values(largest: int) -> tuple[int, ...]:
    """Every k up to 64, then the ladder of the curve.

    >>> len(k_values(64)), k_values(2), k_values(65)[-3:]
    (64, (1, 2), (46, 55, 65))
    """
    return tuple(range(1, largest + 1)) if largest <= EVERY_K else k_ladder(largest)


def measure_columns(
    sets: CandidateSets, ks: Sequence[int], selector: Selector | None
) -> tuple[dict[str, list[Floats]], list[CodedWarning]]:
    """Measure -> one value a case for each k; and why one that might be there is not.

    The pick of a vote among k is the majority of these k, not the candidate with most votes among all n.
    """
    columns = {"any": [PassAt(k)(sets) for k in ks]}
    votes, note = vote_columns(sets, ks)
    notes = [] if note is None else [note]
    if votes:
        columns["majority"] = votes
    if selector is not None and selector.by == "vote":
        if not votes:
            raise InputError(f"selector vote: {_no_vote(notes)}")
        # not the candidate with most votes of all n: see the docstring
        columns["selected"] = votes
    elif selector is not None:
        # selected@k counts passes, whatever the values are, as any@k and maj@k do
        passes = np.where(sets.passes == NOT_GRADED, np.nan, sets.passes).astype(np.float64)
        chosen = with_selector(with_values(sets, passes), selector.name, selector.scores(sets)).graded_only()
        columns["selected"] = [SelectedAt(k, selector.name)(chosen) for k in ks]
        if ":" in selector.by:
            notes.append(CodedWarning.of("scored-once", selector=selector.by))
    return columns, notes


def _no_vote(notes: Sequence[CodedWarning]) -> str:
    return next(map(str, with_code(notes, "no-vote-curve")), "there are no answers to vote on")


def _gains(columns: Sequence[Floats], ks: Sequence[int], cases: CaseMeans) -> list[float | None]:
    """For each k what a candidate since the k before adds, over the cases that have both."""
    out: list[float | None] = [None]
    for i in range(1, len(ks)):
        # over cases that have both: a difference of two means would compare different cases
        gain = cases.mean(columns[i] - columns[i - 1])
        out.append(None if gain is None else gain / (ks[i] - ks[i - 1]))
    return out


def _row(i: int, k: int, found: dict[str, list[Estimate]], gains: list[float | None], spending: _Spending) -> BestOfRow:
    values: dict[str, Any] = {**spending.at(k)}
    for name, estimates in found.items():
        e = estimates[i]
        values |= {name: e.point, f"{name}_low": e.low, f"{name}_high": e.high}
    # any@1 is the mean pass rate of a candidate
    pooled = found["any"][0].point
    return BestOfRow(
        k=k,
        n=found["any"][i].n,
        n_missing=found["any"][i].n_missing,
        mean=pooled,
        independent=independent_pass_rate(pooled, k),
        gain=gains[i],
        gain_per_cost=spending.per_cost(gains[i]),
        **values,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spending:
    """What a candidate costs on average, and how long k of them take together."""

    cost: float | None
    tokens: float | None
    one: float | None  # seconds of one candidate
    longest: dict[int, float | None]
    notes: tuple[CodedWarning, ...] = ()

    @classmethod
    def of(
        cls, sets: CandidateSets, tokens: Floats | None, ks: Sequence[int], weights: Floats | None, given: float | None
    ) -> _Spending:
        longest = {}
        if sets.seconds is not None:
            seconds = _known_sets(sets, sets.seconds)
            longest = {k: weighted_mean(_expected_longest(seconds, k), weights) for k in ks}
        missing = {"cost": sets.costs, "seconds": sets.seconds}
        counts = {name: int(np.isnan(column).sum()) for name, column in missing.items() if column is not None}
        return cls(
            cost=given if given is not None else _mean_of_cases(sets, sets.costs, weights),
            tokens=_mean_of_cases(sets, tokens, weights),
            one=_mean_of_cases(sets, sets.seconds, weights),
            longest=longest,
            notes=tuple(CodedWarning.of("unknown-spending", what=name, n=n) for name, n in counts.items() if n),
        )

    @property
    def unit(self) -> str:
        # a cost of 0 is no unit to divide by
        return "dollars" if self.cost else "tokens" if self.tokens else "candidates"

    def per_cost(self, gain: float | None) -> float | None:
        """The gain of a candidate over what it costs, in the unit that is known."""
        return None if gain is None else gain / (self.cost or self.tokens or 1.0)

    def at(self, k: int) -> dict[str, float | None]:
        return {
            "cost": None if self.cost is None else k * self.cost,
            "tokens": None if self.tokens is None else k * self.tokens,
            "seconds": self.longest.get(k),
            "seconds_sequential": None if self.one is None else k * self.one,
        }


def _mean_of_cases(sets: CandidateSets, column: Floats | None, weights: Floats | None) -> float | None:
    """The mean over cases of the mean over their candidates that say it; None where none does."""
    if column is None:
        return None
    owner, known = np.repeat(np.arange(len(sets)), sets.sizes), ~np.isnan(column)
    counts = np.bincount(owner[known], minlength=len(sets))
    totals = np.bincount(owner[known], weights=column[known], minlength=len(sets))
    # by case first, so that large sets do not count more
    return weighted_mean(np.where(counts > 0, totals / np.maximum(counts, 1), np.nan), weights)


def _known_sets(sets: CandidateSets, column: Floats) -> CandidateSets:
    """Sets of the candidates that have a number in this column, which become their values."""
    owner, known = np.repeat(np.arange(len(sets)), sets.sizes), ~np.isnan(column)
    counts = np.bincount(owner[known], minlength=len(sets)).astype(np.int64)
    return type(sets)(
        case_ids=sets.case_ids,
        offsets=offsets_of(counts),
        values=column[known],
        passes=np.zeros(int(known.sum()), dtype=np.int8),
    )


def _expected_longest(sets: CandidateSets, k: int) -> Floats:
    """The expected largest of k values of each set: the j-th smallest of n with chance C(j-1,k-1)/C(n,k)."""
    return sets.map_blocks(lambda values: best_of_draws(values, values, k), sets.values)


def _uneven_notes(sets: CandidateSets, ks: Sequence[int]) -> list[CodedWarning]:
    graded = sets.counts[0]
    fewer, none = int(((graded < ks[-1]) & (graded > 0)).sum()), int((graded == 0).sum())
    out = [CodedWarning.of("uneven-curve", about="fewer", n=fewer, k=ks[-1])] if fewer else []
    return out + ([CodedWarning.of("uneven-curve", about="none", n=none)] if none else [])


def _with_correction(table: BestOf, sets: CandidateSets, labels: JudgeErrors, units: dict[str, Any]) -> BestOf:
    """any@k corrected with the judge's rates on labelled candidates, beside the raw one."""
    n, c = sets.counts
    given: dict[str, Any] = {"label_clusters": labels.cases, "label_weights": labels.weights, **units}
    rates, points = corrected_curve(c, n, [row.k for row in table.rows], labels.human, labels.judge, **given)
    rows = [
        replace(row, corrected=p.point, corrected_low=p.low, corrected_high=p.high)
        for row, p in zip(table.rows, points, strict=True)
    ]
    notes = [CodedWarning.of("corrected-curve", about="assumes", assumes=ASSUMES)]
    ends = next((p.k for p in points if p.point is None), None)
    if ends is not None:
        notes.append(CodedWarning.of("corrected-curve", about="ends", k=ends))
    passing = int(np.asarray(labels.human).sum())
    fewest = min(passing, len(np.asarray(labels.human)) - passing)
    if fewest < FEW_LABELS:
        notes.append(CodedWarning.of("few-labels", n=fewest, fewest=FEW_LABELS, curve=True))
    return replace(table, rows=tuple(rows), rates=rates, notes=(*table.notes, *notes, *labels.notes))


def _with_extension(
    table: BestOf, sets: CandidateSets, extend: int, spending: _Spending, units: dict[str, Any]
) -> BestOf:
    """Rows beyond the last k, up to `extend`, from the beta-binomial."""
    last, mean = table.rows[-1].k, table.rows[0].mean
    if extend <= last:
        return replace(table, notes=(*table.notes, CodedWarning.of("extrapolated", about="measured", n=last)))
    n, c = sets.counts
    ks = extrapolated_ks(last, extend)
    found = extrapolate(c, n, [last, *ks], **units)
    if found is None:
        return replace(table, notes=(*table.notes, CodedWarning.of("extrapolated", about="single")))
    model, points = found
    rows = []
    for before, at in pairwise(points):
        # the model describes any@k only, so other measures have no gain there
        gain = (at.point - before.point) / (at.k - before.k) if table.measure == "any" else None
        rows.append(
            BestOfRow(
                k=at.k,
                n=0,
                n_missing=len(sets),
                mean=mean,
                any=at.point,
                any_low=at.low,
                any_high=at.high,
                independent=independent_pass_rate(mean, at.k),
                gain=gain,
                gain_per_cost=spending.per_cost(gain),
                extrapolated=True,
                **spending.at(at.k),
            )
        )
    # how far the model is off where it can be checked
    off = {"k": last, "point": points[0].point, "measured": table.rows[-1].any}
    note = CodedWarning.of("extrapolated", about="model", model=model.words(), **off)
    return replace(table, rows=(*table.rows, *rows), model=model, notes=(*table.notes, note))


def extrapolated_ks(last: int, extend: int) -> list[int]:
    """At most 8 further k in about equal ratios, the last one `extend`.

    >>> extrapolated_ks(5, 8), extrapolated_ks(8, 100)
    ([6, 7, 8], [11, 15, 21, 28, 39, 53, 73, 100])
    """
    if extend - last <= 8:
        return list(range(last + 1, extend + 1))
    # equal ratios: the curve bends less and less
    steps = np.rint(np.geomspace(last, extend, 9)).astype(int)[1:].tolist()
    return sorted({k for k in steps if k > last})


def best_of_by_segment(
    sets: CandidateSets,
    names: Sequence[str],
    options: GradingConfig,
    request: BestOfOptions,
    *,
    tokens: Floats | None = None,
    weights: Floats | None = None,
    clusters: Floats | None = None,
) -> list[BestOf]:
    """A table for each segment, in the order they appear; one in which nothing is graded has none."""
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    places = np.array(names)
    out = []
    for segment in dict.fromkeys(names):
        own = np.flatnonzero(places == segment)
        part = sets.take(own)
        if largest_k(part):
            spent = None if tokens is None else tokens[np.isin(owner, own)]
            units = at_rows(places == segment, weights=weights, clusters=clusters)
            out.append(replace(best_of(part, options, request, tokens=spent, **units), segment=segment))
    return out
