"""JUnit XML and a job summary for continuous integration, of a run and its checks: `kofn check` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import polars as pl

from kofn.core.escape import code_block, escape_markdown, escape_xml
from kofn.errors import WorldError
from kofn.runs.case_reports import case_scores
from kofn.runs.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from xml.etree.ElementTree import Element

    from kofn.analysis.checks import Check, CheckReport
    from kofn.runs.record import Run

MOST_CASES = 10_000  # of more cases only those that fail are listed
_LONGEST = 10_000  # characters of a text
_LINE = 200  # characters of a message
_NAME = 1_000  # characters of a name


def write_junit(path: Path, run: Run, checks: Sequence[Check], *, cases: bool = False) -> None:
    """Write the XML whole or not at all; folders on the way are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda partial: partial.write_bytes(junit_xml(run, checks, cases=cases)))
    except OSError as problem:
        raise WorldError(f"{path}: cannot write: {problem.strerror}") from None


def junit_xml(run: Run, checks: Sequence[Check], *, cases: bool = False) -> bytes:
    """The XML document: one test per requirement, so that it fails exactly where `kofn check` does.

    With `cases` also one suite per group with one test per case, whose failures say nothing about the requirements.
    """
    root = ET.Element("testsuites", name=_text(f"{run.task} {run.name}"))
    root.append(_requirements(run, checks))
    if cases:
        root.extend(_groups(run))
    for count in ("tests", "failures", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    root.set("errors", "0")
    root.set("time", f"{run.evaluation.duration:.6f}")
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _text(text: str, longest: int = _LONGEST) -> str:
    return escape_xml(_cut(text, longest))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} characters more)"


def _suite(name: str, run: Run, cases: Sequence[Element], seconds: float) -> Element:
    suite = ET.Element(
        "testsuite",
        name=_text(name, _NAME),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        errors="0",
        time=f"{seconds:.6f}",
        timestamp=run.evaluation.timestamp.isoformat(timespec="seconds"),
    )
    suite.extend(cases)
    return suite


def _requirements(run: Run, checks: Sequence[Check]) -> Element:
    cases = []
    for check in checks:
        name = check.name if check.segment is None else f"{check.name} in {check.segment}"
        case = _case(name, "requirements", 0.0)
        if check.passed:
            ET.SubElement(case, "system-out").text = _text(check.found)
        else:
            _failure(case, str(check))
        cases.append(case)
    return _suite("requirements", run, cases, 0.0)


def _groups(run: Run) -> Iterator[Element]:
    """A suite a group, in the order they come."""
    frame = _cases_with_results(run)
    listed = frame if frame.height <= MOST_CASES else failing_cases(frame)
    rows: dict[str, list[Element]] = {}
    for row in listed.iter_rows(named=True):
        case = _case(row["id"], row["group"], row["duration"])
        if row["score"] is None:
            ET.SubElement(case, "skipped", message="nothing was verified")
        elif not row["passed"]:
            _failure(case, failure_text(row["results"]))
        rows.setdefault(row["group"], []).append(case)
    for (name,), part in frame.group_by("group", maintain_order=True):
        group = str(name)
        suite = _suite(group, run, rows.get(group, []), float(part["duration"].sum()))
        if listed is not frame:
            # the schema has properties before the cases
            suite.insert(0, _left_out(part))
        yield suite


def _cases_with_results(run: Run) -> pl.DataFrame:
    return pl.concat([case_scores(run.reports), run.reports.select("results")], how="horizontal")


def failing_cases(frame: pl.DataFrame) -> pl.DataFrame:
    """The cases that were verified and do not pass."""
    return frame.filter(pl.col("score").is_not_null() & ~pl.col("passed"))


def _left_out(part: pl.DataFrame) -> Element:
    """What a suite of failing cases alone does not show."""
    properties = ET.Element("properties")
    counts = {"cases": part.height, "passed": part["passed"].sum(), "unverified": part["score"].null_count()}
    for name, value in {"listed": "failing cases only", **counts}.items():
        ET.SubElement(properties, "property", name=f"kofn.{name}", value=str(value))
    return properties


