"""The n to choose: how many candidates are worth their cost, within what they may cost and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.best_of import BestOf, Row

_SAME = 1e-12
REACHES = {"any": "any of them passes", "selected": "the pick passes", "majority": "the vote is right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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
class Choice:
    """How many candidates, and why; None where nothing was asked for or nothing fits."""

    n: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"n": self.n, "reason": self.reason}


def choose(table: BestOf, wanted: Wanted) -> Choice:
    """The n to choose among what was measured.

    With a gain a dollar: the k of the largest value - gain x cost. Where each candidate adds less than the one before,
    as any@k always does, that is the largest k whose own gain a dollar is at least the one asked for; where it does
    not (a vote of 2 is worth no more than one of 1) a step that brings nothing does not hide a later one that does.
    Bounds on time and money come first. Without a gain it is the best value within them, of equal ones the smallest k.
    """
    rows = [row for row in table.measured if row.value(table.measure) is not None]
    if wanted.gain is None and wanted.latency is None and wanted.budget is None:
        return Choice(n=None, reason=_nothing_asked(table, rows))
    _check_known(rows, wanted)
    fits = [row for row in rows if _fits(row, wanted)]
    if not fits:
        return Choice(n=None, reason=_nothing_fits(rows[0], wanted))
    price = wanted.gain or 0.0
    reached = _reached(rows, table.measure)
    worth = {row.k: reached[row.k] - price * (row.cost or 0.0) for row in fits}
    best = max(worth.values())
    close = [row for row in fits if worth[row.k] >= best - _SAME]
    chosen = close[-1] if wanted.gain is not None else close[0]
    return Choice(n=chosen.k, reason=_reason(table, rows, fits, chosen, wanted))


def _reached(rows: Sequence[Row], measure: str) -> dict[int, float]:
    """The value at each k, gains added up: each is over the same cases, which values of unequal sets are not."""
    at, out = rows[0].value(measure) or 0.0, {}
    for before, row in zip([rows[0], *rows[:-1]], rows, strict=True):
        at += (row.gain or 0.0) * (row.k - before.k)
        out[row.k] = at
    return out


def _check_known(rows: Sequence[Row], wanted: Wanted) -> None:
    if rows[0].cost is None and (wanted.gain is not None or wanted.budget is not None):
        raise InputError("what a candidate costs is not known: give --cost-per-candidate, or outputs with a cost")
    if wanted.gain is not None and not rows[0].cost:
        raise InputError("candidates cost nothing, so no gain a dollar bounds them: use --max-latency")
    if wanted.latency is not None and _time(rows[0], wanted) is None:
        raise InputError("how long a candidate takes is not known: give outputs with seconds")


def _time(row: Row, wanted: Wanted) -> float | None:
    return row.seconds_sequential if wanted.sequential else row.seconds


def _fits(row: Row, wanted: Wanted) -> bool:
    time = _time(row, wanted)
    quick = wanted.latency is None or (time is not None and time <= wanted.latency)
    return quick and (wanted.budget is None or (row.cost or 0.0) <= wanted.budget * (1 + _SAME))


def _nothing_asked(table: BestOf, rows: Sequence[Row]) -> str:
    last = rows[-1]
    how = "say what bounds it: a gain a dollar, a latency or a budget"
    if last.gain is None:
        return how
    added = f"the last candidate, number {last.k}, adds {last.gain:.3f}"
    per = "" if table.unit != "dollars" or last.gain_per_cost is None else f" ({dear(last.gain_per_cost)} a dollar)"
    return f"{how}; {added}{per}"


def _nothing_fits(first: Row, wanted: Wanted) -> str:
    found = []
    time = _time(first, wanted)
    if wanted.latency is not None and (time is None or time > wanted.latency):
        found.append(f"takes {seconds(time)}, more than {seconds(wanted.latency)}")
    if wanted.budget is not None and (first.cost or 0.0) > wanted.budget:
        found.append(f"costs {dollars(first.cost)}, more than {dollars(wanted.budget)}")
    return f"even one candidate {' and '.join(found)}"


def _reason(table: BestOf, rows: Sequence[Row], fits: Sequence[Row], chosen: Row, wanted: Wanted) -> str:
    """The value, the bounds it keeps, and why not more."""
    value = chosen.value(table.measure)
    many = f"{chosen.k} candidates" if chosen.k > 1 else "one candidate"
    said = f"with {many} {REACHES[table.measure]} in {value:.3f} of the cases"
    for bound, has, limit in _kept(chosen, wanted):
        said += f", {bound} {has} of the {limit} allowed"
    return f"{said}; {_why_not_more(rows, fits, chosen, wanted)}"


def _kept(chosen: Row, wanted: Wanted) -> list[tuple[str, str, str]]:
    how = "one after the other" if wanted.sequential else "side by side"
    out = []
    if wanted.latency is not None:
        out.append(
            ("takes" if chosen.k == 1 else f"{how} they take", seconds(_time(chosen, wanted)), seconds(wanted.latency))
        )
    if wanted.budget is not None:
        out.append(("at", dollars(chosen.cost), dollars(wanted.budget)))
    return out


def _why_not_more(rows: Sequence[Row], fits: Sequence[Row], chosen: Row, wanted: Wanted) -> str:
    """What the next step would bring, or that there is none."""
    more = [row for row in rows if row.k > chosen.k]
    if not more:
        return f"{chosen.k} is the most that was measured, so more may be worth it too"
    following = more[0]
    if following not in fits:
        return f"{following.k} would {_too_much(following, wanted)}"
    gain = following.gain if following.gain is not None else 0.0
    added = f"number {following.k} would add {gain:.3f}" if gain > 0 else f"number {following.k} would add nothing"
    if wanted.gain is None:
        return f"{added}, and no more of those that fit does better"
    return f"{added}, {dear(following.gain_per_cost or 0.0)} a dollar, and {dear(wanted.gain)} is asked for"


def _too_much(row: Row, wanted: Wanted) -> str:
    time = _time(row, wanted)
    if wanted.latency is not None and (time is None or time > wanted.latency):
        return f"take {seconds(time)}"
    return f"cost {dollars(row.cost)}"


def seconds(time: float | None) -> str:
    """
    >>> seconds(1.234), seconds(250.0), seconds(None)
    ('1.23 s', '250 s', 'an unknown time')
    """
    return "an unknown time" if time is None else f"{time:.3g} s" if time < 100 else f"{time:,.0f} s"


def dollars(amount: float | None) -> str:
    """
    >>> dollars(0.00123456), dollars(12.0), dollars(1234.5), dollars(None)
    ('$0.00123', '$12', '$1,234', 'an unknown sum')
    """
    if amount is None:
        return "an unknown sum"
    return f"${amount:,.0f}" if amount >= 1000 else f"${_plain(amount)}"


def dear(rate: float) -> str:
    """A gain a dollar, which may be large: without an exponent.

    >>> dear(1234.5), dear(0.0961), dear(9.61)
    ('1,234', '0.0961', '9.61')
    """
    return f"{rate:,.0f}" if abs(rate) >= 1000 else _plain(rate)


def _plain(number: float) -> str:
    """Three digits, never as a power of ten."""
    from math import floor, log10

    if number == 0:
        return "0"
    text = f"{number:.{max(0, 2 - floor(log10(abs(number))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
