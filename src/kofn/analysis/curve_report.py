"""A best-of-n report: the table, the n to choose and why, the selector, segments and warnings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kofn.analysis.best_of import MEASURE_OF_USE, best_of, best_of_by_segment
from kofn.analysis.finding import Finding
from kofn.analysis.selectors import Selector, evaluate_selector, with_selector
from kofn.core.document import ChecklistLine, Displayable
from kofn.core.format import format_count, format_dollars, format_estimate, format_rate, format_seconds
from kofn.core.table import segment_names
from kofn.core.warnings import DOUBLE_DIPPING, CodedWarning, warnings_dict, with_code
from kofn.errors import InputError
from kofn.scoring.diagnostics import APART, TRACKED, USE, find_double_dipping
from kofn.stats.estimates import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.analysis.best_of import BestOf, BestOfOptions, BestOfRow
    from kofn.analysis.selectors import Selection
    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded

    Judges = Mapping[str, Mapping[str, Any]]

_MEASURED = {"any": "any@k", "vote": "maj@k", "select": "selected@k"}  # a declared use -> the column that measures it
_TOLERANCE = 1e-12  # rounding of sums of gains and costs
REACHES = {"any": "any of them passes", "selected": "the pick passes", "majority": "the vote is right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingBounds:
    """What bounds the choice. `latency` is in seconds, `budget` in dollars a case, `gain` in value a dollar."""

    gain: float | None = None
    latency: float | None = None
    budget: float | None = None
    sequential: bool = False

    def __post_init__(self) -> None:
        for name in ("gain", "latency", "budget"):
            bound = getattr(self, name)
            if bound is not None and not (isfinite(bound) and bound > 0):
                raise InputError(f"{name}: expected a number above 0, not {bound:g}")

    def seconds(self, row: BestOfRow) -> float | None:
        """How long so many candidates take, as they are asked."""
        return row.seconds_sequential if self.sequential else row.seconds

    def too_slow(self, row: BestOfRow) -> bool:
        """Whether a row takes longer than is allowed, or nobody knows how long."""
        time = self.seconds(row)
        return self.latency is not None and (time is None or time > self.latency)

    def to_dict(self) -> dict[str, Any]:
        return {
            "min_gain_per_dollar": self.gain,
            "max_latency": self.latency,
            "budget": self.budget,
            "sequential": self.sequential,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedN:
    """How many candidates, and why; None where nothing was asked for or nothing fits."""

    n: int | None
    reason: str


def recommend_n(table: BestOf, bounds: SpendingBounds) -> RecommendedN:
    """The n to choose among what was measured.

    With a gain a dollar: the k of the largest value - gain x cost. Where each candidate adds less than the one before,
    as any@k always does, that is the largest k whose own gain a dollar is at least the one asked for; where it does
    not (a vote of 2 is worth no more than one of 1) a step that brings nothing does not hide a later one that does.
    Bounds on time and money come first. Without a gain it is the best value within them, of equal ones the smallest k.
    """
    rows = [row for row in table.measured if row.value(table.measure) is not None]
    if bounds.gain is None and bounds.latency is None and bounds.budget is None:
        return RecommendedN(n=None, reason=_no_goal_reason(table, rows))
    if rows[0].cost is None and (bounds.gain is not None or bounds.budget is not None):
        raise InputError("what a candidate costs is not known: give --cost-per-candidate, or outputs with a cost")
    if bounds.gain is not None and not rows[0].cost:
        raise InputError("candidates cost nothing, so no gain a dollar bounds them: use --max-latency")
    if bounds.latency is not None and bounds.seconds(rows[0]) is None:
        raise InputError("how long a candidate takes is not known: give outputs with seconds")
    most = inf if bounds.budget is None else bounds.budget * (1 + _TOLERANCE)
    fits = [row for row in rows if not bounds.too_slow(row) and (row.cost or 0.0) <= most]
    if not fits:
        return RecommendedN(n=None, reason=_nothing_fits_reason(rows[0], bounds))
    # value - price x cost: the gain that a dollar must bring is the price of a dollar
    price = bounds.gain or 0.0
    # gains added up: each is over the same cases, which values of unequal sets are not
    value, worth = rows[0].value(table.measure) or 0.0, {}
    for before, row in zip([rows[0], *rows[:-1]], rows, strict=True):
        value += (row.gain or 0.0) * (row.k - before.k)
        if row in fits:
            worth[row.k] = value - price * (row.cost or 0.0)
    best = max(worth.values())
    close = [row for row in fits if worth[row.k] >= best - _TOLERANCE]
    # at exactly the price a candidate is worth it, so the most; without a price the fewest that reach the same
    chosen = close[-1] if bounds.gain is not None else close[0]
    return RecommendedN(n=chosen.k, reason=_reason(table, rows, fits, chosen, bounds))


def _no_goal_reason(table: BestOf, rows: Sequence[BestOfRow]) -> str:
    last = rows[-1]
    how = "say what bounds it: a gain a dollar, a latency or a budget"
    if last.gain is None:
        return how
    added = f"the last candidate, number {last.k}, adds {last.gain:.3f}"
    if table.unit == "dollars" and last.gain_per_cost is not None:
        added += f" ({format_rate(last.gain_per_cost)} a dollar)"
    return f"{how}; {added}"


def _nothing_fits_reason(first: BestOfRow, bounds: SpendingBounds) -> str:
    found = []
    if bounds.too_slow(first):
        found.append(f"takes {format_seconds(bounds.seconds(first))}, more than {format_seconds(bounds.latency)}")
    if bounds.budget is not None and (first.cost or 0.0) > bounds.budget:
        found.append(f"costs {format_dollars(first.cost)}, more than {format_dollars(bounds.budget)}")
    return f"even one candidate {' and '.join(found)}"


def _reason(
    table: BestOf, rows: Sequence[BestOfRow], fits: Sequence[BestOfRow], chosen: BestOfRow, bounds: SpendingBounds
) -> str:
    """The value, the bounds it keeps, and why not more."""
    value = chosen.value(table.measure)
    many = f"{chosen.k} candidates" if chosen.k > 1 else "one candidate"
    said = f"with {many} {REACHES[table.measure]} in {value:.3f} of the cases"
    if bounds.latency is not None:
        how = "one after the other" if bounds.sequential else "side by side"
        takes = "takes" if chosen.k == 1 else f"{how} they take"
        said += f", {takes} {format_seconds(bounds.seconds(chosen))} of the {format_seconds(bounds.latency)} allowed"
    if bounds.budget is not None:
        said += f", at {format_dollars(chosen.cost)} of the {format_dollars(bounds.budget)} allowed"
    return f"{said}; {_why_not_more(rows, fits, chosen, bounds)}"


def _why_not_more(
    rows: Sequence[BestOfRow], fits: Sequence[BestOfRow], chosen: BestOfRow, bounds: SpendingBounds
) -> str:
    """What the next step would bring, or that there is none."""
    more = [row for row in rows if row.k > chosen.k]
    if not more:
        return f"{chosen.k} is the most that was measured, so more may be worth it too"
    following = more[0]
    if following not in fits:
        slow, dear = format_seconds(bounds.seconds(following)), format_dollars(following.cost)
        return f"{following.k} would {f'take {slow}' if bounds.too_slow(following) else f'cost {dear}'}"
    gain = following.gain or 0.0
    added = f"number {following.k} would add {gain:.3f}" if gain > 0 else f"number {following.k} would add nothing"
    if bounds.gain is None:
        return f"{added}, and no more of those that fit does better"
    per_dollar, asked = format_rate(following.gain_per_cost or 0.0), format_rate(bounds.gain)
    return f"{added}, {per_dollar} a dollar, and {asked} is asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCurve:
    """The curve of one value of a field, and the n to choose there."""

    by: str
    table: BestOf
    choice: RecommendedN

    @property
    def few(self) -> bool:
        return self.table.n_cases < SMALL_SEGMENT

    def to_dict(self) -> dict[str, Any]:
        return {"by": self.by, **self.table.to_dict(), "choose": asdict(self.choice), "few_cases": self.few}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BestOfReport(Displayable):
    """A curve with its choice, its segments and what stands beside it."""

    view: ClassVar[str] = "kofn.render.curve_text:curve_document"
    printer: ClassVar[str] = "kofn.render.curve_text:format_curve"

    name: str
    metric: str
    level: float
    table: BestOf
    choice: RecommendedN
    bounds: SpendingBounds
    segments: tuple[SegmentCurve, ...] = ()
    selector: Selector | None = None
    selection: Selection | None = None
    split: str | None = None
    warnings: tuple[CodedWarning, ...] = ()
    checklist: tuple[ChecklistLine, ...] = ()

    @property
    def double_dipping(self) -> bool:
        """Whether the selector and the metric are the same judge, model or score."""
        return bool(with_code(self.warnings, DOUBLE_DIPPING))

    @property
    def headline(self) -> Finding:
        """What counts with one candidate and with all, and the n to choose where there is one."""
        first, last = self.table.measured[0], self.table.measured[-1]
        measure = self.table.measure
        name = {"majority": "maj"}.get(measure, measure)

        def at(row: BestOfRow) -> str:
            ends = (getattr(row, f"{measure}_low"), getattr(row, f"{measure}_high"))
            return f"{name}@{row.k} {format_estimate(row.value(measure), *ends)}"

        values = at(first) if first.k == last.k else f"{at(first)}, {at(last)}"
        n = self.choice.n
        chosen = "" if n is None else f". Choose n = {n}: {self.choice.reason}"
        ends = {row.k: row.value(measure) for row in (first, last)}
        return Finding(
            text=f"{values} over {format_count(self.table.n_cases, 'case')}{chosen}.",
            numbers={"measure": measure, "n": n, "values": [{"k": k, "point": value} for k, value in ends.items()]},
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per k, of all cases and then of each segment."""
        curves = [(None, self.table), *((s.table.segment, s.table) for s in self.segments)]
        return [{"segment": segment, **row.to_dict()} for segment, table in curves for row in table.rows]

    def to_dict(self) -> dict[str, Any]:
        """As `kofn curve --json` prints it."""
        table = self.table.to_dict()
        return {
            "headline": self.headline.to_dict(),
            **{name: getattr(self, name) for name in ("name", "metric", "level", "split")},
            **{key: value for key, value in table.items() if key != "segment"},
            "choose": asdict(self.choice),
            "wanted": self.bounds.to_dict(),
            "selector": None if self.selector is None else self.selector.to_dict(),
            "selection": None if self.selection is None else self.selection.to_dict(),
            "segments": [segment.to_dict() for segment in self.segments],
            **warnings_dict(self.warnings),
            "checklist": [line.to_dict() for line in self.checklist],
        }

    def with_checklist(self, checklist: tuple[ChecklistLine, ...], use: str | None = None) -> BestOfReport:
        """With the checklist of what the curve is of, and what the curve itself answers; `use` is the declared one."""
        spent = self.table.rows[0]
        tracked = spent.cost is not None and spent.seconds is not None
        cost = "cost and time are shown for every k" if tracked else "no cost or no time is recorded per candidate"
        own = {TRACKED: ("yes" if tracked else "no", cost), APART: ("yes", "the selector and the evaluator differ")}
        if self.double_dipping:
            own[APART] = ("no", "the same judge or score selects and grades")
        elif self.selector is None:
            own[APART] = ("n/a", "no selector is shown")
        shown = {"any": spent.any, "vote": spent.majority, "select": spent.selected}
        if use is not None and shown.get(use) is not None:
            own[USE] = ("yes", f"intended use: {use}, measured by {_MEASURED[use]}")
        lines = [line if line.item not in own else ChecklistLine.of(line.item, *own[line.item]) for line in checklist]
        return replace(self, checklist=tuple(lines))


