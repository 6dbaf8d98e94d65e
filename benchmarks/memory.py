"""The most memory a process takes: aggregating a million sets of eight, a bootstrap, and ranked lists, beside peers.

Each client is a process that loads the same files, does the work and ends; what counts is its peak (ru_maxrss). What
`kofn score` and the importers take is in the parts score and logs.

    python benchmarks/run.py --only memory
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from beside import TOOLS, interpreter
from score import measure
from table import Limit, Row, show

if TYPE_CHECKING:
    from collections.abc import Callable

TITLE = "Memory"
HOW = """Peak memory of a whole process that loads the data from Parquet and does the work. Inspect holds a part of
the sets, and its memory above that of an interpreter that has imported it is scaled. The limit is an interpreter
with numpy and polars that has loaded the same data. For the memory of `kofn score` and the importers, see the
sections on scoring and logs."""

SETS, INSPECT_SETS, CASES = 1_000_000, 20_000, 10_000

INSPECT = """
import sys
import polars as pl
from inspect_ai.scorer import Score, mean_score
frame = pl.read_parquet(sys.argv[1], n_rows=8 * int(sys.argv[2]))
values, answers = (frame[name].to_list() for name in ("value", "answer"))
made = [Score(value=v, answer=a) for v, a in zip(values, answers)]
scores = [made[i:i + 8] for i in range(0, len(made), 8)]
reduce = mean_score()
print(sum(reduce(one).value for one in scores) if scores else 0)
"""


def loaded(path: Path) -> pl.DataFrame:
    """The data and nothing else: the limit."""
    return pl.read_parquet(path)


def with_kofn(path: Path) -> None:
    import aggregation

    frame = loaded(path)
    aggregation.with_kofn(frame["value"].to_numpy(), frame["answer"])


def with_polars(path: Path) -> None:
    import aggregation

    aggregation.with_polars(loaded(path))


def with_loop(path: Path) -> None:
    import aggregation

    frame, n = loaded(path), aggregation.N
    values, answers = (frame[name].to_list() for name in ("value", "answer"))
    at = range(0, len(values), n)
    aggregation.with_loop([values[i : i + n] for i in at], [answers[i : i + n] for i in at])


def kofn_bootstrap(path: Path) -> None:
    from kofn.stats import bootstrap_mean

    bootstrap_mean(loaded(path)["value"].to_numpy())


def scipy_bootstrap(path: Path) -> None:
    from scipy import stats

    values = loaded(path)["value"].to_numpy()
    stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000)


CLIENTS: dict[str, Callable[[Path], object]] = {
    "data": loaded,
    "kofn": with_kofn,
    "polars group_by": with_polars,
    "per-sample loop over lists": with_loop,
    "kofn's bootstrap": kofn_bootstrap,
    "scipy's bootstrap, its own batches": scipy_bootstrap,
}


def peak(name: str, path: Path) -> float:
    return measure([sys.executable, __file__, name, str(path)])[1]


def aggregating(folder: Path, n_sets: int) -> list[Row]:
    import aggregation

    values, answers = aggregation.make(n_sets)
    path, work = folder / "sets.parquet", f"{len(aggregation.RULES)} aggregators, {n_sets:,} sets x {aggregation.N}"
    cases = np.repeat(np.arange(n_sets), aggregation.N)
    pl.DataFrame({"case": cases, "value": values, "answer": answers}).write_parquet(path)
    ours, least = peak("kofn", path), Limit("loading the data", peak("data", path))
    rows = [
        Row(work=work, kofn=ours, peer=peer, theirs=peak(peer, path), limit=least, unit="MB")
        for peer in ("polars group_by", "per-sample loop over lists")
    ]
    python = interpreter("Inspect", TOOLS)
    if python:
        part = min(INSPECT_SETS, n_sets)
        empty, held = (measure([python, "-c", INSPECT, str(path), str(n)])[1] for n in (0, part))
        theirs, scaled = empty + (held - empty) * n_sets / part, part < n_sets
        peer = "Inspect scores, one reducer"
        rows.append(Row(work=work, kofn=ours, peer=peer, theirs=theirs, limit=least, unit="MB", scaled=scaled))
    return rows


def bootstrapping(folder: Path, n: int) -> Row:
    path = folder / "values.parquet"
    pl.DataFrame({"value": np.random.default_rng(0).random(n)}).write_parquet(path)
    ours, peer = peak("kofn's bootstrap", path), "scipy's bootstrap, its own batches"
    least = Limit("loading the data", peak("data", path))
    work = f"bootstrap of a mean, {n:,} cases, 10,000 resamples"
    return Row(work=work, kofn=ours, peer=peer, theirs=peak(peer, path), limit=least, unit="MB")


def main(small: bool = False) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        rows = aggregating(Path(folder), 2_000 if small else SETS)
        rows.append(bootstrapping(Path(folder), 100 if small else CASES))
    return [show(row) for row in rows]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        CLIENTS[sys.argv[1]](Path(sys.argv[2]))
    else:
        main()
