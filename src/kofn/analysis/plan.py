"""Plans an evaluation: how many cases, repeats and labels a question needs, and the cheapest mix.

The mean over n cases of K repeats each has the variance (between + within/K)/n (Miller 2024, arXiv 2411.00640): repeats
shrink only what is within. A judge's rate that is corrected with m labels adds what the labels leave uncertain.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil, floor, inf, isfinite, isnan, sqrt
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kofn.core.document import Displayable, Document, Grid, grid_lines
from kofn.core.escape import escape_controls
from kofn.core.format import format_count, format_dollars, format_level
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.stats import cases_for_width, cases_needed, detectable_difference, variance_shares
from kofn.stats.intervals import check_level, normal_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.core.candidate_sets import CandidateSets, Floats, Ints
    from kofn.stats.corrected_curve import Rates

REPEATS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32, 64)
ROUGH = 30  # cases under which the normal approximation is rough
MOST_CASES = 10**12  # more is not a plan
MOST_REPEATS = 1000
_WIDTH = 100  # columns of wrapped text


@dataclass(frozen=True, slots=True, kw_only=True)
class Variances:
    """Of one candidate's value, or of a difference: between cases, and within them (None: the pilot cannot tell).

    Of a difference `between` is the variance over cases of the expected difference, and `within` that of both systems
    together. `n_cases` and `repeats` are the pilot's; `mean` is its value.
    """

    between: float
    within: float | None
    mean: float | None = None
    n_cases: int | None = None
    repeats: float | None = None
    notes: tuple[CodedWarning, ...] = ()

    def per_case(self, repeats: float) -> float:
        """between + within/K, the variance of a case's mean."""
        return self.between + (self.within or 0.0) / repeats

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("between", "within", "mean", "n_cases", "repeats")}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """What is wanted: an interval of a width, or a difference found with a power; exactly one of them."""

    width: float | None = None
    difference: float | None = None
    power: float = 0.8
    level: float = 0.95

    def __post_init__(self) -> None:
        check_level(self.level)
        if (self.width is None) == (self.difference is None):
            raise InputError("a plan is for an interval's width or for a difference: give one of --width, --difference")
        for name in ("width", "difference"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0):
                raise InputError(f"{name}: expected a number above 0, not {value:g}")
        if not 0 < self.power < 1:
            raise InputError(f"power must lie strictly between 0 and 1, not {self.power:g}: 0.8 is usual")

    def cases(self, v: Variances, repeats: int) -> float:
        """Cases needed, not rounded."""
        within = v.within or 0.0
        if self.width is not None:
            return cases_for_width(self.width, between=v.between, within=within, repeats=repeats, level=self.level)
        assert self.difference is not None
        return cases_needed(
            self.difference, between=v.between, within_a=within, repeats=repeats, power=self.power, level=self.level
        )

    def pilot_precision(self, v: Variances) -> float | None:
        """What the pilot's own size gives: the width of its interval, or the difference it can find."""
        if v.n_cases is None or v.repeats is None or not v.per_case(v.repeats):
            return None
        if self.width is not None:
            return 2 * normal_quantile((1 + self.level) / 2) * sqrt(v.per_case(v.repeats) / v.n_cases)
        return detectable_difference(v.n_cases, between=v.per_case(v.repeats), power=self.power, level=self.level)

    def words(self) -> str:
        level = format_level(self.level)
        if self.width is not None:
            return f"a {level} interval of width {self.width:g}"
        return f"a difference of {self.difference:g} found with power {self.power:g} (two-sided, {level})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPrices:
    """Dollars of a case (writing it), a candidate, a label; None: not known, and not counted."""

    case: float | None = None
    candidate: float | None = None
    label: float | None = None

    def __post_init__(self) -> None:
        for name in ("case", "candidate", "label"):
            price = getattr(self, name)
            if price is not None and not (isfinite(price) and price >= 0):
                raise InputError(f"cost per {name}: expected 0 or more, not {price:g}")

    def of(self, cases: int, candidates: int, labels: int) -> float | None:
        known = self.case or self.candidate or self.label
        if not known or (self.case and self.candidate is None):  # what repeats cost would be missing
            return None
        return cases * (self.case or 0.0) + candidates * (self.candidate or 0.0) + labels * (self.label or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """One way to answer the question."""

    repeats: int
    cases: int
    exact: float  # cases before rounding up
    candidates: int
    labels: int | None = None
    dollars: float | None = None
    cheapest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Displayable):
    """The mixes that answer the question, the cheapest of them marked; none where no number of repeats does."""

    view: ClassVar[str] = "kofn.analysis.plan:plan_document"
    printer: ClassVar[str] = "kofn.analysis.plan:format_plan"

    question: PlanQuestion
    variances: Variances
    mixes: tuple[Mix, ...]
    systems: int = 1
    pilot_precision: float | None = None
    notes: tuple[CodedWarning, ...] = ()

    @property
    def cheapest(self) -> Mix | None:
        return next((mix for mix in self.mixes if mix.cheapest), None)

    def rows(self) -> list[dict[str, Any]]:
        """One row per mix of cases and repeats."""
        return [asdict(mix) for mix in self.mixes]

    def to_dict(self) -> dict[str, Any]:
        """As `kofn plan --json` prints it."""
        best = self.cheapest
        return {
            "question": asdict(self.question),
            "variances": self.variances.to_dict(),
            "now": self.pilot_precision,
            "systems": self.systems,
            "mixes": self.rows(),
            "cheapest": None if best is None else asdict(best),
            "answer": plan_sentence(self),
            "notes": list(map(str, self.notes)),
            "coded_notes": [note.to_dict() for note in self.notes],
        }


