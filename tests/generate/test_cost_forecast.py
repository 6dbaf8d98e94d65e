"""What a run will cost: exact where it is known, a range that covers the truth where it is not."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from kofn.core.types import Case
from kofn.errors import WorldError
from kofn.generate.adaptive import Adaptive
from kofn.generate.calls import CallContext
from kofn.generate.cost_forecast import ForecastInputs, Range, forecast, probe, spread
from kofn.generate.limits import Limits
from kofn.generate.pricing import Prices
from kofn.generate.runner import Fixed, generate
from kofn.generate.store import ReplyRow, Store
from kofn.models.base import Model, Reply, RequestRejected
from kofn.tasks.stages import Item, Stage


def row(case: str, repeat: int = 0, stage: str = "answer", **columns) -> ReplyRow:
    values = dict.fromkeys(ReplyRow._fields) | {
        "key": b"",
        "case_id": case,
        "stage": stage,
        "repeat": repeat,
        "attempts": 1,
    }
    values |= {"text": "4", "tokens_in": 50, "tokens_out": 20, "cost": 0.001, "seconds": 2.0, "created": 0.0}
    return ReplyRow(**(values | columns))


def plan(**changes) -> ForecastInputs:
    inputs = {
        "cases": 100,
        "candidates": (500, 500),
        "stages": ("answer",),
        "prompts": (6000, {"a": 40, "b": 60}),
        "at_a_time": {"answer": 10},
        "per_call": {"answer": 1},
    }
    return ForecastInputs(**(inputs | changes))


def test_what_does_not_vary_is_exact():
    found = forecast([row("a"), row("b")], plan())
    assert found.tokens_out == Range(10_000, 10_000, 10_000)
    assert found.cost == Range(0.5, 0.5, 0.5)
    assert found.seconds == Range(100, 100, 100)  # 500 calls of 2 s, ten at a time
    assert (found.probes, found.failed) == (2, 0)


def test_prompt_tokens_are_those_of_all_prompts_in_the_servers_own_tokens():
    """The server counts 1.5 times as many as we do, for the probes; all prompts together are 6,000 of ours."""
    rows = [row("a", tokens_in=60), row("b", tokens_in=90)]
    assert forecast(rows, plan()).tokens_in == Range(45_000, 45_000, 45_000)


def test_a_later_stages_prompts_are_known_by_their_mean():
    stages = {"stages": ("think", "answer"), "at_a_time": {"think": 1, "answer": 1}}
    rows = [row(c, stage=s, tokens_in=n) for c, n in (("a", 40), ("b", 60)) for s in ("think", "answer")]
    found = forecast(rows, plan(**stages, per_call={"think": 1, "answer": 1}))
    assert found.tokens_in.point == pytest.approx(500 * 60 + 500 * 50)
    assert found.tokens_in.low < found.tokens_in.point < found.tokens_in.high


def test_an_unknown_price_is_said_and_never_nothing():
    found = forecast([row("a", cost=None), row("b")], plan(models={"answer": "openai:new"}))
    assert found.cost is None
    assert "price not known" in str(found)
    assert "give the price of openai:new in kofn-prices.yaml" in str(found)
    assert "$" not in str(found)


def test_a_failed_probe_is_counted_and_a_run_that_only_fails_has_no_forecast():
    failed = row("b", text=None, error="refused", tokens_out=None, cost=None)
    found = forecast([row("a"), row("c"), failed], plan())
    assert found.failed == 1
    assert "1 failed" in str(found)
    assert found.cost.point == pytest.approx(0.5)
    assert forecast([failed], plan()) is None


def test_one_probe_alone_says_little():
    found = forecast([row("a")], plan())
    assert found.tokens_out == Range(0, 10_000, 20_000)


def test_several_outputs_of_one_call_share_its_time():
    rows = [row(c, i) for c in "ab" for i in range(5)]
    assert forecast(rows, plan(per_call={"answer": 5})).seconds.point == 20


def test_a_rate_limit_is_no_faster_than_it_says():
    slow = plan(limits=Limits(requests_per_second=2))
    assert forecast([row("a"), row("b")], slow).seconds == Range(250, 250, 250)
    tokens = plan(limits=Limits(tokens_per_minute=1000))
    found = forecast([row("a"), row("b")], tokens)
    assert found.seconds.point == pytest.approx((found.tokens_in.point + 10_000) / 1000 * 60)


def test_adaptive_repeats_are_told_from_the_fewest_to_the_most():
    found = forecast([row("a"), row("b")], plan(candidates=(400, 4000)))
    assert found.cost == Range(pytest.approx(0.4), None, pytest.approx(4.0))
    assert "400 to 4,000 candidates" in str(found)
    assert "$0.4000 to $4.00" in str(found)


def test_the_text_is_three_lines_with_everything_in_it():
    said = str(forecast([row("a", tokens_out=15), row("b", tokens_out=25)], plan(at_a_time={"answer": 8})))
    assert len(said.splitlines()) == 3
    for part in ("2 replies", "500 candidates", "out 10k (", "$0.5000", "2:05", "8 calls at a time"):
        assert part in said


def test_the_range_holds_the_truth_about_as_often_as_it_says():
    """Lengths are skewed, as they are; five probed cases of two candidates, 2,000 runs."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        cases = rng.lognormal(4, 0.5, size=5)
        outputs = rng.poisson(cases[:, None], size=(5, 2))
        rows = [row(str(i), j, tokens_out=int(outputs[i, j])) for i in range(5) for j in range(2)]
        found = forecast(rows, plan(prompts=(100, {}))).tokens_out
        covered += found.low <= 500 * np.exp(4 + 0.125) <= found.high
    assert 0.87 < covered / 2000 < 0.97


