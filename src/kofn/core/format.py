"""Formats counts with their nouns, and durations."""

from __future__ import annotations


def format_count(n: int, noun: str) -> str:
    """A number and its noun.

    >>> format_count(1, "case"), format_count(1234, "case")
    ('1 case', '1,234 cases')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


# (seconds of a unit, its name, seconds of the next smaller unit, its name)
_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def format_duration(seconds: float) -> str:
    """Seconds as people say them, in at most two units.

    >>> format_duration(0.0042), format_duration(4.837), format_duration(290.2), format_duration(8000)
    ('4.2 ms', '4.84 s', '4 min 50 s', '2 h 13 min')
    """
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