def format_plan(plan: Plan, style: Callable[[str, str], str] = lambda text, _: text) -> str:
    """The assumptions, the mixes, and the answer in a sentence."""
    lines = [*plan_assumptions(plan), ""]
    lines += [*grid_lines(plan_grid(plan), style), ""] if plan.mixes else []
    lines += [style(line, "strong") for line in wrap(f"{plan_sentence(plan)}.", _WIDTH)]
    for note in plan.notes:
        lines.append(f"{style('note', 'dim')}  " + "\n      ".join(wrap(escape_controls(str(note)), _WIDTH - 6)))
    return "\n".join(lines)


def plan_document(plan: Plan) -> Document:
    """The same for a notebook."""
    headline = (f"{plan_sentence(plan)}.", *plan_assumptions(plan))
    grids = (plan_grid(plan),) if plan.mixes else ()
    return Document(headline, grids, tuple(("note", str(note)) for note in plan.notes), ())


# where variances come from


def pilot_variances(sets: CandidateSets) -> Variances:
    """Variances of a candidate's value from graded candidates.

    Values all alike have no variance to plan with. Where they are 0 or 1 the share is taken nearer to the middle as
    Agresti and Coull do, (x + 2)/(n + 4) of the cases: the cautious end of what so many cases can tell.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> found = pilot_variances(CandidateSets.from_lists([[1, 1], [0, 0], [1, 0]]))
    >>> round(found.between, 4), round(found.within, 4)
    (0.1667, 0.1667)
    """
    values, cases = _graded_rows(sets)
    if not values.size:
        raise InputError("nothing is graded: there is no variance to plan with")
    if bool((values == values[0]).all()):
        # a variance of 0 would ask for one case: the cautious end of what the pilot can say is used
        value, n = float(values[0]), len(np.unique(cases))
        if value not in (0.0, 1.0):
            raise InputError(f"every value of the pilot is {value:g}: give --between and --within instead")
        # Agresti and Coull: two passes and two failures are added, by case, for repeats alike add no evidence
        p = (n * value + 2) / (n + 4)
        note = CodedWarning.of("pilot-all-alike", verdict="passes" if value else "fails", p=p, n=n)
        known: dict[str, Any] = {"mean": value, "n_cases": n, "repeats": len(values) / n}
        return Variances(between=p * (1 - p), within=None, notes=(note,), **known)
    shares = variance_shares(values, cases)
    n = shares.n_cases
    common: dict[str, Any] = {"mean": shares.mean, "n_cases": n, "repeats": shares.n_rows / n}
    if n < 2:
        raise InputError("the pilot has one case: nothing can be said of how cases differ; give --between and --within")
    if isnan(shares.within):
        between = float(values.var(ddof=1))
        note = CodedWarning.of("repeats-not-known", about="pilot")
        return Variances(between=between, within=None, notes=(note,), **common)
    notes = (CodedWarning.of("no-variance-between", about="pilot"),) if shares.clipped else ()
    return Variances(between=shares.between, within=shares.within, notes=notes, **common)


