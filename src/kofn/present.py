"""A result as something to read: one document, shown as text or in a terminal; `kofn.notebook` shows it as HTML."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kofn.stats.estimate import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.checklist import Line
    from kofn.evaluate import Result
    from kofn.types import Estimate

_BAR = 25
_WIDTH = 110
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, directions, half characters, line and paragraph separators


class Bar(str):
    """An interval drawn in characters, and where it is from 0 to 1, to draw it finer.

    places   its low end, its point, its high end
    rule     a line to hold it against, such as no difference
    """

    __slots__ = ("places", "rule")
    places: tuple[float, float, float]
    rule: float | None

    @classmethod
    def of(cls, text: str, places: tuple[float, float, float], rule: float | None = None) -> Bar:
        bar = cls(text)
        bar.places, bar.rule = places, rule
        return bar


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table. `right` says which columns are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """What there is to say, in order: what was understood, the estimates, what explains them, what to beware of."""

    headline: tuple[str, ...]
    grids: tuple[Grid, ...]
    notes: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    checklist: tuple[Line, ...] = ()


def document(result: Result) -> Document:
    """The result's document."""
    several = len({e.metric for e in result.estimates}) > 1
    groups: dict[str, list[Estimate]] = {}
    for e in result.estimates:
        by = "" if e.segment is None else f"by {e.segment.partition('=')[0]}"
        groups.setdefault(", ".join(filter(None, [e.metric if several else "", by])), []).append(e)
    return Document(
        headline=_headline(result),
        grids=tuple(_estimates_grid(es, title) for title, es in groups.items()),
        notes=_notes(result),
        warnings=result.warnings,
        checklist=result.checklist,
    )


def as_text(result: Result, style: Callable[[str, str], str] = lambda text, _: text) -> str:
    """Plain text of at most about 100 columns. `style(text, role)` may add colour; roles: head, dim, warn, strong."""
    doc = document(result)
    lines = [style(safe(line), "strong") if i == 0 else safe(line) for i, line in enumerate(doc.headline)]
    for grid in doc.grids:
        lines += ["", *grid_lines(grid, style)]
    if doc.notes:
        width = max(len(label) for label, _ in doc.notes)
        lines += [
            "",
            *(f"{style(label.ljust(width), 'dim')}  {_wrapped(text, width + 2)}" for label, text in doc.notes),
        ]
    if doc.warnings:
        lines += ["", *(f"{style('!', 'warn')} {_wrapped(w, 2)}" for w in doc.warnings)]
    if doc.checklist:
        lines += ["", *checklist_lines(doc.checklist, style)]
    return "\n".join(lines)


def checklist_lines(checklist: Sequence[Line], style: Callable[[str, str], str], width: int = _WIDTH) -> list[str]:
    """The checklist: a mark, the question, and the reason of its answer."""
    room = max(columns(line.item) for line in checklist)
    shown = [style("checklist", "dim")]
    for line in checklist:
        role = {"yes": "good", "no": "bad", "unknown": "warn"}[line.answer]
        margin = room + 4
        first, *rest = wrap(safe(line.reason), width - margin, break_long_words=False, break_on_hyphens=False) or [""]
        shown.append(f"{style(line.mark, role)} {line.item.ljust(room)}  {first}")
        shown += [" " * margin + more for more in rest]
    return shown


def _wrapped(text: str, indent: int) -> str:
    """Text broken at white space, its further lines set in by `indent`."""
    lines = wrap(safe(text), _WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines)


def safe(text: str) -> str:
    """Control and direction characters made visible: text from a file cannot move the cursor or hide.

    >>> safe("a\\x1b[31mb\\u202e")
    'a\\\\x1b[31mb\\\\u202e'
    """
    return "".join(c if unicodedata.category(c) not in _UNSEEN else c.encode("unicode_escape").decode() for c in text)


