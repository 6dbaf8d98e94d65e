"""A gigabyte of lm-evaluation-harness samples, imported by kofn, against `json.loads` a line; and a log of Inspect.

Three logs of a gigabyte each: five-shot questions with two filters, where nearly all is the prompt; questions without
examples and without a filter, where responses are half of it and are there twice; and eight repeats a document. The
peer decodes every line and keeps nothing, or keeps what kofn keeps. kofn's process imports the package, chooses the
importer, builds the table with every response and every grade, and its counts are checked. A log of Inspect is read by
Inspect itself. Wall time and peak memory of whole processes, interleaved.

    python benchmarks/run.py --only logs
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from beside import environment, interpreter
from score import BYTES, HOLD, WORDS, compared
from table import Limit, Row, show

TITLE = "Reading logs"
HOW = """Samples of lm-evaluation-harness and a log of Inspect, as whole processes, start-up included. kofn splits
lines at their keys and does not decode prompts; it decodes responses, because the table contains them, so more
responses take longer. The run checks the number of documents and of candidates on both sides. The limit is a
process that only reads the bytes; for memory, an interpreter with numpy and polars that holds only the responses."""

SIZE, SAMPLES, ROUNDS = 1_000_000_000, 10_000, 2

LOADS = """
import json, sys
seen = set()
with open(sys.argv[1]) as file:
    for line in file:
        seen.add(json.loads(line)["doc_id"])
assert len(seen) == int(sys.argv[2]), len(seen)
"""
KEEP = """
import json, sys
import polars as pl
rows = []
with open(sys.argv[1]) as file:
    for line in file:
        r = json.loads(line)
        rows.append((r["doc_id"], r["filter"], r["target"], r["resps"][0], r["filtered_resps"], r["exact_match"]))
table = pl.DataFrame(rows, schema=["id", "filter", "target", "resps", "filtered", "exact_match"], orient="row")
first = table.unique("id")
assert (first.height, first["resps"].list.len().sum()) == (int(sys.argv[2]), int(sys.argv[3])), first
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


def write(path: Path, size: int, *, shots: int, repeats: int, filters: tuple[str, ...]) -> tuple[int, int, int]:
    """(documents, candidates, bytes of all responses) of a log of this size."""
    rng = random.Random(1)
    prompt = text(rng, 140 * shots) if shots else ""
    some = [text(rng, 60) for _ in range(2000)]
    answers = [text(rng, 150) for _ in range(2000)]
    documents = held = 0
    with path.open("wb") as file:
        while file.tell() < size:
            question, responses = rng.choice(some), rng.choices(answers, k=repeats)
            for name in filters:
                made = responses[:1] if name == "none" else ["42"]
                file.write(line(documents, prompt, question, responses, name, made))
            documents += 1
            held += sum(len(one.encode()) for one in responses)
    return documents, documents * repeats, held


# a log as Inspect writes it, and Inspect's own reader
INSPECT_WRITE = """
import sys
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score
path, n, prompt, text = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
made = []
for i in range(n):
    output = ModelOutput.from_content("mockllm/model", f"{text} {i}")
    score = {"match": Score(value="C" if i % 2 else "I", answer=str(i))}
    messages = [ChatMessageUser(content=prompt), output.message]
    made.append(EvalSample(id=i, epoch=1, input=prompt, target="42", messages=messages, output=output, scores=score))
spec = EvalSpec(created="2026-01-01T00:00:00+00:00", task="made", model="mockllm/model", dataset=EvalDataset(samples=n),
                config=EvalConfig(epochs=1))
write_eval_log(EvalLog(status="success", eval=spec, samples=made), path)
"""
INSPECT_READ = """
import sys
from inspect_ai.log import read_eval_log
assert len(read_eval_log(sys.argv[1]).samples) == int(sys.argv[2])
"""


def of_inspect(n: int, rounds: int) -> list[Row]:
    """Its own log, read by its own reader."""
    python = interpreter("Inspect")
    if python is None:
        return []
    rng = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.eval"
        arguments = [str(path), str(n)]
        subprocess.run(
            [python, "-c", INSPECT_WRITE, *arguments, text(rng, 300), text(rng, 150)], check=True, env=environment()
        )
        size = path.stat().st_size / 1e6
        commands = {
            "Inspect": [python, "-c", INSPECT_READ, *arguments],
            "kofn": [sys.executable, "-c", READ, *arguments, str(n)],
            "bytes": [sys.executable, "-c", BYTES, str(path)],
            "hold": [sys.executable, "-c", HOLD, str(path)],
        }
        found = compared(commands, rounds)
    work, peer = f"import Inspect's .eval of {n:,} samples ({size:,.1f} MB)", "Inspect `read_eval_log`"
    rows = []
    for unit, at, what, key in (("s", 0, "reading the bytes", "bytes"), ("MB", 1, "holding the bytes", "hold")):
        limit = Limit(what, found[key][at])
        rows.append(
            Row(work=work, kofn=found["kofn"][at], peer=peer, theirs=found["Inspect"][at], limit=limit, unit=unit)
        )
    return [show(row) for row in rows]


LOGS = {
    "five-shot, two filters": {"shots": 5, "repeats": 1, "filters": ("strict-match", "flexible-extract")},
    "zero-shot, no filter": {"shots": 0, "repeats": 1, "filters": ("none",)},
    "five-shot, 8 repeats": {"shots": 5, "repeats": 8, "filters": ("none",)},
}


def rows_of(name: str, shape: dict[str, object], size: int, rounds: int) -> list[Row]:
    peers = {"`json.loads` a line, nothing kept": LOADS, "the same, kept as a table": KEEP}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples_made_2026-01-21T03-44-18.458309.jsonl"
        *counts, held = write(path, size, **shape)  # type: ignore[arg-type]
        responses = Path(folder) / "responses"
        responses.write_bytes(b"x" * held)
        arguments = [str(path), *map(str, counts)]
        codes = {**peers, "kofn": READ, "bytes": BYTES}
        commands = {what: [sys.executable, "-c", code, *arguments] for what, code in codes.items()}
        found = compared(commands | {"hold": [sys.executable, "-c", HOLD, str(responses)]}, rounds)
    work = f"import {size / 1e6:,.0f} MB, {name} ({counts[1]:,} candidates)"
    least = Limit("reading the bytes", found["bytes"][0])
    rows = [Row(work=work, kofn=found["kofn"][0], peer=p, theirs=found[p][0], limit=least) for p in peers]
    least, kept = Limit("holding the responses", found["hold"][1]), list(peers)[-1]
    rows.append(Row(work=work, kofn=found["kofn"][1], peer=kept, theirs=found[kept][1], limit=least, unit="MB"))
    return [show(row) for row in rows]


def main(small: bool = False) -> list[Row]:
    size, rounds = (1_000_000, 1) if small else (SIZE, ROUNDS)
    rows = [row for name, shape in LOGS.items() for row in rows_of(name, shape, size, rounds)]
    return rows + of_inspect(50 if small else SAMPLES, rounds)


if __name__ == "__main__":
    main()
