"""Ranked lists: nDCG@10, recall@10, MRR and precision@10 of 100,000 queries, against ranx, pytrec_eval and ir-measures.

Every query has a graded relevance (0 to 3) for each of its results, and at least one relevant result. All compute the
same means; the run checks that. Peers run on a part of the queries and are scaled.

    python benchmarks/run.py --only ranking
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from beside import IR, Peers
from table import Row, one_pass, race, show

from kofn.core.candidate_sets import CandidateSets, group_rows, passes_of
from kofn.registry import aggregator

TITLE = "Ranking metrics"
HOW = """nDCG@10, recall@10, MRR and precision@10 of 100,000 queries with graded results; the run checks that the
means of all tools are equal. "At hand" excludes the preparation: kofn has its sets, ranx its Qrels and Run with
warm compiled code (the first call takes the given seconds to compile), pytrec_eval its dictionaries. "From a table"
starts with a table of query, rank and relevance for both. The limit is one pass over the relevances."""

QUERIES, DEPTHS, PART = 100_000, (10, 100), 200_000  # results a peer gets at most
RULES = {"ndcg": "ndcg(k=10)", "recall": "recall(k=10)", "mrr": "mrr", "precision": "precision(k=10)"}

RANX = """
import time
import numpy as np, pandas as pd
from ranx import Qrels, Run, evaluate
names = {"ndcg": "ndcg@10", "recall": "recall@10", "mrr": "mrr", "precision": "precision@10"}
gains = np.array(data["gains"])
queries, depth = gains.shape
frame = pd.DataFrame({
    "q_id": np.repeat([f"q{i}" for i in range(queries)], depth),
    "doc_id": np.tile([f"d{i}" for i in range(depth)], queries),
    "rel": gains.ravel(), "score": np.tile(-np.arange(depth, dtype=float), queries)})
frame = frame.astype({"q_id": object, "doc_id": object})
def made():
    return (Qrels.from_df(frame, q_id_col="q_id", doc_id_col="doc_id", score_col="rel"),
            Run.from_df(frame, q_id_col="q_id", doc_id_col="doc_id", score_col="score"))
def asked(qrels, run):
    found = evaluate(qrels, run, list(names.values()))
    return {name: float(found[theirs]) for name, theirs in names.items()}
start = time.perf_counter()
qrels, run = made()
asked(qrels, run)
first = time.perf_counter() - start
def work():
    if data["at_hand"]:
        return asked(qrels, run) | {"first": first}
    return asked(*made())
"""

DICTIONARIES = """
def dictionaries(gains):
    qrels = {f"q{i}": {f"d{j}": g for j, g in enumerate(gs)} for i, gs in enumerate(gains)}
    run = {q: {d: -float(j) for j, d in enumerate(docs)} for q, docs in qrels.items()}
    return qrels, run
qrels, run = dictionaries(data)
"""

PYTREC = (
    DICTIONARIES
    + """
import pytrec_eval
names = {"ndcg": "ndcg_cut_10", "recall": "recall_10", "mrr": "recip_rank", "precision": "P_10"}
evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.10", "recip_rank", "P.10"})
def work():
    found = evaluator.evaluate(run)
    return {name: sum(one[theirs] for one in found.values()) / len(found) for name, theirs in names.items()}
"""
)

IR_MEASURES = (
    DICTIONARIES
    + """
import ir_measures
from ir_measures import P, R, RR, nDCG
names = {"ndcg": nDCG @ 10, "recall": R @ 10, "mrr": RR, "precision": P @ 10}
def work():
    found = ir_measures.calc_aggregate(list(names.values()), qrels, run)
    return {name: found[theirs] for name, theirs in names.items()}
