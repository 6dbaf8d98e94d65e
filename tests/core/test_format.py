"""Numbers as people read them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from kofn.core.format import (
    format_clock,
    format_count,
    format_dollars,
    format_duration,
    format_estimate,
    format_interval,
    format_money,
    format_number,
    format_p,
    format_part,
    format_short,
    format_signed,
    format_significant,
    format_size,
    pluralize,
)

NUMBERS = st.floats(-1e6, 1e6)
SECONDS = st.floats(0, 1e7)


@given(NUMBERS, st.integers(0, 6))
def test_a_number_reads_back_and_a_zero_has_no_sign(value, digits):
    text = format_number(value, digits)
    assert abs(float(text) - value) <= 0.5 * 10**-digits * (1 + 1e-9) + 1e-9
    assert not re.fullmatch(r"-0(\.0*)?", text)
    assert format_interval(value, value, digits) == f"[{text}, {text}]"


@given(NUMBERS)
def test_a_difference_has_a_sign_unless_it_rounds_to_nothing(value):
    text = format_signed(value)
    assert abs(float(text) - value) <= 0.000501
    assert text == "0.000" or text[0] == ("+" if value > 0 else "-")


@given(st.floats(-1e12, 1e12), st.integers(1, 6))
def test_significant_digits_are_near_and_few(value, digits):
    text = format_significant(value, digits)
    assert abs(float(text.replace(",", "")) - value) <= abs(value) * 0.6 * 10 ** (1 - digits) + 1e-300


@given(st.floats(0, 1e9))
def test_money_starts_with_its_sign_and_loses_less_than_a_tenth(amount):
    for text in (format_money(amount), format_dollars(amount)):
        assert text.startswith("$")
        assert abs(float(text[1:].replace(",", "")) - amount) <= max(0.005, amount * 0.06 if amount < 1 else 0.5)


def seconds_of(text):
    units = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([\d.e-]+) (ms|s|min|h|d)", text))


@given(SECONDS, SECONDS)
def test_longer_durations_never_read_as_shorter_ones(a, b):
    low, high = sorted((a, b))
    assert seconds_of(format_duration(low)) <= seconds_of(format_duration(high)) + 1e-12
    assert abs(seconds_of(format_duration(a)) - a) <= max(0.01 * a, 1e-12) + 1e-9


@given(SECONDS)
def test_a_clock_shows_every_second_up_to_a_day(seconds):
    text = format_clock(seconds)
    if seconds <= 86_399:
        parts = [int(part) for part in text.split(":")]
        assert all(part < 60 for part in parts[-2:])
        assert sum(part * 60**i for i, part in enumerate(reversed(parts))) - seconds <= 1


@given(st.integers(0, 10**15))
def test_counts_sizes_and_short_numbers_keep_what_they_count(n):
    assert format_count(n, "case").replace(",", "") == f"{n} case{'' if n == 1 else 's'}"
    value, unit = re.fullmatch(r"([\d,]+) (MB|bytes)", format_size(n)).groups()
    assert int(value.replace(",", "")) == (n >> 20 if unit == "MB" else n)
    short = re.fullmatch(r"([\d.]+)([kMG]?)", format_short(n))
    assert abs(float(short[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[short[2]] - n) <= 0.051 * n


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_a_part_is_all_or_nothing_only_when_it_is(part, whole):
    part = min(part, whole)
    assert (format_part(part, whole) == "100.0%") == (part == whole)
    assert (format_part(part, whole) == "0.0%") == (part == 0)


@given(st.floats(0, 1))
def test_a_p_value_is_never_shown_as_nothing(p):
    assert float(format_p(p).lstrip("<")) > 0


def test_plurals_and_what_is_not_known():
    assert [pluralize(n, "entry") for n in (0, 1, 2)] == ["entries", "entry", "entries"]
    assert [pluralize(2, noun) for noun in ("day", "query", "case")] == ["days", "queries", "cases"]
    assert format_estimate(None, 0.1, 0.2) == "undefined"
    assert format_estimate(0.5, None, 0.2) == "0.500"
