"""Every benchmark beside its peers in one run; prints ratios and writes docs/benchmarks.md.

    make bench
    python benchmarks/run.py --only ranking --only judge     # these parts anew, the page's others as they were
    python benchmarks/run.py --small                          # all of it on little data, to see that it works: no page

Each part runs in a process of its own. What was measured is kept in benchmarks/measured.json, from which the page is
made. A part that fails leaves the others' rows as they are, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import beside
import table
from table import HEADINGS, Limit, Row

HERE = Path(__file__).parent
PAGE, KEPT = HERE.parent / "docs" / "benchmarks.md", HERE / "measured.json"
PARTS = ("startup", "aggregation", "bootstrap", "ranking", "extraction", "judge", "logs", "score", "memory", "calls",
         "verify", "reports", "view", "embedded")  # fmt: skip
LONGEST = 900  # seconds: a part that takes longer is ended and counts as failed

HEAD = """# Benchmarks

Written by `make bench` on {machine}, {date}, in {minutes:.0f} minutes; load of the machine at the start {load:.1f}.
{own}. Peers: {others}.

kofn and each peer ran in turn on the same work, and each time is the best of several rounds. If both compute the
same numbers, the run checks that they are equal. The times are from one machine; compare the ratios.

- *ratio*: the peer's time divided by kofn's. Below 1 kofn takes longer. Some peers do only a part of
  the work, such as reading the file, and show the cost of that part.
- *physical limit*: the minimum that the work needs, measured in the same run: reading the bytes, one pass over the
  array, a bare client. *kofn / limit* is kofn's distance from it; 1 would be perfect.
- `~`: the peer ran on a part of the work and its time was scaled (it is linear).

For the coverage of intervals see [coverage.md](coverage.md) and [calibrate.md](calibrate.md).
"""


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {cpu()}, {memory:.0f} GB"


def measure(name: str, *, small: bool) -> dict[str, Any]:
    """One part, here: what it is about, its rows, and who was left out or failed."""
    module = importlib.import_module(name)
    rows = [asdict(row) for row in module.main(small=small)]
    record = {"title": module.TITLE, "how": " ".join(module.HOW.split())}
    return {**record, "rows": rows, "left_out": table.LEFT_OUT, "failed": table.FAILED}


def measured_apart(name: str, *, small: bool) -> dict[str, Any]:
    """The same in a process of its own."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--part", name, "--rows", str(found), *(["--small"] if small else [])]
        try:
            process = subprocess.Popen(command, start_new_session=True)
            code = process.wait(LONGEST)
            why = f"exit code {code}"
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as problem:
            os.killpg(process.pid, signal.SIGKILL)  # and what it started
            process.wait()
            if isinstance(problem, KeyboardInterrupt):
                raise
            code, why = 1, f"not done after {LONGEST} s"
        if code == 0:
            record: dict[str, Any] = json.loads(found.read_text())
        else:
            record = {"title": name, "how": "", "rows": [], "left_out": [], "failed": [why]}
    took = time.perf_counter() - began
    print(f"-- {name}: {len(record['rows'])} rows in {took:.0f} s\n", flush=True)
    return {**record, "seconds": took, "date": f"{datetime.now(UTC):%Y-%m-%d}"}


def section(name: str, part: dict[str, Any], date: str) -> str:
    """A part of the page: how it was done, the command that does it alone, its rows."""
    rows = [Row(**{**row, "limit": Limit(*row["limit"])}).cells() for row in part["rows"]]
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    alone = f"`python benchmarks/run.py --only {name}`, {part['seconds']:.0f} s"
    when = "" if part["date"] == date else f", {part['date']}"
    missing = [f"Left out: {line}." for line in part["left_out"]] + [f"Failed: {line}." for line in part["failed"]]
    return "\n".join([f"\n## {part['title']}\n", f"{part['how']} ({alone}{when})\n", *lines, *_after(missing)]) + "\n"


def _after(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []


def page(record: dict[str, Any]) -> str:
    whole = sum(part["seconds"] for part in record["parts"].values())
    head = HEAD.format(
        machine=record["machine"],
        date=record["date"],
        minutes=whole / 60,
        load=record["load"],
        own=", ".join(f"{name} {v}" for name, v in record["versions"].items()),
        others=", ".join(f"{name} {v}" for name, v in record["peers"].items()) or "none",
    )
    there = [name for name in PARTS if name in record["parts"]]
    return head + "".join(section(name, record["parts"][name], record["date"]) for name in there)


def about() -> dict[str, Any]:
    """The machine, the day and the versions of all that is compared."""
    own = {"Python": platform.python_version()} | {name: version(name) for name in ("kofn", "numpy", "polars", "scipy")}
    others = beside.versions(beside.TOOLS) | beside.versions(beside.IR)
    load = os.getloadavg()[0]
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return {"machine": machine(), "date": today, "load": load, "versions": own, "peers": dict(sorted(others.items()))}


def kept() -> dict[str, Any]:
    """What was measured last."""
    found: dict[str, Any] = json.loads(KEPT.read_text())
    return found


def keep(record: dict[str, Any]) -> None:
    """Keep what was measured, and write the page of it."""
    KEPT.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(record))


def kept_parts(record: dict[str, Any], only: list[str]) -> dict[str, Any]:
    """What an earlier run on this machine measured, where only some parts are measured now."""
    if not only or not KEPT.exists():
        return {}
    earlier = kept()
    return dict(earlier["parts"]) if earlier["machine"] == record["machine"] else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=PARTS, default=[], help="measure this part alone")
    parser.add_argument("--small", action="store_true", help="little data, no page: does it work?")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        options.rows.write_text(json.dumps(measure(options.part, small=options.small)))
        return 0
    record = about()
    parts, found = kept_parts(record, options.only), {}
    for name in options.only or PARTS:
        parts[name] = found[name] = measured_apart(name, small=options.small)
        if not options.small:  # after every part: what was measured is kept when the next one is interrupted
            keep({**record, "parts": parts})
    whole = sum(part["seconds"] for part in found.values())
    print(f"{sum(len(part['rows']) for part in found.values())} rows in {whole:.0f} s")
    problems = [f"{name}: {line}" for name, part in found.items() for line in part["failed"]]
    for line in problems:
        print(f"failed: {line}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
