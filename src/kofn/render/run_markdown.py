"""A run as Markdown for a pull request or a paper.

Whatever came from a file stands in a code span or a code block, where no renderer makes links, mentions or tags of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.document import checklist_counts
from kofn.core.escape import code_block, code_name, code_span, escape_markdown, escape_prose, markdown_table
from kofn.core.format import format_duration, format_estimate, format_level
from kofn.render.run_summary import (
    MOST_ATTRIBUTES,
    FailingCase,
    cut_diff,
    cut_note,
    equal_notes,
    facts_of,
    failing_of,
    failures_by,
    group_grid,
    groups_of,
    judge_rows,
    parent_data,
    slowest_of,
    split_text,
    status_of,
)
from kofn.runs.case_reports import case_scores
from kofn.scoring.result import distinct_estimates

if TYPE_CHECKING:
    import polars as pl

    from kofn.core.document import Displayable, Grid
    from kofn.render.run_summary import WrongAttribute
    from kofn.runs.record import Run

LIMIT = 10
_VALUE, _NOTE, _REASON = 120, 160, 400  # characters of a value, a diff in a cell, a reason


def run_markdown(run: Run, *, detailed: bool = False, limit: int = LIMIT, checklist: bool = False) -> str:
    """Headline, estimates, groups, failing cases; `detailed` adds segments, failures by attribute, slowest cases.

    With `checklist` all of its lines; else one line counts its answers.
    """
    scores, status, result = case_scores(run.reports), status_of(run), run.result
    title = f"{code_name(run.task)}, run {code_name(run.evaluation.name)}"
    reason, left = split_text(status.reason, _REASON)
    said = escape_prose(reason) + (f" {cut_note(left)}" if left else "")
    if result is None:
        head = [f"## {status.ruling}: {title}", "", said]
    else:
        head = [f"## {title}", "", f"**{escape_markdown(run.headline.text)}**"]
        head += ["", f"{status.ruling}: {said}"] if status.defined else []
    parts = [
        head,
        _facts(run),
        _estimates(run, detailed=detailed),
        _groups(run, scores),
        *_failing_parts(run, scores, limit),
        *([_tally(scores), _slowest(scores)] if detailed else []),
        _judges(run),
        *_parent(run),
    ]
    if result is not None:
        warnings = [f"- {escape_prose(str(warning))}" for warning in result.warnings]
        parts.append(["Warnings:", "", *warnings] if warnings else [])
        rows = [(line.answer, line.item, escape_prose(line.reason)) for line in result.checklist]
        counts = [f"Checklist: {escape_prose(checklist_counts(result.checklist))}"] if rows else []
        table = markdown_table(("answer", "checklist", "reason"), [False] * 3, rows) if rows else []
        parts.append(table if checklist else counts)
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def document_markdown(found: Displayable) -> str:
    """The document of any result: headline, tables, notes, warnings and the checklist."""
    document = found.document()
    parts = [[f"**{escape_prose(document.headline[0])}**", *map(escape_prose, document.headline[1:])]]
    for grid in document.grids:
        title = [escape_prose(grid.title), ""] if grid.title else []
        parts.append([*title, *_grid_lines(grid)])
    parts.append([f"- {escape_prose(f'{label}: {text}' if label else text)}" for label, text in document.notes])
    parts.append([f"- ⚠ {escape_prose(text)}" for text in document.warnings])
    parts.append([f"- {line.mark} {escape_prose(f'{line.item}: {line.reason}')}" for line in document.checklist])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _grid_lines(grid: Grid) -> list[str]:
    """A table whose cells are prose."""
    header, *rows = [list(map(escape_prose, row)) for row in (grid.header, *grid.rows)]
    return markdown_table(header, grid.right, rows)


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
        out += [[escape_prose(part["summary"])], *map(_grid_lines, part["grids"])]
    return out


def _judges(run: Run) -> list[str]:
    """Every judge: what it says, and what people would."""
    judges = judge_rows(run)
    names = ("name", "models", "rubric", "missing", "raw", "corrected", "rates", "cost")
    header = ("judge", "model", "rubric", "not graded", "raw", "corrected", "sensitivity, specificity", "cost")
    rows = [tuple(escape_prose(judge[key]) for key in names) for judge in judges]
    return markdown_table(header, [False] * 3 + [True] + [False] * 3 + [True], rows) if judges else []


def _facts(run: Run) -> list[str]:
    """The facts but the names, which stand in the title."""
    e = run.evaluation
    facts = {label: escape_prose(text) for label, text in facts_of(run) if label not in ("task", "run")}
    facts["made"] = f"{e.timestamp:%Y-%m-%d %H:%M:%S} UTC, version {e.version}; task version {e.problem_version}"
    return [f"- {label}: {text}" for label, text in facts.items()]


def _estimates(run: Run, *, detailed: bool) -> list[str]:
    if run.result is None:
        return []
    distinct, equals = distinct_estimates(run.result)
    estimates = [e for e in distinct if detailed or e.segment is None]
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
            format_estimate(e.point, e.low, e.high),
            f"{e.n:,}",
            f"{e.n_missing:,}",
        ]
        for e in estimates
    ]
    note = [line for _, text in equal_notes(equals) for line in ("", escape_prose(text))]
    return [*markdown_table(header, [h in ("cases", "missing") for h in header], rows), *note]


def _groups(run: Run, scores: pl.DataFrame) -> list[str]:
    groups = groups_of(run, scores)
    if not groups or (len(groups) == 1 and not run.defines_verdict):
        return []
    grid = group_grid(groups, code_name)
    note = [] if len(grid.rows) == len(groups) else ["", f"The {len(grid.rows)} lowest of {len(groups):,} groups."]
    return [*markdown_table(grid.header, grid.right, grid.rows), *note]


def _failing_parts(run: Run, scores: pl.DataFrame, limit: int) -> list[list[str]]:
    """A table of the failing cases, a row an attribute, and below it the diffs that do not fit a cell."""
    cases, total = failing_of(run, scores, limit)
    if not cases:
        return []
    first = "" if len(cases) == total else f", the first {len(cases):,}"
    about = " or ".join(dict.fromkeys(label for label, text in map(FailingCase.about, cases) if text))
    header = ["case", "group", *([about] if about else []), "attribute", "expected", "actual", "diff"]
    rows, blocks = [], []
    for case in cases:
        _, text = case.about()
        said = [_value_span(text) if text else ""] if about else []
        for attribute in case.attributes[:MOST_ATTRIBUTES]:
            diff = attribute.diff.strip()
            fits = len(attribute.diff) <= _NOTE and "\n" not in diff
            blocks += [] if fits else [_diff(case, attribute)]
            values = ["" if value is None else _value_span(value) for value in (attribute.expected, attribute.actual)]
            shown = (code_span(diff) if diff else "") if fits else "below"
            rows.append([code_name(case.id), code_name(case.group), *said, code_name(attribute.name), *values, shown])
        more = len(case.attributes) - MOST_ATTRIBUTES
        if more > 0:
            rows.append([code_name(case.id), "", *([""] if about else []), f"and {more:,} more", "", "", ""])
    lines = markdown_table(header, [False] * len(header), rows)
    return [[f"### Failing cases: {total:,} of {scores.height:,}{first}"], lines, *blocks]


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
