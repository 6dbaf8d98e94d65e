"""A run as Markdown for a pull request or a paper.

Whatever came from a file stands in a code span or a code block, where no renderer makes links, mentions or tags of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.escape import code_block, code_name, code_span, escape_prose, markdown_table
from kofn.core.format import format_duration, format_level, format_number
from kofn.render.run_summary import (
    MOST_ATTRIBUTES,
    FailingCase,
    cut_diff,
    cut_note,
    facts_of,
    failing_of,
    failures_by,
    groups_of,
    judge_rows,
    listed_groups,
    parent_data,
    slowest_of,
    split_text,
    status_of,
)
from kofn.runs.case_reports import case_scores

if TYPE_CHECKING:
    import polars as pl

    from kofn.core.document import Displayable
    from kofn.core.types import Estimate
    from kofn.render.run_summary import WrongAttribute
    from kofn.runs.record import Run

LIMIT = 10
_VALUE, _NOTE, _REASON = 120, 160, 400  # characters of a value, a diff in a cell, a reason


def run_markdown(run: Run, *, detailed: bool = False, limit: int = LIMIT) -> str:
    """Status, estimates, groups and failing cases; `detailed` adds segments, failures by attribute, slowest cases."""
    scores = case_scores(run.reports)
    parts = [
        _head(run),
        _facts(run),
        _estimates(run, detailed=detailed),
        _groups(run, scores),
        *_failing_parts(run, scores, limit),
        *([_tally(scores), _slowest(scores)] if detailed else []),
        _judges(run),
        *_parent(run),
        _warnings(run),
        _checklist(run),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def document_markdown(found: Displayable) -> str:
    """The document of any result: headline, tables, notes, warnings and the checklist."""
    document = found.document()
    parts = [[f"**{escape_prose(document.headline[0])}**", *map(escape_prose, document.headline[1:])]]
    for grid in document.grids:
        rows = [tuple(escape_prose(cell) for cell in row) for row in grid.rows]
        header = [escape_prose(name) for name in grid.header]
        title = [escape_prose(grid.title), ""] if grid.title else []
        parts.append([*title, *markdown_table(header, grid.right, rows)])
    parts.append([f"- {escape_prose(f'{label}: {text}' if label else text)}" for label, text in document.notes])
    parts.append([f"- ⚠ {escape_prose(text)}" for text in document.warnings])
    parts.append([f"- {line.mark} {escape_prose(f'{line.item}: {line.reason}')}" for line in document.checklist])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _value_span(text: str) -> str:
    """A value as code, and how much of it is left out."""
    content, left = split_text(text, _VALUE)
    return code_span(content) + (f" {cut_note(left)}" if left else "")


def _parent(run: Run) -> list[list[str]]:
    """What changed since the run that this one was made from."""
    parent = parent_data(run.manifest)
    if parent is None:
        return []
    out = [[f"Graded again from {code_span(parent['name'])}."]]
    for part in parent["parts"]:
        out.append([escape_prose(part["summary"])])
        cells = [[tuple(escape_prose(cell) for cell in row) for row in grid.rows] for grid in part["grids"]]
        out += [markdown_table(grid.header, grid.right, rows) for grid, rows in zip(part["grids"], cells, strict=True)]
    return out


def _judges(run: Run) -> list[str]:
    """Every judge: what it says, and what people would."""
    judges = judge_rows(run)
    names = ("name", "models", "rubric", "missing", "raw", "corrected", "rates")
    header = ("judge", "model", "rubric", "not graded", "raw", "corrected", "sensitivity, specificity")
    rows = [tuple(escape_prose(judge[key]) for key in names) for judge in judges]
    return markdown_table(header, [False] * 3 + [True] + [False] * 3, rows) if judges else []


def _checklist(run: Run) -> list[str]:
    lines = () if run.result is None else run.result.checklist
    rows = [(line.answer, line.item, escape_prose(line.reason)) for line in lines]
    return markdown_table(("answer", "checklist", "reason"), [False] * 3, rows) if rows else []


def _warnings(run: Run) -> list[str]:
    warnings = () if run.result is None else run.result.warnings
    return ["Beware:", "", *(f"- {escape_prose(str(warning))}" for warning in warnings)] if warnings else []


def _head(run: Run) -> list[str]:
    status = status_of(run)
    gaps = ", incomplete" if status.gaps else ""
    title = f"## {status.mark} {status.word}{gaps}: {code_name(run.task)}, run {code_name(run.evaluation.name)}"
    reason, left = split_text(status.reason, _REASON)
    return [title, "", escape_prose(reason) + (f" {cut_note(left)}" if left else "")]


def _facts(run: Run) -> list[str]:
    """The facts but the names, which stand in the title."""
    e = run.evaluation
    facts = {label: escape_prose(text) for label, text in facts_of(run) if label not in ("task", "run")}
    if e.verdict is not None:
        facts["verdict"] = f"a case passes where {code_name(e.verdict)}"
    facts["made"] = f"{e.timestamp:%Y-%m-%d %H:%M:%S} UTC, version {e.version}; task version {e.problem_version}"
    return [f"- {label}: {text}" for label, text in facts.items()]


def _estimates(run: Run, *, detailed: bool) -> list[str]:
    if run.result is None:
        return []
    estimates = [e for e in run.result.estimates if detailed or e.segment is None]
    if not estimates:
        return []
    metrics, sliced = len({e.metric for e in estimates}) > 1, any(e.segment is not None for e in estimates)
    header = [*(["metric"] if metrics else []), "aggregator", *(["segment"] if sliced else [])]
    header += [f"value [{format_level(estimates[0].level)} interval]", "cases", "missing"]
    rows = [
        [
            *([code_name(e.metric)] if metrics else []),
            code_name(e.aggregator),
            *(["" if e.segment is None else code_name(e.segment)] if sliced else []),
            _interval(e),
            f"{e.n:,}",
            f"{e.n_missing:,}",
        ]
        for e in estimates
    ]
    return markdown_table(header, [h in ("cases", "missing") for h in header], rows)


def _interval(e: Estimate) -> str:
    if e.point is None:
        return "undefined"
    return format_number(e.point) + (
        "" if e.low is None or e.high is None else f" [{format_number(e.low)}, {format_number(e.high)}]"
    )


def _groups(run: Run, scores: pl.DataFrame) -> list[str]:
    groups = groups_of(run, scores)
    if not groups:
        return []
    gaps = any(g.unverified for g in groups)
    header = ["", "group", "type", "weight", "score", "passed", *(["unverified"] if gaps else [])]
    rows = [
        [
            g.mark,
            code_name(g.name),
            g.type.value,
            f"{g.weight:g}",
            format_number(g.score),
            f"{g.passed:,}/{g.total:,}",
            *([f"{g.unverified:,}"] if gaps else []),
        ]
        for g in listed_groups(groups)
    ]
    note = [] if len(rows) == len(groups) else ["", f"The {len(rows)} lowest of {len(groups):,} groups."]
    return [*markdown_table(header, [i > 2 for i in range(len(header))], rows), *note]


def _failing_parts(run: Run, scores: pl.DataFrame, limit: int) -> list[list[str]]:
    """A table of the failing cases, a row an attribute, and below it the diffs that do not fit a cell."""
    cases, total = failing_of(run, scores, limit)
    if not cases:
        return []
    first = "" if len(cases) == total else f", the first {len(cases):,}"
    about = {label: None for label, text in map(FailingCase.about, cases) if text}
    header = ["case", "group", *([" or ".join(about)] if about else []), "attribute", "expected", "actual", "diff"]
    rows, blocks = [], []
    for case in cases:
        for attribute in case.attributes[:MOST_ATTRIBUTES]:
            rows.append(_failing_row(case, attribute, about=bool(about)))
            blocks += [] if _fits(attribute.diff) else [_diff(case, attribute)]
        more = len(case.attributes) - MOST_ATTRIBUTES
        if more > 0:
            rows.append([code_name(case.id), "", *([""] if about else []), f"and {more:,} more", "", "", ""])
    lines = markdown_table(header, [False] * len(header), rows)
    return [[f"### Failing cases: {total:,} of {scores.height:,}{first}"], lines, *blocks]


def _failing_row(case: FailingCase, attribute: WrongAttribute, *, about: bool) -> list[str]:
    fits, (_, text) = _fits(attribute.diff), case.about()
    return [
        code_name(case.id),
        code_name(case.group),
        *([_value_span(text) if text else ""] if about else []),
        code_name(attribute.name),
        "" if attribute.expected is None else _value_span(attribute.expected),
        "" if attribute.actual is None else _value_span(attribute.actual),
        ("" if not attribute.diff.strip() else code_span(attribute.diff.strip())) if fits else "below",
    ]


def _fits(diff: str) -> bool:
    return len(diff) <= _NOTE and "\n" not in diff.strip()


def _diff(case: FailingCase, attribute: WrongAttribute) -> list[str]:
    lines, left = cut_diff(attribute.diff)
    note = ["", cut_note(left)] if left else []
    return [f"Diff of {code_name(case.id)}, {code_name(attribute.name)}:", "", *code_block(lines, "diff"), *note]


def _tally(scores: pl.DataFrame) -> list[str]:
    """Failures by type and by attribute, the ten most frequent of each."""
    by = {"type": failures_by(scores, "type"), "attribute": failures_by(scores, "failing")}
    rows = [[what, code_name(found), f"{n:,}"] for what, counts in by.items() for found, n in counts[:10]]
    return markdown_table(["failures by", "", "cases"], [False, False, True], rows) if rows else []


def _slowest(scores: pl.DataFrame) -> list[str]:
    rows = [
        [code_name(case["id"]), code_name(case["group"]), format_duration(case["duration"])]
        for case in slowest_of(scores).iter_rows(named=True)
    ]
    return markdown_table(["slowest case", "group", "time"], [False, False, True], rows) if rows else []