def _graded_rows(sets: CandidateSets) -> tuple[Floats, Ints]:
    """The values of all graded candidates, and the case of each."""
    return sets.values[sets.graded], np.repeat(np.arange(len(sets)), sets.sizes)[sets.graded]


def share_variances(p: float) -> Variances:
    """Of a share alone: p(1 - p), with no say on what is between and what within.

    >>> share_variances(0.5).between
    0.25
    """
    if not 0 < p < 1:
        raise InputError(f"p = {p:g} has no variance: give the share nearest to it that would still matter")
    note = CodedWarning.of("repeats-not-known", about="share")
    return Variances(between=p * (1 - p), within=None, mean=p, notes=(note,))


def alike_variances(v: Variances, correlation: float) -> Variances:
    """Of the difference of two systems like the pilot on the same cases: between 2 (1 - r), within of both.

    r is how alike the two find the cases hard; 0 is cautious.

    >>> found = alike_variances(Variances(between=0.2, within=0.1), 0.5)
    >>> found.between, found.within
    (0.2, 0.2)
    """
    if not -1 <= correlation <= 1:
        raise InputError(f"correlation: expected a number from -1 to 1, not {correlation:g}")
    within = None if v.within is None else 2 * v.within
    about = "given" if correlation else "cautious"
    note = CodedWarning.of("systems-alike", about=about, correlation=correlation)
    return replace(v, between=2 * v.between * (1 - correlation), within=within, mean=None, notes=(*v.notes, note))


def paired_variances(a: CandidateSets, b: CandidateSets) -> Variances:
    """Of the paired difference of two pilots, by case: what their repeats do not explain is between.

    between = Var(mean_b - mean_a) - within_a/K_a - within_b/K_b, at least 0; the difference is b - a, as that of
    `kofn compare A B`.
    """
    (ids_a, mean_a, size_a), (ids_b, mean_b, size_b) = _case_means(a), _case_means(b)
    places = {name: i for i, name in enumerate(ids_b)}
    shared = [(i, places[name]) for i, name in enumerate(ids_a) if name in places]
    if len(shared) < 2:
        raise InputError("the two pilots share fewer than 2 graded cases: nothing can be paired")
    at_a, at_b = (np.array(x) for x in zip(*shared, strict=True))
    differences = mean_b[at_b] - mean_a[at_a]
    spread = float(differences.var(ddof=1))
    within_a, within_b = (variance_shares(*_graded_rows(sets)).within for sets in (a, b))  # NaN without repeats
    repeats = float(np.mean([size_a[at_a].mean(), size_b[at_b].mean()]))
    common: dict[str, Any] = {"mean": float(differences.mean()), "n_cases": len(shared), "repeats": repeats}
    if not spread and not (within_a > 0 and within_b > 0):
        raise InputError("the two pilots have the same value in every case: there is no variance to plan with")
    if isnan(within_a) or isnan(within_b):
        note = CodedWarning.of("repeats-not-known", about="either")
        return Variances(between=spread, within=None, notes=(note,), **common)
    # the variance that repeats leave in a case's mean, averaged over cases of unequal size
    noise = within_a * float((1 / size_a[at_a]).mean()) + within_b * float((1 / size_b[at_b]).mean())
    notes = (CodedWarning.of("no-variance-between", about="difference"),) if noise > spread else ()
    return Variances(between=max(0.0, spread - noise), within=within_a + within_b, notes=notes, **common)


