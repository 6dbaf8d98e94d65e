"""The same laws over every aggregator."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import REFERENCE, maj_at, pass_at, selected_at, vote

from kofn.aggregators.scores import First
from kofn.core.candidate_sets import CandidateSets, passes_of
from kofn.registry import AGGREGATORS, aggregator
from kofn.testing import assert_same, check_aggregator, random_sets

ALL = [
    *REFERENCE,
    "weighted_mean",
    "recall(k=2)",
    "self_bleu",
    "redundancy_penalty",
    "facet_coverage",
    "semantic_diversity(embedder='words')",
]
BOUNDED = [name for name in ALL if name.partition("(")[0] not in ("dcg", "unique_answers")]
MONOTONE_IN_PASSES = [
    "first", "mean", "median", "max", "min", "any_pass", "all_pass", "majority_pass", "at_least(m=2)", "pass@1",
    "pass@3", "pass^2", "g_pass_at(k=3, tau=0.5)", "mrr", "precision(k=2)", "dcg(k=3)", "selected",
    "selected@2",
]  # fmt: skip
seeds = st.integers(0, 2**32 - 1)


def test_every_registered_aggregator_is_under_these_laws():
    covered = {aggregator(name).label for name in ALL}
    assert covered == set(AGGREGATORS)


@pytest.mark.parametrize("name", ALL)
def test_aggregator_obeys_the_shipped_laws(name):
    check_aggregator(name)


@pytest.mark.parametrize("name", REFERENCE)
@given(seed=seeds, binary=st.booleans(), missing=st.sampled_from([0.0, 0.3]))
def test_equals_the_plain_version_on_unequal_sets(name, seed, binary, missing):
    sets = random_sets(np.random.default_rng(seed), 12, binary=binary, missing=missing)
    expected = [REFERENCE[name](one) for one in sets]
    assert_same(aggregator(name)(sets), [np.nan if w is None else w for w in expected], name)


ANY_SIZE = [n for n in REFERENCE if "@" not in n and "^" not in n and "_at(" not in n]


@pytest.mark.parametrize("name", ANY_SIZE)
@given(seed=seeds)
@settings(max_examples=5)
def test_equals_the_plain_version_on_sets_too_large_to_compare_all_pairs(name, seed):
    sets = random_sets(np.random.default_rng(seed), 4, most=60)
    expected = [REFERENCE[name](one) for one in sets]
    assert_same(aggregator(name)(sets), [np.nan if w is None else w for w in expected], name)


@pytest.mark.parametrize("name", BOUNDED)
@given(seed=seeds, missing=st.sampled_from([0.0, 0.5]))
def test_values_in_unit_range_stay_there(name, seed, missing):
    result = aggregator(name)(random_sets(np.random.default_rng(seed), binary=False, missing=missing))
    known = result[~np.isnan(result)]
    assert ((known >= -1e-9) & (known <= 1 + 1e-9)).all()


@pytest.mark.parametrize("name", MONOTONE_IN_PASSES)
@given(seed=seeds)
def test_one_more_pass_never_lowers_the_value(name, seed):
    rng = np.random.default_rng(seed)
    sets = random_sets(rng, 8)
    before = aggregator(name)(sets)
    values = sets.values.copy()
    if not len(values):
        return
    values[rng.integers(len(values))] = 1.0
    raised = CandidateSets(
        case_ids=sets.case_ids,
        offsets=sets.offsets,
        values=values,
        passes=passes_of(values),
        selectors=sets.selectors,
    )
    after = aggregator(name)(raised)
    known = ~np.isnan(before)
    assert (after[known] >= before[known] - 1e-12).all()


SINGLETON = {
    "first": 1.0, "mean": 1.0, "median": 1.0, "max": 1.0, "min": 1.0, "std": 0.0, "best_score": 1.0, "any_pass": 1.0,
    "all_pass": 1.0, "majority_pass": 1.0, "majority": 1.0, "pass@1": 1.0, "pass^1": 1.0, "maj@1": 1.0, "ndcg": 1.0,
    "mrr": 1.0, "precision": 1.0, "selected": 1.0, "weighted_vote": 1.0, "pass@2": None, "selected@1": 1.0,
    "selected@2": None, "pass^2": None, "maj@2": None,
    "self_bleu": None, "redundancy": None, "semantic_diversity(embedder='words')": None, "distinct(n=1)": 1.0,
    "distinct(n=2)": None, "agreement": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), SINGLETON.items())
def test_a_set_of_one_goes_through_the_same_rule(name, expected):
    one = CandidateSets.from_lists([[1.0]], answers=[["a"]], texts=[["word"]], selectors={"judge": [[0.5]]})
    assert_same(aggregator(name)(one), [np.nan if expected is None else expected], name)


@given(seed=seeds, k=st.integers(1, 6))
def test_pass_at_n_is_any_pass_and_pass_hat_n_is_all_pass(seed, k):
    sets = random_sets(np.random.default_rng(seed))
    sets = sets.take(np.flatnonzero(sets.sizes == k))
    assert_same(aggregator(f"pass@{k}")(sets), aggregator("any_pass")(sets), "pass@n")
    assert_same(aggregator(f"pass^{k}")(sets), aggregator("all_pass")(sets), "pass^n")


@given(seed=seeds)
def test_pass_at_1_is_pass_hat_1_is_the_mean_of_passes(seed):
    sets = random_sets(np.random.default_rng(seed))
    mean = aggregator("mean")(sets)
    assert_same(aggregator("pass@1")(sets), mean, "pass@1")
    assert_same(aggregator("pass^1")(sets), mean, "pass^1")


@given(seed=seeds)
def test_maj_at_n_is_the_majority_with_ties_shared_and_maj_at_1_the_mean_of_answered(seed):
    sets = random_sets(np.random.default_rng(seed))
    for n in range(1, 7):
        of_size = sets.take(np.flatnonzero(sets.sizes == n))
        assert_same(aggregator(f"maj@{n}")(of_size), aggregator("majority(ties='shared')")(of_size), "maj@n")


some = st.one_of(st.none(), st.integers(0, 3).map(float))  # few levels, so that scores tie


@st.composite
def small_sets(draw):
    n = draw(st.integers(1, 7))
    many = {"min_size": n, "max_size": n}
    values = draw(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.25, 1.0])), **many))
    answers = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), **many))
    return CandidateSets.from_lists([values], answers=[answers], selectors={"judge": [draw(st.lists(some, **many))]})


@given(sets=small_sets(), k=st.integers(1, 8))
@settings(max_examples=300)
def test_values_at_k_are_the_mean_over_all_subsets_whatever_is_tied_unscored_or_ungraded(sets, k):
    for name, plain in ((f"selected@{k}", selected_at(k)), (f"any@{k}", pass_at(k)), (f"maj@{k}", maj_at(k, "shared"))):
        expected = plain(sets[0])
        assert_same(aggregator(name)(sets), [np.nan if expected is None else expected], name)


@given(sets=small_sets())
def test_selected_at_n_is_selected_and_at_1_the_mean_of_what_can_be_picked(sets):
    assert_same(aggregator(f"selected@{len(sets.values)}")(sets), aggregator("selected")(sets), "selected@n")
    pickable = sets.values[~np.isnan(sets.selectors["judge"])]
    assert_same(aggregator("selected@1")(sets), [pickable.mean() if len(pickable) else np.nan], "selected@1")


@given(seed=seeds, k=st.integers(1, 6))
def test_no_selector_beats_any_at_k_and_a_constant_one_gives_the_mean(seed, k):
    sets = random_sets(np.random.default_rng(seed))
    enough = sets.sizes >= k
    assert (aggregator(f"selected@{k}")(sets) <= aggregator(f"any@{k}")(sets) + 1e-12)[enough].all()
    blind = replace(sets, selectors={"judge": np.zeros(len(sets.values))})
    assert_same(aggregator(f"selected@{k}")(blind)[enough], aggregator("mean")(sets)[enough], "constant")


def test_selected_at_k_of_thousands_neither_overflows_nor_loses_digits():
    n, k = 5000, 2500
    scores = np.arange(n, 0, -1.0)
    sets = CandidateSets.from_lists([[1.0, *[0.0] * (n - 1)]], selectors={"judge": [scores.tolist()]})
    assert aggregator(f"selected@{k}")(sets)[0] == pytest.approx(k / n, abs=1e-12)  # the best is in a draw of k
    third = CandidateSets.from_lists([[0, 0, 1, *[0] * (n - 3)]], selectors={"judge": [scores.tolist()]})
    expected = (n - k) * (n - k - 1) * k / (n * (n - 1) * (n - 2))
    assert aggregator(f"selected@{k}")(third)[0] == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_undefined_when_k_exceeds_n():
    sets = CandidateSets.from_lists([[1, 1, 1], [1, 0]])
    assert np.isnan(aggregator("pass@3")(sets)).tolist() == [False, True]


def test_large_n_neither_overflows_nor_loses_digits():
    from kofn.aggregators.passes import hypergeometric

    exact = aggregator("pass@2500").of_counts(5000, 3)
    assert exact == pytest.approx(1 - (2500 * 2499 * 2498) / (5000 * 4999 * 4998), abs=1e-12)
    beyond = hypergeometric(20_000, 19_990, 100, 100)
    plain = np.prod([(19_990 - i) / (20_000 - i) for i in range(100)])
    assert beyond == pytest.approx(plain, rel=1e-9)


def test_ungraded_candidates_do_not_vote_and_first_does_not_skip():
    sets = CandidateSets.from_lists([[None, 0, 1]], answers=[["a", "b", "c"]])
    assert aggregator("majority")(sets).tolist() == [0.0]
    assert np.isnan(aggregator("first")(sets)[0])
    assert aggregator("mean")(sets).tolist() == [0.5]


def test_nobody_votes_is_no_consensus_and_scores_zero():
    sets = CandidateSets.from_lists([[0, 0]], answers=[[None, None]])
    assert aggregator("majority")(sets).tolist() == [0.0]


def test_lower_is_better_looks_the_right_way():
    sets = CandidateSets.from_lists([[3.0, 1.0, 0.0]], higher_is_better=False, threshold=0.5)
    assert aggregator("max")(sets).tolist() == [0.0]
    assert aggregator("best_score")(sets).tolist() == [0.0]
    assert aggregator("min")(sets).tolist() == [3.0]
    assert aggregator("any_pass")(sets).tolist() == [1.0]
    assert sets.passes.tolist() == [0, 0, 1]


@given(seed=seeds, k=st.integers(1, 4))
def test_maj_at_k_of_a_lower_is_better_metric_counts_silence_as_the_worst(seed, k):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(k, 6))
    codes = rng.integers(-1, 2, n).tolist()
    worth = rng.random(3).tolist()
    values = [worth[c] for c in codes]
    answers = [None if c < 0 else str(c) for c in codes]
    sets = CandidateSets.from_lists([values], answers=[answers], higher_is_better=False)
    drawn = []
    for pick in combinations(range(n), k):
        voters = [(answers[i], values[i]) for i in pick]
        drawn.append(vote(voters, "shared") if any(a for a, _ in voters) else max(values))
    assert_same(aggregator(f"maj@{k}")(sets), [np.mean(drawn)], "maj@k")


def test_recall_never_exceeds_one_and_weighted_votes_do_not_turn_on_rounding():
    sets = CandidateSets.from_lists([[1, 1, 1]], required=[["a"]])
    assert aggregator("recall")(sets).tolist() == [1.0]
    tied = CandidateSets.from_lists(
        [[0, 1, 0, 0]], answers=[["c", "b", "c", "c"]], selectors={"judge": [[0.2, 0.9, 0.5, 0.2]]}
    )
    assert aggregator("weighted_vote")(tied).tolist() == [0.0]


def test_a_function_of_one_set_is_an_aggregator():
    rule = aggregator(lambda one: None if len(one) < 2 else len(one.texts[0]))
    sets = CandidateSets.from_lists([[1, 0], [1]], texts=[["four", "x"], ["y"]])
    assert_same(rule(sets), [4.0, np.nan], "per set")


def test_the_shipped_laws_catch_a_broken_aggregator():
    class Sneaky(First):
        ordered = False

    with pytest.raises(AssertionError, match="order of candidates"):
        check_aggregator(Sneaky)


def test_a_set_is_found_by_a_place_from_numpy_too():
    sets = CandidateSets.from_lists([[1], [0, 1]])
    assert sets[np.int64(1)] == sets[1]
