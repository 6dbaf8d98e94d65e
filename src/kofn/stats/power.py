"""Sample sizes: the number of cases that a comparison or an interval needs, and the difference that n cases detect.

A case's value varies between cases (variance `between`) and, when the system answers again, within
them (`within`, divided by the number of repeats). Between-case variance of a *difference* is that
of the paired differences, which is smaller the more the two systems agree on what is hard.
"""

from __future__ import annotations

from math import sqrt

from kofn.errors import InputError
from kofn.stats.intervals import check_level, normal_quantile


def _variance(between: float, within: float, repeats: int) -> float:
    if between < 0 or within < 0 or repeats < 1:
        raise InputError("variances must be non-negative and repeats at least 1")
    return between + within / repeats


def _reach(power: float, level: float) -> float:
    if not 0 < power < 1:
        raise InputError(f"power must lie strictly between 0 and 1, got {power}: 0.8 is usual")
    return normal_quantile((1 + check_level(level)) / 2) + normal_quantile(power)


def cases_needed(
    difference: float,
    *,
    between: float,
    within_a: float = 0.0,
    within_b: float = 0.0,
    repeats: int = 1,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """Cases needed to find a true paired difference with this power, two-sided.

    n = (z_{α/2} + z_β)² (ω² + σ_A²/K + σ_B²/K) / δ², Miller (2024, arXiv 2411.00640), with ω² the
    variance over cases of the expected differences. Not rounded; round up.

    >>> round(cases_needed(0.03, between=1 / 9), 1)
    969.0
    >>> round(cases_needed(0.03, between=1 / 9, within_a=1 / 6, within_b=1 / 6, repeats=10), 1)
    1259.7
    """
    if difference == 0:
        raise InputError("no number of cases finds a difference of 0: give the smallest that matters")
    variance = _variance(between, within_a + within_b, repeats)
    return (_reach(power, level) / difference) ** 2 * variance


def detectable_difference(
    n: float,
    *,
    between: float,
    within_a: float = 0.0,
    within_b: float = 0.0,
    repeats: int = 1,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """The smallest true paired difference that n cases find with this power: the inverse of `cases_needed`.

    >>> round(detectable_difference(969, between=1 / 9), 4)
    0.03
    """
    if n <= 0:
        raise InputError(f"n must be positive, got {n}")
    return _reach(power, level) * sqrt(_variance(between, within_a + within_b, repeats) / n)


def cases_for_width(
    width: float, *, between: float, within: float = 0.0, repeats: int = 1, level: float = 0.95
) -> float:
    """Cases for which an interval of this level has this full width: (2z/width)² (between + within/K).

    >>> round(cases_for_width(0.1, between=0.25), 1)
    384.1
    """
    if width <= 0:
        raise InputError(f"width must be positive, got {width}")
    z = normal_quantile((1 + check_level(level)) / 2)
    return (2 * z / width) ** 2 * _variance(between, within, repeats)