def interval_bar(e: Estimate, low: float = 0.0, high: float = 1.0, width: int = _BAR) -> str:
    """The estimate drawn on a line from low to high.

    >>> from kofn.types import Estimate
    >>> e = Estimate(aggregator="", point=.5, low=.25, high=.75, level=.95, n=9, n_missing=0, method="")
    >>> interval_bar(e, width=9)
    '··──●──··'
    """
    if e.point is None or not low <= e.point <= high:
        return ""

    return drawn(e.low, e.point, e.high, (low, high), width)


def drawn(low: float | None, point: float, high: float | None, axis: tuple[float, float], width: int = _BAR) -> Bar:
    """A point and its interval on a line from one end of the axis to the other."""
    ends = (point, point, point) if low is None or high is None else (low, point, high)
    start, point, stop = (min(1.0, max(0.0, (x - axis[0]) / (axis[1] - axis[0]))) for x in ends)
    cells = ["·"] * width
    first, dot, last = (round(x * (width - 1)) for x in (start, point, stop))
    if low is not None and high is not None:
        cells[first : last + 1] = "─" * (last + 1 - first)
    cells[dot] = "●"
    return Bar.of("".join(cells), (start, point, stop), 0.5 if axis[0] == -axis[1] else None)


def _headline(result: Result) -> tuple[str, ...]:
    u = result.understood
    sizes = result.diagnostics["sizes"]
    many = f"{sizes['min']} to {sizes['max']}" if u["set_size"] is None else f"{u['set_size']}"
    noun = "candidate" if u["set_size"] == 1 else "candidates"
    cases = "case" if result.n_cases == 1 else "cases"
    graded = [
        f"labels in `{src}`"
        if m == "pass"
        else f"scores in `{src}`"
        if m == "score"
        else f"`{m}` as given"
        if m in u.get("labels", {})
        else f"metric {m}"
        for m, src in u["metrics"].items()
    ]
    parts = [
        f"{result.n_cases:,} {cases} x {many} {noun}",
        ", ".join(graded) or "no labels",
        f"{result.n_missing:,} missing",
    ]
    if u["top_k"]:
        parts.insert(1, f"the first {u['top_k']} of each set")
    lines = [", ".join(parts)]
    shown = ", ".join(u["sources"][:3]) + (f" and {len(u['sources']) - 3} more" if len(u["sources"]) > 3 else "")
    fields = ", ".join(
        f"{role} in `{name}`" for role, name in u["fields"].items() if role != name and not role.startswith("label.")
    )
    if u["form"] != "run":  # whoever made the outputs knows where they are
        lines.append(f"read {shown or 'rows'} as {u['form']}" + (f": {fields}" if fields else ""))
    extras = [f"selector in {', '.join(f'`{name}`' for name in u['selectors'])}"] if u["selectors"] else []
    extras += [f"weighted by `{u['weight']}`"] if u["weight"] else []
    extras += [f"resampled by cluster `{u['cluster']}`"] if u["cluster"] else []
    return (*lines, *([", ".join(extras)] if extras else []))


def _estimates_grid(estimates: Sequence[Estimate], title: str) -> Grid:
    """One metric's estimates, drawn on one scale: 0 to 1, or further where the values go."""
    sliced = any(e.segment is not None for e in estimates)
    ends = [x for e in estimates for x in (e.low, e.point, e.high) if x is not None]
    low, high = min([0.0, *ends]), max([1.0, *ends])
    left, end = f"{low:.3g}", f"{high:.3g}"
    header = (
        "aggregator",
        *(["segment"] if sliced else []),
        "value",
        f"{100 * estimates[0].level:g} % interval",
        left + end.rjust(_BAR - len(left)),
        "cases",
        "missing",
        "interval by",
    )
    rows = []
    for e in estimates:
        between = f"[{e.low:.3f}, {e.high:.3f}]" if e.low is not None and e.high is not None else "-"
        point = "undefined" if e.point is None else f"{e.point:.3f}"
        few = "*" if e.n + e.n_missing < SMALL_SEGMENT else ""
        segment = [(e.segment or "").partition("=")[2] + few] if sliced else []
        counts = (f"{e.n:,}", f"{e.n_missing:,}")
        rows.append((e.aggregator, *segment, point, between, interval_bar(e, low, high), *counts, e.method))
    return Grid(title, header, tuple(rows), tuple(h in ("value", "cases", "missing") for h in header))