def _case_means(sets: CandidateSets) -> tuple[list[str], Floats, Floats]:
    """(ids, mean value, graded candidates) of the cases that have any."""
    values, cases = _graded_rows(sets)
    counts = np.bincount(cases, minlength=len(sets)).astype(float)
    totals = np.bincount(cases, weights=values, minlength=len(sets))
    some = counts > 0
    return sets.case_ids.filter(some).to_list(), totals[some] / counts[some], counts[some]


# the plan


def make_plan(
    question: PlanQuestion, variances: Variances, prices: UnitPrices, *, systems: int = 1, most_cases: int | None = None
) -> Plan:
    """Cases for each number of repeats, and the cheapest: by dollars where prices are known, else by candidates.

    `systems` are asked on every case (2 to find a difference). With `most_cases`, mixes of more are left out.

    >>> found = make_plan(PlanQuestion(difference=0.03), Variances(between=1/9, within=1/3), UnitPrices(), systems=2)
    >>> [(mix.repeats, mix.cases) for mix in found.mixes if mix.repeats in (1, 10)]
    [(1, 3876), (10, 1260)]
    """
    if not variances.per_case(1):
        raise InputError("both variances are 0: one case would do, which is not to be believed; give a pilot or --p")
    repeats = {*repeats_to_try(variances, prices, systems), *_least_repeats(question, variances, most_cases)}
    mixes = []
    for k in sorted(repeats):
        exact = question.cases(variances, k)
        cases = _round_up(exact)
        asked = cases * k * systems
        mix = Mix(repeats=k, cases=cases, exact=exact, candidates=asked, dollars=prices.of(cases, asked, 0))
        mixes.append(mix)
    kept = [mix for mix in mixes if most_cases is None or mix.cases <= most_cases]
    return Plan(
        question=question,
        variances=variances,
        mixes=_mark_cheapest(kept),
        systems=systems,
        pilot_precision=question.pilot_precision(variances),
        notes=(*variances.notes, *_notes(kept, variances, prices, most_cases, question)),
    )


def repeats_to_try(v: Variances, prices: UnitPrices, systems: int) -> tuple[int, ...]:
    """The ladder, and the two around sqrt(within/between x cost of a case/cost of its candidates), the best there is.

    >>> repeats_to_try(Variances(between=0.1, within=0.4), UnitPrices(case=1, candidate=0.01), 1)[-4:]
    (20, 21, 32, 64)
    """
    if not v.within:
        return (1,)
    ask = systems * (prices.candidate or 0.0)
    if not prices.case or not ask:
        return REPEATS
    # the minimum of (case + K candidates) x (between + within/K) over K
    best = sqrt(v.within / v.between * prices.case / ask) if v.between else inf
    around = {min(MOST_REPEATS, max(1, floor(min(best, MOST_REPEATS)) + more)) for more in (0, 1)}
    return tuple(sorted({*REPEATS, *around}))


def _least_repeats(question: PlanQuestion, v: Variances, most_cases: int | None) -> set[int]:
    """The fewest repeats with which so many cases do; none where none do.

    n = c (between + within/K), so K = c within/(n - c between).
    """
    if most_cases is None or not v.within:
        return set()
    # cases needed are linear in the variance: one call gives the factor
    a_unit = question.cases(Variances(between=1.0, within=0.0), 1)
    room = most_cases - a_unit * v.between
    if room <= 0 or (least := ceil(a_unit * v.within / room - 1e-9)) > MOST_REPEATS:
        return set()
    return {max(1, least)}


