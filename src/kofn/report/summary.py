"""The summary of a check as markdown, appended to the page that a CI server shows."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

import polars as pl

from kofn.present import safe
from kofn.report.frames import case_scores
from kofn.report.junit import failing, failure_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kofn.checks import Check
    from kofn.report.run import Run

_CASES = 10  # failing cases shown
_ROWS = 200  # requirements shown: a page of GitHub's holds 1 MB
_LONGEST = 2_000  # characters of a text
_CELL = 500  # characters of a cell
_MARKS = re.compile(r"([\\`*_\[\]~|#])")


def append_summary(path: Path, run: Run, checks: Sequence[Check]) -> None:
    """Add the summary at the end of a file; what it holds already stays."""
    from kofn.errors import WorldError

    try:
        gap = "\n" if path.exists() and path.stat().st_size else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(gap + summary(run, checks))
    except OSError as problem:
        raise WorldError(f"{path}: cannot append: {problem.strerror}") from None


def summary(run: Run, checks: Sequence[Check]) -> str:
    """Verdict, requirements, and the first failing cases."""
    failed = sum(not c.passed for c in checks)
    verdict = f"❌ {failed} of {len(checks)} failed" if failed else f"✅ {len(checks)} of {len(checks)} passed"
    lines = [f"## {cell(run.name)}: {verdict}", "", f"{_counts(run)}, task {cell(run.task)}", ""]
    return "\n".join([*lines, *_table(checks), *_failing(run)]) + "\n"


def cell(text: str) -> str:
    """Text that markdown shows as it is, in one line: no markup, no HTML, no end of a cell.

    >>> cell("a|b <i> [x](y)\\nz")
    'a\\\\|b &lt;i&gt; \\\\[x\\\\](y)\\\\\\\\nz'
    """
    cut = text if len(text) <= _CELL else f"{text[:_CELL]}…"
    return _MARKS.sub(r"\\\1", escape(safe(cut), quote=False))


def fenced(text: str) -> str:
    """A block of code that its text cannot end: the fence is longer than any run of backticks in it.

    >>> print(fenced("```"))
    ````text
    ```
    ````
    """
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} characters more)"
    body = "\n".join(safe(line) for line in cut.split("\n"))
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"


def _counts(run: Run) -> str:
    evaluation = run.evaluation
    passed, total = sum(evaluation.pass_counts.values()), sum(evaluation.total_counts.values())
    unverified = f", {evaluation.n_unverified:,} unverified" if evaluation.n_unverified else ""
    return f"{passed:,} of {total:,} cases pass{unverified}"


def _table(checks: Sequence[Check]) -> list[str]:
    """A row a requirement; of very many the failing ones first."""
    shown = checks if len(checks) <= _ROWS else sorted(checks, key=lambda c: c.passed)[:_ROWS]
    rows = [
        f"| {'✅' if c.passed else '❌'} | {cell(c.name)} | {cell(c.segment or '')} | {cell(c.found)} |" for c in shown
    ]
    more = [f"\nand {len(checks) - _ROWS:,} more"] if len(checks) > _ROWS else []
    return ["| | requirement | segment | found |", "|---|---|---|---|", *rows, *more]


def _failing(run: Run) -> Iterator[str]:
    frame = failing(pl.concat([case_scores(run.reports), run.reports.select("results")], how="horizontal"))
    if not frame.height:
        return
    first = f", the first {_CASES}" if frame.height > _CASES else ""
    yield from ("", f"### Failing cases: {frame.height:,}{first}")
    for row in frame.head(_CASES).iter_rows(named=True):
        yield from ("", f"**{cell(row['id'])}** in {cell(row['group'])}", "", fenced(failure_text(row["results"])))
