"""The statistics explained: seeded simulations, the figures that docs/statistics quotes, and its pictures.

    python -m benchmarks.explain          # prints the figures, writes docs/images/explain/*.svg (half a minute)
    python -m benchmarks.explain votes    # one topic

A topic is a page. Its figures are computed with kofn's own functions, and a test holds every number of the page
against them.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from benchmarks.drawing import (
    BAD,
    GOOD,
    INK,
    MUTED,
    THIRD,
    band,
    bars,
    dots,
    level,
    line,
    panel,
    picture,
    seal,
    svg,
    words,
)
from scipy.optimize import brentq
from scipy.stats import binom

from kofn.aggregators.passes import PassAt
from kofn.aggregators.scores import SelectedAt
from kofn.analysis.pass_curve import best_of_n, majority_curve
from kofn.core.candidate_sets import CandidateSets
from kofn.generate.adaptive import Adaptive
from kofn.scoring.configuration import GradingConfig
from kofn.stats import corrected_rate, estimate, t_interval, variance_shares, wilson
from kofn.stats.beta_binomial import BetaBinomial

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.drawing import Rows, Spec

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "explain"


class Topic(NamedTuple):
    """What a page quotes and shows; what was given and not computed, the page says too, and is in GIVEN."""

    figures: dict[str, str]
    label: str
    spec: Spec


def share(value: float | None) -> str:
    assert value is not None
    return f"{value:.3f}"


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


# --- resample cases ---------------------------------------------------------------------------------------------------

CASES, REPEATS, RUNS, SHOWN = 100, 8, 1000, 50


def cases() -> Topic:
    """100 cases x 8 repeats, a thousand times: intervals by case, and by candidate as if rows were independent."""
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 0.5, (RUNS, CASES))
    grades = (rng.random((RUNS, CASES, REPEATS)) < p[..., None]).astype(float)
    by_case = [_ends(run.mean(axis=1)) for run in grades]
    by_row = [_ends(run.ravel()) for run in grades]
    covered = [float(np.mean([low <= 0.5 <= high for low, high in ends])) for ends in (by_case, by_row)]
    widths = [float(np.mean([high - low for low, high in ends])) for ends in (by_case, by_row)]
    shares = variance_shares(grades[0].ravel(), np.repeat(np.arange(CASES), REPEATS))
    figures = {
        "covered by case": percent(covered[0]),
        "covered by candidate": percent(covered[1]),
        "width by case": share(widths[0]),
        "width by candidate": share(widths[1]),
        "times too narrow": f"{widths[0] / widths[1]:.1f}",
        "design effect": f"{shares.design_effect:.1f}",
    }
    panels = [
        _caterpillar("Cases resampled", by_case[:SHOWN], covered[0]),
        _caterpillar("Candidates resampled", by_row[:SHOWN], covered[1]),
    ]
    label = (
        f"50 intervals by case and 50 by candidate: {figures['covered by case']} % and "
        f"{figures['covered by candidate']} % hold the truth"
    )
    return Topic(figures, label, picture(*panels))


def _ends(values: np.ndarray) -> tuple[float, float]:
    found = estimate(values)
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def _caterpillar(title: str, ends: list[tuple[float, float]], covered: float) -> Spec:
    rows = [{"run": i + 1, "low": low, "high": high} for i, (low, high) in enumerate(ends)]
    held = [r for r in rows if r["low"] <= 0.5 <= r["high"]]
    missed = [r for r in rows if r not in held]
    return panel(
        f"{title}: {percent(covered)} % hold the truth",
        [
            level(0.5, color=INK),
            bars(held, "run", "low", "high", GOOD),
            bars(missed, "run", "low", "high", BAD, width=2.6),
        ],
        x="50 of 1,000 runs",
        y="pass rate",
        across=(0, SHOWN + 1),
        up=(0.3, 0.7),
        size=(340, 270),
        x_axis={"labels": False, "ticks": False},
    )


# --- pass@k -----------------------------------------------------------------------------------------------------------

K, P = 5, 0.1


def pass_at_k() -> Topic:
    """What the plug-in formula 1 - (1 - c/n)^k is on average, beside the unbiased one, exactly, for a chance of 0.1."""
    truth = 1 - (1 - P) ** K
    rows: Rows = []
    for n in range(K, 61):
        law = binom.pmf(np.arange(n + 1), n, P)
        unbiased, plug_in = _unbiased(n), 1 - (1 - np.arange(n + 1) / n) ** K
        rows.append(
            {
                "n": n,
                "unbiased": float(law @ unbiased),
                "plug_in": float(law @ plug_in),
                "spread": float(np.sqrt(law @ unbiased**2 - (law @ unbiased) ** 2)),
            }
        )
    first = float(np.sqrt(truth * (1 - truth)))
    at = {row["n"]: row for row in rows}
    figures = {
        "truth": share(truth),
        "plug-in at n = 5": share(at[5]["plug_in"]),
        "plug-in at n = 10": share(at[10]["plug_in"]),
        "plug-in at n = 20": share(at[20]["plug_in"]),
        "plug-in at n = 60": share(at[60]["plug_in"]),
        "spread of one try of five": share(first),
        "spread of unbiased at n = 20": share(at[20]["spread"]),
        "fewer cases for the same error": f"{(first / at[20]['spread']) ** 2:.1f}",
    }
    left = panel(
        "What is reported on average",
        [
            level(truth, color=INK),
            line(rows, "n", "unbiased", GOOD),
            line(rows, "n", "plug_in", BAD),
            words(34, truth, "unbiased = the truth", GOOD, dy=-11),
            words(34, 0.37, "1 − (1 − c/n)⁵", BAD, dy=10),
        ],
        x="samples n drawn",
        y="pass@5",
        across=(5, 60),
        up=(0.3, 0.45),
        size=(330, 260),
    )
    right = panel(
        "How far one case is off",
        [
            line([{"n": n, "first": first} for n in (5, 60)], "n", "first", BAD),
            line(rows, "n", "spread", GOOD),
            words(16, first, "did any of the first five pass?", BAD, dy=-11),
            words(24, at[24]["spread"], "unbiased, from all n", GOOD, dy=-12),
        ],
        x="samples n drawn",
        y="standard deviation",
        across=(5, 60),
        up=(0, 0.6),
        size=(330, 260),
    )
    label = (
        f"pass@5 at a chance of 0.1: the plug-in formula says {figures['plug-in at n = 5']} at n = 5, "
        f"the truth is {figures['truth']}"
    )
    return Topic(figures, label, picture(left, right))


def _unbiased(n: int) -> np.ndarray:
    """pass@5 of a set of n with c passes, for every c."""
    return PassAt(K)(CandidateSets.from_lists([[1] * c + [0] * (n - c) for c in range(n + 1)]))


# --- tries are not independent ----------------------------------------------------------------------------------------

MEAN, ANY_AT_TEN = 0.214, 0.50


def independence() -> Topic:
    """2,000 cases x 10 whose difficulty differs: any@k, and what independent tries of the same mean would give."""
    law = _law(MEAN, ANY_AT_TEN)
    rng = np.random.default_rng(3)
    chance = rng.beta(law.a, law.b, 2000)
    curve = best_of_n(CandidateSets.from_lists((rng.random((2000, 10)) < chance[:, None]).tolist()), GradingConfig())
    rows = [
        {"k": at.k, "any": at.point, "low": at.low, "high": at.high, "independent": at.independent}
        for at in curve.points
    ]
    ten = curve.points[-1]
    easy, hard = float((chance > 0.9).mean()), float((chance < 0.02).mean())
    figures = {
        "a": f"{law.a:.3f}",
        "b": f"{law.b:.3f}",
        "any@1": share(curve.points[0].point),
        "any@10": share(ten.point),
        "any@10 low": share(ten.low),
        "any@10 high": share(ten.high),
        "independent@10": share(ten.independent),
        "cases with a chance below 0.02": percent(hard),
        "cases with a chance above 0.9": percent(easy),
    }
    left = panel(
        "Cases differ",
        [_histogram(chance)],
        x="a case's own chance to pass",
        y="cases",
        across=(0, 1),
        up=(0, 1000),
        size=(210, 270),
        x_axis={"values": [0, 0.5, 1]},
    )
    right = panel(
        "What ten tries reach",
        [
            band(rows, "k", "low", "high", GOOD),
            line(rows, "k", "independent", BAD, dash=True),
            line(rows, "k", "any", GOOD),
            dots(rows, "k", "any", GOOD),
            words(10, float(ten.independent or 0), f"{ten.independent:.2f}  1 − (1 − p)^k", BAD),
            words(10, float(ten.point or 0), f"{ten.point:.2f}  measured any@k", GOOD),
        ],
        x="tries k",
        y="share of cases with a pass",
        across=(1, 10),
        size=(330, 270),
        x_axis={"tickCount": 10},
    )
    label = f"any@10 measured {figures['any@10']}; from independent tries {figures['independent@10']}"
    return Topic(figures, label, picture(left, right, right=64))


def _law(mean: float, any_at_ten: float) -> BetaBinomial:
    """Cases whose mean chance is this, of which so many have a pass in ten."""

    def beyond(concentration: float) -> float:
        return _beta(mean, concentration).any_at([10])[0] - any_at_ten

    return _beta(mean, float(brentq(beyond, 0.05, 20)))


def _beta(mean: float, concentration: float) -> BetaBinomial:
    return BetaBinomial(p=mean, spread=1 / concentration, kind="fit", n_cases=0)


def _histogram(chance: np.ndarray) -> Spec:
    counts, edges = np.histogram(chance, bins=20, range=(0, 1))
    rows = [
        {"from": float(a), "to": float(b), "cases": int(c)}
        for a, b, c in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    encoding = {
        "x": {"field": "from", "type": "quantitative"},
        "x2": {"field": "to"},
        "y": {"field": "cases", "type": "quantitative"},
        "y2": {"datum": 0},
    }
    return {"data": {"values": rows}, "mark": {"type": "rect", "color": THIRD, "opacity": 0.8}, "encoding": encoding}


# --- votes ------------------------------------------------------------------------------------------------------------

MIXTURE = {  # kind of case: (share of the cases, votes of a thousand for the right answer, and for each wrong one)
    "clear": (0.4, 600, [400]),
    "scattered": (0.3, 350, [65] * 10),
    "misled": (0.3, 350, [500, 50, 50, 50]),
}


def votes() -> Topic:
    """maj@k of three kinds of cases, exactly (draws from a thousand), and of their mixture."""
    ks = (1, 3, 5, 7, 9, 13, 17, 21, 25, 31)
    curves = {name: _vote(right, wrong, ks) for name, (_, right, wrong) in MIXTURE.items()}
    mixed = sum(weight * curves[name] for name, (weight, _, _) in MIXTURE.items())
    curves["mixed"] = mixed
    rows = {
        name: [{"k": k, "right": float(v)} for k, v in zip(ks, curve, strict=True)] for name, curve in curves.items()
    }
    at = {k: i for i, k in enumerate(ks)}
    figures = {f"{name} at {k}": share(float(curve[at[k]])) for name, curve in curves.items() for k in (1, 5, 31)}
    colours = {"clear": GOOD, "scattered": THIRD, "misled": BAD, "mixed": INK}
    said = {
        "clear": "right 60 %, one rival 40 %",
        "scattered": "right 35 %, ten wrong ones share 65 %",
        "misled": "right 35 %, one rival 50 %",
        "mixed": "all three kinds together",
    }
    layers = [line(rows[n], "k", "right", c, dash=n == "mixed") for n, c in colours.items()]
    ends = {n: rows[n][-1]["right"] for n in colours}
    layers += [
        words(31, ends[n], said[n], c, dy=-9 if n == "scattered" else 9 if n == "clear" else 0)
        for n, c in colours.items()
    ]
    spec = panel(
        "A vote makes the leading answer sure, right or wrong",
        layers,
        x="candidates k that vote",
        y="the vote is right",
        across=(1, 31),
        size=(500, 300),
    )
    label = "; ".join(
        f"{said[n]}: {figures[f'{n} at 1']} alone, {figures[f'{n} at 31']} with 31 votes" for n in colours
    )
    return Topic(figures, label, picture(spec, right=64))


def _vote(right: int, wrong: list[int], ks: tuple[int, ...]) -> np.ndarray:
    counts = np.array([[right], *([w] for w in wrong)])
    values = np.zeros(counts.shape)
    values[0] = 1.0
    return majority_curve(counts, values, np.array([0]), ks)[:, 0]


# --- few cases --------------------------------------------------------------------------------------------------------

N = 30


def intervals() -> Topic:
    """How often each 95 % interval of a rate over 30 cases holds the truth, exactly, for every truth."""
    samples = [np.array([1.0] * x + [0.0] * (N - x)) for x in range(N + 1)]
    ends = {
        "t": [t_interval(s)[:2] if 0 < s.sum() < N else (s.mean(), s.mean()) for s in samples],
        "wilson": [wilson(s.sum(), N)[:2] for s in samples],
        "auto": [_ends(s) for s in samples],
    }
    truths = np.linspace(0.01, 0.99, 393)
    held = {name: _covered(found, truths) for name, found in ends.items()}
    figures = {f"{name} at worst": percent(float(c.min())) for name, c in held.items()}
    figures |= {f"{name} on average": percent(float(c.mean())) for name, c in held.items()}
    figures |= {"t at 0.05": percent(float(_covered(ends["t"], np.array([0.05]))[0]))}
    figures |= {"wilson at 0.05": percent(float(_covered(ends["wilson"], np.array([0.05]))[0]))}
    zero = wilson(0, N)
    figures |= {"wilson of 0 of 30, high": share(zero.high)}
    panels = [
        _coverage_panel("mean ± t · s/√n", truths, held["t"], BAD),
        _coverage_panel("kofn's default", truths, held["auto"], GOOD),
    ]
    label = (
        f"coverage at 30 cases: t {figures['t at worst']} % at worst, Wilson {figures['wilson at worst']} %, "
        f"auto {figures['auto at worst']} %"
    )
    return Topic(figures, label, picture(*panels))


def _coverage_panel(title: str, truths: np.ndarray, held: np.ndarray, color: str) -> Spec:
    rows = [{"p": float(p), "held": float(c)} for p, c in zip(truths, held, strict=True)]
    return panel(
        f"{title}: {percent(float(held.min()))} % at worst",
        [level(0.95, color=INK), line(rows, "p", "held", color, width=1.8)],
        x="true pass rate",
        y="holds the truth",
        across=(0, 1),
        up=(0.6, 1),
        size=(330, 260),
        x_axis={"tickCount": 5},
        y_axis={"format": ".0%"},
    )


def _covered(ends: list[tuple[float, float]], truths: np.ndarray) -> np.ndarray:
    low, high = np.array(ends).T
    law = binom.pmf(np.arange(N + 1)[:, None], N, truths)
    return (law * ((low[:, None] <= truths) & (truths <= high[:, None]))).sum(axis=0)


# --- two systems ------------------------------------------------------------------------------------------------------

SIZES, GAIN, TRIES = (50, 100, 200, 400, 800), 0.05, 200


def paired() -> Topic:
    """B passes 0.05 more often than A on every case; how often each way of looking finds it, by number of cases."""
    rng = np.random.default_rng(7)
    rows = [{"n": n, **_found(n, rng)} for n in SIZES]
    a, b = _two_systems(200, np.random.default_rng(10))
    ea, eb, d = _ends(a), _ends(b), _ends(b - a)
    at = {row["n"]: row for row in rows}
    figures = {
        "a": share(float(a.mean())), "a low": share(ea[0]), "a high": share(ea[1]),
        "b": share(float(b.mean())), "b low": share(eb[0]), "b high": share(eb[1]),
        "difference": share(float((b - a).mean())), "difference low": share(d[0]), "difference high": share(d[1]),
        **{f"paired finds at {n}": percent(at[n]["paired"]) for n in SIZES},
        **{f"unpaired finds at {n}": percent(at[n]["unpaired"]) for n in SIZES},
    }  # fmt: skip
    left = panel(
        "One look at 200 cases",
        [
            bars([{"x": 1, "low": ea[0], "high": ea[1]}], "x", "low", "high", MUTED, width=3),
            bars([{"x": 2, "low": eb[0], "high": eb[1]}], "x", "low", "high", MUTED, width=3),
            bars([{"x": 3.4, "low": d[0], "high": d[1]}], "x", "low", "high", GOOD, width=3),
            dots([{"x": 1, "y": float(a.mean())}, {"x": 2, "y": float(b.mean())}], "x", "y", INK, size=70),
            dots([{"x": 3.4, "y": float((b - a).mean())}], "x", "y", GOOD, size=70),
            level(0, color=INK),
            words(1, ea[0], "A", INK, align="center", dx=0, dy=14),
            words(2, eb[0], "B", INK, align="center", dx=0, dy=14),
            words(3.4, d[1], "B − A, case by case", GOOD, align="right", dx=18, dy=-14),
        ],
        x="",
        y="pass rate, difference",
        across=(0.4, 4.1),
        up=(-0.1, 0.7),
        size=(270, 270),
        x_axis={"labels": False, "ticks": False, "domain": False},
    )
    right = panel(
        "How often a gain of 0.05 is found",
        [
            line(rows, "n", "paired", GOOD),
            dots(rows, "n", "paired", GOOD),
            line(rows, "n", "unpaired", BAD),
            dots(rows, "n", "unpaired", BAD),
            words(200, at[200]["paired"], "paired by case", GOOD, align="right", dx=-10, dy=-6),
            words(420, at[400]["unpaired"], "as two\nseparate samples", BAD, dx=8, dy=10),
        ],
        x="cases",
        y="share of 200 runs",
        across=(45, 900),
        size=(330, 270),
        x_scale={"type": "log"},
        x_axis={"values": list(SIZES)},
        y_axis={"format": ".0%"},
    )
    label = (
        f"at 200 cases a paired comparison finds a gain of 0.05 in {figures['paired finds at 200']} % of runs, "
        f"an unpaired one in {figures['unpaired finds at 200']} %"
    )
    return Topic(figures, label, picture(left, right, right=30))


def _two_systems(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Means of five repeats of both systems on the same cases, of which some are hard for both."""
    hard = rng.beta(0.8, 0.8, n) * (1 - GAIN)
    return tuple((rng.random((n, 5)) < (hard + gain)[:, None]).mean(axis=1) for gain in (0.0, GAIN))  # type: ignore[return-value]


