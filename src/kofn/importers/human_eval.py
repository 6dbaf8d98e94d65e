"""Importer of HumanEval (openai/human-eval): samples with one completion per line, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.importers.base import Importer
from kofn.importers.log_table import LogFacts, LogRow, log_table, objects
from kofn.importers.scalars import plain_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.core.table import Table
    from kofn.importers.base import Peek, ReadOptions

_OWN = frozenset({"task_id", "completion", "passed", "result", "completion_id"})
_NO_TAG = _OWN | {"repeat"}


def recognises(peek: Peek) -> bool:
    """A line has task_id and completion and nothing else, or was run: passed, and a result in the tool's own words."""
    first = peek.first
    if first is None or not {"task_id", "completion"} <= set(first):
        return False
    return set(first) <= _OWN or ("passed" in first and is_result(first.get("result")))


def is_result(value: Any) -> bool:
    """Whether a value is one that the tool writes as the result of running a completion.

    >>> is_result("failed: name 'x' is not defined"), is_result("timed out"), is_result("42")
    (True, True, False)
    """
    return isinstance(value, str) and (value in ("passed", "timed out") or value.startswith("failed: "))


def read(peek: Peek, options: ReadOptions) -> Table:
    """Completions in the order of the file, which is that of their results too.

    The result of running one is its note. Fields that people add to their samples are tags of the case.
    """
    rows = list(_rows(peek))
    return log_table(
        rows,
        options,
        LogFacts(
            source=peek.source,
            form="HumanEval results" if any(row.values["passed"] is not None for row in rows) else "HumanEval samples",
            notes=_notes(rows),
            origin={"tool": "human-eval"},
            fields={"id": "task_id", "text": "completion", "note": "result"},
        ),
    )


def _rows(peek: Peek) -> Iterator[LogRow]:
    for place, record in objects(peek, "task_id", "completion"):
        yield LogRow(
            place,
            {
                "id": record["task_id"],
                "text": record["completion"],
                "passed": record.get("passed"),
                "note": record.get("result"),
                **plain_tags(record, _NO_TAG),
            },
        )


def _notes(rows: list[LogRow]) -> list[CodedWarning]:
    """Inconsistencies: samples of which some were not run, a `passed` that its result contradicts."""
    notes = []
    missing = sum(row.values["passed"] is None for row in rows)
    if 0 < missing < len(rows):
        notes.append(CodedWarning.of("failed-in-log", about="not-run", n=missing, of=len(rows)))
    differ = [
        row.place
        for row in rows
        if is_result(row.values["note"])
        and isinstance(row.values["passed"], bool)
        and row.values["passed"] != (row.values["note"] == "passed")
    ]
    if differ:
        found = CodedWarning.of("log-grades-otherwise", about="contradiction", n=len(differ), place=differ[0])
        notes.append(found)
    return notes


IMPORTER = Importer(name="human_eval", what="HumanEval samples and their results", recognises=recognises, read=read)
