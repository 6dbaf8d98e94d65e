"""`kofn curve`: as a table and a drawing, as JSON, as a page; the choice, double-dipping, labels, wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kofn.cli.analysis_verbs import curve_command as command
from kofn.cli.score_verb import score_command
from kofn.errors import InputError, KofnError, UnknownName
from kofn.render.curve_text import axis_range, draw_chart

ROOT = Path(__file__).parents[2]
ARITHMETIC = ROOT / "examples" / "arithmetic.jsonl"
EVIL = "<script>alert(1)</script>\x1b[31m\u202eRED"


def run(*arguments):
    done = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)
    if isinstance(done.exception, KofnError):
        raise done.exception
    return done


def curve_json(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def graded(path, *, cases=40, seed=3, **more):
    """A file of three candidates a case with a pass and a reward that is right most of the time."""
    import numpy as np

    rng = np.random.default_rng(seed)
    rows = []
    for i in range(cases):
        passes = (rng.random(3) < rng.beta(0.6, 0.6)).tolist()
        rewards = [round(float(p + rng.normal(0, 0.7)), 3) for p in passes]
        rows += [
            {"id": f"q{i}", "output": f"text {j}", "pass": p, "reward": r, **more}
            for j, (p, r) in enumerate(zip(passes, rewards, strict=True))
        ]
    return lines(path, rows)


def test_the_table_the_drawing_and_the_choice():
    out = run(ARITHMETIC, "--min-gain-per-dollar", "3000").output
    assert "arithmetic: best of 5 over 60 cases, metric numeric" in out
    assert re.search(r"^3  0\.778  \[0\.675, 0\.855\] +0\.865  0\.558  0\.095 +4,910", out, re.MULTILINE)
    assert "● any@k   ▲ maj@k   × if tries were independent   │ interval of any@k" in out
    assert "choose n = 3: with 3 candidates any of them passes in 0.778 of the cases; number 4 would add 0.048" in out
    assert "$0.0000193 a candidate" in out
    assert "1.36 s side by side, 4.84 s one after the other" in out


def test_json_has_every_k_the_choice_and_the_rest():
    found = curve_json(ARITHMETIC, "--max-latency", "1.2", "--by", "kind", "--selector", "length")
    keys = {
        "k",
        "any",
        "any_low",
        "any_high",
        "independent",
        "selected",
        "majority",
        "cost",
        "seconds",
        "gain",
        "gain_per_cost",
    }
    assert [row["k"] for row in found["curve"]] == [1, 2, 3, 4, 5]
    assert keys <= set(found["curve"][0])
    assert found["choose"]["n"] == 2
    assert [(s["by"], s["segment"], s["n_cases"]) for s in found["segments"]] == [
        ("kind", "one step", 30),
        ("kind", "two steps", 30),
    ]
    assert found["segments"][0]["choose"]["n"] == 2
    assert found["selector"]["by"] == "length"
    assert found["selection"]["headroom"]["point"] == pytest.approx(
        found["selection"]["oracle"]["point"] - found["selection"]["selected"]["point"]
    )
    assert found["curve"][-1]["selected"] == pytest.approx(found["selection"]["selected"]["point"])
    assert found["warnings"] == []


def test_in_sequence_less_time_is_left():
    assert curve_json(ARITHMETIC, "--max-latency", "2", "--sequential")["choose"]["n"] == 2
    assert curve_json(ARITHMETIC, "--max-latency", "2")["choose"]["n"] == 5
    assert curve_json(ARITHMETIC, "--budget", "0.00005")["choose"]["n"] == 2
    assert curve_json(ARITHMETIC, "--cost-per-candidate", "1", "--budget", "4.5")["choose"]["n"] == 4


def test_a_run_is_read_as_the_file_it_was_made_of(tmp_path):
    CliRunner().invoke(score_command, [str(ARITHMETIC), "--out", str(tmp_path / "run")])
    of_run, of_file = curve_json(tmp_path / "run"), curve_json(ARITHMETIC)
    assert of_run["curve"] == of_file["curve"]


def test_the_only_column_of_scores_selects_and_several_need_a_name(tmp_path):
    path = graded(tmp_path / "one.jsonl")
    found = curve_json(path)
    assert found["selector"]["by"] == "reward"
    assert found["curve"][0]["selected"] == pytest.approx(found["curve"][0]["any"])
    assert found["curve"][2]["selected"] > found["curve"][0]["selected"] + 0.05
    with pytest.raises(UnknownName, match="unknown selector 'rewad': did you mean reward"):
        run(path, "--selector", "rewad")


def test_a_selector_file_may_prefer_low_scores(tmp_path):
    path = graded(tmp_path / "one.jsonl")
    (tmp_path / "worst.yaml").write_text("by: reward\nprefer: low\n")
    high, low = curve_json(path), curve_json(path, "--selector", tmp_path / "worst.yaml")
    assert low["selector"]["name"] == "worst"
    assert low["curve"][2]["selected"] < low["curve"][0]["selected"] < high["curve"][2]["selected"]


def test_the_measure_decides_whose_gain_counts(tmp_path):
    path = graded(tmp_path / "one.jsonl")
    rows = curve_json(path, "--measure", "selected")["curve"]
    assert rows[1]["gain"] == pytest.approx(rows[1]["selected"] - rows[0]["selected"])


def test_a_score_that_picks_and_grades_is_double_dipping_in_every_output(tmp_path):
    rows = [{"id": f"q{i}", "outputs": ["a", "b", "c"], "scores": [0.1 * i, 1.0, 0.4]} for i in range(5)]
    path = lines(tmp_path / "scores.jsonl", rows)
    assert curve_json(path)["selector"] is None  # nobody asked for it
    found = curve_json(path, "--selector", "score")
    assert any("picks by `score` and is graded by it: double-dipping" in w for w in found["warnings"])
    done = run(path, "--selector", "score", "--strict", "--html", tmp_path / "page.html")
    assert done.exit_code == 1
    assert "double-dipping" in done.output
    assert "double-dipping" in (tmp_path / "page.html").read_text()
    assert run(path).exit_code == 0
    assert run(graded(tmp_path / "fine.jsonl"), "--strict").exit_code == 0


def test_only_one_part_of_the_cases_is_used(tmp_path):
    path = graded(tmp_path / "one.jsonl")
    design, test = curve_json(path, "--split", "design:0.5:1"), curve_json(path, "--split", "test:0.5:1")
    assert design["n_cases"] + test["n_cases"] == 40
    assert design["split"] == "design:0.5:1"
    assert "design cases only" in run(path, "--split", "design").output


def test_labels_add_a_corrected_curve(tmp_path):
    path = graded(tmp_path / "one.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    labels = [
        {"id": row["id"], "index": i % 3, "human": row["pass"] if i % 5 else not row["pass"]}
        for i, row in enumerate(rows)
    ]
    found = curve_json(
        path, "--labels", lines(tmp_path / "labels.jsonl", labels)
    )  # the judge's verdicts are the metric's
    assert 0.7 < found["judge"]["sensitivity"] < 0.9
    assert "errs independently" in found["judge"]["assumption"]
    first = found["curve"][0]
    s, t = found["judge"]["sensitivity"], found["judge"]["specificity"]
    assert first["corrected"] == pytest.approx((first["any"] + t - 1) / (s + t - 1))
    assert first["corrected_low"] < first["corrected"] < first["corrected_high"]
    text = run(path, "--labels", tmp_path / "labels.jsonl").output
    assert "corrected" in text
    assert "assumes that the judge errs independently on each candidate" in " ".join(text.split())


def test_labels_of_whole_cases_are_refused(tmp_path):
    path = graded(tmp_path / "one.jsonl")
    labels = lines(tmp_path / "labels.jsonl", [{"id": f"q{i}", "human": 1, "judge": i % 2} for i in range(9)])
    with pytest.raises(InputError, match="expected labels of candidates"):
        run(path, "--labels", labels)


@pytest.mark.parametrize(("arguments", "said"), [
    (["--min-gain-per-dollar", "1"], "what a candidate costs is not known"),
    (["--max-latency", "1"], "how long a candidate takes is not known"),
    (["--selector", "nosuch.yaml"], "no such file"),
    (["--split", "train"], "expected design or test"),
    (["--metric", "beauty"], "unknown metric 'beauty'"),
    (["--by", "colour"], "no field 'colour'"),
    (["--level", "1.5"], "level"),
    (["--extend", "20000"], "from 1 to 10,000"),
    (["--cost-per-candidate", "-1"], "expected a number above 0"),
    (["--html", "/nowhere/at/all.html"], "there is no directory"),
])  # fmt: skip
def test_wrong_input_is_one_line_that_names_it(tmp_path, arguments, said):
    path = graded(tmp_path / "one.jsonl")
    with pytest.raises(InputError, match=re.escape(said)) as problem:
        run(path, *arguments)
    assert "\n" not in str(problem.value)


def test_sequential_alone_is_a_usage_error():
    done = run(ARITHMETIC, "--sequential")
    assert done.exit_code == 2
    assert "--max-latency" in done.output


def test_nothing_graded_is_refused(tmp_path):
    path = lines(tmp_path / "bare.jsonl", [{"id": "a", "outputs": ["x", "y"]}])
    with pytest.raises(InputError, match="nothing is graded"):
        run(path)


def test_text_fits_80_columns_and_hides_nothing(tmp_path):
    from kofn.analysis.best_of import BestOfOptions
    from kofn.analysis.curve_report import SpendingBounds, best_of_report
    from kofn.core.document import display_width
    from kofn.render.curve_text import format_curve
    from kofn.runs.load import load_graded
    from kofn.scoring.configuration import GradingConfig

    where = load_graded(ARITHMETIC, GradingConfig(by=("kind",)))
    found = best_of_report(
        EVIL,
        where.metric(),
        where.table,
        where.options,
        BestOfOptions(extend=30),
        SpendingBounds(gain=3000.0),
        judges={},
        units={},
    )
    text = format_curve(found, width=80)
    assert max(display_width(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_names_from_a_file_are_never_markup_in_the_page(tmp_path):
    path = graded(tmp_path / "one.jsonl", kind=EVIL)
    page = tmp_path / "page.html"
    run(
        path,
        "--html",
        page,
        "--by",
        "kind",
        "--extend",
        "10",
        "--min-gain-per-dollar",
        "0.5",
        "--cost-per-candidate",
        "0.1",
    )
    text = page.read_text()
    assert "<script>alert(1)" not in text
    assert "Content-Security-Policy" in text
    assert "src=" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "extrapolated" in text


def test_a_drawing_marks_every_measure_at_every_k():
    from kofn.analysis.best_of import best_of
    from kofn.core.candidate_sets import CandidateSets
    from kofn.scoring.configuration import GradingConfig

    drawn = "\n".join(draw_chart(best_of(CandidateSets.from_lists([[1, 0, 0], [0, 0, 0]]), GradingConfig()), 60))
    assert drawn.count("●") == 3 + 1  # and the legend
    assert draw_chart(best_of(CandidateSets.from_lists([[1], [0]]), GradingConfig()), 60) == []


@pytest.mark.parametrize(("ends", "expected"), [([0.0, 1.0], (0.0, 1.0)), ([1.0], (0.95, 1.0)), ([0.0], (0.0, 0.05))])
def test_axes_have_round_ends_and_some_height(ends, expected):
    assert axis_range(ends) == pytest.approx(expected)


def test_the_curve_of_ranked_lists_says_that_it_draws_places_at_random():
    said = "any@k draws k places of a list at random"
    assert any(said in warning for warning in curve_json(ARITHMETIC, "--use", "list")["warnings"])
    assert not any(said in warning for warning in curve_json(ARITHMETIC, "--use", "any")["warnings"])
