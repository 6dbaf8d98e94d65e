"""A judge's rate corrected by labels, with its interval: kofn against judgy, on the same labels and verdicts.

python benchmarks/run.py --only judge
"""

from __future__ import annotations

from typing import Any

import numpy as np
from beside import IR, Peers
from table import Row, one_pass, race, show

from kofn.stats.corrected_rates import corrected_rate

TITLE = "Corrected rates of a judge"
HOW = """20,000 draws for both, judgy's default; the run checks that the point estimates are equal. The intervals
differ: judgy resamples the labels and treats the judged rate as exact, so its interval is too narrow if few cases
are judged; the coverage of kofn's is in [calibrate.md](calibrate.md). kofn's "auto" draws the three rates from
their distributions, "bootstrap" resamples cases. The limit is one pass over the verdicts."""

DRAWS = 20_000
SIZES = {"200 labels, 2,000 judged": (200, 2_000), "1,000 labels, 1,000,000 judged": (1_000, 1_000_000)}

JUDGY = """
import numpy as np
from judgy import estimate_success_rate
human, judge, judged = (np.array(column) for column in data["columns"])
def work():
    np.random.seed(0)
    return estimate_success_rate(human, judge, judged, bootstrap_iterations=data["draws"])
"""


def make(labels: int, judged: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Human labels, the judge's verdicts on the same, and its verdicts on what is corrected: s .9, t .8."""
    rng = np.random.default_rng(labels)
    human, truth = rng.random(labels) < 0.6, rng.random(judged) < 0.7
    verdicts = [np.where(good, rng.random(good.size) < 0.9, rng.random(good.size) >= 0.8) for good in (human, truth)]
    return human.astype(float), verdicts[0].astype(float), verdicts[1].astype(float)


def rows_of(name: str, labels: int, judged: int, draws: int) -> list[Row]:
    human, judge, verdicts = make(labels, judged)
    inputs = {"columns": [column.astype(int).tolist() for column in (human, judge, verdicts)], "draws": draws}
    with Peers() as peers:
        runners: dict[str, Any] = {
            method: lambda method=method: corrected_rate(human, judge, verdicts, method=method, n_resamples=draws)
            for method in ("auto", "bootstrap")
        }
        found = race(runners | {"judgy": peers.start("judgy", IR, JUDGY, inputs)})
    limit = one_pass(human.nbytes + judge.nbytes + verdicts.nbytes, "one pass over labels and verdicts")
    rows = []
    for method in ("auto", "bootstrap"):
        ours = found[method].value
        work = f"corrected rate, {name}, {method} [{ours.low:.3f}, {ours.high:.3f}]"
        if "judgy" not in found:
            rows.append(Row(work=work, kofn=found[method].seconds, limit=limit))
            continue
        point, low, high = found["judgy"].value
        assert abs(ours.point - point) < 1e-9, (ours.point, point)
        assert max(abs(ours.low - low), abs(ours.high - high)) < 0.05, (ours, low, high)
        theirs = found["judgy"].seconds
        peer = f"judgy [{low:.3f}, {high:.3f}]"
        rows.append(Row(work=work, kofn=found[method].seconds, peer=peer, theirs=theirs, limit=limit))
    return [show(row) for row in rows]


def main(small: bool = False) -> list[Row]:
    sizes = {"200 labels, 2,000 judged": (200, 2_000)} if small else SIZES
    return [row for name, size in sizes.items() for row in rows_of(name, *size, 500 if small else DRAWS)]


if __name__ == "__main__":
    main()
