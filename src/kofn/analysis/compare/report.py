"""What a comparison found, and its headline: the number that counts, with its interval, p-value and cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from kofn.analysis.compare.differences import FEWEST_SHARED
from kofn.analysis.finding import Finding
from kofn.core.document import Displayable
from kofn.core.format import format_count, format_interval, format_number, format_p, format_p_in_text, format_signed
from kofn.core.warnings import DOUBLE_DIPPING, warnings_dict, with_code
from kofn.scoring.configuration import USES
from kofn.scoring.result import headline_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kofn.analysis.compare.differences import (
        ChangedCase,
        ComparisonRules,
        Difference,
        GraderAgreement,
        UnmatchedCases,
        ValueLevel,
    )
    from kofn.core.warnings import CodedWarning

Kind = Literal["runs", "graders", "selectors"]

# the number that a declared use is measured by, where every set of candidates has it
NUMBER_OF_USE = {"any": "any_pass", "vote": "majority", "select": "selected", "all": "all_pass"}
MOST_PAIRS = 4  # pairs of systems that the headline describes
MOST_NAMED = 3  # further significant numbers that it gives in full


@dataclass(frozen=True, kw_only=True, repr=False)
class ComparisonReport(Displayable):
    """All that a comparison found. `verdict` says by what the changed cases changed, `graded_by` under which metric.

    main   (metric, aggregator) of the number that the headline gives
    use    how the product uses a set, where the runs or the caller declare it
    """

    view: ClassVar[str] = "kofn.render.comparison_text:comparison_document"
    printer: ClassVar[str] = "kofn.render.comparison_text:format_comparison"
    markdown: ClassVar[str] = "kofn.render.comparison_text:comparison_markdown"

    kind: Kind
    names: tuple[str, ...]
    about: str
    differences: tuple[Difference, ...]
    levels: tuple[ValueLevel, ...]
    rules: ComparisonRules
    main: tuple[str, str]
    use: str | None = None
    verdict: str | None = None
    graded_by: str = ""
    changed: tuple[ChangedCase, ...] = ()
    unmatched: tuple[UnmatchedCases, ...] = ()
    agreements: tuple[GraderAgreement, ...] = ()
    selections: tuple[Any, ...] = ()
    warnings: tuple[CodedWarning, ...] = ()
    n_tests: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def double_dipping(self) -> tuple[CodedWarning, ...]:
        """The warnings about a number that is picked and graded by the same judge or score."""
        return with_code(self.warnings, DOUBLE_DIPPING)

    @property
    def main_differences(self) -> tuple[Difference, ...]:
        """The main number over all cases, one difference per pair."""
        return tuple(d for d in self.differences if d.segment is None and (d.metric, d.aggregator) == self.main)

    @property
    def too_few(self) -> bool:
        """Whether a pair shares too few cases to tell."""
        return any(d.too_few for d in self.main_differences)

    @property
    def headline(self) -> Finding:
        """The main number of every pair with its interval and p, and what else is significant."""
        metric, number = self.main
        own = ("name_a", "name_b", "p_holm", "holds", "too_few")
        shown = ("a", "b", "difference", "low", "high", "p", "n")
        pairs = [
            {**{k: getattr(d, k) for k in own}, **{k: getattr(d.comparison, k) for k in shown}}
            for d in self.main_differences
        ]
        numbers = {"metric": metric, "aggregator": number, "use": self.use, "pairs": pairs}
        return Finding(text=headline_text(self), numbers=numbers)

    def rows(self) -> list[dict[str, Any]]:
        """One row per difference."""
        return [d.to_dict() for d in self.differences]

    def to_dict(self) -> dict[str, Any]:
        """As `kofn compare --json` prints it."""
        described: dict[str, Any] = {
            "headline": self.headline.to_dict(),
            "kind": self.kind,
            "names": list(self.names),
            "about": self.about,
            **self.facts,
            "alpha": self.rules.alpha,
            "level": self.rules.level,
            "seed": self.rules.seed,
            "n_tests": self.n_tests,
            "n_holding": sum(d.holds for d in self.differences),
            "too_few": self.too_few,
            "comparisons": [d.to_dict() for d in self.differences],
            "verdict": self.verdict,
            "changed": [c.to_dict() for c in self.changed],
            "unmatched": [u.to_dict() for u in self.unmatched],
            **warnings_dict(self.warnings),
        }
        if self.kind == "graders":
            described["graders"] = [a.to_dict() for a in self.agreements]
        if self.kind == "selectors":
            described["selectors"] = [s.to_dict() for s in self.selections]
        return described


def main_number(numbers: Sequence[tuple[str, str]], use: str | None = None, metric: str = "") -> tuple[str, str]:
    """The (metric, aggregator) that a comparison is summarised by, whatever the order of the options.

    As the headline of a result: that of the declared use, else the mean, else a usual one; under the metric that is
    named, where it has any.

    >>> numbers = [("numeric", "pass@1"), ("numeric", "any_pass"), ("numeric", "mean")]
    >>> main_number(numbers, "any"), main_number(numbers)
    (('numeric', 'any_pass'), ('numeric', 'mean'))
    """
    of_metric = [one for one in numbers if one[0] == metric] or list(numbers)
    name, _ = headline_name([name for _, name in of_metric], use)
    return next(one for one in of_metric if one[1] == name)


# the headline in words


def headline_text(found: ComparisonReport, quoted: Callable[[str], str] = str, said: Callable[[str], str] = str) -> str:
    """The headline, and the warning that makes it meaningless. `quoted` shows a name, `said` a warning."""
    errors = [w for w in found.warnings if w.severity == "error"]
    return " ".join([_finding_text(found, quoted), *(f"Error: {said(str(w))}." for w in errors[:1])])


def _finding_text(found: ComparisonReport, quoted: Callable[[str], str]) -> str:
    mains = found.main_differences
    if len(mains) == 1:
        return f"{_pair_text(found, mains[0], quoted)}."
    metric, number = found.main
    level = next(one for one in found.levels if (one.metric, one.aggregator, one.segment) == (metric, number, None))
    values = zip(found.names, level.values, strict=True)
    means = ", ".join(f"{quoted(name)} {format_number(value)}" for name, value in values)
    # significant pairs first, so that none is hidden behind those that are not
    ordered = sorted(mains, key=lambda d: not (d.holds or _others(found, d)))
    shown = [_short_pair_text(found, d, quoted) for d in ordered[:MOST_PAIRS]]
    left = ordered[MOST_PAIRS:]
    more = f"; {format_count(len(left), 'more pair')}" if left else ""
    if hidden := sum(d.holds or bool(_others(found, d)) for d in left):
        more += f", {hidden} of them with significant differences"
    about = f"{_number(found, mains[0], quoted)} over {format_count(level.n, 'shared case')}: {means}"
    return f"{about}. {'; '.join(shown)}{more}."


def _pair_text(found: ComparisonReport, d: Difference, quoted: Callable[[str], str]) -> str:
    """The main difference of the only pair, and what else is significant."""
    c, a, b, number = d.comparison, quoted(d.name_a), quoted(d.name_b), _number(found, d, quoted)
    if not c.n:
        return f"{b} and {a} share no case with a value of {number}"
    size = f"{format_number(c.a)} to {format_number(c.b)}, difference {_size(d)}, {format_count(c.n, 'case')}"
    if d.too_few:
        return f"Too few shared cases to tell ({c.n}, at least {FEWEST_SHARED} needed): {number} {size}"
    others = _others(found, d)
    if d.holds:
        # a number that goes the same way adds nothing; one that goes the other way must not be missed
        against = [one for one in others if one.word != d.word]
        but = f"; but it is {_list(found, against, quoted)}" if against else ""
        return f"{b} is {d.word} than {a} on {number}: {size}{but}"
    if others:
        return f"{number} {size}: not significant; but {b} against {a} is {_list(found, others, quoted)}"
    return f"No significant difference in {number} between {a} and {b}: {size}"


def _short_pair_text(found: ComparisonReport, d: Difference, quoted: Callable[[str], str]) -> str:
    """One of several pairs, whose values are given already."""
    c, a, b = d.comparison, quoted(d.name_a), quoted(d.name_b)
    if not c.n:
        return f"{b} and {a} share no case"
    if d.too_few:
        return f"{b} and {a} share too few cases to tell ({c.n}, at least {FEWEST_SHARED} needed)"
    others = [one for one in _others(found, d) if not d.holds or one.word != d.word]
    but = f", but is {_list(found, others, quoted)}" if others else ""
    if d.holds:
        return f"{b} is {d.word} than {a} ({_size(d)}){but}"
    return f"{b} does not differ significantly from {a} ({_size(d)}){but}"


def _number(found: ComparisonReport, d: Difference, quoted: Callable[[str], str]) -> str:
    several = len({one.metric for one in found.differences}) > 1
    of = f" of {quoted(d.metric)}" if several and d.metric else ""
    declared = found.use is not None and d.aggregator.startswith(USES[found.use])
    use = f" (intended use: {found.use})" if declared and (d.metric, d.aggregator) == found.main else ""
    where = "" if d.segment is None else f" in {quoted(d.segment)}"
    return f"{quoted(d.aggregator)}{of}{where}{use}"


def _size(d: Difference) -> str:
    """A difference with its interval and its p-value, adjusted too where that changes it."""
    c = d.comparison
    ends = "" if c.low is None else f" {format_interval(c.low, c.high)}"
    adjusted = f", {format_p(d.p_holm)} after Holm" if format_p(d.p_holm) != format_p(c.p) else ""
    return f"{format_signed(c.difference)}{ends}, {format_p_in_text(c.p)}{adjusted}"


def _others(found: ComparisonReport, main: Difference) -> list[Difference]:
    """The other significant differences of a pair: those over all cases first, of these the largest first."""
    of_pair = [d for d in found.differences if d.sides == main.sides and d is not main and d.holds]
    return sorted(of_pair, key=lambda d: (d.segment is not None, -abs(d.comparison.difference or 0.0)))


def _list(found: ComparisonReport, others: Sequence[Difference], quoted: Callable[[str], str]) -> str:
    """Differences with their words, those of one word together; the first few in full."""
    named = others[:MOST_NAMED]
    words = dict.fromkeys(d.word for d in named)
    parts = [f"{word} on {_names(found, (d for d in named if d.word == word), quoted)}" for word in words]
    more = f" and on {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    return " and ".join(parts) + more


def _names(found: ComparisonReport, rows: Iterable[Difference], quoted: Callable[[str], str]) -> str:
    return ", ".join(f"{_number(found, d, quoted)} ({_size(d)})" for d in rows)
