"""A run as Markdown, for a pull request or a paper.

Whatever came from a file stands in a code span or a code block, where no renderer makes links, mentions or tags of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kofn.present import safe
from kofn.report.findings import (
    MOST_ATTRIBUTES,
    Failing,
    cut,
    cut_diff,
    cut_note,
    duration,
    facts_of,
    failing_of,
    failures_by,
    groups_of,
    number,
    shown_groups,
    slowest_of,
    status_of,
)
from kofn.report.frames import case_scores
from kofn.report.judges import judges_of
from kofn.report.parent import parent_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

    from kofn.report.findings import Attribute
    from kofn.report.run import Run
    from kofn.types import Estimate

LIMIT = 10
_NAME, _VALUE, _NOTE, _REASON = 80, 120, 160, 400  # characters of a name, a value, a diff in a cell, a reason
_ACTIVE = re.compile(r"[\\`*\[\]<|~$#&@]|(?<!\w)_|_(?!\w)|://|www\.|^[-+=>]|^\d+[.)]\s", re.IGNORECASE)


def as_markdown(run: Run, *, detailed: bool = False, limit: int = LIMIT) -> str:
    """Status, estimates, groups and failing cases; `detailed` adds segments, failures by attribute, slowest cases."""
    scores = case_scores(run.reports)
    parts = [
        _head(run),
        _facts(run),
        _estimates(run, detailed=detailed),
        _groups(run, scores),
        *_failing(run, scores, limit),
        *([_tally(scores), _slowest(scores)] if detailed else []),
        _judges(run),
        *_parent(run),
        _warnings(run),
        _checklist(run),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def code(text: str, most: int | None = None) -> str:
    """A code span that shows the text, whatever it holds; control characters are made visible.

    >>> print(code("a`b"), code("`"), code(""))
    ``a`b`` `` ` `` *(empty)*
    """
    shown, left = cut(text, len(text) if most is None else most)
    shown = safe(shown)
    if not shown:
        return "*(empty)*"
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}" + (f" {cut_note(left)}" if left else "")


def name(text: str) -> str:
    """A name as code, shortened."""
    return code(text if len(text) <= _NAME else text[: _NAME - 1] + "…")


def prose(text: str) -> str:
    """A sentence of ours that may quote names: as it is where nothing in it means anything to Markdown, else as code.

    >>> prose("9 tied votes"), prose("segments: <b>")
    ('9 tied votes', '`segments: <b>`')
    """
    return code(text) if _ACTIVE.search(text) or safe(text) != text else text


def table(header: Sequence[str], right: Sequence[bool], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table. A pipe in a cell gets an odd number of backslashes before it, which every parser takes as text.

    >>> print("\\n".join(table(["a", "n"], [False, True], [["x|y", "1"]])))
    | a | n |
    |---|---:|
    | x\\|y | 1 |
    """
    rules = ["---:" if r else "---" for r in right]
    lines = ["| " + " | ".join(_cell(c) for c in cells) + " |" for cells in rows]
    return ["| " + " | ".join(header) + " |", "|" + "|".join(rules) + "|", *lines]


def block(lines: Sequence[str], language: str = "") -> list[str]:
    """A fenced code block that its content cannot close."""
    shown = [safe(line) for line in lines]
    fence = "`" * max(3, 1 + max((_longest_run(line) for line in shown), default=0))
    return [fence + language, *shown, fence]


def _cell(text: str) -> str:
    def escaped(found: re.Match[str]) -> str:
        slashes = found[1]
        return slashes + "\\" * (1 + len(slashes) % 2) + "|"

    return re.sub(r"(\\*)\|", escaped, text)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _parent(run: Run) -> list[list[str]]:
    """What changed since the run that this one was made from."""
    parent = parent_of(run.manifest)
    if parent is None:
        return []
    out = [[f"Graded again from {code(parent['name'])}."]]
    for part in parent["parts"]:
        out.append([prose(part["summary"])])
        cells = [[tuple(prose(cell) for cell in row) for row in grid.rows] for grid in part["grids"]]
        out += [table(grid.header, grid.right, rows) for grid, rows in zip(part["grids"], cells, strict=True)]
    return out


def _judges(run: Run) -> list[str]:
    """Every judge: what it says, and what people would."""
    judges = judges_of(run)
    names = ("name", "models", "rubric", "missing", "raw", "corrected", "rates")
    header = ("judge", "model", "rubric", "not graded", "raw", "corrected", "sensitivity, specificity")
    rows = [tuple(prose(judge[key]) for key in names) for judge in judges]
    return table(header, [False] * 3 + [True] + [False] * 3, rows) if judges else []


def _checklist(run: Run) -> list[str]:
    lines = () if run.result is None else run.result.checklist
    rows = [(line.answer, line.item, prose(line.reason)) for line in lines]
    return table(("answer", "checklist", "reason"), [False] * 3, rows) if rows else []


def _warnings(run: Run) -> list[str]:
    warnings = () if run.result is None else run.result.warnings
    return ["Beware:", "", *(f"- {prose(warning)}" for warning in warnings)] if warnings else []


def _head(run: Run) -> list[str]:
    status = status_of(run)
    gaps = ", incomplete" if status.gaps else ""
    title = f"## {status.mark} {status.word}{gaps}: {name(run.task)}, run {name(run.evaluation.name)}"
    reason, left = cut(status.reason, _REASON)
    return [title, "", prose(reason) + (f" {cut_note(left)}" if left else "")]


