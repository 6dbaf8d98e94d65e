"""By-case bootstrap of a mean, 10,000 resamples: kofn against scipy and lm-eval, in the same run.

kofn computes the interval of infinitely many resamples; the peers draw. Peers that would take minutes are run with
fewer resamples and their time is scaled up.

    python benchmarks/run.py --only bootstrap
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from beside import TOOLS, Peers
from table import Limit, Row, fastest, race, show

from kofn.stats import bootstrap_mean

TITLE = "Bootstrap of a mean"
HOW = """10,000 resamples of cases. kofn computes the distribution of the resampled mean instead of drawing from it
(binomial, convolution, expansion), so the result is the same but the work is not. The distance between the ends of
the intervals is given in standard errors of the mean: 10,000 draws alone err by about .03 at each end, and the
smaller number of draws that is scaled here by more. lm-eval gives a standard error, used here as a normal interval.
The limit is one pass over the values."""

SIZES = (10_000, 1_000_000)
RESAMPLES = 10_000
CELLS = 10_000_000  # drawn values a peer may hold at once: 80 MB
SCIPY_DRAWS, LM_EVAL_DRAWS = 1e8, 1e7

LM_EVAL = """
import os
os.environ["DISABLE_MULTIPROC"] = "1"
from lm_eval.api.metrics import bootstrap_stderr, mean
values, resamples = data
def work():
    return bootstrap_stderr(mean, values, resamples)
"""


def datasets(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    p = rng.beta(1, 1, size=n)
    return {
        "0/1": (rng.random(n) < p).astype(float),
        "nine levels": rng.binomial(8, p) / 8,
        "continuous": rng.beta(0.5, 0.8, size=n),
    }


def with_scipy(x: np.ndarray, resamples: int) -> tuple[float, float]:
    from scipy import stats

    options = {"n_resamples": resamples, "batch": max(1, CELLS // x.size), "method": "percentile", "vectorized": True}
    ends = stats.bootstrap((x,), np.mean, rng=np.random.default_rng(0), **options).confidence_interval
    return float(ends.low), float(ends.high)


def normal_ends(x: np.ndarray, se: float) -> tuple[float, float]:
    half = NormalDist().inv_cdf(0.975) * se
    return float(x.mean()) - half, float(x.mean()) + half


def rows_of(kind: str, x: np.ndarray, budget: float) -> list[Row]:
    with_scipy(x[:10], 10)  # loads scipy
    few = int(min(RESAMPLES, max(100, budget * SCIPY_DRAWS / x.size)))
    fewer = int(min(RESAMPLES, max(20, budget * LM_EVAL_DRAWS / x.size)))
    with Peers() as peers:
        lm_eval = peers.start("lm-eval", TOOLS, LM_EVAL, [x.tolist(), fewer])
        found = race({"scipy": lambda: with_scipy(x, few), "lm-eval": lm_eval}, rounds=1)
    took, ours = fastest(lambda: bootstrap_mean(x), 0.5 * budget), bootstrap_mean(x)
    limit = Limit("one pass over the values", fastest(x.sum, 0.1))
    se = float(x.std()) / np.sqrt(x.size)
    rows = []
    for peer, drawn in (("scipy", few), ("lm-eval", fewer)):
        if peer not in found:
            continue
        ends = found[peer].value if peer == "scipy" else normal_ends(x, found[peer].value)
        apart = max(abs(ours.low - ends[0]), abs(ours.high - ends[1])) / se
        assert apart < 8 / np.sqrt(drawn) + 0.1, (kind, peer, apart)
        work = f"{x.size:,} cases, {kind}; ends {apart:.2f} se apart"
        other = found[peer].seconds * RESAMPLES / drawn
        rows.append(show(Row(work=work, kofn=took, peer=peer, theirs=other, scaled=drawn < RESAMPLES, limit=limit)))
    return rows


def main(small: bool = False) -> list[Row]:
    sizes, budget = ((2_000,), 0.05) if small else (SIZES, 1.0)
    return [row for n in sizes for kind, x in datasets(n).items() for row in rows_of(kind, x, budget)]


if __name__ == "__main__":
    main()
