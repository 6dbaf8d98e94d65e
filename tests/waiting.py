"""Waiting for what happens in its own time: bounded so that a test cannot hang, and never a measure of speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LONGEST = 120.0  # seconds: many times what anything here takes on a busy machine
LONGEST_MS = 1000 * LONGEST  # the same, as Playwright counts
PAUSE = 0.02


def wait_until(condition: Callable[[], T], what: object = "", longest: float = LONGEST) -> T:
    """What the condition says as soon as it is true; `what` (a text, or a function of none) tells what was waited for.

    >>> wait_until(lambda: "there")
    'there'
    >>> wait_until(lambda: False, "the moon", longest=0)
    Traceback (most recent call last):
    AssertionError: waited 0 s in vain: the moon
    """
    end = time.monotonic() + longest
    while not (found := condition()):
        if time.monotonic() >= end:
            raise AssertionError(f"waited {longest:g} s in vain: {what() if callable(what) else what}")
        time.sleep(PAUSE)
    return found
