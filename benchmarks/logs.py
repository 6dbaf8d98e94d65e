"""A gigabyte of lm-evaluation-harness samples, imported by kofn, against `json.loads` a line.

Three logs of a gigabyte each: five-shot questions with two filters, where nearly all is the prompt; questions without
examples and without a filter, where responses are half of it and are there twice; and eight repeats a document. The
peer decodes every line and keeps nothing. kofn's process imports the package, chooses the importer, builds the table
with every response and every grade, and its counts are checked. Wall time and peak memory of whole processes,
interleaved.

    python benchmarks/lm_eval.py
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

from score import WORDS, measure
from table import Row, seconds, show

SIZE, ROUNDS = 1_000_000_000, 3

LOADS = """
import json, sys
with open(sys.argv[1]) as file:
    for line in file:
        json.loads(line)
"""
KEEP = """
import json, sys
import polars as pl
rows = []
with open(sys.argv[1]) as file:
    for line in file:
        r = json.loads(line)
        rows.append((r["doc_id"], r["filter"], r["target"], r["resps"][0], r["filtered_resps"], r["exact_match"]))
pl.DataFrame(rows, schema=["id", "filter", "target", "resps", "filtered", "exact_match"], orient="row")
"""
READ = """
import sys
from kofn.importers import read
table = read([sys.argv[1]])
assert table.n_cases == int(sys.argv[2]), table.n_cases
assert table.n_candidates == int(sys.argv[3]), table.n_candidates
"""


def text(rng: random.Random, words: int) -> str:
    """Some words, and every tenth what JSON escapes in real outputs (7 to 50 times in 1,000 characters)."""
    parts = rng.choices(WORDS, k=words)
    for at in range(0, words, 10):
        parts[at] = rng.choice(["\n", '"x"', "$\\frac{1}{2}$", "\n\n", "é"])
    return " ".join(parts)


def line(doc_id: int, prompt: str, question: str, responses: list[str], filter_name: str, made: list[str]) -> bytes:
    """A line as the tool writes it: the keys in its order, a space after colons and commas."""
    record = {
        "doc_id": doc_id,
        "doc": {"question": question, "answer": f"{question} #### 42"},
        "target": "42",
        "arguments": {"gen_args_0": {"arg_0": prompt + question, "arg_1": {"until": ["\n\n"], "temperature": 0.7}}},
        "resps": [responses],
        "filtered_resps": made,
        "filter": filter_name,
        "metrics": ["exact_match"],
        "doc_hash": f"{doc_id:064x}",
        "prompt_hash": f"{doc_id + 1:064x}",
        "target_hash": f"{doc_id + 2:064x}",
        "exact_match": float(doc_id % 2),
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def write(path: Path, *, shots: int, repeats: int, filters: tuple[str, ...]) -> tuple[int, int]:
    """(documents, candidates) of a log of `SIZE` bytes."""
    rng = random.Random(1)
    prompt = text(rng, 140 * shots) if shots else ""
    some = [text(rng, 60) for _ in range(2000)]
    answers = [text(rng, 150) for _ in range(2000)]
    documents = 0
    with path.open("wb") as file:
        while file.tell() < SIZE:
            question, responses = rng.choice(some), rng.choices(answers, k=repeats)
            for name in filters:
                made = responses[:1] if name == "none" else ["42"]
                file.write(line(documents, prompt, question, responses, name, made))
            documents += 1
    return documents, documents * repeats


LOGS = {
    "five-shot, two filters": {"shots": 5, "repeats": 1, "filters": ("strict-match", "flexible-extract")},
    "zero-shot, no filter": {"shots": 0, "repeats": 1, "filters": ("none",)},
    "five-shot, 8 repeats": {"shots": 5, "repeats": 8, "filters": ("none",)},
}


def main() -> list[Row]:
    rows = []
    for name, shape in LOGS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "samples_made_2026-01-21T03-44-18.458309.jsonl"
            counts = write(path, **shape)  # type: ignore[arg-type]
            codes = {"`json.loads` a line, nothing kept": LOADS, "the same, kept as a table": KEEP}
            ours, theirs = [], {peer: [] for peer in codes}
            for _ in range(ROUNDS):
                for peer, code in codes.items():
                    theirs[peer].append(measure([sys.executable, "-c", code, str(path)]))
                ours.append(measure([sys.executable, "-c", READ, str(path), *map(str, counts)]))
        work = f"import 1 GB of lm-eval samples, {name} ({counts[1]:,} candidates)"
        s, mb = min(ours)[0], max(m for _, m in ours)
        for peer, found in theirs.items():
            other, most = min(found)[0], max(m for _, m in found)
            rows.append(show(Row(work, seconds(s), peer, seconds(other), f"{other / s:.1f}x")))
        rows.append(show(Row(work, f"{mb:,.0f} MB", "memory of the latter", f"{most:,.0f} MB", f"{most / mb:.1f}x")))
    return rows


if __name__ == "__main__":
    main()
