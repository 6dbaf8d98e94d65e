"""What every benchmark returns: rows for the page."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One line: what was done, what kofn took, who else did it, what they took, and how many times that is."""

    work: str
    kofn: str
    peer: str
    theirs: str
    ratio: str


def seconds(s: float) -> str:
    """A time with a sensible unit.

    >>> seconds(0.00123), seconds(12.3)
    ('1.2 ms', '12.3 s')
    """
    return f"{s:,.2f} s" if 1 <= s < 10 else f"{s:,.1f} s" if s >= 10 else f"{1000 * s:.3g} ms"


def show(row: Row) -> Row:
    """Print a row as it is found."""
    print(f"{row.work}: kofn {row.kofn}, {row.peer} {row.theirs}, {row.ratio}", flush=True)
    return row
