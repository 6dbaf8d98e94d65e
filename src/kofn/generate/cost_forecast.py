"""Forecasts the cost and duration of a run from a few of its own requests.

The requests are those the run would make anyway, they are stored, and the run does not make them again. What is known
before (how many candidates, how long the prompts of the first stage are) is used as it is; what is not (how much the
model writes, how long a call takes) is the mean of the probed cases, with a t interval over them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.format import format_clock, format_money, format_short
from kofn.errors import WorldError
from kofn.generate.limits import Limits
from kofn.generate.pricing import prompt_tokens
from kofn.generate.runner import Fixed, generate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.generate.calls import CallContext
    from kofn.generate.runner import Repeats
    from kofn.generate.store import ReplyRow
    from kofn.models.base import Model
    from kofn.tasks.stages import Item, Recipe

PROBES = 5  # cases that are run for the forecast; their replies are kept for the run


class Range(NamedTuple):
    """A number with its 95% interval; no point where the run itself decides how much it draws (adaptive repeats)."""

    low: float
    point: float | None
    high: float

    def format(self, show: Callable[[float], str]) -> str:
        """As people read it.

        >>> [Range(*ends).format(format_short) for ends in ((90, 100, 110), (40, None, 400), (5, 5, 5))]
        ['100 (90 to 110)', '40 to 400', '5']
        """
        low, high = show(self.low), show(self.high)
        if self.point is None:
            return low if low == high else f"{low} to {high}"
        return show(self.point) if low == high else f"{show(self.point)} ({low} to {high})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastInputs:
    """What is known of a run before it starts.

    candidates   the fewest and the most it draws; equal unless repeats are adaptive
    prompts      counted tokens of the first stage's prompts: all cases, and those of each probed case
    at_a_time    calls under way, by stage
    per_call     candidates that one call gives, by stage
    models       the model of each stage
    """

    cases: int
    candidates: tuple[int, int]
    stages: tuple[str, ...]
    prompts: tuple[int, Mapping[str, int]]
    at_a_time: Mapping[str, int]
    per_call: Mapping[str, int]
    models: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a whole run takes. `cost` is None where a price is not known: `unpriced` names the models."""

    probes: int
    failed: int
    candidates: tuple[int, int]
    tokens_in: Range
    tokens_out: Range
    cost: Range | None
    seconds: Range
    at_a_time: int
    unpriced: tuple[str, ...] = ()

    def __str__(self) -> str:
        low, high = self.candidates
        many = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        money = "price not known" if self.cost is None else self.cost.format(format_money)
        tokens_in, tokens_out = self.tokens_in.format(format_short), self.tokens_out.format(format_short)
        lines = [
            f"estimate from {self.probes} replies, which are stored and not asked for again:",
            f"  {many} candidates, tokens in {tokens_in}, out {tokens_out}",
            f"  {money}, {self.seconds.format(format_clock)} with {self.at_a_time} calls at a time",
        ]
        if self.unpriced:
            lines[2] += f"; give the price of {' and '.join(self.unpriced)} in kofn-prices.yaml"
        if self.failed:
            lines[0] = f"estimate from {self.probes} replies ({self.failed} failed), which are stored:"
        return "\n".join(lines)


async def probe(
    items: Sequence[Item],
    recipe: Recipe,
    models: Mapping[str, Model],
    context: CallContext,
    *,
    repeats: Repeats,
    chat: Mapping[str, bool] | None = None,
    cases: int = PROBES,
) -> Forecast:
    """Ask for a few candidates of a few cases, as the run would, and say what the whole run takes.

    A case is asked for as many candidates as one request gives, and for two at least where two are wanted. When every
    request fails there is nothing to say but why.
    """
    probed_items = [items[place] for place in spread(len(items), cases)]
    n = min(repeats.first, max(2, models[recipe.stages[0].model].samples))
    rows: list[ReplyRow] = []
    await generate(
        probed_items,
        recipe,
        models,
        context,
        repeats=Fixed(n),
        chat=chat,
        on_case=lambda _, own: rows.extend(own),
    )
    found = forecast(
        rows,
        forecast_inputs(items, probed_items, recipe, models, repeats=repeats, n=n, limits=context.limits, chat=chat),
    )
    if found is None:
        why = next((row.error for row in rows), "a budget was used up")
        raise WorldError(f"no estimate: not one of the first requests gave an output: {why}")
    return found


