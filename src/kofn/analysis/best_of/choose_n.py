"""Recommends n: how many candidates are worth their cost within a budget and a latency."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from kofn.core.format import format_dollars, format_rate, format_seconds
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.analysis.best_of.best_of import BestOf, BestOfRow

_TOLERANCE = 1e-12  # rounding of sums of gains and costs
REACHES = {"any": "any of them passes", "selected": "the pick passes", "majority": "the vote is right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingBounds:
    """What bounds the choice. `latency` is in seconds, `budget` in dollars a case, `gain` in value a dollar."""

    gain: float | None = None
    latency: float | None = None
    budget: float | None = None
    sequential: bool = False

    def __post_init__(self) -> None:
        for name in ("gain", "latency", "budget"):
            bound = getattr(self, name)
            if bound is not None and not (isfinite(bound) and bound > 0):
                raise InputError(f"{name}: expected a number above 0, not {bound:g}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "min_gain_per_dollar": self.gain,
            "max_latency": self.latency,
            "budget": self.budget,
            "sequential": self.sequential,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedN:
    """How many candidates, and why; None where nothing was asked for or nothing fits."""

    n: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"n": self.n, "reason": self.reason}


def recommend_n(table: BestOf, bounds: SpendingBounds) -> RecommendedN:
    """The n to choose among what was measured.

    With a gain a dollar: the k of the largest value - gain x cost. Where each candidate adds less than the one before,
    as any@k always does, that is the largest k whose own gain a dollar is at least the one asked for; where it does
    not (a vote of 2 is worth no more than one of 1) a step that brings nothing does not hide a later one that does.
    Bounds on time and money come first. Without a gain it is the best value within them, of equal ones the smallest k.
    """
    rows = [row for row in table.measured if row.value(table.measure) is not None]
    if bounds.gain is None and bounds.latency is None and bounds.budget is None:
        return RecommendedN(n=None, reason=_no_goal_reason(table, rows))
    _check_known(rows, bounds)
    fits = [row for row in rows if _fits(row, bounds)]
    if not fits:
        return RecommendedN(n=None, reason=_nothing_fits_reason(rows[0], bounds))
    # value - price x cost: the gain that a dollar must bring is the price of a dollar
    price = bounds.gain or 0.0
    reached = _cumulative_values(rows, table.measure)
    worth = {row.k: reached[row.k] - price * (row.cost or 0.0) for row in fits}
    best = max(worth.values())
    close = [row for row in fits if worth[row.k] >= best - _TOLERANCE]
    # at exactly the price a candidate is worth it, so the most; without a price the fewest that reach the same
    chosen = close[-1] if bounds.gain is not None else close[0]
    return RecommendedN(n=chosen.k, reason=_reason(table, rows, fits, chosen, bounds))


def _cumulative_values(rows: Sequence[BestOfRow], measure: str) -> dict[int, float]:
    """The value at each k, gains added up: each is over the same cases, which values of unequal sets are not."""
    at, out = rows[0].value(measure) or 0.0, {}
    for before, row in zip([rows[0], *rows[:-1]], rows, strict=True):
        at += (row.gain or 0.0) * (row.k - before.k)
        out[row.k] = at
    return out


def _check_known(rows: Sequence[BestOfRow], bounds: SpendingBounds) -> None:
    if rows[0].cost is None and (bounds.gain is not None or bounds.budget is not None):
        raise InputError("what a candidate costs is not known: give --cost-per-candidate, or outputs with a cost")
    if bounds.gain is not None and not rows[0].cost:
        raise InputError("candidates cost nothing, so no gain a dollar bounds them: use --max-latency")
    if bounds.latency is not None and _latency(rows[0], bounds) is None:
        raise InputError("how long a candidate takes is not known: give outputs with seconds")


def _latency(row: BestOfRow, bounds: SpendingBounds) -> float | None:
    return row.seconds_sequential if bounds.sequential else row.seconds


def _fits(row: BestOfRow, bounds: SpendingBounds) -> bool:
    time = _latency(row, bounds)
    quick = bounds.latency is None or (time is not None and time <= bounds.latency)
    return quick and (bounds.budget is None or (row.cost or 0.0) <= bounds.budget * (1 + _TOLERANCE))


def _no_goal_reason(table: BestOf, rows: Sequence[BestOfRow]) -> str:
    last = rows[-1]
    how = "say what bounds it: a gain a dollar, a latency or a budget"
    if last.gain is None:
        return how
    added = f"the last candidate, number {last.k}, adds {last.gain:.3f}"
    per = (
        ""
        if table.unit != "dollars" or last.gain_per_cost is None
        else f" ({format_rate(last.gain_per_cost)} a dollar)"
    )
    return f"{how}; {added}{per}"


def _nothing_fits_reason(first: BestOfRow, bounds: SpendingBounds) -> str:
    found = []
    time = _latency(first, bounds)
    if bounds.latency is not None and (time is None or time > bounds.latency):
        found.append(f"takes {format_seconds(time)}, more than {format_seconds(bounds.latency)}")
    if bounds.budget is not None and (first.cost or 0.0) > bounds.budget:
        found.append(f"costs {format_dollars(first.cost)}, more than {format_dollars(bounds.budget)}")
    return f"even one candidate {' and '.join(found)}"


def _reason(
    table: BestOf, rows: Sequence[BestOfRow], fits: Sequence[BestOfRow], chosen: BestOfRow, bounds: SpendingBounds
) -> str:
    """The value, the bounds it keeps, and why not more."""
    value = chosen.value(table.measure)
    many = f"{chosen.k} candidates" if chosen.k > 1 else "one candidate"
    said = f"with {many} {REACHES[table.measure]} in {value:.3f} of the cases"
    for bound, has, limit in _met_bounds(chosen, bounds):
        said += f", {bound} {has} of the {limit} allowed"
    return f"{said}; {_why_not_more(rows, fits, chosen, bounds)}"


def _met_bounds(chosen: BestOfRow, bounds: SpendingBounds) -> list[tuple[str, str, str]]:
    how = "one after the other" if bounds.sequential else "side by side"
    out = []
    if bounds.latency is not None:
        out.append(
            (
                "takes" if chosen.k == 1 else f"{how} they take",
                format_seconds(_latency(chosen, bounds)),
                format_seconds(bounds.latency),
            )
        )
    if bounds.budget is not None:
        out.append(("at", format_dollars(chosen.cost), format_dollars(bounds.budget)))
    return out


def _why_not_more(
    rows: Sequence[BestOfRow], fits: Sequence[BestOfRow], chosen: BestOfRow, bounds: SpendingBounds
) -> str:
    """What the next step would bring, or that there is none."""
    more = [row for row in rows if row.k > chosen.k]
    if not more:
        return f"{chosen.k} is the most that was measured, so more may be worth it too"
    following = more[0]
    if following not in fits:
        return f"{following.k} would {_exceeded_bound(following, bounds)}"
    gain = following.gain if following.gain is not None else 0.0
    added = f"number {following.k} would add {gain:.3f}" if gain > 0 else f"number {following.k} would add nothing"
    if bounds.gain is None:
        return f"{added}, and no more of those that fit does better"
    return (
        f"{added}, {format_rate(following.gain_per_cost or 0.0)} a dollar, and {format_rate(bounds.gain)} is asked for"
    )


def _exceeded_bound(row: BestOfRow, bounds: SpendingBounds) -> str:
    time = _latency(row, bounds)
    if bounds.latency is not None and (time is None or time > bounds.latency):
        return f"take {format_seconds(time)}"
    return f"cost {format_dollars(row.cost)}"
