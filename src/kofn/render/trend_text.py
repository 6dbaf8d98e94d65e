"""A trend as text for a terminal: a table per number, a sparkline, and what the runs say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.analysis.series import most_flaky, sparkline
from kofn.analysis.trend import FROM_REPORTS, change_verdict
from kofn.core.document import Document, Grid, grid_lines
from kofn.core.escape import escape_controls
from kofn.core.format import (
    format_cost,
    format_count,
    format_duration,
    format_interval,
    format_level,
    format_number,
    format_p,
    format_p_in_text,
    format_signed,
)
from kofn.render.text_layout import (
    color_mark,
    fit_columns,
    hanging_lines,
    labelled_lines,
    shorten_name,
    styled_lines,
    without_columns,
    wrap_columns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.analysis.series import Change, Spread
    from kofn.analysis.trend import MetricTrend, TaskTrend, Trend
    from kofn.render.text_layout import Style
    from kofn.runs.index import StoredRun

DROP_FIRST = ("cost", "time", "passed", "cases")  # columns to leave out where a terminal is narrow
_LABEL = 15


def format_trend(found: Trend, style: Style = lambda text, _: text, *, width: int = 130) -> str:
    """Every task's section, as text of at most `width` columns where its table allows."""
    return "\n\n".join("\n".join(_section(part, style, width)) for part in found.tasks)


def trend_document(found: Trend) -> Document:
    """The same for a notebook: one table per number."""
    parts = [(part, f) for part in found.tasks for f in part.metrics]
    return Document(
        headline=(found.headline.text, *(task_title(part) for part in found.tasks)),
        grids=tuple(_grid(part.runs, f, f"{part.task}, {describe_metric(f)}") for part, f in parts),
        notes=tuple(note for part in found.tasks for note in _cases_rows(part)),
        warnings=tuple(f"left out: {one.reason}" for one in found.left_out),
    )


def _section(part: TaskTrend, style: Style, width: int) -> list[str]:
    lines = styled_lines(part.headline.text, style, "strong", width)
    lines += wrap_columns(escape_controls(task_title(part)), width)
    for f in part.metrics:
        lines += ["", *wrap_columns(escape_controls(describe_metric(f)), width), *_table(part.runs, f, style, width)]
        rows = _series_rows(part, f)
        lines += ["", *labelled_lines(rows, style, width, _LABEL)] if rows else []
    return [*lines, "", *labelled_lines(_cases_rows(part), style, width, _LABEL)]


def task_title(part: TaskTrend) -> str:
    """The task, how many runs, and from when to when."""
    days = list(dict.fromkeys(f"{r.when:%Y-%m-%d}" for r in (part.runs[0], part.runs[-1])))
    return f"{shorten_name(part.title, 80)}: {format_count(len(part.runs), 'run')}, {' to '.join(days)}"


def describe_metric(f: MetricTrend) -> str:
    """The number in words."""
    if f.name in FROM_REPORTS:
        what = "the share of cases that pass" if f.name == "pass_rate" else "the report's, by group weight"
        return f"{f.name}: {what}"
    way = {True: "higher is better", False: "lower is better", None: "neither more nor less is better"}
    metric = f" of metric {f.metric}" if f.metric else ""
    return f"{f.name}{metric}: {way[f.higher_is_better]}"


def run_times(runs: Sequence[StoredRun]) -> list[str]:
    """When each run was made: the day where every run has a day of its own, else the minute, UTC."""
    # two runs of one day need the time of day
    days = [f"{r.when:%Y-%m-%d}" for r in runs]
    return days if len(set(days)) == len(days) else [f"{r.when:%Y-%m-%d %H:%M}" for r in runs]


def change_mark(change: Change | None) -> str:
    """▲ up and ▼ down where a change is significant, · where it is not."""
    if change is None or not change.comparison.n:
        return ""
    return "·" if not change.real else "▲" if change.sign > 0 else "▼"


def interval_heading(level: float | None) -> str:
    return "interval" if level is None else f"{format_level(level)} interval"


def _table(runs: Sequence[StoredRun], f: MetricTrend, style: Style, width: int) -> list[str]:
    """The table with marks in colour, and under a run what is different about it."""
    grid = _grid(runs, f)
    columns = dict(zip(grid.header, zip(*grid.rows, strict=True), strict=True))
    grid = without_columns(grid, [name for name in ("cost", "time") if set(columns[name]) == {"-"}])
    head, *lines = grid_lines(fit_columns(grid, width, DROP_FIRST), lambda text, _: text)
    out = [style(head, "head")]
    for line, change, notes in zip(lines, f.series.changes, f.notes, strict=True):
        word = change_verdict(change, f.higher_is_better) if change else ""
        out.append(color_mark(line, f"{change_mark(change)} {word}", word, style))
        out += hanging_lines(f"   {style('!', 'warn')} ", "; ".join(notes), 5, width) if notes else []
    return out


