"""Best of n of graded candidates, with all there is to say of it: the choice, the selector, what to beware of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.best_of import OF_USE, best_of, of_segments
from kofn.checklist import APART, TRACKED, Line
from kofn.choices import choose
from kofn.diagnose import DIPPING, counted, dipping
from kofn.evaluate import segment_names
from kofn.selectors import Selector, selection, with_selector
from kofn.stats.estimate import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.best_of import Asked, BestOf
    from kofn.choices import Choice, Wanted
    from kofn.evaluate import Options
    from kofn.scoring import Scored
    from kofn.selectors import Selection
    from kofn.sets import Floats
    from kofn.table import Table

    Judges = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The curve of one value of a field, and the n to choose there."""

    by: str
    table: BestOf
    choice: Choice

    @property
    def few(self) -> bool:
        return self.table.n_cases < SMALL_SEGMENT

    def to_dict(self) -> dict[str, Any]:
        return {"by": self.by, **self.table.to_dict(), "choose": self.choice.to_dict(), "few_cases": self.few}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A curve with its choice, its segments and what stands beside it."""

    name: str
    metric: str
    level: float
    table: BestOf
    choice: Choice
    wanted: Wanted
    segments: tuple[Segment, ...] = ()
    selector: Selector | None = None
    selection: Selection | None = None
    split: str | None = None
    warnings: tuple[str, ...] = ()
    checklist: tuple[Line, ...] = ()

    @property
    def double_dipping(self) -> bool:
        """Whether the selector and the metric are the same judge, model or score."""
        return any(DIPPING in warning for warning in self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """As `kofn curve --json` prints it."""
        told = self.table.to_dict()
        return {
            "name": self.name,
            "metric": self.metric,
            "level": self.level,
            "split": self.split,
            **{key: value for key, value in told.items() if key != "segment"},
            "choose": self.choice.to_dict(),
            "wanted": self.wanted.to_dict(),
            "selector": None if self.selector is None else self.selector.to_dict(),
            "selection": None if self.selection is None else self.selection.to_dict(),
            "segments": [segment.to_dict() for segment in self.segments],
            "warnings": list(self.warnings),
            "checklist": [line.to_dict() for line in self.checklist],
        }

    def _repr_html_(self) -> str:
        from kofn.notebook import as_html
        from kofn.report.curve_text import document

        return as_html(document(self))

    def checked(self, checklist: tuple[Line, ...]) -> Found:
        """With the checklist of what the curve is of, and what the curve itself answers."""
        spent = self.table.rows[0]
        tracked = spent.cost is not None and spent.seconds is not None
        cost = "each k has its cost and its time" if tracked else "candidates carry no cost, or no time"
        apart = "nothing is picked by a selector" if self.selector is None else "what picks and what grades differ"
        own = {
            TRACKED: ("yes" if tracked else "no", cost),
            APART: ("no", "the same judge or score picks and grades") if self.double_dipping else ("yes", apart),
        }
        lines = [line if line.item not in own else Line.of(line.item, *own[line.item]) for line in checklist]
        return replace(self, checklist=tuple(lines))


def default_measure(options: Options) -> str:
    """The measure whose gain counts, by how the product uses a set.

    >>> from kofn.evaluate import Options
    >>> default_measure(Options(use="vote")), default_measure(Options())
    ('majority', 'any')
    """
    return OF_USE.get(options.use or "any", "any")


def only_selector(scored: Scored) -> Selector | None:
    """The column that can pick, where there is just one; the metric itself is none."""
    names = [name for name in scored.sets.selectors if name != scored.metric]
    return Selector(name=names[0], by=names[0]) if len(names) == 1 else None


def found_of(
    name: str,
    scored: Scored,
    table: Table,
    options: Options,
    asked: Asked,
    wanted: Wanted,
    *,
    judges: Judges,
    units: Mapping[str, Any],
) -> Found:
    """The curve over all cases and by segment, the choice, and what the selector makes of the candidates."""
    sets = scored.sets
    spent: dict[str, Any] = {"tokens": candidate_tokens(table), **units}
    whole = best_of(sets, options, asked, **spent)
    segments = [
        Segment(by=by, table=part, choice=choose(part, wanted))
        for by in options.by
        for part in of_segments(sets, [n or "" for n in segment_names(table, by)], options, asked, **spent)
    ]
    picked = None
    if asked.selector is not None:
        picked = selection(sets, asked.selector, options, metric=scored.metric, **units)
    return Found(
        name=name,
        metric=scored.metric,
        level=options.level,
        table=whole,
        choice=choose(whole, wanted),
        wanted=wanted,
        segments=tuple(segments),
        selector=asked.selector,
        selection=picked,
        split=None if options.split is None else str(options.split),
        warnings=tuple(_warnings(scored, options, asked, judges, segments)),
    )


def candidate_tokens(table: Table) -> Floats | None:
    """Tokens of every candidate, in and out where both are known; None where nobody counted."""
    parts = [table.candidates[c] for c in ("tokens", "tokens_in") if c in table.candidates.columns]
    if not parts:
        return None
    total = sum(part.cast(float).to_numpy() for part in parts)
    return None if bool(np.isnan(total).all()) else np.asarray(total, dtype=np.float64)


def _warnings(scored: Scored, options: Options, asked: Asked, judges: Judges, segments: Sequence[Segment]) -> list[str]:
    out = []
    if options.use == "list":
        out.append(
            "any@k draws k places of a list at random; for its first k ask kofn score -a 'recall(k=...)' or ndcg"
        )
    if asked.selector is not None and (fault := _dipping(scored, asked.selector, judges)) is not None:
        out.append(f"the selector picks by `{asked.selector.by}` and is graded by {fault}")
    if scored.metric in judges and asked.labels is None:
        out.append(f"{scored.metric}: a judge's verdicts, not corrected for its errors: give --labels")
    if len(scored.sets) < SMALL_SEGMENT:
        out.append(f"only {counted(len(scored.sets), 'case')}: intervals over so few are rough")
    small = [s.table.segment or "" for s in segments if s.few]
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        out.append(f"segments of fewer than {SMALL_SEGMENT} cases: {shown}")
    return out


def _dipping(scored: Scored, selector: Selector, judges: Judges) -> str | None:
    """What is wrong with this selector under this metric; a model that its file names counts as its judge's."""
    own = scored
    if selector.by not in scored.sets.selectors and selector.by not in judges:
        scores = selector.scores(scored.sets)
        own = replace(scored, sets=with_selector(scored.sets, selector.by, scores))
    if selector.model is not None and selector.by not in judges:
        judges = {**judges, selector.by: {"fingerprint": selector.fingerprint(), "models": [selector.model]}}
    return dipping(own, selector.by, judges)
