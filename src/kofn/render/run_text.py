"""A run as text for a terminal: a summary, or with `detailed` every failure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from kofn.core.document import Bar, Document, Grid, checklist_part, display_width, grid_lines
from kofn.core.escape import escape_controls
from kofn.core.format import format_duration, format_number
from kofn.render.result_text import result_document
from kofn.render.run_summary import (
    EQUAL,
    LIMIT,
    MOST_ATTRIBUTES,
    NOT_CORRECTED,
    PASSED,
    TOP,
    cut_diff,
    cut_note,
    cut_text,
    facts_of,
    failing_of,
    failures_by,
    files_of,
    group_grid,
    groups_of,
    judge_rows,
    listed_groups,
    parent_lines,
    slowest_of,
    status_of,
)
from kofn.render.text_layout import (
    fit_columns,
    grid_width,
    hanging_lines,
    insert_column,
    labelled_lines,
    shorten,
    shorten_name,
    styled_lines,
    warning_lines,
    without_columns,
    wrap_columns,
)
from kofn.runs.case_reports import case_scores

if TYPE_CHECKING:
    from kofn.render.run_summary import FailingCase, GroupSummary
    from kofn.render.text_layout import Style
    from kofn.runs.record import Run

_VALUE, _INPUT, _FAILURE = 240, 200, 400  # characters that are shown
_ROWS = 100  # of a grid
_NAMES = ("segment", "aggregator")


def format_run(
    run: Run,
    style: Style = lambda text, _: text,
    *,
    detailed: bool = False,
    limit: int = LIMIT,
    width: int = 100,
    checklist: bool = False,
) -> str:
    """The run as text of at most `width` columns, with `checklist` every line of that too. `style` may add colour.

    Roles: strong, head, dim, warn, good, bad, added, removed.
    """
    scores = case_scores(run.reports)
    status, result = status_of(run), run.result
    first = [] if result is None else styled_lines(run.headline.text, style, "strong", width)
    ruling = style(status.ruling, "good" if status.word == PASSED else "bad") + "  "
    reason = hanging_lines(ruling, cut_text(status.reason, _FAILURE), display_width(status.ruling) + 2, width)
    parts = [
        [*first, *(reason if status.defined else [])],
        labelled_lines(facts_of(run), style, width),
        _group_lines(_shown_groups(run, scores), style, width),
        *_estimate_parts(run, style, width, detailed=detailed),
    ]
    if detailed:
        parts += _detailed_parts(run, scores, style, limit, width)
    parts += [labelled_lines(_judge_rows(run), style, width), parent_lines(run.manifest.get("parent"), style)]
    if result is not None:
        parts.append(warning_lines([cut_text(str(w), _FAILURE) for w in result.warnings], style, width))
        parts.append(checklist_part(result.checklist, style, width, whole=checklist))
    more = [("more", "--detailed shows what failed; --html, --csv, --json and --markdown are other forms")]
    files = _file_rows(run)
    parts.append(labelled_lines(files + (more if files and not detailed else []), style, width))
    return "\n\n".join("\n".join(part) for part in parts if part)


def run_document(run: Run) -> Document:
    """The same for a notebook, without what --detailed shows."""
    status, result = status_of(run), run.result
    groups = groups_of(run, case_scores(run.reports))
    grids = [_group_grid(groups, 200)] if len(groups) > 1 else []
    about = Document((), (), (), ()) if result is None else result_document(result)
    return Document(
        headline=(*about.headline[:1], *([f"{status.ruling}: {status.reason}"] if status.defined else [])),
        grids=(*about.grids, *grids),
        notes=(*facts_of(run), *_judge_rows(run), *_file_rows(run)),
        warnings=about.warnings,
        checklist=about.checklist,
    )


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


def _shown_groups(run: Run, scores: pl.DataFrame) -> list[GroupSummary]:
    """The groups; not a single one of a run without a verdict, which says what the estimates say."""
    groups = groups_of(run, scores)
    return groups if len(groups) > 1 or run.defines_verdict else []


def _group_lines(groups: list[GroupSummary], style: Style, width: int) -> list[str]:
    if not groups:
        return []
    lines = _marked_lines(_group_grid(groups, width), style)
    listed = len(listed_groups(groups))
    return lines if listed == len(groups) else [*lines, style(f"the {listed} lowest of {len(groups):,} groups", "dim")]


def _group_grid(groups: list[GroupSummary], width: int) -> Grid:
    """The groups with their shares drawn; names have the room that the other columns leave."""
    grid = group_grid(groups, lambda name: name or '""')
    bars = [share_bar(g.passed, g.total, 20 if width >= 90 else 10) for g in listed_groups(groups)]
    grid = insert_column(grid, len(grid.header), "", bars)
    return _shorten_column(grid, "group", max(12, width - 2 - grid_width(without_columns(grid, {"group"}))))


def _marked_lines(grid: Grid, style: Style) -> list[str]:
    """The lines of a grid with their first character, a mark, in its colour."""
    roles = {"✓": "good", "✗": "bad", "?": "warn"}
    lines = grid_lines(grid, style)
    return [style(line[0], roles[line[0]]) + line[1:] if line[:1] in roles else line for line in lines]


def _estimate_parts(run: Run, style: Style, width: int, *, detailed: bool) -> list[list[str]]:
    """The estimates drawn as `kofn score` draws them; those of segments only in the detailed form."""
    if run.result is None:
        return []
    doc = result_document(run.result)
    grids = [_grid_part(g, style, width) for g in doc.grids if detailed or "segment" not in g.header]
    notes = [(label, text) for label, text in doc.notes if label not in ("cost", "seconds")]  # among the facts
    shown = [(label, text) for label, text in notes if detailed or label == EQUAL]
    return [*grids, labelled_lines(shown, style, width)]


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
    grid = fit_columns(grid, width, ("interval by", "missing", "cases"))
    for name in _NAMES:
        if name in grid.header and (over := grid_width(grid) - width) > 0:
            longest = max(display_width(row[grid.header.index(name)]) for row in grid.rows)
            grid = _shorten_column(grid, name, max(10, longest - over))
    return grid


def _shorten_column(grid: Grid, column: str, width: int) -> Grid:
    changed = [
        tuple(shorten(cell, width) if h == column else cell for h, cell in zip(grid.header, row, strict=True))
        for row in grid.rows
    ]
    return replace(grid, rows=tuple(changed))


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
    lines += labelled_lines([(name, words) for name, words in labelled if words], style, width, indent=2)
    for attribute in case.attributes[:MOST_ATTRIBUTES]:
        lines.append(f"  {style('✗', 'bad')} {shorten_name(attribute.name, width - 6)}")
        values = (("expected", attribute.expected), ("actual", attribute.actual))
        rows = [(label, cut_text(text, _VALUE)) for label, text in values if text is not None]
        lines += [*labelled_lines(rows, style, width, indent=4), *_diff_lines(attribute.diff, style, width)]
    more = len(case.attributes) - MOST_ATTRIBUTES
    return [*lines, *([f"  and {more:,} more attributes"] if more > 0 else [])]


def _diff_lines(diff: str, style: Style, width: int) -> list[str]:
    """The diff under its label, lines that were added or removed in colour."""
    if not diff.strip():
        return []
    lines, left = cut_diff(diff)
    label, margin = "    " + style("diff", "dim") + " " * 8, 16
    content = []
    for line in lines:
        role = "dim" if line.startswith(("+++", "---", "@@")) else {"+": "added", "-": "removed"}.get(line[:1])
        pieces = wrap_columns(escape_controls(line), width - margin)
        content += [style(piece, role) if role else piece for piece in pieces]
    content += [style(cut_note(left), "dim")] if left else []
    return [(" " * margin if i else label) + text for i, text in enumerate(content)]


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
    return labelled_lines(rows, style, width)


def _edge_lines(run: Run, scores: pl.DataFrame, style: Style, width: int) -> list[str]:
    """The cases that pass with some candidates and fail with others, nearest to half first.

    Another draw of candidates may turn these. Nothing for runs without candidates, or with one a case.
    """
    scored = run.result.scored if run.result is not None else ()
    if not scored or not scored[0].metric or len(scored[0].sets) != scores.height:
        return []
    sets = scored[0].sets
    graded, passing = sets.counts
    mixed = np.flatnonzero((passing > 0) & (passing < graded))
    if not len(mixed):
        return []
    # the distance of passing/graded from one half, times two
    near = mixed[np.argsort(np.abs(2 * passing[mixed] - graded[mixed]) / graded[mixed], kind="stable")][:TOP]
    some, fail = ("1 case passes", "fails") if len(mixed) == 1 else (f"{len(mixed):,} cases pass", "fail")
    title = f"{some} with some candidates and {fail} with others; nearest to half:"
    room = (width - 46) // 2
    rows = []
    for i in near.tolist():
        passes = sets.passes[sets.offsets[i] : sets.offsets[i + 1]].tolist()
        marks = "".join({1: "✓", 0: "✗", -1: "?"}[passed] for passed in passes)
        names = (shorten_name(scores[name][i], room) for name in ("id", "group"))
        counts = f"{passing[i]:,} of {graded[i]:,} pass"
        rows.append(("✓" if scores["passed"][i] else "✗", *names, counts, shorten(marks, 20)))
    return _marked_lines(Grid(title, ("", "case", "group", "candidates", "in order"), tuple(rows), (False,) * 5), style)


def _slowest_lines(scores: pl.DataFrame, style: Style, width: int) -> list[str]:
    slowest = slowest_of(scores)
    if not slowest.height:
        return []
    room = (width - 20) // 2
    rows = tuple(
        (
            "✓" if case["passed"] else "?" if case["score"] is None else "✗",
            shorten_name(case["id"], room),
            shorten_name(case["group"], room),
            format_duration(case["duration"]),
        )
        for case in slowest.iter_rows(named=True)
    )
    grid = Grid("slowest cases", ("", "case", "group", "time"), rows, (False, False, False, True))
    return _marked_lines(grid, style)


def _judge_rows(run: Run) -> list[tuple[str, str]]:
    """What each judge says, and what people would."""
    rows = []
    for judge in judge_rows(run):
        said = judge["corrected"] if judge["corrected"] == NOT_CORRECTED else f"corrected {judge['corrected']}"
        rows.append((f"judge {judge['name']}", f"raw {judge['raw']}, {said}, cost {judge['cost']}"))
    return rows


def _file_rows(run: Run) -> list[tuple[str, str]]:
    return [] if run.path is None else [("files", f"{run.path}: {', '.join(files_of(run))}")]
