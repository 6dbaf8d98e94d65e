"""The nouns of kofn: cases, candidates, scores, estimates and decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.core.format import format_estimate

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input with its reference(s), tags, weight and cluster."""

    id: str
    input: str | None = None
    references: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One output for a case: a repeat, a sample, a retrieved document, a submission.

    `answer is None` means the text holds no answer (a fact about the output); `error` is set when
    there is no output to look at (a fact about us).
    """

    case_id: str
    index: int
    text: str | None = None
    answer: str | None = None
    reasoning: str | None = None
    error: str | None = None
    cost: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One metric on one candidate. `value is None` means not graded; it is never 0 by default.

    >>> Score(metric="exact_match", value=1.0, passed=True)
    Score(metric='exact_match', value=1.0, passed=True, detail=None)
    """

    metric: str
    value: float | None
    passed: bool | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One number over cases, with its interval and the recipe that made it.

    `point` is the sample value; it is None when no case has a value. `n` counts the cases with a
    value, `n_missing` those without one (undefined or not graded).

    >>> e = Estimate(aggregator="any_pass", point=0.72, low=0.6, high=0.84, level=0.95, n=50,
    ...              n_missing=0, method="bootstrap")
    >>> print(e)
    any_pass 0.720 [0.600, 0.840]
    """

    aggregator: str
    point: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    n_missing: int
    method: str
    metric: str = ""
    segment: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.metric} {self.aggregator}".strip() + f" {self.format()}"

    def format(self, digits: int = 3) -> str:
        """The number with its interval."""
        return format_estimate(self.point, self.low, self.high, digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy says, and why in one line."""

    passed: bool
    policy: str
    reason: str
