"""The runner: everything that is asked for is asked once, and ends as an output, an error row or a clear stop."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import run_with_jumping_clock
from tests.generate.worker import ONE, Echo, Recipe, items, open_store, run
from tests.loopback import serving

from kofn.errors import InputError, WorldError
from kofn.generate.calls import CallContext, CallQueue, CallTally, CallTimeout, PendingOutputs, part_of, shared_cost
from kofn.generate.candidate_table import candidate_rows
from kofn.generate.limits import Limits
from kofn.generate.runner import Fixed, Slot, generate, group_slots
from kofn.generate.store import Cache
from kofn.models.base import Likelihood, Model, Reply, Request, RequestRejected, RetryableError, Sampling
from kofn.models.openai import OpenAI
from kofn.tasks.stages import Stage, key_of, of_repeat

TWO = Recipe()
QUICK = Limits(retries=2)


def server_run(directory, url, model="m", *, n=6, limits=None, **more):
    """A run of one stage against a server."""
    context = {name: more.pop(name) for name in ("price", "cache", "tally") if name in more}

    async def go(store):
        backend = OpenAI(f"{model}@{url}")
        try:
            return await generate(
                items(n),
                ONE,
                {"actor": backend},
                CallContext(store=store, limits=limits or Limits(), seed=1, **context),
                **{"repeats": Fixed(2), **more},
            )
        finally:
            await backend.close()

    with open_store(directory) as store:
        outcome = asyncio.run(go(store))
        return outcome, candidate_rows(store, ONE.stages, [i.case.id for i in items(n)], 2)


def columns(directory, recipe=ONE, n=5, repeats=3):
    with open_store(directory) as store:
        return candidate_rows(store, recipe.stages, [i.case.id for i in items(n)], repeats)


# what is asked


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from("pq")), unique_by=lambda t: t[0], max_size=12).map(sorted),
    st.integers(1, 6),
)
def test_groups_hold_every_repeat_once_and_only_neighbours_with_one_prompt(pairs, most):
    slots = [Slot(repeat, b"", prompt, Sampling(), None) for repeat, prompt in pairs]
    groups = list(group_slots(slots, most))
    assert [slot for group in groups for slot in group] == slots
    for group in groups:
        assert 1 <= len(group) <= most
        assert {slot.prompt for slot in group} == {group[0].prompt}
        assert [slot.repeat for slot in group] == list(range(group[0].repeat, group[0].repeat + len(group)))
    for one, two in pairwise(groups):  # and no two could be one
        together = one[-1].repeat + 1 == two[0].repeat and one[0].prompt == two[0].prompt
        assert not together or len(one) == most


def test_the_sampling_of_a_repeat_differs_in_its_seed_alone():
    values = {"temperature": 0.3, "top_p": 0.4, "max_tokens": 7, "stop": ("x",), "seed": 5, "logprobs": True}
    sampling = Sampling(**{f.name: values[f.name] for f in fields(Sampling)})
    assert of_repeat(sampling, None, "c", "s", 3) == replace(sampling, seed=8)
    seed = of_repeat(sampling, 1, "c", "s", 3).seed
    assert of_repeat(sampling, 1, "c", "s", 3) == replace(sampling, seed=seed)
    assert of_repeat(Sampling(), None, "c", "s", 3) == Sampling()


def test_a_part_of_a_request_asks_for_what_the_whole_would_give():
    whole = Request(prompt="p", sampling=Sampling(seed=10), n=5, case_id="c", repeat=2)
    part = part_of(whole, 3, 2)
    assert (part.sampling.seed, part.n, part.repeat, part.case_id) == (13, 2, 5, "c")


def test_repeats_of_one_prompt_are_one_request_and_stored_as_if_asked_alone(tmp_path):
    together, alone = Echo(samples=4), Echo(samples=1)
    outcome, rows = run(tmp_path / "a", together, repeats=Fixed(6))
    _, others = run(tmp_path / "b", alone, repeats=Fixed(6))
    assert [r.n for r in together.requests] == [4, 2] * 5
    assert {r.n for r in alone.requests} == {1}
    same = [(r.key, r.text) for case in rows.values() for r in case]
    assert sorted(same) == sorted((r.key, r.text) for case in others.values() for r in case)
    assert (outcome.tally.calls, outcome.tally.replies, outcome.tally.candidates) == (10, 30, 30)
    assert outcome.stopped is None


def test_a_request_says_which_case_and_repeat_it_is_for(tmp_path):
    model = Echo(samples=2, concurrency=1)
    run(tmp_path, model, n=1, repeats=Fixed(3))
    assert [(r.case_id, r.repeat, r.n) for r in model.requests] == [("c0", 0, 2), ("c0", 2, 1)]


def test_with_one_call_at_a_time_the_order_is_that_of_the_cases(tmp_path):
    model = Echo(concurrency=1, samples=1)
    run(tmp_path, model, n=20, recipe=TWO, repeats=Fixed(2))
    assert model.most == 1
    ids = [r.case_id for r in model.requests]
    assert ids == [f"c{i}" for i in range(20) for _ in range(4)]
    assert [r.repeat for r in model.requests] == [0, 1, 0, 1] * 20


def test_no_more_calls_run_than_allowed_and_as_many_as_that(tmp_path):
    model = Echo(concurrency=7, samples=1)
    run(tmp_path, model, n=100, repeats=Fixed(1))
    assert model.most == 7
    model = Echo(concurrency=7, samples=1)
    run(tmp_path / "b", model, n=50, limits=Limits(concurrency=3))
    assert model.most == 3


def test_a_model_under_two_names_has_one_queue(tmp_path):
    recipe = Recipe(Stage(name="think"), Stage(name="answer", model="critic"))
    model = Echo(concurrency=2, samples=1)
    run(tmp_path, {"actor": model, "critic": model}, recipe=recipe, n=20)
    assert model.most == 2


def test_a_model_that_nobody_gave_is_refused(tmp_path):
    with pytest.raises(InputError, match="'answer': no model 'critic': there is actor"):
        run(tmp_path, Echo(), recipe=Recipe(Stage(name="answer", model="critic")))


def test_later_stages_see_what_earlier_ones_gave_and_reasoning_is_kept(tmp_path):
    run(tmp_path, Echo(), recipe=TWO, n=2, repeats=Fixed(2))
    frame = columns(tmp_path, TWO, n=2, repeats=2)
    for row in frame.iter_rows(named=True):
        assert row["reasoning"].startswith(f"think {row['id']}|")
        assert row["text"].startswith(f"answer {row['id']} {row['reasoning']}|")
    assert frame["id"].to_list() == ["c0", "c0", "c1", "c1"]
    assert frame["tokens"].to_list() == [6] * 4


def test_requests_are_made_in_batches_where_a_model_takes_them(tmp_path):
    model = Echo(batch=8, concurrency=1, samples=1)
    outcome, rows = run(tmp_path, model, n=40, repeats=Fixed(1))
    assert sum(model.sizes) == 40
    assert max(model.sizes) == 8
    assert len(model.sizes) <= 8  # not one by one
    assert outcome.tally.replies == 40
    assert all(case[0].text.startswith(f"answer {name}|") for name, case in rows.items())


def test_a_million_cases_are_not_made_before_they_are_needed(tmp_path):
    made = []

    def lazily():
        for item in items(400):
            made.append(item)
            yield item

    most = 0

    async def look(number, request, index):
        nonlocal most
        most = max(most, len(made) - int(request.case_id[1:]))

    run(tmp_path, Echo(look, concurrency=4), n=lazily(), repeats=Fixed(1))
    assert most < 20


# what was stored


def test_running_again_asks_for_nothing_and_more_repeats_or_cases_only_for_those(tmp_path):
    first = Echo()
    run(tmp_path, first, recipe=TWO, n=4, repeats=Fixed(3))
    before = columns(tmp_path, TWO, 4, 3)
    again = Echo()
    outcome, rows = run(tmp_path, again, recipe=TWO, n=4, repeats=Fixed(3))
    assert again.requests == []
    assert (outcome.tally.calls, outcome.tally.reused, outcome.tally.cases, len(rows)) == (0, 24, 4, 4)
    more = Echo()
    run(tmp_path, more, recipe=TWO, n=5, repeats=Fixed(5))
    requested = {(r.case_id, r.repeat + j) for r in more.requests for j in range(r.n)}
    assert requested == {(f"c{i}", r) for i in range(5) for r in range(5) if i == 4 or r > 2}
    assert columns(tmp_path, TWO, 4, 3).equals(before)  # fewer cases and repeats than are stored


def test_a_missing_repeat_in_the_middle_is_asked_with_its_own_seed(tmp_path):
    run(tmp_path / "a", Echo(), n=1, repeats=Fixed(4))
    whole = columns(tmp_path / "a", n=1, repeats=4)["text"].to_list()

    async def break_second(number, request, index):
        if request.repeat + index == 1:
            raise RequestRejected("no")

    run(tmp_path / "b", Echo(break_second), n=1, repeats=Fixed(4))
    with open_store(tmp_path / "b") as store:
        assert store.forget_errors() == 1
    model = Echo()
    run(tmp_path / "b", model, n=1, repeats=Fixed(4))
    assert [(r.repeat, r.n) for r in model.requests] == [(1, 1)]
    assert columns(tmp_path / "b", n=1, repeats=4)["text"].to_list() == whole


def test_errors_stay_until_they_are_forgotten_and_end_the_candidate(tmp_path):
    async def fail(number, request, index):
        if request.case_id == "c1" and "think" in request.prompt.split()[0]:
            raise RequestRejected("too long\nby far")

    outcome, _ = run(tmp_path, Echo(fail), recipe=TWO, n=3, repeats=Fixed(2))
    assert (outcome.tally.errors, outcome.tally.cases, outcome.stopped) == (2, 3, None)
    frame = columns(tmp_path, TWO, 3, 2)
    assert frame["error"].to_list() == [None, None, "too long by far", "too long by far", None, None]
    assert frame["text"].is_null().to_list() == [False, False, True, True, False, False]
    quiet = Echo()
    run(tmp_path, quiet, recipe=TWO, n=3, repeats=Fixed(2))
    assert quiet.requests == []
    with open_store(tmp_path) as store:
        assert store.forget_errors() == 2
    outcome, _ = run(tmp_path, quiet, recipe=TWO, n=3, repeats=Fixed(2))
    assert {r.case_id for r in quiet.requests} == {"c1"}
    assert "error" not in columns(tmp_path, TWO, 3, 2).columns


def test_the_price_and_tokens_of_a_prompt_are_shared_by_its_outputs(tmp_path):
    _, rows = run(tmp_path, Echo(samples=3), n=1, price=lambda _, i, o: i * 1.0 + o * 10.0)
    assert [r.tokens_in for r in rows["c0"]] == [3, 3, 4]
    assert [r.tokens_out for r in rows["c0"]] == [3, 3, 3]
    assert sum(r.cost for r in rows["c0"]) == pytest.approx(10 + 9 * 10)


@given(st.integers(0, 10**6), st.lists(st.integers(0, 5000), min_size=1, max_size=9))
def test_shares_of_a_price_add_up(tokens_in, tokens_out):
    def tiered(model, i, o):  # dearer for long prompts, as some are
        return (i * 3 + o * 15) * (2 if i > 200_000 else 1) * 1e-6

    shares = shared_cost("m", tokens_in, tokens_out, tiered)
    assert sum(shares) == pytest.approx(tiered("m", tokens_in, sum(tokens_out)))


def test_tokens_a_server_does_not_give_are_counted_and_marked(tmp_path):
    class Silent(Echo):
        def say(self, request, place, index):  # noqa: ARG002 - whatever it is asked
            return Reply(text="one two three", place=place, index=index)

    outcome, rows = run(tmp_path, Silent(), n=1, repeats=Fixed(2))
    assert [r.tokens_out for r in rows["c0"]] == [3, 3]
    assert all(json.loads(r.detail) == {"counted": True} for r in rows["c0"])
    assert outcome.tally.unpriced == 2


# adaptive repeats


class UntilTwoAgree:
    first, most = 2, 6

    def more(self, item, outputs):  # noqa: ARG002 - the protocol's
        assert len(outputs) >= 2
        return 0 if outputs[-1] is not None and outputs[-1][-1] in "13579" else 2


def test_rounds_depend_on_outputs_alone_so_that_a_resumed_run_decides_alike(tmp_path):
    whole = Echo(samples=1)
    run(tmp_path / "a", whole, n=12, repeats=UntilTwoAgree())
    expected = columns(tmp_path / "a", n=12, repeats=6)
    sizes = expected["id"].value_counts()["count"]
    assert sizes.min() >= 2
    assert sizes.max() <= 6
    assert sizes.n_unique() > 1

    async def die(number, request, index):
        if number > 15:
            raise WorldError("gone")

    with pytest.raises(WorldError):
        run(tmp_path / "b", Echo(die, samples=1), n=12, repeats=UntilTwoAgree())
    rest = Echo(samples=1)
    run(tmp_path / "b", rest, n=12, repeats=UntilTwoAgree())
    assert 0 < len(rest.requests) < len(whole.requests)
    assert columns(tmp_path / "b", n=12, repeats=6).drop("seconds").equals(expected.drop("seconds"))


# failures


def test_what_may_succeed_later_is_tried_again(tmp_path):
    async def flaky(number, request, index):
        if number % 2:
            raise RetryableError("status 500")

    outcome, rows = run(tmp_path, Echo(flaky, concurrency=1), n=2, limits=Limits(retries=3))
    assert (outcome.tally.retries, outcome.tally.errors, outcome.tally.calls) == (2, 0, 4)
    assert [r.attempts for case in rows.values() for r in case] == [2] * 6


def test_what_fails_too_often_is_an_error_row_with_the_last_reason(tmp_path):
    async def never(number, request, index):
        if request.case_id == "c0":
            raise [RetryableError("status 500"), OSError("connection reset"), TimeoutError("late")][number % 3]

    outcome, rows = run(tmp_path, Echo(never, concurrency=1), n=2, limits=QUICK)
    assert [r.error for r in rows["c0"]] == ["status 500"] * 3  # of the third call
    assert [r.attempts for r in rows["c0"]] == [3] * 3
    assert [r.error for r in rows["c1"]] == [None] * 3
    assert (outcome.tally.errors, outcome.tally.retries) == (3, 2)


def test_a_call_that_takes_too_long_is_tried_again_and_then_an_error(tmp_path):
    async def hang(number, request, index):
        if request.case_id == "c1":
            await asyncio.sleep(9999)

    outcome, rows = run(tmp_path, Echo(hang), n=3, repeats=Fixed(1), limits=Limits(timeout=0.05, retries=1))
    assert rows["c1"][0].error == "no reply within 0.05 s"
    assert rows["c1"][0].attempts == 2
    assert outcome.tally.errors == 1


def test_patience_ends_only_what_is_late_and_not_what_others_cancel():
    async def go():
        patience, ended = CallTimeout(0.05), []

        async def one(seconds):
            try:
                with patience:
                    await asyncio.sleep(seconds)
            except RetryableError:
                ended.append(seconds)

        tasks = [asyncio.create_task(one(s)) for s in (0.0, 5.0, 0.02, 6.0, 9.0)]
        await asyncio.sleep(0.01)
        tasks[4].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert ended == [5.0, 6.0]
        assert [t.cancelled() for t in tasks] == [False] * 4 + [True]
        await one(7.0)  # the timer starts again
        assert ended[-1] == 7.0
        patience.close()

    run_with_jumping_clock(go())


def test_fewer_outputs_than_asked_for_are_asked_for_again(tmp_path):
    class Stingy(Echo):
        async def generate(self, requests):
            self.requests += requests
            for place, request in enumerate(requests):
                yield self.say(request, place, 0)

    model = Stingy(samples=4)
    outcome, rows = run(tmp_path / "a", model, n=3, repeats=Fixed(4))
    _, expected = run(tmp_path / "b", Echo(), n=3, repeats=Fixed(4))
    assert {r.key: r.text for c in rows.values() for r in c} == {r.key: r.text for c in expected.values() for r in c}
    assert outcome.tally.errors == outcome.tally.retries == 0
    assert model.requests[-1].n == 1  # it has been learned


def test_a_reply_without_outputs_and_one_that_repeats_itself_do_not_count(tmp_path):
    class Odd(Echo):
        async def generate(self, requests):
            self.requests += requests
            if len(self.requests) > 1:
                for index in (0, 0, 7, 1, 2):
                    yield self.say(requests[0], 0, index)

    outcome, rows = run(tmp_path, Odd(), n=1)
    assert [r.repeat for r in rows["c0"]] == [0, 1, 2]
    assert (outcome.tally.retries, outcome.tally.replies) == (1, 3)


def test_what_came_before_a_cut_is_kept_and_only_the_rest_asked_for(tmp_path):
    async def cut(number, request, index):
        if number == 1 and index == 2:
            raise RetryableError("cut")

    model = Echo(cut, samples=4)
    _, rows = run(tmp_path, model, n=1, repeats=Fixed(4))
    assert [(r.repeat, r.n) for r in model.requests] == [(0, 4), (2, 2)]
    assert model.requests[1].sampling.seed == model.requests[0].sampling.seed + 2
    assert [r.attempts for r in rows["c0"]] == [1, 1, 2, 2]
    assert [r.tokens_in for r in rows["c0"]] == [5, 5, 5, 5]


def test_a_server_that_refuses_several_outputs_is_asked_for_one_at_a_time(tmp_path):
    async def one_only(number, request, index):
        if request.n > 1:
            raise RequestRejected("n must be 1")

    model = Echo(one_only)
    outcome, rows = run(tmp_path, model, n=2, repeats=Fixed(3))
    assert sorted(r.n for r in model.requests) == [1] * 6 + [3] * 2
    assert (outcome.tally.errors, outcome.tally.replies) == (0, 6)
    assert len({r.text for r in rows["c0"]}) == 3


def test_a_prompt_that_is_refused_for_several_outputs_and_for_one_is_not_asked_again(tmp_path):
    async def too_long(number, request, index):
        raise RequestRejected("too long")

    model = Echo(too_long)
    outcome, _ = run(tmp_path, model, n=1, repeats=Fixed(4))
    assert [r.n for r in model.requests] == [4, 1]
    assert outcome.tally.errors == 4


def test_a_server_that_nobody_reaches_ends_the_run_after_three_attempts(tmp_path):
    async def closed(number, request, index):
        raise RetryableError("cannot connect to 127.0.0.1:9 (Connection refused)", unreachable=True)

    model = Echo(closed, concurrency=1)
    with pytest.raises(WorldError, match=r"echo: cannot connect .*Check that the server is running"):
        run(tmp_path, model, n=5, repeats=Fixed(1))
    assert len(model.requests) == 3
    once = Echo(closed, concurrency=1)
    with pytest.raises(WorldError):
        run(tmp_path, once, n=5, repeats=Fixed(1), limits=Limits(retries=0))
    assert len(once.requests) == 1


def test_a_server_that_goes_away_later_is_waited_for(tmp_path):
    async def away(number, request, index):
        if 2 <= number <= 5:
            raise RetryableError("cannot connect", unreachable=True)

    model = Echo(away, concurrency=1, samples=1)
    outcome, rows = run(tmp_path, model, n=3, repeats=Fixed(1))
    assert [rows[f"c{i}"][0].error for i in range(3)] == [None, None, None]
    assert outcome.tally.retries == 4


def test_in_a_batch_only_the_refused_request_becomes_an_error(tmp_path):
    async def refuse(number, request, index):
        if request.case_id == "c2":
            raise RequestRejected("a filter")

    outcome, rows = run(tmp_path, Echo(refuse, batch=4, samples=1, concurrency=1), n=6, repeats=Fixed(1))
    assert [rows[f"c{i}"][0].error for i in range(6)] == [None, None, "a filter", None, None, None]
    assert outcome.tally.errors == 1


@pytest.mark.parametrize("batch", [1, 4])
def test_what_nothing_can_mend_stops_the_run_and_keeps_what_came(tmp_path, batch):
    async def stop(number, request, index):
        if number >= 3:
            await asyncio.sleep(0.01)
            raise InputError("openai:m: status 401: check OPENAI_API_KEY")

    model = Echo(stop, batch=batch, samples=1)
    with pytest.raises(InputError, match="401"):
        run(tmp_path, model, n=1000, repeats=Fixed(1))
    assert len(model.requests) < 40
    frame = columns(tmp_path, n=1000)
    assert frame.height >= 2
    assert frame["text"].null_count() == 0


@pytest.mark.parametrize("batch", [1, 4])
def test_a_bug_in_a_backend_is_raised_as_it_is_after_keeping_what_came(tmp_path, batch):
    async def bug(number, request, index):
        if number >= 3:
            raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError, match="oops"):
        run(tmp_path, Echo(bug, batch=batch, samples=1), n=100, repeats=Fixed(1))
    assert columns(tmp_path, n=100).height >= 2


def test_an_interrupted_run_keeps_what_it_received_and_goes_on_from_there(tmp_path):
    async def halfway(number, request, index):
        if number > 10:
            await asyncio.sleep(60)

    async def go(store, model):
        running = generate(
            items(30),
            ONE,
            {"actor": model},
            CallContext(store=store, limits=Limits(concurrency=4), seed=1),
            repeats=Fixed(1),
        )
        task = asyncio.create_task(running)
        while len(model.sizes) < 12:
            await asyncio.sleep(0.001)
        task.cancel()
        await task

    model = Echo(halfway)
    with open_store(tmp_path) as store, pytest.raises(asyncio.CancelledError):
        asyncio.run(go(store, model))
    assert columns(tmp_path, n=30).height == 10
    assert model.now == 0  # the calls under way were ended
    rest = Echo()
    run(tmp_path, rest, n=30, repeats=Fixed(1))
    assert len(rest.requests) == 20


def test_a_full_disk_stops_the_run(tmp_path):
    async def go(store):
        store._connection.execute("PRAGMA max_page_count = 12")
        await generate(items(3000), ONE, {"actor": Echo()}, CallContext(store=store, seed=1), repeats=Fixed(1))

    store = open_store(tmp_path)
    with pytest.raises(WorldError, match="what was stored is kept"):
        asyncio.run(go(store))
    with pytest.raises(WorldError):
        store.close()
    run(tmp_path, Echo(), n=5)


# budgets


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(max_cost=1.25, concurrency=1), 10),
        (Limits(token_budget=130, concurrency=1), 10),
        (Limits(max_cost=1.25, concurrency=4), 20),
    ],
)
def test_a_budget_ends_the_run_with_what_was_under_way_and_it_can_go_on(tmp_path, limits, most):
    model = Echo(samples=1)
    outcome, rows = run(tmp_path, model, n=100, repeats=Fixed(1), limits=limits, price=lambda *_: 0.125)
    assert outcome.stopped in ("--max-cost 1.25 reached", "--token-budget 130 reached")
    assert 10 <= len(model.requests) <= most
    assert len(rows) == outcome.tally.replies == columns(tmp_path, n=100).height == len(model.requests)
    outcome, _ = run(tmp_path, Echo(samples=1), n=100, repeats=Fixed(1))
    assert (outcome.stopped, outcome.tally.reused) == (None, len(model.requests))


def test_a_candidate_that_a_budget_left_between_two_stages_is_none(tmp_path):
    outcome, rows = run(
        tmp_path,
        Echo(concurrency=1),
        recipe=TWO,
        n=5,
        repeats=Fixed(2),
        limits=Limits(max_cost=0.5),
        price=lambda *_: 0.1,
    )
    assert outcome.stopped == "--max-cost 0.5 reached"
    frame = columns(tmp_path, TWO)
    assert frame["text"].null_count() == 0
    assert frame.height < outcome.tally.replies
    assert set(rows) <= set(frame["id"])


def test_the_time_limit_does_not_wait_for_a_server_that_asks_for_an_hour(tmp_path):
    async def busy(number, request, index):
        raise RetryableError("status 429", 3600.0)

    outcome, _ = run(tmp_path, Echo(busy), n=3, limits=Limits(max_time=0.2))
    assert outcome.stopped == "--max-time 0.2 reached"
    assert outcome.tally.errors == 0  # they have not failed, they are not done


# limits, with a clock that is told


def clocked(directory, model, limits, n, **more):
    """Ask n times with a clock of our own; the times the calls were made at."""
    now, times = [100.0], []

    async def sleep(seconds):
        now[0] += seconds
        await asyncio.sleep(0)

    async def note(number, request, index):
        times.append(now[0] - 100.0)
        if more.get("script"):
            await more["script"](number)

    model.script = note

    async def go(store):
        calls = CallQueue(model, CallContext(store=store, limits=limits), clock=lambda: now[0], sleep=sleep)
        for i in range(n):
            request = Request(prompt="p", sampling=Sampling(max_tokens=10))
            await calls.ask(
                PendingOutputs(stage="s", case_id="c", repeat=i, keys=[i.to_bytes(16, "big")], request=request)
            )
        await calls.close()
        return calls

    with open_store(directory) as store:
        return times, asyncio.run(go(store))


def test_requests_keep_to_their_rate(tmp_path):
    times, _ = clocked(tmp_path, Echo(), Limits(requests_per_second=50), 20)
    assert times == pytest.approx([i / 50 for i in range(20)])


def test_tokens_keep_to_their_rate_by_what_they_really_were(tmp_path):
    times, _ = clocked(tmp_path, Echo(), Limits(tokens_per_minute=600), 31)
    # 13 tokens a call at 10 a second
    assert times[-1] / 30 == pytest.approx(1.3, rel=0.05)


def test_the_wait_a_server_asks_for_is_kept_by_everybody(tmp_path):
    async def busy(number):
        if number == 2:
            raise RetryableError("status 429", 7.0)

    times, calls = clocked(tmp_path, Echo(concurrency=8), Limits(), 4, script=busy)
    assert times == [0.0, 0.0, 7.0, 7.0, 7.0]
    assert 4 < calls.pace.allowance.allowed < 5
    assert calls.tally.retries == 1


def test_waits_grow_with_the_failures(tmp_path):
    async def down(number):
        raise RetryableError("status 503")

    times, calls = clocked(tmp_path, Echo(concurrency=8), Limits(retries=5), 1, script=down)
    gaps = [b - a for a, b in pairwise(times)]
    assert len(gaps) == 5
    assert all(0 <= gap <= 0.5 * 2**i for i, gap in enumerate(gaps))
    assert calls.pace.allowance.allowed == 8  # a server that fails is not one that asks for less
    assert calls.tally.errors == 1


def test_a_server_that_is_busy_gets_fewer_calls(tmp_path):
    async def busy(number):
        if number < 3:
            raise RetryableError("status 429", busy=True)

    _, calls = clocked(tmp_path, Echo(concurrency=8), Limits(), 1, script=busy)
    assert 2 <= calls.pace.allowance.allowed < 3


# likelihoods


class Weigher(Model):
    """Likes short texts; per byte, long ones."""

    name, chat, samples, concurrency = "weigher", False, 1, 2

    def __init__(self, batch=1):
        self.batch, self.calls = batch, []

    async def generate(self, requests):  # noqa: ARG002 - the protocol's
        raise NotImplementedError
        yield

    async def loglikelihood(self, pairs):
        self.calls.append(pairs)
        return [Likelihood(logprob=-2.0 - 0.1 * len(text), tokens=len(text), greedy=False) for _, text in pairs]


@pytest.mark.parametrize("batch", [1, 8])
def test_the_likeliest_option_is_chosen_and_the_normalised_choice_kept_beside_it(tmp_path, batch):
    model = Weigher(batch)
    recipe = Recipe(Stage(name="choice", kind="choose"))
    _, rows = run(tmp_path, model, n=3, recipe=recipe, repeats=Fixed(2))
    row = rows["c1"][1]
    assert (row.text, row.logprob) == ("A", -2.2)
    detail = json.loads(row.detail)
    assert detail["normalised"] == "B"
    assert detail["options"] == [
        {"label": "A", "logprob": -2.2, "tokens": 2, "bytes": 1},
        {"label": "B", "logprob": -2.4, "tokens": 4, "bytes": 3},
    ]
    assert sum(len(pairs) for pairs in model.calls) == 12
    assert (max(len(pairs) for pairs in model.calls) > 2) is (batch > 1)
    assert columns(tmp_path, recipe, 3, 2)["selector.logprob"].to_list() == [-2.2] * 6


def test_the_likelihood_of_a_reference_is_its_logprob(tmp_path):
    recipe = Recipe(Stage(name="gold", kind="likelihood"))
    _, rows = run(tmp_path, Weigher(), n=1, recipe=recipe, repeats=Fixed(1))
    assert (rows["c0"][0].text, rows["c0"][0].logprob) == (" a", -2.2)
    assert json.loads(rows["c0"][0].detail) == {"greedy": False, "tokens": 2}


def test_a_likelihood_that_is_no_number_is_an_error_row(tmp_path):
    class Broken(Weigher):
        async def loglikelihood(self, pairs):
            return [Likelihood(logprob=float("nan"), tokens=1, greedy=False) for _ in pairs]

    outcome, rows = run(tmp_path, Broken(), n=1, recipe=Recipe(Stage(name="choice", kind="choose")), repeats=Fixed(1))
    assert "not a number" in rows["c0"][0].error
    assert outcome.tally.errors == 1


def test_a_model_without_likelihoods_says_so_and_a_case_without_options_too(tmp_path):
    recipe = Recipe(Stage(name="choice", kind="choose"))
    with pytest.raises(InputError, match="no log-likelihood"):
        run(tmp_path, Echo(), recipe=recipe)
    recipe.options = lambda *_: []
    with pytest.raises(InputError, match="case 'c0': stage 'choice' needs options"):
        run(tmp_path / "b", Weigher(), recipe=recipe)


# the cache


def test_the_cache_answers_what_is_always_the_same_in_another_run(tmp_path):
    with Cache.open(tmp_path / "cache.sqlite") as cache:
        first = Echo()
        run(tmp_path / "a", first, recipe=TWO, n=3, repeats=Fixed(2), cache=cache, price=lambda *_: 0.1)
        second = Echo()
        outcome, rows = run(
            tmp_path / "b", second, recipe=TWO, n=3, repeats=Fixed(2), cache=cache, price=lambda *_: 0.1
        )
        assert [r.prompt.split()[0] for r in second.requests] == ["think"] * 3  # those are drawn, not always the same
        assert outcome.tally.reused == 6
        assert [(r.cost, r.attempts, r.repeat, r.case_id) for r in rows["c1"] if r.stage == "answer"] == [
            (0.0, 0, 0, "c1"),
            (0.0, 0, 1, "c1"),
        ]
        other = Echo(name="another")
        run(tmp_path / "c", other, recipe=TWO, n=3, repeats=Fixed(2), cache=cache)
        assert len(other.requests) == 9
    assert (
        columns(tmp_path / "b", TWO, 3, 2)
        .drop("seconds", "cost")
        .equals(columns(tmp_path / "a", TWO, 3, 2).drop("seconds", "cost"))
    )


# a real server


def test_against_a_server_every_fault_ends_as_an_output(tmp_path):
    faults = {"*": ["429-ms", "500", "cut", "malformed", "html", "no-choices", "drop"]}
    with serving(faults) as server:
        outcome, frame = server_run(tmp_path, server.url)
    assert (frame.height, outcome.tally.errors, outcome.tally.replies) == (12, 0, 12)
    assert outcome.tally.retries == 7
    assert outcome.tally.calls == 13


@pytest.mark.long(quick=1)
@pytest.mark.parametrize("fault", ["500", "cut", "malformed", "html", "no-choices", "drop", "hang", "error-200"])
def test_against_a_server_what_never_works_is_counted_as_errors(tmp_path, fault):
    with serving() as server:
        limits = Limits(retries=1, timeout=0.3, concurrency=12)
        outcome, frame = server_run(tmp_path, server.url, fault, n=3, limits=limits)
    assert (outcome.tally.errors, outcome.tally.calls, outcome.stopped) == (6, 6, None)
    assert frame["text"].null_count() == frame.height == 6
    assert frame["error"].null_count() == 0


def test_against_a_server_that_gives_one_output_whatever_is_asked_all_come(tmp_path):
    with serving() as server:
        outcome, frame = server_run(tmp_path, server.url, "one-choice")
        _, expected = server_run(tmp_path / "b", server.url, "ok")
    assert outcome.tally.errors == 0
    assert frame["text"].to_list() == expected["text"].to_list()


@pytest.mark.parametrize("fault", ["401", "404", "quota"])
def test_against_a_server_that_refuses_us_the_run_stops_at_once(tmp_path, fault):
    with serving() as server:
        with pytest.raises((InputError, WorldError), match=r"openai:"):
            server_run(tmp_path, server.url, fault, n=500, limits=Limits(concurrency=4))
        assert len(server.requests) <= 8


def test_against_a_server_that_says_too_long_each_is_an_error_row(tmp_path):
    with serving() as server:
        outcome, frame = server_run(tmp_path, server.url, "400")
    assert outcome.tally.errors == 12
    assert "maximum context length" in frame["error"][0]


def test_the_tally_counts_while_it_goes(tmp_path):
    tally, seen = CallTally(), []

    async def look(number, request, index):
        seen.append((tally.in_flight, tally.replies))

    outcome, _ = run(tmp_path, Echo(look, concurrency=2), n=10, repeats=Fixed(1), tally=tally)
    assert outcome.tally is tally
    assert max(s[0] for s in seen) == 2
    assert seen[-1][1] > 0
    assert (tally.in_flight, tally.tokens_in, tally.tokens_out) == (0, 100, 30)


def test_keys_differ_by_everything_that_matters():
    base = ("m", "s", "p", Sampling(seed=1), 0, "c", None)
    others = ["n", "t", "q", Sampling(seed=2), 1, "d", [("A", " a")]]
    keys = {key_of(*base)} | {key_of(*base[:i], other, *base[i + 1 :]) for i, other in enumerate(others)}
    assert len(keys) == 8
    assert all(len(key) == 16 for key in keys)
