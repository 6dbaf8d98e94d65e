"""One number over the runs of a task: paired changes, spread against chance, flaky cases."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isnan, nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.analysis.compare.differences import FEWEST_SHARED
from kofn.errors import InputError
from kofn.runs.index import QUESTION_COLUMNS, Questions
from kofn.stats import clustered_se, compare, holm
from kofn.stats.intervals import cluster_codes
from kofn.stats.paired import same_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.stats import Comparison


MOSTLY = 0.9  # runs that share this part of their cases are repeats of the same cases
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """One run in a series: the value of every case, and their estimate. NaN: the case has no value."""

    name: str
    cases: Sequence[str]
    values: Floats
    estimate: Estimate
    clusters: Sequence[Any] | NDArray[Any] | None = None
    weights: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A run against an earlier one, case by case.

    `against` is the place of the earlier run in the series. `p_holm` is p adjusted for all changes of the series, None
    where the two share no case. A change is real where p_holm < alpha over at least 10 shared cases; everything else
    may be noise.
    """

    against: int
    comparison: Comparison
    p_holm: float | None
    real: bool

    @property
    def sign(self) -> int:
        """1 up, -1 down, 0 neither (or nothing to compare)."""
        return self.comparison.sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far the runs lie apart, beside what chance alone would do.

    standard_error  the mean of the runs' own: what other cases of the same kind would move one run by
    noise           the standard deviation that chance alone would give: for runs of the same cases that of repeating
                    them (`same_cases`), otherwise `standard_error`
    p               the chance of a spread at least this large from noise alone; None where it cannot be computed
    """

    n: int
    mean: float
    sd: float | None
    low: float
    high: float
    standard_error: float | None
    noise: float | None
    same_cases: bool
    p: float | None

    def is_noise(self, alpha: float = 0.05) -> bool | None:
        """Whether chance alone explains the spread; None where `p` is not known."""
        return None if self.p is None else self.p >= alpha


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One number over the runs of a task, oldest first. A run without the number, and the first, has no change."""

    points: tuple[TrendPoint, ...]
    changes: tuple[Change | None, ...]
    overall: Change | None
    spread: Spread | None
    alpha: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseHistory:
    """One case through the runs: in how many it was verified, in how many it passed, how often that changed."""

    case: str
    runs: int
    passes: int
    flips: int


