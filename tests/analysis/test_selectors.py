"""Selectors: what they pick, what that is worth beside the best there was, and over which cases."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.analysis.selectors import Selector, evaluate_selector
from kofn.core.candidate_sets import CandidateSets
from kofn.errors import InputError
from kofn.scoring.configuration import GradingConfig

VALUES = st.lists(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, None]), st.sampled_from([None, 0.1, 0.5, 0.9])), min_size=1, max_size=5
    ),
    min_size=2,
    max_size=6,
)


def sets_of(cases):
    values = [[v for v, _ in case] for case in cases]
    return CandidateSets.from_lists(values, selectors={"judge": [[s for _, s in case] for case in cases]})


def picked(case):
    """The pass of the best scored graded candidate, equal ones shared; None where there is none."""
    graded = [(v, s) for v, s in case if v is not None and s is not None]
    best = max((s for _, s in graded), default=None)
    return None if best is None else np.mean([v for v, s in graded if s == best])


@given(VALUES)
def test_every_number_of_a_selection_is_over_the_cases_that_have_a_pick(cases):
    found = evaluate_selector(sets_of(cases), Selector(name="judge", by="judge"), GradingConfig())
    known = [(case, p) for case in cases if (p := picked(case)) is not None]
    assert found.selected.n == found.mean.n == found.oracle.n == found.headroom.n == len(known)
    if not known:
        return
    graded = [[v for v, _ in case if v is not None] for case, _ in known]
    assert found.selected.point == pytest.approx(np.mean([p for _, p in known]))
    assert found.mean.point == pytest.approx(np.mean([np.mean(g) for g in graded]))
    assert found.oracle.point == pytest.approx(np.mean([max(g) for g in graded]))
    assert found.headroom.point == pytest.approx(found.oracle.point - found.selected.point)
    won = [(p, g) for (_, p), g in zip(known, graded, strict=True) if max(g) == 1]
    assert found.regret.n == len(won)
    matter = [p for p, g in won if min(g) == 0]
    assert found.agreement.n == found.chance.n == len(matter)
    if matter:
        assert found.agreement.point == pytest.approx(np.mean(matter))


@given(VALUES)
def test_a_random_pick_is_worth_the_mean(cases):
    sets = sets_of(cases)
    found = evaluate_selector(sets, Selector(name="random", by="random"), GradingConfig())
    assert found.selected.point == pytest.approx(found.mean.point)


@pytest.mark.parametrize(("by", "prefer", "place"), [("length", "high", 1), ("length", "low", 0), ("first", "high", 0)])
def test_what_our_own_selectors_pick(by, prefer, place):
    sets = CandidateSets.from_lists([[0, 0, 1]], texts=[["a", "ccc", "bb"]])
    scores = Selector(name="x", by=by, prefer=prefer).scores(sets)
    assert int(np.argmax(scores)) == place


def first_long(one):
    return next((i for i, text in enumerate(one.texts) if len(text) > 1), 0)


def beyond(one):
    return len(one.texts)


def too_few(one):
    return [1.0]


def test_a_function_of_ones_own_gives_scores_or_a_place_and_wrong_ones_are_refused():
    sets = CandidateSets.from_lists([[0, 1, 1]], texts=[["a", "bb", "cc"]])
    here = "tests.analysis.test_selectors"
    assert Selector(name="f", by=f"{here}:first_long").scores(sets).tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(InputError, match="from 0 to 2"):
        Selector(name="f", by=f"{here}:beyond").scores(sets)
    with pytest.raises(InputError, match="1 scores for 3 candidates"):
        Selector(name="f", by=f"{here}:too_few").scores(sets)
    with pytest.raises(InputError, match="unknown selector 'judgee'"):
        Selector(name="f", by="judgee").scores(sets)


def test_a_fingerprint_changes_with_all_that_decides_a_pick():
    parts = {
        "by": ("a", "b"),
        "prefer": ("high", "low"),
        "version": ("1", "2"),
        "model": (None, "m"),
        "prompt": (None, "p"),
    }
    every = {Selector(name="x", **dict(zip(parts, one, strict=True))).fingerprint() for one in product(*parts.values())}
    assert len(every) == 32
