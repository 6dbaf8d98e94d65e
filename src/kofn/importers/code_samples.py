"""Importers of sampled programs: HumanEval (openai/human-eval) and EvalPlus (HumanEval+, MBPP+), and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers.base import Importer
from kofn.importers.log_table import LogFacts, LogRow, objects
from kofn.importers.recognition import (
    EVALPLUS_FOLDER,
    HUMAN_EVAL_FIELDS,
    is_evalplus,
    is_human_eval,
    is_human_eval_result,
)
from kofn.importers.scalars import as_text, plain_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_PASS = frozenset({"pass", "success"})  # "success" until version 0.2
_FAIL = frozenset({"fail", "failed", "timeout", "timed out"})
_NOTE = 200  # characters of the failed inputs in a candidate's note

# --- HumanEval


def read_human_eval(peek: Peek, options: ReadOptions) -> Table:
    """Completions in the order of the file, which is that of their results too.

    The result of running one is its note. Fields that people add to their samples are tags of the case.
    """
    known = HUMAN_EVAL_FIELDS | {"repeat"}
    rows = [
        LogRow(
            place,
            {
                "id": record["task_id"],
                "text": record["completion"],
                "passed": record.get("passed"),
                "note": record.get("result"),
                **plain_tags(record, known),
            },
        )
        for place, record in objects(peek, "task_id", "completion")
    ]
    # inconsistencies: samples of which some were not run, a `passed` that its result contradicts
    notes = []
    missing = sum(row.values["passed"] is None for row in rows)
    if 0 < missing < len(rows):
        notes.append(CodedWarning.of("failed-in-log", about="not-run", n=missing, of=len(rows)))
    differ = [
        row.place
        for row in rows
        if is_human_eval_result(row.values["note"])
        and isinstance(row.values["passed"], bool)
        and row.values["passed"] != (row.values["note"] == "passed")
    ]
    if differ:
        notes.append(CodedWarning.of("log-grades-otherwise", about="contradiction", n=len(differ), place=differ[0]))
    return LogFacts(
        source=peek.source,
        form="HumanEval results" if missing < len(rows) else "HumanEval samples",
        notes=notes,
        origin={"tool": "human-eval"},
        fields={"id": "task_id", "text": "completion", "note": "result"},
    ).table(rows, options)


# --- EvalPlus


def read_evalplus(peek: Peek, options: ReadOptions) -> Table:
    """One set per task, in the order of the samples.

    The labels are `base` and `plus`, counted as the tool counts pass@k: a solution passes plus where it passes the base
    tests and the added ones. Its note names a test that failed.
    """
    notes: list[CodedWarning] = []
    lines = peek.first is not None and "task_id" in peek.first
    samples = lines or peek.path.is_dir()
    rows = _of_lines(peek) if lines else _of_folder(peek) if samples else iter(_of_results(peek, notes))
    return LogFacts(
        source=peek.source,
        form="EvalPlus samples" if samples else "EvalPlus results",
        labels={"base": True, "plus": True},
        notes=notes,
        origin={"tool": "evalplus"},
        fields={"id": "task_id", "text": "solution", "label.base": "base_status", "label.plus": "plus_status"},
    ).table(rows, options)


def _of_lines(peek: Peek) -> Iterator[LogRow]:
    for place, record in objects(peek, "task_id"):
        text = record.get("solution", record.get("completion"))
        if not isinstance(text, str):
            raise InputError(f"{peek.source}: {place}: expected a solution or a completion, found {', '.join(record)}")
        yield LogRow(place, {"id": record["task_id"], "text": text})


def _of_folder(peek: Peek) -> Iterator[LogRow]:
    """A folder HumanEval_0 of 0.py, 1.py, ... for each task."""
    for name in sorted(filter(EVALPLUS_FOLDER.fullmatch, peek.names), key=lambda name: int(name.rpartition("_")[2])):
        paths = (peek.path / name).glob("*.py")
        for path in sorted(paths, key=lambda path: (int(path.stem) if path.stem.isdigit() else 1 << 31, path.name)):
            values = {"id": name.replace("_", "/"), "text": path.read_text(errors="replace")}
            yield LogRow(f"{name}/{path.name}", values)


def _of_results(peek: Peek, notes: list[CodedWarning]) -> list[LogRow]:
    document = peek.document
    if document is None:
        raise InputError(f"{peek.source}: not readable as JSON: is the file cut off? run evalplus.evaluate again")
    tasks = document.get("eval")
    if not isinstance(tasks, dict):
        raise InputError(f"{peek.source}: eval: expected an object of tasks, found {type(tasks).__name__}")
    rows, unknown = [], dict[str, None]()
    for task, samples in tasks.items():
        for i, (text, base, plus) in enumerate(_samples(samples, f"{peek.source}: eval: {task}")):
            one, other = base.passes(unknown), plus.passes(unknown)
            # plus requires both, and a sample that was not run with the added tests has none
            both = None if one is None or other is None else min(one, other)
            values = {"id": task, "text": text, "label.base": one, "label.plus": both, "note": _note(base, plus)}
            rows.append(LogRow(f"eval: {task}[{i}]", values))
    if unknown:
        notes.append(CodedWarning.of("failed-in-log", about="status", statuses=tuple(map(repr, list(unknown)[:3]))))
    if rows and all(row.values["text"] is None for row in rows):
        notes.append(CodedWarning.of("log-incomplete", about="no-solutions"))
    return rows


class _Status:
    """The status under one kind of tests, and the inputs that failed, where the file has them."""

    def __init__(self, word: Any, failed: Any = None) -> None:
        self.word, self.failed = word, failed if isinstance(failed, list) else []

    def passes(self, unknown: dict[str, None]) -> float | None:
        """1 or 0; None for a status that is missing or unknown, which is added to `unknown`."""
        if isinstance(self.word, str) and self.word in _PASS | _FAIL:
            return float(self.word in _PASS)
        if self.word is not None:
            unknown[str(self.word)] = None
        return None


def _samples(samples: Any, where: str) -> list[tuple[str | None, _Status, _Status]]:
    """(solution, base, plus) of every sample of a task: a list of objects, or parallel lists in the old form."""
    if isinstance(samples, dict):
        base, plus = samples.get("base"), samples.get("plus") or []
        if not isinstance(base, list) or not isinstance(plus, list):
            raise InputError(f"{where}: expected lists base and plus, found {', '.join(samples)}")
        if plus and len(plus) != len(base):
            sizes = f"base has {len(base)} results and plus has {len(plus)}"
            raise InputError(f"{where}: {sizes}: expected one each a sample")
        words = [[one[0] if isinstance(one, list) and one else one for one in part] for part in (base, plus)]
        return [(None, _Status(word), _Status(words[1][i] if plus else None)) for i, word in enumerate(words[0])]
    if not isinstance(samples, list):
        raise InputError(f"{where}: expected a list of samples, found {type(samples).__name__}")
    out = []
    for i, one in enumerate(samples):
        if not isinstance(one, dict) or "base_status" not in one:
            seen = ", ".join(one) if isinstance(one, dict) else type(one).__name__
            raise InputError(f"{where}[{i}]: expected a sample with base_status, found {seen}")
        base = _Status(one["base_status"], one.get("base_fail_tests"))
        plus = _Status(one.get("plus_status"), one.get("plus_fail_tests"))
        out.append((one.get("solution"), base, plus))
    return out


def _labels(base: _Status, plus: _Status, unknown: dict[str, None]) -> dict[str, float | None]:
    """The labels of a sample; plus requires both, and a sample that was not run with the added tests has none.

    >>> _labels(_Status("pass"), _Status("fail"), {}), _labels(_Status("fail"), _Status("pass"), {})
    ({'label.base': 1.0, 'label.plus': 0.0}, {'label.base': 0.0, 'label.plus': 0.0})
    """
    one, other = base.passes(unknown), plus.passes(unknown)
    both = None if one is None or other is None else min(one, other)
    return {"label.base": one, "label.plus": both}


def _note(base: _Status, plus: _Status) -> str | None:
    """What failed: "plus fail on [[1, 2]]"."""
    parts = []
    for name, status in (("base", base), ("plus", plus)):
        if isinstance(status.word, str) and status.word not in _PASS:
            on = f" on {as_text(min(status.failed, key=lambda test: len(str(test))))}"[:_NOTE] if status.failed else ""
            parts.append(f"{name} {status.word}{on}")
    return "; ".join(parts) or None


HUMAN_EVAL = Importer(
    name="human_eval", what="HumanEval samples and their results", recognises=is_human_eval, read=read_human_eval
)
EVALPLUS = Importer(
    name="evalplus", what="EvalPlus samples and eval_results.json", recognises=is_evalplus, read=read_evalplus
)
