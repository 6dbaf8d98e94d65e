"""A best-of-n curve for somebody at a terminal: a table by k, a drawing, the choice in a sentence."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor, log
from textwrap import wrap
from typing import TYPE_CHECKING

from kofn.choices import dear, dollars, seconds
from kofn.curves import ladder
from kofn.diagnose import counted
from kofn.present import Document, Grid, checklist_lines, columns, drawn, grid_lines, safe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.best_of import BestOf, Row
    from kofn.report.curve import Found

    Style = Callable[[str, str], str]

LEAST = ("in sequence", "tokens", "gain a dollar", "gain a token", "independent", "seconds", "cost")  # go first
_MOST_ROWS = 24
_HEIGHT = 13
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


def as_text(found: Found, style: Style = lambda text, _: text, *, width: int = 100) -> str:
    """The whole of it, at most `width` columns wide where the table allows."""
    table = found.table
    lines = [style(line, "strong") for line in wrap(safe(headline(found)), width)]
    lines += ["", *_table(found, style, width), "", *chart(table, width)]
    lines += ["", *_said(choice_words(found), style, width)]
    lines += _labelled([*cost_rows(table), *selection_rows(found), *note_rows(table)], style, width)
    if found.segments:
        lines += ["", *grid_lines(_segments(found), style)]
    warnings = [f"{style('!', 'warn')} {_set_in(safe(w), 2, width)}" for w in found.warnings]
    checked = ["", *checklist_lines(found.checklist, style, width)] if found.checklist else []
    return "\n".join([*lines, *([""] if warnings else []), *warnings, *checked])


def document(found: Found) -> Document:
    """The same for a notebook: any@k of every row drawn where the terminal has one chart of all."""
    table = found.table
    header, rows = cells(table, found.level)
    at = header.index("any@k") + 1 if "any@k" in header else 1
    drawings = ["" if r.any is None else drawn(r.any_low, r.any, r.any_high, (0.0, 1.0)) for r in table.rows]
    shown = set(_shown(table))
    kept = [
        (*row[:at], bar, *row[at:]) for row, bar, of in zip(rows, drawings, table.rows, strict=True) if of.k in shown
    ]
    main = Grid(
        "", (*header[:at], "0  1", *header[at:]), tuple(kept), (True,) * at + (False,) + (True,) * len(header[at:])
    )
    return Document(
        headline=(headline(found), choice_words(found)),
        grids=(main, _segments(found)) if found.segments else (main,),
        notes=(*cost_rows(table), *selection_rows(found), *note_rows(table)),
        warnings=found.warnings,
        checklist=found.checklist,
    )


def headline(found: Found) -> str:
    """Whose curve it is, over how many cases."""
    table = found.table
    split = "" if found.split is None else f", {found.split.partition(':')[0]} cases only"
    by = "" if found.selector is None else f", selector {found.selector.name}"
    over = f"best of {table.measured[-1].k} over {counted(table.n_cases, 'case')}{split}"
    return f"{found.name}: {over}, metric {found.metric}{by}"


def choice_words(found: Found) -> str:
    """The n to choose, as a sentence."""
    n = found.choice.n
    return f"choose n = {n}: {found.choice.reason}" if n is not None else f"no n is chosen: {found.choice.reason}"


def _said(text: str, style: Style, width: int) -> list[str]:
    return [style(line, "strong") for line in wrap(safe(text), width, break_on_hyphens=False)]


def _set_in(text: str, indent: int, width: int) -> str:
    return f"\n{' ' * indent}".join(wrap(text, width - indent, break_long_words=False, break_on_hyphens=False))


def _labelled(rows: Sequence[tuple[str, str]], style: Style, width: int) -> list[str]:
    return [f"{style(name.ljust(_LABEL), 'dim')} {_set_in(safe(text), _LABEL + 1, width)}" for name, text in rows]


def cost_rows(table: BestOf) -> list[tuple[str, str]]:
    """What a candidate costs and takes."""
    first, last = table.measured[0], table.measured[-1]
    out = []
    if table.cost is not None:
        out.append(("cost", f"{dollars(table.cost)} a candidate, {dollars(last.cost)} for {last.k}"))
    if table.tokens is not None:
        out.append(("tokens", f"{table.tokens:,.0f} a candidate, {last.tokens or 0:,.0f} for {last.k}"))
    if first.seconds is not None and last.seconds is not None:
        text = f"{seconds(first.seconds)} for one; {last.k} take {seconds(last.seconds)} side by side"
        out.append(("time", f"{text}, {seconds(last.seconds_sequential)} one after the other"))
    return out


def selection_rows(found: Found) -> list[tuple[str, str]]:
    """What the selector makes of all n."""
    s = found.selection
    if s is None or s.selected.point is None or s.oracle.point is None or s.mean.point is None:
        return []
    others = f"a random one {s.mean.point:.3f}, the best {s.oracle.point:.3f}"
    said = f"its pick of all n passes {s.selected.point:.3f}, {others}"
    if s.headroom.point is not None and s.headroom.low is not None and s.headroom.high is not None:
        said += f"; headroom {s.headroom.point:.3f} [{s.headroom.low:.3f}, {s.headroom.high:.3f}]"
    if s.regret.point is not None:
        said += f", regret {s.regret.point:.3f}"
    if s.agreement.point is not None and s.chance.point is not None:
        said += f"; where it matters ({s.agreement.n:,} cases) it is right in {s.agreement.point:.3f}"
        said += f", chance {s.chance.point:.3f}"
    return [("selector", said)]


def note_rows(table: BestOf) -> list[tuple[str, str]]:
    rows = []
    if table.rates is not None:
        s, t = table.rates
        rows.append(("judge", f"sensitivity {s:.3f}, specificity {t:.3f} on the labels"))
    return rows + [("note", note) for note in table.notes]


# the table


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def between(low: float | None, high: float | None) -> str:
    """The ends of an interval; what rounds to 0 has no sign.

    >>> between(-0.0001, 0.3), between(None, None)
    ('[0.000, 0.300]', '-')
    """
    return "-" if low is None or high is None else f"[{low:z.3f}, {high:z.3f}]"


def cells(table: BestOf, level: float) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The header and a row a k; columns in which nothing is known are left out. ~ marks what is extrapolated."""
    per = {"dollars": "gain a dollar", "tokens": "gain a token", "candidates": ""}[table.unit]
    header = (
        "k", "any@k", f"{100 * level:g} % interval", "corrected", "its interval", "independent", "selected@k", "maj@k",
        "gain", per, "cost", "tokens", "seconds", "in sequence",
    )  # fmt: skip
    rows = [_cells(row) for row in table.rows]
    used = [i for i, h in enumerate(header) if h and (i == 0 or any(row[i] != "-" for row in rows))]
    return tuple(header[i] for i in used), [tuple(row[i] for i in used) for row in rows]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"~{row.k}" if row.extrapolated else f"{row.k}",
        number(row.any),
        between(row.any_low, row.any_high),
        number(row.corrected),
        between(row.corrected_low, row.corrected_high),
        number(row.independent),
        number(row.selected),
        number(row.majority),
        number(row.gain),
        "-" if row.gain_per_cost is None else dear(row.gain_per_cost),
        "-" if row.cost is None else dollars(row.cost),
        "-" if row.tokens is None else f"{row.tokens:,.0f}",
        "-" if row.seconds is None else f"{row.seconds:.3g}",
        "-" if row.seconds_sequential is None else f"{row.seconds_sequential:.3g}",
    )


