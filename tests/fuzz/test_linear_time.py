"""No text makes a reader slow: a megabyte costs about four times what a quarter of it does, and seconds at most."""

from __future__ import annotations

import os
from datetime import date
from random import Random
from time import process_time

import pytest
from tests.fuzz.linear import ALL, FEW, UNITS, readers

MEGABYTE = 1_000_000
QUARTER = MEGABYTE // 4
MOST_TIMES = 12  # for four times the text; quadratic time would be 16 and more
MOST_SECONDS = 20.0  # a few at the worst on a quiet machine
SHARE = float(os.environ.get("KOFN_FUZZ_SECONDS", "600")) / 1000  # seconds of each pair of reader and family
TOO_SHORT = 0.1  # seconds: below it a ratio says nothing


def seconds(read, unit, size):
    text = unit * (size // len(unit)) + "x"
    before = process_time()
    read(text)
    return process_time() - before


def slow(read, unit, size=MEGABYTE):
    """Why this is not linear, or None. Looked at once more before it counts: another process may have had the core."""
    for _ in range(2):
        quarter, whole = seconds(read, unit, size // 4), seconds(read, unit, size)
        if whole < TOO_SHORT or (whole < MOST_TIMES * quarter and whole < MOST_SECONDS):
            return None
    return f"{unit!r}: {quarter:.2f} s for {size // 4:,} characters, {whole:.2f} s for {size:,}"


@pytest.mark.long(quick=8)
@pytest.mark.parametrize("name", readers())
def test_time_is_linear_in_hostile_text(name):
    """At a sixteenth of a megabyte, where a quadratic reader shows as well and which is soon done."""
    found = [slow(readers()[name], unit, MEGABYTE // 16) for unit in FEW]
    assert not [one for one in found if one]


@pytest.mark.fuzz
@pytest.mark.parametrize("family", UNITS)
@pytest.mark.parametrize("name", readers())
def test_a_megabyte_of_hostile_text_takes_linear_time(name, family):
    """A whole one of the few, a quarter of one of all others; as many as fit into the time, other ones each day."""
    units, began = Random(f"{date.today()}{name}{family}").sample(UNITS[family], len(UNITS[family])), process_time()
    for at, unit in enumerate(units):
        if at and process_time() - began > SHARE:
            break
        assert slow(readers()[name], unit, MEGABYTE if unit in FEW else QUARTER) is None


@pytest.mark.long
def test_a_slow_reader_would_be_found():
    """A cubic one, so that what else the machine does makes no difference here."""

    def cubic(text):
        return sum(text.count("x", at) for at in range(0, len(text), 500) for _ in range(len(text) // QUARTER))

    assert slow(cubic, "a", MEGABYTE) is not None
    assert set(FEW) <= set(ALL)
