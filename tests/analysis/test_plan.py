"""`kofn plan`: Miller's formula, variances of pilots, the cheapest mix, labels; plans keep what they promise."""

from __future__ import annotations

import json
import re
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.analysis.plan import (
    PlanQuestion,
    UnitPrices,
    Variances,
    alike_variances,
    make_plan,
    paired_variances,
    pilot_variances,
    plan_sentence,
    plan_with_labels,
    share_variances,
)
from kofn.cli.analysis_verbs import plan_command as command
from kofn.core.candidate_sets import CandidateSets
from kofn.errors import InputError, KofnError
from kofn.runs.load import load_graded
from kofn.stats.corrected_curve import Rates

ARITHMETIC = Path(__file__).parents[2] / "examples" / "arithmetic.jsonl"


def run(*arguments):
    done = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)
    if isinstance(done.exception, KofnError):
        raise done.exception
    return done


def plan_json(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_millers_sample_sizes(oracles):
    entry = oracles["power.miller"]
    for given_, want in zip(entry["inputs"], entry["expected"], strict=True):
        v = Variances(between=given_["omega2"], within=given_["sA2"] + given_["sB2"])
        found = PlanQuestion(difference=given_["delta"]).cases(v, given_["K"])
        assert found == pytest.approx(want, abs=entry["tol"])
    last = entry["inputs"][2]
    mixes = plan_json("--difference", last["delta"], "--between", last["omega2"], "--within", last["sA2"])["mixes"]
    assert {m["repeats"]: m["exact"] for m in mixes}[10] == pytest.approx(entry["expected"][2], abs=entry["tol"])


def test_variances_of_a_real_pilot(oracles, sets_folder):
    want = oracles["clustered_se.qwen_math100"]["expected"]
    found = pilot_variances(load_graded(sets_folder / "qwen_math100x8.jsonl").metric().sets)
    assert (found.between, found.within) == pytest.approx((want["between"], want["within"]), abs=1e-12)
    now = PlanQuestion(width=0.05).pilot_precision(found)
    assert now == pytest.approx(2 * 1.959964 * want["C_over_Cminus1"], rel=1e-6)  # the clustered standard error


@given(between=st.floats(0.01, 0.25), within=st.floats(0.01, 0.25), case=st.floats(0.01, 10), one=st.floats(0.001, 1))
def test_no_number_of_repeats_is_cheaper_than_the_cheapest(between, within, case, one):
    prices, question = UnitPrices(case=case, candidate=one), PlanQuestion(width=0.02)
    v = Variances(between=between, within=within)
    best = make_plan(question, v, prices).cheapest
    assert best is not None
    exact = {k: question.cases(v, k) * (case + k * one) for k in range(1, 200)}
    assert exact[best.repeats] <= min(exact.values()) * (1 + 1e-3)  # rounding to whole cases decides between equals


def test_cases_that_cost_nothing_are_asked_once():
    found = make_plan(PlanQuestion(width=0.1), Variances(between=0.1, within=0.1), UnitPrices(candidate=0.01))
    assert found.cheapest.repeats == 1
    assert any("--cost-per-case" in str(note) for note in found.notes)


def test_more_repeats_never_need_more_cases():
    mixes = make_plan(PlanQuestion(width=0.05), Variances(between=0.05, within=0.2), UnitPrices()).mixes
    cases = [mix.cases for mix in mixes]
    assert cases == sorted(cases, reverse=True)
    assert all(mix.candidates == mix.cases * mix.repeats for mix in mixes)


def test_too_few_cases_cannot_be_made_up_by_repeats():
    v = Variances(between=0.1, within=0.1)
    found = make_plan(PlanQuestion(width=0.05), v, UnitPrices(), most_cases=100)
    assert found.mixes == ()
    assert plan_sentence(found) == "A 95% interval of width 0.05 is out of reach"
    assert any("would still take 615 cases" in str(note) for note in found.notes)
    some = make_plan(PlanQuestion(width=0.05), v, UnitPrices(), most_cases=900)
    assert some.mixes[0].repeats > 1


def simulated_width(mix, a, b, runs, seed=0):
    """The mean width of a normal interval over cases, from runs of the planned size."""
    rng = np.random.default_rng(seed)
    widths = []
    for _ in range(runs):
        means = rng.binomial(mix.repeats, rng.beta(a, b, mix.cases)) / mix.repeats
        widths.append(2 * 1.96 * means.std(ddof=1) / sqrt(mix.cases))
    return float(np.mean(widths))


def test_planned_sizes_have_the_width_that_was_asked_for():
    a, b = 0.8, 1.2
    p = a / (a + b)
    between = a * b / ((a + b) ** 2 * (a + b + 1))
    found = make_plan(PlanQuestion(width=0.08), Variances(between=between, within=p * (1 - p) - between), UnitPrices())
    for mix in found.mixes[:5]:
        assert simulated_width(mix, a, b, 40) == pytest.approx(0.08, rel=0.02)


def power_of(mix, p, q, runs):
    """How often a paired z-test finds the difference of two systems on cases of unequal difficulty."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(runs):
        hard = rng.uniform(-0.25, 0.25, mix.cases)
        a = rng.binomial(mix.repeats, p + hard) / mix.repeats
        b = rng.binomial(mix.repeats, q + hard) / mix.repeats
        d = a - b
        found += abs(d.mean()) > 1.96 * d.std(ddof=1) / sqrt(mix.cases)
    return found / runs


def within(p):
    return p - p**2 - 0.5**2 / 12


def test_planned_sizes_find_the_difference_as_often_as_was_asked_for():
    v = Variances(between=0.0, within=within(0.5) + within(0.42))
    mix = next(m for m in make_plan(PlanQuestion(difference=0.08), v, UnitPrices(), systems=2).mixes if m.repeats == 4)
    assert 0.74 <= power_of(mix, 0.5, 0.42, 600) <= 0.86


@pytest.mark.slow
def test_planned_sizes_find_the_difference_exactly_as_often():
    v = Variances(between=0.0, within=within(0.5) + within(0.42))
    for mix in make_plan(PlanQuestion(difference=0.08), v, UnitPrices(), systems=2).mixes[:4]:
        assert 0.78 <= power_of(mix, 0.5, 0.42, 6000) <= 0.82


def test_a_pair_of_pilots_gives_the_variance_of_their_difference():
    rng = np.random.default_rng(2)
    hard = rng.uniform(-0.2, 0.2, 4000)
    easier = rng.uniform(-0.1, 0.1, 4000)  # what differs between the two, case by case: variance 0.2^2/12
    a = (rng.random((4000, 4)) < (0.5 + hard)[:, None]).astype(float)
    b = (rng.random((4000, 2)) < (0.5 + hard + easier)[:, None]).astype(float)
    found = paired_variances(CandidateSets.from_lists(a.tolist()), CandidateSets.from_lists(b.tolist()))
    assert found.between == pytest.approx(0.04 / 12, abs=0.006)
    assert found.within == pytest.approx(2 * 0.25 - 2 * 0.16 / 12 - 0.04 / 12, abs=0.01)
    assert found.n_cases == 4000
    alike = alike_variances(pilot_variances(CandidateSets.from_lists(a.tolist())), 0.0)
    assert alike.between > 2 * found.between  # pairing is worth a lot where both find the same cases hard


def test_the_difference_of_two_pilots_has_the_sign_of_a_comparison():
    lists = [[[1, 0], [0, 0], [1, 1], [0, 1]] * 3, [[1, 1], [0, 1], [1, 1], [1, 1]] * 3]
    a, b = (kofn.score([{"id": str(i), "passes": p} for i, p in enumerate(one)]) for one in lists)
    difference = kofn.compare(a, b, aggregate="mean").differences[0].comparison.difference
    found = paired_variances(a.scored[0].sets, b.scored[0].sets)
    assert found.mean == pytest.approx(difference)
    assert difference > 0


def test_pilots_are_paired_by_case_and_not_by_place():
    a = CandidateSets.from_lists([[1, 0], [0, 0], [1, 1]], case_ids=["x", "y", "z"])
    b = CandidateSets.from_lists([[1, 1], [0, 1], [1, 1]], case_ids=["z", "x", "w"])
    found = paired_variances(a, b)
    assert found.n_cases == 2
    assert found.mean == 0.0
    assert found.between == 0.0  # nothing beyond what repeats do
    with pytest.raises(InputError, match="fewer than 2 graded cases"):
        paired_variances(a, CandidateSets.from_lists([[1]], case_ids=["v"]))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_pilot_in_which_all_are_alike_is_planned_with_caution(value):
    found = pilot_variances(CandidateSets.from_lists([[value, value]] * 20))
    assert found.between == pytest.approx((2 / 24) * (22 / 24))
    assert "the cautious end of what 20 cases can tell" in str(found.notes[0])
    assert make_plan(PlanQuestion(width=0.1), found, UnitPrices()).cheapest.repeats == 1


def test_a_pilot_of_one_candidate_a_case_says_that_repeats_are_not_known():
    found = pilot_variances(CandidateSets.from_lists([[1], [0], [1], [1]]))
    assert found.within is None
    assert "one candidate a case" in str(found.notes[0])
    assert [mix.repeats for mix in make_plan(PlanQuestion(width=0.1), found, UnitPrices()).mixes] == [1]


@pytest.mark.parametrize(("make", "said"), [
    (lambda: share_variances(0), "has no variance"),
    (lambda: share_variances(1), "has no variance"),
    (lambda: pilot_variances(CandidateSets.from_lists([[0.7, 0.7], [0.7, 0.7]])), "every value of the pilot is 0.7"),
    (lambda: pilot_variances(CandidateSets.from_lists([[1, 0]])), "one case"),
    (lambda: pilot_variances(CandidateSets.from_lists([[None]])), "nothing is graded"),
    (lambda: PlanQuestion(), "give one of --width, --difference"),
    (lambda: PlanQuestion(width=0.1, difference=0.1), "give one of --width, --difference"),
    (lambda: PlanQuestion(width=0), "expected a number above 0"),
    (lambda: PlanQuestion(difference=0.1, power=1), "power must lie strictly between"),
    (lambda: UnitPrices(case=-1), "expected 0 or more"),
    (lambda: make_plan(PlanQuestion(width=0.1), Variances(between=0, within=0), UnitPrices()), "both variances are 0"),
    (
        lambda: make_plan(PlanQuestion(width=1e-9), Variances(between=1, within=0), UnitPrices()),
        "cases would be needed",
    ),
    (lambda: alike_variances(Variances(between=1, within=0), 2), "from -1 to 1"),
])  # fmt: skip
def test_what_cannot_be_planned_is_one_line(make, said):
    with pytest.raises(InputError, match=said) as problem:
        make()
    assert "\n" not in str(problem.value)


# labels

VERDICTS = Variances(between=0.15, within=0.06, mean=0.6)
JUDGE = Rates(0.9, 0.8)


def corrected_spread(mix, runs):
    """The standard deviation of corrected rates over as many judged cases, and labels drawn by verdict, as planned."""
    rng = np.random.default_rng(4)
    (s, t), q = JUDGE, VERDICTS.mean
    truth = (q + t - 1) / (s + t - 1)
    p1, p0 = truth * s / q, truth * (1 - s) / (1 - q)
    half = mix.labels // 2
    seen = rng.normal(q, sqrt(VERDICTS.per_case(mix.repeats) / mix.cases), runs)
    found = seen * rng.binomial(half, p1, runs) / half
    found += (1 - seen) * rng.binomial(mix.labels - half, p0, runs) / (mix.labels - half)
    assert np.mean(found) == pytest.approx(truth, abs=0.01)
    return float(np.std(found))


def test_planned_labels_give_the_corrected_rate_its_width():
    prices = UnitPrices(candidate=0.01, case=0.1, label=0.5)
    found = plan_with_labels(PlanQuestion(width=0.1), VERDICTS, JUDGE, 100, prices)
    for mix in found.mixes[:3]:
        assert 2 * 1.96 * corrected_spread(mix, 20_000) == pytest.approx(0.1, rel=0.06)


def test_no_other_split_of_cases_and_labels_is_cheaper():
    prices = UnitPrices(candidate=0.01, case=0.1, label=0.5)
    (s, t), q = JUDGE, VERDICTS.mean
    pi = (q + t - 1) / (s + t - 1)
    p1, p0 = pi * s / q, pi * (1 - s) / (1 - q)
    b = 2 * (q**2 * p1 * (1 - p1) + (1 - q) ** 2 * p0 * (1 - p0))
    expected = (0.1 / (2 * 1.959964)) ** 2
    for mix in plan_with_labels(PlanQuestion(width=0.1), VERDICTS, JUDGE, 100, prices).mixes:
        a = VERDICTS.per_case(mix.repeats) * (p1 - p0) ** 2
        assert a / mix.cases + b / mix.labels <= expected * (1 + 1e-6)
        others = [
            n * (0.1 + mix.repeats * 0.01) + 0.5 * b / (expected - a / n) for n in range(int(a / expected) + 2, 9000)
        ]
        assert mix.dollars <= min(others) * 1.01


def test_so_many_cases_get_the_repeats_they_need_and_no_more():
    found = make_plan(PlanQuestion(width=0.05), Variances(between=0.0275, within=0.2), UnitPrices(), most_cases=172)
    assert [(mix.repeats, mix.cases) for mix in found.mixes] == [(414, 172)]
    assert (
        make_plan(PlanQuestion(width=0.05), Variances(between=0.0275, within=0.2), UnitPrices(), most_cases=169).mixes
        == ()
    )
    prices = UnitPrices(candidate=0.01, case=0.0001)
    cheap = make_plan(PlanQuestion(width=0.05), Variances(between=0.02, within=0.2), prices, most_cases=175).cheapest
    assert (cheap.repeats, cheap.cases) == (24, 175)


def test_a_price_of_cases_alone_chooses_nothing_in_dollars():
    found = make_plan(PlanQuestion(width=0.05), Variances(between=0.05, within=0.2), UnitPrices(case=1.0))
    assert all(mix.dollars is None for mix in found.mixes)
    assert any("--cost-per-candidate" in str(note) for note in found.notes)


def test_labels_without_a_price_are_refused_and_so_are_differences():
    with pytest.raises(InputError, match="--cost-per-label"):
        plan_with_labels(PlanQuestion(width=0.1), VERDICTS, JUDGE, 10, UnitPrices())
    with pytest.raises(InputError, match="width of the corrected rate"):
        plan_with_labels(PlanQuestion(difference=0.1), VERDICTS, JUDGE, 10, UnitPrices(label=1, candidate=1))
    with pytest.raises(InputError, match="carries no information"):
        plan_with_labels(PlanQuestion(width=0.1), VERDICTS, Rates(0.5, 0.4), 10, UnitPrices(label=1, candidate=1))


# the verb


def test_the_verb_prints_the_mixes_and_says_the_cheapest():
    out = run(ARITHMETIC, "--width", "0.05", "--cost-per-case", "0.002").output
    assert "value 0.487, variance between cases 0.05472, within 0.1967" in out
    assert "the pilot's 60 cases x 5 give a width of 0.155" in out
    assert re.search(r"^ +1  1,546 +1,546 ", out, re.MULTILINE)
    assert "◂ cheapest" in out
    assert "For a 95% interval of width 0.05 ask" in out


def test_json_holds_the_same():
    found = plan_json(ARITHMETIC, "--difference", "0.05", "--correlation", "0.5")
    assert found["systems"] == 2
    assert found["mixes"][0]["candidates"] == 2 * found["mixes"][0]["cases"]
    assert found["cheapest"] == next(m for m in found["mixes"] if m["cheapest"])
    assert found["answer"].startswith("For a difference of 0.05 found with power 0.8")
    assert found["mixes"][0]["cases"] < plan_json(ARITHMETIC, "--difference", "0.05")["mixes"][0]["cases"]


def test_against_another_pilot(tmp_path):
    rows = [json.loads(line) for line in ARITHMETIC.read_text().splitlines()]
    for row in rows:
        row["outputs"] = row["outputs"][1:] + row["outputs"][:1]
    rows[0]["outputs"] = [{"text": "Answer: 34"}] * 5
    other = lines(tmp_path / "other.jsonl", rows)
    found = plan_json(ARITHMETIC, "--difference", "0.05", "--against", other)
    assert found["variances"]["n_cases"] == 60
    assert found["variances"]["between"] < 0.05


def test_clusters_and_weights_of_a_pilot_are_not_passed_over_in_silence(tmp_path):
    rows = [{"id": f"q{i}", "outputs": ["a", "b"], "passes": [i % 2, i % 3 > 0], "cluster": i // 4, "weight": 1 + i % 2}
            for i in range(20)]  # fmt: skip
    found = plan_json(lines(tmp_path / "pilot.jsonl", rows), "--width", "0.1")
    notes = " ".join(found["notes"])
    assert len(found["coded_notes"]) == len(found["notes"])
    assert [one["values"]["about"] for one in found["coded_notes"] if one["code"] == "pilot-units"][:1] == ["clusters"]
    assert "come in clusters" in notes
    assert "have weights" in notes


def test_labels_from_a_file(tmp_path):
    rows = [{"id": f"q{i}", "outputs": ["a", "b"], "passes": [i % 3 > 0, i % 2 > 0]} for i in range(60)]
    pilot = lines(tmp_path / "pilot.jsonl", rows)
    labels = [{"id": f"l{i}", "human": int(i % 2 == 0), "judge": int((i % 2 == 0) ^ (i % 7 == 0))} for i in range(80)]
    path = lines(tmp_path / "labels.jsonl", labels)
    found = plan_json(
        pilot, "--width", "0.1", "--labels", path, "--cost-per-label", "0.3", "--cost-per-candidate", "0.01"
    )
    assert found["cheapest"]["labels"] > 0
    assert "and label" in found["answer"]


@pytest.mark.parametrize("arguments", [
    ["--width", "0.1"],
    [ARITHMETIC, "--p", "0.5", "--width", "0.1"],
    ["--p", "0.5", "--width", "0.1", "--within", "0.1"],
    ["--p", "0.5", "--difference", "0.1", "--against", ARITHMETIC],
    ["--p", "0.5", "--width", "0.1", "--labels", "x.csv"],
    [ARITHMETIC, "--width", "0.1", "--against", ARITHMETIC],
    [ARITHMETIC, "--width", "0.1", "--correlation", "0.5"],
])  # fmt: skip
def test_options_that_do_not_go_together_are_a_usage_error(arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert "Usage" in done.output


def test_negative_variances_are_refused():
    with pytest.raises(InputError, match="expected 0 or more"):
        run("--between", "-0.1", "--width", "0.1")


def test_a_plan_from_ranked_lists_says_that_places_are_no_repeats(tmp_path):
    from kofn.cli.score_verb import score_command as score

    for use in ("list", "any"):
        done = CliRunner().invoke(score, [str(ARITHMETIC), "--use", use, "--out", str(tmp_path / use)])
        assert done.exit_code == 0, done.output
        assert ("places are no repeats" in " ".join(run(tmp_path / use, "--width", "0.1").output.split())) is (
            use == "list"
        )
