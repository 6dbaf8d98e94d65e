"""A run as text for a terminal: a summary, or with `detailed` every failure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from kofn.core.document import Bar, Document, Grid, checklist_lines, display_width, grid_lines
from kofn.core.escape import escape_controls
from kofn.core.format import format_duration, format_number
from kofn.render.result_text import result_document
from kofn.render.run_summary import (
    LIMIT,
    MOST_ATTRIBUTES,
    PASSED,
    cut_diff,
    cut_note,
    cut_text,
    edge_of,
    facts_of,
    failing_of,
    failures_by,
    files_of,
    groups_of,
    judge_rows,
    listed_groups,
    parent_lines,
    slowest_of,
    status_of,
)
from kofn.runs.case_reports import case_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kofn.render.run_summary import FailingCase, GroupSummary, WrongAttribute
    from kofn.runs.record import Run

    Style = Callable[[str, str], str]

_VALUE, _INPUT, _DIFF_LINE, _FAILURE = 240, 200, 300, 400  # characters that are shown
_LABEL, _ROWS = 10, 100  # columns of a label, rows of a grid
_NAMES = ("segment", "aggregator")


def format_run(
    run: Run,
    style: Style = lambda text, _: text,
    *,
    detailed: bool = False,
    limit: int = LIMIT,
    width: int = 100,
) -> str:
    """The run as text of at most `width` columns. `style(text, role)` may add colour.

    Roles: strong, head, dim, warn, good, bad, added, removed.
    """
    scores = case_scores(run.reports)
    parts = [
        _head(run, style, width),
        _labelled_lines(facts_of(run), style, width),
        _group_lines(groups_of(run, scores), style, width),
        *_estimate_parts(run, style, width, detailed=detailed),
    ]
    if detailed:
        parts += _detailed_parts(run, scores, style, limit, width)
    parts += [_labelled_lines(_judge_rows(run), style, width), parent_lines(run.manifest.get("parent"), style)]
    checked = () if run.result is None else run.result.checklist
    parts += [_warning_lines(run, style, width), checklist_lines(checked, style, width) if checked else []]
    parts += [_file_lines(run, style, width, detailed=detailed)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def run_document(run: Run) -> Document:
    """The same for a notebook, without what --detailed shows."""
    status, result = status_of(run), run.result
    groups = groups_of(run, case_scores(run.reports))
    grids = [_group_grid(groups, 200)] if len(groups) > 1 else []
    notes = [*facts_of(run), *_judge_rows(run)]
    notes += [] if run.path is None else [("files", f"{run.path}: {', '.join(files_of(run))}")]
    about = result_document(result) if result is not None else None
    return Document(
        headline=(f"{status.mark} {status.word}: {status.reason}", *(() if about is None else about.headline[:1])),
        grids=(*(() if about is None else about.grids), *grids),
        notes=tuple(notes),
        warnings=() if result is None else tuple(map(str, result.warnings)),
        checklist=() if result is None else result.checklist,
    )


def wrap_columns(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns, broken at a space where the second half of a line has one.

    >>> wrap_columns("one two three", 8), wrap_columns("日本語日本語", 8)
    (['one two', 'three'], ['日本語日', '本語'])
    """
    lines = []
    while display_width(text) > width:
        end = _fitting_length(text, width)
        space = text.rfind(" ", (end + 1) // 2, end + 1)
        at = space if space > 0 else end
        lines.append(text[:at])
        text = text[at + (space > 0) :]
    return [*lines, text]


def shorten(text: str, width: int) -> str:
    """A text made safe, in at most `width` columns.

    >>> shorten("abcdef", 4), shorten("abcd", 4)
    ('abc…', 'abcd')
    """
    # only the beginning: a text may be megabytes long
    part = escape_controls(text[: 4 * width])
    if display_width(part) <= width and len(text) <= 4 * width:
        return part
    return part[: _fitting_length(part, width - 1)] + "…"


def shorten_name(text: str, width: int) -> str:
    """A name as a cell shows it: shortened, and seen where it is empty."""
    return shorten(text, width) or '""'


def _fitting_length(text: str, width: int) -> int:
    """How many characters of a text fit; at least one, so that whoever cuts gets on."""
    used = 0
    for i, c in enumerate(text):
        used += display_width(c)
        if used > width:
            return max(1, i)
    return len(text)


def _head(run: Run, style: Style, width: int) -> list[str]:
    status = status_of(run)
    word = f"{status.mark} {status.word}{', incomplete' if status.gaps else ''}"
    first, *rest = wrap_columns(escape_controls(cut_text(status.reason, _FAILURE)), width - display_width(word) - 2)
    indent = " " * (display_width(word) + 2)
    return [f"{style(word, 'good' if status.word == PASSED else 'bad')}  {first}", *(indent + line for line in rest)]


def _labelled_lines(rows: Iterable[tuple[str, str]], style: Style, width: int, indent: int = 0) -> list[str]:
    """Lines of label and text, texts aligned and broken where they are long."""
    pairs = list(rows)
    margin = max([_LABEL, *(display_width(label) for label, _ in pairs)]) + 2
    lines = []
    for label, text in pairs:
        first, *rest = wrap_columns(escape_controls(text), width - margin - indent)
        lines.append(" " * indent + style(label, "dim") + " " * (margin - display_width(label)) + first)
        lines += [" " * (indent + margin) + line for line in rest]
    return lines


def share_bar(part: int, whole: int, cells: int = 20) -> Bar:
    """A share drawn; full only where it is all, empty only where it is nothing.

    >>> share_bar(1, 1000, 5), share_bar(999, 1000, 5), share_bar(2, 2, 5)
    ('█····', '████·', '█████')
    """
    filled = round(cells * part / whole) if whole else 0
    # rounding must not make a failure look like none, nor one pass like nothing
    filled = min(max(filled, 1 if part else 0), cells if part == whole else cells - 1)
    share = part / whole if whole else 0.0
    return Bar.of("█" * filled + "·" * (cells - filled), (0.0, share, share))


def _group_lines(groups: list[GroupSummary], style: Style, width: int) -> list[str]:
    if not groups:
        return []
    grid = _group_grid(groups, width)
    lines = _color_marks(grid_lines(grid, style), style)
    if len(grid.rows) < len(groups):
        lines.append(style(f"the {len(grid.rows)} lowest of {len(groups):,} groups", "dim"))
    return lines


def _group_grid(groups: list[GroupSummary], width: int) -> Grid:
    gaps = any(g.unverified for g in groups)
    header = ("", "group", "type", "weight", "score", "passed", *(["unverified"] if gaps else []), "")
    right = tuple(h in ("weight", "score", "passed", "unverified") for h in header)
    listed = listed_groups(groups)
    cells = [
        (
            g.type.value,
            f"{g.weight:g}",
            format_number(g.score),
            f"{g.passed:,}/{g.total:,}",
            *([f"{g.unverified:,}"] if gaps else []),
            share_bar(g.passed, g.total, 20 if width >= 90 else 10),
        )
        for g in listed
    ]
    # two columns lie between the cells of a grid
    others = sum(2 + max(map(display_width, column)) for column in zip(header[2:], *cells, strict=True))
    rows = [
        (g.mark, shorten_name(g.name, max(12, width - 3 - others)), *rest)
        for g, rest in zip(listed, cells, strict=True)
    ]
    return Grid("", header, tuple(rows), right)


def _color_marks(lines: list[str], style: Style) -> list[str]:
    """The lines of a grid with their first character, a mark, in its colour."""
    roles = {"✓": "good", "✗": "bad", "?": "warn"}
    return [style(line[0], roles[line[0]]) + line[1:] if line[:1] in roles else line for line in lines]


def _estimate_parts(run: Run, style: Style, width: int, *, detailed: bool) -> list[list[str]]:
    """The estimates drawn as `kofn score` draws them; those of segments only in the detailed form."""
    if run.result is None:
        return []
    doc = result_document(run.result)
    head = [style(line, "strong") for line in wrap_columns(escape_controls(doc.headline[0]), width)]
    grids = [_grid_part(g, style, width) for g in doc.grids if detailed or "segment" not in g.header]
    notes = [(label, text) for label, text in doc.notes if label not in ("cost", "seconds")]  # among the facts
    return [[*head, *(grids[0] if grids else [])], *grids[1:], _labelled_lines(notes, style, width) if detailed else []]


def _grid_part(grid: Grid, style: Style, width: int) -> list[str]:
    """The lines of a grid from a stored run; of very many the first."""
    kept = replace(grid, title=escape_controls(grid.title), rows=grid.rows[:_ROWS])
    more = len(grid.rows) - _ROWS
    note = [style(f"and {more:,} more: --json has them all", "dim")] if more > 0 else []
    return [*grid_lines(_fit_grid(kept, width), style), *note]


def _fit_grid(grid: Grid, width: int) -> Grid:
    """The grid in at most `width` columns: long names shortened, then without the columns that matter least."""
    for name in _NAMES:
        grid = _shorten_column(grid, name, 36)
    # the columns that matter least, in the order in which they go
    for name in ("interval by", "missing", "cases"):
        if _grid_width(grid) > width:
            grid = _drop_column(grid, name)
    for name in _NAMES:
        if (over := _grid_width(grid) - width) > 0:
            longest = max(
                (display_width(row[grid.header.index(name)]) for row in grid.rows if name in grid.header), default=0
            )
            grid = _shorten_column(grid, name, max(10, longest - over))
    return grid


def _grid_width(grid: Grid) -> int:
    return max(display_width(line) for line in grid_lines(grid, lambda text, _: text))


def _shorten_column(grid: Grid, column: str, width: int) -> Grid:
    changed = [
        tuple(shorten(cell, width) if h == column else cell for h, cell in zip(grid.header, row, strict=True))
        for row in grid.rows
    ]
    return replace(grid, rows=tuple(changed))


def _drop_column(grid: Grid, column: str) -> Grid:
    keep = [i for i, h in enumerate(grid.header) if h != column]
    rows = tuple(tuple(row[i] for i in keep) for row in grid.rows)
    return Grid(grid.title, tuple(grid.header[i] for i in keep), rows, tuple(grid.right[i] for i in keep))


def _detailed_parts(run: Run, scores: pl.DataFrame, style: Style, limit: int, width: int) -> list[list[str]]:
    failing, total = failing_of(run, scores, limit)
    first = "" if len(failing) == total else f", the first {len(failing):,} shown" if failing else ", none shown"
    parts = [[style(f"failing cases: {total:,} of {scores.height:,}{first}", "strong")]]
    parts += [_case_lines(case, style, width) for case in failing]
    if failing and len(failing) < total:
        parts.append([style(f"and {total - len(failing):,} more: --limit {total} shows them all", "dim")])
    if not total:
        parts = [[style("no case fails", "good")]] if scores.height else []
    parts.append(_tally_lines(scores, style, width))
    return [*parts, _edge_lines(run, scores, style, width), _slowest_lines(scores, style, width)]


def _case_lines(case: FailingCase, style: Style, width: int) -> list[str]:
    about = [f"{shorten_name(case.group, 40)} ({case.type})", f"score {format_number(case.score)}"]
    about += [f"{len(case.attributes)} of {case.n_attributes} attributes wrong"] if case.n_attributes > 1 else []
    about += [format_duration(case.duration)] if case.duration else []
    about += [f"from {shorten(case.origin, 40)}"] if case.origin else []
    name, rest = shorten_name(case.id, 60), ", ".join(about)
    fits = display_width(name) + display_width(rest) + 4 <= width
    lines = [f"{style('✗', 'bad')} {style(name, 'strong')}" + (f"  {rest}" if fits else "")]
    lines += [] if fits else [f"  {line}" for line in wrap_columns(rest, width - 2)]
    label, text = case.about()
    labelled = [(label, cut_text(text, _INPUT)), ("ran", case.execution())]
    lines += _labelled_lines([(name, words) for name, words in labelled if words], style, width, 2)
    for attribute in case.attributes[:MOST_ATTRIBUTES]:
        lines += _attribute_lines(attribute, style, width)
    more = len(case.attributes) - MOST_ATTRIBUTES
    return [*lines, *([f"  and {more:,} more attributes"] if more > 0 else [])]


def _attribute_lines(attribute: WrongAttribute, style: Style, width: int) -> list[str]:
    values = (("expected", attribute.expected), ("actual", attribute.actual))
    rows = [(label, cut_text(text, _VALUE)) for label, text in values if text is not None]
    lines = [f"  {style('✗', 'bad')} {shorten_name(attribute.name, width - 6)}"]
    return [*lines, *_labelled_lines(rows, style, width, 4), *_diff_lines(attribute.diff, style, width)]


def _diff_lines(diff: str, style: Style, width: int) -> list[str]:
    """The diff under its label, lines that were added or removed in colour."""
    if not diff.strip():
        return []
    lines, left = cut_diff(diff)
    margin = 4 + _LABEL + 2
    content = [
        style(piece, role) if (role := _diff_role(line)) else piece
        for line in lines
        for piece in wrap_columns(escape_controls(line), width - margin)
    ]
    content += [style(cut_note(left), "dim")] if left else []
    label = "    " + style("diff", "dim") + " " * (_LABEL - 2)
    return [(label if i == 0 else " " * margin) + text for i, text in enumerate(content)]


def _diff_role(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "dim"
    return "added" if line.startswith("+") else "removed" if line.startswith("-") else ""


def _tally_lines(scores: pl.DataFrame, style: Style, width: int) -> list[str]:
    """Failures by type and by attribute, and the cases nobody verified."""
    rows = []
    for label, column in (("failures by type", "type"), ("failures by attribute", "failing")):
        if counts := failures_by(scores, column):
            text = ", ".join(f"{shorten_name(name, 40)} {n:,}" for name, n in counts[:10])
            rows.append((label, text + (f" and {len(counts) - 10:,} more" if len(counts) > 10 else "")))
    unverified = scores.filter(pl.col("score").is_null())["id"]
    if len(unverified):
        names = ", ".join(shorten_name(name, 40) for name in unverified.head(10).to_list())
        more = f" and {len(unverified) - 10:,} more" if len(unverified) > 10 else ""
        rows.append(("unverified cases", f"{len(unverified):,}: {names}{more}"))
    return _labelled_lines(rows, style, width)


def _edge_lines(run: Run, scores: pl.DataFrame, style: Style, width: int) -> list[str]:
    edge, total = edge_of(run, scores)
    if not edge:
        return []
    some = "1 case passes" if total == 1 else f"{total:,} cases pass"
    title = f"{some} with some candidates and {'fails' if total == 1 else 'fail'} with others; nearest to half:"
    room = (width - 46) // 2
    rows = [
        (
            "✓" if e.case_passes else "✗",
            shorten_name(e.id, room),
            shorten_name(e.group, room),
            f"{e.passing:,} of {e.graded:,} pass",
            shorten(e.candidates, 20),
        )
        for e in edge
    ]
    grid = Grid("", ("", "case", "group", "candidates", "in order"), tuple(rows), (False,) * 5)
    return [style(title, "strong"), *_color_marks(grid_lines(grid, style), style)]


def _slowest_lines(scores: pl.DataFrame, style: Style, width: int) -> list[str]:
    slowest = slowest_of(scores)
    if not slowest.height:
        return []
    room = (width - 20) // 2
    rows = [
        (
            ("✓" if case["passed"] else "?" if case["score"] is None else "✗"),
            shorten_name(case["id"], room),
            shorten_name(case["group"], room),
            format_duration(case["duration"]),
        )
        for case in slowest.iter_rows(named=True)
    ]
    grid = Grid("", ("", "case", "group", "time"), tuple(rows), (False, False, False, True))
    return [style("slowest cases", "strong"), *_color_marks(grid_lines(grid, style), style)]


def _judge_rows(run: Run) -> list[tuple[str, str]]:
    """What each judge says, and what people would."""
    rows = [
        (f"judge {judge['name']}", ", ".join(filter(None, [f"raw {judge['raw']}", f"corrected {judge['corrected']}"])))
        for judge in judge_rows(run)
    ]
    # "corrected not corrected" reads "not corrected"
    return [(name, text.replace("corrected not", "not")) for name, text in rows]


def _warning_lines(run: Run, style: Style, width: int) -> list[str]:
    warnings = () if run.result is None else run.result.warnings
    lines = []
    for warning in warnings:
        first, *rest = wrap_columns(escape_controls(cut_text(str(warning), _FAILURE)), width - 2)
        lines += [f"{style('!', 'warn')} {first}", *(f"  {line}" for line in rest)]
    return lines


def _file_lines(run: Run, style: Style, width: int, *, detailed: bool) -> list[str]:
    if run.path is None:
        return []
    rows = [("files", f"{run.path}: {', '.join(files_of(run))}")]
    if not detailed:
        rows.append(("more", "--detailed shows what failed; --html, --csv, --json and --markdown are other forms"))
    return _labelled_lines(rows, style, width)
