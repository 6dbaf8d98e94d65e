"""A best-of-n curve as text for a terminal: table, drawing and recommendation."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor, log
from textwrap import wrap
from typing import TYPE_CHECKING

from kofn.analysis.pass_curve import k_ladder
from kofn.core.document import Document, Grid, checklist_part, grid_lines, interval_cells
from kofn.core.escape import escape_controls
from kofn.core.format import (
    format_count,
    format_dollars,
    format_interval,
    format_level,
    format_number,
    format_rate,
    format_seconds,
)
from kofn.render.text_layout import fit_columns, insert_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.analysis.best_of import BestOf, BestOfRow
    from kofn.analysis.curve_report import BestOfReport
    from kofn.render.text_layout import Style

# columns to leave out where a terminal is narrow
DROP_FIRST = ("in sequence", "tokens", "gain a dollar", "gain a token", "independent", "seconds", "cost")
_MOST_ROWS = 24  # rows of the table; of more k a ladder is shown
_HEIGHT = 13  # lines of the drawing
_LABEL = 10
MARKS = {"any": "●", "beyond": "○", "corrected": "■", "selected": "◆", "majority": "▲", "independent": "×"}
_WORDS = {
    "any": "any@k",
    "beyond": "any@k, extrapolated",
    "corrected": "any@k, corrected",
    "selected": "selected@k",
    "majority": "maj@k",
    "independent": "if tries were independent",
}


def format_curve(
    found: BestOfReport, style: Style = lambda text, _: text, *, width: int = 120, checklist: bool = False
) -> str:
    """The whole of it, at most `width` columns wide where the table allows."""
    table = found.table
    lines = [style(line, "strong") for line in wrap(escape_controls(found.headline.text), width)]
    lines += wrap(escape_controls(curve_title(found)), width)
    grid = fit_columns(_grid(found), width, _drop_order(found))
    lines += ["", *grid_lines(grid, style), "", *draw_chart(table, width), ""]
    chosen = wrap(escape_controls(choice_sentence(found)), width, break_on_hyphens=False)
    lines += [style(line, "strong") for line in chosen]
    for label, text in _fact_rows(found):
        wrapped = _wrap_indented(escape_controls(text), _LABEL + 1, width)
        lines.append(f"{style(label.ljust(_LABEL), 'dim')} {wrapped}")
    if found.segments:
        lines += ["", *grid_lines(_segments(found), style)]
    warnings = [f"{style('!', 'warn')} {_wrap_indented(escape_controls(str(w)), 2, width)}" for w in found.warnings]
    checked = ["", *checklist_part(found.checklist, style, width, whole=checklist)] if found.checklist else []
    return "\n".join([*lines, *([""] if warnings else []), *warnings, *checked])


def curve_document(found: BestOfReport) -> Document:
    """The same for a notebook: any@k of every row drawn where the terminal has one chart of all."""
    grid, rows = _grid(found), _listed_rows(found.table)
    at = grid.header.index("any@k") + 1 if "any@k" in grid.header else 1
    bars = ["" if r.any is None else interval_cells(r.any_low, r.any, r.any_high, (0.0, 1.0)) for r in rows]
    main = insert_column(grid, at, "0  1", bars)
    return Document(
        headline=(found.headline.text, curve_title(found), choice_sentence(found)),
        grids=(main, _segments(found)) if found.segments else (main,),
        notes=tuple(_fact_rows(found)),
        warnings=tuple(map(str, found.warnings)),
        checklist=found.checklist,
    )


def curve_title(found: BestOfReport) -> str:
    """Whose curve it is, over how many cases."""
    table = found.table
    split = "" if found.split is None else f", {found.split.partition(':')[0]} cases only"
    by = "" if found.selector is None else f", selector {found.selector.name}"
    over = f"best of {table.measured[-1].k} over {format_count(table.n_cases, 'case')}{split}"
    return f"{found.name}: {over}, metric {found.metric}{by}"


def choice_sentence(found: BestOfReport) -> str:
    """The n to choose, as a sentence."""
    n = found.choice.n
    return f"choose n = {n}: {found.choice.reason}" if n is not None else f"no n is chosen: {found.choice.reason}"


def _wrap_indented(text: str, indent: int, width: int) -> str:
    return f"\n{' ' * indent}".join(wrap(text, width - indent, break_long_words=False, break_on_hyphens=False))


def _fact_rows(found: BestOfReport) -> list[tuple[str, str]]:
    """What candidates cost, what the selector makes of them, and what is to be noted: label and text."""
    rows = [*cost_rows(found.table), *selection_rows(found)]
    if found.table.rates is not None:
        s, t = found.table.rates
        rows.append(("judge", f"sensitivity {s:.3f}, specificity {t:.3f} on the labels"))
    return rows + [("note", str(note)) for note in found.table.notes]


def cost_rows(table: BestOf) -> list[tuple[str, str]]:
    """What a candidate costs and takes."""
    first, last = table.measured[0], table.measured[-1]
    out = []
    if table.cost is not None:
        out.append(("cost", f"{format_dollars(table.cost)} a candidate, {format_dollars(last.cost)} for {last.k}"))
    if table.tokens is not None:
        out.append(("tokens", f"{table.tokens:,.0f} a candidate, {last.tokens or 0:,.0f} for {last.k}"))
    if first.seconds is not None and last.seconds is not None:
        text = f"{format_seconds(first.seconds)} for one; {last.k} take {format_seconds(last.seconds)} side by side"
        out.append(("time", f"{text}, {format_seconds(last.seconds_sequential)} one after the other"))
    return out


def selection_rows(found: BestOfReport) -> list[tuple[str, str]]:
    """What the selector makes of all n."""
    s = found.selection
    if s is None or s.selected_pass.point is None or s.oracle.point is None or s.mean.point is None:
        return []
    others = f"a random one {s.mean.point:.3f}, the best {s.oracle.point:.3f}"
    said = f"its pick of all n passes {s.selected_pass.point:.3f}, {others}"
    if s.headroom.point is not None and s.headroom.low is not None and s.headroom.high is not None:
        said += f"; headroom {s.headroom.format()}"
    if s.regret.point is not None:
        said += f", regret {s.regret.point:.3f}"
    if s.agreement.point is not None and s.chance.point is not None:
        said += f"; where it matters ({s.agreement.n:,} cases) it is right in {s.agreement.point:.3f}"
        said += f", chance {s.chance.point:.3f}"
    return [("selector", said)]


# the table


def curve_cells(table: BestOf, level: float) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The header and a row a k; columns in which nothing is known are left out. ~ marks what is extrapolated."""
    per = {"dollars": "gain a dollar", "tokens": "gain a token", "candidates": ""}[table.unit]
    interval = f"{format_level(level)} interval"
    header = (
        "k", "any@k", interval, "corrected", "its interval", "independent", "selected@k", "maj@k",
        "gain", per, "cost", "tokens", "seconds", "in sequence",
    )  # fmt: skip
    rows = [_cells(row) for row in table.rows]
    used = [i for i, h in enumerate(header) if h and (i == 0 or any(row[i] != "-" for row in rows))]
    return tuple(header[i] for i in used), [tuple(row[i] for i in used) for row in rows]