def default_measure(options: GradingConfig) -> str:
    """The measure whose gain counts, by how the product uses a set.

    >>> from kofn.scoring.configuration import GradingConfig
    >>> default_measure(GradingConfig(use="vote")), default_measure(GradingConfig())
    ('majority', 'any')
    """
    return MEASURE_OF_USE.get(options.use or "any", "any")


def only_selector(scored: Graded) -> Selector | None:
    """The column that can pick, where there is just one; the metric itself is none."""
    # a score that also grades would pick its own favourites
    names = [name for name in scored.sets.selectors if name != scored.metric]
    return Selector(name=names[0], by=names[0]) if len(names) == 1 else None


def best_of_report(
    name: str,
    scored: Graded,
    table: Table,
    options: GradingConfig,
    request: BestOfOptions,
    bounds: SpendingBounds,
    *,
    judges: Judges,
    units: Mapping[str, Any],
) -> BestOfReport:
    """The curve over all cases and by segment, the choice, and what the selector makes of the candidates."""
    sets = scored.sets
    spent: dict[str, Any] = {"tokens": candidate_tokens(table), **units}
    whole = best_of(sets, options, request, **spent)
    segments = [
        SegmentCurve(by=by, table=part, choice=recommend_n(part, bounds))
        for by in options.by
        for part in best_of_by_segment(sets, [n or "" for n in segment_names(table, by)], options, request, **spent)
    ]
    by = request.selector
    picked = None if by is None else evaluate_selector(sets, by, options, metric=scored.metric, **units)
    return BestOfReport(
        name=name,
        metric=scored.metric,
        level=options.level,
        table=whole,
        choice=recommend_n(whole, bounds),
        bounds=bounds,
        segments=tuple(segments),
        selector=by,
        selection=picked,
        split=None if options.split is None else str(options.split),
        warnings=tuple(_warnings(scored, options, request, judges, segments)),
    )


