"""A trend as text for a terminal: a table per number, a sparkline, and what the runs say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.analysis.series import most_flaky, sparkline
from kofn.analysis.trend import FROM_REPORTS, change_verdict
from kofn.core.document import Document, Grid, display_width, grid_lines
from kofn.core.escape import escape_controls
from kofn.core.format import (
    format_cost,
    format_count,
    format_duration,
    format_interval,
    format_level,
    format_number,
    format_p,
    format_signed,
)
from kofn.render.run_text import shorten_name, wrap_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.analysis.series import Change, Spread
    from kofn.analysis.trend import MetricTrend, TaskTrend, Trend
    from kofn.runs.index import StoredRun
    from kofn.stats import Comparison

    Style = Callable[[str, str], str]

DROP_FIRST = ("cost", "time", "passed", "cases")  # columns to leave out where a terminal is narrow
_LABEL = 15
_ROLES = {"better": "good", "worse": "bad", "higher": "strong", "lower": "strong"}


def format_trend(found: Trend, style: Style = lambda text, _: text, *, width: int = 130) -> str:
    """Every task's section, as text of at most `width` columns where its table allows."""
    return "\n\n".join("\n".join(_section(part, style, width)) for part in found.tasks)


def trend_document(found: Trend) -> Document:
    """The same for a notebook: one table per number."""
    parts = [(part, f) for part in found.tasks for f in part.metrics]
    return Document(
        headline=tuple(task_title(part) for part in found.tasks),
        grids=tuple(_grid(part, f) for part, f in parts),
        notes=tuple(note for part in found.tasks for note in _cases_rows(part)),
        warnings=tuple(f"left out: {one.reason}" for one in found.left_out),
    )


def _grid(part: TaskTrend, f: MetricTrend) -> Grid:
    header, rows = _cells(part.runs, f)
    return Grid(f"{part.task}, {describe_metric(f)}", tuple(header), tuple(map(tuple, rows)),
                tuple(name not in ("", "run", "when") for name in header))  # fmt: skip


def _section(part: TaskTrend, style: Style, width: int) -> list[str]:
    lines = [style(line, "strong") for line in wrap_columns(task_title(part), width)]
    for f in part.metrics:
        lines += ["", *_series_lines(part, f, style, width)]
    return [*lines, "", *_labelled_lines(_cases_rows(part), style, width)]


def task_title(part: TaskTrend) -> str:
    """The task, how many runs, and from when to when."""
    days = list(dict.fromkeys(f"{r.when:%Y-%m-%d}" for r in (part.runs[0], part.runs[-1])))
    return f"{shorten_name(part.task, 60)}: {format_count(len(part.runs), 'run')}, {' to '.join(days)}"


def describe_metric(f: MetricTrend) -> str:
    """The number in words."""
    if f.name in FROM_REPORTS:
        return {
            "pass_rate": "pass_rate: the share of cases that pass",
            "score": "score: the report's, by group weight",
        }[f.name]
    way = {True: "higher is better", False: "lower is better", None: "neither more nor less is better"}
    metric = f" of metric {f.metric}" if f.metric else ""
    return f"{f.name}{metric}: {way[f.higher_is_better]}"


def _series_lines(part: TaskTrend, f: MetricTrend, style: Style, width: int) -> list[str]:
    lines = wrap_columns(escape_controls(describe_metric(f)), width)
    lines += _table(part.runs, f, style, width)
    rows = _series_rows(part, f)
    return [*lines, *([""] if rows else []), *_labelled_lines(rows, style, width)]


def run_times(runs: Sequence[StoredRun]) -> list[str]:
    """When each run was made: the day where every run has a day of its own, else the minute, UTC."""
    # two runs of one day need the time of day
    days = [f"{r.when:%Y-%m-%d}" for r in runs]
    return days if len(set(days)) == len(days) else [f"{r.when:%Y-%m-%d %H:%M}" for r in runs]