def _facts(run: Run) -> list[str]:
    """The facts but the names, which stand in the title."""
    e = run.evaluation
    facts = {label: prose(text) for label, text in facts_of(run) if label not in ("task", "run")}
    if e.verdict is not None:
        facts["verdict"] = f"a case passes where {name(e.verdict)}"
    facts["made"] = f"{e.timestamp:%Y-%m-%d %H:%M:%S} UTC, version {e.version}; task version {e.problem_version}"
    return [f"- {label}: {text}" for label, text in facts.items()]


def _estimates(run: Run, *, detailed: bool) -> list[str]:
    if run.result is None:
        return []
    shown = [e for e in run.result.estimates if detailed or e.segment is None]
    if not shown:
        return []
    metrics, sliced = len({e.metric for e in shown}) > 1, any(e.segment is not None for e in shown)
    header = [*(["metric"] if metrics else []), "aggregator", *(["segment"] if sliced else [])]
    header += [f"value [{100 * shown[0].level:g} % interval]", "cases", "missing"]
    rows = [
        [
            *([name(e.metric)] if metrics else []),
            name(e.aggregator),
            *(["" if e.segment is None else name(e.segment)] if sliced else []),
            _interval(e),
            f"{e.n:,}",
            f"{e.n_missing:,}",
        ]
        for e in shown
    ]
    return table(header, [h in ("cases", "missing") for h in header], rows)


def _interval(e: Estimate) -> str:
    if e.point is None:
        return "undefined"
    return number(e.point) + ("" if e.low is None or e.high is None else f" [{number(e.low)}, {number(e.high)}]")


def _groups(run: Run, scores: pl.DataFrame) -> list[str]:
    groups = groups_of(run, scores)
    if not groups:
        return []
    gaps = any(g.unverified for g in groups)
    header = ["", "group", "type", "weight", "score", "passed", *(["unverified"] if gaps else [])]
    rows = [
        [
            g.mark,
            name(g.name),
            g.type.value,
            f"{g.weight:g}",
            number(g.score),
            f"{g.passed:,}/{g.total:,}",
            *([f"{g.unverified:,}"] if gaps else []),
        ]
        for g in shown_groups(groups)
    ]
    note = [] if len(rows) == len(groups) else ["", f"The {len(rows)} lowest of {len(groups):,} groups."]
    return [*table(header, [i > 2 for i in range(len(header))], rows), *note]


def _failing(run: Run, scores: pl.DataFrame, limit: int) -> list[list[str]]:
    """A table of the failing cases, a row an attribute, and below it the diffs that do not fit a cell."""
    cases, total = failing_of(run, scores, limit)
    if not cases:
        return []
    first = "" if len(cases) == total else f", the first {len(cases):,}"
    told = {label: None for label, text in map(Failing.about, cases) if text}
    header = ["case", "group", *([" or ".join(told)] if told else []), "attribute", "expected", "actual", "diff"]
    rows, blocks = [], []
    for case in cases:
        for attribute in case.attributes[:MOST_ATTRIBUTES]:
            rows.append(_failing_row(case, attribute, told=bool(told)))
            blocks += [] if _fits(attribute.diff) else [_diff(case, attribute)]
        more = len(case.attributes) - MOST_ATTRIBUTES
        if more > 0:
            rows.append([name(case.id), "", *([""] if told else []), f"and {more:,} more", "", "", ""])
    lines = table(header, [False] * len(header), rows)
    return [[f"### Failing cases: {total:,} of {scores.height:,}{first}"], lines, *blocks]


def _failing_row(case: Failing, attribute: Attribute, *, told: bool) -> list[str]:
    fits, (_, text) = _fits(attribute.diff), case.about()
    return [
        name(case.id),
        name(case.group),
        *([code(text, _VALUE) if text else ""] if told else []),
        name(attribute.name),
        "" if attribute.expected is None else code(attribute.expected, _VALUE),
        "" if attribute.actual is None else code(attribute.actual, _VALUE),
        ("" if not attribute.diff.strip() else code(attribute.diff.strip())) if fits else "below",
    ]


def _fits(diff: str) -> bool:
    return len(diff) <= _NOTE and "\n" not in diff.strip()


def _diff(case: Failing, attribute: Attribute) -> list[str]:
    lines, left = cut_diff(attribute.diff)
    note = ["", cut_note(left)] if left else []
    return [f"Diff of {name(case.id)}, {name(attribute.name)}:", "", *block(lines, "diff"), *note]


def _tally(scores: pl.DataFrame) -> list[str]:
    """Failures by type and by attribute, the ten most frequent of each."""
    by = {"type": failures_by(scores, "type"), "attribute": failures_by(scores, "failing")}
    rows = [[what, name(found), f"{n:,}"] for what, counts in by.items() for found, n in counts[:10]]
    return table(["failures by", "", "cases"], [False, False, True], rows) if rows else []


def _slowest(scores: pl.DataFrame) -> list[str]:
    rows = [
        [name(case["id"]), name(case["group"]), duration(case["duration"])]
        for case in slowest_of(scores).iter_rows(named=True)
    ]
    return table(["slowest case", "group", "time"], [False, False, True], rows) if rows else []
