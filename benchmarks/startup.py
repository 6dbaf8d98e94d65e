"""Starting up: `kofn --help`, `import kofn` and a whole small command, interleaved with peers, best of many.

python benchmarks/run.py --only startup
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from beside import environment, interpreter
from table import Limit, Row, show

TITLE = "Start-up"
HOW = """Whole processes from start to end; kofn loads its modules on first use. The limit is an interpreter that
does nothing; for commands that compute, one that also imports numpy and polars."""

ROUNDS, PEER_ROUNDS = 15, 3
BARE, ARRAYS = "`python -c pass`", "`import numpy, polars`"
FILE = Path(__file__).parents[1] / "examples" / "arithmetic.jsonl"


def run(command: list[str], *, peer: bool) -> float:
    start = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, check=True, env=environment() if peer else None, **quiet)
    return time.perf_counter() - start


def commands() -> dict[str, list[str]]:
    own = [sys.executable, "-m", "kofn"]
    return {
        BARE: [sys.executable, "-c", "pass"],
        ARRAYS: [sys.executable, "-c", "import numpy, polars"],
        "import kofn": [sys.executable, "-c", "import kofn"],
        "kofn --help": [*own, "--help"],
        "kofn score, 60 cases x 5": [*own, "score", str(FILE), "-a", "mean", "-a", "majority"],
    }


def of_peers() -> dict[str, list[str]]:
    python = interpreter("lm-eval and Inspect")
    if python is None:
        return {}
    inspect = str(Path(python).with_name("inspect"))
    return {
        "`import lm_eval`": [python, "-c", "import lm_eval"],
        "`import inspect_ai`": [python, "-c", "import inspect_ai"],
        "`lm_eval --help`": [python, "-m", "lm_eval", "--help"],
        "`inspect --help`": [inspect, "--help"],
        "`import lm_eval.evaluator`, nothing scored": [python, "-c", "import lm_eval.evaluator"],
    }


PAIRS = (
    ("import kofn", "`import lm_eval`", BARE),
    ("import kofn", "`import inspect_ai`", BARE),
    ("kofn --help", "`lm_eval --help`", BARE),
    ("kofn --help", "`inspect --help`", BARE),
    ("kofn score, 60 cases x 5", "`import lm_eval.evaluator`, nothing scored", ARRAYS),
)


def main(small: bool = False) -> list[Row]:
    ours, theirs = commands(), of_peers()
    best = dict.fromkeys([*ours, *theirs], 9e9)
    for i in range(1 if small else ROUNDS):
        for name, command in (ours | theirs).items():
            if name in ours or i < (1 if small else PEER_ROUNDS):
                best[name] = min(best[name], run(command, peer=name in theirs))
    rows = []
    for own, peer, limit in PAIRS:
        least = Limit(limit, best[limit])
        if peer in best:
            rows.append(Row(work=own, kofn=best[own], peer=peer, theirs=best[peer], limit=least))
        elif not any(row.work == own for row in rows):
            rows.append(Row(work=own, kofn=best[own], limit=least))
    return [show(row) for row in rows]


if __name__ == "__main__":
    main()
