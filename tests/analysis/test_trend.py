"""`kofn trend DIR...`: what changed from run to run, what is noise, and every directory somebody may point it at."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.sealing import reseal

from kofn.analysis.series import (
    TrendPoint,
    build_series,
    case_histories,
    compare_points,
    estimate_spread,
    most_flaky,
    sparkline,
)
from kofn.analysis.trend import build_trend, load_trend
from kofn.cli.analysis_verbs import trend_command as command
from kofn.cli.score_verb import score_command
from kofn.errors import InputError, UnknownName
from kofn.registry import higher_is_better
from kofn.render.trend_html import _shades, heat_map, trend_page
from kofn.render.trend_text import format_trend
from kofn.runs import AttributeResult, CorrectnessResults, VerifierReport
from kofn.runs.index import find_runs, load_all
from kofn.stats import estimate

ROOT = Path(__file__).parents[2]
EVIL = "<script>alert(1)</script>\x1b[31m\u202eRED"
WHEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


# the series itself


def point(name, values, cases=None, **more):
    values = np.array(values, dtype=float)
    cases = [f"c{i}" for i in range(len(values))] if cases is None else cases
    return TrendPoint(name=name, cases=cases, values=values, estimate=estimate(values, **more), **more)


def noisy(rng, rates, runs, n_candidates=1):
    """Runs of a system that does not change: case i passes with rates[i]."""
    return [point(f"r{i}", rng.binomial(n_candidates, rates) / n_candidates) for i in range(runs)]


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=30), st.integers(1, 6))
def test_a_series_of_equal_runs_has_no_real_change_and_no_spread(values, runs):
    found = build_series([point(f"r{i}", values) for i in range(runs)])
    assert not any(c.real for c in found.changes if c is not None)
    assert found.changes[0] is None
    assert all(c is not None and c.sign == 0 for c in found.changes[1:])
    assert found.spread.is_noise() in (True, None)
    assert runs == 1 or found.spread.sd < 1e-12


def test_noise_is_called_real_in_at_most_the_nominal_share_of_series():
    rng = np.random.default_rng(5)
    some, wide = 0, 0
    for _ in range(300):
        found = build_series(noisy(rng, rng.beta(1, 1, 40), 6))
        some += any(c.real for c in found.changes if c is not None)
        wide += not found.spread.is_noise()
    assert some <= 300 * 0.05 + 3 * np.sqrt(300 * 0.05 * 0.95)
    assert 300 * 0.05 - 3.3 * np.sqrt(300 * 0.05 * 0.95) <= wide <= 300 * 0.05 + 3.3 * np.sqrt(300 * 0.05 * 0.95)


@pytest.mark.long
def test_noise_of_shares_is_called_real_in_at_most_the_nominal_share_of_series():
    rng = np.random.default_rng(6)
    some = 0
    for _ in range(100):
        rates = rng.beta(1, 1, 30)
        jitter = [rng.binomial(3, rates) / 3 + rng.uniform(0, 1e-3, 30) for _ in range(4)]  # on no lattice
        some += any(c.real for c in build_series([point("r", v) for v in jitter]).changes if c is not None)
    assert some <= 5 + 3 * np.sqrt(100 * 0.05 * 0.95)


@pytest.mark.parametrize("drop_at", [1, 4, 7])
def test_a_real_drop_is_found_and_dated_right(drop_at):
    rng = np.random.default_rng(drop_at)
    rates = rng.uniform(0.6, 0.95, 80)
    runs = noisy(rng, rates, drop_at) + noisy(rng, rates * 0.4, 8 - drop_at)
    found = build_series(runs)
    assert [i for i, c in enumerate(found.changes) if c is not None and c.real] == [drop_at]
    assert found.changes[drop_at].sign == -1
    assert found.changes[drop_at].against == drop_at - 1
    assert found.overall.real
    assert found.overall.sign == -1
    assert not found.spread.is_noise()


def test_the_order_of_the_cases_within_a_run_does_not_matter():
    rng = np.random.default_rng(3)
    runs = noisy(rng, rng.uniform(0, 1, 25), 4, n_candidates=3)
    turned = [point(r.name, r.values[::-1], list(r.cases)[::-1]) if i % 2 else r for i, r in enumerate(runs)]
    one, other = build_series(runs), build_series(turned)
    for a, b in zip(one.changes[1:], other.changes[1:], strict=True):
        assert a.comparison.difference == pytest.approx(b.comparison.difference)
        assert a.p_holm == pytest.approx(b.p_holm)
    assert one.spread.noise == pytest.approx(other.spread.noise)
    assert one.spread.p == pytest.approx(other.spread.p)


def test_runs_without_the_number_are_passed_over():
    runs = [point("a", [1.0] * 12), point("b", [np.nan] * 12), point("c", [0.0] * 12)]
    found = build_series(runs)
    assert found.changes[1] is None
    assert found.changes[2].against == 0
    assert found.changes[2].real


def test_runs_that_share_no_case_are_not_compared():
    found = build_series([point("a", [1.0] * 12), point("b", [0.0] * 12, [f"d{i}" for i in range(12)])])
    assert found.changes[1].comparison.n == 0
    assert not found.changes[1].real
    assert found.changes[1].p_holm is None
    assert not found.spread.same_cases


def test_the_spread_of_two_runs_is_the_paired_t_test():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(2, 20))
    assert estimate_spread([point("a", a), point("b", b)]).p == pytest.approx(ttest_rel(a, b).pvalue)


def test_noise_is_the_residual_of_the_two_way_layout():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(5, 12)) + rng.normal(size=12)
    residual = x - x.mean(axis=1, keepdims=True) - x.mean(axis=0) + x.mean()
    expected = np.sqrt((residual**2).sum() / (4 * 11) / 12)
    assert estimate_spread([point(str(i), row) for i, row in enumerate(x)]).noise == pytest.approx(expected)


def test_a_cluster_counts_once_however_many_cases_it_has():
    rng = np.random.default_rng(2)
    a, b, c = rng.integers(0, 2, (3, 15)).astype(float)
    alone = build_series([point("a", a), point("b", b), point("c", c)])
    clusters = np.repeat(np.arange(15), 10)
    crowd = build_series([point(n, np.repeat(v, 10), clusters=clusters) for n, v in zip("abc", (a, b, c), strict=True)])
    for one, many in zip(alone.changes[1:], crowd.changes[1:], strict=True):
        assert one.comparison.p == pytest.approx(many.comparison.p)
    assert alone.spread.noise == pytest.approx(crowd.spread.noise)
    assert alone.spread.standard_error == pytest.approx(crowd.spread.standard_error)


def test_weights_move_the_difference_and_equal_ones_change_nothing():
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 2, (2, 20)).astype(float)
    w = rng.uniform(0.5, 3, 20)
    plain = compare_points(point("a", a), point("b", b))
    equal = compare_points(point("a", a, weights=np.full(20, 2.0)), point("b", b, weights=np.full(20, 2.0)))
    weighted = compare_points(point("a", a, weights=w), point("b", b, weights=w))
    assert (equal.difference, equal.p) == pytest.approx((plain.difference, plain.p))
    assert weighted.difference == pytest.approx(float(w @ (b - a) / w.sum()))
    assert weighted.b - weighted.a == pytest.approx(weighted.difference)


def test_weights_of_zero_everywhere_are_no_weights():
    a, b = point("a", [1.0, 0.0]), point("b", [0.0, 1.0])
    none = np.zeros(2)
    weighted = compare_points(
        TrendPoint(name="a", cases=a.cases, values=a.values, estimate=a.estimate, weights=none),
        TrendPoint(name="b", cases=b.cases, values=b.values, estimate=b.estimate, weights=none),
    )
    assert weighted.p == compare_points(a, b).p


def test_a_huge_change_of_odd_values_is_real_among_thousands_of_changes():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0, 0.3, 120), rng.uniform(0.7, 1, 120)
    assert compare_points(point("a", a), point("b", b)).p < 1e-12


@pytest.mark.parametrize(
    ("name", "metric_is", "expected"),
    [
        ("mean", True, True),
        ("mean", False, False),
        ("pass@5", False, True),
        ("any_pass", False, True),
        ("pass_rate", False, None),
        ("redundancy", True, None),
        ("std", True, None),
        ("my_own", True, None),
        ("os:system", True, None),
        ("majority(ties='shared')", False, False),
        ("((", True, None),
    ],
)
def test_better_and_worse_follow_the_aggregator_and_its_metric(name, metric_is, expected):
    assert higher_is_better(name, metric_is) is expected


verdicts = st.lists(st.sampled_from([True, False, None]), min_size=4, max_size=4)


@given(st.lists(verdicts, min_size=1, max_size=8))
def test_flips_are_counted_as_one_would_by_hand(table):
    found = case_histories([("abcd", row) for row in table])
    for i, h in enumerate(found):
        seen = [row[i] for row in table if row[i] is not None]
        assert (h.case, h.runs, h.passes) == ("abcd"[i], len(seen), sum(seen))
        assert h.flips == sum(a != b for a, b in itertools.pairwise(seen))
    assert all(h.flips for h in most_flaky(found))


@given(st.lists(st.none() | st.floats(-5, 5), max_size=300))
def test_a_sparkline_has_a_block_a_value_and_its_ends_where_they_belong(values):
    line = sparkline(values)
    assert len(line) == min(len(values), 80)
    known = [v for v in values if v is not None]
    if len(values) <= 80 and known and max(known) > min(known):
        assert line[values.index(max(known))] == "█"
        assert line[values.index(min(known))] == "▁"
        assert [c == " " for c in line] == [v is None for v in values]


def test_an_alpha_that_is_none_is_refused():
    with pytest.raises(InputError, match="alpha"):
        build_series([], alpha=1.5)


# runs on disk


def rows(right, n=40, *, k=3, reference="4", seed=0, **more):
    """A case a line: case i answers right with probability right[i % len(right)]."""
    rng = random.Random(seed)
    return [
        {
            "id": f"q{i}",
            "question": f"What is it, number {i}?",
            "reference": reference,
            "outputs": [
                f"The answer is {reference if rng.random() < right[i % len(right)] else '5'}." for _ in range(k)
            ],
            **{name: value[i % len(value)] for name, value in more.items()},
        }
        for i in range(n)
    ]


def scored(directory, cases, *options, created=None):
    """A run directory that `kofn score --out` wrote, with a time of our own."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    file = directory.parent / f".{directory.name}.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in cases))
    done = CliRunner().invoke(
        score_command, [str(file), "--task", "sums", "--out", str(directory), *options], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    if created is not None:
        change_json(directory / "run.json", created=created.isoformat())
    return directory


def change_json(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    if path.name == "run.json":
        reseal(path)


def program(directory, passing, *, task="wc", when=WHEN, groups=("core",), duration=2.0, **more):
    """An evaluation of a program, saved by itself: no run.json."""
    results = CorrectnessResults(problem_name=task, name="c", timestamp=when, **more)
    for group in groups:
        reports = [
            VerifierReport(
                id=f"case{i}",
                group=group,
                type="Core",
                timestamp=when,
                results={} if ok is None else {"out": AttributeResult(is_correct=ok)},
            )
            for i, ok in enumerate(passing)
        ]
        results.add_group_report(group, "Core", duration, reports)
    results.save(directory)
    return directory


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Five days of one task: steady, and a fall on the fourth."""
    folder = tmp_path_factory.mktemp("history")
    for day in range(5):
        right = (0.9, 0.8) if day < 3 else (0.3, 0.2)
        cost = [{"cost": 0.01, "seconds": 1.5}]
        cases = [{**r, "outputs": [{"text": t, **cost[0]} for t in r["outputs"]]} for r in rows(right, seed=day)]
        scored(folder / f"day{day}", cases, "--verdict", "majority", created=WHEN + timedelta(days=day))
    return folder


def show(*args):
    """What the command prints, in this process; a mistake is raised."""
    return CliRunner().invoke(command, [str(a) for a in args], catch_exceptions=False)


def as_json(*args):
    done = show(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def copied(history, target, *days):
    for day in days or range(5):
        shutil.copytree(history / f"day{day}", target / f"day{day}")
    return target


def test_the_table_marks_the_day_of_the_fall_and_nothing_else(history):
    text = show(history).stdout
    marked = [line.split()[0] for line in text.splitlines() if "▼" in line and line.startswith("day")]
    assert marked == ["day3"]
    assert "▼ worse" in text
    assert "sums: 5 runs, 2026-03-01 to 2026-03-05" in text
    assert "majority of metric numeric: higher is better" in text
    assert "first to last  ▼" in text
    assert "larger than noise" in text
    assert "1.2" in text  # 40 cases x 3 candidates at 0.01
    assert re.search(r"series +█[▁-█]{4} ", text)


def test_the_headline_is_the_last_run_against_the_first_with_its_numbers(history):
    found = load_trend([history])
    text = found.headline.text
    size = r"[\d.]+ to [\d.]+, difference -[\d.]+ \[-[\d.]+, -[\d.]+\], p < 0\.0001, 40 cases\."
    assert re.fullmatch(rf"day4 is worse than day0 on majority: {size}", text)
    assert show(history).stdout.replace("\n", " ").startswith(text)
    assert as_json(history)["headline"]["tasks"][0]["first_to_last"]["real"] is True
    assert text.replace("<", "&lt;") in trend_page(found)


def test_few_shared_cases_are_too_few_to_tell(tmp_path):
    for day, passing in enumerate(([True] * 9, [False] * 9)):
        program(tmp_path / f"d{day}", passing, when=WHEN + timedelta(days=day))
    found = load_trend([tmp_path])
    assert found.headline.text.startswith(
        "Too few shared cases to tell (9, at least 10 needed): pass_rate from d0 to d1"
    )
    assert "no significant change" not in trend_page(found).lower()
    assert not any(change and change.real for change in found.tasks[0].metrics[0].series.changes)


def test_changes_that_cancel_out_are_in_the_headline(tmp_path):
    for day, passing in enumerate(([True] * 40, [False] * 40, [True] * 40)):
        program(tmp_path / f"d{day}", passing, when=WHEN + timedelta(days=day))
    text = load_trend([tmp_path]).headline.text
    assert "p = 1.000, 40 cases: not significant; but 2 changes between consecutive runs are significant" in text
    assert text.endswith("(1 worse, 1 better).")


def test_a_spread_beyond_chance_is_in_the_headline(tmp_path):
    for day, right in enumerate((20, 24, 20, 24, 20)):
        program(tmp_path / f"d{day}", [i < right for i in range(40)], when=WHEN + timedelta(days=day))
    found = load_trend([tmp_path])
    series = found.tasks[0].metrics[0].series
    assert not any(change and change.real for change in series.changes)
    assert series.spread.is_noise() is False
    assert "not significant; but the 5 runs differ by more than chance (sd 0.055, p = 0.0" in found.headline.text


def test_runs_of_several_models_are_followed_one_model_at_a_time(history):
    runs, _ = load_all([history])
    made = [
        replace(
            run, manifest={**run.manifest, "generation": {"models": {"model": "new" if run.name > "day2" else "old"}}}
        )
        for run in runs
    ]
    found = build_trend(made)
    assert [(part.task, part.model, len(part.runs)) for part in found.tasks] == [("sums", "new", 2), ("sums", "old", 3)]
    assert found.headline.text.startswith("sums, new: No significant change in majority from day3 to day4: ")
    assert [part.model for part in build_trend(made[:2]).tasks] == [None]


def test_every_order_of_the_directories_gives_the_same_trend(history):
    days = [history / f"day{i}" for i in range(5)]
    first = as_json(*days)
    random.Random(1).shuffle(days)
    assert as_json(*days) == first == as_json(history, days[0], history)


def test_the_number_followed_is_the_stored_estimate(history):
    stored = json.loads((history / "day2" / "run.json").read_text())["result"]["estimates"]
    expected = next(e for e in stored if e["aggregator"] == "majority" and e["segment"] is None)
    got = as_json(history)["tasks"][0]["series"][0]["runs"][2]
    assert {k: got[k] for k in ("point", "low", "high", "level", "method", "n")} == {
        k: expected[k] for k in ("point", "low", "high", "level", "method", "n")
    }
    assert got["cost"] == pytest.approx(1.2)
    assert got["seconds"] == pytest.approx(180)


def test_json_has_these_keys_in_this_order(history):
    found = as_json(history, "-a", "majority", "-a", "score")
    assert list(found) == ["headline", "alpha", "n_runs", "tasks", "left_out"]
    task = found["tasks"][0]
    keys = ["headline", "task", "model", "n_runs", "mean_pass_rate", "mean_seconds", "mean_cost", "cases", "series"]
    assert list(task) == keys
    assert list(task["cases"]) == ["n", "pass_in_all", "pass_in_some", "pass_in_none", "unverified", "flaky"]
    assert list(task["cases"]["flaky"][0]) == ["case", "flips", "passes", "runs"]
    one = task["series"][0]
    assert [s["aggregator"] for s in task["series"]] == ["majority", "score"]
    assert list(one) == ["aggregator", "metric", "higher_is_better", "runs", "first_to_last", "spread"]
    assert list(one["runs"][1]) == [
        "run", "path", "when", "point", "low", "high", "level", "method", "n", "n_missing", "passed", "total", "cost",
        "seconds", "change", "notes",
    ]  # fmt: skip
    assert list(one["runs"][1]["change"]) == list(one["first_to_last"]) == [
        "against", "n", "difference", "low", "high", "level", "p", "p_holm", "real", "verdict", "wins", "ties",
        "losses",
    ]  # fmt: skip
    assert list(one["spread"]) == [
        "n", "mean", "sd", "min", "max", "mean_standard_error", "noise", "same_cases", "p", "is_noise",
    ]  # fmt: skip
    assert one["runs"][0]["change"] is None


def test_means_spread_and_cases_across_runs_are_those_of_the_runs(history):
    task = as_json(history, "-a", "pass_rate")["tasks"][0]
    runs = task["series"][0]["runs"]
    rates = [r["passed"] / r["total"] for r in runs]
    assert [r["point"] for r in runs] == pytest.approx(rates)
    assert task["mean_pass_rate"] == pytest.approx(np.mean(rates))
    assert task["series"][0]["spread"]["sd"] == pytest.approx(np.std(rates, ddof=1))
    counts = task["cases"]
    assert counts["pass_in_all"] + counts["pass_in_some"] + counts["pass_in_none"] == counts["n"] == 40
    flips = [f["flips"] for f in counts["flaky"]]
    assert flips == sorted(flips, reverse=True)
    assert len(flips) == 10


def test_an_aggregator_that_no_run_has_is_named_with_its_neighbours(history):
    with pytest.raises(UnknownName, match=r"majorit.*did you mean majority"):
        show(history, "-a", "majorit")
    with pytest.raises(UnknownName, match=r"unknown metric 'numerik'.*numeric"):
        show(history, "--metric", "numerik")
    with pytest.raises(UnknownName, match=r"unknown task 'sum'.*sums"):
        show(history, "--task", "sum")
    with pytest.raises(InputError, match="over all metrics"):
        show(history, "--metric", "numeric", "-a", "pass_rate")
    assert show(history, "--alpha", "0").exit_code == 2


def test_short_forms_name_the_stored_aggregator(history):
    assert as_json(history, "-a", "pass_at(k=2)")["tasks"][0]["series"][0]["aggregator"] == "pass@2"


def test_other_verdicts_are_followed_by_the_pass_rate_and_said(history, tmp_path):
    copied(history, tmp_path, 0)
    scored(tmp_path / "later", rows((0.9, 0.8)), "--verdict", "any_pass", created=WHEN + timedelta(days=9))
    one = as_json(tmp_path)["tasks"][0]["series"][0]
    assert one["aggregator"] == "pass_rate"
    assert "other verdict (majority >= 1 → any_pass >= 1)" in one["runs"][1]["notes"]


def test_what_is_different_between_two_runs_is_said(tmp_path):
    scored(tmp_path / "a", rows((0.5,)), created=WHEN)
    scored(tmp_path / "b", rows((0.5,), seed=1), "--extract", "number_simple", created=WHEN + timedelta(1))
    scored(tmp_path / "c", rows((0.5,), seed=1), "--extract", "number_simple", created=WHEN + timedelta(2))
    scored(tmp_path / "d", rows((0.5,), n=50, k=2, seed=2), created=WHEN + timedelta(3))
    scored(tmp_path / "e", rows((0.5,), n=50, k=2, reference="6", seed=3), created=WHEN + timedelta(4))
    elsewhere = [{**r, "id": f"x{r['id']}"} for r in rows((0.5,), k=2)]
    scored(tmp_path / "f", elsewhere, created=WHEN + timedelta(5))
    notes = [r["notes"] for r in as_json(tmp_path)["tasks"][0]["series"][0]["runs"]]
    assert notes == [
        [],
        ["other extractor (number → number_simple)"],
        ["the same file"],
        ["10 new cases, 0 gone", "other extractor (number_simple → number)", "other number of candidates (3 → 2)"],
        ["other data (50 cases ask or expect something else)"],
        ["other cases"],
    ]
    assert "! other data" in show(tmp_path).stdout


def test_a_metric_of_which_less_is_better_says_better_when_it_falls(tmp_path):
    for name, mean in (("a", 9.0), ("b", 2.0)):
        rng = random.Random(name)
        cases = [{"id": i, "score": mean + rng.random()} for i in range(30)]
        run = scored(tmp_path / name, cases, "-a", "mean", "--verdict", "mean >= 0")
        manifest = json.loads((run / "run.json").read_text())
        manifest["layout"]["metrics"][0]["higher_is_better"] = False
        (run / "run.json").write_text(json.dumps(manifest))
        reseal(run / "run.json")
    one = as_json(tmp_path)["tasks"][0]["series"][0]
    assert one["higher_is_better"] is False
    assert one["runs"][1]["change"]["verdict"] == "better"
    text = show(tmp_path).stdout
    assert "▼ better" in text
    assert "lower is better" in text
    assert "the last run is better" not in text


def test_clusters_and_weights_of_the_runs_are_kept(tmp_path):
    for i, right in enumerate(((0.9, 0.2), (0.2, 0.9))):
        cases = rows(right, thread=["s", "t", "u", "v"], importance=[1, 3])
        scored(tmp_path / f"r{i}", cases, "-a", "mean", "--cluster", "thread", "--weight", "importance")
    found = load_trend([tmp_path])
    first, second = found.tasks[0].metrics[0].series.points
    assert set(first.clusters) == {"s", "t", "u", "v"}
    assert set(first.weights) == {1.0, 3.0}
    change = found.tasks[0].metrics[0].series.changes[1].comparison
    assert change.difference == pytest.approx(second.estimate.point - first.estimate.point)
    assert change.p >= 2 / 2**4  # four clusters can do no better
    by_reports = load_trend([tmp_path], aggregate=["pass_rate"]).tasks[0].metrics[0].series.points[0]
    assert set(by_reports.clusters) == {"s", "t", "u", "v"}
    assert by_reports.weights is None


def test_runs_without_labels_follow_what_they_have(tmp_path):
    for i in range(2):
        cases = [{"id": j, "outputs": [f"It is {(i + j + k) % 3}" for k in range(3)]} for j in range(20)]
        scored(tmp_path / f"r{i}", cases, "--extract", "number")
    one = as_json(tmp_path)["tasks"][0]
    assert one["series"][0]["aggregator"] == "agreement"
    assert one["series"][0]["higher_is_better"] is None
    assert one["cases"]["unverified"] == 20
    assert "never verified" in show(tmp_path).stdout


def test_a_name_in_a_stored_run_imports_nothing(history, tmp_path):
    copied(history, tmp_path / "runs", 0, 1)
    (tmp_path / "kofn_trap_module.py").write_text("raise SystemExit('ran')")
    for day in (0, 1):
        path = tmp_path / "runs" / f"day{day}"
        change_json(path / "run.json", **json.loads((path / "run.json").read_text().replace(
            '"majority"', '"kofn_trap_module:x"')))  # fmt: skip
        results = CorrectnessResults.from_dir(path)
        tampered = results.model_dump_json().replace("majority >=", "kofn_trap_module:x >=")
        CorrectnessResults.model_validate_json(tampered).save(path)
    sys.path.insert(0, str(tmp_path))
    try:
        assert as_json(tmp_path / "runs")["tasks"][0]["series"][0]["higher_is_better"] is None
    finally:
        sys.path.remove(str(tmp_path))
    assert "kofn_trap_module" not in sys.modules


# programs


def test_runs_of_programs_have_a_pass_rate_and_a_score(tmp_path):
    for i in range(4):
        program(tmp_path / f"r{i}", [i < 3] * 12 + [True, None], when=WHEN + timedelta(hours=i))
    found = as_json(tmp_path, "-a", "pass_rate", "-a", "score")["tasks"][0]
    rate, score = found["series"]
    assert [r["passed"] for r in rate["runs"]] == [13, 13, 13, 1]
    assert rate["runs"][0]["total"] == 14
    assert [r["point"] for r in rate["runs"]] == pytest.approx([13 / 14] * 3 + [1 / 14])  # one case was not verified
    assert [r["point"] for r in score["runs"]] == pytest.approx([1, 1, 1, 1 / 13])
    assert [r["n_missing"] for r in score["runs"]] == [1] * 4
    assert "1 unverified" in score["runs"][0]["notes"]
    assert [bool(r["change"] and r["change"]["real"]) for r in rate["runs"]] == [False, False, False, True]
    assert found["mean_seconds"] == 2.0
    assert found["mean_cost"] is None
    text = show(tmp_path).stdout
    assert "cost" not in text
    assert "▼ worse" in text


@given(st.lists(st.tuples(st.lists(st.sampled_from([True, False, None]), max_size=4), st.sampled_from([0.5, 1, 3])),
                min_size=1, max_size=4))  # fmt: skip
def test_score_is_the_score_of_the_report(groups):
    results = CorrectnessResults(problem_name="p", name="c", timestamp=WHEN)
    for i, (passing, weight) in enumerate(groups):
        reports = [
            VerifierReport(id=f"{j}", group=f"g{i}", type="Core", results={"a": AttributeResult(is_correct=ok)})
            for j, ok in enumerate(passing)
        ]
        results.add_group_report(f"g{i}", "Core", 1, reports, weight=weight)
    with TemporaryDirectory() as folder:
        results.save(Path(folder) / "r")
        found = load_trend([folder], aggregate=["score", "pass_rate"]).tasks[0].metrics
    total = results.total_counts.get("Core", 0)
    assert found[0].series.points[0].estimate.point == pytest.approx(results.score())
    assert found[1].series.points[0].estimate.point == (
        pytest.approx(results.pass_counts["Core"] / total) if total else None
    )


def test_an_id_that_is_in_two_groups_is_two_cases(tmp_path):
    program(tmp_path / "a", [True, False], groups=("x", "y"))
    program(tmp_path / "b", [False, True], groups=("x", "y"), when=WHEN + timedelta(1))
    found = as_json(tmp_path)["tasks"][0]
    assert found["series"][0]["runs"][1]["change"]["n"] == 4
    assert {f["case"] for f in found["cases"]["flaky"]} == {f"{g} / case{i}" for g in "xy" for i in (0, 1)}


def test_a_wrong_attribute_of_almost_no_weight_still_fails_its_case(tmp_path):
    results = CorrectnessResults(problem_name="p", name="c", timestamp=WHEN)
    checks = {"a": AttributeResult(is_correct=True, weight=1e20), "b": AttributeResult(is_correct=False, weight=1e-20)}
    results.add_group_report("g", "Core", 1, [VerifierReport(id="x", group="g", type="Core", results=checks)])
    results.save(tmp_path / "r")
    assert as_json(tmp_path)["tasks"][0]["series"][0]["runs"][0]["passed"] == 0


def test_several_tasks_have_a_section_each_and_one_can_be_picked(history, tmp_path):
    copied(history, tmp_path, 0, 1)
    program(tmp_path / "p", [True] * 5)
    assert [t["task"] for t in as_json(tmp_path)["tasks"]] == ["sums", "wc"]
    assert [t["task"] for t in as_json(tmp_path, "--task", "wc")["tasks"]] == ["wc"]
    assert show(tmp_path).stdout.count("across runs") == 2
    only = as_json(tmp_path, "-a", "majority")["tasks"][1]["series"][0]
    assert only["runs"][0]["point"] is None
    assert only["runs"][0]["notes"] == ["has no majority"]
    assert only["spread"] is None
    assert only["first_to_last"] is None


def test_a_run_whose_harness_failed_is_left_out_and_named(tmp_path):
    program(tmp_path / "a", [True] * 5)
    program(tmp_path / "b", [False] * 5, infrastructure_failure="disk full")
    done = show(tmp_path)
    assert "1 run" in done.stdout
    assert "the harness failed: disk full" in done.stderr


def test_the_newest_runs_can_be_picked(history):
    found = as_json(history, "--last", "2")["tasks"][0]
    assert [r["run"] for r in found["series"][0]["runs"]] == ["day3", "day4"]


def test_runs_of_one_second_are_in_the_order_they_were_evaluated(tmp_path):
    for name in ("z", "y", "x"):
        run = scored(tmp_path / name, rows((0.5,), n=5))
        change_json(run / "run.json", created="2026-03-01T12:00:00+00:00")
        time.sleep(0.01)
    assert [r["run"] for r in as_json(tmp_path)["tasks"][0]["series"][0]["runs"]] == ["z", "y", "x"]


def test_equal_times_are_ordered_by_name(tmp_path):
    for name in ("b", "c", "a"):
        program(tmp_path / name, [True])
    assert [r["run"] for r in as_json(tmp_path)["tasks"][0]["series"][0]["runs"]] == ["a", "b", "c"]


# directories


def test_runs_are_found_at_any_depth_and_not_inside_runs_or_hidden_folders(tmp_path):
    program(tmp_path / "x" / "y" / "r", [True])
    program(tmp_path / "x" / "y" / "r" / "inside", [True])
    program(tmp_path / ".hidden" / "r", [True])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("no run")
    assert list(find_runs(tmp_path)) == [tmp_path / "x" / "y" / "r"]
    assert show(tmp_path).stderr == ""


def test_a_loop_of_links_ends_and_a_run_reached_twice_counts_once(tmp_path):
    program(tmp_path / "runs" / "r", [True])
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "self").symlink_to("self")
    (tmp_path / "runs" / "twin").symlink_to(tmp_path / "runs" / "r")
    found = as_json(tmp_path / "runs", tmp_path / "runs" / "twin")
    assert found["n_runs"] == 1
    assert not found["left_out"]


def test_runs_that_are_called_alike_go_by_their_paths(tmp_path):
    program(tmp_path / "mon" / "r", [True])
    program(tmp_path / "tue" / "r", [True], when=WHEN + timedelta(1))
    names = [r["run"] for r in as_json(tmp_path)["tasks"][0]["series"][0]["runs"]]
    assert names == [str(tmp_path / "mon" / "r"), str(tmp_path / "tue" / "r")]


def truncate(path):
    path.write_bytes(path.read_bytes()[:100])


DAMAGE = {
    "cut reports": lambda d: truncate(d / "reports.parquet"),
    "cut cases": lambda d: truncate(d / "cases.parquet"),
    "cut manifest": lambda d: truncate(d / "run.json"),
    "cut evaluation": lambda d: truncate(d / "evaluation.json"),
    "no reports": lambda d: (d / "reports.parquet").unlink(),
    "no cases": lambda d: (d / "cases.parquet").unlink(),
    "no evaluation": lambda d: (d / "evaluation.json").unlink(),
    "no manifest": lambda d: (d / "run.json").unlink(),
    "a list": lambda d: (d / "run.json").write_text("[]"),
    "older": lambda d: change_json(d / "evaluation.json", schema_version=1),
    "older manifest": lambda d: change_json(d / "run.json", schema_version=1),
    "newer": lambda d: change_json(d / "run.json", schema_version=99),
    "no layout": lambda d: change_json(d / "run.json", layout=7),
    "no time": lambda d: change_json(d / "run.json", created="yesterday"),
    "no result": lambda d: change_json(d / "run.json", result="good"),
    "odd scores": lambda d: change_json(d / "evaluation.json", group_outcomes={"g": {"results": {"q": "x"}}}),
    "other columns": lambda d: (
        pl.read_parquet(d / "cases.parquet").drop("numeric.majority").write_parquet(d / "cases.parquet")
    ),
    "texts for numbers": lambda d: (
        pl.read_parquet(d / "cases.parquet")
        .with_columns(pl.lit("much").alias("numeric.majority"))
        .write_parquet(d / "cases.parquet")
    ),
    "a case twice": lambda d: pl.concat([pl.read_parquet(d / "cases.parquet")] * 2).write_parquet(d / "cases.parquet"),
}


@pytest.mark.long(quick=5)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_among_good_ones_is_named_in_one_line_and_left_out(history, tmp_path, damage):
    copied(history, tmp_path)
    DAMAGE[damage](tmp_path / "day1")
    done = show(tmp_path)
    assert done.exit_code == 0
    assert re.search(r"^kofn: left out: \S*day1\S*: .+$", done.stderr)
    assert done.stderr.count("\n") == 1
    assert "sums: 4 runs" in done.stdout
    assert "▼ worse" in done.stdout
    found = as_json(tmp_path)
    assert [Path(one["path"]).name for one in found["left_out"]] == ["day1"]


@pytest.mark.parametrize("damage", ["older", "cut cases"])
def test_nothing_but_damaged_runs_is_a_mistake_that_names_one(history, tmp_path, damage):
    copied(history, tmp_path, 0, 1)
    for day in (0, 1):
        DAMAGE[damage](tmp_path / f"day{day}")
    with pytest.raises(InputError, match=r"no run that can be read: .*day0.*and 1 more") as problem:
        show(tmp_path)
    assert problem.value.exit_code == 2
    assert "\n" not in str(problem.value)


def test_a_directory_without_runs_a_file_and_nothing_are_mistakes(tmp_path):
    (tmp_path / "file").write_text("")
    for path, said in ((tmp_path, "no run in it"), (tmp_path / "file", "is a file"), (tmp_path / "no", "no such")):
        with pytest.raises(InputError, match=said):
            show(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_holds_nothing(tmp_path):
    program(tmp_path / "r", [True])
    (tmp_path / "closed").mkdir(mode=0)
    assert as_json(tmp_path)["n_runs"] == 1


def test_a_writer_killed_between_the_two_files_left_the_new_evaluation(tmp_path):
    old = program(tmp_path / "old", [False] * 6)
    new = program(tmp_path / "new", [True] * 6)
    shutil.copy(new / "reports.parquet", old / "reports.parquet")
    shutil.rmtree(new)
    assert as_json(tmp_path)["tasks"][0]["series"][0]["runs"][0]["passed"] == 6


def test_many_left_out_runs_are_counted_not_listed_without_end(tmp_path):
    program(tmp_path / "good", [True])
    for i in range(30):
        (tmp_path / f"bad{i}").mkdir()
        (tmp_path / f"bad{i}" / "run.json").write_text("{}")
    err = show(tmp_path).stderr
    assert err.count("left out: ") == 20
    assert "30 runs left out, 10 of them not named" in err


@pytest.mark.long
def test_two_thousand_runs_of_a_hundred_cases_take_seconds(tmp_path):
    rng = random.Random(0)
    made = [program(tmp_path / f"m{k}", [rng.random() < 0.7 for _ in range(100)]) for k in range(10)]
    for i in range(1990):
        shutil.copytree(made[i % 10], tmp_path / f"r{i:04}")
    began = time.process_time()
    found = load_trend([tmp_path])
    assert time.process_time() - began < 20
    assert len(found.tasks[0].runs) == 2000
    assert len(trend_page(found)) < 3_000_000


# hostile text


@pytest.fixture
def hostile(tmp_path):
    for i, name in enumerate((EVIL.replace("/", "|"), "<img src=x onerror=alert(1)>", "▼ worse")):
        results = CorrectnessResults(problem_name=EVIL, name=EVIL, timestamp=WHEN + timedelta(i))
        reports = [
            VerifierReport(id=f"{EVIL}{j}", group=EVIL, type="Core", results={"a": AttributeResult(is_correct=i < 2)})
            for j in range(12)
        ]
        results.add_group_report(EVIL, "Core", 1, reports)
        results.save(tmp_path / "runs" / name)
    (tmp_path / "runs" / f"bad{EVIL.replace('/', '|')}").mkdir()
    (tmp_path / "runs" / f"bad{EVIL.replace('/', '|')}" / "run.json").write_text("{}")
    return tmp_path / "runs"


def test_hostile_names_move_no_cursor(hostile):
    done = show(hostile)
    for text in (done.stdout, done.stderr):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "alert" in text
    coloured = format_trend(load_trend([hostile]), lambda text, role: f"{{{role}:{text}}}")
    assert re.search(r"^▼ worse .*\{bad:▼ worse\}", coloured, re.MULTILINE)  # the mark, not the run of that name


def test_the_page_holds_no_hostile_markup(hostile):
    html = trend_page(load_trend([hostile]))
    body = html[html.index("<body>") : html.index("</footer>")]  # scripts of ours follow
    body = re.sub(r'<script type="application/json" class="spec">[^<]*</script>', "", body)  # data of the charts
    assert "<script" not in body
    assert "<img" not in body
    assert not set("\x1b\u202e") & set(html)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body
    assert "&lt;img src=x onerror=alert(1)&gt;" in body
    assert not re.search(r"""\s(?:src|href)=["']?(?:https?:)?//""", body)


def test_the_page_says_what_the_table_says(history):
    html = trend_page(load_trend([history]))
    assert "▼ worse" in html
    assert 'role="img"' in html
    assert "Flaky cases" in html
    assert "Real changes: day3" in html
    for i in range(5):
        assert f"<bdi>day{i}</bdi>" in html


def test_the_page_is_written_whole_or_not_at_all(history, tmp_path):
    done = show(history, "--html", tmp_path / "trend.html")
    assert (tmp_path / "trend.html").read_text().startswith("<!doctype html>")
    assert "page written" in done.stderr
    with pytest.raises(InputError, match="there is no directory"):
        show(history, "--html", tmp_path / "no" / "trend.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["trend.html"]


def test_a_single_run_has_a_page_too(tmp_path):
    program(tmp_path / "r", [True, False])
    html = trend_page(load_trend([tmp_path]))
    assert "pass_rate 0.500 [0.095, 0.905] in r, 2 cases: one run, so nothing to compare." in html
    assert "data-chart=" not in html


def test_the_map_of_cases_draws_every_cell_once(history):
    part = load_trend([history]).tasks[0]
    heat = heat_map(part.runs, part.cases)
    area = 0
    for _, path in heat.shades:
        area += sum(int(w) for w in re.findall(r"M\d+ \d+h(\d+)v1h-\d+z", path))
    assert (heat.width, heat.height) == (5, 40)
    assert area == 200
    assert len(_shades([[1.0, 1.0, 0.0, None]])) == 2


def test_the_map_of_cases_is_of_those_that_flip_most(tmp_path):
    rng = random.Random(3)
    for i in range(4):
        passing = [True] * 150 + [rng.random() < 0.5 for _ in range(150)]
        program(tmp_path / f"r{i}", passing, when=WHEN + timedelta(i))
    part = load_trend([tmp_path]).tasks[0]
    heat = heat_map(part.runs, part.cases)
    assert heat.height == 200
    assert "200 cases that flip most, of 300" in heat.note
    flipping = {h.case for h in part.cases if h.flips}
    assert flipping <= {case for case, *_ in heat.table}


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_opens_from_disk_without_network_or_errors(hostile, history, tmp_path, width, visit):
    file = tmp_path / "trend.html"
    file.write_text(trend_page(load_trend([history, hostile])))
    tab = visit(file, width=width)
    tab.wait_for_selector("html[data-drawn]")
    assert tab.locator("figure[data-chart] .plot > svg").count() == 2
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert "Real changes: day3" in tab.locator(".plot > svg").last.get_attribute("aria-label")
    tab.locator("svg[data-cells]").last.hover()
    assert "q" in tab.locator("#tip").inner_text()
    assert len(set(tab.screenshot())) > 100
    tab.clean()
