"""`kofn score` and `kofn.score`: what a person sees and what a program gets."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import kofn

ROWS = [
    {
        "id": f"q{i}",
        "reference": "4",
        "country": "BR" if i % 2 else "AR",
        "thread": f"t{i // 4}",
        "importance": 1 + i % 3,
        "outputs": [f"The answer is {4 if (i * 7 + j * 3) % 5 < 2 else j + 5}." for j in range(4)],
    }
    for i in range(40)
]


@pytest.fixture
def outputs(tmp_path):
    path = tmp_path / "outputs.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    return path


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "kofn", *map(str, args)], capture_output=True, text=True, check=True
    ).stdout


def test_json_has_the_promised_shape(outputs):
    found = json.loads(run("score", outputs, "--json", "--by", "country"))
    assert (found["n_cases"], found["n_candidates"], found["n_missing"]) == (40, 160, 0)
    assert set(found["estimates"][0]) == {
        "metric", "aggregator", "segment", "point", "low", "high", "level", "n", "n_missing", "method",
    }  # fmt: skip
    assert found["understood"]["fields"]["reference"] == "reference"
    assert found["extraction"]["extractor"] == "number"
    overall = [e["aggregator"] for e in found["estimates"] if e["segment"] is None]
    assert overall == [
        "first",
        "mean",
        "any_pass",
        "all_pass",
        "majority",
        "majority_pass",
        "pass@1",
        "pass@2",
    ]
    assert {e["segment"] for e in found["estimates"]} == {None, "country=AR", "country=BR"}


def test_the_table_says_what_was_understood_and_shows_every_estimate(outputs):
    text = run("score", outputs)
    assert text.startswith("mean 0.400 [0.362, 0.438], 40 cases x 4 candidates, metric numeric\n")
    for part in ("any_pass", "pass@2", "95% interval", "extracted by number", "diversity", "votes"):
        assert part in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_labels_without_texts_and_unequal_sets(tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_text('{"id": 1, "pass": 1}\n{"id": 1, "pass": 0}\n{"id": 2, "pass": true}\n')
    text = run("score", path)
    assert text.startswith("mean 0.750 [0.500, 1.000], 2 cases x 1 to 2 candidates, labels in `pass`. Warning: ")
    assert "set sizes" in text


def test_python_and_the_command_line_give_the_same(outputs):
    printed = json.loads(
        run("score", outputs, "--json", "-a", "mean", "-a", "pass@2", "--interval", "bca", "--level", "0.9")
    )
    result = kofn.score(outputs, aggregate=["mean", "pass@2"], interval="bca", level=0.9)
    assert printed["estimates"] == json.loads(json.dumps(result.to_dict()["estimates"]))


def test_result_prints_tabulates_and_shows_in_a_notebook(outputs):
    result = kofn.score(outputs, aggregate=["any_pass", "pass@2"])
    assert "any_pass" in str(result)
    frame = result.to_polars()
    assert frame["aggregator"].to_list() == ["any_pass", "pass@2"]
    assert frame["point"].to_list() == [e.point for e in result.estimates]
    assert result._repr_html_().count("<tr>") == 3
    assert isinstance(result.estimates[0], kofn.Estimate)


def test_hostile_text_is_escaped_in_the_notebook():
    rows = [{"id": 1, "country": "<script>alert(1)</script>", "pass": 1}]
    printed = kofn.score(rows, by="country")._repr_html_()
    assert "<script>" not in printed
    assert "&lt;script&gt;" in printed


def test_without_answers_nobody_votes_and_nothing_counts_as_failed():
    rows = [{"id": "q", "outputs": [{"text": "def f(): ...", "pass": True}, {"text": "x", "pass": False}]}]
    result = kofn.score(rows, extract="none", aggregate=["mean"])
    assert result.get("mean").point == 0.5
    assert "votes" not in result.diagnostics
    assert not result.warnings[1:]  # that one case is few, and nothing else
    assert "extracted" not in str(result)


def test_top_k_truncates_before_anything_is_aggregated(outputs):
    whole, top = kofn.score(outputs), kofn.score(outputs, top_k=2)
    assert top.n_candidates == 80
    assert top.get("any_pass").point == pytest.approx(
        kofn.score(outputs, aggregate="any_pass", top_k=2).get("any_pass").point
    )
    assert top.get("any_pass").point <= whole.get("any_pass").point


def test_threshold_decides_what_passes():
    rows = [{"id": i, "scores": [0.4, 0.7]} for i in range(3)]
    assert kofn.score(rows, aggregate="any_pass").get("any_pass").point == 0.0
    assert kofn.score(rows, aggregate="any_pass", threshold=0.7).get("any_pass").point == 1.0


def test_weights_and_clusters_enter_the_estimate(outputs):
    values = kofn.score(outputs, aggregate="mean").case_values["numeric", "mean"]
    weights = np.array([r["importance"] for r in ROWS], dtype=float)
    weighted = kofn.score(outputs, aggregate="mean", weight="importance").get("mean")
    assert weighted.point == pytest.approx((values * weights).sum() / weights.sum())
    plain, clustered = (
        kofn.score(outputs, aggregate="mean").get("mean"),
        kofn.score(outputs, aggregate="mean", cluster="thread").get("mean"),
    )
    assert clustered.point == plain.point
    assert (clustered.low, clustered.high) != (plain.low, plain.high)


def test_same_seed_same_numbers_whatever_the_order_of_the_file(outputs, tmp_path):
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_text("".join(reversed(outputs.read_text().splitlines(keepends=True))))
    for options in ({"weight": "importance"}, {"cluster": "thread"}, {"interval": "bca"}):
        one, two = kofn.score(outputs, seed=3, **options), kofn.score(outputs, seed=3, **options)
        assert one.to_dict()["estimates"] == two.to_dict()["estimates"]
        other = kofn.score(shuffled, seed=3, **options)
        assert [e.point for e in other.estimates] == pytest.approx([e.point for e in one.estimates])


def test_identical_candidates_are_remarked():
    rows = [{"id": i, "reference": "4", "outputs": ["4", "4", "4"]} for i in range(5)]
    assert "5 of 5 sets have identical candidates: a cache, or temperature 0?" in map(str, kofn.score(rows).warnings)


def test_small_segments_and_failed_extraction_are_remarked(outputs):
    result = kofn.score(outputs, by="country", extract="pattern('never (matches)')", metric="exact_match")
    assert any("fewer than 30 cases: country=AR, country=BR" in w for w in map(str, result.warnings))
    assert any("no answer found in 160 of 160 candidates" in w for w in map(str, result.warnings))


def test_labels_that_contradict_the_outputs_are_remarked():
    rows = [{"id": i, "reference": "4", "outputs": [{"text": "The answer is 4.", "pass": i % 2}]} for i in range(50)]
    result = kofn.score(rows)
    assert result.get("mean").point == 0.5  # the labels are used
    assert result.extraction["labels"]["n_differ"] == 25
    assert any("differ on 25 of 50" in w for w in map(str, result.warnings))


def test_several_metrics_at_once_and_a_clash_of_names(outputs):
    result = kofn.score(outputs, metric=["numeric", "exact_match"], aggregate="mean")
    assert {e.metric for e in result.estimates} == {"numeric", "exact_match"}
    with pytest.raises(kofn.InputError, match="twice"):
        kofn.score(outputs, metric=["numeric", "numeric"])


def test_lower_is_better_metrics_look_the_right_way():
    rows = [{"id": 1, "outputs": ["I'm sorry, but I can't help with that.", "The capital is Paris."]}]
    result = kofn.score(rows, metric="refused", aggregate=["mean", "best_score", "any_pass"])
    assert [e.point for e in result.estimates] == [0.5, 0.0, 1.0]


def test_the_audit_agrees_with_the_table_whatever_the_references_look_like():
    rows = [{"id": i, "reference": f"steps\n#### {i}", "outputs": [f"The answer is {i}."]} for i in range(20)]
    result = kofn.score(rows, aggregate="mean")
    assert result.get("mean").point == result.extraction["audit"]["score"]["number"] == 1.0


def test_values_that_are_no_shares_get_no_interval_for_shares():
    rows = [{"id": i, "scores": [1.0, 1.0]} for i in range(20)]
    best = kofn.score([{**r, "scores": [1.0, 3.0]} for r in rows], aggregate=["first", "std"])
    assert (best.get("first").low, best.get("first").method) == (None, "degenerate")
    assert kofn.score(rows, aggregate="any_pass").get("any_pass").method == "wilson"


def test_failed_calls_are_left_out_of_agreement_too():
    rows = [{"id": 1, "outputs": ["4", "4", "5", None]}]
    result = kofn.score(rows, aggregate=["agreement", "answered", "unique_texts"], extract="number")
    assert [e.point for e in result.estimates] == pytest.approx([2 / 3, 1.0, 2 / 3])
    assert result.extraction["n"] == 3


def test_scores_below_zero_are_remarked_in_a_weighted_vote():
    one = {"id": 1, "reference": "A", "outputs": [
        {"text": t, "logprob": p} for t, p in (("A", -1.0), ("A", -1.0), ("A", -1.0), ("B", -2.0))]}  # fmt: skip
    summed = kofn.score([one], aggregate="weighted_vote")
    assert summed.get("weighted_vote").point == 0.0
    assert any("scale='exp'" in w for w in map(str, summed.warnings))
    assert kofn.score([one], aggregate="weighted_vote(scale='exp')").estimates[0].point == 1.0


def test_a_metric_may_be_the_files_own(outputs):
    rows = [{"id": 1, "outputs": [{"text": "a", "pass": 1, "score": 0.3}, {"text": "b", "pass": 0, "score": 0.5}]}]
    assert [e.metric for e in kofn.score(rows, metric="score", aggregate="mean").estimates] == ["score"]


def test_drawn_majorities_say_so_with_their_error():
    rows = [{"id": 1, "passes": [1, 0] * 150, "answers": ["a", "b"] * 150}]
    result = kofn.score(rows, aggregate="maj@5")
    assert any(w.startswith("maj@5 is drawn for 1 set") for w in map(str, result.warnings))


def test_run_directory(outputs, tmp_path):
    out = tmp_path / "runs" / "first"
    run("score", outputs, "--out", out, "--by", "country")
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["sources"][0]["bytes"] == outputs.stat().st_size
    assert len(manifest["sources"][0]["sha256"]) == 64
    assert manifest["result"]["n_cases"] == 40
    candidates, cases = pl.read_parquet(out / "candidates.parquet"), pl.read_parquet(out / "cases.parquet")
    assert candidates.columns == ["case_id", "index", "text", "answer", "score.numeric", "passed.numeric"]
    assert candidates["index"].to_list()[:5] == [0, 1, 2, 3, 0]
    assert candidates["text"].to_list()[0] == ROWS[0]["outputs"][0]
    assert cases.height == 40
    assert {"case_id", "reference", "country", "numeric.any_pass", "numeric.pass@2"} <= set(cases.columns)
    assert cases["numeric.mean"].mean() == pytest.approx(candidates["score.numeric"].mean())
    assert sorted(p.name for p in out.iterdir()) == [
        "candidates.parquet",
        "cases.parquet",
        "evaluation.json",
        "report.html",
        "reports.parquet",
        "results.jsonl",
        "run.json",
    ]


def test_a_run_of_standard_input_and_of_the_first_k(outputs, tmp_path):
    command = [sys.executable, "-m", "kofn", "score", "-", "--top-k", "2", "--out", str(tmp_path / "run")]
    subprocess.run(command, input=outputs.read_text(), text=True, capture_output=True, check=True)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["sources"] == [{"path": "-", "bytes": None, "sha256": None}]
    candidates = pl.read_parquet(tmp_path / "run" / "candidates.parquet")
    assert candidates.height == 80
    assert candidates["passed.numeric"].null_count() == 0


def test_missing_values_are_null_in_files_never_nan(tmp_path):
    rows = [
        {"id": 1, "outputs": [{"text": "a", "pass": None}, {"text": "b", "pass": 1}]},
        {"id": 2, "outputs": [{"text": "c", "pass": None}]},
    ]
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    run("score", path, "--out", tmp_path / "run")
    candidates = pl.read_parquet(tmp_path / "run" / "candidates.parquet")
    assert candidates["passed.pass"].to_list() == [None, True, None]
    assert candidates["score.pass"].to_list() == [None, 1.0, None]
    cases = pl.read_parquet(tmp_path / "run" / "cases.parquet")
    assert cases["pass.any_pass"].to_list() == [1.0, None]
    assert b"NaN" not in (tmp_path / "run" / "run.json").read_bytes()


@pytest.mark.commands
def test_list_shows_everything_with_one_line():
    text = run("list")
    for name in ("any_pass", "majority", "number", "letter", "exact_match", "token_f1"):
        assert f"  {name} " in text
    found = json.loads(run("list", "metrics", "--json"))
    assert list(found) == ["metrics"]


def test_importing_kofn_loads_none_of_the_heavy_parts():
    code = "import sys, kofn; print([m for m in ('numpy', 'polars', 'scipy', 'click') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_help_loads_none_of_the_heavy_parts():
    code = """
