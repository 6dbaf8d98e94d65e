"""`kofn check`: exit codes and lines on real run directories, and the files it leaves for CI."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.analysis.checks import (
    Check,
    CheckOptions,
    CheckReport,
    MinPasses,
    find_measure,
    requirement_checks,
    run_checks,
)
from kofn.api.analyses import subject_of
from kofn.cli import main
from kofn.core.escape import code_block, escape_xml
from kofn.core.types import Estimate
from kofn.errors import InputError
from kofn.render.ci_reports import MOST_CASES, junit_xml, summarize_checks
from kofn.render.run_directory import write_run
from kofn.runs import AttributeResult, CorrectnessResults, VerifierReport, load_run
from kofn.scoring.configuration import ReportConfig, Requirement

ROOT = Path(__file__).parents[2]
ARITHMETIC = ROOT / "examples" / "arithmetic.jsonl"
HOSTILE = "]]></failure><script>alert(1)</script> | `x` ```\n## \x1b[31m\x00\ufffe \u202eevil & \"'"


@pytest.fixture(autouse=True)
def outside_github(monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture
def run_kofn(monkeypatch, capsys):
    """The real command in this process: (exit code, standard output, standard error)."""

    def call(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kofn", *map(str, args)])
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code or 0, out, err

    return call


@pytest.fixture
def check(run_kofn):
    """`kofn check`; of its text the lines below the headline, which has tests of its own."""

    def call(*args: object) -> tuple[int, str, str]:
        code, out, err = run_kofn("check", *args)
        head, _, rest = out.partition("\n")
        return code, rest if re.match(r"\d+ of \d+ requirements? (passed|failed): ", head) else out, err

    return call


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory) -> Path:
    """60 cases of 5, verdict majority; two groups, of type Core and Functionality."""
    out = tmp_path_factory.mktemp("runs") / "arithmetic"
    plan = ReportConfig(task="sums", name="a", group="kind", types={"two steps": "Functionality"}, verdict="majority")
    result = kofn.score(ARITHMETIC, by="kind", everything=True)
    write_run(result, out, sources=[ARITHMETIC], options={"by": ["kind"]}, report=plan)
    return out


def labelled(
    path: Path, passes: list[list[bool | None]], plan: ReportConfig | None = None, **columns: list[Any]
) -> Path:
    """A run of labelled candidates; further columns are one value a case."""
    rows = [
        {"id": f"c{i}", "outputs": [{"text": "t", "pass": p} for p in ps], **{k: v[i] for k, v in columns.items()}}
        for i, ps in enumerate(passes)
    ]
    write_run(kofn.score(rows, everything=True), path, sources=[], options={}, report=plan)
    return path


def drawn(rate: float, seed: int, cases: int = 150, n: int = 4) -> list[list[bool | None]]:
    """Cases of very different difficulty that are the same for every seed; what is drawn are the answers."""
    difficulty, rng = random.Random(0), random.Random(seed)
    rates = [min(1.0, max(0.0, rate + difficulty.uniform(-0.4, 0.4))) for _ in range(cases)]
    return [[rng.random() < r for _ in range(n)] for r in rates]


def programs(path: Path, *, failure: str | None = None, unverified: int = 0) -> Path:
    """An evaluation of programs saved by itself: no candidates, no run.json."""
    results = CorrectnessResults(problem_name="p", name="checkpoint_1", infrastructure_failure=failure)

    def report(group: str, kind: str, i: int, correct: bool | None) -> VerifierReport:
        attributes = {
            "status": AttributeResult(is_correct=None if correct is None else True),
            "out": AttributeResult(is_correct=correct, expected="a\nb", actual="a\nc", diff="  a\n- b\n+ c"),
        }
        return VerifierReport(id=f"{group}-{i}", group=group, type=kind, duration=0.5, results=attributes)

    core = [report("basic", "Core", i, True) for i in range(3)]
    extra = [report("extra", "Functionality", i, i > 0) for i in range(2)]
    extra += [report("extra", "Functionality", 9 + i, None) for i in range(unverified)]
    results.add_group_report("basic", "Core", 1.5, core)
    results.add_group_report("extra", "Functionality", 1.0, extra, weight=3.0)
    results.save(path)
    return path


def checks_in(out: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out)["checks"]
    return found


def parsed(xml: bytes) -> ET.Element:
    return ET.fromstring(xml)  # noqa: S314 - we wrote it


def self_graded(path: Path) -> Path:
    """A run whose score picks and grades."""
    rows = [{"id": f"c{i}", "outputs": [{"text": "t", "score": (i * k) % 7 / 7} for k in (1, 2, 3)]} for i in range(40)]
    write_run(kofn.score(rows, aggregate=("mean", "selected(by='score')")), path, sources=[], options={})
    return path


def test_a_double_dipped_number_fails_until_it_is_allowed_and_warns_everywhere(run_kofn, tmp_path):
    run = self_graded(tmp_path / "r")
    wanted = ("--require", "selected(by='score') >= 0")
    code, out, _ = run_kofn("check", run, *wanted, "--summary", tmp_path / "s.md", "--junit", tmp_path / "j.xml")
    assert code == 1
    assert "✗ no double-dipped number: " in out
    assert "! selected(by='score') picks by `score` and is graded by it: double-dipping" in out
    assert "double-dipping" in (tmp_path / "s.md").read_text()
    assert parsed((tmp_path / "j.xml").read_bytes()).get("failures") == "1"
    code, out, _ = run_kofn("check", run, *wanted, "--allow-double-dipping", "--json")
    found = json.loads(out)
    assert (code, [check["kind"] for check in found["checks"]]) == (0, ["require"])
    assert [w["code"] for w in found["coded_warnings"]] == ["double-dipping"]
    assert found["headline"]["text"].startswith("1 of 1 requirement passed: selected(by='score') >= 0: ")
    assert run_kofn("check", run, "--require", "mean >= 0")[0] == 0  # a number that nothing picks
    assert run_kofn("check", run, *wanted, "--strict", "--allow-double-dipping")[0] == 2


def test_requirements_reach_the_rates_of_a_calibrated_judge(run_kofn, arithmetic, tmp_path):
    rates = {"point": 0.7, "low": 0.55, "high": 0.8, "level": 0.95, "method": "wilson"}
    entry = {"n_labels": 120, "raw": rates, "corrected": {**rates, "low": 0.61, "clipped": False}, "kappa": rates,
             "sensitivity": rates, "specificity": rates}  # fmt: skip
    run = load_run(arithmetic)
    judge = {"calibrated": True, "calibration": entry, "fingerprint": "x", "models": ["m"]}
    subject = subject_of(replace(run, result=replace(run.result, judges={"numeric": judge})))
    corrected, low, kappa = (
        run_checks(subject, CheckOptions(requirements=(Requirement.parse(text),)))[0]
        for text in ("corrected.low >= 0.6", "judge.kappa.low >= 0.6", "numeric:judge.kappa >= 0.6")
    )
    assert (str(corrected), corrected.passed) == ("corrected.low >= 0.6: 0.700 [0.610, 0.800], 120 labels", True)
    assert (low.passed, kappa.passed) == (False, True)
    assert low.to_dict()["n_labels"] == 120
    code, _, err = run_kofn("check", arithmetic, "--require", "corrected >= 0.6")
    assert (code, "has no calibrated judge: kofn calibrate LABELS --apply" in err) == (2, True)


# what is asked, and the exit code


def test_with_nothing_asked_the_own_policy_of_the_run_decides(check, arithmetic, tmp_path):
    assert check(arithmetic)[:2] == (1, "✗ core-cases: 24 of 30 core cases pass\n")
    plan = ReportConfig(policy=kofn.runs.PassPolicy.ANY_CASE)
    run = labelled(tmp_path / "r", [[True], [False]], plan)
    assert check(run)[:2] == (0, "✓ any-case: 1 of 2 cases pass (Core 1 of 2)\n")


def test_the_policy_is_left_out_when_something_else_is_asked_unless_it_is_named(check, arithmetic):
    code, out, _ = check(arithmetic, "--require", "any_pass >= 0.8")
    assert (code, out) == (0, "✓ any_pass >= 0.8: 0.850 [0.739, 0.919], 60 cases\n")
    code, out, _ = check(arithmetic, "--require", "any_pass >= 0.8", "--policy", "all-cases")
    assert code == 1
    assert out.splitlines()[0] == "✗ all-cases: 37 of 60 cases pass (Core 24 of 30, Functionality 13 of 30)"
    assert out.count("✗") == 1


@pytest.mark.commands
def test_the_installed_command_exits_0_1_and_2(arithmetic):
    def code(*args: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "kofn", "check", *args], capture_output=True, check=False
        ).returncode

    assert code(str(arithmetic), "--policy", "any") == 0
    assert code(str(arithmetic)) == 1
    assert code(str(arithmetic / "nowhere")) == 2


@pytest.mark.commands
def test_a_closed_pipe_does_not_change_the_exit_code(arithmetic):
    def code(*args: str) -> int:
        command = " ".join([sys.executable, "-m", "kofn", "check", str(arithmetic), *args])
        return subprocess.run(["bash", "-c", f"set -o pipefail; {command} | true"], check=False).returncode

    assert [code(), code("--policy", "any")] == [1, 0]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--require", "any_pas >= 0.8"], "unknown aggregator 'any_pas': did you mean any_pass"),
        (["--require", "pass@9 >= 0.8"], "pass@9 is undefined: the largest set has 5 candidates; ask for k <= 5"),
        (["--require", "any_pass"], "requirement 'any_pass': expected such as 'any_pass >= 0.8'"),
        (["--require", ".low >= 1"], "requirement '.low >= 1': expected such as"),
        (["--require", "any_pass >= 1e999"], "a bound is a finite number"),
        (["--require", "any_pass >= 1.2.3"], "'1.2.3' is not a number"),
        (["--require", "numerc:any_pass >= 1"], "unknown metric 'numerc': did you mean numeric?"),
        (["--require", "numeric:pass_rate >= 1"], "pass_rate is of whole cases: ask for it without a metric"),
        (["--require", "nowhere.module:thing >= 1"], "cannot import nowhere"),
        (["--require", "any_pass >= 1", "--each", "knid"], "unknown field 'knid': did you mean kind or id?"),
        (["--each", "kind"], "--each says where --require must hold"),
        (["--policy", "some"], "unknown policy 'some'"),
        (["--min-passes", "6"], "the largest set has 5 candidates"),
        (["--min-passes", "1/6"], "the largest set has 5 candidates"),
        (["--min-passes", "5/3"], "no more passes than candidates"),
        (["--min-passes", "0"], "expected at least 1"),
        (["--min-passes", "most"], "expected M or M/N"),
        (["--max-cost", "-1"], "expected a number of 0 or more"),
        (["--max-cost", "nan"], "expected a number of 0 or more"),
        (["--alpha", "5", "--policy", "any"], "expected a number between 0 and 1"),
        (["--baseline", "/nowhere"], "/nowhere: no such directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_2(check, arithmetic, args, said):
    code, out, err = check(arithmetic, *args)
    assert (code, out) == (2, "")
    assert err.startswith("kofn: ")
    assert err.count("\n") == 1
    assert said in err


# requirements on numbers


def test_the_stored_estimate_is_what_is_compared(check, arithmetic):
    stored = load_run(arithmetic).result.get("any_pass", segment="kind=two steps")
    _, out, _ = check(arithmetic, "--require", "any_pass >= 0.8", "--each", "kind", "--json")
    second = checks_in(out)[2]
    assert second["segment"] == "kind=two steps"
    assert [second[k] for k in ("point", "low", "high", "n")] == [stored.point, stored.low, stored.high, stored.n]


@pytest.mark.parametrize("options", [{}, {"cluster": "c"}, {"weight": "w"}, {"interval": "t", "level": 0.8, "seed": 3}])
def test_a_number_the_run_does_not_hold_is_made_as_the_run_made_its_own(check, tmp_path, options):
    rng = random.Random(1)
    rows = [
        {"id": str(i), "passes": [rng.random() < 0.6 for _ in range(5)], "c": i // 3, "w": 1 + i % 4, "s": i % 2}
        for i in range(40)
    ]
    whole = kofn.score(rows, aggregate=["pass@3", "std"], by="s", everything=True, **options)
    first = kofn.score(rows, aggregate="any_pass", everything=True, **options)
    write_run(first, tmp_path / "r", sources=[], options=options)
    _, out, _ = check(tmp_path / "r", "--require", "pass@3>=.5", "--require", "std<1", "--each", "s", "--json")
    found = [(c["aggregator"], c["segment"], c["point"], c["low"], c["high"], c["method"]) for c in checks_in(out)]
    assert found == [(e.aggregator, e.segment, e.point, e.low, e.high, e.method) for e in whole.estimates]


def test_a_bound_on_an_end_of_the_interval_looks_at_that_end(check, arithmetic):
    assert check(arithmetic, "--require", "any_pass.low >= 73%")[0] == 0
    assert check(arithmetic, "--require", "any_pass.low >= 75%")[0] == 1
    assert check(arithmetic, "--require", "any_pass.high < 0.91")[0] == 1
    assert check(arithmetic, "--require", "any_pass.high < 0.92")[0] == 0


def test_every_segment_must_hold_and_a_small_one_is_marked(check, tmp_path):
    country = ["BR"] * 40 + ["AR"] * 4
    run = labelled(tmp_path / "r", [[True]] * 42 + [[False]] * 2, country=country)
    code, out, _ = check(run, "--require", "any_pass >= 0.9", "--each", "country")
    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith("✓ any_pass >= 0.9: 0.955")
    assert lines[1].startswith("✗ any_pass >= 0.9 in country=AR: 0.500")
    assert lines[1].endswith(", 4 cases (few cases)")
    assert lines[2].startswith("✓ any_pass >= 0.9 in country=BR: 1.000")
    assert "few" not in lines[0] + lines[2]


def test_a_segment_where_the_number_is_undefined_fails_and_says_why(check, tmp_path):
    run = labelled(tmp_path / "r", [[True]] * 3 + [[None]] * 2, country=["BR"] * 3 + ["AR"] * 2)
    code, out, _ = check(run, "--require", "any_pass >= 0", "--each", "country", "--allow-missing")
    assert code == 1
    assert "✗ any_pass >= 0 in country=AR: undefined: 2 missing, no other (few cases)" in out.splitlines()


def test_a_bound_on_an_interval_that_is_not_there_fails(check, tmp_path):
    run = labelled(tmp_path / "r", [[True, False]])
    code, out, _ = check(run, "--require", "mean.low >= 0")
    assert (code, out.splitlines()[0]) == (1, "✗ mean.low >= 0: 0.500 without an interval, 1 case")


def test_a_requirement_names_the_metric_where_there_are_several(check, tmp_path):
    rows = [{"id": str(i), "reference": "the cat", "outputs": ["the cat sat", "no"]} for i in range(5)]
    result = kofn.score(rows, metric=["exact_match", "token_f1"], extract="text")
    write_run(result, tmp_path / "r", sources=[], options={})
    _, out, _ = check(tmp_path / "r", "--require", "max > .5", "--require", "token_f1:max > .5")
    assert [line[0] for line in out.splitlines()[:2]] == ["✗", "✓"]


def test_an_aggregator_of_the_users_own_is_found_by_its_stored_name(check, tmp_path):
    def spread(one):
        return max(one.values) - min(one.values)

    rows = [{"id": str(i), "scores": [0.1 * i, 0.5]} for i in range(4)]
    result = kofn.score(rows, aggregate=[spread])
    write_run(result, tmp_path / "r", sources=[], options={}, report=ReportConfig(verdict="spread >= 0.2"))
    assert check(tmp_path / "r", "--require", "spread <= 0.5", "--require", "spread > 0.1")[0] == 0
    assert check(tmp_path / "r", "--baseline", tmp_path / "r")[0] == 0


def test_a_field_of_lists_has_no_segments(check, tmp_path):
    rows = [{"id": "a", "choices": ["x", "y"], "reference": "A", "outputs": ["A", "B"]}]
    write_run(kofn.score(rows, everything=True), tmp_path / "r", sources=[], options={})
    code, _, err = check(tmp_path / "r", "--require", "any_pass > 0", "--each", "choices")
    assert (code, err) == (2, "kofn: field 'choices' holds lists or objects: expected one plain value a case\n")


def test_groups_and_types_of_the_report_are_segments_too(check, arithmetic):
    _, out, _ = check(arithmetic, "--require", "pass_rate >= 0.5", "--each", "group", "--each", "type", "--json")
    found = {c["segment"]: (c["n"], c["passed"]) for c in checks_in(out)}
    assert found == {
        None: (60, True),
        "group=one step": (30, True),
        "group=two steps": (30, False),
        "type=Core": (30, True),
        "type=Functionality": (30, False),
    }


def test_the_score_of_a_requirement_is_the_score_of_the_report(check, arithmetic, tmp_path):
    for run in (arithmetic, programs(tmp_path / "p")):
        _, out, _ = check(run, "--require", "score >= 0", "--require", "pass_rate >= 0", "--json")
        score, rate = checks_in(out)
        evaluation = load_run(run).evaluation
        assert score["point"] == pytest.approx(evaluation.score(), abs=1e-12)
        assert score["low"] < score["point"] < score["high"]
        assert rate["point"] == sum(evaluation.pass_counts.values()) / sum(evaluation.total_counts.values())


finite = st.floats(-2, 2, allow_nan=False)


@given(finite, finite, finite, st.sampled_from([">=", ">", "<=", "<"]), st.sampled_from(["point", "low", "high"]))
def test_raising_a_bound_never_makes_a_failing_requirement_pass(value, one, other, operator, part):
    lax, strict = sorted([one, other], reverse=operator in ("<=", "<"))
    e = Estimate(aggregator="mean", point=value, low=value, high=value, level=0.95, n=9, n_missing=0, method="t")
    meets = [Requirement(name="mean", part=part, operator=operator, bound=b).decide(e).passed for b in (lax, strict)]
    assert meets in ([True, True], [True, False], [False, False])


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=6),
    st.sampled_from(["any_pass", "pass@2.low", "score", "mean.high"]),
)
def test_the_same_holds_for_every_line_of_a_run(arithmetic_subject, bounds, name):
    previous = None
    for bound in sorted(bounds):
        lines = requirement_checks(arithmetic_subject, Requirement.parse(f"{name} >= {bound:.9f}"), ["kind"])
        now = {c.segment for c in lines if c.passed}
        assert previous is None or now <= previous
        previous = now


@pytest.fixture(scope="module")
def arithmetic_subject(arithmetic):
    return subject_of(load_run(arithmetic))


def test_a_line_shows_enough_digits_to_see_why_it_fails():
    e = Estimate(aggregator="m", point=0.79999, low=None, high=None, level=0.95, n=9, n_missing=0, method="none")
    assert Requirement.parse("m >= 0.8").decide(e).reason == "m >= 0.8: 0.79999, 9 cases"
    assert Requirement.parse("m >= 0.7").decide(e).reason == "m >= 0.7: 0.800, 9 cases"


# no drop against a baseline


def test_a_real_drop_fails_and_a_wobble_does_not(check, tmp_path):
    base = labelled(tmp_path / "base", drawn(0.7, seed=1), ReportConfig(verdict="majority_pass"))
    wobble = labelled(tmp_path / "wobble", drawn(0.7, seed=2), ReportConfig(verdict="majority_pass"))
    worse = labelled(tmp_path / "worse", drawn(0.5, seed=3), ReportConfig(verdict="majority_pass"))
    code, out, _ = check(wobble, "--baseline", base)
    assert (code, out[0]) == (0, "✓")
    code, out, _ = check(worse, "--baseline", base, "--json")
    [found] = checks_in(out)
    assert code == 1
    assert found["name"] == "no drop in majority_pass"
    assert found["difference"] < 0
    assert found["high"] < 0
    assert found["p_adjusted"] < 0.05
    assert found["wins"] < found["losses"]
    assert check(base, "--baseline", worse)[0] == 0  # a rise is no drop


def test_a_line_shows_both_values_the_difference_and_who_took_no_part(check, tmp_path):
    base = labelled(tmp_path / "base", [[True]] * 30 + [[None]], ReportConfig(task="one", verdict="any_pass"))
    run = labelled(tmp_path / "run", [[False]] * 10 + [[True]] * 25, ReportConfig(task="two", verdict="any_pass"))
    code, out, _ = check(run, "--baseline", base)
    line = out.splitlines()[0]
    assert code == 1
    assert line.startswith("✗ no drop in any_pass: 1.000 in base, 0.667 here, difference -0.333 [")
    assert "p = 0.0020, 0 wins and 10 losses in 30 cases" in line
    assert "; 4 cases unmatched; 1 without a value in one of the runs; another task there: one" in line


def test_several_numbers_are_adjusted_together(check, tmp_path):
    base = labelled(tmp_path / "base", [[True]] * 40)
    run = labelled(tmp_path / "run", [[False]] * 6 + [[True]] * 34)
    args = ("--require", "any_pass > 0", "--require", "any_pass.high > 0", "--require", "all_pass > 0", "--baseline")
    code, out, _ = check(run, *args, base, "--json")
    drops = [c for c in checks_in(out) if c["kind"] == "baseline"]
    assert [d["aggregator"] for d in drops] == ["any_pass", "all_pass"]  # each once
    assert [d["p"] for d in drops] == [0.03125] * 2
    assert [d["p_adjusted"] for d in drops] == [0.0625] * 2
    assert code == 0
    assert check(run, "--require", "any_pass > 0", "--baseline", base)[0] == 1  # alone it is significant


def test_for_a_metric_where_less_is_better_a_rise_is_the_drop(check, tmp_path):
    def errors(prediction, reference):
        return float(prediction)

    errors.higher_is_better = False

    def stored(name: str, values: list[int]) -> Path:
        rows = [{"id": str(i), "reference": "0", "outputs": [str(v)]} for i, v in enumerate(values)]
        result = kofn.score(rows, metric=errors, extract="number", aggregate=["mean", "any_pass"])
        write_run(result, tmp_path / name, sources=[], options={}, report=ReportConfig(verdict="mean"))
        return tmp_path / name

    few, many = stored("few", [0] * 20), stored("many", [3] * 12 + [0] * 8)
    code, out, _ = check(many, "--baseline", few, "--json")
    [found] = checks_in(out)
    assert (code, found["higher_is_better"], found["wins"], found["losses"]) == (1, False, 0, 12)
    assert check(few, "--baseline", many)[0] == 0
    assert check(many, "--require", "any_pass >= 0", "--baseline", few)[0] == 1  # passes are better however scored


def test_where_nobody_knows_which_way_is_better_the_requirement_says_it(check, tmp_path):
    def stored(name: str, answers: list[str]) -> Path:
        rows = [{"id": str(i), "reference": "1", "outputs": [{"text": a} for a in answers]} for i in range(20)]
        write_run(kofn.score(rows, extract="number"), tmp_path / name, sources=[], options={})
        return tmp_path / name

    same, mixed = stored("same", ["1", "1", "1"]), stored("mixed", ["1", "2", "3"])
    assert check(mixed, "--require", "unique_answers <= 9", "--baseline", same)[0] == 1
    assert check(mixed, "--require", "unique_answers >= 0", "--baseline", same)[0] == 0


def test_programs_are_compared_by_the_cases_that_pass(check, tmp_path):
    base, run = programs(tmp_path / "base"), programs(tmp_path / "run", unverified=1)
    code, out, _ = check(run, "--baseline", base, "--allow-missing")
    assert code == 0
    assert out.splitlines()[0].startswith("✓ no drop in pass_rate: 0.800 in base, 0.800 here, difference +0.000")
    assert "1 case unmatched; too few cases to find any drop" in out


def test_ids_that_return_in_another_group_are_paired_within_their_group(check, tmp_path):
    def saved(name: str, correct: bool) -> Path:
        results = CorrectnessResults(problem_name="p", name=name)
        for group in ("a", "b"):
            right = {"x": AttributeResult(is_correct=correct or group == "b")}
            reports = [VerifierReport(id=str(i), group=group, type="Core", results=right) for i in range(8)]
            results.add_group_report(group, "Core", 0.0, reports)
        results.save(tmp_path / name)
        return tmp_path / name

    code, out, _ = check(saved("new", correct=False), "--baseline", saved("old", correct=True), "--json")
    [found] = checks_in(out)
    assert (code, found["n"], found["losses"], found["ties"]) == (1, 16, 8, 8)


def test_runs_without_a_shared_case_or_metric_cannot_be_compared(check, arithmetic, tmp_path):
    other = labelled(tmp_path / "other", [[True]] * 3)
    code, _, err = check(other, "--baseline", programs(tmp_path / "p"), "--require", "pass_rate > 0")
    assert (code, err) == (2, "kofn: baseline p: has no case of other: compare runs of the same cases\n")
    code, _, err = check(other, "--baseline", arithmetic)
    assert (code, err) == (
        2,
        "kofn: baseline arithmetic: has no pass:first (it has numeric): compare runs graded alike\n",
    )


# passes a case, cost, and what is missing


def test_every_core_case_needs_its_passes(check, arithmetic, tmp_path):
    code, out, _ = check(arithmetic, "--min-passes", "1")
    assert code == 1
    assert out.startswith("✗ at least 1 pass: 27 of 30 core cases; short: q00 (0 of 5), q42 (0 of 5), q44 (0 of 5)\n")
    code, out, _ = check(arithmetic, "--min-passes", "3", "--json")
    [found] = checks_in(out)
    counts = load_run(arithmetic).result.scored[0].sets.counts[1]
    assert found["n"] == 30
    assert found["n_met"] == sum(counts[i] >= 3 for i in range(0, 60, 2))  # every second case is of one step, Core
    assert " and " in found["reason"]
    run = labelled(tmp_path / "r", [[True, True, False], [True, True, None]])
    assert check(run, "--min-passes", "2", "--allow-missing")[0] == 0
    code, out, _ = check(run, "--min-passes", "2/3", "--allow-missing")
    assert (code, out.splitlines()[0]) == (1, "✗ at least 2 of 3 passes: 1 of 2 core cases; short: c1 (2 of 2)")


def test_without_core_cases_there_is_nothing_reliable(check, tmp_path):
    plan = ReportConfig(group="g", types={"x": "Regression"})
    code, out, _ = check(labelled(tmp_path / "r", [[True]], plan, g=["x"]), "--min-passes", "1")
    assert (code, out.splitlines()[0]) == (1, "✗ at least 1 pass: no core cases")


def test_a_program_is_one_attempt(check, tmp_path):
    run = programs(tmp_path / "p")
    assert check(run, "--min-passes", "1")[0] == 0
    assert check(run, "--min-passes", "2")[0] == 2


def test_the_cost_of_all_candidates_is_bounded(check, arithmetic, tmp_path):
    total = sum(o["cost"] for line in ARITHMETIC.read_text().splitlines() for o in json.loads(line)["outputs"])
    code, out, _ = check(arithmetic, "--max-cost", repr(round(total, 9)))
    assert (code, out.splitlines()[0]) == (0, "✓ cost <= 0.0058046: 0.0058046 for 300 candidates")
    assert check(arithmetic, "--max-cost", "0.005")[0] == 1
    rows = [{"id": "a", "outputs": [{"pass": True, "cost": 1.5}, {"pass": True}]}]
    write_run(kofn.score(rows, everything=True), tmp_path / "some", sources=[], options={})
    assert "✓ cost <= 2: 1.5 for 2 candidates; 1 without a cost" in check(tmp_path / "some", "--max-cost", "2")[1]
    for run in (labelled(tmp_path / "r", [[True]]), programs(tmp_path / "p")):
        code, _, err = check(run, "--max-cost", "1")
        assert code == 2
        assert "no candidate has a cost" in err


def test_what_is_missing_fails_until_it_is_allowed(check, tmp_path):
    run = labelled(tmp_path / "r", [[True, None], [True, True], [None, None]])
    code, out, _ = check(run, "--require", "any_pass >= 0.5")
    assert code == 1
    assert out.splitlines()[1:] == [
        "✗ complete: 3 candidates not graded, 1 case unverified; --allow-missing lets that pass",
    ]
    code, out, _ = check(run, "--require", "any_pass >= 0.5", "--allow-missing")
    assert (code, out.splitlines()[1]) == (0, "✓ complete: 3 candidates not graded, 1 case unverified; allowed")
    assert "complete" not in check(labelled(tmp_path / "whole", [[True]]))[1]


def test_an_unverified_program_case_does_not_pass_and_has_no_score(check, tmp_path):
    demands = ("--require", "pass_rate >= 0.8", "--require", "score >= 0")
    code, out, _ = check(programs(tmp_path / "p", unverified=2), *demands)
    assert code == 1
    assert out.splitlines()[0].endswith("7 cases")
    assert out.splitlines()[1].endswith("5 cases, 2 missing")
    assert "✗ complete: 2 cases unverified" in out


def test_a_failure_of_the_harness_fails_whatever_is_asked(check, tmp_path):
    run = programs(tmp_path / "p", failure="docker died")
    for policy in kofn.runs.PassPolicy:
        code, out, _ = check(run, "--policy", policy.value)
        assert (code, out.splitlines()[0]) == (1, f"✗ {policy.value}: the harness failed: docker died")
    code, out, _ = check(run, "--require", "pass_rate >= 0", "--allow-missing")
    assert (code, out.splitlines()[1]) == (1, "✗ harness: it failed: docker died")


def test_the_same_demands_from_python():
    with pytest.raises(InputError, match="give a requirement too"):
        CheckOptions(each=("kind",))
    assert [str(MinPasses.parse(text)) for text in ("1", " 2 / 3 ")] == ["at least 1 pass", "at least 2 of 3 passes"]


# what it leaves for programs and for CI


@pytest.fixture
def hostile(tmp_path) -> Path:
    results = CorrectnessResults(problem_name=HOSTILE, name="n")
    wrong = {HOSTILE: AttributeResult(is_correct=False, expected=HOSTILE, diff=f"````\n{HOSTILE}\n" + "y" * 50_000)}
    nothing = {"x": AttributeResult(is_correct=None)}
    reports = [
        VerifierReport(id=HOSTILE, group=HOSTILE, type="Core", results=wrong, duration=1.25),
        VerifierReport(id="skipped", group=HOSTILE, type="Core", results=nothing),
        VerifierReport(id="right", group=HOSTILE, type="Core", results={"x": AttributeResult(is_correct=True)}),
    ]
    results.add_group_report(HOSTILE, "Core", 1.25, reports)
    results.save(tmp_path / "hostile")
    return tmp_path / "hostile"


def test_json_holds_every_check_with_its_numbers(check, arithmetic):
    code, out, _ = check(arithmetic, "--policy", "core-cases", "--require", "any_pass >= 0.8", "--json")
    found = json.loads(out)
    assert (code, found["run"], found["passed"], len(found["checks"])) == (1, "arithmetic", False, 2)
    for one in found["checks"]:
        assert list(one)[:5] == ["name", "kind", "segment", "passed", "reason"]


def test_hostile_names_cannot_move_the_cursor_or_add_a_line(check, hostile):
    code, out, _ = check(hostile, "--require", "pass_rate >= 0", "--each", "group", "--min-passes", "1")
    assert code == 1
    assert len(out.splitlines()) == 4
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", out)


def test_junit_is_xml_whatever_the_cases_are_called(check, hostile, tmp_path):
    code, _, _ = check(
        hostile,
        "--require",
        "pass_rate >= 0.1",
        "--each",
        "group",
        "--junit",
        tmp_path / "new" / "j.xml",
        "--junit-cases",
    )
    assert code == 1
    root = parsed((tmp_path / "new" / "j.xml").read_bytes())
    requirements, group = root.findall("testsuite")
    assert [c.find("failure") is None for c in requirements] == [True, True, False]
    assert group.get("name") == escape_xml(HOSTILE)
    wrong, skipped, right = group.findall("testcase")
    assert (wrong.get("name"), float(wrong.get("time"))) == (escape_xml(HOSTILE), 1.25)
    assert escape_xml(HOSTILE) in wrong.findtext("failure")
    assert "characters more)" in wrong.findtext("failure")
    assert skipped.find("skipped") is not None
    assert right.find("failure") is None
    assert right.find("skipped") is None
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("6", "2", "1")


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_becomes_legal_xml(text):
    element = ET.Element("a", b=escape_xml(text))
    element.text = escape_xml(text)
    again = parsed(ET.tostring(element))
    assert (again.text or "") == escape_xml(text)
    assert again.get("b") == escape_xml(text)


def test_junit_has_one_test_per_requirement_and_fails_as_the_exit_code_does(run_kofn, arithmetic, tmp_path):
    for bound, code in ((0.8, 0), (0.9, 1)):
        got, out, _ = run_kofn("check", arithmetic, "--require", f"any_pass >= {bound}", "--require", "mean >= 0",
                               "--junit", tmp_path / "j.xml")  # fmt: skip
        root = parsed((tmp_path / "j.xml").read_bytes())
        assert (got, root.get("tests"), root.get("failures")) == (code, "2", str(code))
        word = "failed" if code else "passed"
        first = out.splitlines()[0]
        assert first.startswith(
            f"{1 if code else 2} of 2 requirements {word}: any_pass >= {bound}: 0.850 [0.739, 0.919], 60"
        )
    code, _, err = run_kofn("check", arithmetic, "--junit-cases")
    assert (code, "--junit-cases adds cases to the file of --junit: give --junit too" in err) == (2, True)


def test_a_failing_case_shows_its_diff_in_junit(check, tmp_path):
    check(programs(tmp_path / "p"), "--junit", tmp_path / "j.xml", "--junit-cases")
    suite = parsed((tmp_path / "j.xml").read_bytes()).findall("testsuite")[2]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("extra", "2", "1")
    assert suite.findtext("testcase/failure") == "out:\n  a\n- b\n+ c"


def test_of_very_many_cases_junit_lists_the_failing_ones_and_says_so():
    results = CorrectnessResults(problem_name="p", name="n")
    outcome = {"x": AttributeResult(is_correct=True)}, {"x": AttributeResult(is_correct=False)}
    reports = [VerifierReport(id=str(i), group="g", type="Core", results=outcome[i < 3]) for i in range(MOST_CASES + 1)]
    results.add_group_report("g", "Core", 0.0, reports)
    run = kofn.runs.Run(
        name="r",
        evaluation=results.model_copy(update={"reports": []}),
        reports=results.to_polars(),
        manifest={},
        result=None,
    )
    suite = parsed(junit_xml(run, [], cases=True)).findall("testsuite")[1]
    assert [c.get("name") for c in suite.findall("testcase")] == ["0", "1", "2"]
    properties = {p.get("name"): p.get("value") for p in suite.findall("properties/property")}
    assert properties == {
        "kofn.listed": "failing cases only",
        "kofn.cases": "10001",
        "kofn.passed": "9998",
        "kofn.unverified": "0",
    }


def test_the_summary_is_appended_where_github_says(check, arithmetic, tmp_path, monkeypatch):
    page = tmp_path / "summary.md"
    page.write_text("# before")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    check(arithmetic, "--require", "any_pass >= 0.8")
    check(arithmetic)
    text = page.read_text()
    first = "1 of 1 requirement passed: any\\_pass &gt;= 0.8: 0.850 \\[0.739, 0.919\\], 60 cases"
    assert text.startswith(f"# before\n## arithmetic: ✅ 1 of 1 passed\n\n{first}\n\n37 of 60 cases pass, task sums\n")
    assert "\n## arithmetic: ❌ 1 of 1 failed\n" in text
    assert text.count("### Failing cases: 23, the first 10") == 2
    assert text.count("```text") == 20


def test_nothing_in_a_summary_is_markup_of_a_case(check, hostile, tmp_path):
    check(hostile, "--require", "pass_rate >= 0.1", "--each", "group", "--summary", tmp_path / "s.md")
    lines = (tmp_path / "s.md").read_text().split("\n")
    table = [line for line in lines if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in table] == [5] * 5
    fence = next(line for line in lines if line.endswith("`text"))
    inside = lines[lines.index(fence) + 1 : lines.index(fence.removesuffix("text"))]
    assert any("</failure><script>" in line for line in inside)
    outside = [line for line in lines if line not in inside]
    assert not [line for line in outside if "<" in line]
    assert sum(line.startswith("#") for line in outside) == 2
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", "".join(lines))


@given(st.text(st.sampled_from("`~ab\n "), max_size=40))
def test_no_text_ends_its_fence(text):
    first, *inside, last = code_block(text.split("\n"), "text")
    assert first == f"{last}text"
    assert set(last) == {"`"}
    assert all(last not in line for line in inside)
    assert "\n".join(inside) == text


def test_a_summary_of_very_many_requirements_shows_the_failing_ones(arithmetic):
    many = [Check(name=f"r{i}", kind="require", passed=i != 999, found="x") for i in range(1000)]
    text = summarize_checks(load_run(arithmetic), CheckReport(run="r", checks=tuple(many)))
    assert "| ❌ | r999 |" in text
    assert "and 800 more" in text


def test_a_file_that_cannot_be_written_is_exit_3(check, arithmetic, tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--junit", "--summary"):
        code, _, err = check(arithmetic, option, tmp_path / "file" / "x")
        assert code == 3
        assert err.startswith(f"kofn: {tmp_path / 'file' / 'x'}: cannot ")


def test_real_runs_pass_what_they_are_and_fail_more(check, run_kofn, sets_folder, tmp_path):
    run_kofn("score", sets_folder / "qwen_math100x8.jsonl", "--out", tmp_path / "q")
    estimate = load_run(tmp_path / "q").result.get("pass@5")
    assert check(tmp_path / "q", "--require", f"pass@5 >= {estimate.point!r}", "--allow-missing")[0] == 0
    assert check(tmp_path / "q", "--require", f"pass@5 > {estimate.point!r}", "--allow-missing")[0] == 1
    assert check(tmp_path / "q", "--baseline", tmp_path / "q", "--allow-missing")[0] == 0


def test_checks_of_a_subject_need_no_files(arithmetic_subject):
    demands = CheckOptions(requirements=(Requirement.parse("any_pass >= 0.8"),), max_cost=1.0, passes=MinPasses(1))
    assert [c.kind for c in run_checks(arithmetic_subject, demands)] == ["require", "passes", "cost"]
    assert find_measure(arithmetic_subject, "numeric:any_pass").name == "any_pass"


def test_an_interval_of_the_run_that_does_not_suit_a_number_is_named(check, tmp_path):
    rows = [{"id": str(i), "passes": [1, i % 2], "g": i % 3} for i in range(12)]
    result = kofn.score(rows, aggregate="any_pass", interval="wilson", everything=True)
    plan = ReportConfig(group="g", weights={"1": 5.0})
    write_run(result, tmp_path / "r", sources=[], options={"interval": "wilson"}, report=plan)
    code, _, err = check(tmp_path / "r", "--require", "mean > 0")
    assert (code, err) == (2, "kofn: mean: interval 'wilson' is for 0/1 values only: use 'bootstrap' or 't'\n")
    assert check(tmp_path / "r", "--require", "score.low > 0", "--require", "pass_rate.low > 0")[0] == 0


def test_a_bound_that_no_share_can_meet_is_a_mistake(check, arithmetic):
    code, _, said = check(arithmetic, "--require", "any_pass >= 80")
    assert code == 2
    assert "any_pass goes from 0 to 1: write 80%" in said


def test_a_baseline_whose_harness_failed_is_no_baseline(check, tmp_path):
    broken = programs(tmp_path / "old", failure="docker died")
    code, _, said = check(programs(tmp_path / "new"), "--baseline", broken)
    assert (code, "its harness failed: docker died" in said) == (2, True)


def test_a_baseline_of_other_questions_under_the_same_ids_is_refused(check, tmp_path):
    def written(name, shift):
        rows = [{"id": i, "question": f"{i + shift}?", "reference": str(i), "outputs": [str(i)]} for i in range(40)]
        write_run(kofn.score(rows, everything=True), tmp_path / name, sources=[], options={})
        return tmp_path / name

    code, _, said = check(written("new", 0), "--baseline", written("old", 1))
    assert (code, "40 of 40 cases of the same id ask or expect something else" in said) == (2, True)


def test_a_drop_in_the_cases_that_weigh_most_is_found(check, tmp_path):
    """Half the cases weigh 50 times the others, and those are the ones that fail."""

    def written(name, heavy):
        rows = [
            {"id": i, "w": 50 if i % 2 else 1, "passes": [heavy if i % 2 else i % 4 == 0]} for i in range(40)
        ]  # fmt: skip
        write_run(kofn.score(rows, everything=True, weight="w"), tmp_path / name, sources=[], options={"weight": "w"})
        return tmp_path / name

    code, out, _ = check(written("new", heavy=False), "--baseline", written("old", heavy=True))
    assert code == 1
    assert "0.990 in old, 0.010 here" in out


def test_m_of_n_is_a_share_in_larger_sets(check, tmp_path):
    rows = [{"id": i, "passes": [1, 1, 1, 0, 0, 0, 0, 0]} for i in range(30)]
    write_run(kofn.score(rows), tmp_path / "run", sources=[], options={})
    assert check(tmp_path / "run", "--min-passes", "3/5")[0] == 1
    assert check(tmp_path / "run", "--min-passes", "3/8")[0] == 0
    assert check(tmp_path / "run", "--min-passes", "3")[0] == 0
