"""`kofn view` on 2,000 runs and on a run of 1,000,000 candidates, against what merely reads the same files.

The list is compared with `json.loads` of the two JSON files of every run; pages of the large run with polars reading
its candidates.parquet whole. Times are of one request as a browser makes it; each is the first of its kind, four
seconds after the viewer was started. Memory is the peak of the whole process after every page was asked for.

    python benchmarks/run.py --only view
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from score import CASES, HOLD, N, measure, write
from table import Limit, Row, show

TITLE = "The viewer"
HOW = """Times are for one request, the first of its kind, seconds after the viewer was started. The peers only read
the same files: `json.loads` of every run's two, or polars, in a new process, the large run's candidates.parquet.
The limit is a request for a static file of the same viewer, which computes nothing; for memory, an interpreter with
numpy and polars that holds the file's bytes."""

RUNS, ROUNDS, WARM = 2_000, 3, 4
KOFN = [sys.executable, "-m", "kofn"]
PAGES = {
    "first page": "/run/big",
    "a case of it": "/run/big/-/case?id=q{last}",
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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [*KOFN, "view", str(folder), "--port", str(self.port)], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.process.stderr.readline()
        time.sleep(WARM)  # it loads its modules while nobody has opened a page yet

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            body: bytes = answer.read()
        return body

    def ask(self, path: str) -> float:
        began = time.perf_counter()
        self.get(path)
        return time.perf_counter() - began

    def static(self) -> Limit:
        """A request for a file that the first page names."""
        found = re.search(r"/static/[0-9a-f]+/[\w.-]+", self.get("/").decode())
        assert found is not None
        return Limit("a static file of the viewer", min(self.ask(found[0]) for _ in range(20)))

    def memory(self) -> float:
        """The most it took, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)


def listed(folder: Path, n_runs: int) -> list[Row]:
    source = folder / "source.jsonl"
    source.write_text(
        "\n".join(json.dumps({"id": i, "outputs": [{"pass": (i + j) % 3 > 0} for j in range(5)]}) for i in range(100))
    )
    runs = folder / "runs"
    first = runs / "run0000"
    subprocess.run([*KOFN, "score", str(source), "--out", str(first)], check=True, capture_output=True)
    (first / "report.html").unlink()
    for i in range(1, n_runs):
        shutil.copytree(first, runs / f"run{i:04d}", copy_function=os.link)
    viewer = Viewer(runs)
    try:
        cold, warm = viewer.ask("/"), min(viewer.ask("/?sort=name") for _ in range(ROUNDS))
        assert f"{n_runs:,}" in viewer.get("/").decode()
        limit = viewer.static()
    finally:
        viewer.close()
    began = time.perf_counter()
    for path in runs.iterdir():
        for name in ("run.json", "evaluation.json"):
            json.loads((path / name).read_text())
    bare, peer = time.perf_counter() - began, "`json.loads` of their files"
    work = f"list {n_runs:,} runs"
    return [
        show(Row(work=f"{work}, first time", kofn=cold, peer=peer, theirs=bare, limit=limit)),
        show(Row(work=f"{work}, again", kofn=warm, peer=peer, theirs=bare, limit=limit)),
    ]


def opened(folder: Path, n_cases: int) -> list[Row]:
    source, run = write(folder, n_cases)["long, references"], folder / "runs" / "big"
    command = [*KOFN, "score", str(source), "-a", "mean", "-a", "majority", "-a", "any_pass", "--out", str(run)]
    subprocess.run(command, check=True, capture_output=True)
    file = str(run / "candidates.parquet")
    found = [measure([sys.executable, "-c", READ, file]) for _ in range(ROUNDS)]
    bare, most = min(took for took, _ in found), max(peak for _, peak in found)
    peer, rows = "polars reads the file", []
    viewer = Viewer(run.parent)
    try:
        took = {name: viewer.ask(path.format(last=n_cases - 1)) for name, path in PAGES.items()}
        memory, limit = viewer.memory(), viewer.static()
    finally:
        viewer.close()
    for name, seconds in took.items():
        work = f"{n_cases * N:,} candidates, {name}"
        rows.append(show(Row(work=work, kofn=seconds, peer=peer, theirs=bare, limit=limit)))
    limit = Limit("holding the file's bytes", measure([sys.executable, "-c", HOLD, file])[1])
    work = "memory of the viewer after all of these"
    return [*rows, show(Row(work=work, kofn=memory, peer=peer, theirs=most, limit=limit, unit="MB"))]


def main(small: bool = False) -> list[Row]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        return [*listed(Path(one), 5 if small else RUNS), *opened(Path(other), 200 if small else CASES)]


if __name__ == "__main__":
    main()
