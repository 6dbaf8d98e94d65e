"""What the fault suite did, counted as it goes, and shown as a table at its end.

With KOFN_FAULTS_PAGE=FILE the table is also written to that page, between its two markers.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.commands import Forked

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
DONE: Counter[tuple[str, str]] = Counter()
BEGAN = time.monotonic()


@pytest.fixture(scope="session")
def tally() -> Counter[tuple[str, str]]:
    """(what, of which) -> how often."""
    return DONE


@pytest.fixture(scope="session")
def forked(tmp_path_factory) -> Forked:
    return Forked(tmp_path_factory.mktemp("said"))


def table() -> list[str]:
    """A row a kind of fault."""
    lines = ["| what was done | to what | times |", "|---|---|---:|"]
    return lines + [f"| {what} | {of} | {n:,} |" for (what, of), n in DONE.items()]


def pytest_terminal_summary(terminalreporter, exitstatus) -> None:
    if not DONE:
        return
    minutes = (time.monotonic() - BEGAN) / 60
    lines = [*table(), "", f"{os.cpu_count()} cores, {minutes:.1f} minutes."]
    for line in ["", *lines]:
        terminalreporter.write_line(line)
    page = os.environ.get("KOFN_FAULTS_PAGE")
    if page and exitstatus == 0:
        text = Path(page).read_text()
        before, _, rest = text.partition(BEGIN)
        Path(page).write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + rest.partition(END)[2])
