"""Judges against people: published numbers, laws, and the designs by which labels are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.errors import InputError, UnknownName
from kofn.stats import (
    Confusion,
    any_of_candidates,
    corrected_rate,
    corrected_with_known_rates,
    estimate,
    judge_rates,
    known_rates,
    labels_to_halve,
    lang_reiczigel,
    ppi_mean,
    rogan_gladen,
    true_prevalence,
    wilson,
)

METHODS = ["auto", "bootstrap", "lang_reiczigel"]
HUMAN = np.repeat([1.0, 0.0], [50, 40])
JUDGE = np.concatenate([np.repeat([1.0, 0.0], [44, 6]), np.repeat([0.0, 1.0], [32, 8])])
JUDGED = np.repeat([1.0, 0.0], [130, 70])


def drawn(seed, n, rate=0.6, s=0.85, t=0.8):
    rng = np.random.default_rng(seed)
    human = (rng.random(n) < rate).astype(float)
    judge = np.where(human == 1, rng.random(n) < s, rng.random(n) >= t).astype(float)
    return human, judge


# published numbers


def test_lang_and_reiczigel_give_their_five_published_intervals(oracle):
    entry = oracle("rogan_gladen.lang_reiczigel")
    for given_, want in zip(entry["inputs"], entry["expected"], strict=True):
        i = given_
        found = lang_reiczigel(i["AP"], i["nP"], i["Se"], i["nSe"], i["Sp"], i["nSp"], level=i["level"])
        assert [found.low, found.high] == pytest.approx(want["ci"], abs=1e-9)
        assert found.unclipped == pytest.approx(want["ci_unclipped"], abs=1e-9)
        assert [found.low, found.high] == pytest.approx(want["published_ci"], abs=entry["tol"])
        assert rogan_gladen(i["AP"], i["Se"], i["Sp"]).point == pytest.approx(want["point_RG"], abs=1e-12)


def test_known_rates_map_the_interval_of_the_judged_rate(oracle):
    entry = oracle("rogan_gladen.known_se_sp")
    i, want = entry["inputs"], entry["expected"]
    for interval in ("wilson", "clopper_pearson"):
        point, ends = known_rates(i["x"], i["n"], i["se"], i["sp"], interval=interval)
        assert point.point == pytest.approx(want["point"], abs=1e-12)
        assert ends[:2] == pytest.approx(want[f"{interval}_here"], abs=1e-9)
        assert ends[:2] == pytest.approx(want["published"][interval], abs=entry["tol"])


def test_bayesian_prevalence_by_quadrature(oracle):
    entry = oracle("true_prevalence.bayes")
    for i, want in zip(entry["inputs"], entry["expected"], strict=True):
        found = true_prevalence(i["x"], i["n"], tuple(i["SE"]), tuple(i["SP"]))
        exact = want["quadrature_here"]
        assert found.mean == pytest.approx(exact["mean"], abs=1e-3)
        assert found.sd == pytest.approx(exact["sd"], abs=1e-3)
        assert found.median == pytest.approx(exact["median"], abs=2e-3)
        assert [found.low, found.high] == pytest.approx(exact["ci95"], abs=2e-3)
        assert found.mean == pytest.approx(want["published"]["mean"], abs=entry["tol"])


def test_bayesian_prevalence_of_a_perfect_judge_is_the_beta_posterior():
    special = pytest.importorskip("scipy.special", reason="scipy is not installed")
    found = true_prevalence(30, 100, (1, 1), (1, 1))
    assert found.low == pytest.approx(special.betaincinv(31, 71, 0.025), abs=1e-3)
    assert found.mean == pytest.approx(31 / 102, abs=1e-6)


@pytest.mark.parametrize(("lam", "key"), [(0.0, "lam=0"), (1.0, "lam=1"), (None, "lam=None")])
def test_ppi_mean(oracle, lam, key):
    entry = oracle("ppi.mean_tiny")
    i, want = entry["inputs"], entry["expected"][key]
    found = ppi_mean(i["Y"], i["Yhat"], i["Yhat_unlabeled"], lam=lam, level=1 - i["alpha"])
    assert found.point == pytest.approx(want["point"], abs=entry["tol"])
    assert [found.low, found.high] == pytest.approx(want["ci"], abs=entry["tol"])


def test_rates_of_the_documented_example():
    found = rogan_gladen(0.74, 0.9, 460 / 600)
    assert found.point == pytest.approx(0.76)
    assert not found.clipped


# the rates of a judge


def test_plain_rates_have_wilsons_interval_and_kappa_that_of_its_formula():
    found = judge_rates(HUMAN, JUDGE)
    c = found.confusion
    assert (c.tp, c.fn, c.tn, c.fp) == (44, 6, 32, 8)
    assert (found.sensitivity.low, found.sensitivity.high) == wilson(44, 50)[:2]
    assert (found.specificity.low, found.specificity.high) == wilson(32, 40)[:2]
    assert (found.agreement.low, found.agreement.high) == wilson(76, 90)[:2]
    chance = (50 * 52 + 40 * 38) / 90**2
    assert found.kappa.point == pytest.approx((76 / 90 - chance) / (1 - chance))
    assert found.kappa.low < found.kappa.point < found.kappa.high


def test_kappa_equals_sklearns():
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    human, judge = drawn(3, 80)
    assert Confusion.of(human, judge).kappa == pytest.approx(metrics.cohen_kappa_score(human, judge))


def test_labels_of_one_cluster_do_not_narrow_the_interval():
    plain = judge_rates(HUMAN, JUDGE)
    fourfold = judge_rates(np.repeat(HUMAN, 4), np.repeat(JUDGE, 4), clusters=np.repeat(np.arange(90), 4))
    assert fourfold.sensitivity.point == plain.sensitivity.point
    width, wide = (r.kappa.high - r.kappa.low for r in (plain, fourfold))
    assert wide == pytest.approx(width, rel=0.1)
    assert fourfold.sensitivity.high - fourfold.sensitivity.low > 0.8 * (plain.sensitivity.high - plain.sensitivity.low)


def test_a_class_without_labels_has_no_rate():
    found = judge_rates([1, 1], [1, 0])
    assert found.specificity.point is None
    assert found.kappa.point == 0.0
    assert judge_rates([1, 1], [1, 1]).kappa.point is None
    assert judge_rates([], []).agreement.point is None


def test_weights_undo_drawing_by_verdict():
    human, judge = drawn(5, 40_000)
    passed, failed = np.flatnonzero(judge == 1)[:4000], np.flatnonzero(judge == 0)[:400]
    rows = np.concatenate([passed, failed])
    weights = np.where(judge[rows] == 1, (judge == 1).sum() / 4000, (judge == 0).sum() / 400)
    naive, weighted = judge_rates(human[rows], judge[rows]), judge_rates(human[rows], judge[rows], weights=weights)
    assert abs(naive.sensitivity.point - 0.85) > 0.08
    assert weighted.sensitivity.point == pytest.approx(0.85, abs=0.03)
    assert weighted.specificity.point == pytest.approx(0.8, abs=0.03)


# the corrected rate


@pytest.mark.parametrize("method", METHODS)
def test_labels_of_other_cases_give_rogan_gladen(method):
    found = corrected_rate(HUMAN, JUDGE, JUDGED, method=method)
    assert found.design == "separate"
    assert found.unclipped == pytest.approx((0.65 + 0.8 - 1) / (0.88 + 0.8 - 1))
    assert 0 <= found.low < found.point < found.high <= 1


def test_the_same_seed_gives_the_same_interval_and_another_nearly_so():
    one, same, other = (corrected_rate(HUMAN, JUDGE, JUDGED, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert other.low == pytest.approx(one.low, abs=0.02)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clustered", [False, True])
def test_with_everything_labelled_it_is_the_rate_of_people_with_its_interval(method, clustered):
    human, judge = drawn(1, 120)
    clusters = [f"c{i // 4}" for i in range(120)] if clustered else None
    found = corrected_rate(
        human, judge, judge, labelled_at=np.arange(120), clusters=clusters, judged_clusters=clusters, method=method
    )
    want = estimate(human, clusters=clusters)
    assert found.design == "all labelled"
    assert found.point == pytest.approx(human.mean())
    assert (found.low, found.high) == pytest.approx((want.low, want.high))


@given(seed=st.integers(0, 1000), n=st.integers(20, 60))
def test_labels_inside_are_post_stratified_however_many_of_each_verdict_were_drawn(seed, n):
    human, judge = drawn(seed, 200)
    at = np.random.default_rng(seed).permutation(200)[:n]
    if len(set(judge[at])) < 2:
        return
    found = corrected_rate(human[at], judge[at], judge, labelled_at=at, n_resamples=100)
    q = judge.mean()
    p1, p0 = (human[at][judge[at] == v].mean() for v in (1, 0))
    assert found.design == "inside"
    assert found.point == pytest.approx(q * p1 + (1 - q) * p0)
    if found.sensitivity + found.specificity > 1:  # the same as Rogan-Gladen with weights N_v/n_v
        assert rogan_gladen(q, found.sensitivity, found.specificity).unclipped == pytest.approx(found.point)


@pytest.mark.parametrize("method", METHODS)
def test_overlap_with_other_labels_is_no_error_and_not_counted_twice(method):
    human, judge = drawn(7, 400)
    at = np.where(np.arange(100) < 50, np.arange(100), -1)
    apart = corrected_rate(human[:100], judge[:100], judge[:300], method=method)
    shared = corrected_rate(human[:100], judge[:100], judge[:300], labelled_at=at, method=method)
    assert shared.design == "overlapping"
    assert shared.point == apart.point
    assert shared.high - shared.low < 1.05 * (apart.high - apart.low)


@pytest.mark.parametrize("method", METHODS)
def test_copies_of_a_case_do_not_narrow_the_interval(method):
    plain = corrected_rate(HUMAN, JUDGE, JUDGED, method=method)
    copies = corrected_rate(
        np.repeat(HUMAN, 4),
        np.repeat(JUDGE, 4),
        np.repeat(JUDGED, 4),
        clusters=[f"l{i // 4}" for i in range(360)],
        judged_clusters=[f"j{i // 4}" for i in range(800)],
        method=method,
    )
    assert copies.point == plain.point
    assert copies.high - copies.low == pytest.approx(plain.high - plain.low, rel=0.08)


@pytest.mark.parametrize("method", METHODS)
def test_weighted_labels_correct_with_weighted_rates(method):
    weights = np.where(JUDGE == 1, 3.0, 1.0)
    found = corrected_rate(HUMAN, JUDGE, JUDGED, weights=weights, method=method)
    c = Confusion.of(HUMAN, JUDGE, weights)
    assert found.point == rogan_gladen(0.65, c.sensitivity, c.specificity).point
    assert found.low < found.point < found.high


@pytest.mark.parametrize("method", METHODS)
def test_weights_of_1_change_nothing_and_a_larger_pool_makes_labels_drawn_by_verdict_tell_more(method):
    plain = corrected_rate(HUMAN, JUDGE, JUDGED, method=method)
    ones = corrected_rate(HUMAN, JUDGE, JUDGED, weights=np.ones(90), method=method)
    many = corrected_rate(HUMAN, JUDGE, JUDGED, weights=np.full(90, 50.0), method=method)
    assert ones.point == many.point == pytest.approx(plain.point)
    assert ones.high - ones.low == pytest.approx(plain.high - plain.low, rel=0.05)
    assert many.high - many.low < ones.high - ones.low


def test_a_rate_outside_its_bounds_is_clipped_and_marked():
    found = corrected_rate(HUMAN, JUDGE, np.repeat([1.0, 0.0], [15, 85]))
    assert found.clipped
    assert found.fits
    assert found.point == 0.0 == found.low
    assert found.unclipped < 0 < found.high


@pytest.mark.parametrize("method", METHODS)
def test_labels_that_cannot_be_of_the_same_judge_do_not_fit(method):
    found = corrected_rate(HUMAN, JUDGE, np.repeat([1.0, 0.0], [20, 980]), method=method)
    assert not found.fits
    assert (found.low, found.point, found.high) == (0, 0, 0)


@pytest.mark.parametrize("method", METHODS)
def test_a_judge_without_information_is_refused(method):
    with pytest.raises(InputError, match="carries no information"):
        corrected_rate([1, 1, 0, 0], [1, 0, 1, 0], [1, 0], method=method)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 1], [1, 0], [1, 0]), "no label that people fail"),
        (([0, 0], [1, 0], [1, 0]), "no label that people pass"),
        (([1, 0], [1], [1, 0]), "2 human verdicts but 1"),
        (([1, 0.5], [1, 0], [1, 0]), "human verdicts must be 0 or 1"),
        (([], [], [1, 0]), "one of them is empty"),
    ],
)
def test_labels_that_cannot_correct_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        corrected_rate(*arguments)


def test_wrong_options_are_refused():
    with pytest.raises(UnknownName, match="did you mean bootstrap"):
        corrected_rate(HUMAN, JUDGE, JUDGED, method="bootstrp")
    with pytest.raises(InputError, match="positive number a label"):
        corrected_rate(HUMAN, JUDGE, JUDGED, weights=np.zeros(90))
    with pytest.raises(InputError, match="at most once"):
        corrected_rate([1, 0], [1, 0], [1, 0], labelled_at=[0, 0])
    with pytest.raises(InputError, match="must be the one among the judged"):
        corrected_rate([1, 0], [0, 0], [1, 0, 1], labelled_at=[0, 1])
    with pytest.raises(InputError, match="one a row"):
        corrected_rate(HUMAN, JUDGE, JUDGED, clusters=["a"])
    with pytest.raises(InputError, match="none of the cases the judge fails is labelled"):
        corrected_rate([1, 0], [1, 1], [1, 1, 0], labelled_at=[0, 1])
    with pytest.raises(InputError, match="range of sensitivity"):
        true_prevalence(1, 2, (0.9, 0.5), (0.5, 1))
    with pytest.raises(UnknownName, match="interval of a rate"):
        known_rates(1, 2, 0.9, 0.9, interval="wlison")


def test_known_rates_of_clusters_are_wider():
    judged = np.repeat(np.repeat([1.0, 0.0], [20, 100]), 3)
    plain = corrected_with_known_rates(judged, 0.9, 0.99)
    clustered = corrected_with_known_rates(judged, 0.9, 0.99, judged_clusters=[i // 3 for i in range(360)])
    single = corrected_with_known_rates(judged[::3], 0.9, 0.99)
    assert clustered.high - clustered.low == pytest.approx(single.high - single.low, rel=0.02)
    assert plain.high - plain.low < clustered.high - clustered.low


# how many labels


def test_the_labels_asked_for_do_halve_the_interval():
    human, judge = drawn(11, 60)
    judged = drawn(12, 20_000)[1]
    first = corrected_rate(human, judge, judged)
    needed = labels_to_halve(first).more
    times = round((60 + needed) / 60)
    second = corrected_rate(np.tile(human, times), np.tile(judge, times), judged)
    assert (second.high - second.low) / (first.high - first.low) == pytest.approx(0.5, abs=0.08)


def test_labels_alone_cannot_halve_what_few_judged_cases_make_wide():
    found = labels_to_halve(corrected_rate(HUMAN, JUDGE, JUDGED[::10]))
    assert found.more is None
    assert "judge more" in found.reason
    known = labels_to_halve(corrected_with_known_rates(JUDGED, 0.9, 0.9))
    assert known.more is None


# candidates to sets


def test_independent_candidates_give_the_rate_of_sets():
    rng = np.random.default_rng(0)
    human = (rng.random((400, 3)) < [0.2, 0.3, 0.4]).astype(float).ravel()
    judge = np.where(human == 1, rng.random(1200) < 0.9, rng.random(1200) >= 0.85).astype(float)
    cases, places = np.repeat(np.arange(400), 3).tolist(), [0, 1, 2] * 400
    found = any_of_candidates(human[:600], judge[:600], judge[600:], cases[600:], places[600:], clusters=cases[:600])
    assert found.low < 1 - 0.8 * 0.7 * 0.6 < found.high
    assert found.point == pytest.approx(1 - np.prod(1 - np.array(found.positions)))
    assert "upper bound" in found.assumption


def test_candidates_that_stand_and_fall_together_give_too_high_a_rate_of_sets():
    human = np.repeat(np.tile([1.0, 0.0], 50), 3)
    cases = [i // 3 for i in range(300)]
    found = any_of_candidates(human, human, human, cases, [0, 1, 2] * 100)
    assert found.point == pytest.approx(0.875)  # the truth is 0.5


def test_sets_of_unequal_size_are_averaged_over_their_sizes():
    judged, cases, places = [1, 0, 1, 0], ["a", "b", "b", "c"], [0, 0, 4, 0]
    found = any_of_candidates([1, 0] * 20, [1, 0] * 20, judged, cases, places)
    first, second = found.positions
    assert (first, second) == (pytest.approx(1 / 3), 1.0)
    assert found.point == pytest.approx((2 * first + 1) / 3)


# prediction-powered means


def test_ppi_trusts_a_useless_judge_not_at_all_and_a_good_one_much():
    rng = np.random.default_rng(4)
    truth = rng.normal(size=5200)
    noise = rng.normal(size=5200)
    good = ppi_mean(truth[:200], truth[:200] + 0.1 * noise[:200], truth[200:] + 0.1 * noise[200:])
    useless = ppi_mean(truth[:200], noise[:200], noise[200:])
    assert good.lam > 0.9
    assert useless.lam < 0.2
    assert good.high - good.low < 0.4 * (useless.high - useless.low)


def test_ppi_by_cluster_does_not_believe_copies():
    rng = np.random.default_rng(4)
    truth = rng.random(60)
    judge, others = truth + rng.normal(size=60) / 4, rng.random(500)
    plain = ppi_mean(truth, judge, others)
    copies = ppi_mean(
        np.repeat(truth, 5), np.repeat(judge, 5), others, lam=plain.lam, clusters=np.repeat(np.arange(60), 5)
    )
    assert copies.point == pytest.approx(plain.point)
    assert copies.high - copies.low == pytest.approx(plain.high - plain.low, rel=0.05)


def test_ppi_counts_what_labelled_and_unlabelled_candidates_of_a_case_share():
    covered, rng, runs = 0, np.random.default_rng(7), 400
    for _ in range(runs):
        case = np.repeat(np.arange(60), 4)
        y = 0.9 * rng.normal(size=60)[case] + 0.45 * rng.normal(size=240)
        f = y + 0.3 * rng.normal(size=240)
        one = rng.permuted(np.tile([True, False, False, False], (60, 1)), axis=1).ravel()
        found = ppi_mean(y[one], f[one], f[~one], clusters=case[one], unlabelled_clusters=case[~one])
        covered += found.low <= 0 <= found.high
    assert 0.915 <= covered / runs <= 0.985


def test_ppi_weighs_labels_back_that_were_drawn_by_score():
    rng, found = np.random.default_rng(3), []
    for _ in range(300):
        y = rng.normal(3, 1, 1000)
        f = y + rng.normal(0.4, 0.6, 1000)
        chance = np.where(f > 4, 0.3, 0.05)
        drawn = rng.random(1000) < chance
        rows = np.arange(1000)
        weights = 1 / chance[drawn]
        at = ppi_mean(y[drawn], f[drawn], f, weights=weights, clusters=rows[drawn], unlabelled_clusters=rows)
        found.append((at.point - y.mean(), at.low <= 3 <= at.high))
    bias, covered = np.mean(found, axis=0)
    assert abs(bias) < 0.02
    assert 0.91 <= covered <= 0.99


def test_ppi_refuses_what_it_cannot_use():
    with pytest.raises(InputError, match="two labels"):
        ppi_mean([1.0], [1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="lambda"):
        ppi_mean([1.0, 0.0], [1.0, 1.0], [1.0, 2.0], lam=2)
