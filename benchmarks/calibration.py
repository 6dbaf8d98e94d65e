"""How often nominal 95 % intervals of corrected rates hold the truth.

    python benchmarks/calibration.py              # print the table that docs/calibrate.md shows
    python benchmarks/calibration.py --runs 200   # a quick look

Each run draws people's verdicts on labelled and judged things, a judge that errs with sensitivity s and specificity t,
and asks whether the interval of the corrected rate holds the rate of the population. Things come alone (sets, whose
verdict is one a case), as 4 candidates of a case or as clusters of 5 cases. Within a case or cluster, verdicts of people
are drawn with a probability of its own, Beta with mean p and concentration 2 (they agree with a correlation of 1/3), and
the judge's errors with rates of its own (concentration 10). Labels are of other cases ("separate") or of some of the
judged ones, drawn by verdict, half of each ("inside").
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from kofn.errors import InputError
from kofn.stats.corrected import METHODS, corrected_rate

SIZES = ((100, 100), (50, 1000))  # labels, judged things
GROUPS = {"sets": 1, "candidates": 4, "clusters": 5}
DESIGNS = ("separate", "inside")
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


def one(rng: np.random.Generator, labels: int, judged: int, size: int, design: str, rates: tuple[float, float, float],
        methods: tuple[str, ...]) -> dict[str, tuple[float, float]]:  # fmt: skip
    """The interval of each method on one draw of data."""
    human, judge, case = drawn(rng, judged, size, rates)
    clustered = size > 1
    names = [f"j{c}" for c in case] if clustered else None
    if design == "inside":
        at = by_verdict(rng, judge, min(labels, judged // 2))
        h, j = human[at], judge[at]
        labelled = [names[i] for i in at] if names else None
    else:
        at = None
        h, j, c = drawn(rng, labels, size, rates)
        labelled = [f"l{i}" for i in c] if clustered else None
    seed = int(rng.integers(2**31))
    found = {}
    for method in methods:
        r = corrected_rate(h, j, judge, clusters=labelled, judged_clusters=names, labelled_at=at, method=method,
                           n_resamples=DRAWS, seed=seed)  # fmt: skip
        found[method] = (r.low, r.high)
    return found


def cell(labels: int, judged: int, group: str, design: str, rates: tuple[float, float, float], runs: int,
         methods: tuple[str, ...] = ("auto",), seed: int = 0) -> Cell:  # fmt: skip
    """One setting, simulated. A draw whose labels show no information is refused by every method and not counted."""
    rng = np.random.default_rng([seed, labels, judged, GROUPS[group], DESIGNS.index(design), *(int(100 * r) for r in rates)])
    ends: list[dict[str, tuple[float, float]]] = []
    for _ in range(runs):
        try:
            ends.append(one(rng, labels, judged, GROUPS[group], design, rates, methods))
        except InputError:
            continue
    covered = {m: float(np.mean([e[m][0] <= rates[0] <= e[m][1] for e in ends])) for m in methods}
    width = {m: float(np.mean([e[m][1] - e[m][0] for e in ends])) for m in methods}
    return Cell(labels, judged, group, design, rates, covered, width, runs - len(ends))


def cells(runs: int, methods: tuple[str, ...] = ("auto",), seed: int = 0) -> Iterator[Cell]:
    for (labels, judged), group, design, rates in product(SIZES, GROUPS, DESIGNS, RATES):
        yield cell(labels, judged, group, design, rates, runs, methods, seed)


def table(found: list[Cell], methods: tuple[str, ...]) -> str:
    """A line a size, group and design: lowest and highest coverage over the rates, and the mean width."""
    lines = [f"| labels / judged | things | labels are | {' | '.join(methods)} |", "|---|---|---|" + "---|" * len(methods)]
    for (labels, judged), group, design in product(SIZES, GROUPS, DESIGNS):
        those = [c for c in found if c[:4] == (labels, judged, group, design)]
        columns = []
        for m in methods:
            covered = [100 * c.covered[m] for c in those]
            columns.append(f"{min(covered):.1f} to {max(covered):.1f} % ({np.mean([c.width[m] for c in those]):.2f})")
        lines.append(f"| {labels} / {judged} | {group} | {design} | {' | '.join(columns)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--method", action="append", choices=METHODS)
    options = parser.parse_args()
    methods = tuple(options.method or METHODS)
    found = []
    for c in cells(options.runs, methods):
        found.append(c)
        shown = "  ".join(f"{m} {c.covered[m]:.3f} {c.width[m]:.3f}" for m in methods)
        print(c.labels, c.judged, c.group, c.design, c.rates, shown, f"refused {c.refused}", flush=True)
    print(table(found, methods))


if __name__ == "__main__":
    main()