def _grid(runs: Sequence[StoredRun], f: MetricTrend, title: str = "") -> Grid:
    header = ("run", "when", "value", interval_heading(f.level), "", "change", "95% of change", "p", "cases", "passed",
              "cost", "time")  # fmt: skip
    rows = []
    for run, when, point, change in zip(runs, run_times(runs), f.series.points, f.series.changes, strict=True):
        e, mark = point.estimate, change_mark(change)
        # the first run has nothing to compare with; "-" is a run that shares no case
        changed = ("", "", "", "") if change is None else ("-", "-", "-", "0")
        if change is not None and change.comparison.n:
            c = change.comparison
            ends = format_interval(c.low, c.high)
            changed = (format_signed(c.difference), ends, format_p(change.p_holm), f"{c.n:,}")
        rows.append(
            (
                shorten_name(run.name, 32),
                when,
                format_number(e.point),
                format_interval(e.low, e.high),
                f"{mark} {change_verdict(change, f.higher_is_better)}" if change and change.real else mark,
                *changed,
                f"{run.n_passed:,}/{len(run.cases):,}",
                format_cost(run.cost),
                format_duration(run.seconds),
            )
        )
    return Grid(title, header, tuple(rows), tuple(name not in ("", "run", "when") for name in header))


def _series_rows(part: TaskTrend, f: MetricTrend) -> list[tuple[str, str]]:
    values = [p.estimate.point for p in f.series.points]
    known = [v for v in values if v is not None]
    rows = []
    if len(known) > 1:
        low, high = min(known), max(known)
        scale = f"from {format_number(low)} (▁) to {format_number(high)} (█)" if low < high else "all alike"
        rows.append(("series", f"{sparkline(values)}  {scale}"))
    if f.series.overall is not None and len(known) > 2:
        rows.append(("first to last", overall_text(part, f, f.series.overall)))
    rows += [("changes", changes_text(f))] if len(known) > 1 else []
    return rows + ([("spread", spread_text(f.series.spread, f.series.alpha))] if f.series.spread else [])


def overall_text(part: TaskTrend, f: MetricTrend, change: Change) -> str:
    """The last run against the first, in one line."""
    c = change.comparison
    if not c.n:
        return "they have no case in common"
    word = change_verdict(change, f.higher_is_better)
    size = f"{format_signed(c.difference)} {format_interval(c.low, c.high)}"
    return f"{change_mark(change)} {size}, {format_p_in_text(c.p)}, {c.n:,} cases: " + (
        {"noise": "not significant", "too few cases": "too few cases to tell"}.get(word)
        or f"the last run is {word} than {part.runs[change.against].name}"
    )


def changes_text(f: MetricTrend) -> str:
    """How many of the changes are real."""
    known = [c for c in f.series.changes if c is not None and c.comparison.n]
    real = [change_verdict(c, f.higher_is_better) for c in known if c.real]
    words = ", ".join(f"{real.count(word)} {word}" for word in dict.fromkeys(real))
    if not known:
        return "none to test: no run shares a case with the one before"
    first = f"{len(real)} of {len(known):,} significant" + (f" ({words})" if words else "")
    return f"{first}; paired by case, p adjusted for {len(known):,} (Holm), significant below {f.series.alpha:g}"


def spread_text(s: Spread, alpha: float) -> str:
    """How far the runs lie apart, and whether chance alone would do it."""
    if s.sd is None:
        return f"one value, {format_number(s.mean)}; its own standard error is {format_number(s.standard_error)}"
    ends = f"{format_number(s.low)} to {format_number(s.high)}"
    said = f"mean {format_number(s.mean)}, sd {format_number(s.sd)}, {ends} over {s.n:,} runs; "
    if s.p is None or s.noise is None:
        return said + "what chance alone would give cannot be told"
    source = "repeating the same cases" if s.same_cases else "drawing other cases of the same kind"
    size = "no larger" if s.is_noise(alpha) else "larger"
    return f"{said}{size} than noise: {source} alone would give sd {format_number(s.noise)} ({format_p_in_text(s.p)})"


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
    said = [
        f"{shorten_name(h.case, 40)} ({format_count(h.flips, 'flip')}, passes {h.passes:,} of {h.runs:,})"
        for h in most_flaky(part.cases)
    ]
    more = sum(h.flips > 0 for h in part.cases) - len(said)
    return [("flaky cases", ", ".join(said) + (f" and {more:,} more" if more else ""))] if said else []
