"""Importer of EvalPlus (HumanEval+, MBPP+): samples with whole solutions, and eval_results.json of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers.base import Importer
from kofn.importers.log_table import LogFacts, LogRow, log_table, objects
from kofn.importers.recognition import EVALPLUS_FOLDER, is_evalplus
from kofn.importers.scalars import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_PASS = frozenset({"pass", "success"})  # "success" until version 0.2
_FAIL = frozenset({"fail", "failed", "timeout", "timed out"})
_NOTE = 200  # characters of the failed inputs in a candidate's note


def read(peek: Peek, options: ReadOptions) -> Table:
    """One set per task, in the order of the samples.

    The labels are `base` and `plus`, counted as the tool counts pass@k: a solution passes plus where it passes the base
    tests and the added ones. Its note names a test that failed.
    """
    notes: list[CodedWarning] = []
    if peek.path.is_dir():
        rows, form = _of_folder(peek), "EvalPlus samples"
    elif peek.first is not None and "task_id" in peek.first:
        rows, form = _of_lines(peek), "EvalPlus samples"
    else:
        rows, form = iter(_of_results(peek, notes)), "EvalPlus results"
    return log_table(
        rows,
        options,
        LogFacts(
            source=peek.source,
            form=form,
            labels={"base": True, "plus": True},
            notes=notes,
            origin={"tool": "evalplus"},
            fields={"id": "task_id", "text": "solution", "label.base": "base_status", "label.plus": "plus_status"},
        ),
    )


def _of_lines(peek: Peek) -> Iterator[LogRow]:
    for place, record in objects(peek, "task_id"):
        text = record.get("solution", record.get("completion"))
        if not isinstance(text, str):
            raise InputError(f"{peek.source}: {place}: expected a solution or a completion, found {', '.join(record)}")
        yield LogRow(place, {"id": record["task_id"], "text": text})


def _of_folder(peek: Peek) -> Iterator[LogRow]:
    """A folder HumanEval_0 of 0.py, 1.py, ... for each task."""
    for name in sorted(filter(EVALPLUS_FOLDER.fullmatch, peek.names), key=lambda name: int(name.rpartition("_")[2])):
        for path in sorted(
            (peek.path / name).glob("*.py"),
            key=lambda path: (int(path.stem) if path.stem.isdigit() else 1 << 31, path.name),
        ):
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
        where = f"{peek.source}: eval: {task}"
        for i, (text, base, plus) in enumerate(_samples(samples, where)):
            values = {"id": task, "text": text, **_labels(base, plus, unknown), "note": _note(base, plus)}
            rows.append(LogRow(f"eval: {task}[{i}]", values))
    if unknown:
        statuses = tuple(map(repr, list(unknown)[:3]))
        notes.append(CodedWarning.of("failed-in-log", about="status", statuses=statuses))
    if rows and all(row.values["text"] is None for row in rows):
        notes.append(CodedWarning.of("log-incomplete", about="no-solutions"))
    return rows


class _Status:
    """The status under one kind of tests, and the inputs that failed, where the file has them."""

    def __init__(self, word: Any, failed: Any = None) -> None:
        self.word, self.failed = word, failed if isinstance(failed, list) else []

    def passes(self, unknown: dict[str, None]) -> float | None:
        """1 or 0; None for a status that is missing or unknown, which is added to `unknown`."""
        if self.word is None or (isinstance(self.word, str) and self.word in _PASS | _FAIL):
            return None if self.word is None else float(self.word in _PASS)
        unknown[str(self.word)] = None
        return None


def _samples(samples: Any, where: str) -> list[tuple[str | None, _Status, _Status]]:
    """(solution, base, plus) of every sample of a task: a list of objects, or parallel lists in the old form."""
    if isinstance(samples, dict):
        return _old_samples(samples, where)
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


def _old_samples(samples: dict[str, Any], where: str) -> list[tuple[str | None, _Status, _Status]]:
    base, plus = samples.get("base"), samples.get("plus") or []
    if not isinstance(base, list) or not isinstance(plus, list):
        raise InputError(f"{where}: expected lists base and plus, found {', '.join(samples)}")
    if plus and len(plus) != len(base):
        raise InputError(f"{where}: base has {len(base)} results and plus has {len(plus)}: expected one each a sample")
    return [
        (None, _Status(_first_of(one)), _Status(_first_of(plus[i])) if plus else _Status(None))
        for i, one in enumerate(base)
    ]


def _first_of(result: Any) -> Any:
    """The status of (status, details)."""
    return result[0] if isinstance(result, list) and result else result


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


IMPORTER = Importer(name="evalplus", what="EvalPlus samples and eval_results.json", recognises=is_evalplus, read=read)
