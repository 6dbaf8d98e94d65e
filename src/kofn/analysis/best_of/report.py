"""Puts a best-of-n report together: the table, the recommended n, the selector, segments and warnings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kofn.analysis.best_of.best_of import MEASURE_OF_USE, best_of, best_of_by_segment
from kofn.analysis.best_of.choose_n import recommend_n
from kofn.analysis.selectors import Selector, evaluate_selector, with_selector
from kofn.core.display import Displayable
from kofn.core.document import ChecklistLine
from kofn.core.table import segment_names
from kofn.core.warnings import DOUBLE_DIPPING, CodedWarning, warnings_dict, with_code
from kofn.scoring.diagnostics import APART, TRACKED, find_double_dipping
from kofn.stats.estimates import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.analysis.best_of.best_of import BestOf, BestOfOptions
    from kofn.analysis.best_of.choose_n import RecommendedN, SpendingBounds
    from kofn.analysis.selectors import Selection
    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded

    Judges = Mapping[str, Mapping[str, Any]]


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
        return {"by": self.by, **self.table.to_dict(), "choose": self.choice.to_dict(), "few_cases": self.few}


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

    def rows(self) -> list[dict[str, Any]]:
        """One row per k, of all cases and then of each segment."""
        curves = [(None, self.table), *((s.table.segment, s.table) for s in self.segments)]
        return [{"segment": segment, **row.to_dict()} for segment, table in curves for row in table.rows]

    def to_dict(self) -> dict[str, Any]:
        """As `kofn curve --json` prints it."""
        table = self.table.to_dict()
        return {
            "name": self.name,
            "metric": self.metric,
            "level": self.level,
            "split": self.split,
            **{key: value for key, value in table.items() if key != "segment"},
            "choose": self.choice.to_dict(),
            "wanted": self.bounds.to_dict(),
            "selector": None if self.selector is None else self.selector.to_dict(),
            "selection": None if self.selection is None else self.selection.to_dict(),
            "segments": [segment.to_dict() for segment in self.segments],
            **warnings_dict(self.warnings),
            "checklist": [line.to_dict() for line in self.checklist],
        }

    def with_checklist(self, checklist: tuple[ChecklistLine, ...]) -> BestOfReport:
        """With the checklist of what the curve is of, and what the curve itself answers."""
        spent = self.table.rows[0]
        tracked = spent.cost is not None and spent.seconds is not None
        cost = "each k has its cost and its time" if tracked else "candidates carry no cost, or no time"
        apart = "nothing is picked by a selector" if self.selector is None else "what picks and what grades differ"
        own = {
            TRACKED: ("yes" if tracked else "no", cost),
            APART: ("no", "the same judge or score picks and grades") if self.double_dipping else ("yes", apart),
        }
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
    picked = None
    if request.selector is not None:
        picked = evaluate_selector(sets, request.selector, options, metric=scored.metric, **units)
    return BestOfReport(
        name=name,
        metric=scored.metric,
        level=options.level,
        table=whole,
        choice=recommend_n(whole, bounds),
        bounds=bounds,
        segments=tuple(segments),
        selector=request.selector,
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
    own = scored
    if selector.by not in scored.sets.selectors and selector.by not in judges:
        scores = selector.scores(scored.sets)
        # as a column, so that its scores can be compared with the values of the metric
        own = replace(scored, sets=with_selector(scored.sets, selector.by, scores))
    if selector.model is not None and selector.by not in judges:
        judges = {**judges, selector.by: {"fingerprint": selector.fingerprint(), "models": [selector.model]}}
    return find_double_dipping(own, selector.by, judges)