def _found(n: int, rng: np.random.Generator) -> dict[str, float]:
    paired = unpaired = 0
    for _ in range(TRIES):
        a, b = _two_systems(n, rng)
        paired += _ends(b - a)[0] > 0
        spread = np.sqrt(a.var(ddof=1) / n + b.var(ddof=1) / n)
        unpaired += (b.mean() - a.mean()) > 1.96 * spread
    return {"paired": paired / TRIES, "unpaired": unpaired / TRIES}


# --- judges -----------------------------------------------------------------------------------------------------------

SENSITIVITY, SPECIFICITY = 0.9, 0.7


def judges() -> Topic:
    """What a judge with s = 0.9 and t = 0.7 says of systems of every quality, and the same corrected by 200 labels."""
    rng = np.random.default_rng(5)
    truths = (0.1, 0.3, 0.5, 0.7, 0.9)
    found = {truth: _corrected(truth, rng) for truth in truths}
    raw = {truth: SENSITIVITY * truth + (1 - SPECIFICITY) * (1 - truth) for truth in (0.0, 0.3, 0.8, 1.0, *truths)}
    rows = [{"truth": t, "point": c.point, "low": c.low, "high": c.high} for t, c in found.items()]
    figures = {
        "raw at 0.3": share(raw[0.3]),
        "raw at 0.8": share(raw[0.8]),
        "raw difference": share(raw[0.8] - raw[0.3]),
        "corrected at 0.3": share(found[0.3].point),
        "corrected low at 0.3": share(found[0.3].low),
        "corrected high at 0.3": share(found[0.3].high),
        "judge's rate at 0.3": share(found[0.3].q),
        "raw of a system that always fails": share(raw[0.0]),
        "raw of a system that always passes": share(raw[1.0]),
    }
    spec = panel(
        "A judge pulls every rate towards the middle",
        [
            line([{"truth": 0, "rate": 0}, {"truth": 1, "rate": 1}], "truth", "rate", MUTED, dash=True, width=1.6),
            line([{"truth": t, "rate": raw[t]} for t in (0.0, 1.0)], "truth", "rate", BAD),
            bars(rows, "truth", "low", "high", GOOD, width=2.4),
            dots(rows, "truth", "point", GOOD, size=80),
            words(1, 1, "the truth", MUTED),
            words(1, raw[1.0], "what the judge says", BAD, dy=6),
            words(0.51, 0.5, "corrected, with its interval", GOOD, dy=10),
        ],
        x="rate that people would give",
        y="rate reported",
        across=(0, 1),
        size=(560, 300),
        x_axis={"tickCount": 5},
    )
    label = (
        f"a judge with sensitivity 0.9 and specificity 0.7 says {figures['raw at 0.3']} where people say 0.3; "
        f"corrected by 200 labels {figures['corrected at 0.3']}"
    )
    return Topic(figures, label, picture(spec, right=64))