def _cells(row: BestOfRow) -> tuple[str, ...]:
    return (
        f"~{row.k}" if row.extrapolated else f"{row.k}",
        format_number(row.any),
        format_interval(row.any_low, row.any_high),
        format_number(row.corrected),
        format_interval(row.corrected_low, row.corrected_high),
        format_number(row.independent),
        format_number(row.selected),
        format_number(row.majority),
        format_number(row.gain),
        "-" if row.gain_per_cost is None else format_rate(row.gain_per_cost),
        "-" if row.cost is None else format_dollars(row.cost),
        "-" if row.tokens is None else f"{row.tokens:,.0f}",
        "-" if row.seconds is None else f"{row.seconds:.3g}",
        "-" if row.seconds_sequential is None else f"{row.seconds_sequential:.3g}",
    )


def _grid(found: BestOfReport) -> Grid:
    """The rows that are listed, with every column in which something is known."""
    header, cells = curve_cells(found.table, found.level)
    listed = {row.k for row in _listed_rows(found.table)}
    rows = tuple(row for row, of in zip(cells, found.table.rows, strict=True) if of.k in listed)
    return Grid("", header, rows, (True,) * len(header))


def _drop_order(found: BestOfReport) -> list[str]:
    """Columns that go where a terminal is narrow, those that the choice rests on last."""
    bounds = found.bounds
    needed = {"in sequence" if bounds.sequential else "seconds"} if bounds.latency is not None else set()
    needed |= {"gain a dollar"} if bounds.gain is not None else set()
    needed |= {"cost"} if bounds.budget is not None else set()
    # sorting by a flag is stable: needed columns go last, the rest in the given order
    return sorted(DROP_FIRST, key=lambda name: name in needed)


