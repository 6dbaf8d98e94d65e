"""Formats numbers, intervals, percentages, money, durations, sizes, and counts with their nouns.

`none` is what stands for a value that is not known: "-" in text, "–" on pages.
"""

from __future__ import annotations

from math import ceil, floor, log10

MB, GB = 1 << 20, 1_000_000_000  # memory is counted in powers of two, disks in powers of ten

# --- numbers


def format_number(value: float | None, digits: int = 3, none: str = "-") -> str:
    """So many digits after the point; what rounds to 0 has no sign.

    >>> format_number(0.8333), format_number(-0.0001), format_number(None, none="–")
    ('0.833', '0.000', '–')
    """
    return none if value is None else f"{value:z.{digits}f}"


def format_signed(value: float | None) -> str:
    """A difference with its sign; none of a zero: "-0.000" would look like a loss.

    >>> format_signed(0.0333), format_signed(-0.2), format_signed(0.0), format_signed(None)
    ('+0.033', '-0.200', '0.000', '-')
    """
    if value is None:
        return "-"
    return f"{value:+.3f}" if f"{abs(value):.3f}" != "0.000" else "0.000"


def format_significant(value: float | None, digits: int, none: str = "–") -> str:
    """A number to so many significant digits, without an exponent where people can read it.

    >>> format_significant(9.6743e-05, 4), format_significant(12345.6, 4), format_significant(None, 4)
    ('0.00009674', '12,350', '–')
    >>> format_significant(1.5e-12, 3), format_significant(4.8, 4)
    ('1.5e-12', '4.8')
    """
    if value is None:
        return none
    if value == 0 or not 1e-8 < abs(value) < 1e15:
        return f"{value:.{digits}g}"
    # decimals that give so many significant digits; negative for large numbers, which round() takes
    decimals = digits - 1 - floor(log10(abs(value)))
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if decimals > 0 else text


def format_amount(value: float | None) -> str:
    """Four significant digits.

    >>> format_amount(0.0058046), format_amount(0.00009674), format_amount(None)
    ('0.005805', '0.00009674', '–')
    """
    return format_significant(value, 4)