def build_series(points: Sequence[TrendPoint], *, alpha: float = 0.05, level: float = 0.95) -> Series:
    """What changed along these runs, oldest first.

    Every run is compared with the last before it that has the number, on the cases both have; their p-values are
    adjusted together (Holm), so that among all changes of a series of pure noise one is called real with a chance of
    at most alpha. First to last is one question of its own and is not adjusted.

    >>> from kofn.stats import estimate
    >>> point = lambda name, values: TrendPoint(name=name, cases="abcdefghij", values=np.array(values, float),
    ...                                    estimate=estimate(values))
    >>> found = build_series([point("x", [1] * 10), point("y", [1] * 10), point("z", [0] * 10)])
    >>> [c and (c.real, c.sign) for c in found.changes]
    [None, (False, 0), (True, -1)]
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha takes a number between 0 and 1, not {alpha}")
    # (earlier, later) of the runs that have the number
    pairs = list(pairwise(i for i, p in enumerate(points) if p.estimate.point is not None))
    # each run with the one before it that has the number: a gap is stepped over
    found = {b: compare_points(points[a], points[b], level=level) for a, b in pairs}
    known = [b for b, c in found.items() if c.p is not None]
    adjusted = dict(zip(known, holm([found[b].p or 0.0 for b in known]), strict=True))
    changes: list[Change | None] = [None] * len(points)
    for a, b in pairs:
        p = adjusted.get(b)
        changes[b] = Change(against=a, comparison=found[b], p_holm=p, real=_is_real(p, found[b], alpha))
    overall = None
    if pairs:
        first, last = pairs[0][0], pairs[-1][1]
        whole = compare_points(points[first], points[last], level=level)
        overall = Change(against=first, comparison=whole, p_holm=whole.p, real=_is_real(whole.p, whole, alpha))
    spread = estimate_spread(points)
    return Series(points=tuple(points), changes=tuple(changes), overall=overall, spread=spread, alpha=alpha)


def _is_real(p: float | None, found: Comparison, alpha: float) -> bool:
    # a difference of 0 is not a change, whatever its p; and of a few shared cases nothing can be told
    return p is not None and p < alpha and bool(found.difference) and found.n >= FEWEST_SHARED


def compare_points(a: TrendPoint, b: TrendPoint, *, level: float = 0.95) -> Comparison:
    """`kofn.stats.compare` of two runs, by cluster and by weight where they have them (those of the later run)."""
    weights = a.weights if b.weights is None else align_column(a.cases, b.cases, b.weights.tolist(), 0.0)
    return compare(a.cases, a.values, b.cases, b.values, clusters=a.clusters, weights=weights, level=level)


def align_column(target: Sequence[str], cases: Sequence[str], column: Sequence[Any], otherwise: Any) -> list[Any]:
    """A column of some cases on others.

    >>> align_column("ba", "ac", [1, 2], 0)
    [0, 1]
    """
    known = dict(zip(cases, column, strict=True))
    return [known.get(case, otherwise) for case in target]


def estimate_spread(points: Sequence[TrendPoint]) -> Spread | None:
    """How far the runs lie apart, and whether chance alone would do it; None of no values.

    Runs of the same cases: the variance of a run's mean under chance is that of the residuals e = x - run mean - case
    mean + mean, Σe²/((R-1)(C-1)C) for R runs of C cases (clusters are summed and cases weighted first), and p is the
    F test of the two-way layout; for 0/1 values this is Cochran's (1950) question. Otherwise each run is a sample of
    its own: its standard error, and χ².

    >>> from kofn.stats import estimate
    >>> alike = [TrendPoint(name=n, cases="abcd", values=np.array([1.0, 0, 1, 0]), estimate=estimate([1, 0, 1, 0]))
    ...          for n in "xyz"]
    >>> estimate_spread(alike).sd, estimate_spread(alike).p
    (0.0, 1.0)
    """
    from scipy.special import chdtrc

    known = [p for p in points if p.estimate.point is not None]
    if not known:
        return None
    means = np.array([p.estimate.point for p in known], dtype=np.float64)
    errors = [e for p in known if not isnan(e := standard_error(p))]
    own = float(np.mean(errors)) if errors else None
    shared = shared_cases(known)
    same = len(known) > 1 and len(shared) > 1 and all(len(shared) >= MOSTLY * p.estimate.n for p in known)
    noise, p = _repeat_noise(known, shared) if same else (own, None)
    if not same and means.size > 1 and own:  # χ² of runs that are samples of their own
        p = float(chdtrc(means.size - 1, float(((means - means.mean()) ** 2).sum()) / own**2))
    return Spread(
        n=len(known),
        mean=float(means.mean()),
        sd=float(means.std(ddof=1)) if means.size > 1 else None,
        low=float(means.min()),
        high=float(means.max()),
        standard_error=own,
        noise=noise,
        same_cases=same,
        p=p,
    )


def standard_error(point: TrendPoint) -> float:
    """Of the run's mean over its cases, by cluster and weight where it has them; NaN of fewer than two."""
    kept = ~np.isnan(point.values)
    x = point.values[kept]
    if x.size < 2:
        return nan
    clusters = np.arange(x.size) if point.clusters is None else cluster_codes(point.clusters)[kept]
    weights = None if point.weights is None else point.weights[kept]
    return nan if weights is not None and not weights.any() else clustered_se(x, clusters, weights=weights)


def shared_cases(points: Sequence[TrendPoint]) -> list[str]:
    """The cases that have a value in every run, in the order of the first.

    >>> from kofn.stats import estimate
    >>> one = TrendPoint(name="x", cases=["a", "b"], values=np.array([1.0, np.nan]), estimate=estimate([1]))
    >>> shared_cases([one])
    ['a']
    """
    common: dict[str, None] = dict.fromkeys(points[0].cases if points else ())
    for point in points:
        here = {c for c, v in zip(point.cases, point.values.tolist(), strict=True) if not isnan(v)}
        if len(here) < len(common) or not common.keys() <= here:
            common = {c: None for c in common if c in here}
    return list(common)


def _repeat_noise(points: Sequence[TrendPoint], shared: list[str]) -> tuple[float | None, float | None]:
    """The standard deviation of run means that repeating the same cases gives, and p of the one there is."""
    from scipy.special import fdtrc

    rows, first = [_align(p, p.values, shared) for p in points], points[0]
    weights = np.ones(len(shared)) if first.weights is None else _align(first, first.weights, shared)
    weights = weights if weights.any() else np.ones(len(shared))
    weights = weights / weights.sum()
    # each case belongs to the unit of its cluster, or is one itself
    own = np.arange(len(shared))
    units = cluster_codes(own if first.clusters is None else _align(first, cluster_codes(first.clusters), shared))
    n_units, n_runs = int(units.max()) + 1, len(rows)
    if n_units < 2:
        return None, None
    of_case = sum(rows[1:], rows[0]) / n_runs
    means = np.array([weights @ row for row in rows])
    total = 0.0
    for row, mean in zip(rows, means.tolist(), strict=True):
        residual = row - mean - of_case + float(weights @ of_case)
        total += float((np.bincount(units, weights=weights * residual) ** 2).sum())
    # n/(n - 1) for the mean that was taken off in each run
    noise = sqrt(total / (n_runs - 1) * n_units / (n_units - 1))
    apart = float(means.var(ddof=1))
    # every run is the same in every case: an F statistic would be 0/0
    if noise < 1e-12:
        return 0.0, 1.0 if apart < 1e-24 else 0.0
    return noise, float(fdtrc(n_runs - 1, (n_runs - 1) * (n_units - 1), apart / noise**2))


