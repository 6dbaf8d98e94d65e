"""`kofn score` end to end on a million candidates in JSON lines, against polars merely reading the same file.

Two files: outputs of about 300 characters with references (extraction, comparison, votes), and the same with labels
in the wide form. Wall time and peak memory of whole processes, interleaved, best of several.

    python benchmarks/run.py --only score
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson
from beside import environment
from table import Limit, Row, show

TITLE = "Scoring a file"
HOW = """The whole command, start-up and printing included: outputs of about 300 characters in JSON lines are read
and grouped, their answers extracted, compared and voted on, and intervals computed. The peer only reads the same
file. The limit is a process that only reads the bytes; for memory, an interpreter with numpy and polars that holds
the file's bytes."""

CASES, N, ROUNDS = 125_000, 8, 3
WORDS = ["the", "of", "to", "and", "a", "in", "is", "it", "you", "that", "he", "was", "for", "on", "are", "with", "as",
         "his", "they", "be", "at", "one", "have", "this", "from", "by", "word", "but", "what"]  # fmt: skip

READ = "import polars as pl, sys; assert pl.read_ndjson(sys.argv[1]).height"
BYTES = """
import sys
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.readinto(room := bytearray(1 << 20)):
        pass
"""
HOLD = "import numpy, polars, sys, pathlib; whole = pathlib.Path(sys.argv[1]).read_bytes()"


def solution(rng: random.Random, reference: int) -> tuple[str, bool]:
    right = rng.random() < 0.5
    answer = reference if right else rng.randint(1, 2000)
    steps = " ".join(rng.choices(WORDS, k=60))
    return (
        f"{steps}. So {rng.randint(1, 99)} + {rng.randint(1, 99)} = {answer}. The answer is {answer}.",
        answer == reference,
    )


def write(folder: Path, n_cases: int = CASES) -> dict[str, Path]:
    rng = random.Random(1)
    paths = {"long, references": folder / "long.jsonl", "wide, labels": folder / "wide.jsonl"}
    with paths["long, references"].open("wb") as long, paths["wide, labels"].open("wb") as wide:
        for i in range(n_cases):
            reference = rng.randint(1, 2000)
            made = [solution(rng, reference) for _ in range(N)]
            for j, (text, _) in enumerate(made):
                row = {"id": f"q{i}", "repeat": j, "output": text, "reference": str(reference), "cost": 0.001}
                long.write(orjson.dumps(row) + b"\n")
            outputs = [{"text": text, "pass": right} for text, right in made]
            wide.write(orjson.dumps({"id": f"q{i}", "gold": str(reference), "outputs": outputs}) + b"\n")
    return paths


# a process inherits the peak of the one that starts it, so that a small one has to
LAUNCH = """
import os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
_, status, usage = os.wait4(process.pid, 0)
print(time.perf_counter() - start, usage.ru_maxrss / 1024, status)
"""


def measure(command: list[str], to: str = os.devnull) -> tuple[float, float]:
    """(seconds, MB at peak) of a process; what it prints goes to a file."""
    launch = [sys.executable, "-S", "-c", LAUNCH, to, *command]
    done = subprocess.run(launch, stdout=subprocess.PIPE, text=True, check=True, env=environment(command[0]))
    seconds, peak, status = done.stdout.split()
    assert status == "0", command
    return float(seconds), float(peak)


def compared(commands: dict[str, list[str]], rounds: int = ROUNDS) -> dict[str, tuple[float, float]]:
    """(least seconds, most MB) of whole processes, in turn."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            seen[name].append(measure(command))
    return {name: (min(s for s, _ in found), max(mb for _, mb in found)) for name, found in seen.items()}


def checked(path: Path, n_cases: int) -> None:
    """That the command counts what was written, and finds the rate at which answers are right."""
    command = [sys.executable, "-m", "kofn", "score", str(path), "-a", "mean", "--json"]
    result = orjson.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    (mean,) = (e for e in result["estimates"] if e["aggregator"] == "mean")
    assert mean["n"] == n_cases, mean
    assert abs(mean["point"] - 0.5) < 3 / n_cases**0.5, mean


def main(small: bool = False) -> list[Row]:
    rows, n_cases = [], 250 if small else CASES
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write(Path(folder), n_cases).items():
            checked(path, n_cases)
            python = [sys.executable, "-c"]
            commands = {
                "kofn": [sys.executable, "-m", "kofn", "score", str(path)],
                "polars": [*python, READ, str(path)],
                "bytes": [*python, BYTES, str(path)],
                "hold": [*python, HOLD, str(path)],
            }
            found = compared(commands, 1 if small else ROUNDS)
            work = f"score {n_cases * N:,} candidates, {name} ({path.stat().st_size / 1e6:.0f} MB)"
            took, memory = ({key: value[i] for key, value in found.items()} for i in (0, 1))
            peer, least = "polars, merely reading", Limit("reading the bytes", took["bytes"])
            rows.append(show(Row(work=work, kofn=took["kofn"], peer=peer, theirs=took["polars"], limit=least)))
            least = Limit("holding the bytes", memory["hold"])
            rows.append(
                show(Row(work=work, kofn=memory["kofn"], peer=peer, theirs=memory["polars"], limit=least, unit="MB"))
            )
    return rows


if __name__ == "__main__":
    main()
