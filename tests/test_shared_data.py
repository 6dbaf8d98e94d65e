"""Real outputs of real systems, against the numbers their authors published."""

from __future__ import annotations

import numpy as np
import pytest

import kofn


def test_cruxeval_pass_at_1_and_5_to_the_published_digits(sets_folder):
    result = kofn.score(sets_folder / "cruxeval_output_800x10.jsonl", aggregate=["pass@1", "pass@5", "any_pass"])
    assert 100 * result.get("pass@1").point == pytest.approx(34.2125, abs=1e-9)
    assert 100 * result.get("pass@5").point == pytest.approx(40.286706349206355, abs=1e-9)
    assert (result.n_cases, result.n_candidates, result.n_missing) == (800, 8000, 0)


def test_tau_pass_hat_to_the_published_digits(sets_folder):
    names = [f"pass^{k}" for k in (1, 2, 3, 4)]
    result = kofn.score(sets_folder / "tau_airline_gpt4o_50x4.jsonl", aggregate=names)
    assert [round(result.get(n).point, 3) for n in names] == [0.42, 0.273, 0.22, 0.2]


def test_qwen_votes_and_selection(sets_folder, oracles):
    want = oracles["maj_rm.qwen_math100"]["expected"]
    rules = {"mean": "mean", "any_pass": "any8", "all_pass": "all8", "majority": "maj8_string_first",
             "selected": "rm8_argmax", "weighted_vote": "rm_weighted_vote8"}  # fmt: skip
    result = kofn.score(sets_folder / "qwen_math100x8.jsonl", aggregate=list(rules))
    for ours, theirs in rules.items():
        assert result.get(ours, metric="pass").point == pytest.approx(want[theirs], abs=1e-12)
    assert result.diagnostics["votes"]["ties"] == want["questions_with_top_tie"]
    assert result.n_cases - result.diagnostics["votes"]["unanimous"] == want["questions_with_more_than_one_answer"]


def test_qwen_clustered_standard_error_is_that_of_the_case_means(sets_folder, oracles):
    from kofn.stats import clustered_se, variance_shares

    want = oracles["clustered_se.qwen_math100"]["expected"]
    result = kofn.score(sets_folder / "qwen_math100x8.jsonl", aggregate=["mean"])
    sets = result.scored[0].sets
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    assert clustered_se(sets.values, owner, kind="CR0") == pytest.approx(want["CR0"], abs=1e-12)
    shares = variance_shares(sets.values, owner)
    assert shares.within == pytest.approx(want["within"], abs=1e-12)
    assert shares.between == pytest.approx(want["between"], abs=1e-12)
    values = result.case_values["pass", "mean"]
    assert values.std(ddof=1) / np.sqrt(len(values)) == pytest.approx(want["C_over_Cminus1"], abs=1e-12)
    half_width = (result.get("mean").high - result.get("mean").low) / 2
    assert half_width == pytest.approx(1.96 * want["C_over_Cminus1"], rel=0.05)  # not sqrt(6) times narrower


def test_unlabelled_pairs_still_say_something(sets_folder):
    result = kofn.score(sets_folder / "pandalm_pairs_3humans_2judges.jsonl")
    assert {e.aggregator for e in result.estimates} == {
        "agreement",
        "vote_margin",
        "answered",
        "unique_answers",
    }
    assert result.diagnostics["diversity"]["distinct_2"] > 0.5
    assert any("nothing is graded" in w for w in map(str, result.warnings))


def test_judge_scores_beyond_one_are_read_and_remarked(sets_folder):
    result = kofn.score(sets_folder / "tot_writing_gpt4_io_100x10.jsonl")
    assert result.get("mean").point > 1
    assert any("--threshold" in w for w in map(str, result.warnings))


def test_labels_of_real_maths_outputs_agree_with_extraction(sets_folder):
    """Grading by extraction and comparison comes close to the labels that came with the data."""
    pytest.importorskip("math_verify", reason="needs the extra `math`")
    labels = kofn.score(sets_folder / "qwen_math100x8.jsonl", aggregate="mean").get("mean", metric="pass").point
    computed = kofn.score(sets_folder / "qwen_math100x8.jsonl", aggregate="mean", extract="math", metric="math_equal")
    assert computed.get("mean").point == pytest.approx(labels, abs=0.02)