def candidate_tokens(table: Table) -> Floats | None:
    """Tokens of every candidate, in and out where both are known; None where nobody counted."""
    # NaN + number is NaN: a candidate with one of the two unknown has an unknown sum
    parts = [table.candidates[c] for c in ("tokens", "tokens_in") if c in table.candidates.columns]
    if not parts:
        return None
    total = sum(part.cast(float).to_numpy() for part in parts)
    return None if bool(np.isnan(total).all()) else np.asarray(total, dtype=np.float64)


def _warnings(
    scored: Graded, options: GradingConfig, request: BestOfOptions, judges: Judges, segments: Sequence[SegmentCurve]
) -> list[CodedWarning]:
    out = []
    if options.use == "list":
        out.append(CodedWarning.of("list-drawn-at-random"))
    if request.selector is not None and (fault := _double_dipping(scored, request.selector, judges)) is not None:
        out.append(CodedWarning.of(DOUBLE_DIPPING, picks="the selector", **fault))
    if scored.metric in judges and request.labels is None:
        out.append(CodedWarning.of("judge-not-calibrated", metrics=(scored.metric,), curve=True))
    if len(scored.sets) < SMALL_SEGMENT:
        out.append(CodedWarning.of("few-cases", n=len(scored.sets)))
    small = tuple(s.table.segment or "" for s in segments if s.few)
    if small:
        out.append(CodedWarning.of("small-segments", fewest=SMALL_SEGMENT, segments=small))
    return out


def _double_dipping(scored: Graded, selector: Selector, judges: Judges) -> dict[str, str | None] | None:
    """What is wrong with this selector under this metric; a model that its file names counts as its judge's."""
    if selector.by not in scored.sets.selectors and selector.by not in judges:
        # as a column, so that its scores can be compared with the values of the metric
        scored = replace(scored, sets=with_selector(scored.sets, selector.by, selector.scores(scored.sets)))
    if selector.model is not None and selector.by not in judges:
        judges = {**judges, selector.by: {"fingerprint": selector.fingerprint(), "models": [selector.model]}}
    return find_double_dipping(scored, selector.by, judges)
