"""From candidate sets to a report: verdicts, groups, attributes, and the same thing built object by object."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpu import cpu_seconds

import kofn
from kofn.errors import InputError, UnknownName
from kofn.runs import AttributeResult, CorrectnessResults, GroupType, VerifierReport
from kofn.runs.case_reports import (
    SCHEMA,
    case_scores,
    check_reports,
    decode_json,
    encode_json,
    json_list,
    json_text,
    reports_frame,
    reports_of,
)
from kofn.runs.report_builder import report_of
from kofn.scoring.configuration import PassPolicy, ReportConfig, Requirement

NOW = datetime(2024, 3, 1, 8, 30, 0, 123456, tzinfo=UTC)


def answers(case, *given_answers, reference="4", **more):
    return {"id": case, "reference": reference, "outputs": [str(a) for a in given_answers], **more}


ROWS = [
    answers("all right", 4, 4, 4, 4, kind="easy"),
    answers("most right", 5, 4, 4, 4, kind="easy"),
    answers("half right", 4, 4, 6, 5, kind="hard"),
    answers("all wrong", 5, 5, 6, "?", kind="hard"),
]


def scored(rows=ROWS, **options):
    return kofn.score(rows, everything=True, **options)


def verdicts(result, **plan):
    """Case -> whether it passes."""
    evaluation, frame = report_of(result, ReportConfig(**plan))
    found = case_scores(frame)
    return evaluation.verdict, dict(zip(found["id"].to_list(), found["passed"].to_list(), strict=True))


def passing(result, **plan):
    return [case for case, passed in verdicts(result, **plan)[1].items() if passed]


# the verdict


def test_the_first_aggregator_is_the_verdict_where_none_is_named():
    result = scored(aggregate=["majority", "mean"])
    assert verdicts(result) == verdicts(result, verdict="majority")
    assert verdicts(result)[0] == "majority >= 1"
    assert verdicts(scored())[0] == "first >= 1"


@pytest.mark.parametrize(
    ("verdict", "said", "expected"),
    [
        ("first", "first >= 1", ["all right", "half right"]),
        ("majority", "majority >= 1", ["all right", "most right", "half right"]),
        ("any_pass", "any_pass >= 1", ["all right", "most right", "half right"]),
        ("all_pass", "all_pass >= 1", ["all right"]),
        ("mean", "mean >= 1", ["all right"]),
        ("mean >= 0.75", "mean >= 0.75", ["all right", "most right"]),
        ("mean >= 75%", "mean >= 0.75", ["all right", "most right"]),
        ("mean > 0.75", "mean > 0.75", ["all right"]),
        ("mean < 0.3", "mean < 0.3", ["all wrong"]),
        ("pass@2", "pass@2 >= 1", ["all right", "most right"]),
        ("pass@2 >= 0.8", "pass@2 >= 0.8", ["all right", "most right", "half right"]),
        ("at_least(3)", "at_least(3) >= 1", ["all right", "most right"]),
        ("unique_answers <= 2", "unique_answers <= 2", ["all right", "most right", "all wrong"]),
    ],
)
@pytest.mark.parametrize("aggregate", [["mean"], ["majority", "pass@2", "mean", "unique_answers"]])
def test_a_verdict_is_an_aggregator_with_or_without_a_bound_whether_it_was_asked_for_or_not(
    verdict, said, expected, aggregate
):
    result = scored(aggregate=aggregate)
    assert verdicts(result, verdict=verdict)[0] == said
    assert passing(result, verdict=verdict) == expected


@pytest.mark.parametrize("verdict", ["unique_answers", "std", "dcg(k=2)"])
def test_a_verdict_that_has_no_natural_bound_is_refused_with_advice(verdict):
    with pytest.raises(InputError) as refused:
        report_of(scored(), ReportConfig(verdict=verdict))
    assert (
        str(refused.value) == f"verdict {verdict}: say from where on a case passes, such as --verdict '{verdict} >= 1'"
    )
    assert report_of(scored(), ReportConfig(verdict=f"{verdict} >= 1"))[0].verdict == f"{verdict} >= 1"


def size(one):
    return len(one)


@pytest.mark.parametrize(
    ("aggregate", "verdict"),
    [
        ([], "first >= 1"),
        (["redundancy", "unique_answers", "majority"], "majority >= 1"),
        (["redundancy"], "first >= 1"),
    ],
)
def test_what_says_nothing_of_right_and_wrong_is_no_verdict_by_default(aggregate, verdict):
    assert report_of(scored(aggregate=aggregate))[0].verdict == verdict


def test_an_aggregator_of_ones_own_is_a_verdict_with_a_bound():
    result = scored(aggregate=[size])
    with pytest.raises(InputError, match="such as --verdict 'size >= 1'"):
        report_of(result, ReportConfig(verdict="size"))
    assert len(passing(result, verdict="size >= 4")) == 4
    assert passing(result, verdict="size >= 5") == []


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("majorty", "unknown aggregator 'majorty': did you mean majority"),
        ("majorty >= 1", "unknown aggregator 'majorty': did you mean majority"),
        ("mean >= x", "requirement 'mean >= x'"),
        ("mean.low >= 0.5", "a single case has no interval"),
        (">= 1", "requirement '>= 1'"),
    ],
)
def test_a_verdict_that_is_none_is_refused(verdict, said):
    with pytest.raises(InputError) as refused:
        report_of(scored(), ReportConfig(verdict=verdict))
    assert said in str(refused.value)


def test_a_vote_without_answers_is_refused():
    with pytest.raises(InputError, match="majority needs answers"):
        report_of(scored([{"id": "a", "passes": [True, False]}]), ReportConfig(verdict="majority"))


def test_the_threshold_is_the_bound_of_values_and_not_of_shares():
    rows = [{"id": "a", "scores": [3, 4]}, {"id": "b", "scores": [2, 5]}, {"id": "c", "scores": [1, 1]}]
    result = scored(rows, threshold=3)
    assert verdicts(result, verdict="first", threshold=3) == ("first >= 3", {"a": True, "b": False, "c": False})
    assert verdicts(result, verdict="any_pass", threshold=3) == ("any_pass >= 1", {"a": True, "b": True, "c": False})


def test_a_metric_where_lower_is_better_passes_at_or_below_its_bound():
    rows = [answers("a", 4, 4), answers("b", "?", 4), answers("c", "?", "?")]
    result = scored(rows, metric="unparsed")
    assert not result.scored[0].sets.higher_is_better
    assert verdicts(result, verdict="mean") == ("mean <= 0", {"a": True, "b": False, "c": False})
    assert verdicts(result, verdict="mean", threshold=0.5)[1] == {"a": True, "b": True, "c": False}
    assert verdicts(result, verdict="any_pass")[1] == {"a": True, "b": True, "c": False}


def test_a_mean_that_is_off_by_rounding_alone_is_at_the_bound():
    result = scored([{"id": "a", "scores": [0.7, 0.7, 0.7]}], aggregate="mean")
    assert result.case_values["score", "mean"][0] < 0.7
    assert passing(result, verdict="mean >= 0.7") == ["a"]


def test_a_case_of_which_nothing_is_graded_is_unverified_and_counted():
    rows = [{"id": "a", "passes": [True, None]}, {"id": "b", "passes": [None, None]}, {"id": "c", "passes": [False]}]
    evaluation, frame = report_of(scored(rows), ReportConfig(verdict="any_pass"))
    assert case_scores(frame)["score"].to_list() == [1.0, None, 0.0]
    assert evaluation.n_unverified == 1
    assert evaluation.pass_counts == {"Core": 1}
    assert evaluation.total_counts == {"Core": 3}
    assert evaluation.group_outcomes["cases"].results == {"a": 1.0, "b": None, "c": 0.0}


def test_a_run_without_any_grade_has_cases_and_no_verdict():
    evaluation, frame = report_of(scored([{"id": "a", "outputs": ["x", "y"]}, {"id": "b", "outputs": ["z"]}]))
    assert evaluation.verdict is None
    assert evaluation.score() is None
    assert (evaluation.pass_counts, evaluation.total_counts) == ({"Core": 0}, {"Core": 2})
    assert frame["results"].to_list() == [[], []]
    assert not evaluation.decide().passed


def test_a_case_without_candidates_is_unverified():
    evaluation, frame = report_of(scored([*ROWS, {"id": "none", "outputs": []}]))
    last = reports_of(frame)[-1]
    assert (last.id, last.calculate_score(), last.results["numeric"].actual) == ("none", None, [])
    assert last.case["candidates"] == 0
    assert evaluation.n_unverified == 1


# groups, types and weights


def test_without_a_field_all_cases_are_one_core_group():
    evaluation, frame = report_of(scored(), ReportConfig(verdict="majority"))
    assert list(evaluation.group_outcomes) == ["cases"]
    assert evaluation.group_outcomes["cases"].type is GroupType.CORE
    assert frame["group"].unique().to_list() == ["cases"]


def test_a_field_makes_groups_with_types_and_weights():
    plan = ReportConfig(group="kind", types={"hard": "Error"}, weights={"easy": 3}, verdict="all_pass")
    evaluation, frame = report_of(scored(), plan)
    easy, hard = evaluation.group_outcomes["easy"], evaluation.group_outcomes["hard"]
    assert (easy.type, easy.weight, easy.results) == (GroupType.CORE, 3, {"all right": 1.0, "most right": 0.0})
    assert (hard.type, hard.weight, hard.results) == (GroupType.ERROR, 1, {"half right": 0.0, "all wrong": 0.0})
    assert evaluation.score() == pytest.approx(0.5 * 3 / 4)
    assert evaluation.pass_counts == {"Core": 1, "Error": 0}
    assert evaluation.total_counts == {"Core": 2, "Error": 2}
    assert frame["type"].to_list() == ["Core", "Core", "Error", "Error"]


def test_cases_without_the_field_are_a_group_of_their_own():
    rows = [*ROWS, answers("no kind", 4)]
    assert list(report_of(scored(rows), ReportConfig(group="kind"))[0].group_outcomes) == ["easy", "hard", "(none)"]


@pytest.mark.parametrize("value", [True, 3, 2.5, "é\n=1"])
def test_a_group_is_named_by_its_value_as_text(value):
    rows = [answers("a", 4, part=value), answers("b", 4, part=value)]
    expected = {True: "true", 3: "3", 2.5: "2.5"}.get(value, value)
    assert list(report_of(scored(rows), ReportConfig(group="part"))[0].group_outcomes) == [expected]


@pytest.mark.parametrize(
    ("plan", "error", "said"),
    [
        ({"types": {"esy": "Core"}, "group": "kind"}, UnknownName, "unknown group 'esy': did you mean easy"),
        ({"weights": {"esy": 2}, "group": "kind"}, UnknownName, "unknown group 'esy': did you mean easy"),
        ({"types": {"easy": "Core"}}, UnknownName, "unknown group 'easy'"),
        ({"types": {"easy": "Kern"}, "group": "kind"}, UnknownName, "unknown group type 'Kern': expected one of Core"),
        ({"group": "knd"}, UnknownName, "unknown field 'knd': did you mean kind"),
        ({"group": "outputs"}, InputError, "field"),
        ({"weights": {"easy": 0}, "group": "kind"}, InputError, "group weight easy=0: a weight is above 0"),
        ({"weights": {"easy": -1}, "group": "kind"}, InputError, "group weight easy=-1: a weight is above 0"),
        ({"weights": {"easy": np.nan}, "group": "kind"}, InputError, "group weight easy=nan: a weight is above 0"),
        ({"weights": {"easy": np.inf}, "group": "kind"}, InputError, "group weight easy=inf: a weight is above 0"),
        ({"metric_weights": {"numeric": 0}}, InputError, "metric weight numeric=0: a weight is above 0"),
        ({"metric_weights": {"numeric": np.inf}}, InputError, "metric weight numeric=inf: a weight is above 0"),
        ({"metric_weights": {"numerc": 1}}, UnknownName, "unknown metric 'numerc': did you mean numeric"),
    ],
)
def test_a_plan_that_fits_nothing_is_refused(plan, error, said):
    with pytest.raises(error) as refused:
        report_of(scored(), ReportConfig(**plan))
    assert said in str(refused.value)


def test_metrics_are_attributes_with_their_weights():
    rows = [answers("a", "4.0"), answers("b", "4"), answers("c", "5")]
    result = scored(rows, metric=["numeric", "exact_match"], extract="last_line")
    evaluation, frame = report_of(result, ReportConfig(metric_weights={"exact_match": 0.5}))
    first = reports_of(frame)[0]
    assert {n: (a.is_correct, a.weight) for n, a in first.results.items()} == {
        "numeric": (True, 1.0),
        "exact_match": (False, 0.5),
    }
    assert evaluation.group_outcomes["cases"].results == {"a": pytest.approx(2 / 3), "b": 1.0, "c": 0.0}
    assert evaluation.pass_counts == {"Core": 1}


def test_scores_beside_labels_are_no_attribute_of_their_own():
    outputs = [{"text": "4", "pass": True, "score": 0.3}, {"text": "5", "pass": False, "score": 0.9}]
    result = scored([{"id": "a", "outputs": outputs}])
    assert [s.metric for s in result.scored] == ["pass", "score"]
    assert list(reports_of(report_of(result)[1])[0].results) == ["pass"]
    with pytest.raises(UnknownName, match="unknown metric 'score'"):
        report_of(result, ReportConfig(metric_weights={"score": 2}))


# what a report tells


def test_a_report_tells_expected_actual_and_why_it_fails():
    evaluation, frame = report_of(scored(verdict_rows()), ReportConfig(verdict="all_pass", task="sums", name="run 1"))
    report = reports_of(frame)[0]
    attribute = report.results["numeric"]
    assert attribute.expected == "4"
    assert attribute.actual == ["5", "4", "5", None]
    assert attribute.diff == "1 of 4 candidates pass; answers: 5 x2, 4 x1, no answer x1"
    assert report.case == {"input": "2+2?", "kind": "easy", "n": 1, "candidates": 4, "passing": 1}
    assert (evaluation.problem_name, evaluation.name) == ("sums", "run 1")
    assert frame.select("problem", "checkpoint").row(0) == ("sums", "run 1")


def verdict_rows():
    return [answers("a", 5, 4, 5, "?", input="2+2?", kind="easy", n=1), answers("b", 4, 4, input="x", kind="easy", n=2)]


def test_a_case_that_passes_or_is_unverified_has_no_diff():
    _, frame = report_of(scored([*verdict_rows(), {"id": "none", "outputs": []}]), ReportConfig(verdict="all_pass"))
    assert [r.results["numeric"].diff == "" for r in reports_of(frame)] == [False, True, True]


def test_a_diff_shows_five_answers_and_shortens_long_ones():
    long = "x" * 61
    rows = [{"id": "a", "reference": "r", "outputs": [long, "y" * 60, *"cdefgg"]}]
    _, frame = report_of(scored(rows, extract="last_line", metric="exact_match"), ReportConfig(verdict="any_pass"))
    assert reports_of(frame)[0].results["exact_match"].diff == (
        f"0 of 8 candidates pass; answers: g x2, {'x' * 59}… x1, {'y' * 60} x1, c x1, d x1 and 2 more"
    )


def test_a_run_of_one_candidate_a_case_tells_the_answer_itself():
    _, frame = report_of(scored([answers("a", 4), answers("b", "?")]))
    assert [r.results["numeric"].actual for r in reports_of(frame)] == ["4", None]


def test_times_are_the_sums_of_each_case():
    outputs = [[1e9, 0.125], [1e-9], [], [None, 2.0]]
    rows = [
        {"id": str(i), "outputs": [{"text": "x", "pass": True, "seconds": s} for s in times]}
        for i, times in enumerate(outputs)
    ]
    evaluation, frame = report_of(scored(rows))
    assert dict(zip(frame["id"], frame["duration"], strict=True)) == {"0": 1e9 + 0.125, "1": 1e-9, "2": 0.0, "3": 2.0}
    assert evaluation.duration == pytest.approx(1e9 + 2.125)
    assert evaluation.group_outcomes["cases"].duration == evaluation.duration


@pytest.mark.parametrize(
    "when", [NOW, NOW.replace(tzinfo=None), NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))]
)
def test_a_report_is_dated_as_planned(when):
    evaluation, frame = report_of(scored(), ReportConfig(timestamp=when))
    assert evaluation.timestamp == NOW
    assert set(frame["timestamp"].to_list()) == {NOW}


def test_a_report_is_dated_now_unless_planned():
    before = datetime.now(UTC)
    evaluation, frame = report_of(scored())
    assert before - timedelta(milliseconds=1) <= evaluation.timestamp <= datetime.now(UTC)
    assert frame["timestamp"][0] == evaluation.timestamp


# the columns are those of the objects


def by_objects(result, plan):
    """The same report in plain Python, a case at a time, by the public classes."""
    results = CorrectnessResults(
        problem_name=plan.task,
        name=plan.name,
        timestamp=plan.timestamp,
        policy=plan.policy or PassPolicy.CORE_CASES,
        verdict=plan.verdict,
    )
    table, rule = result.table, Requirement.parse(plan.verdict)
    groups = table.tags[plan.group].to_list()
    reports: dict[str, list[VerifierReport]] = {}
    for i, one in enumerate(result.scored[0].sets):
        attributes = {}
        for metric in result.scored:
            value = kofn.aggregator(rule.name)(metric.sets)[i]
            correct = None if np.isnan(value) else rule.met_by(value)
            own = metric.sets[i]
            graded = [p for p in own.passes if p is not None]
            diff = ""
            if correct is False:
                counts = Counter(own.answers).most_common()
                counted = ", ".join(f"{'no answer' if a is None else a} x{n}" for a, n in counts[:5])
                more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
                diff = f"{sum(graded)} of {len(graded)} candidates pass; answers: {counted}{more}"
            actual = list(own.answers)
            attributes[metric.metric] = AttributeResult(
                is_correct=correct,
                weight=plan.metric_weights.get(metric.metric, 1.0),
                expected=table.cases["reference"][i],
                actual=actual[0] if len(actual) == 1 else actual,
                diff=diff,
            )
        tags = {name: table.tags[name][i] for name in table.tags.columns}
        report = VerifierReport(
            id=one.case_id,
            group=groups[i],
            type=plan.types.get(groups[i], "Core"),
            timestamp=plan.timestamp,
            results=attributes,
            case={**tags, "candidates": len(one), "passing": sum(p is True for p in one.passes)},
        )
        reports.setdefault(groups[i], []).append(report)
    for group, added in reports.items():
        kind = plan.types.get(group, "Core")
        results.add_group_report(group, kind, 0.0, added, weight=plan.weights.get(group, 1.0))
    order = {r.id: r for r in results.reports}
    return results.model_copy(update={"reports": [order[case] for case in table.cases["case_id"]]})


outputs = st.lists(st.sampled_from(["4", "4.0", "5", "6", "7", "8", "9", "?", 'a "quote" \\ and\n4']), max_size=8)
rows = st.lists(
    st.tuples(st.sampled_from(["4", "5", "four"]), outputs, st.sampled_from(["x", "y", "é"]), st.booleans()),
    min_size=1,
    max_size=8,
)


@pytest.mark.long
@settings(max_examples=60)
@given(drawn=rows, verdict=st.sampled_from(["any_pass >= 1", "mean >= 0.5", "first >= 1", "majority >= 1"]))
def test_the_columns_are_the_same_as_those_of_objects(drawn, verdict):
    data = [
        {"id": str(i), "reference": reference, "outputs": list(texts), "part": part, "flag": flag}
        for i, (reference, texts, part, flag) in enumerate(drawn)
    ]
    if not any(row["outputs"] for row in data):
        return
    data = [row for row in data if row["outputs"]]  # a case without candidates keeps no fields but its id
    result = kofn.score(data, extract="number", metric=["numeric", "exact_match"], everything=True)
    parts = {row["part"] for row in data}
    plan = ReportConfig(
        task="t",
        name="n",
        group="part",
        types={p: "Error" for p in parts if p == "y"},
        weights={p: 0.3 for p in parts if p == "x"},
        metric_weights={"exact_match": 0.7},
        verdict=verdict,
        timestamp=NOW,
    )
    evaluation, frame = report_of(result, plan)
    expected = by_objects(result, plan)
    check_reports(frame)
    assert frame.schema == SCHEMA
    assert frame.rows(named=True) == expected.to_polars().rows(named=True)
    assert frame.equals(expected.to_polars())
    assert evaluation.model_copy(update={"reports": reports_of(frame)}) == expected
    assert reports_frame(expected.model_copy(update={"reports": reports_of(frame)})).equals(frame)


# columns as JSON texts


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(["a", None, "", 'say "b"', "\\", "a\nb", "\x00\x1f\x7f", "é😀\u2028"]),
        pl.Series([1, None, -(2**63), 2**63 - 1]),
        pl.Series([2**64 - 1, None], dtype=pl.UInt64),
        pl.Series([True, None, False]),
        pl.Series([None, None], dtype=pl.Boolean),
        pl.Series([None, None], dtype=pl.Null),
        pl.Series([1.0, -0.0, 1e300, 5e-324, None, 0.1]),
        pl.Series([["a", None], [], None]),
        pl.Series([{"k": 1, "l": [1.5]}, None]),
        pl.Series([], dtype=pl.String),
    ],
    ids=lambda c: str(c.dtype),
)
def test_json_texts_of_a_column_are_those_of_its_values(column):
    texts = json_text(column)
    assert texts.dtype == pl.String
    values = column.to_list()
    assert texts.to_list() == [encode_json(v) for v in values]
    assert [decode_json(t) for t in texts.to_list()] == values


def test_numbers_that_are_none_become_null_and_times_become_text():
    assert json_text(pl.Series([float("nan"), float("inf"), 1.0])).to_list() == [None, None, "1.0"]
    assert json_text(pl.Series([0]).cast(pl.Date)).to_list() == ['"1970-01-01"']
    assert json_text(pl.Series(["x", None]).cast(pl.Categorical)).to_list() == ['"x"', None]


@given(sets=st.lists(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=4), max_size=6))
def test_json_lists_of_sets_are_those_of_their_values(sets):
    flat = pl.Series([a for one in sets for a in one], dtype=pl.String)
    found = json_list(flat, np.cumsum([0, *map(len, sets)]))
    assert [decode_json(t) for t in found.to_list()] == [one[0] if len(one) == 1 else one for one in sets]


# speed


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["majority", "all_pass"])
def test_a_million_cases_of_eight_become_a_report_in_seconds(verdict, capsys):
    n, k, rng = 1_000_000, 8, np.random.default_rng(0)
    reference = np.repeat(rng.integers(0, 100, n), k)
    given_answers = np.where(rng.random(n * k) < 0.5, reference, rng.integers(0, 100, n * k))
    frame = pl.DataFrame(
        {
            "id": pl.Series(np.repeat(np.arange(n), k)).cast(pl.String),
            "reference": pl.Series(reference).cast(pl.String),
            "extracted": pl.Series(given_answers).cast(pl.String),
            "kind": pl.Series(np.repeat(np.arange(n) % 4, k)).cast(pl.String),
        }
    )
    result = kofn.score(frame, aggregate=["majority", "mean"], everything=True)
    reports = []
    cpu = cpu_seconds(lambda: reports.append(report_of(result, ReportConfig(group="kind", verdict=verdict))))
    ((evaluation, _),) = reports
    with capsys.disabled():
        sys.stdout.write(f"\n1,000,000 cases x 8, verdict {verdict}: report_of {cpu:.1f} s of CPU\n")
    assert evaluation.total_counts == {"Core": n}
    assert cpu < 40
