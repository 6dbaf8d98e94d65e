"""`kofn score` end to end on a million candidates in JSON lines, against polars merely reading the same file.

Two files: outputs of about 300 characters with references (extraction, comparison, votes), and the same with labels
in the wide form. Wall time and peak memory of whole processes, interleaved, best of several.

    python benchmarks/score.py
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson
from table import Row, seconds, show

CASES, N, ROUNDS = 125_000, 8, 5
WORDS = [
    "the",
    "of",
    "to",
    "and",
    "a",
    "in",
    "is",
    "it",
    "you",
    "that",
    "he",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "his",
    "they",
    "be",
    "at",
    "one",
    "have",
    "this",
    "from",
    "by",
    "word",
    "but",
    "what",
]

READ = "import polars as pl, sys; pl.read_ndjson(sys.argv[1])"


def solution(rng: random.Random, reference: int) -> tuple[str, bool]:
    right = rng.random() < 0.5
    answer = reference if right else rng.randint(1, 2000)
    steps = " ".join(rng.choices(WORDS, k=60))
    return (
        f"{steps}. So {rng.randint(1, 99)} + {rng.randint(1, 99)} = {answer}. The answer is {answer}.",
        answer == reference,
    )


def write(folder: Path) -> dict[str, Path]:
    rng = random.Random(1)
    paths = {"long, references": folder / "long.jsonl", "wide, labels": folder / "wide.jsonl"}
    with paths["long, references"].open("wb") as long, paths["wide, labels"].open("wb") as wide:
        for i in range(CASES):
            reference = rng.randint(1, 2000)
            made = [solution(rng, reference) for _ in range(N)]
            for j, (text, _) in enumerate(made):
                row = {"id": f"q{i}", "repeat": j, "output": text, "reference": str(reference), "cost": 0.001}
                long.write(orjson.dumps(row) + b"\n")
            outputs = [{"text": text, "pass": right} for text, right in made]
            wide.write(orjson.dumps({"id": f"q{i}", "gold": str(reference), "outputs": outputs}) + b"\n")
    return paths


def measure(command: list[str]) -> tuple[float, float]:
    """(seconds, MB at peak) of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write(Path(folder)).items():
            ours, theirs = [], []
            for _ in range(ROUNDS):
                theirs.append(measure([sys.executable, "-c", READ, str(path)]))
                ours.append(measure([sys.executable, "-m", "kofn", "score", str(path)]))
            work = f"score {CASES * N:,} candidates, {name} ({path.stat().st_size / 1e6:.0f} MB)"
            s, peer = min(ours)[0], min(theirs)[0]
            rows.append(show(Row(work, seconds(s), "polars, merely reading", seconds(peer), f"takes {s / peer:.2f}x")))
            mb, peer = max(m for _, m in ours), max(m for _, m in theirs)
            rows.append(show(Row(work, f"{mb:,.0f} MB", "its memory", f"{peer:,.0f} MB", f"takes {mb / peer:.2f}x")))
    return rows


if __name__ == "__main__":
    main()
