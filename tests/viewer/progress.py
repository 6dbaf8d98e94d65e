"""Work that goes on, or was killed, as its directory tells it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager

from kofn.core.progress import Snapshot
from kofn.core.types import Estimate
from kofn.generate.progress_file import ProgressWriter


def estimate(point, low, high, n=5):
    return Estimate(
        metric="m", aggregator="mean", point=point, low=low, high=high, level=0.95, n=n, n_missing=0, method="t"
    )


@contextmanager
def in_progress(path, *, done=3, total=10, kind="run", keep=True, **more):
    """Something that goes on in a directory, record by this process; its numbers can be changed."""
    path.mkdir(parents=True, exist_ok=True)
    now = {"done": done, "total": total, "cases_done": done, "cases_total": total, "seconds": 4.0, **more}
    pulse = ProgressWriter(
        path, lambda: Snapshot(**now), kind=kind, task=now.pop("task", "sums"), model="some", keep=keep
    )

    def tell(**changes):
        now.update(changes)
        pulse._write()

    with pulse:
        yield tell


def left_by_a_dead_process(path, **changes):
    """progress.json of a process that was killed a moment ago."""
    with in_progress(path, done=4):
        record = json.loads((path / "progress.json").read_bytes())
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (path / "progress.json").write_text(json.dumps({**record, "pid": int(dead.stdout), "state": "running", **changes}))
