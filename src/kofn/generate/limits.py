"""Rate limits, concurrency, backoff and budgets of calls: pure arithmetic, with the clock as an argument.

Bucket      so much per second, and only so much at once
Allowance   calls at the same time: half after the server says slow down, one more after each good round
Pace        both of one model, and the pause its server asked for
Budget      what a run may cost
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

BASE, CAP = 0.5, 60.0  # seconds: the longest first wait, and the longest of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may do. None means no limit; `concurrency` None is the model's own.

    Rates and concurrency are by model. `max_cost` (dollars), `token_budget` and `max_time` (seconds) are of one
    call of `generate`: what an earlier one stored is not counted again.
    """

    concurrency: int | None = None
    requests_per_second: float | None = None
    tokens_per_minute: float | None = None
    timeout: float = 600.0
    retries: int = 6
    max_cost: float | None = None
    token_budget: int | None = None
    max_time: float | None = None

    def remaining(self, cost: float, tokens: int) -> Limits:
        """These limits with what spent money and tokens leave of the budget.

        >>> Limits(max_cost=1.0).remaining(0.75, 900).max_cost
        0.25
        """
        return replace(
            self,
            max_cost=None if self.max_cost is None else max(0.0, self.max_cost - cost),
            token_budget=None if self.token_budget is None else max(0, self.token_budget - tokens),
        )


def backoff(failures: int, random: Random) -> float:
    """Seconds to wait after so many failures in a row: anything up to 0.5, 1, 2, 4 ... 60.

    Full jitter: those that failed together do not come back together.

    >>> from random import Random
    >>> [round(backoff(n, Random(n)), 1) for n in (1, 2, 3, 20)]
    [0.1, 1.0, 0.5, 54.3]
    """
    # 2**10 is beyond the cap already; without a bound the power would overflow after 1,024 failures
    return random.uniform(0.0, min(CAP, BASE * 2.0 ** min(failures - 1, 10)))


@dataclass(slots=True)
class Bucket:
    """A token bucket: holds `most`, and `rate` per second flows in. Taking more than is there means waiting.

    Something larger than the bucket is let through when the bucket is full, and the others wait for what it owes.

    >>> bucket = Bucket(rate=2.0, most=1.0)
    >>> [bucket.take(1.0, now=0.0) for _ in range(3)]
    [0.0, 0.5, 1.0]
    >>> bucket.take(1.0, now=10.0)
    10.0
    """

    rate: float
    most: float
    level: float = field(init=False)
    at: float = field(init=False, default=-math.inf)

    def __post_init__(self) -> None:
        self.level = self.most

    def take(self, amount: float, now: float) -> float:
        """Take it now; the time from which it may be used."""
        if now > self.at:
            # a bucket that nobody has used yet is full
            self.level = self.most if self.at == -math.inf else min(self.most, self.level + (now - self.at) * self.rate)
            self.at = now
        missing = min(amount, self.most) - self.level
        self.level -= amount
        return now + max(0.0, missing / self.rate)

    def give(self, amount: float) -> None:
        """Give back what was not used; a negative amount is what was used beyond what was taken."""
        self.level = min(self.most, self.level + amount)


@dataclass(slots=True)
class Allowance:
    """How many calls may be under way.

    >>> a = Allowance(8)
    >>> a.slower(started=0.0, now=1.0); a.slower(started=0.5, now=1.1); a.allowed    # one round, one cut
    4.0
    >>> for _ in range(4): a.faster()
    >>> round(a.allowed, 1)
    4.9
    """

    most: int
    allowed: float = field(init=False)
    cut: float = field(init=False, default=-math.inf)

    def __post_init__(self) -> None:
        self.allowed = float(self.most)

    def slower(self, started: float, now: float) -> None:
        """Half of it, unless the call that was refused began before the last cut: it says nothing about that one."""
        if started >= self.cut:
            self.allowed, self.cut = max(1.0, self.allowed / 2), now

    def faster(self) -> None:
        """A call went well: one more after as many of them as are allowed."""
        if self.allowed < self.most:
            self.allowed = min(float(self.most), self.allowed + 1 / self.allowed)