def _table(found: Found, style: Style, width: int) -> list[str]:
    table = found.table
    header, rows = cells(table, found.level)
    shown = set(_shown(table))
    rows = [row for row, of in zip(rows, table.rows, strict=True) if of.k in shown]
    gone: set[str] = set()
    for name in ("", *_least(found)):
        gone |= {name}
        kept = [i for i, h in enumerate(header) if h not in gone]
        grid = Grid(
            "",
            tuple(header[i] for i in kept),
            tuple(tuple(row[i] for i in kept) for row in rows),
            tuple(True for _ in kept),
        )
        if max(columns(line) for line in grid_lines(grid, lambda text, _: text)) <= width:
            break
    return grid_lines(grid, style)


def _least(found: Found) -> list[str]:
    """Columns that go where a terminal is narrow, those that the choice rests on last."""
    wanted = found.wanted
    needed = {"in sequence" if wanted.sequential else "seconds"} if wanted.latency is not None else set()
    needed |= {"gain a dollar"} if wanted.gain is not None else set()
    needed |= {"cost"} if wanted.budget is not None else set()
    return sorted(LEAST, key=lambda name: name in needed)


def _shown(table: BestOf) -> list[int]:
    """Every k where they are few; else the ladder. What is extrapolated is always there."""
    measured = [row.k for row in table.measured]
    beyond = [row.k for row in table.rows if row.extrapolated]
    if len(measured) <= _MOST_ROWS:
        return measured + beyond
    rungs = set(ladder(measured[-1]))
    return [k for k in measured if k in rungs] + beyond


