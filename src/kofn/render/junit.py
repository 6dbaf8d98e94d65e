"""JUnit XML for CI servers: the requirements of `kofn check`, and the cases of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import polars as pl

from kofn.core.escape import escape_xml
from kofn.errors import WorldError
from kofn.runs.files import write_atomically
from kofn.runs.report_table import case_scores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from xml.etree.ElementTree import Element

    from kofn.analysis.checks import Check
    from kofn.runs.record import Run

MOST_CASES = 10_000  # of more cases only those that fail are listed
_LONGEST = 10_000  # characters of a text
_LINE = 200  # characters of a message
_NAME = 1_000  # characters of a name


def write_junit(path: Path, run: Run, checks: Sequence[Check]) -> None:
    """Write the XML whole or not at all; folders on the way are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda partial: partial.write_bytes(junit_xml(run, checks)))
    except OSError as problem:
        raise WorldError(f"{path}: cannot write: {problem.strerror}") from None


def junit_xml(run: Run, checks: Sequence[Check]) -> bytes:
    """The XML document."""
    root = ET.Element("testsuites", name=_text(f"{run.task} {run.name}"))
    root.append(_requirements(run, checks))
    root.extend(_groups(run))
    for count in ("tests", "failures", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    root.set("errors", "0")
    root.set("time", f"{run.evaluation.duration:.6f}")
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _text(text: str, longest: int = _LONGEST) -> str:
    return escape_xml(text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} characters more)")


def _suite(name: str, run: Run, cases: Sequence[Element], seconds: float) -> Element:
    suite = ET.Element("testsuite", name=_text(name, _NAME), tests=str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    suite.set("errors", "0")
    suite.set("time", f"{seconds:.6f}")
    suite.set("timestamp", run.evaluation.timestamp.isoformat(timespec="seconds"))
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
    frame = pl.concat([case_scores(run.reports), run.reports.select("results")], how="horizontal")
    listed = frame if frame.height <= MOST_CASES else failing_cases(frame)
    rows: dict[str, list[Element]] = {}
    for row in listed.iter_rows(named=True):
        rows.setdefault(row["group"], []).append(_case_of(row))
    for (name,), part in frame.group_by("group", maintain_order=True):
        group = str(name)
        suite = _suite(group, run, rows.get(group, []), float(part["duration"].sum()))
        if listed is not frame:
            # the schema has properties before the cases
            suite.insert(0, _left_out(part))
        yield suite


def failing_cases(frame: pl.DataFrame) -> pl.DataFrame:
    """The cases that were verified and do not pass."""
    return frame.filter(pl.col("score").is_not_null() & ~pl.col("passed"))


def _left_out(part: pl.DataFrame) -> Element:
    """What a suite of failing cases alone does not show."""
    properties = ET.Element("properties")
    counts = {
        "kofn.listed": "failing cases only",
        "kofn.cases": part.height,
        "kofn.passed": int(part["passed"].sum()),
        "kofn.unverified": part["score"].null_count(),
    }
    for name, value in counts.items():
        ET.SubElement(properties, "property", name=name, value=str(value))
    return properties


def _case_of(row: dict[str, Any]) -> Element:
    case = _case(row["id"], row["group"], row["duration"])
    if row["score"] is None:
        ET.SubElement(case, "skipped", message="nothing was verified")
    elif not row["passed"]:
        _failure(case, failure_text(row["results"]))
    return case


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
    return "\n".join(_attribute_text(r) for r in results if r["is_correct"] is False)


def _attribute_text(r: dict[str, Any]) -> str:
    if not r["diff"]:
        return f"{r['attribute']}: expected {_short(r['expected'])}, found {_short(r['actual'])}"
    if "\n" in r["diff"]:
        return f"{r['attribute']}:\n{r['diff']}"
    expected = "" if r["expected"] is None else f" (expected {_short(r['expected'])})"
    return f"{r['attribute']}: {r['diff']}{expected}"


def _short(text: str | None) -> str:
    """A stored JSON text, cut."""
    if text is None:
        return "nothing"
    return text if len(text) <= _LINE else f"{text[:_LINE]}…"
