"""The summary of a check as Markdown, appended to a CI server's job summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kofn.core.escape import code_block, escape_markdown
from kofn.errors import WorldError
from kofn.render.junit import failing_cases, failure_text
from kofn.runs.report_table import case_scores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kofn.analysis.checks import Check
    from kofn.runs.record import Run

_CASES = 10  # failing cases shown
_ROWS = 200  # requirements shown: a page of GitHub's holds 1 MB
_LONGEST = 2_000  # characters of a text
_CELL = 500  # characters of a cell


def append_summary(path: Path, run: Run, checks: Sequence[Check]) -> None:
    """Add the summary at the end of a file; what it holds already stays."""
    try:
        # other steps of the job write to the same file
        gap = "\n" if path.exists() and path.stat().st_size else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(gap + summarize_checks(run, checks))
    except OSError as problem:
        raise WorldError(f"{path}: cannot append: {problem.strerror}") from None


def summarize_checks(run: Run, checks: Sequence[Check]) -> str:
    """Verdict, requirements, and the first failing cases."""
    failed = sum(not c.passed for c in checks)
    verdict = f"❌ {failed} of {len(checks)} failed" if failed else f"✅ {len(checks)} of {len(checks)} passed"
    lines = [f"## {_cell(run.name)}: {verdict}", "", f"{_counts(run)}, task {_cell(run.task)}", ""]
    return "\n".join([*lines, *_table(checks), *_failing_lines(run)]) + "\n"


def _cell(text: str) -> str:
    return escape_markdown(text if len(text) <= _CELL else f"{text[:_CELL]}…")


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} characters more)"


def _counts(run: Run) -> str:
    evaluation = run.evaluation
    passed, total = sum(evaluation.pass_counts.values()), sum(evaluation.total_counts.values())
    unverified = f", {evaluation.n_unverified:,} unverified" if evaluation.n_unverified else ""
    return f"{passed:,} of {total:,} cases pass{unverified}"


def _table(checks: Sequence[Check]) -> list[str]:
    """A row a requirement; of very many the failing ones first."""
    listed = checks if len(checks) <= _ROWS else sorted(checks, key=lambda c: c.passed)[:_ROWS]
    rows = [
        "| " + " | ".join(["✅" if c.passed else "❌", *map(_cell, (c.name, c.segment or "", c.found))]) + " |"
        for c in listed
    ]
    more = [f"\nand {len(checks) - _ROWS:,} more"] if len(checks) > _ROWS else []
    return ["| | requirement | segment | found |", "|---|---|---|---|", *rows, *more]


def _failing_lines(run: Run) -> Iterator[str]:
    frame = failing_cases(pl.concat([case_scores(run.reports), run.reports.select("results")], how="horizontal"))
    if not frame.height:
        return
    first = f", the first {_CASES}" if frame.height > _CASES else ""
    yield from ("", f"### Failing cases: {frame.height:,}{first}")
    for row in frame.head(_CASES).iter_rows(named=True):
        yield from (
            "",
            f"**{_cell(row['id'])}** in {_cell(row['group'])}",
            "",
            *code_block(_shorten(failure_text(row["results"])).split("\n"), "text"),
        )
