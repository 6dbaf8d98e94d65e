"""The progress line of a count on a terminal; prints nothing where output is not a terminal."""

from __future__ import annotations

import sys
import time
from typing import Self

from kofn import generate
from kofn.core.format import format_clock


class Counting:
    """Writes the line at most five times a second; leaving the `with` block erases it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._last = 0.0
        self._shown = 0

    def tell(self, done: int, total: int) -> None:
        """So many are done of so many."""
        now = time.monotonic()
        if now - self._last < 0.2 or not sys.stderr.isatty():
            return

        self._last = now
        rate = done / max(1e-9, now - self._began)
        eta = format_clock((total - done) / rate if rate else None)
        bar = generate.progress_line.bar(min(1.0, done / total), 12)
        line = f"{bar} {done:,}/{total:,} {self._what} {rate:,.0f}/s ETA {eta}"
        sys.stderr.write("\r" + line.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