def format_short(number: float) -> str:
    """A count in four characters or so.

    >>> format_short(950), format_short(1500), format_short(12_300_000)
    ('950', '1.5k', '12M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 10 * size else f"{number / size:.0f}{unit}"
    return f"{number:.0f}"


def format_rate(rate: float) -> str:
    """A gain per dollar, which may be large: three digits, never as a power of ten.

    >>> format_rate(1234.5), format_rate(0.0961), format_rate(9.61)
    ('1,234', '0.0961', '9.61')
    """
    return f"{rate:,.0f}" if abs(rate) >= 1000 else _three_digits(rate)


def _three_digits(number: float) -> str:
    if number == 0:
        return "0"
    # the place of the first digit decides how many decimals
    text = f"{number:.{max(0, 2 - floor(log10(abs(number))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- estimates


def format_interval(low: float | None, high: float | None, digits: int = 3, none: str = "-") -> str:
    """The ends of an interval; what rounds to 0 has no sign.

    >>> format_interval(-0.0001, 0.3), format_interval(None, None)
    ('[0.000, 0.300]', '-')
    """
    return none if low is None or high is None else f"[{low:z.{digits}f}, {high:z.{digits}f}]"


def format_signed_interval(low: float | None, high: float | None) -> str:
    """The interval of a difference.

    >>> format_signed_interval(-0.1, 0.3)
    '[-0.100, +0.300]'
    """
    return "-" if low is None or high is None else f"[{low:+.3f}, {high:+.3f}]"


def format_estimate(point: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """An estimate with its interval, where it has one.

    >>> format_estimate(0.85, 0.739, 0.919), format_estimate(0.5, None, None), format_estimate(None, None, None)
    ('0.850 [0.739, 0.919]', '0.500', 'undefined')
    """
    text = format_number(point, digits, none="undefined")
    return text if point is None or low is None or high is None else f"{text} {format_interval(low, high, digits)}"


def format_p(p: float | None) -> str:
    """A p-value, never 0.

    >>> format_p(0.03), format_p(1e-9), format_p(None)
    ('0.030', '<0.0001', '-')
    """
    if p is None:
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 1e-2 else f"{p:.3f}"


def format_p_in_text(p: float | None) -> str:
    """A p-value as a sentence has it.

    >>> format_p_in_text(0.03), format_p_in_text(1e-9), format_p_in_text(None)
    ('p = 0.030', 'p < 0.0001', 'p undefined')
    """
    text = format_p(p)
    return "p undefined" if p is None else f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def format_level(level: float) -> str:
    """The level of an interval.

    >>> format_level(0.95), format_level(0.999)
    ('95%', '99.9%')
    """
    return f"{100 * level:g}%"


# --- percentages


def format_percent(value: float | None, none: str = "–") -> str:
    """A share in whole percent.

    >>> format_percent(0.6133), format_percent(None)
    ('61%', '–')
    """
    return none if value is None else f"{100 * value:.0f}%"


def format_part(part: int, whole: int) -> str:
    """A share of a count, never rounded to all or to nothing.

    >>> format_part(37, 60), format_part(9999, 10000), format_part(0, 9)
    ('61.7%', '>99.9%', '0.0%')
    """
    text = f"{100 * part / whole:.1f}"
    if part < whole and text == "100.0":
        return ">99.9%"
    return "<0.1%" if part and text == "0.0" else f"{text}%"


# --- money


def format_money(amount: float, digits: int | None = None) -> str:
    """Dollars, and cents as far as they matter, or so many digits after the point.

    >>> format_money(0), format_money(0.00042), format_money(0.0123), format_money(12.345), format_money(0.1, 4)
    ('$0', '$0.00042', '$0.0123', '$12.35', '$0.1000')
    """
    if digits is not None:
        return f"${amount:.{digits}f}"
    if amount == 0:
        return "$0"
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4f}" if amount >= 0.001 else f"${amount:.2g}"


def format_dollars(amount: float | None) -> str:
    """Dollars with three significant digits, for amounts that are compared.

    >>> format_dollars(0.00123456), format_dollars(12.0), format_dollars(1234.5), format_dollars(None)
    ('$0.00123', '$12', '$1,234', 'an unknown sum')
    """
    if amount is None:
        return "an unknown sum"
    return f"${amount:,.0f}" if amount >= 1000 else f"${_three_digits(amount)}"


def format_cost(value: float | None) -> str:
    """A cost in whatever unit a file has it.

    >>> format_cost(0.0123456), format_cost(12345.6), format_cost(None)
    ('0.01235', '1.235e+04', '-')
    """
    return "-" if value is None else f"{value:,.4g}"


# --- durations

# (seconds of a unit, its name, seconds of the next smaller unit, its name)
_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def format_duration(seconds: float | None, none: str = "-") -> str:
    """Seconds as people say them, in at most two units.

    >>> format_duration(0.0042), format_duration(4.837), format_duration(290.2), format_duration(8000)
    ('4.2 ms', '4.84 s', '4 min 50 s', '2 h 13 min')
    """
    if seconds is None:
        return none
    if seconds < 0.9995:  # above, three digits would round to 1000 ms
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:  # above, it would read 60.0 s
        return f"{seconds:.3g} s"
    for large, name, small, rest in _UNITS:
        # rounded once, in the smaller unit: 3599.7 s is 1 h 0 min, not 59 min 60 s
        whole = round(seconds / small)
        if whole * small >= large:
            return f"{whole * small // large} {name} {whole * small % large // small} {rest}"
    return f"{seconds:.0f} s"


def format_clock(seconds: float | None) -> str:
    """A length of time that counts up or down.

    >>> format_clock(None), format_clock(7), format_clock(3675), format_clock(200_000)
    ('?', '0:07', '1:01:15', '2d 07h')
    """
    if seconds is None:
        return "?"
    whole = ceil(seconds)
    if whole >= 86_400:
        return f"{whole // 86_400}d {whole % 86_400 // 3600:02d}h"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def format_seconds(time: float | None) -> str:
    """Seconds that are compared with other seconds.

    >>> format_seconds(1.234), format_seconds(250.0), format_seconds(None)
    ('1.23 s', '250 s', 'an unknown time')
    """
    return "an unknown time" if time is None else f"{time:.3g} s" if time < 100 else f"{time:,.0f} s"


# --- sizes and counts


def format_size(n: int) -> str:
    """A number of bytes as people say it.

    >>> format_size(8 * MB), format_size(1500)
    ('8 MB', '1,500 bytes')
    """
    return f"{n // MB:,} MB" if n >= MB else f"{n:,} bytes"


def format_gigabytes(n: int) -> str:
    """
    >>> format_gigabytes(1_550_000_000)
    '1.6 GB'
    """
    return f"{n / GB:.1f} GB"


def format_count(n: int, noun: str) -> str:
    """A number and its noun.

    >>> format_count(1, "case"), format_count(1234, "case"), format_count(2, "retry"), format_count(0, "day")
    ('1 case', '1,234 cases', '2 retries', '0 days')
    """
    return f"{n:,} {pluralize(n, noun)}"


def pluralize(n: int, noun: str) -> str:
    """The noun that goes with a number.

    >>> pluralize(1, "query"), pluralize(3, "query")
    ('query', 'queries')
    """
    if n == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"