def _round_up(cases: float) -> int:
    if cases > MOST_CASES:
        raise InputError(f"{cases:.1g} cases would be needed: ask for a wider interval or a larger difference")
    return max(2, ceil(cases - 1e-9))  # 1e-9: 100.0000000001 is 100 cases and rounding


def _mark_cheapest(mixes: Sequence[Mix]) -> tuple[Mix, ...]:
    """With the cheapest marked; of equal ones that of fewer repeats."""
    if not mixes:
        return ()
    # with unknown prices by candidates, which are what is usually paid for
    best = min(mixes, key=lambda m: (m.candidates if m.dollars is None else m.dollars, m.repeats))
    return tuple(replace(mix, cheapest=mix is best) for mix in mixes)


def _notes(
    mixes: Sequence[Mix], v: Variances, prices: UnitPrices, most_cases: int | None, question: PlanQuestion
) -> list[CodedWarning]:
    out = []
    if mixes and len(mixes) > 1 and not prices.case:
        out.append(CodedWarning.of("price-not-known", about="case"))
    if prices.case and prices.candidate is None:
        out.append(CodedWarning.of("price-not-known", about="candidate"))
    if mixes and min(mix.cases for mix in mixes) < ROUGH:
        out.append(CodedWarning.of("rough-plan", fewest=ROUGH))
    if not mixes and most_cases is not None:
        least = question.cases(replace(v, within=0.0), 1)
        why = "repeats only shrink what is within cases" if v.within else "and what repeats would bring is not known"
        many = "any number of" if ceil(least) > most_cases else f"up to {MOST_REPEATS:,}"
        out.append(CodedWarning.of("plan-not-possible", about="cases", n=most_cases, many=many, why=why))
        if v.within:
            out.append(CodedWarning.of("plan-not-possible", about="least", n=ceil(least)))
    return out


# judges and labels


def plan_with_labels(
    question: PlanQuestion, verdicts: Variances, rates: Rates, n_labels: int, prices: UnitPrices
) -> Plan:
    """Cases and labels for a corrected rate of this width, the cheapest split for each number of repeats.

    Labels are of judged candidates, half of them passed by the judge and half failed, as `kofn calibrate --sample`
    draws them. With q what the judge passes, p1 what people pass of that and p0 of the rest, the corrected rate
    q p1 + (1-q) p0 has the variance A/n + B/m over n judged cases and m labels, A = (p1 - p0)^2 (between + within/K)
    and B = 2 (q^2 p1(1-p1) + (1-q)^2 p0(1-p0)). Of all n and m that give it, n : m = sqrt(A/a) : sqrt(B/b) is the
    cheapest at prices a and b.
    """
    if question.width is None:
        raise InputError("a plan with labels is for the width of the corrected rate: give --width, not --difference")
    if not prices.label:
        raise InputError("labels are weighed against cases by what they cost: give --cost-per-label")
    if prices.candidate is None:
        raise InputError("labels are weighed against candidates by what they cost: give --cost-per-candidate")
    s, t = rates.checked()
    # a judge that passes all or nothing would divide by 0 below
    q = min(1 - 1e-9, max(1e-9, verdicts.mean or 0.0))
    # the rate of Rogan and Gladen, kept within 0 and 1
    pi = min(1.0, max(0.0, (q + t - 1) / (s + t - 1)))
    p1, p0 = min(1.0, pi * s / q), min(1.0, pi * (1 - s) / (1 - q))
    b = 2 * (q**2 * p1 * (1 - p1) + (1 - q) ** 2 * p0 * (1 - p0))
    variance = (question.width / (2 * normal_quantile((1 + question.level) / 2))) ** 2
    repeats = repeats_to_try(verdicts, prices, 1)
    mixes = [_label_mix(verdicts.per_case(k) * (p1 - p0) ** 2, b, variance, k, prices) for k in repeats]
    notes = [
        CodedWarning.of(
            "plan-of-labels", about="rate", rate=float(pi), sensitivity=float(s), specificity=float(t), n=n_labels
        )
    ]
    notes.append(CodedWarning.of("plan-of-labels", about="drawn"))
    if not b:
        notes.append(CodedWarning.of("plan-of-labels", about="no-mistake"))
    return Plan(question=question, variances=verdicts, mixes=_mark_cheapest(mixes), notes=(*verdicts.notes, *notes))


