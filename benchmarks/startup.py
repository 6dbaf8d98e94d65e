"""Starting up: `kofn --help` and `import kofn` against `python -c pass`, interleaved, best of many.

python benchmarks/startup.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from table import Row, seconds, show

ROUNDS = 15


def run(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def main() -> list[Row]:
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import kofn": [sys.executable, "-c", "import kofn"],
        "kofn --help": [sys.executable, "-m", "kofn", "--help"],
    }
    peers = os.environ.get("KOFN_PEERS_PYTHON")
    if peers:
        commands |= {
            "lm_eval --help": [peers, "-m", "lm_eval", "--help"],
            "import inspect_ai": [peers, "-c", "import inspect_ai"],
        }
    best = dict.fromkeys(commands, 9e9)
    for i in range(ROUNDS):
        for name, command in commands.items():
            if i < 3 or command[0] == sys.executable:
                best[name] = min(best[name], run(command))
    base, ours = best.pop("python -c pass"), {name: best.pop(name) for name in ("import kofn", "kofn --help")}
    rows = [
        show(Row(name, seconds(s), "python -c pass", seconds(base), f"takes {s / base:.1f}x"))
        for name, s in ours.items()
    ]
    for name, s in best.items():
        own = "kofn --help" if name.endswith("--help") else "import kofn"
        rows.append(show(Row(own, seconds(ours[own]), name, seconds(s), f"{s / ours[own]:.0f}x")))
    return rows


if __name__ == "__main__":
    main()
