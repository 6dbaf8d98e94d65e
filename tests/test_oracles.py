"""Worked numbers from published sources and reference packages. Statistics have theirs in tests/stats."""

from __future__ import annotations

import numpy as np
import pytest

import kofn
from kofn.core.candidate_sets import CandidateSets
from kofn.registry import aggregator


def sets_of_counts(counts, n):
    return CandidateSets.from_lists([[1] * c + [0] * (n - c) for c in counts])


def test_pass_at_k_basic(oracles):
    entry = oracles["pass_at_k.basic"]
    found = [aggregator(f"pass@{i['k']}").of_counts(i["n"], i["c"]) for i in entry["inputs"]]
    assert found == pytest.approx(entry["expected"], abs=entry["tol"])


def test_pass_hat_k_basic(oracles):
    entry = oracles["pass_hat_k.basic"]
    found = [aggregator(f"pass^{i['k']}").of_counts(i["n"], i["c"]) for i in entry["inputs"]]
    assert found == pytest.approx(entry["expected"], abs=entry["tol"])


def test_pass_at_k_from_the_counts_of_cruxeval(oracles):
    entry = oracles["pass_at_k.cruxeval_output"]
    counts = [c for c, times in enumerate(entry["inputs"]["count_of_c_0_to_10"]) for _ in range(times)]
    sets = sets_of_counts(counts, 10)
    for k in (1, 2, 5, 10):
        assert 100 * aggregator(f"pass@{k}")(sets).mean() == pytest.approx(entry["expected"][f"pass@{k}"], abs=1e-9)


def test_pass_hat_k_of_tau(oracles):
    entry = oracles["pass_hat_k.tau_airline_gpt4o"]
    sets = sets_of_counts(entry["inputs"]["c_per_task"], 4)
    for k in (1, 2, 3, 4):
        assert aggregator(f"pass^{k}")(sets).mean() == pytest.approx(entry["expected"][f"pass^{k}"], abs=1e-12)
        assert aggregator(f"pass@{k}")(sets).mean() == pytest.approx(entry["expected"][f"pass@{k}"], abs=1e-12)


@pytest.mark.parametrize("name", ["maj_at_k.seed_example", "maj_at_k.plurality"])
@pytest.mark.parametrize(("ties", "column"), [("shared", "share"), ("first", "first")])
def test_maj_at_k(oracles, name, ties, column):
    entry = oracles[name]
    answers, gold = entry["inputs"]["answers"], entry["inputs"]["gold"]
    sets = CandidateSets.from_lists([[float(a == gold) for a in answers]], answers=[answers])
    found = [float(aggregator(f"maj_at(k={k}, ties={ties!r})")(sets)[0]) for k in entry["inputs"]["k"]]
    assert found == pytest.approx(entry["expected"][column], abs=1e-12)


def test_ndcg_conventions(oracles):
    entry = oracles["ndcg.wikipedia"]
    want = entry["expected"]
    sets = CandidateSets.from_lists(
        [entry["inputs"]["ranked_relevance"]], ideal=[entry["inputs"]["all_judged_relevance"]]
    )

    def value(spec):
        return float(aggregator(spec)(sets)[0])

    assert value("dcg(k=6)") == pytest.approx(want["dcg6_linear"])
    assert value("dcg(k=6, gain='exp2')") == pytest.approx(want["dcg6_exp"])
    assert value("ndcg(k=6, ideal='set')") == pytest.approx(want["ndcg6_linear_ideal_returned"])
    assert value("ndcg(k=6)") == pytest.approx(want["ndcg6_linear_ideal_pool"])
    assert value("ndcg(k=6, ideal='set', gain='exp2')") == pytest.approx(want["ndcg6_exp_ideal_returned"])
    assert value("ndcg(k=6, gain='exp2')") == pytest.approx(want["ndcg6_exp_ideal_pool"])
    assert value("ndcg") == pytest.approx(want["trec_eval_ndcg_pool"])


def test_ndcg_of_an_all_zero_set_is_zero_never_one():
    assert kofn.aggregate("ndcg(k=3)", values=[0, 0, 0]) == 0.0


def test_distinct_and_self_bleu(oracles):
    entry = oracles["diversity.distinct_selfbleu"]
    texts = entry["inputs"]["texts"]
    for n in (1, 2, 3):
        assert kofn.aggregate(f"distinct(n={n})", texts=texts) == pytest.approx(entry["expected"][f"distinct{n}"])
    assert kofn.aggregate("self_bleu", texts=texts) == pytest.approx(entry["expected"]["self_bleu4_sacrebleu_exp_13a"])


def test_distinct_edge_cases(oracles):
    entry = oracles["diversity.edge"]
    found = [kofn.aggregate(f"distinct(n={i['n']})", texts=i["texts"]) for i in entry["inputs"]]
    assert found == pytest.approx(entry["expected"])


def test_reducers_on_passes(oracles):
    entry = oracles["inspect.reducers"]
    values, want = entry["inputs"]["values"], entry["expected"]
    names = {"mean": "mean", "median": "median", "max": "max", "pass@1": "pass_at_1", "pass@2": "pass_at_2",
             "pass@3": "pass_at_3", "at_least(m=3)": "at_least_3", "at_least(m=4)": "at_least_4"}  # fmt: skip
    for ours, theirs in names.items():
        assert kofn.aggregate(ours, values=values) == pytest.approx(want[theirs])
    # their mode of scores is our vote with the score as the answer
    assert kofn.aggregate("majority", values=values, answers=values) == want["mode"]


def test_ties_go_to_the_first_seen(oracles):
    entry = oracles["inspect.reducers_tie"]
    for which in "ab":
        values = entry["inputs"][which]
        assert kofn.aggregate("majority", values=values, answers=values) == entry["expected"][f"mode_{which}"]


def test_self_bleu_equals_sacrebleu_on_plain_words():
    sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
    rng = np.random.default_rng(3)
    words = np.array(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"])
    for _ in range(30):
        texts = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(4)]
        expected = np.mean(
            [sacrebleu.sentence_bleu(t, texts[:i] + texts[i + 1 :]).score / 100 for i, t in enumerate(texts)]
        )
        assert kofn.aggregate("self_bleu", texts=texts) == pytest.approx(expected, abs=1e-9)
