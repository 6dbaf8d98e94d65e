"""Metric `numeric`: numbers compared by value."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kofn.core.numbers import numbers_equal, parse_number
from kofn.errors import InputError
from kofn.metrics.base import Metric, best_match
from kofn.metrics.text_match import WHITESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric(Metric):
    """1 when both sides are numbers of the same value, else 0.

    Same value means |p - r| <= max(tolerance, relative * max(|p|, |r|)), exactly equal by default. Both
    sides are parsed, so "1,234" is "1234.0" and 1/2 is 0.5; "50%" is both 50 and 0.5. Text that is no number
    never equals anything, not even itself; with `or_exact` two such texts are compared as text instead.

    >>> Numeric()("$1,234.00", "1234"), Numeric()("3.14", "3.14159")
    (1.0, 0.0)
    >>> Numeric(tolerance=0.01)("3.14", "3.14159")
    1.0
    >>> Numeric()("unknown", "unknown"), Numeric(or_exact=True)("unknown", "unknown")
    (0.0, 1.0)
    """

    tolerance: float = 0.0
    relative: float = 0.0
    or_exact: bool = False

    def __post_init__(self) -> None:
        for name in ("tolerance", "relative"):
            check_tolerance("numeric", name, getattr(self, name))

    def __call__(self, prediction: object, reference: object) -> float | None:
        return best_match(self._equal, prediction, reference)

    def _equal(self, prediction: str, reference: str) -> float:
        if numbers_equal(prediction, reference, tolerance=self.tolerance, relative=self.relative):
            return 1.0
        if not self.or_exact or parse_number(prediction) is not None or parse_number(reference) is not None:
            return 0.0
        return float(prediction.strip(WHITESPACE) == reference.strip(WHITESPACE))


def check_tolerance(metric: str, name: str, value: float) -> None:
    """Raise when a tolerance is negative or not finite."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{metric}: {name} must be a number of at least 0, not {value!r}")
