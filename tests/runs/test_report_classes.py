"""The report classes: scores, counts, what is refused, and the tables they become."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kofn.errors import InputError, UnknownName, WorldError
from kofn.runs import (
    AttributeResult,
    CorrectnessResults,
    GroupReport,
    GroupType,
    PassPolicy,
    VerificationResult,
    VerifierReport,
)
from kofn.runs.case_reports import SCHEMA, case_scores

NAN, INF = math.nan, math.inf


def checked(*marks, weights=None):
    """Attributes a, b, c... with these marks."""
    weights = weights or [1.0] * len(marks)
    return {
        chr(97 + i): AttributeResult(is_correct=mark, weight=weight)
        for i, (mark, weight) in enumerate(zip(marks, weights, strict=True))
    }


def report(name="c", *marks, weights=None, group="g", kind="Core", **more):
    return VerifierReport(id=name, group=group, type=kind, results=checked(*marks, weights=weights), **more)


def evaluation(**more):
    return CorrectnessResults(problem_name="p", name="c", **more)


# worked examples


def test_a_case_scores_correct_weight_over_verified_weight():
    case = report("c", True, True, False, weights=[1.0, 0.5, 0.3])
    assert case.calculate_score() == pytest.approx(0.8333333333333334)
    assert not case.did_pass()


def test_an_attribute_that_was_not_verified_counts_neither_way():
    assert report("c", True, None, weights=[1.0, 9.0]).calculate_score() == 1.0
    assert report("c", True, None).did_pass()
    assert report("c", False, None).calculate_score() == 0.0


def test_a_group_scores_the_mean_of_its_cases():
    results = evaluation(group_outcomes={"g": GroupReport(results={"a": 1, "b": 0.8, "c": 0.9, "d": 0.6})})
    assert results.group_score("g") == 0.825


def test_an_evaluation_scores_the_mean_of_its_groups():
    groups = {str(s): GroupReport(results={"a": s}) for s in (0.9, 0.85, 0.92)}
    assert evaluation(group_outcomes=groups).score() == pytest.approx(0.89)


def test_groups_count_by_their_weight():
    groups = {"a": GroupReport(results={"x": 0.8}, weight=2), "b": GroupReport(results={"y": 0.6}, weight=0.5)}
    assert evaluation(group_outcomes=groups).score() == pytest.approx(0.76)


def test_a_group_adds_its_cases_times_and_counts():
    results = evaluation()
    results.add_group_report("g", "Core", 1.5, [report("x", True), report("y", False)], weight=2)
    results.add_group_report("h", GroupType.ERROR, 0.5, [report("x", False, group="h", kind="Error")])
    results.add_group_report("i", "Core", 1, [report("x", True, group="i")])
    assert results.group_outcomes["g"] == GroupReport(
        duration=1.5, results={"x": 1.0, "y": 0.0}, type=GroupType.CORE, weight=2
    )
    assert [r.id for r in results.reports] == ["x", "y", "x", "x"]
    assert results.duration == 3
    assert results.pass_counts == {"Core": 2, "Error": 0}
    assert results.total_counts == {GroupType.CORE: 3, GroupType.ERROR: 1}
    assert results.score() == pytest.approx((2 * 0.5 + 0 + 1) / 4)


def test_totals_list_every_type_that_has_cases_also_where_none_passes():
    results = evaluation()
    for kind in GroupType:
        results.add_group_report(kind.value, kind, 0, [report("x", False, group=kind.value, kind=kind)])
    assert results.total_counts == dict.fromkeys(GroupType, 1)
    assert results.pass_counts == dict.fromkeys(GroupType, 0)


def test_a_group_without_cases_is_there_and_counts_nothing():
    results = evaluation()
    results.add_group_report("g", "Core", 0, [])
    assert results.group_outcomes["g"].results == {}
    assert results.total_counts == {}
    assert results.score() is None
    assert results.decide().reason == "core-cases: no core cases"


@pytest.mark.parametrize("marks", [(), (None,), (None, None)])
def test_a_case_of_which_nothing_was_verified_has_no_score_does_not_pass_and_is_counted(marks):
    results = evaluation()
    results.add_group_report("g", "Core", 0, [report("x", *marks), report("y", True)])
    assert results.reports[0].calculate_score() is None
    assert not results.reports[0].did_pass()
    assert results.group_outcomes["g"].results == {"x": None, "y": 1.0}
    assert results.n_unverified == 1
    assert (results.pass_counts, results.total_counts) == ({"Core": 1}, {"Core": 2})
    assert results.group_score("g") == 1.0
    assert not results.decide("core-cases").passed
    assert results.decide("any-core-cases").passed


def test_a_failure_of_the_harness_fails_every_policy():
    results = evaluation(infrastructure_failure="out of disk")
    results.add_group_report("g", "Core", 0, [report("x", True)])
    assert not any(results.decide(p).passed for p in PassPolicy)
    assert "out of disk" in results.decide().reason


# what is refused


def test_an_id_may_be_in_a_group_only_once_and_in_several_groups():
    results = evaluation()
    with pytest.raises(InputError, match="'x' is there twice in group 'g'"):
        results.add_group_report("g", "Core", 0, [report("x", True), report("x", True)])
    assert results == evaluation(timestamp=results.timestamp)
    results.add_group_report("g", "Core", 0, [report("x", True)])
    results.add_group_report("h", "Core", 0, [report("x", True, group="h")])
    assert results.total_counts == {"Core": 2}


def test_a_group_may_be_added_only_once():
    results = evaluation()
    results.add_group_report("g", "Core", 0, [])
    with pytest.raises(InputError, match="group 'g' is there already"):
        results.add_group_report("g", "Core", 0, [])


@pytest.mark.parametrize("other", [{"group": "h"}, {"kind": "Error"}])
def test_a_report_must_be_of_the_group_it_is_added_to(other):
    with pytest.raises(InputError, match="case 'x' says group"):
        evaluation().add_group_report("g", "Core", 0, [report("x", True, **other)])


@pytest.mark.parametrize("bad", [NAN, INF, -1, "soon"])
def test_a_group_that_is_refused_changes_nothing(bad):
    results = evaluation()
    before = results.model_copy(deep=True)
    with pytest.raises(ValueError):
        results.add_group_report("g", "Core", bad, [report("x", True)])
    assert results == before


def test_times_that_add_up_to_infinity_are_refused_and_change_nothing():
    results = evaluation(duration=sys.float_info.max)
    before = results.model_copy(deep=True)
    with pytest.raises(ValidationError, match="finite"):
        results.add_group_report("g", "Core", sys.float_info.max, [report("x", True)])
    assert results == before


def test_an_unknown_group_is_named():
    with pytest.raises(UnknownName, match="unknown group 'b'"):
        evaluation(group_outcomes={"a": GroupReport()}).group_score("b")


def test_an_unknown_policy_or_type_is_refused_with_the_choices():
    with pytest.raises(UnknownName, match="all-non-error-cases"):
        evaluation().decide("most-cases")
    with pytest.raises(UnknownName, match="Functionality"):
        evaluation().add_group_report("g", "Kern", 0, [])
    with pytest.raises(ValidationError, match="'Functionality'"):
        GroupReport(type="Kern")
    with pytest.raises(ValidationError, match="'all-non-error-cases'"):
        evaluation(policy="most-cases")


cycle: list[object] = []
cycle.append(cycle)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (NAN, "nan is not a JSON value: use null"),
        (-INF, "-inf is not a JSON value: use null"),
        ([1, {"a.b": [NAN]}], "nan is not a JSON value at [1].a.b[0]: use null"),
        ({"k": INF}, "inf is not a JSON value at .k: use null"),
        ({1: "x"}, "key 1 is not a string"),
        ({"a": {None: 1}}, "key None is not a string at .a"),
        ({"a": {1, 2}}, "set is not a JSON value at .a"),
        (b"x", "bytes is not a JSON value"),
        (datetime.now(UTC), "datetime is not a JSON value"),
        (10**5000, "an integer of 16,610 bits is too long: use a string"),
        (cycle, "nested deeper than 100 levels"),
    ],
    ids=lambda v: None if isinstance(v, str) else type(v).__name__,
)
def test_what_is_no_json_value_is_refused_with_its_place(value, said):
    for make in (
        lambda: AttributeResult(is_correct=True, expected=value),
        lambda: AttributeResult(is_correct=True, actual=value),
        lambda: VerifierReport(id="c", group="g", type="Core", case={"k": value}),
    ):
        with pytest.raises(ValidationError) as refused:
            make()
        assert said in str(refused.value)


@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_a_number_that_is_none_is_refused_everywhere(number):
    for make in (
        lambda: AttributeResult(is_correct=True, weight=number),
        lambda: VerifierReport(id="c", group="g", type="Core", duration=number),
        lambda: GroupReport(weight=number),
        lambda: GroupReport(duration=number),
        lambda: GroupReport(results={"c": number}),
        lambda: evaluation(duration=number),
    ):
        with pytest.raises(ValidationError, match=r"finite number|greater than|less than"):
            make()
    results = evaluation()
    with pytest.raises(ValidationError, match="finite"):
        results.duration = number


@pytest.mark.parametrize("weight", [0, -1, -0.0])
def test_a_weight_is_above_0(weight):
    with pytest.raises(ValidationError, match="greater than 0"):
        AttributeResult(is_correct=True, weight=weight)
    with pytest.raises(ValidationError, match="greater than 0"):
        GroupReport(weight=weight)


@pytest.mark.parametrize("score", [-0.1, 1.1])
def test_a_score_is_from_0_to_1(score):
    with pytest.raises(ValidationError, match="than or equal"):
        GroupReport(results={"c": score})


def test_values_put_there_past_the_checks_are_refused_when_they_are_written(tmp_path):
    results = evaluation()
    results.add_group_report("g", "Core", 0, [report("x", True)])
    results.reports[0].case["k"] = NAN
    with pytest.raises(InputError, match=r"case 'x': case\.k: "):
        results.save(tmp_path)
    results.reports[0].case["k"] = 1
    results.group_outcomes["g"].results["x"] = NAN
    with pytest.raises(InputError, match="group 'g': case 'x': a score is from 0 to 1"):
        results.save(tmp_path)
    results.group_outcomes["g"].results["x"] = 1.0
    results.reports.append(results.reports[0])
    with pytest.raises(InputError, match="row 2: its id is there before in its group"):
        results.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["id", "group", "original_group", "original_checkpoint"])
def test_half_of_a_surrogate_pair_is_refused_in_names(field):
    given = {"id": "c", "group": "g", "type": "Core", field: "a\ud83d"}
    with pytest.raises(ValidationError, match="surrogate pair"):
        VerifierReport(**given)


def test_half_of_a_surrogate_pair_in_the_id_of_a_score_is_refused_when_it_is_written(tmp_path):
    with pytest.raises(InputError, match="group 'g': the id of a case is no Unicode text"):
        evaluation(group_outcomes={"g": GroupReport(results={"\ud83d": 1.0})}).save(tmp_path)


def test_half_of_a_surrogate_pair_is_shown_as_an_escape_in_texts_for_people():
    assert AttributeResult(is_correct=False, diff="é \ud83d!").diff == "é \\ud83d!"
    assert evaluation(infrastructure_failure="\udc80").infrastructure_failure == "\\udc80"


def test_a_field_nobody_knows_is_refused():
    with pytest.raises(ValidationError, match="colour"):
        AttributeResult(is_correct=True, colour="red")


# times


@pytest.mark.parametrize(
    "given_time",
    [
        "2024-03-01T10:00:00.123456+02:00",
        "2024-03-01T08:00:00.123456Z",
        datetime(2024, 3, 1, 8, 0, 0, 123456),
        datetime(2024, 3, 1, 13, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_times_are_kept_in_utc_to_the_microsecond(given_time):
    found = report("c", timestamp=given_time).timestamp
    assert found == datetime(2024, 3, 1, 8, 0, 0, 123456, tzinfo=UTC)
    assert found.utcoffset() == timedelta(0)


@pytest.mark.parametrize("bad", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "yesterday", "", "\ud800"])
def test_a_time_that_is_none_or_out_of_range_is_refused(bad):
    with pytest.raises(ValidationError, match="timestamp"):
        report("c", timestamp=bad)


def test_a_report_and_an_evaluation_are_dated_when_they_are_made():
    before = datetime.now(UTC)
    assert before <= report("c").timestamp <= datetime.now(UTC)
    assert before <= evaluation().timestamp <= datetime.now(UTC)


def test_both_names_of_an_attribute_result_are_one_class():
    assert VerificationResult is AttributeResult


# laws

weights = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
marks = st.sampled_from([True, False, None])
attributes = st.lists(st.tuples(marks, weights), max_size=8)
groups_of_cases = st.lists(st.tuples(weights, st.lists(attributes, max_size=4)), min_size=1, max_size=4)


def assembled(drawn):
    results = evaluation()
    for i, (weight, cases) in enumerate(drawn):
        reports = [
            report(str(j), *(m for m, _ in case), weights=[w for _, w in case], group=str(i))
            for j, case in enumerate(cases)
        ]
        results.add_group_report(str(i), "Core", 0, reports, weight=weight)
    return results


def scores_of(results):
    """Every score there is: of the evaluation, of its groups, of its cases."""
    return [
        results.score(),
        *(g.score() for g in results.group_outcomes.values()),
        *(s for g in results.group_outcomes.values() for s in g.results.values()),
    ]


@settings(max_examples=100)
@given(drawn=groups_of_cases)
def test_scores_are_from_0_to_1_at_any_weight(drawn):
    assert all(s is None or 0 <= s <= 1 for s in scores_of(assembled(drawn)))


@settings(max_examples=100)
@given(drawn=groups_of_cases, data=st.data())
def test_raising_one_attribute_from_wrong_to_right_never_lowers_a_score(drawn, data):
    wrong = [
        (i, j, k)
        for i, (_, cases) in enumerate(drawn)
        for j, case in enumerate(cases)
        for k, (mark, _) in enumerate(case)
        if mark is False
    ]
    if not wrong:
        return
    i, j, k = data.draw(st.sampled_from(wrong))
    raised = [(weight, [list(case) for case in cases]) for weight, cases in drawn]
    raised[i][1][j][k] = (True, raised[i][1][j][k][1])
    before, after = assembled(drawn), assembled(raised)
    pairs = list(zip(scores_of(before), scores_of(after), strict=True))
    assert all((b is None) == (a is None) for b, a in pairs)
    assert all(b <= a for b, a in pairs if b is not None)
    assert before.pass_counts.get("Core", 0) <= after.pass_counts.get("Core", 0)


@settings(max_examples=100)
@given(case=attributes)
def test_a_case_passes_exactly_where_it_has_a_verified_attribute_and_none_is_wrong(case):
    one = report("c", *(m for m, _ in case), weights=[w for _, w in case])
    verified = [m for m, _ in case if m is not None]
    assert one.did_pass() == (bool(verified) and all(verified))
    assert (one.calculate_score() is None) == (not verified)
    if one.did_pass():
        assert one.calculate_score() == 1.0
    if verified and not any(verified):
        assert one.calculate_score() == 0.0


@settings(max_examples=100)
@given(drawn=groups_of_cases)
def test_the_columns_give_the_scores_and_verdicts_of_the_objects_to_the_last_digit(drawn):
    results = assembled(drawn)
    found = case_scores(results.to_polars())
    assert found["score"].to_list() == [r.calculate_score() for r in results.reports]
    assert found["passed"].to_list() == [r.did_pass() for r in results.reports]
    failing = [[name for name, a in r.results.items() if a.is_correct is False] for r in results.reports]
    assert found["failing"].to_list() == failing


# tables


@pytest.fixture
def sample():
    results = evaluation()
    one = report("x", True, False, weights=[1.0, 0.5], duration=0.25, case={"input": "2+2", "n": 123, "none": None})
    one.results["b"] = AttributeResult(is_correct=False, weight=0.5, expected={"k": [1]}, actual="1", diff="- 1\n+ 2")
    back = report("old", None, group="r", kind="Regression", original_checkpoint="c0", original_group="g0")
    results.add_group_report("g", "Core", 1, [one, report("empty")])
    results.add_group_report("r", "Regression", 1, [back])
    return results


def test_to_polars_has_the_columns_of_the_parquet_file(sample):
    frame = sample.to_polars()
    assert frame.schema == SCHEMA
    assert frame.columns == [
        "problem", "checkpoint", "version", "problem_version", "id", "group", "type", "timestamp", "duration",
        "results", "case", "original_checkpoint", "original_group",
    ]  # fmt: skip
    assert frame.schema["timestamp"] == pl.Datetime("us", "UTC")
    assert [f.name for f in frame.schema["results"].inner.fields] == [
        "attribute", "expected", "actual", "diff", "is_correct", "weight",
    ]  # fmt: skip
    assert frame["results"][0][1] == {
        "attribute": "b", "expected": '{"k":[1]}', "actual": '"1"', "diff": "- 1\n+ 2", "is_correct": False,
        "weight": 0.5,
    }  # fmt: skip
    assert frame["case"][0].to_list() == [
        {"attribute": "input", "value": '"2+2"'},
        {"attribute": "n", "value": "123"},
        {"attribute": "none", "value": None},
    ]
    assert frame.row(2, named=True)["original_checkpoint"] == "c0"
    assert frame["results"].list.len().to_list() == [2, 0, 1]


def test_an_evaluation_without_reports_has_the_same_columns():
    assert evaluation().to_polars().schema == SCHEMA


def test_to_csv_reads_back_with_a_row_a_case_and_attribute(sample, tmp_path):
    path = tmp_path / "reports.csv"
    sample.to_csv(path)
    found = pl.read_csv(path, infer_schema=False)
    assert found.select("id", "attribute", "is_correct", "weight").rows() == [
        ("x", "a", "true", "1.0"),
        ("x", "b", "false", "0.5"),
        ("empty", None, None, None),
        ("old", "a", None, "1.0"),
    ]
    assert json.loads(found["expected"][1]) == {"k": [1]}
    assert json.loads(found["actual"][1]) == "1"
    assert found["diff"][1] == "'- 1\n+ 2"
    assert found["score"].to_list() == [str(2 / 3), str(2 / 3), None, None]
    assert found["passed"].to_list() == ["false", "false", "false", "false"]
    assert found["original_group"].to_list() == [None, None, None, "g0"]


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_no_cell_that_people_fill_begins_a_formula(formula, tmp_path):
    results = CorrectnessResults(problem_name=formula, name=formula)
    attribute = AttributeResult(is_correct=False, expected=formula, actual=[formula], diff=formula)
    one = VerifierReport(
        id=formula,
        group=formula,
        type="Regression",
        results={formula: attribute},
        original_checkpoint=formula,
        original_group=formula,
    )
    results.add_group_report(formula, "Regression", 0, [one])
    results.to_csv(tmp_path / "r.csv")
    found = pl.read_csv(tmp_path / "r.csv", infer_schema=False)
    texts = ["problem", "checkpoint", "id", "group", "attribute", "diff", "original_checkpoint", "original_group"]
    assert found.select(texts).row(0) == ("'" + formula,) * len(texts)
    assert json.loads(found["expected"][0]) == formula
    assert not any(str(cell).startswith(formula[0]) for cell in found.row(0))


def test_a_name_that_is_no_formula_stays_as_it_is(tmp_path):
    results = evaluation()
    results.add_group_report("a=b", "Core", 0, [report("1-2", True, group="a=b")])
    results.to_csv(tmp_path / "r.csv")
    assert pl.read_csv(tmp_path / "r.csv").select("id", "group").row(0) == ("1-2", "a=b")


def test_a_table_that_cannot_be_written_is_an_error_of_the_world(sample, tmp_path):
    with pytest.raises(WorldError, match=r"nowhere/r\.csv: cannot be written"):
        sample.to_csv(tmp_path / "nowhere" / "r.csv")
