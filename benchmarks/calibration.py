"""How often nominal 95 % intervals of corrected rates hold the truth.

    python benchmarks/calibration.py              # print the table that docs/calibrate.md shows
    python benchmarks/calibration.py --runs 200   # a quick look

Each run draws people's verdicts on labelled and judged things, a judge that errs with sensitivity s and specificity
t, and asks whether the interval of the corrected rate holds the rate of the population. Things come alone (sets, whose
verdict is one a case), as 4 candidates of a case or as clusters of 5 cases. Within a case or cluster, verdicts of
people are drawn with a probability of its own, Beta with mean p and concentration 2 (they agree with a correlation of
1/3), and the judge's errors with rates of its own (concentration 10). Labels are of other cases ("separate") or of some
of the judged ones, drawn by verdict, half of each ("inside"); of 100 judged things at most half are labelled then.
Of sets there are also labels of other cases drawn by verdict from four times as many, with weights ("weighted"), and
labels of which every second one is of a judged case ("overlapping").
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kofn.errors import InputError
from kofn.stats.corrected_rates import METHODS, corrected_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = ((100, 100), (50, 1000))  # labels, judged things
GROUPS = {"sets": 1, "candidates": 4, "clusters": 5}
DESIGNS = ("separate", "inside")
OF_SETS = ("weighted", "overlapping")  # further designs
RATES = tuple(product((0.3, 0.5, 0.8), (0.8, 0.95), (0.7, 0.9)))  # p, s, t
RUNS = 2000
DRAWS = 1000


class Cell(NamedTuple):
    """One setting, the share of runs in which each method held the truth, its mean width, and runs it refused."""

    labels: int
    judged: int
    group: str
    design: str
    rates: tuple[float, float, float]
    covered: dict[str, float]
    width: dict[str, float]
    refused: int


def own_rates(rng: np.random.Generator, mean: float, concentration: float, groups: int, size: int) -> np.ndarray:
    """A probability for each thing: the same for all of its case or cluster."""
    if size == 1:
        return np.full(groups, mean)
    return np.repeat(rng.beta(concentration * mean, concentration * (1 - mean), size=groups), size)


def drawn(rng: np.random.Generator, n: int, size: int, rates: tuple[float, float, float]) -> tuple[np.ndarray, ...]:
    """Verdicts of people and judge on n things (or a few more, to fill the last case), and the case of each."""
    groups = -(-n // size)
    p, s, t = (own_rates(rng, r, c, groups, size) for r, c in zip(rates, (2.0, 10.0, 10.0), strict=True))
    human = rng.random(groups * size) < p
    judge = np.where(human, rng.random(human.size) < s, rng.random(human.size) >= t)
    return human.astype(float), judge.astype(float), np.repeat(np.arange(groups), size)


def by_verdict(rng: np.random.Generator, judge: np.ndarray, n: int) -> np.ndarray:
    """Places of n things drawn half from those the judge passes, half from those it fails, as far as there are any."""
    passed, failed = (rng.permutation(np.flatnonzero(judge == v)) for v in (1, 0))
    first = min(max(n // 2, n - failed.size), passed.size)
    return np.concatenate([passed[:first], failed[: n - first]])


class Drawn(NamedTuple):
    """One draw of data, as `corrected_rate` takes it."""

    human: np.ndarray
    judge: np.ndarray
    judged: np.ndarray
    more: dict[str, object]


def one(
    rng: np.random.Generator, labels: int, judged: int, size: int, design: str, rates: tuple[float, float, float]
) -> Drawn:
    """Labels and judged verdicts of one run."""
    human, judge, case = drawn(rng, judged, size, rates)
    names = [f"j{c}" for c in case] if size > 1 else None
    if design == "inside":
        at = by_verdict(rng, judge, min(labels, judged // 2))
        more = {"labelled_at": at, "judged_clusters": names, "clusters": [names[i] for i in at] if names else None}
        return Drawn(human[at], judge[at], judge, more)
    if design == "weighted":
        h, j, _ = drawn(rng, 4 * labels, size, rates)
        at = by_verdict(rng, j, labels)
        share = {v: (j == v).sum() / max((j[at] == v).sum(), 1) for v in (0.0, 1.0)}
        return Drawn(h[at], j[at], judge, {"weights": [share[v] for v in j[at]]})
    h, j, c = drawn(rng, labels, size, rates)
    if design == "overlapping":
        at = np.where(np.arange(labels) % 2, -1, np.arange(labels))
        there = at >= 0
        h[there], j[there] = human[at[there]], judge[at[there]]
        return Drawn(h, j, judge, {"labelled_at": at})
    clusters = [f"l{i}" for i in c] if size > 1 else None
    return Drawn(h, j, judge, {"clusters": clusters, "judged_clusters": names})


def intervals(data: Drawn, methods: tuple[str, ...], seed: int) -> dict[str, tuple[float, float]]:
    found = {}
    for method in methods:
        r = corrected_rate(*data[:3], **data.more, method=method, n_resamples=DRAWS, seed=seed)
        found[method] = (r.low, r.high)
    return found


def cell(labels: int, judged: int, group: str, design: str, rates: tuple[float, float, float], runs: int,
         methods: tuple[str, ...] = ("auto",), seed: int = 0) -> Cell:  # fmt: skip
    """One setting, simulated. A draw whose labels show no information is refused by every method and not counted."""
    rng = np.random.default_rng(
        [seed, labels, judged, GROUPS[group], (*DESIGNS, *OF_SETS).index(design), *(int(100 * r) for r in rates)]
    )
    ends: list[dict[str, tuple[float, float]]] = []
    for _ in range(runs):
        try:
            data = one(rng, labels, judged, GROUPS[group], design, rates)
            ends.append(intervals(data, methods, int(rng.integers(2**31))))
        except InputError:
            continue
    covered = {m: float(np.mean([e[m][0] <= rates[0] <= e[m][1] for e in ends])) for m in methods}
    width = {m: float(np.mean([e[m][1] - e[m][0] for e in ends])) for m in methods}
    return Cell(labels, judged, group, design, rates, covered, width, runs - len(ends))


def cells(
    runs: int, methods: tuple[str, ...] = ("auto",), seed: int = 0, designs: list[str] | None = None
) -> Iterator[Cell]:
    for (labels, judged), (group, design), rates in product(SIZES, settings(), RATES):
        if designs is None or design in designs:
            yield cell(labels, judged, group, design, rates, runs, methods, seed)


def settings() -> list[tuple[str, str]]:
    """What is labelled and judged, and how labels are drawn."""
    return [*product(GROUPS, DESIGNS), *(("sets", design) for design in OF_SETS)]


def table(found: list[Cell], methods: tuple[str, ...]) -> str:
    """A line a size, group and design: lowest and highest coverage over the rates, and the mean width."""
    lines = [
        f"| labels / judged | things | labels are | {' | '.join(methods)} |",
        "|---|---|---|" + "---|" * len(methods),
    ]
    for (labels, judged), (group, design) in product(SIZES, settings()):
        those = [c for c in found if c[:4] == (labels, judged, group, design)]
        if not those:
            continue
        columns = []
        for m in methods:
            covered = [100 * c.covered[m] for c in those]
            columns.append(f"{min(covered):.1f} to {max(covered):.1f} % ({np.mean([c.width[m] for c in those]):.2f})")
        lines.append(f"| {labels} / {judged} | {group} | {design} | {' | '.join(columns)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--design", action="append", choices=(*DESIGNS, *OF_SETS))
    parser.add_argument("--method", action="append", choices=METHODS)
    options = parser.parse_args()
    methods = tuple(options.method or METHODS)
    found = []
    for c in cells(options.runs, methods, designs=options.design):
        found.append(c)
        shown = "  ".join(f"{m} {c.covered[m]:.3f} {c.width[m]:.3f}" for m in methods)
        print(c.labels, c.judged, c.group, c.design, c.rates, shown, f"refused {c.refused}", flush=True)
    print(table(found, methods))


if __name__ == "__main__":
    main()