"""
)


def make(queries: int, depth: int) -> np.ndarray:
    """Relevances, a row a query; one result of each is relevant for certain."""
    rng = np.random.default_rng(depth)
    gains = rng.choice(4, size=(queries, depth), p=[0.7, 0.15, 0.1, 0.05])
    gains[np.arange(queries), rng.integers(0, depth, queries)] = 2
    return gains.astype(np.float64)


def at_hand(gains: np.ndarray) -> dict[str, float]:
    """From relevances that lie as sets."""
    offsets = np.arange(0, gains.size + 1, gains.shape[1])
    return of_sets(pl.Series("case_id", np.arange(len(gains))), offsets, gains.ravel())


def from_table(frame: pl.DataFrame) -> dict[str, float]:
    """From rows: grouped by query, in the order of their ranks."""
    grouped = group_rows(frame["query"], frame["rank"])
    gains = frame["gain"] if grouped.order is None else frame["gain"].gather(grouped.order)
    return of_sets(grouped.case_ids, grouped.offsets, gains.to_numpy())


def of_sets(ids: pl.Series, offsets: np.ndarray, gains: np.ndarray) -> dict[str, float]:
    sets = CandidateSets(case_ids=ids, offsets=offsets, values=gains, passes=passes_of(gains))
    return {name: float(aggregator(rule)(sets).mean()) for name, rule in RULES.items()}


def with_loop(gains: list[list[float]]) -> dict[str, float]:
    """What people write: one query at a time."""
    from math import log2

    totals = dict.fromkeys(RULES, 0.0)
    for gs in gains:
        best = sorted(gs, reverse=True)
        ideal = sum(g / log2(j + 2) for j, g in enumerate(best[:10]))
        hits = [g >= 1 for g in gs]
        totals["ndcg"] += sum(g / log2(j + 2) for j, g in enumerate(gs[:10])) / ideal
        totals["recall"] += sum(hits[:10]) / sum(hits)
        totals["mrr"] += 1 / (1 + hits.index(True))
        totals["precision"] += sum(hits[:10]) / 10
    return {name: total / len(gains) for name, total in totals.items()}


def rows_of(queries: int, depth: int) -> list[Row]:
    gains = make(queries, depth)
    part = max(1, min(queries, PART // depth))
    some = gains[:part].astype(int).tolist()
    names = pl.Series("query", [f"q{i}" for i in range(queries)]).gather(np.repeat(np.arange(queries), depth))
    frame = pl.DataFrame({"query": names, "rank": np.tile(np.arange(depth), queries), "gain": gains.ravel()})
    with Peers() as peers:
        runners: dict[str, Any] = {
            "kofn, at hand": lambda: at_hand(gains),
            "kofn, from a table": lambda: from_table(frame),
            "ranx, evaluate": peers.start("ranx", IR, RANX, {"gains": some, "at_hand": True}),
            "ranx, from_df and evaluate": peers.start("ranx", IR, RANX, {"gains": some, "at_hand": False}),
            "pytrec_eval": peers.start("pytrec_eval", IR, PYTREC, some),
            "ir-measures": peers.start("ir-measures", IR, IR_MEASURES, some),
            "per-query loop": lambda: with_loop(some),
        }
        found = race(runners)
    expected = at_hand(gains[:part])
    limit = one_pass(gains.nbytes, "one pass over the relevances")
    rows = []
    assert found["kofn, at hand"].value == found["kofn, from a table"].value
    for peer, run in found.items():
        if peer.startswith("kofn"):
            continue
        assert all(abs(run.value[name] - mean) < 1e-6 for name, mean in expected.items()), (peer, run.value, expected)
        mine = "kofn, from a table" if "from_df" in peer else "kofn, at hand"
        first = f" (first call {run.value['first']:.1f} s)" if "first" in run.value else ""
        work = f"{len(RULES)} metrics, {queries:,} queries x {depth},{mine.removeprefix('kofn,')}"
        theirs = run.seconds * queries / part
        kofn, scaled = found[mine].seconds, part < queries
        rows.append(show(Row(work=work, kofn=kofn, peer=peer + first, theirs=theirs, scaled=scaled, limit=limit)))
    return rows


def main(small: bool = False) -> list[Row]:
    queries = 500 if small else QUERIES
    return [row for depth in DEPTHS[: 1 if small else None] for row in rows_of(queries, depth)]


if __name__ == "__main__":
    main()
