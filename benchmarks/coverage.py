"""How often nominal 95 % intervals hold the truth, over cases of unequal difficulty.

    python benchmarks/coverage.py              # print the tables and write docs/coverage.md
    python benchmarks/coverage.py --runs 500   # a quick look; writes nothing

Each run draws n cases with pass probability p ~ Beta(2m, 2(1 - m)), K repeats of each, aggregates
each case (mean, any pass, majority pass) and asks whether the interval holds the population mean
of that aggregator at K repeats, which is known in closed form.
"""

from __future__ import annotations

import argparse
from functools import cache
from math import comb, exp, lgamma
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kofn.stats.estimates import choose_interval, rarer_side
from kofn.stats.intervals import cluster_robust, t_interval, wilson
from kofn.stats.laws import ratio_law
from kofn.stats.resample import METHODS, as_units, without_width

SIZES = (30, 100, 300, 1000)
FEW = (6, 10, 15, 20)
FEW_RUNS = 1000
REPEATS = (1, 4, 16)
MEANS = (0.1, 0.3, 0.5, 0.7, 0.9)
CONCENTRATION = 2.0
CLUSTER = 5
LEVEL = 0.95
RUNS = 4000
WEIGHTED_RUNS = 1000  # a weighted mean costs some 20 ms
PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"


class Cell(NamedTuple):
    """One setting and the share of runs in which each method held the truth."""

    aggregator: str
    repeats: int
    n: int
    truth: float
    covered: dict[str, float]


def truth_of(aggregator: str, mean: float, repeats: int) -> float:
    """The population mean of the aggregator: sums of the beta-binomial law of the passes of a case."""
    a, b = CONCENTRATION * mean, CONCENTRATION * (1 - mean)

    def log_beta(x: float, y: float) -> float:
        return lgamma(x) + lgamma(y) - lgamma(x + y)

    pmf = [comb(repeats, c) * exp(log_beta(a + c, b + repeats - c) - log_beta(a, b)) for c in range(repeats + 1)]
    least = {"mean": None, "any": 1, "majority": repeats // 2 + 1}[aggregator]
    return mean if least is None else sum(pmf[least:])


def aggregate(passes: np.ndarray, repeats: int, aggregator: str) -> np.ndarray:
    if aggregator == "mean":
        return passes / repeats
    return (passes >= (1 if aggregator == "any" else repeats // 2 + 1)).astype(float)


def ends_of(
    values: np.ndarray, weights: np.ndarray | None = None, clusters: np.ndarray | None = None
) -> dict[str, tuple[float, float]]:
    """Every method's interval; the law is computed once for all bootstraps."""
    units = as_units(values, weights, clusters)
    narrow = without_width(units, LEVEL)
    law = None if narrow else ratio_law(units.sums, units.weights)
    found = {m: narrow or units.interval(law, LEVEL, m) for m in METHODS}
    if weights is None and clusters is None:
        found["t"] = t_interval(values, LEVEL)
        if ((values == 0) | (values == 1)).all():
            found["wilson"] = wilson(values.sum(), values.size, LEVEL)
    else:
        groups = np.arange(values.size) if clusters is None else clusters
        found["cluster"] = cluster_robust(values, groups, LEVEL, weights=weights)
    count = values.size if clusters is None else np.unique(clusters).size
    choice = choose_interval(count, plain=weights is None and clusters is None, rarer=rarer_side(values))
    found["auto"] = found["percentile" if choice == "bootstrap" else choice]
    return {method: (ends.low, ends.high) for method, ends in found.items()}


@cache
def rate_ends(successes: int, n: int) -> dict[str, tuple[float, float]]:
    """0/1 values: the interval depends on the count alone."""
    return ends_of((np.arange(n) < successes).astype(float))


def holds(ends: list[dict[str, tuple[float, float]]], truth: float) -> dict[str, float]:
    methods = ends[0]
    return {m: float(np.mean([e[m][0] - 1e-12 <= truth <= e[m][1] + 1e-12 for e in ends if m in e])) for m in methods}


def drawn_passes(rng: np.random.Generator, mean: float, repeats: int, shape: tuple[int, int]) -> np.ndarray:
    p = rng.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean), size=shape)
    return rng.binomial(repeats, p)


def cells(
    runs: int,
    seed: int = 0,
    sizes: tuple[int, ...] = SIZES,
    aggregators: tuple[str, ...] = ("mean", "any", "majority"),
) -> list[Cell]:
    """The grid of independent cases of equal weight."""
    found = []
    for n in sizes:
        for repeats in REPEATS:
            for mean in MEANS:
                rng = np.random.default_rng([seed, n, repeats, int(100 * mean)])
                passes = drawn_passes(rng, mean, repeats, (runs, n))
                for aggregator in ("mean",) if repeats == 1 else aggregators:
                    values = aggregate(passes, repeats, aggregator)
                    rates = aggregator != "mean" or repeats == 1
                    ends = [rate_ends(int(v.sum()), n) if rates else ends_of(v) for v in values]
                    truth = truth_of(aggregator, mean, repeats)
                    found.append(Cell(aggregator, repeats, n, truth, holds(ends, truth)))
    return found


def clustered_cells(runs: int, seed: int = 1, sizes: tuple[int, ...] = SIZES) -> list[Cell]:
    """Cases in clusters of five that share their difficulty; mean of 4 repeats."""
    found = []
    for n in sizes:
        for mean in (0.3, 0.5, 0.9):
            rng = np.random.default_rng([seed, n, int(100 * mean)])
            clusters = np.arange(n) // CLUSTER
            p = rng.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean), size=(runs, n // CLUSTER))
            passes = rng.binomial(4, np.repeat(p, CLUSTER, axis=1))
            ends = []
            for v in passes / 4:
                by_case = ends_of(v)["percentile"]
                ends.append(ends_of(v, clusters=clusters) | {"ignoring clusters": by_case})
            found.append(Cell("mean in clusters", 4, n, mean, holds(ends, mean)))
    return found


def weighted_cells(runs: int, seed: int = 2, sizes: tuple[int, ...] = SIZES) -> list[Cell]:
    """Cases whose weight is 1 to 4 and whose difficulty grows with it; mean of 4 repeats."""
    found = []
    for n in sizes:
        for mean in (0.3, 0.5, 0.9):
            rng = np.random.default_rng([seed, n, int(100 * mean)])
            weights = rng.integers(1, 5, size=(runs, n)).astype(float)
            p = rng.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean), size=(runs, n))
            passes = rng.binomial(4, p ** np.sqrt(weights))
            truth = weighted_truth(mean)
            ends = [ends_of(v, weights=w) for v, w in zip(passes / 4, weights, strict=True)]
            found.append(Cell("weighted mean", 4, n, truth, holds(ends, truth)))
    return found


