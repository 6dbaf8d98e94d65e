"""Importer of HumanEval (openai/human-eval): samples with one completion per line, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.warnings import CodedWarning
from kofn.importers.base import Importer
from kofn.importers.log_table import LogFacts, LogRow, log_table, objects
from kofn.importers.recognition import HUMAN_EVAL_FIELDS, is_human_eval, is_human_eval_result
from kofn.importers.scalars import plain_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_NO_TAG = HUMAN_EVAL_FIELDS | {"repeat"}


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
        if is_human_eval_result(row.values["note"])
        and isinstance(row.values["passed"], bool)
        and row.values["passed"] != (row.values["note"] == "passed")
    ]
    if differ:
        found = CodedWarning.of("log-grades-otherwise", about="contradiction", n=len(differ), place=differ[0])
        notes.append(found)
    return notes


IMPORTER = Importer(name="human_eval", what="HumanEval samples and their results", recognises=is_human_eval, read=read)
