"""Aggregating a million sets of eight: kofn, a plain loop over samples, and Inspect's epoch reducers, on the same work.

Work: first, mean, max, min, any, all and majority of passes, the majority of string answers, and pass@5. The loop
and the reducers run on a part of the sets and are scaled, since they are linear; the reducers need KOFN_PEERS_PYTHON.

    python benchmarks/aggregation.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from math import ceil, prod

import numpy as np
import polars as pl
from table import Row, seconds, show

from kofn.registry import aggregator
from kofn.sets import CandidateSets, offsets_of, passes_of

SETS, N = 1_000_000, 8
RULES = ["first", "mean", "max", "min", "any_pass", "all_pass", "majority_pass", "majority", "pass@5"]
LOOP_PART, PEER_PART = 20_000, 1_000


def make(n_sets: int) -> tuple[np.ndarray, pl.Series]:
    rng = np.random.default_rng(0)
    right = rng.random((n_sets, N)) < rng.beta(2, 2, (n_sets, 1))
    answers = np.where(right, 42, rng.integers(0, 30, (n_sets, N))).ravel()
    return (answers == 42).astype(np.float64), pl.Series(answers).cast(pl.String)


def with_kofn(values: np.ndarray, answers: pl.Series) -> dict[str, float]:
    sizes = np.full(len(values) // N, N)
    sets = CandidateSets(
        case_ids=pl.Series("case_id", np.arange(len(sizes))),
        offsets=offsets_of(sizes),
        values=values,
        passes=passes_of(values),
        answers=answers,
    )
    return {rule: float(aggregator(rule)(sets).mean()) for rule in RULES}


def with_loop(values: list[list[float]], answers: list[list[str]]) -> dict[str, float]:
    """What people write: one set at a time."""
    totals = dict.fromkeys(RULES, 0.0)
    for scores, texts in zip(values, answers, strict=True):
        n, c = len(scores), sum(s >= 1 for s in scores)
        top = Counter(texts).most_common(1)[0][0]
        totals["first"] += scores[0]
        totals["mean"] += sum(scores) / n
        totals["max"] += max(scores)
        totals["min"] += min(scores)
        totals["any_pass"] += float(any(s >= 1 for s in scores))
        totals["all_pass"] += float(all(s >= 1 for s in scores))
        totals["majority_pass"] += float(c >= ceil(n / 2))
        totals["majority"] += scores[texts.index(top)]
        totals["pass@5"] += 1.0 if n - c < 5 else 1.0 - prod(1.0 - 5 / i for i in range(n - c + 1, n + 1))
    return {rule: total / len(values) for rule, total in totals.items()}


PEER = """
import json, sys, time
from inspect_ai.scorer import Score, at_least, max_score, mean_score, mode_score, pass_at
values, answers = json.load(sys.stdin)
scores = [[Score(value=v, answer=a) for v, a in zip(vs, xs)] for vs, xs in zip(values, answers)]
texts = [[Score(value=a) for a in xs] for xs in answers]
def run(reducer, sets):
    start = time.perf_counter()
    for one in sets: reducer(one)
    return time.perf_counter() - start
rules = {"mean": mean_score(), "max": max_score(), "any_pass": at_least(1), "all_pass": at_least(8),
         "majority_pass": at_least(4), "pass@5": pass_at(5)}
print(json.dumps({**{name: run(rule, scores) for name, rule in rules.items()}, "majority": run(mode_score(), texts)}))
"""


def with_reducers(values: list[list[float]], answers: list[list[str]]) -> dict[str, float] | None:
    """Seconds of each reducer, or None where Inspect is not at hand."""
    python = os.environ.get("KOFN_PEERS_PYTHON")
    if not python:
        return None
    done = subprocess.run(
        [python, "-c", PEER], input=json.dumps([values, answers]), capture_output=True, text=True, check=True
    )
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> list[Row]:
    values, answers = make(SETS)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        with_kofn(values, answers)
        best = min(best, time.perf_counter() - start)
    part = LOOP_PART * N
    vs, xs = values[:part].reshape(-1, N).tolist(), np.array(answers[:part].to_list()).reshape(-1, N).tolist()
    start = time.perf_counter()
    theirs = with_loop(vs, xs)
    loop = (time.perf_counter() - start) * SETS / LOOP_PART
    ours = with_kofn(values[:part], answers[:part])
    assert all(abs(ours[rule] - theirs[rule]) < 1e-9 for rule in RULES), (ours, theirs)
    work = f"{len(RULES)} aggregators, {SETS:,} sets x {N}"
    rows = [show(Row(work, seconds(best), "per-sample loop", f"~{seconds(loop)}", f"{loop / best:.0f}x"))]
    reducers = with_reducers(vs[:PEER_PART], xs[:PEER_PART])
    if reducers is None:
        print("Inspect was left out: set KOFN_PEERS_PYTHON to an interpreter that can import it", file=sys.stderr)
    else:
        total = sum(reducers.values()) * SETS / PEER_PART
        peer = f"Inspect reducers, {len(reducers)} of the {len(RULES)}"
        rows.append(show(Row(work, seconds(best), peer, f"~{seconds(total)}", f"{total / best:.0f}x")))
    start = time.perf_counter()
    values.sum()
    floor = time.perf_counter() - start
    rows.append(show(Row(work, seconds(best), "one pass over the values", seconds(floor), f"{floor / best:.2f}x")))
    return rows


if __name__ == "__main__":
    main()
