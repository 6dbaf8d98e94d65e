"""The pytest plugin, in real sessions of pytest: what repeats, what passes, what is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from fnmatch import fnmatch
from xml.etree import ElementTree as ET

import pytest

from kofn.errors import InputError
from kofn.integrations.repeated_tests import RepeatRequest
from kofn.runs.record import load_run

FLAKY = """
    import itertools, pytest
    runs = itertools.count(1)
"""


@pytest.fixture
def session(tmp_path):
    """session(source, *arguments): pytest on a file with this source, our plugin loaded by its module's name.

    In a process of its own, and without the fixture `pytester`: that takes modules out of this process again.
    """
    loaded = (
        "-p",
        "no:kofn",
        "-p",
        "kofn.integrations.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COLUMNS"))}

    def run(source, *arguments):
        (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
        command = [sys.executable, "-m", "pytest", *loaded, "--strict-markers", "--rootdir=.", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, check=False)
        return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0.0)

    return run


def cases(path):
    """JUnit's test cases: name -> (element, its properties)."""
    found = ET.parse(path).getroot().iter("testcase")  # noqa: S314 - our own file
    return {c.get("name"): (c, {p.get("name"): p.get("value") for p in c.iter("property")}) for c in found}


def test_loading_the_plugin_imports_nothing_of_kofn_and_nothing_heavy():
    code = (
        "import pytest, sys; before = set(sys.modules); import kofn.integrations.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kofn", "kofn._version", "kofn.integrations", "kofn.integrations.pytest_plugin"]


def test_a_session_without_marked_tests_is_left_alone(session):
    result = session("def test_plain(kofn_score):\n    kofn_score(0.5)\n")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*kofn*")


def test_a_test_passes_by_the_aggregate_and_a_failure_says_what_was_required(session, tmp_path):
    source = f"""{FLAKY}
    @pytest.mark.kofn(repeats=5, require="pass_hat(k=3) >= 0.9")
    def test_too_flaky():
        print("said in repeat", n := next(runs))
        assert n not in (2, 4), f"run {{n}}"

    @pytest.mark.kofn(repeats=4, require=["any_pass >= 1", "pass@1 >= 50%"])
    @pytest.mark.parametrize("letter", "ab")
    def test_good_enough(letter):
        if next(runs) % 2:
            raise OSError("away")
    """
    result = session(source, "--junitxml=j.xml")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E       AssertionError: run 2",
            "3 of 5 passed; pass_hat(k=3) = 0.100, required >= 0.9",
            "repeat 2: failed (AssertionError: run 2)",
            "repeat 4: failed (AssertionError: run 4)",
            "shown above: repeat 2",
            "said in repeat 2",
            "*= kofn =*",
            "*test *repeats *passed *required *found",
            "✗ *test_too_flaky * 5 * 3 *pass_hat(k=3) >= 0.9 *0.100",
            "✓ *test_good_enough[[]a[]] * 4 * 2 *any_pass >= 1 *1.000",
            "✓ * pass@1 >= 0.5 *0.500",
            "FAILED *test_too_flaky - 3 of 5 passed; pass_hat(k=3) = 0.100, req*",
        ]
    )
    result.stdout.no_fnmatch_line("said in repeat 4")
    junit = cases(tmp_path / "j.xml")
    assert list(junit) == ["test_too_flaky", "test_good_enough[a]", "test_good_enough[b]"]
    case, properties = junit["test_too_flaky"]
    assert properties == {
        "kofn.repeats": "5",
        "kofn.passes": "3",
        "kofn.pass_hat(k=3)": "0.1",
        "kofn.required": "pass_hat(k=3) >= 0.9",
    }
    assert case.find("failure").get("message") == "3 of 5 passed; pass_hat(k=3) = 0.100, required >= 0.9"
    assert "run 2" in case.find("failure").text
    case, properties = junit["test_good_enough[b]"]
    assert case.find("failure") is None
    assert (properties["kofn.any_pass"], properties["kofn.pass@1"]) == ("1", "0.5")