def grid_lines(grid: Grid, style: Callable[[str, str], str]) -> list[str]:
    """A grid as lines of text, its columns aligned."""
    cells = [[safe(c) for c in row] for row in (grid.header, *grid.rows)]
    widths = [max(columns(row[i]) for row in cells) for i in range(len(grid.header))]
    lines = [style(safe(grid.title), "strong")] if grid.title else []
    for i, row in enumerate(cells):
        gaps = [" " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        padded = [gap + cell if right else cell + gap for cell, gap, right in zip(row, gaps, grid.right, strict=True)]
        text = "  ".join(padded).rstrip()
        lines.append(style(text, "head") if i == 0 else text)
    return lines


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: two for a wide character, none for a mark on another.

    >>> columns("日本"), columns("é"), columns("e\u0301")
    (4, 1, 1)
    """
    marks = ("Mn", "Me")
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else unicodedata.category(c) not in marks for c in text)


def _notes(result: Result) -> tuple[tuple[str, str], ...]:
    d = result.diagnostics
    notes = [("answers", _answers_note(result))] if result.extraction.get("n") is not None else []
    if audit := result.extraction.get("audit"):
        notes.append(("extractors", _audit_note(audit)))
    if d["sizes"]["min"] != d["sizes"]["max"]:
        notes.append(("set sizes", f"{d['sizes']['min']} to {d['sizes']['max']}, median {d['sizes']['median']:g}"))
    several = d["sizes"]["max"] > 1
    if several and (votes := d.get("votes")) and votes["agreement"] is not None:
        notes.append(("votes", _votes_note(votes, result.n_cases)))
    if several and (diversity := d.get("diversity")):
        notes.append(("diversity", _diversity_note(diversity)))
    for name, unit in (("cost", ""), ("seconds", " s")):
        if spent := d.get(name):
            notes.append((name, f"{spent['total']:,.4g}{unit} in all, {spent['per_case']:,.4g}{unit} a case"))
    return tuple(notes)


def _answers_note(result: Result) -> str:
    found = result.extraction
    how = f"extracted by {found['extractor']} ({found['reason']})" if found["extractor"] else found["reason"]
    text = f"{how}; none in {found['n_failed']:,} of {found['n']:,} candidates"
    if labels := found.get("labels"):
        text += f"; {labels['metric']} and labels differ on {labels['n_differ']:,} of {labels['n']:,}"
    return text


def _audit_note(audit: Mapping[str, Any]) -> str:
    first, *others = audit["failure_rate"]
    shares = ", ".join(f"{other} {audit['agreement'][first][other]:.0%}" for other in others)
    scores = audit["score"]
    spread = f"; score {', '.join(f'{name} {s:.2f}' for name, s in scores.items())}" if scores else ""
    return f"{first} agrees with {shares}{spread} (on {audit['n']:,} candidates)"


def _votes_note(votes: dict[str, float], n_cases: int) -> str:
    return (
        f"the leading answer has {votes['agreement']:.0%} of the candidates, {votes['margin']:.0%} ahead of the next; "
        f"{votes['unanimous']:,} of {n_cases:,} unanimous, {votes['ties']:,} tied"
    )


def _diversity_note(d: dict[str, float | None]) -> str:
    def shown(name: str) -> str:
        value = d[name]
        return "undefined" if value is None else f"{value:.2f}"

    return (
        f"{shown('unique_texts')} of a set's texts are different; distinct-1 {shown('distinct_1')}, distinct-2 "
        f"{shown('distinct_2')}, redundancy {shown('redundancy')} (on {d['n_sets_sampled']:,} sets)"
    )
