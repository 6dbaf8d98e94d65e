"""Every benchmark beside its peers in one run; prints ratios and writes docs/benchmarks.md.

make bench
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import aggregation
import bootstrap
import calls
import logs
import score
import startup
import verify
import view

import embedded

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

HEAD = """# What it costs

Written by `make bench`, on {machine}, {date}, with {versions}. Each row and its peer ran in the same run on the
same work. Times are of one machine; the ratios are what to look at. `~` marks a peer that was run on a part of the
work and scaled (it is linear). In a ratio more is better, except where it says "takes": there kofn takes that many
times what the peer, which does less, takes.

| work | kofn | peer | theirs | ratio |
|---|---|---|---|---|
"""

NOTES = """
- **Aggregation**: sets are contiguous rows; blocks of sets of equal size are reduced along the first axis; 0/1 values
  stay bytes; votes are on 63-bit hashes of the answers; pass@k is a table over (n, c). Hashing the strings is included.
- **Bootstrap**: kofn computes the law of the resampled mean instead of drawing from it (binomial, convolution,
  expansion), so this is the same result and not the same work. The ends of both intervals are compared in standard
  errors of the mean: 10,000 draws alone err by about .03.
- **Score**: the whole command, start-up and printing included, against a process that only reads the file with polars.
- **Logs**: whole processes, start-up included, of which a third of a second is polars and numpy. Lines are cut at their
  keys and prompts are not decoded; responses are, for the table holds them: it takes longer the more there are.
- **Calls**: what counts is CPU time of the client's process. kofn's calls go through the whole runner: prompts from the
  task, limits, retries, and every reply committed to SQLite before it counts. A whole evaluation also extracts, scores,
  computes intervals and writes the run directory with its report; the peers write their logs.
- **Embedded**: tokens a second; several samples of a prompt share its computation.
- **Programs**: the harness resets the work folder, watches what a program uses, verifies and keeps every case; the loop
  only starts the same sandbox command and waits for it. kofn's evaluation of HumanEval runs every program in a sandbox
  of its own and keeps every result as it comes (as root, whose programs run in forks of a warm interpreter); its whole
  command loads what writes the report, and writes it.
- **Viewer**: times are of one request, the first of its kind, seconds after the viewer was started; its peers merely
  read the same files.
- **Start-up**: modules are loaded when first used.
"""


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    rows = [
        row
        for module in (startup, aggregation, bootstrap, score, logs, calls, embedded, verify, view)
        for row in module.main()
    ]
    versions = ", ".join(f"{name} {version(name)}" for name in ("kofn", "numpy", "polars", "scipy"))
    head = HEAD.format(
        machine=f"{os.cpu_count()} cores of {cpu()}",
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        versions=f"Python {platform.python_version()}, {versions}",
    )
    body = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    PAGE.write_text(head + body + NOTES)


if __name__ == "__main__":
    main()