def _align(point: TrendPoint, column: NDArray[Any], cases: list[str]) -> NDArray[Any]:
    """A run's column on these cases."""
    if list(point.cases) == cases:
        return column
    at = {c: i for i, c in enumerate(point.cases)}
    return column[[at[c] for c in cases]]


def questions_in(table: Table) -> Questions:
    """What the cases of a table ask and expect."""
    hashes = {c: table.cases[c].hash().to_numpy() for c in QUESTION_COLUMNS if c in table.cases.columns}
    return Questions(table.cases["case_id"].to_list(), hashes)


def count_changed_questions(a: Questions, b: Questions) -> tuple[int, int]:
    """(cases of one id that ask or expect something else, cases of one id), as far as both runs tell.

    >>> from kofn.runs.index import Questions
    >>> before = Questions("xy", {"input": np.array([1, 2])})
    >>> count_changed_questions(before, Questions("yz", {"input": np.array([7, 9])}))
    (1, 1)
    """
    if same_cases(a.cases, b.cases):
        in_a = in_b = np.arange(len(a.cases), dtype=np.intp)
    else:
        at = {case: i for i, case in enumerate(a.cases)}
        shared = [(at[c], i) for i, c in enumerate(b.cases) if c in at]
        in_a, in_b = np.array(shared, dtype=np.intp).reshape(-1, 2).T
    differ = np.zeros(len(in_a), dtype=bool)
    for name in a.hashes.keys() & b.hashes.keys():
        differ |= a.hashes[name][in_a] != b.hashes[name][in_b]
    return int(differ.sum()), len(in_a)


def case_histories(runs: Sequence[tuple[Sequence[str], Sequence[bool | None]]]) -> list[CaseHistory]:
    """Every case through the runs (cases and their verdicts, oldest first), in the order they first appear.

    A case that a run does not have, or that was not verified in it (None), has no verdict there: a flip is a change
    from one verdict to the next there is.

    >>> case_histories([("ab", [True, None]), ("ba", [True, False]), ("a", [True])])
    [CaseHistory(case='a', runs=3, passes=2, flips=2), CaseHistory(case='b', runs=1, passes=1, flips=0)]
    """
    index: dict[str, int] = {}
    places = [np.array([index.setdefault(c, len(index)) for c in cases], dtype=np.int32) for cases, _ in runs]
    # -1: no verdict so far; runs are taken in order, so that one pass over each is enough
    last = np.full(len(index), -1, dtype=np.int8)
    counts = np.zeros((3, len(index)), dtype=np.int64)
    for at, (_, verdicts) in zip(places, runs, strict=True):
        now = np.array([-1 if v is None else int(v) for v in verdicts], dtype=np.int8)
        known = now >= 0
        at, now = at[known], now[known]
        counts[0, at] += 1
        counts[1, at] += now
        counts[2, at] += (last[at] >= 0) & (last[at] != now)
        last[at] = now
    return [
        CaseHistory(case=c, runs=int(n), passes=int(k), flips=int(f))
        for c, n, k, f in zip(index, *counts.tolist(), strict=True)
    ]


def most_flaky(found: Sequence[CaseHistory], most: int = 10) -> list[CaseHistory]:
    """The cases whose verdict changes most often; of equals those nearest to passing half the time, then by name."""
    flipping = [h for h in found if h.flips]
    return sorted(flipping, key=lambda h: (-h.flips, abs(h.passes / h.runs - 0.5), h.case))[:most]


def sparkline(values: Sequence[float | None], width: int = 80) -> str:
    """Values as blocks from the lowest (▁) to the highest (█); a gap where there is none.

    More values than `width` are averaged, neighbours together, on the scale of the values themselves.

    >>> sparkline([0.1, 0.5, None, 0.9]), sparkline([2, 2]), sparkline([0, 1, 1, 1], width=2)
    ('▁▅ █', '▄▄', '▅█')
    """
    numbers = np.array(values, dtype=np.float64)  # None becomes NaN
    known = numbers[~np.isnan(numbers)]
    if not known.size:
        return " " * min(numbers.size, width)
    low, high = float(known.min()), float(known.max())
    if numbers.size > width:
        parts = [part[~np.isnan(part)] for part in np.array_split(numbers, width)]
        numbers = np.array([float(part.mean()) if part.size else nan for part in parts])
    # values all alike are drawn at half height: 3/7 is the fourth of eight blocks
    share = (numbers - low) / (high - low) if high > low else numbers * 0 + 3 / 7
    return "".join(" " if isnan(s) else BLOCKS[int(s * (len(BLOCKS) - 1) + 0.5)] for s in share.tolist())
