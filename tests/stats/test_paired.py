from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kofn.errors import InputError, UnknownName
from kofn.stats import bootstrap_mean, compare, holm, mcnemar_p, paired, sign_flip_p, wilson
from kofn.stats.paired import _drawn, _expanded, _on_lattice, tail_bound


def flip_all(differences):
    signs = np.array(list(product([-1, 1], repeat=len(differences))))
    return np.mean(np.abs(signs @ differences) >= abs(differences.sum()) * (1 - 1e-9) - 1e-15)


@pytest.mark.parametrize(
    "element",
    [st.sampled_from([-1.0, 0.0, 1.0]), st.integers(-8, 8).map(lambda k: k / 8), st.floats(-1, 1)],
)
@given(data=st.data())
@settings(max_examples=30)
def test_sign_flip_p_equals_enumeration(element, data):
    d = np.array(data.draw(st.lists(element, min_size=1, max_size=10)))
    if np.abs(d[d != 0]).min(initial=1) < 1e-6:
        return
    assert sign_flip_p(d) == pytest.approx(flip_all(d), abs=1e-10)


def test_sign_flip_p_on_a_lattice_equals_enumeration_of_many():
    rng = np.random.default_rng(0)
    d = rng.integers(-4, 6, size=18) / 8
    assert np.count_nonzero(d) > 14
    sizes = np.abs(d[d != 0])
    assert _on_lattice(sizes, abs(d.sum()), sizes.max()) == pytest.approx(flip_all(d[d != 0]), abs=1e-10)


def test_three_ways_to_a_sign_flip_p_agree():
    d = np.random.default_rng(1).integers(-8, 9, size=3000) / 8 + 0.0
    sizes, observed = np.abs(d[d != 0]), 45.0
    exact = _on_lattice(sizes, observed, sizes.max())
    # the expansion knows no steps: half of one lies between it and the lattice
    assert _expanded(sizes, observed) == pytest.approx(exact, abs=2e-3)
    assert _drawn(sizes, observed, 4000, 0) == pytest.approx(exact, abs=0.035)


def test_sign_flip_p_of_many_continuous_differences():
    rng = np.random.default_rng(2)
    for n in (200, 5000):
        d = rng.normal(0.1, 1, size=n)
        t = stats.ttest_1samp(d, 0).pvalue
        assert sign_flip_p(d) == pytest.approx(t, abs=0.02)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_matches_the_exact_binomial_test(a, b):
    expected = stats.binomtest(a, a + b).pvalue if a + b else 1.0
    assert mcnemar_p(a, b) == pytest.approx(expected, rel=1e-9)


