"""`kofn compare`: systems, graders and selectors at the command line, in every form, and what people get wrong."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import kofn
from kofn.analysis.compare.systems import ComparisonOptions, Side, compare_systems
from kofn.cli.analysis_verbs import compare_command as command
from kofn.cli.analysis_verbs import spread
from kofn.cli.score_verb import score_command
from kofn.core.document import display_width
from kofn.core.escape import escape_latex
from kofn.render.comparison_html import LENGTHS, case_bodies, comparison_page
from kofn.render.comparison_text import comparison_latex, comparison_markdown, excerpt, format_comparison, letter

ROOT = Path(__file__).parents[2]
A, B = (str(ROOT / "examples" / name) for name in ("arithmetic.jsonl", "arithmetic-b.jsonl"))
EVIL = "</script><img src=x onerror=alert(1)>\x1b[31m\u202eRED & _%$#{}^~\\|"


def run(*args):
    return CliRunner().invoke(command, [str(a) for a in args])


def compare_json(*args):
    done = run(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def case(i, *passes, **more):
    return {"id": f"q{i}", "outputs": [{"text": f"It is {p}.", "pass": bool(p)} for p in passes], **more}


# systems


def test_json_holds_every_number_of_every_difference():
    found = compare_json(A, B)
    keys = {"metric", "aggregator", "a", "b", "difference", "low", "high", "p", "wins", "ties", "losses", "n",
            "p_holm", "mcnemar_p", "name_a", "name_b", "segment", "level", "method", "n_missing"}  # fmt: skip
    assert all(keys <= set(one) for one in found["comparisons"])
    by = {one["aggregator"]: one for one in found["comparisons"]}
    scores = [kofn.score(path) for path in (A, B)]
    for name, one in by.items():
        a, b = (result.get(name).point for result in scores)
        assert (one["a"], one["b"], one["difference"]) == pytest.approx((a, b, b - a), abs=1e-12)
        assert one["wins"] + one["ties"] + one["losses"] == one["n"] == 60
    assert len(found["changed"]) == by["any_pass"]["wins"] + by["any_pass"]["losses"]
    assert {"input", "reference", "a", "b", "passed_a", "passed_b"} <= set(found["changed"][0])
    assert len(found["changed"][0]["a"]) == 5
    assert found["unmatched"] == []
    disagreeing = {name for name, one in by.items() if not one["interval_agrees"]}
    assert (
        disagreeing
        == {name for name, one in by.items() if (one["low"] > 0) != (one["p"] < 0.05)}
        == {"any_pass", "pass@5"}
    )
    assert [w["code"] for w in found["coded_warnings"]] == ["interval-and-p-disagree"]
    assert set(found["coded_warnings"][0]["values"]["numbers"]) == disagreeing


def test_a_run_and_its_file_give_the_same_numbers(tmp_path):
    for path, name in ((A, "a"), (B, "b")):
        done = CliRunner().invoke(score_command, [path, "--out", str(tmp_path / name)])
        assert done.exit_code == 0
    files, runs = compare_json(A, B), compare_json(tmp_path / "a", tmp_path / "b")
    without = ("name_a", "name_b")
    assert [{k: v for k, v in one.items() if k not in without} for one in runs["comparisons"]] == [
        {k: v for k, v in one.items() if k not in without} for one in files["comparisons"]
    ]
    assert [c["case"] for c in runs["changed"]] == [c["case"] for c in files["changed"]]
    mixed = compare_json(A, tmp_path / "b", "-a", "pass@3", "--metric", "numeric", "--metric", "contains")
    assert {(c["metric"], c["aggregator"]) for c in mixed["comparisons"]} == {
        ("numeric", "pass@3"),
        ("contains", "pass@3"),
    }


def test_a_run_keeps_its_metric_with_another_extractor_or_threshold(tmp_path):
    rows = [{"id": str(i), "reference": "a b c d", "outputs": ["a b", f"a {'b' * i} c", "x"]} for i in range(8)]
    path = write(tmp_path / "f.jsonl", rows)
    for name in "ab":
        CliRunner().invoke(score_command, [path, "--metric", "token_f1", "--out", str(tmp_path / name)])
    runs = (tmp_path / "a", tmp_path / "b")
    plain = compare_json(*runs, "-a", "any_pass")["comparisons"]
    lower = compare_json(*runs, "-a", "any_pass", "--threshold", "0.5")["comparisons"]
    assert [c["metric"] for c in (*plain, *lower)] == ["token_f1", "token_f1"]
    assert (plain[0]["a"], lower[0]["a"]) == (
        0.0,
        kofn.score(path, metric="token_f1", threshold=0.5).get("any_pass").point,
    )
    again = compare_json(*runs, "-a", "mean", "--extract", "last_line")["comparisons"]
    assert [c["metric"] for c in again] == ["token_f1"]
    assert "a run has its own names" in run(*runs, "--field", "text=x").output


def test_by_split_and_top_k_choose_cases_and_candidates():
    whole = compare_json(A, B, "-a", "mean")
    parts = [compare_json(A, B, "-a", "mean", "--split", part) for part in ("design:0.3:1", "test:0.3:1")]
    assert sum(p["comparisons"][0]["n"] for p in parts) == whole["comparisons"][0]["n"]
    sliced = compare_json(A, B, "-a", "mean", "--by", "kind")
    assert [c["segment"] for c in sliced["comparisons"]] == [None, "kind=one step", "kind=two steps"]
    assert (
        compare_json(A, B, "-a", "any_pass", "--top-k", "1")["comparisons"][0]["a"] == kofn.score(A).get("first").point
    )


def test_three_systems_are_compared_with_the_first_or_every_two(tmp_path):
    paths = [
        write(tmp_path / f"{n}.jsonl", [case(i, i % k == 0) for i in range(12)])
        for n, k in zip("xyz", (2, 3, 4), strict=True)
    ]
    with_first = compare_json(*paths, "-a", "mean")
    assert [(c["name_a"], c["name_b"]) for c in with_first["comparisons"]] == [("x", "y"), ("x", "z")]
    every = compare_json(*paths, "-a", "mean", "--all-pairs")
    assert [(c["name_a"], c["name_b"]) for c in every["comparisons"]] == [("x", "y"), ("x", "z"), ("y", "z")]


def test_systems_of_one_name_are_called_by_their_paths(tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "out.jsonl", [case(0, 1), case(1, folder == "b")])
    paths = [str(tmp_path / folder / "out.jsonl") for folder in "ab"]
    assert compare_json(*paths)["names"] == paths


def test_clusters_and_weights_of_the_cases_are_used(tmp_path):
    rows = [[case(i, (i + k) % 3 == 0, thread=f"t{i // 4}", importance=1 + i % 5) for i in range(24)] for k in (0, 1)]
    paths = [write(tmp_path / f"{n}.jsonl", one) for n, one in zip("ab", rows, strict=True)]
    plain = compare_json(*paths, "-a", "mean")["comparisons"][0]
    weighed = compare_json(*paths, "-a", "mean", "--weight", "importance", "--cluster", "thread")["comparisons"][0]
    assert plain["mcnemar_p"] is not None
    assert weighed["mcnemar_p"] is None
    weights = [1 + i % 5 for i in range(24)]
    want = sum(w * (((i + 1) % 3 == 0) - (i % 3 == 0)) for i, w in enumerate(weights)) / sum(weights)
    assert weighed["difference"] == pytest.approx(want)


def test_unmatched_cases_are_counted_at_a_terminal_and_all_in_json(tmp_path):
    a = write(tmp_path / "a.jsonl", [case(i, i % 2) for i in range(20)])
    b = write(tmp_path / "b.jsonl", [case(i, 1) for i in range(10, 40)])
    found = compare_json(a, b)["unmatched"]
    assert found[0]["only_a"] == [f"q{i}" for i in range(10)]
    assert len(found[0]["only_b"]) == 20
    output = " ".join(run(a, b).stdout.split())
    assert "10 cases only in a: q0, q1, q2, q3, q4, …; 20 cases only in b: q20," in output


# what people get wrong


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([A], "give at least two runs or files"),
        ([A, A], "arithmetic.jsonl: given twice"),
        ([A, "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        ([A, B, "-a", "any_pas"], "unknown aggregator 'any_pas': did you mean any_pass"),
        ([A, B, "--metric", "numric"], "unknown metric 'numric': did you mean numeric"),
        ([A, B, "--by", "knd"], "unknown field 'knd': did you mean kind"),
        ([A, B, "--split", "dev"], "expected design or test"),
        ([A, B, "--alpha", "2"], "alpha takes a number between 0 and 1"),
        ([A, B, "--level", "95"], "level"),
        ([A, B, "--evaluator", "numeric"], "give --selectors too"),
        ([A, B, "--selectors", "first", "vote"], "compares on one run or file, before the option: 2 files given"),
        (["--selectors", "first", "vote", A], "before the option: no file given"),
        ([A, "--selectors", "first"], "at least two selectors"),
        ([A, "--selectors", "first", "vot"], "unknown selector 'vot': did you mean vote"),
        ([A, "--selectors", "first", "gone.yaml"], "gone.yaml: no such file"),
        ([A, "--selectors", "first", "vote", "--by", "kind"], "--by has no meaning with --selectors"),
        ([A, "--selectors", "first", "vote", "--metric", "numeric"], "--evaluator names the metric"),
        ([A, "--extractors", "number"], "at least two extractors"),
        ([A, "--extractors", "number", "box"], "unknown extractor 'box'"),
        ([A, "--metrics", "numeric", "numeric"], "metric numeric is there twice"),
        ([A, "--metrics", "numeric", "contains", "--extractors", "number"], "give one of them"),
        ([A, B, "--json", "--latex"], "forms of one output"),
        ([A, B, "--html", "nowhere/page.html"], "there is no directory nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(args, message, monkeypatch, capsys):
    from kofn import cli

    monkeypatch.setattr("sys.argv", ["kofn", "compare", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_one_id_on_two_lines_is_refused(tmp_path):
    twice = write(tmp_path / "twice.jsonl", [case(0, 1), case(1, 1), case(0, 0)])
    done = run(twice, write(tmp_path / "b.jsonl", [case(0, 1), case(1, 1)]))
    assert "line 3: case 'q0' is there twice" in str(done.exception)


def test_a_candidate_a_line_may_repeat_its_id(tmp_path):
    rows = [{"id": f"q{i}", "output": "x", "pass": (i + k) % 2} for i in range(4) for k in range(2)]
    paths = [write(tmp_path / f"{n}.jsonl", rows) for n in "ab"]
    assert compare_json(*paths)["comparisons"][0]["n"] == 4


def test_a_field_to_slice_by_is_one_value_a_case_and_one_side_may_lack_it(tmp_path):
    long = [{"id": f"q{i // 2}", "output": "x", "pass": i % 2, "kind": "xy"[i // 2 % 2]} for i in range(8)]
    a = write(tmp_path / "a.jsonl", long)
    b = write(tmp_path / "b.jsonl", [{k: v for k, v in row.items() if k != "kind"} for row in long])
    for sides in ((a, b), (b, a)):
        found = compare_json(*sides, "--by", "kind", "-a", "mean")
        assert [c["segment"] for c in found["comparisons"]] == [None, "kind=x", "kind=y"]
    torn = write(tmp_path / "torn.jsonl", [{**row, "kind": str(i)} for i, row in enumerate(long)])
    assert "a case has one kind" in str(run(torn, b, "--by", "kind").exception)
    assert "unknown field" in str(run(b, write(tmp_path / "c.jsonl", long), "--by", "kin").exception)


def test_files_of_other_cases_are_refused_and_other_questions_remarked(tmp_path):
    a = write(tmp_path / "a.jsonl", [case(i, 1, input=f"What is {i}?") for i in range(3)])
    b = write(tmp_path / "b.jsonl", [case(i, 1) for i in range(5, 9)])
    assert "share no case id" in str(run(a, b).exception)
    c = write(tmp_path / "c.jsonl", [case(i, 1, input=f"What was {i}?") for i in range(3)])
    assert "3 of 3 shared cases ask or expect something else in c than in a" in compare_json(a, c)["warnings"][0]


# graders and selectors


def test_options_that_take_several_names_end_at_the_next_option():
    args = ["f", "--selectors", "a", "b", "--json", "--metrics", "x", "-a", "mean", "--", "--selectors", "q"]
    assert spread(args) == ["f", "--selectors", "a", "--selectors", "b", "--json", "--metrics", "x", "-a", "mean", "--",
                            "--selectors", "q"]  # fmt: skip


def test_two_extractors_on_the_same_outputs():
    found = compare_json(A, "--extractors", "number", "last_line")
    (one,) = found["graders"]
    assert sum(one[k] for k in ("both_pass", "only_a", "only_b", "both_fail")) + one["n_ungraded"] == 300
    assert one["only_a"] == sum(c["passed_a"] and not c["passed_b"] for c in found["changed"])
    assert found["comparisons"][0]["difference"] < 0
    assert "verdicts" in run(A, "--extractors", "number", "last_line").stdout


def test_two_metrics_on_the_same_outputs_of_a_run(tmp_path):
    CliRunner().invoke(score_command, [A, "--out", str(tmp_path / "run")])
    found = compare_json(tmp_path / "run", "--metrics", "numeric", "contains")
    assert found["comparisons"][0]["name_b"] == "contains"
    assert found["graders"] == compare_json(A, "--metrics", "numeric", "contains")["graders"]


def test_selectors_by_name_and_by_file(tmp_path):
    short = tmp_path / "short.yaml"
    short.write_text("by: length\nprefer: low\n")
    found = compare_json(A, "--selectors", "first", "vote", short, "--evaluator", "numeric")
    assert [s["selector"]["name"] for s in found["selectors"]] == ["first", "vote", "short"]
    assert {"selected", "mean", "oracle", "headroom", "regret", "agreement"} <= set(found["selectors"][0])
    assert found["selectors"][0]["selected"]["point"] == kofn.score(A).get("first").point
    assert [c["name_b"] for c in found["comparisons"]] == ["vote", "short"]
    cut = compare_json(A, "--selectors", "first", "vote", "--top-k", "1")
    assert cut["comparisons"][0]["difference"] == 0


def test_double_dipping_is_told_in_every_form_and_refused_when_strict(tmp_path):
    rows = [
        {"id": str(i), "outputs": [{"text": "x", "score": (i * k) % 7 / 7} for k in range(1, 4)]} for i in range(12)
    ]
    path = write(tmp_path / "scored.jsonl", rows)
    args = (path, "--selectors", "first", "score")
    html = tmp_path / "page.html"
    for form in ((), ("--json",), ("--markdown",), ("--latex",)):
        done = run(*args, *form, "--html", html)
        assert done.exit_code == 0
        assert "double-dipping" in " ".join(done.stdout.replace("-\n", "-").split())
    assert "double-dipping" in html.read_text()
    strict = run(*args, "--strict")
    assert strict.exit_code == 1
    assert "double-dipping" in strict.stdout
    assert run(path, "--selectors", "first", "random", "--strict").exit_code == 0


def test_few_shared_cases_are_too_few_to_tell_and_exit_code_2_when_strict(tmp_path):
    for name, passes in (("a", (1, 1)), ("b", (0, 0))):
        write(tmp_path / f"{name}.jsonl", [case(i, *passes) for i in range(9)])
    few = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-a", "mean")
    assert few.exit_code == 0
    assert few.stdout.startswith("Too few shared cases to tell (9, at least 10 needed): mean 1.000 to 0.000")
    assert "▼" not in few.stdout
    strict = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--strict")
    assert strict.exit_code == 2
    assert "Too few shared cases" in strict.stderr
    write(tmp_path / "b.jsonl", [case(i, 0, 0) for i in range(10)])
    write(tmp_path / "a.jsonl", [case(i, 1, 1) for i in range(10)])
    assert run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--strict").exit_code == 0


def test_runs_scored_with_different_options_compare_fully(tmp_path):
    full, narrow, both = tmp_path / "full", tmp_path / "narrow", (tmp_path / "full", tmp_path / "other")
    kofn.score(A, out=full)
    kofn.score(B, out=tmp_path / "other")
    kofn.score(B, out=narrow, aggregate=("any_pass",))
    mixed, alike = compare_json(full, narrow), compare_json(*both)
    drop = {"name_a", "name_b"}
    assert [{k: v for k, v in one.items() if k not in drop} for one in mixed["comparisons"]] == [
        {k: v for k, v in one.items() if k not in drop} for one in alike["comparisons"]
    ]
    backwards = {one["aggregator"]: one["difference"] for one in compare_json(narrow, full)["comparisons"]}
    assert backwards == pytest.approx({one["aggregator"]: -one["difference"] for one in alike["comparisons"]})


def test_the_declared_use_gives_the_headline_whatever_the_order_of_options(tmp_path):
    for name, path in (("a", A), ("b", B)):
        kofn.score(path, out=tmp_path / name, aggregate=("pass@1", "any_pass"), use="vote")
    found = compare_json(tmp_path / "a", tmp_path / "b")
    assert found["headline"]["aggregator"] == "majority"
    assert found["headline"]["use"] == "vote"
    assert found["verdict"] == "majority"
    assert "majority (intended use: vote)" in found["headline"]["text"]
    assert compare_json(tmp_path / "a", tmp_path / "b", "--use", "any")["headline"]["aggregator"] == "any_pass"
    for options in (("-a", "any_pass", "-a", "mean"), ("-a", "mean", "-a", "any_pass")):
        assert compare_json(A, B, *options)["headline"]["aggregator"] == "mean"


def test_systems_without_a_metric_in_common_are_graded_by_one_of_theirs(tmp_path):
    kofn.score(A, out=tmp_path / "numbers")
    kofn.score(B, out=tmp_path / "words", metric="contains")
    found = compare_json(tmp_path / "numbers", tmp_path / "words")
    assert {one["metric"] for one in found["comparisons"]} == {"numeric"}
    assert "no metric in common: numeric was computed for words from the stored outputs" in found["warnings"]
    plain = {one["aggregator"]: one["difference"] for one in compare_json(A, B)["comparisons"]}
    assert {one["aggregator"]: one["difference"] for one in found["comparisons"]}.items() >= {
        "mean": plain["mean"]
    }.items()


def test_three_systems_stand_beside_each_other_before_the_pairs(tmp_path):
    kofn.score(A, out=tmp_path / "c")
    text = run(A, B, tmp_path / "c", "--changed", "0").stdout
    assert text.startswith(
        "mean over 60 shared cases: arithmetic 0.487, arithmetic-b 0.620, c 0.487. arithmetic-b is better"
    )
    assert re.search(r"^mean +0.487 +0.620 ▲ +0.487 · +60$", text, re.MULTILINE)


# forms


def found_of(n=40, names=("a", "b"), metric=None):
    """Two systems, the second better, with hostile names and texts."""
    rows = [
        [
            {"id": f"{EVIL} {i}", "input": EVIL, "reference": "1", "kind": EVIL,
             "outputs": [f"{EVIL} {int((i + j) % 5 < k)}" for j in range(3)]}
            for i in range(n)
        ]
        for k in (1, 4)
    ]  # fmt: skip
    sides = [
        Side(
            name=name,
            result=kofn.score(one, extract="number", metric="numeric", aggregate=["any_pass", "mean"], everything=True),
        )
        for name, one in zip(names, rows, strict=True)
    ]
    return compare_systems(sides, ComparisonOptions(by=("kind",)))


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_tables_fit_the_terminal_and_hidden_characters_are_shown(width):
    text = format_comparison(found_of(names=(EVIL, "b" * 70)), width=width)
    assert "\x1b" not in text
    assert "\u202e" not in text
    limit = max(width, 72)  # narrower than its numbers no table gets
    assert max(display_width(line) for line in text.splitlines()) <= limit


def test_the_terminal_says_what_was_found_in_a_sentence():
    first = " ".join(format_comparison(found_of()).split("\n\n")[0].split())
    assert first.startswith(
        "b is better than a on mean: 0.200 to 0.800, difference +0.600 [0.525, 0.683], p < 0.0001, 40"
    )
    assert (
        "4 of 4 differences are significant (p below 0.05 after Holm): any_pass (better), mean (better), any_pass in"
        in first
    )
    quiet = run(A, B).stdout
    assert quiet.startswith("arithmetic-b is better than arithmetic on mean: 0.487 to 0.620, difference +0.133")
    assert "fail → pass" in quiet


def test_changed_says_how_many_cases_are_shown():
    none, one, all_of_them = (run(A, B, "--changed", n).stdout for n in (0, 1, 50))
    assert "reference" not in none
    assert one.count("reference") == 2
    assert all_of_them.count("reference") == len(compare_json(A, B)["changed"])


def test_an_excerpt_stands_around_the_answer():
    text = "start " * 50 + "the answer is 42, as " + "end " * 50
    assert "answer is 42," in excerpt(text, "42", 40)
    assert excerpt(text, None, 20).endswith("end end end")
    assert excerpt(text, None, 20, end=False).startswith("start")
    assert all(display_width(excerpt(text, a, w)) <= w for a in ("42", None) for w in (12, 33, 80))


def test_latex_escapes_names_and_marks_only_what_holds():
    found = found_of(names=("50%_a & b", r"\input{x}"))
    text = comparison_latex(found)
    assert r"50\%\_a \& b" in text
    assert r"\textbackslash{}input\{x\}" in text
    assert r"\textbf{1.000}\textsuperscript{a}" in text or r"\textsuperscript{a}" in text
    assert r"p \textless{} 0.05 after Holm over" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    assert not re.search(r"(?<!\\)[#$]|(?<!\\)&(?! )", text.split("\n", 1)[1].replace(" & ", "  "))
    nothing = run(A, B, "-a", "first", "--latex").stdout
    assert "textsuperscript" not in nothing
    assert "textbf" not in nothing


def test_latex_special_characters_are_all_escaped():
    for c in "&%$#_{}~^\\<>|":
        assert escape_latex(c) != c
    assert escape_latex("a---b") == "a-{}-{}-b"
    assert [letter(i) for i in (0, 1, 25, 26)] == ["a", "b", "z", "aa"]


def test_markdown_keeps_hostile_names_in_code_and_says_the_test():
    text = comparison_markdown(found_of(names=("<b>a</b> | x", "[b](http://x)")))
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert [{len(re.findall(r"(?<!\\)\|", line)) for line in rows} for rows in tables] == [{6}, {9}]
    assert "`[b](http://x)`" in text
    assert "paired permutation test by case, p < 0.05 after Holm over" in text
    assert "<sup>a</sup>" in text
    assert "<sup>" not in run(A, B, "-a", "first", "--markdown").stdout


def test_the_baseline_is_marked_where_it_is_better(tmp_path):
    good = write(tmp_path / "good.jsonl", [case(i, 1) for i in range(20)])
    bad = write(tmp_path / "bad.jsonl", [case(i, 0) for i in range(20)])
    rows = run(good, bad, "-a", "any_pass", "--markdown").stdout.splitlines()
    assert any("`good` | **1.000**<sup>b</sup>" in row for row in rows)
    assert any("`bad` | 0.000 |" in row for row in rows)


def island(html, name="changed"):
    packed = re.search(rf'<script type="text/plain" id="{name}">([^<]*)</script>', html)[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_the_page_holds_every_changed_case_and_no_markup_of_theirs():
    found = found_of()
    html = comparison_page(found)
    assert "<img" not in html
    assert "\u202e" not in html
    assert html.count('<details class="change"') == len(found.changed) == 16
    data = island(html)
    assert len(data) == len(found.changed)
    assert data[0]["sides"][0][0]["text"].startswith(EVIL)
    assert "default-src &#39;none&#39;" in html


def test_texts_of_a_page_are_cut_in_the_middle_until_they_fit(monkeypatch):
    found = found_of(n=10)
    longer = [replace(c, a=tuple(replace(s, text="x" * 3000 + "end") for s in c.a)) for c in found.changed]
    n = sum(len(side) for c in longer for side in (c.a, c.b))
    monkeypatch.setattr("kofn.render.comparison_html.ROOM", n * 1000)
    (text,) = {json.dumps(one["text"]) for c in case_bodies(longer) for one in c["sides"][0]}
    head, left, tail = json.loads(text)
    assert left == 3003 - len(head) - len(tail) == 3003 - 1000
    assert tail.endswith("end")
    assert 1000 in LENGTHS


def test_help_names_the_verb_and_its_forms():
    text = run("--help").output
    for option in ("--all-pairs", "--extractors", "--selectors", "--evaluator", "--strict", "--latex", "--html"):
        assert option in text


def test_the_top_of_the_page_shows_every_side_and_not_the_first_three(tmp_path):
    html = tmp_path / "page.html"
    done = run(A, "--selectors", "first", "random", "length", "vote", "--changed", "0", "--html", html)
    assert done.exit_code == 0, done.output
    tiles = re.findall(r'<div class="stat"><dt title="([^"]*)"', html.read_text())
    assert tiles == ["first", "random", "length", "vote", "significant"]