def _case(name: str, group: str, seconds: float) -> Element:
    return ET.Element("testcase", name=_text(name, _NAME), classname=_text(group, _NAME), time=f"{seconds:.6f}")


def _failure(case: Element, text: str) -> None:
    message = _text(text.partition("\n")[0], _LINE)
    ET.SubElement(case, "failure", message=message, type="requirement").text = _text(text)


def failure_text(results: Sequence[dict[str, Any]]) -> str:
    """What is wrong with a case: every attribute that fails, with its diff, else with what was expected and found.

    >>> one = {"attribute": "total", "is_correct": False, "expected": "3", "actual": "4", "diff": ""}
    >>> print(failure_text([one, {**one, "attribute": "note", "diff": "- a\\n+ b"}]))
    total: expected 3, found 4
    note:
    - a
    + b
    """
    lines = []
    for r in results:
        if r["is_correct"] is False:
            text = f" {r['diff']}" + ("" if r["expected"] is None else f" (expected {_short(r['expected'])})")
            if not r["diff"]:
                text = f" expected {_short(r['expected'])}, found {_short(r['actual'])}"
            elif "\n" in r["diff"]:
                text = f"\n{r['diff']}"
            lines.append(f"{r['attribute']}:{text}")
    return "\n".join(lines)


def _short(text: str | None) -> str:
    """A stored JSON text, cut."""
    if text is None:
        return "nothing"
    return text if len(text) <= _LINE else f"{text[:_LINE]}…"


_CASES = 10  # failing cases shown
_ROWS = 200  # requirements shown: a page of GitHub's holds 1 MB
_LONGEST_REASON = 2_000  # characters of a text
_CELL = 500  # characters of a cell


def append_summary(path: Path, run: Run, report: CheckReport) -> None:
    """Add the summary at the end of a file; what it holds already stays."""
    try:
        # other steps of the job write to the same file
        gap = "\n" if path.exists() and path.stat().st_size else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(gap + summarize_checks(run, report))
    except OSError as problem:
        raise WorldError(f"{path}: cannot append: {problem.strerror}") from None


def summarize_checks(run: Run, report: CheckReport) -> str:
    """Verdict, headline, warnings, requirements, and the first failing cases."""
    checks = report.checks
    failed = sum(not c.passed for c in checks)
    verdict = f"❌ {failed} of {len(checks)} failed" if failed else f"✅ {len(checks)} of {len(checks)} passed"
    evaluation = run.evaluation
    passed, total = sum(evaluation.pass_counts.values()), sum(evaluation.total_counts.values())
    unverified = f", {evaluation.n_unverified:,} unverified" if evaluation.n_unverified else ""
    counts = f"{passed:,} of {total:,} cases pass{unverified}"
    lines = [f"## {_cell(run.name)}: {verdict}", "", _cell(report.headline.text), "",
             f"{counts}, task {_cell(run.task)}", ""]  # fmt: skip
    lines += [line for w in report.warnings for line in (f"⚠️ {_cell(str(w))}", "")]
    return "\n".join([*lines, *_table(checks), *_failing_lines(run)]) + "\n"


def _cell(text: str) -> str:
    return escape_markdown(text if len(text) <= _CELL else f"{text[:_CELL]}…")


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
    frame = failing_cases(_cases_with_results(run))
    if not frame.height:
        return
    first = f", the first {_CASES}" if frame.height > _CASES else ""
    yield from ("", f"### Failing cases: {frame.height:,}{first}")
    for row in frame.head(_CASES).iter_rows(named=True):
        yield from (
            "",
            f"**{_cell(row['id'])}** in {_cell(row['group'])}",
            "",
            *code_block(_cut(failure_text(row["results"]), _LONGEST_REASON).split("\n"), "text"),
        )