def forecast_inputs(
    items: Sequence[Item],
    probed_items: Sequence[Item],
    recipe: Recipe,
    models: Mapping[str, Model],
    *,
    repeats: Repeats,
    n: int,
    limits: Limits,
    chat: Mapping[str, bool] | None = None,
) -> ForecastInputs:
    """What is known of a run before any call: its size, its first prompts, and how many calls it makes at a time."""
    first, stages = recipe.stages[0], recipe.stages
    in_messages = (chat or {}).get(first.model, models[first.model].chat) and first.kind == "generate"
    counted = {item.case.id: prompt_tokens(recipe.prompt(item, 0, 0, {}, chat=in_messages)) for item in items}
    samples = {stage.name: min(n, models[stage.model].samples) if stage is first else 1 for stage in stages}
    waiting = {stage.name: max(1, len(probed_items) * n // samples[stage.name]) for stage in stages}
    return ForecastInputs(
        cases=len(items),
        candidates=(len(items) * repeats.first, len(items) * repeats.most),
        stages=tuple(stage.name for stage in stages),
        prompts=(sum(counted.values()), {item.case.id: counted[item.case.id] for item in probed_items}),
        at_a_time={stage.name: limits.concurrency or models[stage.model].concurrency for stage in stages},
        per_call={s.name: samples[s.name] * min(models[s.model].batch, waiting[s.name]) for s in stages},
        models={stage.name: models[stage.model].name for stage in stages},
        limits=limits,
    )


def forecast(rows: Sequence[ReplyRow], inputs: ForecastInputs) -> Forecast | None:
    """The whole run, from the replies of a few of its cases; None where not one of them succeeded."""
    good = [row for row in rows if row.error is None]
    if not good:
        return None
    by_stage = {stage: [row for row in good if row.stage == stage] for stage in inputs.stages}
    unpriced = [inputs.models.get(s, s) for s, own in by_stage.items() if any(row.cost is None for row in own)]
    tokens_in = _tokens_in(by_stage, inputs)
    tokens_out = _scale([_by_case(own, "tokens_out") for own in by_stage.values()], inputs.candidates)
    # a call takes its time while others run beside it: its candidates only cost their share of the slots
    slots = {stage: inputs.at_a_time[stage] * inputs.per_call[stage] for stage in inputs.stages}
    busy = [[value / slots[stage] for value in _by_case(own, "seconds")] for stage, own in by_stage.items()]
    return Forecast(
        probes=len(rows),
        failed=len(rows) - len(good),
        candidates=inputs.candidates,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=None if unpriced else _scale([_by_case(own, "cost") for own in by_stage.values()], inputs.candidates),
        seconds=_no_faster(_scale(busy, inputs.candidates), tokens_in, tokens_out, inputs),
        at_a_time=max(inputs.at_a_time.values()),
        unpriced=tuple(dict.fromkeys(unpriced)),
    )


def _by_case(rows: Sequence[ReplyRow], column: str) -> list[float]:
    """The mean of a column over the candidates of each case: these are alike, so the interval is over cases."""
    cases: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        cases[row.case_id].append(getattr(row, column) or 0)
    return [math.fsum(values) / len(values) for values in cases.values()]


def _tokens_in(by_stage: Mapping[str, Sequence[ReplyRow]], inputs: ForecastInputs) -> Range:
    """The first stage by its prompts, all of which are known, in the server's tokens; later ones by their mean."""
    first, *later = by_stage.values()
    everything, probed = inputs.prompts
    counts = [
        (row.tokens_in, probed[row.case_id]) for row in first if row.tokens_in is not None and row.case_id in probed
    ]
    estimated = sum(count for _, count in counts)
    exchange = sum(server for server, _ in counts) / estimated if estimated else 1.0
    per_candidate = everything * exchange / inputs.cases if inputs.cases else 0.0
    rest = _scale([_by_case(own, "tokens_in") for own in later], inputs.candidates)
    low, high = (n * per_candidate for n in inputs.candidates)
    return Range(low + rest.low, None if rest.point is None else high + rest.point, high + rest.high)


def _scale(stages: Sequence[Sequence[float]], candidates: tuple[int, int]) -> Range:
    """Means per candidate, one list per stage, scaled to so many candidates; the margins of the stages add up.

    >>> _scale([[10, 12, 14]], (100, 100))
    Range(low=703.1..., point=1200.0, high=1696.8...)
    >>> _scale([], (100, 200))
    Range(low=0.0, point=None, high=0.0)
    """
    point, margin = 0.0, 0.0
    for values in stages:
        mean, half = _mean_and_margin(values)
        point, margin = point + mean, margin + half
    fewest, most = candidates
    low, high = fewest * max(0.0, point - margin), most * (point + margin)  # no cost is below 0
    return Range(low, most * point if fewest == most else None, high)


def _mean_and_margin(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of its 95% t interval. Of a single value the margin is the value itself: anything up to twice."""
    n = len(values)
    mean = math.fsum(values) / n if n else 0.0
    if n < 2:
        return mean, mean
    from scipy.special import stdtrit

    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, float(stdtrit(n - 1, 0.975)) * spread / math.sqrt(n)


def _no_faster(seconds: Range, tokens_in: Range, tokens_out: Range, inputs: ForecastInputs) -> Range:
    """The time, unless a rate that the user set takes longer."""
    limits, fewest, most = inputs.limits, *inputs.candidates
    floors = [0.0, 0.0]
    if limits.requests_per_second:
        calls = sum(1 / inputs.per_call[stage] for stage in inputs.stages)
        floors = [n * calls / limits.requests_per_second for n in (fewest, most)]
    if limits.tokens_per_minute:
        tokens = (tokens_in.low + tokens_out.low, tokens_in.high + tokens_out.high)
        floors = [max(f, 60 * t / limits.tokens_per_minute) for f, t in zip(floors, tokens, strict=True)]
    low, high = max(seconds.low, floors[0]), max(seconds.high, floors[1])
    return Range(low, None if seconds.point is None else min(high, max(seconds.point, floors[0])), high)


def spread(n: int, most: int = PROBES) -> list[int]:
    """Places of up to `most` of n cases, evenly over all of them.

    >>> spread(100, 5), spread(3, 5), spread(0)
    ([10, 30, 50, 70, 90], [0, 1, 2], [])
    """
    if n <= most:
        return list(range(n))
    return [(2 * i + 1) * n // (2 * most) for i in range(most)]