def test_holm_by_hand():
    assert holm([0.01, 0.02, 0.03, 0.005]) == pytest.approx([0.03, 0.04, 0.04, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(InputError):
        holm([1.5])


def test_compare_aligns_by_id_and_says_what_is_unmatched():
    c = compare(["a", "b", "c", "d"], [0, 1, 0, None], ["d", "c", "b", "e"], [1, 1, 1, 1])
    assert (c.n, c.n_missing, c.only_a, c.only_b) == (2, 1, ("a",), ("e",))
    assert (c.a, c.b, c.difference) == (0.5, 1.0, 0.5)
    assert (c.wins, c.ties, c.losses) == (1, 1, 0)
    assert c.mcnemar_p == c.p == 1.0


def test_compare_is_the_paired_bootstrap_of_differences():
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(300)]
    a = rng.binomial(8, 0.5, size=300) / 8
    b = np.clip(a + rng.integers(-1, 3, size=300) / 8, 0, 1)
    c = compare(ids, a, ids, b)
    assert (c.low, c.high) == bootstrap_mean(b - a)[:2]
    assert c.mcnemar_p is None
    assert c.p < 1e-6
    back = compare(ids, b, ids, a)
    assert (-back.high, -back.low, back.p) == pytest.approx((c.low, c.high, c.p))
    clustered = compare(ids, a, ids, b, clusters=np.arange(300) // 3)
    assert clustered.n == 300
    assert clustered.difference == c.difference


def test_compare_of_agreeing_rates_leaves_what_wilson_leaves():
    ids = ["x", "y", "z"]
    c = compare(ids, [1, 0, 1], ids, [1, 0, 1])
    unit = wilson(0, 3).high
    assert (c.low, c.high, c.method, c.p) == (-unit, unit, "wilson", 1.0)
    assert compare(ids, [0, 0, 0], ids, [1, 1, 1]).high == 1.0
    same = compare(ids, [0.3, 0.2, 0.1], ids, [0.3, 0.2, 0.1])
    assert (same.low, same.high, same.method) == (0.0, 0.0, "degenerate")


def test_nothing_shared_is_no_comparison():
    c = compare(["a"], [1], ["b"], [1])
    assert (c.n, c.difference, c.p, c.low, c.method) == (0, None, None, None, "none")


def test_duplicates_and_mismatches_are_refused():
    with pytest.raises(InputError, match="case 'x' occurs more than once in b"):
        compare(["x"], [1], ["x", "y", "x"], [1, 0, 1])
    with pytest.raises(InputError, match="2 ids but 1 values"):
        compare(["x", "y"], [1], ["x"], [1])
    with pytest.raises(UnknownName):
        compare(["x"], [1], ["x"], [1], interval="wilson")


@pytest.mark.parametrize("n", [17, 40, 3000])
def test_drawn_p_knows_no_order(n):
    rng = np.random.default_rng(n)
    d = rng.standard_cauchy(n) + 0.2
    assert len({sign_flip_p(rng.permutation(d)) for _ in range(5)}) == 1


def test_drawn_p_with_the_small_ones_expanded_equals_drawing_all():
    rng = np.random.default_rng(4)
    sizes = np.abs(rng.standard_cauchy(4000))
    observed = 1.2 * float(np.sqrt(sizes @ sizes))
    signs = rng.integers(0, 2, size=(10_000, sizes.size), dtype=np.int8) * 2.0 - 1.0
    plain = np.mean(np.abs(signs @ sizes) >= observed)
    assert _drawn(sizes, observed, 10_000, 0) == pytest.approx(plain, abs=5 * np.sqrt(2 * plain / 10_000))


def test_of_many_heavy_tailed_differences_only_the_large_ones_are_drawn(monkeypatch):
    expanded, upper_tail = set(), paired._upper_tail
    monkeypatch.setattr(paired, "_upper_tail", lambda rest, at: expanded.add(rest.size) or upper_tail(rest, at))
    d = np.random.default_rng(0).standard_cauchy(200_000)
    assert 0 < sign_flip_p(d) <= 1
    assert expanded == {200_000 - paired.HEAVIEST}  # the signs of all others are never drawn


@pytest.mark.parametrize("n_resamples", [0, -1, 2.5, True, "many"])
def test_bad_numbers_of_resamples_are_refused(n_resamples):
    with pytest.raises(InputError, match="n_resamples must be a whole number"):
        sign_flip_p(np.array([1.0, 2.0]), n_resamples=n_resamples)
    with pytest.raises(InputError, match="n_resamples must be a whole number"):
        compare(["x"], [1], ["x"], [1], n_resamples=n_resamples)


@given(st.lists(st.floats(-1, 1).filter(lambda x: abs(x) > 1e-3), min_size=1, max_size=10))
def test_the_bound_on_a_p_value_is_never_below_the_exact_one(differences):
    d = np.array(differences)
    assert tail_bound(np.abs(d), abs(float(d.sum()))) >= sign_flip_p(d) * (1 - 1e-9)


def test_a_p_that_draws_cannot_tell_from_zero_is_bounded_and_one_they_can_tell_is_not():
    rng = np.random.default_rng(1)
    heavy = np.concatenate([rng.uniform(0.5, 1, 40), [30.0, 30.5, 31.0]])  # too uneven for the expansion
    assert _drawn(np.sort(heavy), heavy.sum(), 10_000, 0) == pytest.approx(1 / 10_001, rel=1e-6)
    assert sign_flip_p(heavy) <= 1 / 10_001
    mixed = heavy * np.where(np.arange(heavy.size) % 2, 1, -1)
    assert sign_flip_p(mixed) == pytest.approx(_drawn(np.sort(heavy), abs(mixed.sum()), 10_000, 0))


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=9),
)
def test_a_case_of_whole_weight_w_moves_the_means_as_w_cases_would(rows):
    a, b, w = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    ids = [str(i) for i in range(len(rows))]
    found = compare(ids, a, ids, b, weights=w)
    times = w.astype(int) if w.any() else np.ones(len(rows), dtype=int)
    assert found.a == pytest.approx(np.repeat(a, times).mean())
    assert found.difference == pytest.approx(np.repeat(b - a, times).mean())
    assert found.p == pytest.approx(flip_all((b - a) * times))
    assert (found.wins, found.losses) == (int((b > a).sum()), int((b < a).sum()))
    assert found.mcnemar_p is None or not w.any()


def test_equal_weights_change_nothing():
    rng = np.random.default_rng(3)
    a, b = rng.random(50), rng.random(50)
    ids = [str(i) for i in range(50)]
    plain, weighted = compare(ids, a, ids, b), compare(ids, a, ids, b, weights=np.full(50, 2.0))
    for name in ("a", "b", "difference", "low", "high", "p"):
        assert getattr(weighted, name) == pytest.approx(getattr(plain, name), rel=1e-3), name
