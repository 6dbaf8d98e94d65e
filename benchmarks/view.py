"""`kofn view` on 2,000 runs and on a run of 1,000,000 candidates, against what merely reads the same files.

The list is compared with `json.loads` of the two JSON files of every run; pages of the large run with polars reading
its candidates.parquet whole. Times are of one request as a browser makes it; each is the first of its kind, four
seconds after the viewer was started. Memory is the peak of the whole process after every page was asked for.

    python benchmarks/view.py
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from score import CASES, N, write
from table import Row, seconds, show

RUNS, ROUNDS, WARM = 2_000, 3, 4
KOFN = [sys.executable, "-m", "kofn"]
PAGES = {
    "first page": "/run/big",
    "a case of it": "/run/big/-/case?id=q100000",
    "filter: all fail": "/run/big?show=all_fail",
    "filter: tie in the vote": "/run/big?show=tied",
    "filter: identical candidates": "/run/big?show=identical",
    "filter: cut off": "/run/big?show=truncated",
    "search in inputs": "/run/big?q=99123",
    "search in outputs": "/run/big?q=answer+is+1999&within=outputs",
    "sorted by passing candidates": "/run/big?sort=passing&down=1",
    "filter: extractors disagree (what was read so far)": "/run/big?show=extractors",
}
READ = "import polars as pl, sys; pl.read_parquet(sys.argv[1])"


class Viewer:
    """A viewer of a folder in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [*KOFN, "view", str(folder), "--port", "7790"], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.process.stderr.readline()
        time.sleep(WARM)  # it loads its modules while nobody has opened a page yet

    def ask(self, path: str) -> float:
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:7790{path}") as answer:
            answer.read()
        return time.perf_counter() - began

    def memory(self) -> float:
        """The most it took, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)


def listed(folder: Path) -> list[Row]:
    source = folder / "source.jsonl"
    source.write_text(
        "\n".join(json.dumps({"id": i, "outputs": [{"pass": (i + j) % 3 > 0} for j in range(5)]}) for i in range(100))
    )
    runs = folder / "runs"
    first = runs / "run0000"
    subprocess.run([*KOFN, "score", str(source), "--out", str(first)], check=True, capture_output=True)
    (first / "report.html").unlink()
    for i in range(1, RUNS):
        shutil.copytree(first, runs / f"run{i:04d}", copy_function=os.link)
    viewer = Viewer(runs)
    try:
        cold, warm = viewer.ask("/"), min(viewer.ask("/?sort=name") for _ in range(ROUNDS))
    finally:
        viewer.close()
    began = time.perf_counter()
    for path in runs.iterdir():
        for name in ("run.json", "evaluation.json"):
            json.loads((path / name).read_text())
    bare = time.perf_counter() - began
    work = f"list {RUNS:,} runs"
    return [
        show(
            Row(
                f"{work}, first time",
                seconds(cold),
                "`json.loads` of their files",
                seconds(bare),
                f"takes {cold / bare:.1f}x",
            )
        ),
        show(Row(f"{work}, again", seconds(warm), "`json.loads` of their files", seconds(bare), f"{bare / warm:.1f}x")),
    ]


def opened(folder: Path) -> list[Row]:
    source, run = write(folder)["long, references"], folder / "runs" / "big"
    command = [*KOFN, "score", str(source), "-a", "mean", "-a", "majority", "-a", "any_pass", "--out", str(run)]
    subprocess.run(command, check=True, capture_output=True)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", READ, str(run / "candidates.parquet")], check=True)
    bare = time.perf_counter() - began
    viewer = Viewer(run.parent)
    try:
        rows = []
        for name, path in PAGES.items():
            took = viewer.ask(path)
            work = f"{CASES * N:,} candidates, {name}"
            rows.append(show(Row(work, seconds(took), "polars reads the file", seconds(bare), f"{bare / took:.1f}x")))
        memory = viewer.memory()
        rows.append(show(Row("memory of the viewer after all of these", f"{memory:,.0f} MB", "-", "-", "-")))
    finally:
        viewer.close()
    return rows


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        return [*listed(Path(one)), *opened(Path(other))]


if __name__ == "__main__":
    main()