def change_mark(change: Change | None) -> str:
    """▲ up and ▼ down where a change is real, · where it may be noise."""
    if change is None or not change.comparison.n:
        return ""
    return "·" if not change.real else "▲" if change.sign > 0 else "▼"


def interval_heading(level: float | None) -> str:
    return "interval" if level is None else f"{format_level(level)} interval"


def _table(runs: Sequence[StoredRun], f: MetricTrend, style: Style, width: int) -> list[str]:
    header, rows = _cells(runs, f)
    unknown = {n for n in ("cost", "time") if all(row[header.index(n)] == "-" for row in rows)}
    for name in ("", *DROP_FIRST):
        unknown |= {name} - {""}
        kept = [i for i, h in enumerate(header) if h not in unknown]
        grid = Grid(
            "",
            tuple(header[i] for i in kept),
            tuple(tuple(row[i] for i in kept) for row in rows),
            tuple(header[i] not in ("", "run", "when") for i in kept),
        )
        lines = grid_lines(grid, lambda text, _: text)
        if max(display_width(line) for line in lines) <= width:
            break
    return _with_notes(lines, f, style, width)


def _cells(runs: Sequence[StoredRun], f: MetricTrend) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    header = ("run", "when", "value", interval_heading(f.level), "", "change", "95 % of change", "p", "cases", "passed",
              "cost", "time")  # fmt: skip
    rows = []
    for run, when, point, change in zip(runs, run_times(runs), f.series.points, f.series.changes, strict=True):
        e, c = point.estimate, change.comparison if change else None
        # the first run has nothing to compare with; "-" is a run that shares no case
        changed = ("", "", "", "") if c is None else ("-", "-", "-", "0") if not c.n else _change_cells(c, change)
        rows.append(
            (
                shorten_name(run.name, 32),
                when,
                format_number(e.point),
                format_interval(e.low, e.high),
                f"{change_mark(change)} {change_verdict(change, f.higher_is_better)}"
                if change and change.real
                else change_mark(change),
                *changed,
                f"{run.n_passed:,}/{len(run.cases):,}",
                format_cost(run.cost),
                format_duration(run.seconds),
            )
        )
    return header, rows


def _change_cells(c: Comparison, change: Change | None) -> tuple[str, ...]:
    p = change.p_holm if change else None
    return (format_signed(c.difference), format_interval(c.low, c.high), format_p(p), f"{c.n:,}")


def _with_notes(lines: list[str], f: MetricTrend, style: Style, width: int) -> list[str]:
    """The table with marks in colour, and under a run what is different about it."""
    out = [style(lines[0], "head")]
    for line, change, notes in zip(lines[1:], f.series.changes, f.notes, strict=True):
        word = change_verdict(change, f.higher_is_better) if change else ""
        if role := _ROLES.get(word, ""):
            before, mark, after = line.rpartition(
                f"{change_mark(change)} {word}"
            )  # the last: a run may be called so too
            line = before + style(mark, role) + after
        out.append(line)
        if notes:
            first, *rest = wrap_columns(escape_controls("; ".join(notes)), width - 5)
            out += [f"   {style('!', 'warn')} {first}", *(f"     {text}" for text in rest)]
    return out


def _labelled_lines(rows: Sequence[tuple[str, str]], style: Style, width: int) -> list[str]:
    lines = []
    for label, text in rows:
        first, *rest = wrap_columns(escape_controls(text), max(20, width - _LABEL))
        lines.append(style(label.ljust(_LABEL), "dim") + first)
        lines += [" " * _LABEL + line for line in rest]
    return lines