def _listed_rows(table: BestOf) -> list[BestOfRow]:
    """Every k where they are few; else the ladder. What is extrapolated is always there."""
    ks = [row.k for row in table.measured]
    rungs = set(ks if len(ks) <= _MOST_ROWS else k_ladder(ks[-1]))
    return [row for row in table.rows if row.extrapolated or row.k in rungs]


# the drawing


def draw_chart(table: BestOf, width: int = 80) -> list[str]:
    """The curves as characters: a dot a k, the interval of any@k as a bar, what independence would give as crosses."""
    # the labels of the axis and its line
    across = min(width, 100) - 8
    rows = table.rows
    series = {name: _series(rows, name) for name in MARKS}
    ends = [v for points in series.values() for v in points.values()]
    ends += [v for row in rows for v in (row.any_low, row.any_high) if v is not None]
    if len(rows) < 2 or not ends:
        return []
    low, high = axis_range(ends)
    scale = _Scale([row.k for row in rows], low, high, across)
    grid = [[" "] * across for _ in range(_HEIGHT)]
    _draw(grid, rows, series, scale)
    lines = [
        f"{label} {'┤' if label.strip() else '│'}{''.join(line)}".rstrip()
        for label, line in zip(_ticks(scale), grid, strict=True)
    ]
    parts = [*(f"{MARKS[name]} {_WORDS[name]}" for name in MARKS if series[name]), "│ interval of any@k"]
    return [*lines, f"{'':5}└{'─' * across}", _axis(scale, across), *_legend(parts, width)]


def axis_range(ends: Sequence[float]) -> tuple[float, float]:
    """Round ends of an axis of shares, 0.05 or 0.1 apart, around all that is drawn.

    >>> axis_range([0.859, 1.0]), axis_range([0.31, 0.92]), axis_range([1.0])
    ((0.85, 1.0), (0.3, 1.0), (0.95, 1.0))
    """
    steps = 20 if max(ends) - min(ends) < 0.4 else 10
    # 1e-9: products such as 0.7 * 10 miss the whole number by rounding
    low, high = max(0, floor(min(ends) * steps + 1e-9)), min(steps, ceil(max(ends) * steps - 1e-9))
    low = low - 1 if low == high and low else low
    return low / steps, max(high, low + 1) / steps


def _legend(parts: Sequence[str], width: int) -> list[str]:
    """The key, broken between its parts."""
    lines: list[str] = []
    line = ""
    for part in parts:
        longer = f"{line}   {part}" if line else part
        if line and len(longer) > width - 6:
            lines, longer = [*lines, line], part
        line = longer
    return [f"{'':6}{text}" for text in (*lines, line)]


def _series(rows: Sequence[BestOfRow], name: str) -> dict[int, float]:
    """k -> value of one curve; any@k beyond what was measured is a curve of its own."""
    field = "any" if name == "beyond" else name
    kept = [row for row in rows if name == "independent" or row.extrapolated is (name == "beyond")]
    return {row.k: value for row in kept if (value := getattr(row, field)) is not None}


