"""Small tasks, files and problems for the fault suite, and what of a run directory must be the same again."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from tests.loopback import mark_of

import kofn
from kofn.runs.files import STORE

CASES, REPEATS = 12, 3
ANSWER = "({mark}) The answer is {digit}."
VERDICT = "({mark}) It is what was asked for.\nVerdict: {word}"
MARK = re.compile(r"\(([g-v]{12})\)")
TIMES = ("timestamp", "duration", "digest", "reports_sha256", "seconds", "created", "updated")
PROGRAM = "import sys, time\ntime.sleep(0.02)\nprint('hello', *sys.argv[1:])\n"


def task_in(folder: Path, cases: int = CASES) -> Path:
    """A task of a question a case."""
    records = [{"id": f"q{i}", "question": f"{i} + {i}", "answer": str(i % 10)} for i in range(cases)]
    (folder / "sums.jsonl").write_text("\n".join(json.dumps(r) for r in records))
    stage = "{name: answer, prompt: '{question} =', chat: true, temperature: 0.8, max_tokens: 32}"
    (folder / "sums.yaml").write_text(f"name: sums\ndataset: sums.jsonl\nextract: number\nstages:\n  - {stage}\n")
    return folder / "sums.yaml"


def outputs_in(folder: Path, cases: int = 20, seed: int = 1) -> Path:
    """A file of outputs to score or to judge."""
    rng = random.Random(seed)
    records = [
        {"id": f"q{i}", "input": f"{i} + {i}", "reference": str(2 * i),
         "outputs": [f"Answer {j}: it is {2 * i + rng.choice([0, 0, 1])}" for j in range(3)]}
        for i in range(cases)
    ]  # fmt: skip
    (folder / "outputs.jsonl").write_text("\n".join(json.dumps(r) for r in records))
    return folder / "outputs.jsonl"


def problem_in(folder: Path, cases: int = 12) -> tuple[Path, Path]:
    """A problem of small cases, and a submission that passes most of them."""
    problem, submission = folder / "problem", folder / "submission"
    problem.mkdir(exist_ok=True)
    submission.mkdir(exist_ok=True)
    summary = "\n".join(
        f"          - {{id: c{i}, args: [a{i}], expected: {{output: 'hello {'a' if i % 4 else 'b'}{i}'}}}}"
        for i in range(cases)
    )
    (problem / "config.yaml").write_text(
        "name: small\nversion: 1\nentry: python main.py\ntimeout: 20\ncheckpoints:\n  one:\n    groups:\n"
        f"      basic:\n        type: Core\n        cases:\n{summary}\n"
    )
    (submission / "main.py").write_text(PROGRAM)
    return problem, submission


def timeless(value: Any) -> Any:
    """What a report says, without when and how long."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def essence(directory: Path) -> dict[str, Any]:
    """Everything of a run that does not depend on when it was made, how often it was killed, and how long it took."""
    run = kofn.load_run(directory)
    found: dict[str, Any] = {
        "evaluation": timeless(json.loads((directory / "evaluation.json").read_text())),
        # `case` holds how much memory a program took
        "reports": run.reports.drop("timestamp", "duration", *(["case"] if run.result is None else [])).rows(),
        "page": (directory / "report.html").stat().st_size > 10_000,
    }
    if run.result is None:
        return found
    summary = timeless(run.manifest["result"])
    summary["understood"].pop("sources")
    summary.pop("judges", None)
    table = run.result.table
    return found | {
        "result": summary,
        "judges": {n: (j["n_verdicts"], j["n_failed"], j["n_unread"]) for n, j in run.result.judges.items()},
        # what was asked for apart had a prompt each
        "candidates": table.candidates.drop("seconds", "tokens_in", strict=False).to_dicts(),
        "cases": {key: repr(values.tolist()) for key, values in run.result.case_values.items()},
        "lines": len((directory / "results.jsonl").read_text().splitlines()),
    }


def copied(directory: Path, name: str, query: str) -> list[tuple[Any, ...]]:
    """What a database holds, read from a copy: whoever opens the files themselves mends what a kill left."""
    with tempfile.TemporaryDirectory() as folder:
        for part in (name, f"{name}-wal"):
            if (directory / part).exists():
                shutil.copy(directory / part, folder)
        connection = sqlite3.connect(Path(folder) / name)
        try:
            if not connection.execute("SELECT name FROM sqlite_master").fetchall():
                return []  # killed before the tables were there
            return connection.execute(query).fetchall()
        finally:
            connection.close()


def replies(directory: Path) -> dict[bytes, tuple[Any, ...]]:
    """The stored replies by key."""
    return {row[0]: row for row in copied(directory, STORE, "SELECT * FROM replies")}


def marks(rows: dict[bytes, tuple[Any, ...]]) -> set[str]:
    """Which requests these replies are of."""
    return {mark for row in rows.values() if row[4] for mark in MARK.findall(row[4])}


def requested(requests: list[dict[str, Any]]) -> list[str]:
    """The same of what a server was asked."""
    return [mark_of(one["prompt"], one["seed"], j) for one in requests for j in range(one["n"])]