def _series_rows(part: TaskTrend, f: MetricTrend) -> list[tuple[str, str]]:
    values = [p.estimate.point for p in f.series.points]
    known = [v for v in values if v is not None]
    rows = []
    if len(known) > 1:
        scale = (
            f"from {format_number(min(known))} (▁) to {format_number(max(known))} (█)"
            if min(known) < max(known)
            else "all alike"
        )
        rows.append(("series", f"{sparkline(values)}  {scale}"))
    if f.series.overall is not None and len(known) > 2:
        rows.append(("first to last", overall_text(part, f)))
    rows += [("changes", changes_text(f))] if len(known) > 1 else []
    return rows + ([("spread", spread_text(f.series.spread, f.series.alpha))] if f.series.spread else [])


def overall_text(part: TaskTrend, f: MetricTrend) -> str:
    """The last run against the first, in one line."""
    change = f.series.overall
    assert change is not None
    c = change.comparison
    if not c.n:
        return "they have no case in common"
    word = change_verdict(change, f.higher_is_better)
    size = f"{format_signed(c.difference)} {format_interval(c.low, c.high)}"
    return f"{change_mark(change)} {size}, p {format_p(c.p)}, {c.n:,} cases: " + (
        "may be noise" if word == "noise" else f"the last run is {word} than {part.runs[change.against].name}"
    )


def changes_text(f: MetricTrend) -> str:
    """How many of the changes are real."""
    known = [c for c in f.series.changes if c is not None and c.comparison.n]
    real = [change_verdict(c, f.higher_is_better) for c in known if c.real]
    words = ", ".join(f"{real.count(word)} {word}" for word in dict.fromkeys(real))
    if not known:
        return "none to test: no run shares a case with the one before"
    first = f"{len(real)} of {len(known):,} real" + (f" ({words})" if words else "")
    return f"{first}; paired by case, p adjusted for {len(known):,} (Holm), real below {f.series.alpha:g}"


def spread_text(s: Spread, alpha: float) -> str:
    """How far the runs lie apart, and whether chance alone would do it."""
    if s.sd is None:
        return f"one value, {format_number(s.mean)}; its own standard error is {format_number(s.standard_error)}"
    ends = f"{format_number(s.low)} to {format_number(s.high)}"
    said = f"mean {format_number(s.mean)}, sd {format_number(s.sd)}, {ends} over {s.n:,} runs; "
    if s.p is None or s.noise is None:
        return said + "what chance alone would give cannot be told"
    source = "repeating the same cases" if s.same_cases else "drawing other cases of the same kind"
    alone = f"{source} alone would give sd {format_number(s.noise)} (p {format_p(s.p)})"
    if s.is_noise(alpha):
        return said + f"no larger than noise: {alone}"
    return said + f"larger than noise: {alone}"


def _cases_rows(part: TaskTrend) -> list[tuple[str, str]]:
    return [("across runs", across_text(part)), ("cases", cases_text(part)), *_flaky_rows(part)]


def across_text(part: TaskTrend) -> str:
    """The means over the runs of what every run has."""
    said = [f"mean pass rate {format_number(part.pass_rate)}"]
    said += [f"mean time {format_duration(part.seconds)}"] if part.seconds is not None else []
    said += [f"mean cost {format_cost(part.cost)}"] if part.cost is not None else []
    return ", ".join(said)


def cases_text(part: TaskTrend) -> str:
    n = part.counts
    some = f"{n['pass_in_some']:,} in some, {n['pass_in_none']:,} in none"
    said = f"{n['pass_in_all']:,} pass in every run that has them, {some}"
    return said + (f"; {n['unverified']:,} never verified" if n["unverified"] else "")


def _flaky_rows(part: TaskTrend) -> list[tuple[str, str]]:
    listed = most_flaky(part.cases)
    said = [
        f"{shorten_name(h.case, 40)} ({format_count(h.flips, 'flip')}, passes {h.passes:,} of {h.runs:,})"
        for h in listed
    ]
    more = sum(h.flips > 0 for h in part.cases) - len(listed)
    return [("flaky cases", ", ".join(said) + (f" and {more:,} more" if more else ""))] if said else []