# the drawing


def chart(table: BestOf, width: int = 80) -> list[str]:
    """The curves as characters: a dot a k, the interval of any@k as a bar, what independence would give as crosses."""
    across = min(width, 100) - 8
    rows = table.rows
    series = {name: _series(rows, name) for name in MARKS}
    ends = [v for points in series.values() for v in points.values()]
    ends += [v for row in rows for v in (row.any_low, row.any_high) if v is not None]
    if len(rows) < 2 or not ends:
        return []
    low, high = span(ends)
    scale = _Scale([row.k for row in rows], low, high, across)
    grid = [[" "] * across for _ in range(_HEIGHT)]
    _draw(grid, rows, series, scale)
    labels = _ticks(scale)
    lines = [
        f"{label} {'┤' if label.strip() else '│'}{''.join(line)}".rstrip()
        for label, line in zip(labels, grid, strict=True)
    ]
    lines.append(f"{'':5}└{'─' * across}")
    lines.append(_axis(scale, across))
    drawn = [name for name in MARKS if series[name]]
    parts = [*(f"{MARKS[name]} {_WORDS[name]}" for name in drawn), "│ interval of any@k"]
    return [*lines, *_legend(parts, width)]


def span(ends: Sequence[float]) -> tuple[float, float]:
    """Round ends of an axis of shares, 0.05 or 0.1 apart, around all that is drawn.

    >>> span([0.859, 1.0]), span([0.31, 0.92]), span([1.0])
    ((0.85, 1.0), (0.3, 1.0), (0.95, 1.0))
    """
    steps = 20 if max(ends) - min(ends) < 0.4 else 10
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


def _series(rows: Sequence[Row], name: str) -> dict[int, float]:
    """k -> value of one curve; any@k beyond what was measured is a curve of its own."""
    field = "any" if name == "beyond" else name
    wanted = [row for row in rows if name == "independent" or row.extrapolated is (name == "beyond")]
    return {row.k: value for row in wanted if (value := getattr(row, field)) is not None}


class _Scale:
    """From k to a column and from a value to a line; k on a log scale where there are many."""

    def __init__(self, ks: Sequence[int], low: float, high: float, across: int) -> None:
        self.low, self.high, self.ks = low, high, ks
        self.log = ks[-1] > 16
        first, last = self._x(ks[0]), self._x(ks[-1])
        self.place = {k: 1 + round((self._x(k) - first) / (last - first) * (across - 4)) for k in ks}

    def _x(self, k: int) -> float:
        return log(k) if self.log else float(k)

    def line(self, value: float) -> int:
        at = (value - self.low) / (self.high - self.low)
        return _HEIGHT - 1 - round(min(1.0, max(0.0, at)) * (_HEIGHT - 1))


def _draw(grid: list[list[str]], rows: Sequence[Row], series: dict[str, dict[int, float]], scale: _Scale) -> None:
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
        if start > free and start + len(text) <= len(line):
            line[start : start + len(text)] = text
            free = start + len(text)
    return (f"{'':6}" + "".join(line)).rstrip() + "  k"


# segments


def _segments(found: Found) -> Grid:
    """A row a segment: its ends, and the n to choose there."""
    measure = found.table.measure
    names = {"any": "any", "selected": "selected", "majority": "maj"}
    rows = []
    for one in found.segments:
        first, last = one.table.measured[0], one.table.measured[-1]
        few = "*" if one.few else ""
        rows.append(
            (
                f"{one.by}={one.table.segment}{few}",
                f"{one.table.n_cases:,}",
                number(first.value(measure)),
                f"{number(last.value(measure))} (k = {last.k})",
                between(getattr(last, f"{measure}_low"), getattr(last, f"{measure}_high")),
                number(last.independent),
                "-" if one.choice.n is None else str(one.choice.n),
            )
        )
    header = ("segment", "cases", f"{names[measure]}@1", f"{names[measure]}@n", "interval", "independent", "choose")
    return Grid("by segment", header, tuple(rows), (False, True, True, True, True, True, True))
