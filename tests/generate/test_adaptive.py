"""Adaptive repeats: when a case stops, what that saves, and which numbers stay honest."""

from __future__ import annotations

import asyncio
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc

import kofn
from kofn.core.candidate_sets import CandidateSets
from kofn.core.types import Case
from kofn.errors import InputError
from kofn.generate.adaptive import Adaptive, honest, keep, lead_probability, leading_two, replay, saving
from kofn.generate.calls import CallContext
from kofn.generate.runner import generate
from kofn.generate.store import Store
from kofn.models.base import Model, Reply
from kofn.registry import aggregator
from kofn.tasks.stages import Item, Stage

ANSWERS = st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12)


@pytest.mark.parametrize(("v1", "v2"), [(0, 0), (1, 0), (4, 0), (5, 3), (30, 18), (400, 380)])
def test_the_rule_is_the_beta_distributions_upper_half(v1, v2):
    assert lead_probability(v1, v2) == pytest.approx(float(betainc(v2 + 1, v1 + 1, 0.5)), rel=1e-12)


@pytest.mark.parametrize(("confidence", "first"), [(0.6, 1), (0.9, 3), (0.95, 4), (0.99, 6)])
def test_the_first_round_is_the_fewest_after_which_a_case_can_stop(confidence, first):
    rule = Adaptive("number", most=100, confidence=confidence)
    assert rule.first == first
    assert rule.more_after(["1"] * first) == 0
    assert rule.more_after(["1"] * (first - 1)) >= 1


def test_a_case_stops_when_its_leading_answer_is_safe_and_goes_on_when_it_is_not():
    rule = Adaptive("number", most=40)
    assert rule.more_after(["1"] * 4) == 0
    assert rule.more_after(["1", "1", "1", "2"]) == 3  # six to one is the next that is safe
    assert rule.more_after(["1"] * 6 + ["2"]) == 0
    assert rule.more_after(["1", "2"] * 5) > 1


def test_no_answer_and_a_failed_call_never_vote_and_a_case_without_any_goes_on_to_the_end():
    rule = Adaptive("number", most=10)
    item = Item(case=Case(id="q"))
    assert rule.more(item, ["none"] * 3 + [None]) == 4
    assert rule.more(item, ["none", None] * 5) == 0
    assert rule.more(item, ["The answer is 7.", "7.0", None, "So: $7$", "#### 7"]) == 0


def test_answers_are_those_the_vote_compares_with_the_options_of_the_case():
    item = Item(case=Case(id="q", choices=("London", "Paris")))
    rule = Adaptive("letter", most=40)
    assert rule.more(item, ["It must be Paris.", "Answer: B", "(B)", "Paris"]) == 0


def test_a_vote_that_what_is_left_cannot_change_is_over():
    rule = Adaptive("number", most=8)
    assert lead_probability(5, 2) < 0.95
    assert rule.more_after(["1"] * 5 + ["2"] * 2) == 0  # one is left
    assert rule.more_after(["1"] * 4 + ["2"] * 3) == 1
    assert Adaptive("number", most=5).first == 3


@given(ANSWERS, st.integers(1, 3), st.sampled_from([0.8, 0.95, 0.99]))
def test_a_round_never_asks_for_more_than_is_allowed_nor_for_one_the_rule_would_not_have_drawn(answers, step, level):
    rule = Adaptive("number", most=12, confidence=level, step=step)
    more = rule.more_after(answers)
    assert 0 <= more <= 12 - len(answers)
    if step == 1:
        leader = max(set(answers) - {None}, key=answers.count, default="a")
        for fewer in range(1, more):
            assert rule.more_after([*answers, *[leader] * fewer]) > 0


@given(st.lists(st.sampled_from("abc"), min_size=12, max_size=12))
def test_rounds_stop_where_drawing_one_by_one_would_have_stopped(answers):
    rule = Adaptive("number", most=12)
    one_by_one = next((n for n in range(rule.first, 12) if rule.more_after(answers[:n]) == 0), 12)
    sets = CandidateSets.from_lists([[1] * 12], answers=[answers])
    assert replay(sets, rule).sizes.tolist() == [one_by_one]


