"""By-case bootstrap of a mean, 10,000 resamples: kofn against scipy and lm-eval, in the same run.

    python benchmarks/bootstrap.py
    KOFN_PEERS_PYTHON=/path/to/venv/bin/python python benchmarks/bootstrap.py   # with lm-eval

kofn computes the interval of infinitely many resamples; the peers draw. The last column is how far
the ends lie apart, in standard errors of the mean: 10,000 draws alone err by about .03 at each end.
Peers that would take minutes are run with fewer resamples and their time is scaled up, marked ~.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from table import Row, seconds, show

from kofn.stats import bootstrap_mean

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (10_000, 1_000_000)
RESAMPLES = 10_000
CELLS = 10_000_000  # drawn values a peer may hold at once: 80 MB
SCIPY_DRAWS = 1e8
LM_EVAL_DRAWS = 1e7

LM_EVAL = """
import json, os, sys, time
os.environ["DISABLE_MULTIPROC"] = "1"
from lm_eval.api.metrics import bootstrap_stderr, mean
values, resamples = json.load(sys.stdin)
start = time.perf_counter()
se = bootstrap_stderr(mean, values, resamples)
print(json.dumps([time.perf_counter() - start, se]))
"""


def datasets(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    p = rng.beta(1, 1, size=n)
    return {
        "0/1": (rng.random(n) < p).astype(float),
        "nine levels": rng.binomial(8, p) / 8,
        "continuous": rng.beta(0.5, 0.8, size=n),
    }


def fastest(work: Callable[[], object], budget: float = 0.5) -> float:
    """The shortest of several runs."""
    times: list[float] = []
    while not times or sum(times) < budget:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def scipy_run(x: np.ndarray) -> tuple[float, tuple[float, float], bool]:
    """Seconds for all resamples, the interval, and whether the time was scaled from fewer."""
    from scipy import stats

    resamples = int(min(RESAMPLES, max(100, SCIPY_DRAWS / x.size)))
    start = time.perf_counter()
    ends = stats.bootstrap(
        (x,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, CELLS // x.size),
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(0),
    ).confidence_interval
    taken = (time.perf_counter() - start) * RESAMPLES / resamples
    return taken, (float(ends.low), float(ends.high)), resamples < RESAMPLES


def lm_eval_run(x: np.ndarray) -> tuple[float, tuple[float, float], bool] | None:
    """As `scipy_run`; lm-eval gives a standard error, read here as a normal interval."""
    python = os.environ.get("KOFN_PEERS_PYTHON")
    if not python:
        return None
    resamples = int(min(RESAMPLES, max(20, LM_EVAL_DRAWS / x.size)))
    done = subprocess.run(
        [python, "-c", LM_EVAL], input=json.dumps([x.tolist(), resamples]), capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"lm-eval could not be run: {done.stderr.strip().splitlines()[-1]}")
        return None
    taken, se = json.loads(done.stdout.strip().splitlines()[-1])
    half = NormalDist().inv_cdf(0.975) * se
    mean = float(x.mean())
    return taken * RESAMPLES / resamples, (mean - half, mean + half), resamples < RESAMPLES


def row(kind: str, x: np.ndarray, peer: str, run: tuple[float, tuple[float, float], bool]) -> Row:
    theirs_seconds, theirs, scaled = run
    ours_seconds = fastest(lambda: bootstrap_mean(x))
    ours = bootstrap_mean(x)
    se = float(x.std()) / np.sqrt(x.size)
    apart = max(abs(ours.low - theirs[0]), abs(ours.high - theirs[1])) / se
    work = f"bootstrap of a mean, {x.size:,} cases, {kind}; ends {apart:.3f} se apart"
    ratio = f"{theirs_seconds / ours_seconds:,.0f}x"
    return Row(work, seconds(ours_seconds), peer, f"{'~' if scaled else ''}{seconds(theirs_seconds)}", ratio)


def main() -> list[Row]:
    rows = []
    for n in SIZES:
        for kind, x in datasets(n).items():
            rows.append(show(row(kind, x, "scipy", scipy_run(x))))
            theirs = lm_eval_run(x)
            if theirs is not None:
                rows.append(show(row(kind, x, "lm-eval", theirs)))
    if not os.environ.get("KOFN_PEERS_PYTHON"):
        print("lm-eval was left out: set KOFN_PEERS_PYTHON to an interpreter that can import it", file=sys.stderr)
    return rows


if __name__ == "__main__":
    main()