class _Scale:
    """From k to a column and from a value to a line; k on a log scale where there are many."""

    def __init__(self, ks: Sequence[int], low: float, high: float, across: int) -> None:
        self.low, self.high, self.ks = low, high, ks
        # as the ladder of k: beyond 16 in equal ratios
        self.log = ks[-1] > 16
        first, last = self._x(ks[0]), self._x(ks[-1])
        self.place = {k: 1 + round((self._x(k) - first) / (last - first) * (across - 4)) for k in ks}

    def _x(self, k: int) -> float:
        return log(k) if self.log else float(k)

    def line(self, value: float) -> int:
        at = (value - self.low) / (self.high - self.low)
        return _HEIGHT - 1 - round(min(1.0, max(0.0, at)) * (_HEIGHT - 1))


def _draw(grid: list[list[str]], rows: Sequence[BestOfRow], series: dict[str, dict[int, float]], scale: _Scale) -> None:
    """Bars first, then the lines between dots, then the dots, the most important last."""
    for row in rows:
        if row.any_low is not None and row.any_high is not None:
            for line in range(scale.line(row.any_high), scale.line(row.any_low) + 1):
                grid[line][scale.place[row.k]] = "┊" if row.extrapolated else "│"
    joined = sorted({**series["any"], **series["beyond"]}.items())
    for (k, a), (m, b) in pairwise(joined):
        left, right = scale.place[k], scale.place[m]
        for column in range(left + 1, right):
            grid[scale.line(a + (b - a) * (column - left) / (right - left))][column] = "·"
    # the most important last, so that it is drawn over the others
    for name in reversed(MARKS):
        for k, value in series[name].items():
            grid[scale.line(value)][scale.place[k]] = MARKS[name]


def _ticks(scale: _Scale) -> list[str]:
    """Round values beside the lines they fall on."""
    wide = scale.high - scale.low
    step = 0.2 if wide > 0.6 else 0.1 if wide > 0.3 else 0.05 if wide > 0.1 else 0.01
    labels = ["    "] * _HEIGHT
    for i in range(ceil(scale.low / step - 1e-9), floor(scale.high / step + 1e-9) + 1):
        labels[scale.line(i * step)] = f"{i * step:.2f}"
    return labels


def _axis(scale: _Scale, across: int) -> str:
    """The names of the k below their places, as many as have room."""
    line = [" "] * (across + 4)
    free = -1
    for k in scale.ks:
        text = str(k)
        start = scale.place[k] - len(text) // 2
        # one column between two names
        if start > free and start + len(text) <= len(line):
            line[start : start + len(text)] = text
            free = start + len(text)
    return (f"{'':6}" + "".join(line)).rstrip() + "  k"


# segments


def _segments(found: BestOfReport) -> Grid:
    """A row a segment: its ends, and the n to choose there."""
    name = {"any": "any", "selected": "selected", "majority": "maj"}[found.table.measure]
    rows = tuple(
        (
            f"{row['by']}={row['segment']}{'*' if row['few'] else ''}",
            row["cases"],
            row["first"],
            f"{row['last']} (k = {row['k']})",
            row["interval"],
            row["independent"],
            row["choose"] or "-",
        )
        for row in segment_rows(found)
    )
    header = ("segment", "cases", f"{name}@1", f"{name}@n", "interval", "independent", "choose")
    return Grid("by segment", header, rows, (False, True, True, True, True, True, True))


def segment_rows(found: BestOfReport) -> list[dict[str, str]]:
    """Every segment in words: its ends, and the n to choose there, empty where there is none."""
    measure, out = found.table.measure, []
    for one in found.segments:
        first, last = one.table.measured[0], one.table.measured[-1]
        out.append(
            {
                "by": one.by,
                "segment": str(one.table.segment),
                "few": "few cases" if one.few else "",
                "cases": f"{one.table.n_cases:,}",
                "first": format_number(first.value(measure)),
                "last": format_number(last.value(measure)),
                "k": str(last.k),
                "interval": interval_of(last, measure),
                "independent": format_number(last.independent),
                "choose": "" if one.choice.n is None else str(one.choice.n),
            }
        )
    return out


def interval_of(row: BestOfRow, field: str) -> str:
    """The interval of one of a row's values, such as `any`."""
    return format_interval(getattr(row, f"{field}_low"), getattr(row, f"{field}_high"))