def test_probes_are_spread_over_the_cases():
    assert spread(1000, 4) == [125, 375, 625, 875]
    for n in range(40):
        places = spread(n)
        assert len(set(places)) == len(places) == min(n, 5)
        assert all(0 <= place < n for place in places)


class Thinks:
    """Two stages: the second sees what the first gave."""

    stages = (Stage(name="think"), Stage(name="answer"))

    def prompt(self, item, stage, _repeat, outputs, **_):
        return item.case.input if stage == 0 else f"{outputs['think']} So the answer is"


class Server(Model):
    """Says two words a request, takes two outputs at once, counts what it was asked."""

    concurrency, samples, chat = 4, 2, False

    def __init__(self, name: str = "openai:gpt-4o", problem: Exception | None = None) -> None:
        self.name, self.problem, self.calls = name, problem, 0

    async def generate(self, requests):
        for place, request in enumerate(requests):
            self.calls += request.n
            await asyncio.sleep(0.01)
            if self.problem:
                raise self.problem
            for index in range(request.n):
                yield Reply(text="two words", place=place, index=index, tokens_in=100, tokens_out=10)


ITEMS = [Item(case=Case(id=str(i), input="What is that? " * (1 + i % 3))) for i in range(50)]


def probed(model: Model, folder, repeats=None, then_run: bool = False):

    async def go():
        with Store.open(folder, fingerprint={}) as store:
            context = CallContext(store=store, price=Prices.shipped().cost, seed=1)
            found = await probe(ITEMS, Thinks(), {"actor": model}, context, repeats=repeats or Fixed(4))
            calls = model.calls
            if then_run:
                await generate(ITEMS, Thinks(), {"actor": model}, context, repeats=repeats or Fixed(4))
            return found, calls

    return asyncio.run(go())


def test_a_few_requests_say_what_the_run_costs_and_are_not_made_again(tmp_path):
    model = Server()
    found, calls = probed(model, tmp_path, then_run=True)
    assert calls == 5 * 2 * 2  # five cases, two candidates each, two stages
    assert model.calls == 50 * 4 * 2
    assert found.candidates == (200, 200)
    assert found.tokens_out == Range(4000, 4000, 4000)
    # a prompt of 100 tokens at $2.50 a million, shared by two outputs in the first stage, and 10 tokens at $10
    assert found.cost.point == pytest.approx(200 * (50 * 2.5 + 100 * 2.5 + 2 * 10 * 10) / 1e6)
    # each reply takes 10 ms at least: two stages, the first of them shared by two outputs, four at a time
    assert found.seconds.point > 0.5 * 200 * (0.01 / 2 + 0.01) / 4
    assert found.at_a_time == 4


def test_a_model_without_a_price_is_named(tmp_path):
    found, _ = probed(Server("openai:brand-new"), tmp_path)
    assert found.cost is None
    assert found.unpriced == ("openai:brand-new",)


def test_adaptive_repeats_are_probed_like_any_other(tmp_path):
    found, _ = probed(Server(), tmp_path, Adaptive("text", most=40))
    assert found.candidates == (200, 2000)
    assert found.cost.point is None


def test_a_run_whose_first_requests_all_fail_is_not_estimated(tmp_path):
    with pytest.raises(WorldError, match=r"no estimate: .*: the prompt was refused"):
        probed(Server(problem=RequestRejected("the prompt was refused")), tmp_path)
