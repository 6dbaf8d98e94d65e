"""How fast to ask: the arithmetic of limits, without a clock."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.generate.calls import Gate
from kofn.generate.limits import CAP, Allowance, Bucket, Budget, Limits, Pace, backoff

GAPS = st.lists(st.floats(0, 2), min_size=1, max_size=60)


@given(rate=st.floats(0.1, 200), most=st.floats(1, 20), gaps=GAPS, window=st.floats(0.01, 5))
def test_no_window_holds_more_than_the_bucket_and_what_flowed_in(rate, most, gaps, window):
    bucket, now, starts = Bucket(rate, most), 0.0, []
    for gap in gaps:
        now += gap
        starts.append(bucket.take(1.0, now))
    assert starts == sorted(starts)  # first come, first served
    for first in starts:
        inside = sum(first <= start < first + window for start in starts)
        assert inside <= most + rate * window + 1 + 1e-6


@given(rate=st.floats(1, 100), gaps=GAPS)
def test_nobody_waits_longer_than_those_before_him_need(rate, gaps):
    bucket, now = Bucket(rate, 1.0), 0.0
    for i, gap in enumerate(gaps):
        now += gap
        assert now <= bucket.take(1.0, now) <= now + i / rate + 1e-6


@given(amounts=st.lists(st.floats(1, 5000), min_size=2, max_size=30))
def test_something_larger_than_the_bucket_goes_through_and_the_others_wait_for_it(amounts):
    bucket, now, total = Bucket(100.0, 100.0), 0.0, 0.0
    for amount in amounts:
        now = bucket.take(amount, now)
        assert now >= (total - 100.0) / 100.0 - 1e-6  # what was taken before has flowed in, but for one bucket
        total += amount


def test_what_was_not_used_is_given_back():
    bucket = Bucket(10.0, 10.0)
    bucket.take(10.0, 0.0)
    bucket.give(5.0)
    assert bucket.take(5.0, 0.0) == 0.0
    bucket.give(-10.0)  # more was used than was taken
    assert bucket.take(5.0, 0.0) == 1.5


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=200), st.integers(1, 100))
def test_the_allowance_stays_between_one_and_the_most(steps, most):
    allowance, now = Allowance(most), 0.0
    for good, gap in steps:
        started, now = now, now + gap
        before = allowance.allowed
        if good:
            allowance.faster()
            assert before <= allowance.allowed <= before + 1
        else:
            allowance.slower(started, now)
            assert allowance.allowed in (before, max(1.0, before / 2))
        assert 1 <= allowance.allowed <= most


def test_a_hundred_refusals_of_one_round_are_one_cut_and_it_comes_back_slowly():
    allowance = Allowance(100)
    for i in range(100):
        allowance.slower(started=0.0, now=1.0 + i / 100)
    assert allowance.allowed == 50
    for _ in range(50):
        allowance.faster()
    assert 50.9 < allowance.allowed < 51
    allowance.slower(started=2.0, now=3.0)
    assert 25 < allowance.allowed < 26


@given(st.integers(1, 2000), st.integers())
def test_a_wait_is_at_most_double_the_one_before_and_at_most_a_minute(failures, seed):
    assert 0 <= backoff(failures, Random(seed)) <= min(CAP, 0.5 * 2.0 ** min(failures - 1, 60))


def test_waits_are_spread_and_repeat_with_the_same_seed():
    draws = [backoff(5, Random(seed)) for seed in range(200)]
    assert min(draws) < 0.5
    assert max(draws) > 7.5
    assert draws == [backoff(5, Random(seed)) for seed in range(200)]


def test_a_pause_holds_for_everybody_and_the_longer_one_wins():
    pace = Pace(4)
    assert pace.free
    pace.pause(10.0, now=5.0)
    pace.pause(2.0, now=6.0)
    assert (pace.free, pace.until) == (False, 15.0)


def test_both_rates_must_allow_a_call():
    pace = Pace(4, requests_per_second=10, tokens_per_minute=600)
    assert [pace.start(1, 10, now=0.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    pace = Pace(4, requests_per_second=2, tokens_per_minute=6e6)
    assert [pace.start(1, 10, now=0.0) for _ in range(3)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("limits", "spent", "said"),
    [
        (Limits(max_cost=0.5), (0.5, 0, 0), "--max-cost 0.5 reached"),
        (Limits(token_budget=1000), (0, 1001, 0), "--token-budget 1000 reached"),
        (Limits(max_time=60), (0, 0, 61), "--max-time 60 reached"),
        (Limits(max_cost=0.5, token_budget=1000, max_time=60), (0.4, 999, 59), None),
        (Limits(), (1e9, 10**12, 1e9), None),
    ],
)
def test_a_budget_says_which_limit_was_reached(limits, spent, said):
    cost, tokens, now = spent
    budget = Budget(limits, started=0.0)
    budget.spend(cost, tokens)
    assert budget.reached(now) is (said is not None)
    assert budget.reason == said
    budget.cost, budget.tokens = 0.0, 0
    assert budget.reached(0.0) is (said is not None)  # once reached it stays so


def test_a_gate_lets_the_allowed_number_in_and_the_rest_in_order():
    async def go():
        pace = Pace(3)
        gate, inside, order, most = Gate(pace), 0, [], 0

        async def one(i):
            nonlocal inside, most
            await gate.enter()
            inside, order[len(order) :] = inside + 1, [i]
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            gate.leave()

        await asyncio.gather(*(one(i) for i in range(20)))
        assert (order, most, gate.active) == (list(range(20)), 3, 0)
        pace.allowance.allowed = 1.9
        await asyncio.gather(*(one(i) for i in range(3)))
        assert gate.active == 0

    asyncio.run(go())


def test_a_gate_keeps_no_place_for_those_who_were_cancelled():
    async def go():
        gate = Gate(Pace(1))
        await gate.enter()
        waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        gate.leave()  # lets the second in ...
        waiting[1].cancel()  # ... which is cancelled before it could notice
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not waiting[2].cancelled()
        gate.leave()
        assert gate.active == 0

    asyncio.run(go())