def _corrected(truth: float, rng: np.random.Generator):
    """400 cases judged, 200 other cases labelled by people and judged too."""
    people = rng.random(200) < truth
    return corrected_rate(people, _judge(people, rng), _judge(rng.random(400) < truth, rng))


def _judge(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.random(truth.size) < np.where(truth, SENSITIVITY, 1 - SPECIFICITY)


# --- the winner's curse -----------------------------------------------------------------------------------------------

SETTINGS, TRUE_RATE, CLEAR = (1, 2, 4, 8, 16, 32, 64), 0.6, 1.0


def selection() -> Topic:
    """The best of m equal settings on 100 cases; and a judge that grades what it picked."""
    rng = np.random.default_rng(11)
    rates = rng.binomial(100, TRUE_RATE, (2000, SETTINGS[-1])) / 100
    best = [{"m": m, "best": float(rates[:, :m].max(axis=1).mean())} for m in SETTINGS]
    truth, own = _picked(rng)
    ks = range(1, 17)
    rows = [
        {"k": k, "own": _mean(own, k), "truth": _mean(truth, k), "any": float(np.nanmean(PassAt(k)(truth)))} for k in ks
    ]
    at = {row["k"]: row for row in rows}
    figures = {
        **{f"best of {row['m']} settings": share(row["best"]) for row in best},
        **{f"{name} at {k}": share(at[k][name]) for name in ("own", "truth", "any") for k in (1, 4, 16)},
    }
    left = panel(
        "The best of m settings that are all alike",
        [
            level(TRUE_RATE, color=INK),
            line(best, "m", "best", BAD),
            dots(best, "m", "best", BAD),
            words(1.2, 0.722, "the winner's score on the\n100 cases that it won on", BAD, dx=0),
            words(1.2, TRUE_RATE, "its score on fresh cases", INK, dx=0, dy=14),
        ],
        x="settings tried",
        y="reported pass rate",
        across=(1, 64),
        up=(0.55, 0.75),
        size=(265, 270),
        x_scale={"type": "log", "base": 2},
        x_axis={"values": list(SETTINGS)},
    )
    right = panel(
        "A judge picks one of k, and grades it",
        [
            line(rows, "k", "own", BAD),
            line(rows, "k", "any", MUTED, dash=True),
            line(rows, "k", "truth", GOOD),
            words(16, at[16]["own"], "the judge's own verdict", BAD, dy=0),
            words(16, at[16]["any"], "a perfect pick (any@k)", MUTED, dy=4),
            words(16, at[16]["truth"], "what people say", GOOD),
        ],
        x="candidates k to pick from",
        y="the pick passes",
        across=(1, 16),
        up=(0.2, 1),
        size=(265, 270),
    )
    label = (
        f"the best of 64 equal settings seems {figures['best of 64 settings']} where all are 0.6; a judge "
        f"that picks one of 16 says {figures['own at 16']} of its picks, people {figures['truth at 16']}"
    )
    return Topic(figures, label, picture(left, right, right=64))


def _picked(rng: np.random.Generator) -> tuple[CandidateSets, CandidateSets]:
    """2,000 cases of 16 candidates with a judge's scores, graded by people and by that judge."""
    chance = rng.beta(1.0, 1.5, 2000)
    good = rng.random((2000, 16)) < chance[:, None]
    scores = (good * CLEAR + rng.normal(size=good.shape)).tolist()
    verdicts = (np.array(scores) > CLEAR / 2).tolist()
    sets = [CandidateSets.from_lists(v, selectors={"judge": scores}) for v in (good.tolist(), verdicts)]
    return sets[0], sets[1]


def _mean(sets: CandidateSets, k: int) -> float:
    return float(np.nanmean(SelectedAt(k)(sets)))


# --- stopping early ---------------------------------------------------------------------------------------------------


def adaptive() -> Topic:
    """The rule on two answers of which one has the share p, exactly: what it draws, its vote, the mean of that."""
    shares = np.linspace(0.5, 1, 51)
    ten, forty = Adaptive("number", most=10), Adaptive("number", most=40)
    rows = [{"p": float(p), **_walked(forty, float(p))} for p in shares]
    biased = [{"p": float(p), "mean": _walked(ten, float(p))["mean"] - float(p)} for p in shares]
    at = {round(row["p"], 2): row for row in rows}
    figures = {
        "mean of 0.70, at most 10": share(_walked(ten, 0.7)["mean"]),
        **{f"drawn at {p}": f"{at[p]['drawn']:.1f}" for p in (0.6, 0.7, 0.8, 0.9)},
        **{f"vote at {p}": share(at[p]["vote"]) for p in (0.6, 0.7, 0.8, 0.9)},
        **{f"vote of 40 at {p}": share(_fixed_vote(p)) for p in (0.6, 0.7, 0.8, 0.9)},
        "largest bias": share(max(row["mean"] for row in biased)),
    }
    left = panel(
        "Candidates a case takes, at most 40",
        [
            level(40, color=BAD),
            line(rows, "p", "drawn", GOOD),
            words(0.62, 40, "a fixed number", BAD, dy=12),
            words(0.72, at[0.72]["drawn"], "stops when the lead is safe", GOOD, dy=-10),
        ],
        x="share of the leading answer",
        y="candidates",
        across=(0.5, 1),
        up=(0, 42),
        size=(320, 260),
        x_axis={"tickCount": 5},
    )
    right = panel(
        "The mean of what was drawn, less the truth",
        [
            level(0, color=GOOD),
            line(biased, "p", "mean", BAD),
            words(0.6, 0.0545, "all candidates that were drawn", BAD, dx=0),
            words(0.55, 0, "the first four of every case", GOOD, dy=12),
        ],
        x="share of the leading answer",
        y="bias, at most 10",
        across=(0.5, 1),
        up=(-0.01, 0.06),
        size=(320, 260),
        x_axis={"tickCount": 5},
    )
    label = (
        f"a share of 0.7 takes {figures['drawn at 0.7']} candidates instead of 40; the mean of what a rule "
        f"of at most ten drew is {figures['mean of 0.70, at most 10']}"
    )
    return Topic(figures, label, picture(left, right))


def _walked(rule: Adaptive, p: float) -> dict[str, float]:
    """Expected candidates, chance that the vote is for the answer of share p (ties shared), and expected mean."""
    going, drawn, vote, mean = {(0, 0): 1.0}, 0.0, 0.0, 0.0
    while going:
        right, wrong = min(going, key=sum)  # the smallest first: nothing comes back to it
        chance = going.pop((right, wrong))
        more = _more(rule, right, wrong)
        if not more:
            drawn += chance * (right + wrong)
            vote += chance * (1.0 if right > wrong else 0.5 if right == wrong else 0.0)
            mean += chance * right / (right + wrong)
        for r in range(more + 1 if more else 0):
            state = (right + r, wrong + more - r)
            going[state] = going.get(state, 0.0) + chance * float(_binomial(more, p)[r])
    return {"drawn": drawn, "vote": vote, "mean": mean}


@cache
def _more(rule: Adaptive, right: int, wrong: int) -> int:
    return rule.more_after(["a"] * right + ["b"] * wrong) if right + wrong else rule.first


@cache
def _binomial(n: int, p: float) -> np.ndarray:
    return binom.pmf(np.arange(n + 1), n, p)


def _fixed_vote(p: float, n: int = 40) -> float:
    return float(binom.sf(n // 2, n, p) + binom.pmf(n // 2, n, p) / 2)


GIVEN = {
    "cases": ("0.5",),
    "pass-at-k": ("0.1",),
    "independence": ("0.02", "0.9"),
    "votes": (),
    "intervals": ("0.01", "0.99", "0.05"),
    "paired": ("0.05",),
    "judges": ("0.9", "0.7", "0.3", "0.8", "0.5"),
    "selection": ("0.6",),
    "adaptive": ("0.6", "0.7", "0.8", "0.9", "0.70"),
}
TOPICS: dict[str, Callable[[], Topic]] = {
    "cases": cases,
    "pass-at-k": pass_at_k,
    "independence": independence,
    "votes": votes,
    "intervals": intervals,
    "paired": paired,
    "judges": judges,
    "selection": selection,
    "adaptive": adaptive,
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or TOPICS:
        topic = TOPICS[name]()
        (FOLDER / f"{name}.svg").write_text(svg(topic.spec, topic.label))
        print(f"{name} ({seal(topic.spec)})")
        print("".join(f"  {figure:34} {value}\n" for figure, value in topic.figures.items()))


if __name__ == "__main__":
    main()