def test_each_repeat_has_fresh_function_fixtures_and_a_fresh_instance_and_shares_wider_ones(session):
    source = f"""{FLAKY}
    import unittest
    log = []

    @pytest.fixture(scope="module")
    def wide():
        log.append("wide")
        yield
        log.append("wide down")

    @pytest.fixture
    def narrow(wide, tmp_path):
        log.append("narrow")
        yield tmp_path
        log.append("narrow down")

    @pytest.mark.kofn(repeats=3)
    def test_function(narrow, monkeypatch):
        assert not list(narrow.iterdir())
        (narrow / "left").write_text("x")

    class TestOfClass:
        def setup_method(self):
            assert not hasattr(self, "seen")
            self.seen = True

        @pytest.mark.kofn(repeats=2)
        def test_method(self):
            self.other = assert_new(self)

    def assert_new(one):
        assert not hasattr(one, "other")
        return 1

    class TestOfUnittest(unittest.TestCase):
        def setUp(self):
            log.append("up")

        @pytest.mark.kofn(repeats=4, require="pass@1 >= 0.5")
        def test_case(self):
            self.assertEqual(next(runs) % 2, 1)

    def test_log():
        assert log == ["wide", *["narrow", "narrow down"] * 3, *["up"] * 4]
    """
    result = session(source)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["✓ *test_case * 4 * 2 *pass@1 >= 0.5 *0.500"])


def test_a_fixture_that_fails_is_an_error_and_ends_the_repeats_one_that_fails_at_teardown_does_not(session):
    source = f"""{FLAKY}
    ends = itertools.count(1)
    bodies = []

    @pytest.fixture
    def server():
        if next(runs) == 2:
            raise ConnectionError("no server")

    @pytest.fixture
    def closing():
        yield
        if next(ends) == 2:
            raise RuntimeError("will not close")

    @pytest.mark.kofn(repeats=4)
    def test_set_up(server):
        bodies.append(1)

    @pytest.mark.kofn(repeats=4)
    def test_teardown(closing):
        bodies.append(2)

    def test_bodies():
        assert bodies == [1, 2, 2, 2, 2]
    """
    result = session(source)
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at setup of test_set_up*",
            "*ERROR at teardown of test_teardown*",
            "- *not graded: set-up failed: *no server",
        ]
    )


def test_skips_are_not_graded_and_xfail_is_of_the_whole_test(session):
    source = f"""{FLAKY}
    @pytest.mark.kofn(repeats=4, require="pass^2 >= 1")
    def test_two_of_four_skipped():
        if next(runs) in (1, 3):
            pytest.skip("not now")

    @pytest.mark.kofn(repeats=4, require="pass^3 >= 1")
    def test_too_few_graded():
        if next(runs) in (5, 7):
            pytest.skip("not now")

    @pytest.mark.kofn(repeats=3)
    def test_all_skipped():
        pytest.skip("never")

    @pytest.mark.skip(reason="marked")
    @pytest.mark.kofn(repeats=3)
    def test_marked_skip():
        raise AssertionError

    @pytest.mark.kofn(repeats=3)
    def test_says_xfail():
        pytest.xfail("known")

    @pytest.mark.xfail(reason="later", strict=True)
    @pytest.mark.kofn(repeats=3)
    def test_expected_to_fail():
        assert next(runs) % 2

    @pytest.mark.xfail(reason="later")
    @pytest.mark.kofn(repeats=3, require="any_pass >= 1")
    def test_passes_after_all():
        assert next(runs) % 2
    """
    result = session(source)
    result.assert_outcomes(passed=1, failed=1, skipped=2, xfailed=2, xpassed=1)
    result.stdout.fnmatch_lines(["2 of 4 passed (2 skipped); pass^3 = undefined, required >= 1"])


