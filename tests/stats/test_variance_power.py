from __future__ import annotations

import math

import numpy as np
import pytest

from kofn.errors import InputError
from kofn.stats import (
    cases_for_width,
    cases_needed,
    clustered_se,
    detectable_difference,
    variance_shares,
    what_buys,
)

# passes out of 8 of a hundred problems, those not all passed first
QWEN = [0, 3, 4, 2, 6, 1, 4, 3, 0, 7, 0, 0, 6, 4] + [8] * 86


def rows(passes, repeats):
    values = [float(i < c) for c in passes for i in range(repeats)]
    return values, np.repeat(np.arange(len(passes)), repeats)


def check_qwen(passes, expected):
    values, cases = rows(passes, 8)
    v = variance_shares(values, cases)
    assert v.mean == pytest.approx(expected["mean"], abs=1e-12)
    assert clustered_se(values, cases, "CR0") == pytest.approx(expected["CR0"], abs=1e-12)
    assert clustered_se(values, cases) == pytest.approx(expected["C_over_Cminus1"], abs=1e-12)
    for name in ("within", "between", "icc", "design_effect"):
        assert getattr(v, name) == pytest.approx(expected[name], abs=1e-12)


def test_variance_split_matches_the_worked_example():
    expected = {
        "mean": 0.91,
        "CR0": 0.024879710609249456,
        "C_over_Cminus1": 0.025005049995001492,
        "within": 0.022857142857142857,
        "between": 0.059668109668109655,
        "icc": 0.7230285014862737,
        "design_effect": 6.099838433171756,
    }
    check_qwen(QWEN, expected)


def test_variance_split_matches_the_oracle(oracle):
    entry = oracle("clustered_se.qwen_math100")
    check_qwen(entry["inputs"]["score_matrix_rows_sum"], entry["expected"])


def test_expected_standard_error_is_the_clustered_one_on_balanced_data():
    values, cases = rows(QWEN, 8)
    v = variance_shares(values, cases)
    assert what_buys(v, cases=100, repeats=8) == pytest.approx(clustered_se(values, cases))
    assert what_buys(v, cases=400, repeats=8) == pytest.approx(clustered_se(values, cases) / 2)


def test_unbalanced_components_are_unbiased():
    rng = np.random.default_rng(0)
    cases = np.repeat(np.arange(40), rng.integers(1, 9, size=40))
    found = []
    for _ in range(600):
        x = rng.normal(0, 1.0, size=40)[cases] + rng.normal(0, 2.0, size=cases.size)
        v = variance_shares(x, cases)
        found.append((v.between, v.within))
    assert np.mean(found, axis=0) == pytest.approx((1.0, 4.0), rel=0.06)


def test_three_levels_are_told_apart_on_unbalanced_data():
    rng = np.random.default_rng(1)
    candidates_of = np.repeat(np.arange(60), rng.integers(2, 6, size=60))
    judged = np.repeat(np.arange(candidates_of.size), rng.integers(1, 5, size=candidates_of.size))
    cases = candidates_of[judged]
    found = []
    for _ in range(300):
        x = rng.normal(0, 2.0, 60)[cases] + rng.normal(0, 1.0, candidates_of.size)[judged]
        x += rng.normal(0, 0.5, judged.size)
        v = variance_shares(x, cases, judged)
        found.append((v.between, v.within, v.judge))
    assert np.mean(found, axis=0) == pytest.approx((4.0, 1.0, 0.25), rel=0.06)
    assert sum(v.shares.values()) == pytest.approx(1)
    assert what_buys(v, cases=10, repeats=4, judgings=3) < what_buys(v, cases=10, repeats=4)


def test_three_levels_with_one_judging_each_cannot_tell_judge_from_candidate():
    v = variance_shares([1, 0, 1, 0], ["a", "a", "b", "b"], [0, 1, 0, 1])
    assert math.isnan(v.judge)
    assert math.isnan(v.shares["between"])


def test_negative_components_are_clipped_and_named():
    v = variance_shares([1, 0, 0, 1, 1, 0], [0, 0, 1, 1, 2, 2])
    assert (v.between, v.clipped) == (0.0, ("between",))
    assert v.icc == 0.0


def test_what_cannot_be_told_is_nan():
    assert math.isnan(variance_shares([1, 0], ["a", "b"]).within)
    assert math.isnan(variance_shares([1, 0], ["a", "a"]).between)
    assert math.isnan(variance_shares([1, 1, 1, 1], [0, 0, 1, 1]).icc)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="leave ungraded rows out"):
        variance_shares([1, float("nan")], [0, 1])
    with pytest.raises(InputError, match="at least 1"):
        what_buys(variance_shares([1, 0, 0, 1], [0, 0, 1, 1]), cases=0)


MILLER = [
    ({"between": 1 / 9}, 968.9974980677886),
    ({"between": 1 / 9, "within_a": 1 / 6, "within_b": 1 / 6}, 3875.9899922711543),
    ({"between": 1 / 9, "within_a": 1 / 6, "within_b": 1 / 6, "repeats": 10}, 1259.6967474881253),
]


@pytest.mark.parametrize(("options", "expected"), MILLER)
def test_cases_needed_match_millers_formula(options, expected):
    assert cases_needed(0.03, **options) == pytest.approx(expected, abs=1e-6)
    assert detectable_difference(expected, **options) == pytest.approx(0.03)


def test_cases_needed_match_the_oracle(oracle):
    entry = oracle("power.miller")
    for inputs, expected in zip(entry["inputs"], entry["expected"], strict=True):
        found = cases_needed(
            inputs["delta"],
            between=inputs["omega2"],
            within_a=inputs["sA2"],
            within_b=inputs["sB2"],
            repeats=inputs["K"],
        )
        assert found == pytest.approx(expected, abs=entry["tol"])


def test_width_of_the_interval_that_was_asked_for():
    n = cases_for_width(0.1, between=0.2, within=0.2, repeats=4)
    assert 2 * 1.959964 * math.sqrt((0.2 + 0.05) / n) == pytest.approx(0.1, rel=1e-6)


def test_impossible_plans_are_refused():
    with pytest.raises(InputError, match="difference of 0"):
        cases_needed(0, between=1)
    with pytest.raises(InputError, match="power"):
        cases_needed(0.1, between=1, power=80)
    with pytest.raises(InputError, match="repeats"):
        cases_needed(0.1, between=1, repeats=0)
    with pytest.raises(InputError, match="positive"):
        cases_for_width(0, between=1)
    with pytest.raises(InputError, match="positive"):
        detectable_difference(0, between=1)