def weighted_truth(mean: float) -> float:
    """Σ w E[p^√w] / Σ w over w = 1..4, with the moments of the beta law."""
    a, b = CONCENTRATION * mean, CONCENTRATION * (1 - mean)
    moments = [exp(lgamma(a + w**0.5) + lgamma(a + b) - lgamma(a) - lgamma(a + b + w**0.5)) for w in range(1, 5)]
    return sum(w * m for w, m in zip(range(1, 5), moments, strict=True)) / 10


def within(cell: Cell, method: str) -> bool:
    return 0.93 <= cell.covered[method] <= 0.97


def rare(cell: Cell) -> float:
    """Expected number of cases on the rarer side of a rate."""
    return round(cell.n * min(cell.truth, 1 - cell.truth), 9)


def table(found: list[Cell], methods: tuple[str, ...]) -> str:
    head = "| aggregator | repeats | n | truth | " + " | ".join(methods) + " |"
    lines = [head, "|---|---|---|---|" + "---|" * len(methods)]
    for c in found:
        shares = [f"{100 * c.covered[m]:.1f}" if m in c.covered else "" for m in methods]
        lines.append(f"| {c.aggregator} | {c.repeats} | {c.n} | {c.truth:.3f} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def summary(found: list[Cell], methods: tuple[str, ...]) -> str:
    """For each n: mean coverage, the worst cell, and how many cells lie within 93-97 %."""
    lines = ["| cells | n | " + " | ".join(methods) + " |", "|---|---|" + "---|" * len(methods)]
    kinds = {
        "means of repeats": lambda c: c.aggregator == "mean" and c.repeats > 1,
        "rates, 10 or more of the rarer": lambda c: (c.aggregator != "mean" or c.repeats == 1) and rare(c) >= 10,
        "rates, fewer": lambda c: (c.aggregator != "mean" or c.repeats == 1) and rare(c) < 10,
    }
    for kind, belongs in kinds.items():
        for n in sorted({c.n for c in found}):
            some = [c for c in found if belongs(c) and c.n == n]
            texts = [_line(some, m) for m in methods]
            if some:
                lines.append(f"| {kind} | {n} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _line(some: list[Cell], method: str) -> str:
    some = [c for c in some if method in c.covered]
    if not some:
        return ""
    shares = [100 * c.covered[method] for c in some]
    inside = sum(within(c, method) for c in some)
    return f"{np.mean(shares):.1f} ({min(shares):.1f} to {max(shares):.1f}), {inside} of {len(some)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    plain = cells(runs)
    clustered = clustered_cells(runs)
    weighted = weighted_cells(min(runs, WEIGHTED_RUNS))
    methods = ("auto", "percentile", "expanded", "bca", "t", "wilson")
    few = cells(min(runs, FEW_RUNS), seed=3, sizes=FEW, aggregators=("mean",))
    parts = {
        "few": summary([cell for cell in few if cell.repeats > 1], ("auto", "percentile", "expanded", "bca", "t")),
        "summary": summary(plain, methods),
        "plain": table(plain, methods),
        "clustered": table(clustered, ("auto", "percentile", "expanded", "bca", "cluster", "ignoring clusters")),
        "weighted": table(weighted, ("auto", "percentile", "expanded", "bca", "cluster")),
    }
    for name, text in parts.items():
        print(f"\n{name}\n{text}", flush=True)
    if runs >= RUNS:
        write_page(parts)


def write_page(parts: dict[str, str]) -> None:
    """Put each table between its markers in the page; the words around them are written by hand."""
    text = PAGE.read_text()
    for name, body in parts.items():
        start, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        before, after = text.split(start)[0], text.split(end)[1]
        text = f"{before}{start}\n\n{body}\n\n{end}{after}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