def test_recorded_scores_answers_and_outputs_are_what_is_aggregated(session):
    source = f"""{FLAKY}
    @pytest.mark.kofn(repeats=4, require=["mean >= 0.6", "first <= 0.4", "majority >= 0.8", "unique_texts >= 1"])
    def test_scored(kofn_score):
        n = next(runs)
        kofn_score(0.2 * n)
        kofn_score(answer="last" if n > 1 else "first", cost=0.1, output=f"text {{n}}")

    @pytest.mark.kofn(repeats=2, require="mean > 0.9")
    def test_low(kofn_score):
        kofn_score(0.5)

    @pytest.mark.kofn(repeats=2, require="majority >= 1")
    def test_without_answers():
        pass

    @pytest.mark.kofn(repeats=2)
    def test_wrong_score(kofn_score):
        kofn_score("much")
    """
    result = session(source)
    result.assert_outcomes(passed=0, failed=4)  # 0.2 + 0.4 + 0.6 + 0.8 = 4 * 0.5
    result.stdout.fnmatch_lines(
        [
            "4 of 4 passed; mean = 0.500, required >= 0.6; majority = 0.600, required >= 0.8",
            "2 of 2 passed; mean = 0.500, required > 0.9",
            "repeat 1: passed (score 0.5)",
            "2 of 2 passed; majority = undefined (majority needs answers*kofn_score records such*",
            "E*InputError: kofn_score: value is a number, not 'much'",
        ]
    )


@pytest.mark.long
def test_a_requirement_over_cases_is_on_all_parameters_together_with_an_interval(session, tmp_path):
    source = """
    import pytest

    @pytest.mark.kofn(repeats=2, require=["mean >= 0.7", "mean.low >= 0.7"], over="cases")
    @pytest.mark.parametrize("n", range(20))
    def test_suite(n, kofn_score):
        kofn_score(0.9 if n else 0.0)
        assert n, "the first never works"

    @pytest.mark.kofn(repeats=2, require="pass@1.low >= 0.7", over="cases")
    @pytest.mark.parametrize("n", range(20))
    def test_good(n):
        pass
    """
    result = session(source, "--junitxml=j.xml")
    result.assert_outcomes(passed=41, failed=1)
    result.stdout.fnmatch_lines(
        [
            "38 of 40 passed in 20 cases; mean = 0.855 [[]0.*, 0.*[]], 20 cases, required >= 0.7 of its lower end",
            "0 of 2  test_it.py::test_suite[[]0[]]",
            "E*the first never works",
            "✓ *test_suite (20 cases) * 40 * 38 *mean >= 0.7 *",
            "✗ *mean.low >= 0.7 *",
            "✓ *test_good (20 cases) * 40 * 40 *pass@1.low >= 0.7 *1.000 *",
        ]
    )
    result.stdout.no_fnmatch_line("*over all cases*")
    junit = cases(tmp_path / "j.xml")
    assert len(junit) == 42
    case, properties = junit["test_suite"]
    assert properties["kofn.mean"] == "0.855"
    assert float(properties["kofn.mean.low"]) < 0.7
    assert case.find("failure").get("message").startswith("38 of 40 passed in 20 cases; mean = 0.855")
    assert junit["test_good"][0].find("failure") is None


@pytest.mark.long
def test_a_run_directory_of_all_tests_is_one_that_kofn_reads(session, tmp_path):
    source = f"""{FLAKY}
    @pytest.mark.kofn(repeats=4, require="pass^2 >= 0.4")
    @pytest.mark.parametrize("word", ["a", "b"])
    def test_it(word, kofn_score):
        n = next(runs)
        kofn_score(n / 8, answer=n % 2, cost=0.5, output=f"output {{n}}")
        assert n % 4, "the fourth"

    def test_not_marked():
        pass
    """
    session(source, "--kofn-out", "out").stdout.fnmatch_lines(["run written to out; open out/report.html"])
    run = load_run(tmp_path / "out")
    assert run.task == "pytest"
    assert run.evaluation.verdict.startswith("pass^2 >= 0.4")
    sets = run.result.scored[0].sets
    assert sets.case_ids.to_list() == ["test_it.py::test_it[a]", "test_it.py::test_it[b]"]
    assert [sets.passes.tolist(), sets.costs.tolist()] == [[1, 1, 1, 0] * 2, [0.5] * 8]
    assert run.result.get("pass^2").point == 0.5
    assert run.result.scored[1].sets.values.tolist() == [n / 8 for n in range(1, 9)]
    assert sets.texts.to_list()[0] == "output 1"
    assert (tmp_path / "out" / "report.html").is_file()
    again = session(source, "--kofn-out", "out")
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["ERROR: --kofn-out out: already holds a run of pytest (*"])