import sys
from kofn.cli import main
sys.argv = ["kofn", "--help"]
try:
    main()
finally:
    print([m for m in ("numpy", "polars", "scipy", "kofn.scoring.evaluate") if m in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.endswith(
        "[]\n"
    )


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ("The answer is 1,080.", "1080.00", 1.0),
        ("It is 0.5.", "1/2", 1.0),
        ("It is 0.5.", "50%", 1.0),
        ("It is 50%.", "50%", 1.0),
        ("I cannot say.", "forty", 0.0),
        ("It is 41.", "42", 0.0),
    ],
)
def test_numbers_are_compared_by_value_however_they_are_written(output, reference, expected):
    rows = [{"id": 1, "reference": reference, "output": output}]
    result = kofn.score(rows, extract="number", metric="numeric", aggregate="mean")
    assert result.get("mean").point == expected


def fails_on_text(prediction, reference):
    return float(prediction) == float(reference)


@pytest.mark.parametrize("workers", [None, 2])
def test_an_exception_in_a_metric_names_the_function_the_case_and_the_candidate(workers):
    rows = [{"id": f"q{i}", "reference": "4", "outputs": ["4", "4", "four" if i == 2 else "4"]} for i in range(4)]
    with pytest.raises(kofn.InputError) as caught:
        kofn.score(rows, extract="text", metric=f"{__name__}:fails_on_text", workers=workers)
    said = "case 'q2', candidate 3 of 3: metric fails_on_text failed on 'four' against '4': ValueError"
    assert str(caught.value).startswith(said)


def test_an_exception_in_an_extractor_names_them_too():
    def third(text, choices=None):
        return text.split()[2]

    rows = [{"id": "a", "reference": "4", "outputs": ["is it 4", "4"]}]
    with pytest.raises(kofn.InputError, match=r"case 'a', candidate 2 of 2: extractor third failed on '4': IndexError"):
        kofn.score(rows, extract=third)


def test_an_exception_in_a_selector_names_its_case(tmp_path):
    (tmp_path / "own.py").write_text("def broken(one): raise KeyError('x')\n")
    rows = [{"id": f"q{i}", "reference": "4", "outputs": ["4", "5"]} for i in range(3)]
    with pytest.raises(kofn.InputError, match=r"case 'q0': selector .*own\.py:broken failed: KeyError"):
        kofn.curve(rows, selector=f"{tmp_path / 'own.py'}:broken")
