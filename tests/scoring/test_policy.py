"""Pass policies: the table of decisions, the reasons, and what holds for any counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.errors import InputError, UnknownName
from kofn.scoring.configuration import GroupType, PassPolicy

CORE, FUNCTIONALITY, REGRESSION, ERROR = GroupType
POLICIES = list(PassPolicy)
ANY = {"any", "any-case", "any-core-cases"}
NONE: set[str] = set()
EVERY = {p.value for p in PassPolicy}

# what passes, of what there is, and the policies that are met
TABLE = [
    ("core 2/2 + error 0/1", {CORE: 2, ERROR: 0}, {CORE: 2, ERROR: 1}, EVERY - {"all-cases"}),
    (
        "core 2/2 + regression 0/1",
        {CORE: 2, REGRESSION: 0},
        {CORE: 2, REGRESSION: 1},
        EVERY - {"all-cases", "all-non-error-cases"},
    ),
    ("core 0/2", {CORE: 0}, {CORE: 2}, NONE),
    ("core 1/2", {CORE: 1}, {CORE: 2}, ANY),
    ("core 2/2", {CORE: 2}, {CORE: 2}, EVERY),
    ("no core cases", {FUNCTIONALITY: 3}, {FUNCTIONALITY: 3}, {"any", "any-case", "all-cases", "all-non-error-cases"}),
    ("only error cases", {ERROR: 1}, {ERROR: 1}, {"any", "any-case", "all-cases"}),
    ("nothing at all", {}, {}, NONE),
    ("types without cases", {CORE: 0, ERROR: 0}, {CORE: 0, ERROR: 0}, NONE),
    (
        "3/2/1/0 of 3/3/2/1",
        {CORE: 3, FUNCTIONALITY: 2, ERROR: 1, REGRESSION: 0},
        {CORE: 3, FUNCTIONALITY: 3, ERROR: 2, REGRESSION: 1},
        {"any", "any-case", "core-cases", "any-core-cases", "all-core-cases"},
    ),
]


@pytest.mark.parametrize(("passes", "totals", "met"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_every_policy_decides_as_the_table_says(passes, totals, met):
    assert {p.value for p in PassPolicy if p.check(passes, totals)} == met


@pytest.mark.parametrize(("passes", "totals", "met"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_counts_may_be_keyed_by_plain_strings_and_leave_out_what_is_0(passes, totals, met):
    plain = {t.value: n for t, n in passes.items() if n}
    assert {p.value for p in PassPolicy if p.check(plain, {str(t): n for t, n in totals.items()})} == met


@pytest.mark.parametrize(
    ("policy", "passes", "totals", "reason"),
    [
        ("core-cases", {ERROR: 1}, {ERROR: 1}, "core-cases: no core cases"),
        ("any-core-cases", {}, {FUNCTIONALITY: 1}, "any-core-cases: no core cases"),
        ("all-non-error-cases", {ERROR: 1}, {ERROR: 1}, "all-non-error-cases: no non-error cases"),
        ("any", {}, {}, "any: no cases"),
        ("any", {}, {CORE: 2}, "any: 0 of 2 cases pass (Core 0 of 2)"),
        ("core-cases", {CORE: 1}, {CORE: 2}, "core-cases: 1 of 2 core cases pass"),
        ("all-cases", {CORE: 2}, {CORE: 2, ERROR: 1}, "all-cases: 2 of 3 cases pass (Error 0 of 1)"),
        (
            "all-cases",
            {CORE: 3, FUNCTIONALITY: 2, ERROR: 1},
            {CORE: 3, FUNCTIONALITY: 3, ERROR: 2, REGRESSION: 1},
            "all-cases: 6 of 9 cases pass (Functionality 2 of 3, Regression 0 of 1, Error 1 of 2)",
        ),
        ("core-cases", {CORE: 12000}, {CORE: 12000}, "core-cases: 12,000 of 12,000 core cases pass"),
    ],
)
def test_the_reason_is_one_line_with_the_numbers(policy, passes, totals, reason):
    assert PassPolicy(policy).explain(passes, totals) == reason


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failure_of_the_harness_fails_every_policy_and_says_so(policy):
    decision = policy.decide({CORE: 2}, {CORE: 2}, "the container did not start")
    assert not decision.passed
    assert decision.reason == f"{policy.value}: the harness failed: the container did not start"


@pytest.mark.parametrize("name", ["everything", "core", "any-cases", "", "ANY", None, 3])
def test_an_unknown_policy_is_refused_with_all_choices(name):
    with pytest.raises(UnknownName) as refused:
        PassPolicy(name)
    assert all(f" {p.value}" in str(refused.value) for p in PassPolicy)
    assert repr(str(name)) in str(refused.value)


@pytest.mark.parametrize("name", ["core", "Cor", "", None])
def test_an_unknown_group_type_is_refused_with_all_choices(name):
    with pytest.raises(UnknownName) as refused:
        GroupType(name)
    assert all(f" {t.value}" in str(refused.value) for t in GroupType)


@pytest.mark.parametrize(
    ("passes", "totals", "said"),
    [
        ({CORE: 3}, {CORE: 2}, "Core: 3 cases pass of 2"),
        ({ERROR: 1}, {CORE: 2}, "Error: 1 cases pass of 0"),
        ({CORE: -1}, {CORE: 2}, "Core: a count of cases is a whole number of 0 or more, not -1"),
        ({}, {CORE: 1.5}, "Core: a count of cases is a whole number of 0 or more, not 1.5"),
        ({}, {CORE: "2"}, "Core: a count of cases is a whole number of 0 or more, not '2'"),
        ({}, {"core": 2}, "unknown group type 'core'"),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_counts_that_cannot_be_are_refused_by_every_policy(policy, passes, totals, said):
    with pytest.raises(InputError, match="^" + said.replace(".", r"\.")):
        policy.check(passes, totals)


def test_counts_of_numpy_are_counts():
    assert PassPolicy("all-cases").check({"Core": np.int64(2)}, {"Core": np.int64(2)})


counts = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=4, max_size=4)


def as_counts(pairs):
    totals = {t: max(pair) for t, pair in zip(GroupType, pairs, strict=True)}
    passes = {t: min(pair) for t, pair in zip(GroupType, pairs, strict=True)}
    return passes, totals


@pytest.mark.parametrize("policy", POLICIES)
@given(pairs=counts, kind=st.sampled_from(GroupType))
def test_one_more_passing_case_never_takes_a_pass_away(policy, pairs, kind):
    passes, totals = as_counts(pairs)
    before = policy.check(passes, totals)
    if passes[kind] < totals[kind]:
        assert policy.check({**passes, kind: passes[kind] + 1}, totals) >= before


@given(pairs=counts)
def test_policies_imply_each_other_as_their_names_say(pairs):
    met = {p.value: p.check(*as_counts(pairs)) for p in PassPolicy}
    assert met["core-cases"] == met["all-core-cases"] <= met["any-core-cases"] <= met["any"] == met["any-case"]
    assert met["all-cases"] <= met["any"]
    totals = as_counts(pairs)[1]
    if any(totals[t] for t in GroupType if t is not GroupType.ERROR):
        assert met["all-cases"] <= met["all-non-error-cases"]


@given(pairs=counts)
def test_the_reason_agrees_with_the_decision(pairs):
    passes, totals = as_counts(pairs)
    for policy in PassPolicy:
        decision = policy.decide(passes, totals)
        assert decision.passed == policy.check(passes, totals)
        assert decision.reason == policy.explain(passes, totals)
        assert decision.policy == policy.value
        assert "\n" not in decision.reason
