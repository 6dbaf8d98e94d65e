"""Metrics `numeric` and `math_equal`: numbers compared by value, mathematics compared by math-verify."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import threading
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from kofn.core.latex import latex_equal
from kofn.core.numbers import numbers_equal, parse_number
from kofn.errors import InputError
from kofn.metrics.base import ReferenceMetric
from kofn.metrics.text_match import WHITESPACE

_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}")
_BOXED = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)
# a word of three letters or more is language: "evil" and "live" would be equal as products of variables
_WORDS = re.compile(r"[^\W\d_]{3,}(?:[\s,.'-]+[^\W\d_]+)*")
_DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric(ReferenceMetric):
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

    def score(self, prediction: str, reference: str) -> float:
        if numbers_equal(prediction, reference, tolerance=self.tolerance, relative=self.relative):
            return 1.0
        if not self.or_exact or parse_number(prediction) is not None or parse_number(reference) is not None:
            return 0.0
        return float(prediction.strip(WHITESPACE) == reference.strip(WHITESPACE))


def check_tolerance(metric: str, name: str, value: float) -> None:
    """Raise when a tolerance is negative or not finite."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{metric}: {name} must be a number of at least 0, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MathEqual(ReferenceMetric):
    r"""1 when prediction and reference are the same value or expression, else 0.

    Numbers with or without units, tuples, intervals, sets, matrices and closed expressions are settled by
    `core.latex`, so that (x+1)^2 is x^2+2x+1; what is left is parsed and compared by math-verify where it is
    installed (extra `math`), and is not equal where it is not. Plain words are compared as words, ignoring case: read
    as mathematics "evil" and "live" would be the same product. Answers over `max_chars` are compared as text only.

    A parse or a comparison that takes more than `timeout` seconds leaves the answer ungraded (None), since
    it says nothing about the answer. math-verify times itself with SIGALRM, which only the main thread of a
    POSIX process may use: elsewhere there is no time limit, so prefer the main thread or processes.

    >>> MathEqual()(r"\frac{1}{2}", "0.5"), MathEqual()("(x+1)^2", "x^2 + 2x + 1")
    (1.0, 1.0)
    >>> MathEqual()(r"2\sqrt{2}", [r"\sqrt{7}", r"\sqrt{8}"]), MathEqual()("evil", "live")
    (1.0, 0.0)
    """

    timeout: int = 5
    max_chars: int = 2000

    def __post_init__(self) -> None:
        if self.timeout != int(self.timeout) or self.timeout < 1:
            raise InputError(f"math_equal: timeout must be whole seconds, at least 1, not {self.timeout!r}")
        if self.max_chars < 1:
            raise InputError(f"math_equal: max_chars must be at least 1, not {self.max_chars}")

    def score(self, prediction: str, reference: str) -> float | None:
        left, right = _simplified(prediction), _simplified(reference)
        if (left == right and left) or numbers_equal(prediction, reference):
            return 1.0
        if _WORDS.fullmatch(left) or _WORDS.fullmatch(right) or not (left and right):
            return float(left.casefold() == right.casefold() != "")
        if max(len(left), len(right)) > self.max_chars:
            return 0.0
        if latex_equal(prediction, reference):
            return 1.0
        if not _has_math_verify():
            return 0.0
        alarm = os.name == "posix" and threading.current_thread() is threading.main_thread()
        return _verified(left, right, self.timeout if alarm else None)


@cache
def _has_math_verify() -> bool:
    return importlib.util.find_spec("math_verify") is not None


def _simplified(text: str) -> str:
    r"""Return the text without `\boxed{}`, `\text{}`, dollar signs around it and space at its ends."""
    text = text.strip().strip("$").strip()
    if boxed := _BOXED.fullmatch(text):
        text = boxed[1]
    return _TEXT_COMMAND.sub(r"\1", text).strip()


def _verified(prediction: str, reference: str, timeout: int | None) -> float | None:
    """Return 1 or 0 as math-verify says, or None when it ran out of time."""
    from math_verify import verify
    from math_verify.errors import TimeoutException

    try:
        sides = _parsed(reference, timeout), _parsed(prediction, timeout)
        return float(verify(*map(list, sides), timeout_seconds=timeout, raise_on_error=True))
    except TimeoutException:
        return None
    except Exception:  # sympy raises anything on expressions it cannot compare: those are not equal
        return 0.0


# sympy takes milliseconds to parse, and answers repeat: most candidates of a case agree
@lru_cache(maxsize=4096)
def _parsed(text: str, timeout: int | None) -> tuple[Any, ...]:
    from math_verify import parse

    delimited = text if _DELIMITED.search(text) else f"${text}$"
    return tuple(parse(delimited, parsing_timeout=timeout, raise_on_error=True))