def _label_mix(a: float, b: float, variance: float, repeats: int, prices: UnitPrices) -> Mix:
    a_case = (prices.case or 0.0) + repeats * (prices.candidate or 0.0)
    a_label = prices.label or 0.0
    both = sqrt(a * a_case) + sqrt(b * a_label)
    # cases that cost nothing: so many that labels have nearly all of the width to themselves
    exact = both * sqrt(a / a_case) / variance if a_case else 20 * a / variance
    cases = _round_up(exact)
    left = variance - a / cases
    labels = max(1, ceil(b / left - 1e-9)) if b else 0
    candidates = cases * repeats
    asked: dict[str, Any] = {"cases": cases, "candidates": candidates, "labels": labels}
    return Mix(repeats=repeats, exact=exact, dollars=prices.of(**asked), **asked)


# what it says


def plan_sentence(found: Plan) -> str:
    """The answer as a person would say it."""
    best, q = found.cheapest, found.question
    if best is None:
        return f"{_capital(q.words())} is out of reach"
    times = "once" if best.repeats == 1 else f"{best.repeats} times each"
    both = "both systems " if found.systems == 2 else ""
    said = f"for {q.words()} ask {both}{best.cases:,} cases {times}"
    if best.labels is not None:
        said += f" and label {best.labels:,} of the judged {'candidates' if best.repeats > 1 else 'cases'}"
    said += f": {best.candidates:,} candidates"
    return _capital(said if best.dollars is None else f"{said}, {format_dollars(best.dollars)}")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def plan_assumptions(found: Plan) -> list[str]:
    """What the plan rests on: variances, and what the pilot's own size gives."""
    v = found.variances
    within = "not known" if v.within is None else f"{v.within:.4g}"
    value = "" if v.mean is None else f"{'difference' if found.systems == 2 else 'value'} {v.mean:.3f}, "
    lines = [f"{value}variance between cases {v.between:.4g}, within {within}"]
    if found.pilot_precision is not None and v.n_cases is not None and v.repeats is not None:
        what = "find a difference" if found.question.width is None else "give a width"
        size = f"{format_count(v.n_cases, 'case')} x {v.repeats:.3g}"
        lines.append(f"the pilot's {size} {what} of {found.pilot_precision:.3f}")
    return lines


def plan_grid(found: Plan) -> Grid:
    """The mixes as a table; columns in which nothing is known are left out."""
    rows = [
        (
            f"{mix.repeats:,}",
            f"{mix.cases:,}",
            f"{mix.candidates:,}",
            "-" if mix.labels is None else f"{mix.labels:,}",
            "-" if mix.dollars is None else format_dollars(mix.dollars),
            "◂ cheapest" if mix.cheapest else "",
        )
        for mix in found.mixes
    ]
    header = ("repeats", "cases", "candidates", "labels", "dollars", "")
    kept = [i for i, name in enumerate(header) if not name or any(row[i] != "-" for row in rows)]
    shown = tuple(tuple(row[i] for i in kept) for row in (header, *rows))
    return Grid("", shown[0], shown[1:], tuple(name != "" for name in shown[0]))


def candidate_cost(sets: CandidateSets) -> float | None:
    """What a candidate of the pilot cost on average."""
    if sets.costs is None:
        return None
    known = sets.costs[~np.isnan(sets.costs)]
    return float(known.mean()) if len(known) else None