@pytest.mark.long
def test_xdist_gathers_what_workers_found(session, tmp_path):
    source = """
    import os, pytest

    @pytest.mark.kofn(repeats=3, require="pass@1 >= 0.5")
    @pytest.mark.parametrize("n", range(6))
    def test_spread(n):
        assert n != 3, os.environ["PYTEST_XDIST_WORKER"]

    @pytest.mark.kofn(repeats=2, require="pass@1 >= 0.9", over="cases")
    @pytest.mark.parametrize("n", range(4))
    def test_pooled(n):
        assert n

    @pytest.mark.kofn(repeats=2, require="pass^9 >= 0.9")
    def test_wrong_marker():
        pass
    """
    result = session(source, "-n", "2", "--kofn-out", "out", "--junitxml=j.xml")
    result.assert_outcomes(passed=5 + 4, failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*test_wrong_marker: mark kofn: require 'pass^9 >= 0.9': needs 9 repeats or more, and there are 2",
            "0 of 3 passed; pass@1 = 0.000, required >= 0.5",
            "✗ *test_pooled (4 cases) * 8 * 6 *",
            "run written to out; *",
        ]
    )
    junit = cases(tmp_path / "j.xml")
    assert junit["test_spread[3]"][1]["kofn.passes"] == "0"
    assert junit["test_pooled"][1]["kofn.pass@1"] == "0.75"
    stored = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (stored["result"]["n_cases"], stored["result"]["n_candidates"]) == (10, 26)


def test_stopping_after_a_failure_counts_tests_not_repeats(session):
    source = f"""{FLAKY}
    @pytest.mark.kofn(repeats=5, require="any_pass >= 1")
    def test_mostly_fails():
        assert next(runs) == 5

    @pytest.mark.kofn(repeats=3)
    def test_fails():
        assert False

    def test_never_reached():
        pass
    """
    result = session(source, "-x")
    result.assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("repeats=0", "repeats=0: expected a whole number of 1 or more"),
        ("repeats='5'", "repeats='5': expected a whole number*"),
        ("3", "3 has no name: write repeats=5, *"),
        ("requires='mean > 1'", "unknown argument 'requires': did you mean require?"),
        ("require='mean'", "requirement 'mean': expected such as*"),
        ("require='pass_ha(k=2) > 0'", "unknown aggregator 'pass_ha': did you mean pass_hat*"),
        ("repeats=2, require='pass^3 > 0'", "require 'pass^3 > 0': needs 3 repeats or more, and there are 2"),
        ("require='mean.low > 0'", "require 'mean.low > 0': one test has no interval over cases: give over='cases'"),
        ("require=[]", "require=[[][]]: expected such as*"),
        ("over='tests'", "over='tests': expected one of test, cases"),
    ],
)
def test_a_marker_that_makes_no_sense_ends_the_session_with_one_line(mark, said):
    """As the plugin reads it; how it tells is tried once below."""
    unnamed, named = eval(f"(lambda *a, **k: (a, k))({mark})")  # noqa: S307 - our own words
    with pytest.raises(InputError) as problem:
        RepeatRequest.of(unnamed, named)
    assert fnmatch(str(problem.value), said)


@pytest.mark.commands
def test_a_wrong_marker_is_a_usage_error_that_names_the_test_and_the_option_overrides(session):
    source = """
    import pytest
    pytestmark = pytest.mark.kofn(repeats=2, require="pass^3 >= 0.5")

    def test_it():
        pass
    """
    result = session(source)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: test_it.py::test_it: mark kofn: require 'pass^3 >= 0.5': needs 3 repeats*"])
    session(source, "--kofn-repeats", "7").stdout.fnmatch_lines(["✓ *test_it * 7 * 7 *"])


def test_coroutines_run_by_another_plugin_repeat_too(session, tmp_path):
    conftest = """
        import asyncio, inspect, pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(pyfuncitem):
            if inspect.iscoroutinefunction(pyfuncitem.obj):
                asyncio.run(pyfuncitem.obj())
                return True

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            assert item.funcargs is not None  # hooks of this kind look at fixtures that must still be there
            return report
        """
    (tmp_path / "conftest.py").write_text(textwrap.dedent(conftest))
    source = f"""{FLAKY}
    @pytest.mark.kofn(repeats=4, require="any_pass >= 1")
    async def test_coroutine():
        assert next(runs) == 2
    """
    session(source).assert_outcomes(passed=1)