class Pace:
    """When the next call to one model may be made."""

    def __init__(
        self, concurrency: int, requests_per_second: float | None = None, tokens_per_minute: float | None = None
    ) -> None:
        self.allowance = Allowance(concurrency)
        # what is allowed at once is small, so that no window holds much more than the rate: servers count windows
        self._requests = requests_per_second and Bucket(requests_per_second, 1.0)
        self._tokens = tokens_per_minute and Bucket(tokens_per_minute / 60, max(1.0, tokens_per_minute / 60))
        self.until = -math.inf

    @property
    def free(self) -> bool:
        """Nothing to wait for, whatever the time is."""
        return not self._requests and not self._tokens and self.until == -math.inf

    @property
    def counts_tokens(self) -> bool:
        return bool(self._tokens)

    def start(self, calls: int, tokens: float, now: float) -> float:
        """Take what these requests need; the time from which they may be made."""
        times = [now]
        if self._requests:
            times.append(self._requests.take(calls, now))
        if self._tokens:
            times.append(self._tokens.take(tokens, now))
        return max(times)

    def used(self, estimated: float, actual: float) -> None:
        """Replace an estimate of tokens by what they were."""
        if self._tokens:
            self._tokens.give(estimated - actual)

    def pause(self, after: float, now: float) -> None:
        """Let every call wait, as the server asked. Of two such pauses the longer holds."""
        self.until = max(self.until, now + after)


@dataclass(slots=True)
class Budget:
    """What may be spent, what was, and the reason to stop once it is all gone.

    A reply is spent when it comes, before it is stored. `pending` are the outputs of calls under way.
    """

    limits: Limits
    started: float
    reason: str | None = None
    cost: float = 0.0
    tokens: int = 0
    outputs: int = 0
    pending: int = 0

    def spend(self, cost: float | None, tokens: int) -> None:
        """One more output has come."""
        self.cost += cost or 0.0
        self.tokens += tokens
        self.outputs += 1

    def reached(self, now: float) -> bool:
        """Whether no further call may start. Once reached it stays so.

        >>> budget = Budget(Limits(max_cost=0.5), started=0.0)
        >>> budget.spend(0.4, 9)
        >>> budget.reached(now=1.0)
        False
        >>> budget.spend(0.2, 9)
        >>> budget.reached(now=1.0), budget.reason
        (True, '--max-cost 0.5 reached')
        """
        if self.reason is None:
            for name, limit, spent in (
                ("--max-cost", self.limits.max_cost, self.cost),
                ("--token-budget", self.limits.token_budget, self.tokens),
                ("--max-time", self.limits.max_time, now - self.started),
            ):
                if limit is not None and spent >= limit:
                    self.reason = f"{name} {limit:g} reached"
        return self.reason is not None

    @property
    def tight(self) -> bool:
        """Whether the calls under way may use up what is left: then the next one waits for them.

        Before the first output its cost is unknown, so that the first call goes alone. Every call under way ends at
        some time, by its timeout at the latest, so that this cannot block for ever.

        >>> budget = Budget(Limits(max_cost=10), started=0.0, cost=6.0, outputs=6)
        >>> budget.pending = 2; budget.tight
        False
        >>> budget.pending = 4; budget.tight
        True
        """
        if not self.pending:
            return False
        bounds = ((self.limits.max_cost, self.cost), (self.limits.token_budget, self.tokens))
        known = [(limit, spent) for limit, spent in bounds if limit is not None]
        if not self.outputs:
            return bool(known)
        return any(spent + (self.pending + 1) * spent / self.outputs > limit for limit, spent in known)

    @property
    def unlimited(self) -> bool:
        return self.limits.max_cost is None and self.limits.token_budget is None and self.limits.max_time is None

    def left(self, now: float) -> float:
        """Seconds until the time is up."""
        return math.inf if self.limits.max_time is None else max(0.0, self.started + self.limits.max_time - now)