@given(ANSWERS)
def test_the_leading_two_are_what_the_vote_counts(answers):
    from kofn.aggregators.votes import tally_votes

    counted = tally_votes(CandidateSets.from_lists([[1] * len(answers)], answers=[answers]))
    assert leading_two(answers) == (counted.first[0], counted.second[0])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"most": 0}, "at least 1"),
        ({"most": 5, "first": 6}, "first (6) is more than most (5)"),
        ({"most": 5, "confidence": 1.0}, "below 1"),
        ({"most": 5, "confidence": 0.5}, "above 0.5"),
        ({"most": 5, "step": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_the_rule_is_made(settings, said):
    with pytest.raises(InputError) as problem:
        Adaptive("number", **settings)
    assert said in str(problem.value)


def test_what_was_saved_is_priced_case_by_case_and_unknown_money_is_none():
    saved = saving([4, 10], 10, [[0.01] * 4, [0.03] * 10])
    assert (saved.samples, saved.mean_samples, saved.times) == (14, 7.0, 20 / 14)
    assert saved.cost == pytest.approx(0.34)
    assert saved.fixed_cost == pytest.approx(0.4)
    assert saving([4], 10, [[0.01, None, 0.01, 0.01]]).fixed_cost is None
    assert "$" not in str(saving([4], 10))
    assert str(saving([], 10)) == "adaptive: no cases"


def test_sets_without_answers_cannot_be_replayed():
    with pytest.raises(InputError, match="no answers"):
        replay(CandidateSets.from_lists([[1, 0]]), Adaptive("number", most=2))


def synthetic(cases: int, n: int, difficulty: tuple[float, float], seed: int = 0) -> CandidateSets:
    """Cases of unequal difficulty: the right answer has a Beta share, four wrong ones share the rest unequally."""
    rng = np.random.default_rng(seed)
    share = rng.beta(*difficulty, size=cases)
    wrong = rng.dirichlet(np.full(4, 0.7), size=cases)
    right = rng.random((cases, n)) < share[:, None]
    other = np.array([rng.choice(4, size=n, p=p) + 1 for p in wrong])
    silent = rng.random((cases, n)) < 0.03
    answers = np.where(right, 0, other).astype(str).astype(object)
    answers[silent] = None
    return CandidateSets.from_lists((right & ~silent).astype(int).tolist(), answers=answers.tolist())


def test_forty_samples_become_at_least_three_times_fewer_at_the_same_vote_accuracy():
    replayed = replay(synthetic(1000, 40, (2, 0.5)), Adaptive("number", most=40))
    assert replayed.saving.times >= 3
    assert abs(replayed.accuracy - replayed.full_accuracy) <= 0.01
    assert replayed.same_answer > 0.98


def test_hard_cases_keep_their_samples():
    """Where most votes are close there is little to save, and the rule does not pretend otherwise."""
    replayed = replay(synthetic(500, 40, (1, 1)), Adaptive("number", most=40))
    assert 1.5 < replayed.saving.times < 3
    assert abs(replayed.accuracy - replayed.full_accuracy) <= 0.01


def test_fewer_rounds_cost_a_few_samples():
    sets = synthetic(300, 40, (2, 0.5))
    one, four = (replay(sets, Adaptive("number", most=40, step=step)) for step in (1, 8))
    assert four.rounds < one.rounds
    assert one.saving.samples < four.saving.samples < 1.3 * one.saving.samples


def test_a_real_models_answers_to_a_hundred_questions(sets_folder):
    scored = kofn.score(sets_folder / "qwen_math100x8.jsonl", extract="math", everything=True).scored[0]
    replayed = replay(scored.sets, Adaptive("math", most=8))
    assert replayed.saving.times > 1.7
    assert replayed.saving.mean_samples < 5
    assert abs(replayed.accuracy - replayed.full_accuracy) <= 0.01


class Says(Model):
    """Output n of a case is its n-th line."""

    name, concurrency, chat, samples = "fake:says", 4, False, 3

    def __init__(self) -> None:
        self.calls = 0

    async def generate(self, requests):
        for place, request in enumerate(requests):
            self.calls += 1
            for index in range(request.n):
                yield Reply(text=request.prompt.splitlines()[request.repeat + index], place=place, index=index)


class Asks:
    stages = (Stage(name="answer"),)

    def prompt(self, item, *_, **__):
        return item.case.input


def test_the_runner_draws_what_the_rule_asks_for_and_no_more(tmp_path):
    courses = {"easy": "1111111111", "split": "1212121212", "late": "1211111111", "silent": "xxxxxxxxxx"}
    items = [Item(case=Case(id=name, input="\n".join(course))) for name, course in courses.items()]
    drawn: dict[str, int] = {}

    async def go() -> None:
        with Store.open(tmp_path, fingerprint={}) as store:
            await generate(
                items,
                Asks(),
                {"actor": Says()},
                CallContext(store=store, seed=0),
                repeats=Adaptive("number", most=10),
                on_case=lambda item, rows: drawn.update({item.case.id: len(rows)}),
            )

    asyncio.run(go())
    assert drawn == {"easy": 4, "split": 10, "late": 7, "silent": 10}


def every_outcome(rule: Adaptive, share: float):
    """All courses of a case with two answers: (its 0/1 values where it stopped, probability). Exact, no drawing."""
    seen: dict[tuple[int, ...], float] = {}
    for course in product((1, 0), repeat=rule.most):
        n = rule.first
        while more := rule.more_after([str(v) for v in course[:n]]):
            n += more
        p = float(np.prod([share if v else 1 - share for v in course]))
        seen[course[:n]] = seen.get(course[:n], 0.0) + p
    return list(seen.items())


def expected(name: str, outcomes, kept: int | None = None) -> float:
    values = [list(v[:kept]) for v, _ in outcomes]
    sets = CandidateSets.from_lists(values, answers=[[str(x) for x in v] for v in values])
    return float(np.dot(aggregator(name)(sets), [p for _, p in outcomes]))


RULE = Adaptive("number", most=10)
TRUTH = {"mean": 0.7, "pass@2": 1 - 0.3**2, "pass^2": 0.7**2, "agreement": None, "pass@4": 1 - 0.3**4}


@pytest.mark.parametrize("name", TRUTH)
def test_over_stopped_sets_an_estimate_is_biased_and_over_the_first_candidates_it_is_not(name):
    outcomes = every_outcome(RULE, 0.7)
    assert sum(p for _, p in outcomes) == pytest.approx(1)
    kept = keep(name, RULE.first)
    assert kept == 4
    fixed = [(c, float(np.prod([0.7 if v else 0.3 for v in c]))) for c in product((1, 0), repeat=4)]
    truth = TRUTH[name] or expected(name, fixed)  # agreement of four has no simpler form
    assert expected(name, outcomes, kept) == pytest.approx(truth, abs=1e-12)
    if name != "pass@4":  # of exactly the first four there is nothing left to be biased
        assert abs(expected(name, outcomes) - truth) > 0.005
    assert "first 4 candidates" in honest(name, RULE.first)


def test_the_mean_of_a_stopped_set_is_pulled_away_from_one_half():
    assert expected("mean", every_outcome(RULE, 0.7)) == pytest.approx(0.746, abs=0.0005)
    assert expected("mean", every_outcome(RULE, 0.3)) == pytest.approx(0.254, abs=0.0005)


def test_the_first_candidate_and_the_vote_are_honest_as_they_are():
    outcomes = every_outcome(RULE, 0.7)
    assert honest("first", 4) is None
    assert expected("first", outcomes) == pytest.approx(0.7)
    full = [(c, float(np.prod([0.7 if v else 0.3 for v in c]))) for c in product((1, 0), repeat=10)]
    assert honest("majority", 4) is None
    assert expected("majority", outcomes) == pytest.approx(expected("majority", full), abs=0.02)


def test_a_simulated_run_of_unequal_cases_shows_the_same():
    """Pooled over cases of unequal difficulty: the plain mean is off by several standard errors, the remedy is not."""
    sets = synthetic(4000, 12, (2, 1), seed=3)
    rule = Adaptive("number", most=12)
    sizes = replay(sets, rule).sizes
    truth = float(sets.values.mean())
    stopped = np.array([sets.values[a : a + n].mean() for a, n in zip(sets.offsets[:-1], sizes, strict=True)])
    pooled = np.concatenate([sets.values[a : a + n] for a, n in zip(sets.offsets[:-1], sizes, strict=True)])
    remedy = sets.truncate(rule.first).values.mean()
    error = float(sets.truncate(rule.first).values.reshape(-1, rule.first).mean(axis=1).std() / np.sqrt(len(sets)))
    assert abs(remedy - truth) < 2 * error
    assert abs(stopped.mean() - truth) > 2 * error
    assert abs(pooled.mean() - truth) > 2 * error


def test_a_k_beyond_the_first_round_says_what_to_raise():
    assert "raise the first repeats to 8" in honest("pass@8", 4)
    assert "first 4 candidates" in honest("ndcg(k=8)", 4)
    assert honest("mean", 1).startswith("mean: of the first candidate of every case")
