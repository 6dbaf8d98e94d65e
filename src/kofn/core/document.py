"""Results as documents: headline, tables, notes and warnings, as text, notebook HTML, plain data or a frame."""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from kofn.core.escape import escape_controls, escape_html
from kofn.core.format import format_estimate
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from kofn.core.types import Estimate
    from kofn.core.warnings import CodedWarning

BAR_WIDTH = 25
_WIDTH = 110  # columns of wrapped text; tables are as wide as they are


# a str, so that a table treats it as any other cell; only the notebook looks at the places
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What a result says first, the same sentence everywhere: an estimate with its interval, and what may be wrong.

    estimate   of the declared use, else the mean; None where nothing could be estimated
    about      what it is of: cases, candidates, and how they were graded
    use        how the product uses a set: any, vote, select, list, all; None where that was not declared
    measured   whether the estimate measures that use
    warning    the most severe warning of the result; notes for information do not count
    """

    estimate: Estimate | None
    about: str
    use: str | None = None
    measured: bool = True
    warning: CodedWarning | None = None

    @property
    def number(self) -> str:
        """The name of the number, its value and its interval."""
        if (e := self.estimate) is None:
            return ""
        return f"{e.aggregator} {format_estimate(e.point, e.low, e.high)}"

    @property
    def sentence(self) -> str:
        """The number and what it is of, without the warning."""
        missing = "" if self.measured else ", not measured here"
        use = "" if self.use is None else f" (intended use: {self.use}{missing})"
        return ", ".join(filter(None, (self.number, self.about))) + use

    @property
    def text(self) -> str:
        """The sentence, and the warning where there is one.

        >>> from kofn.core.types import Estimate
        >>> e = Estimate(aggregator="majority", point=.617, low=.5, high=.733, level=.95, n=60, n_missing=0, method="")
        >>> Headline(estimate=e, about="60 cases x 5 candidates, metric numeric", use="vote").text
        'majority 0.617 [0.500, 0.733], 60 cases x 5 candidates, metric numeric (intended use: vote)'
        """
        if self.warning is None:
            return self.sentence
        return f"{self.sentence}. {self.warning.severity.capitalize()}: {self.warning}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "text": self.text,
            "estimate": None if self.estimate is None else estimate_dict(self.estimate),
            "about": self.about,
            "use": self.use,
            "measured": self.measured,
            "warning": None if self.warning is None else {**self.warning.to_dict(), "text": str(self.warning)},
        }


def estimate_dict(e: Estimate) -> dict[str, Any]:
    """An estimate as plain data, in a stable order."""
    names = ("metric", "aggregator", "segment", "point", "low", "high", "level", "n", "n_missing", "method")
    return {name: getattr(e, name) for name in names}


@dataclass(frozen=True, slots=True)
class Document:
    """What there is to say, in order: what was understood, the estimates, what explains them, what to beware of."""

    headline: tuple[str, ...]
    grids: tuple[Grid, ...]
    notes: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    checklist: tuple[ChecklistLine, ...] = ()


def document_text(
    doc: Document, style: Callable[[str, str], str] = lambda text, _: text, *, checklist: bool = True
) -> str:
    """Plain text of at most about 100 columns. `style(text, role)` may add colour; roles: head, dim, warn, strong.

    Without `checklist` one line counts its answers.
    """
    lines = [
        style(line, "strong") if i == 0 else line
        for i, whole in enumerate(doc.headline)
        for line in (wrap(escape_controls(whole), _WIDTH, break_long_words=False, break_on_hyphens=False) or [""])
    ]
    for grid in doc.grids:
        lines += ["", *grid_lines(grid, style)]
    if doc.notes:
        width = max(len(label) for label, _ in doc.notes)
        lines += [
            "",
            *(f"{style(label.ljust(width), 'dim')}  {_wrap_text(text, width + 2)}" for label, text in doc.notes),
        ]
    if doc.warnings:
        lines += ["", *(f"{style('!', 'warn')} {_wrap_text(w, 2)}" for w in doc.warnings)]
    if doc.checklist:
        lines += ["", *checklist_part(doc.checklist, style, whole=checklist)]
    return "\n".join(lines)


def checklist_lines(
    checklist: Sequence[ChecklistLine], style: Callable[[str, str], str], width: int = _WIDTH
) -> list[str]:
    """The checklist: a mark, the question, and the reason of its answer."""
    room = max(display_width(line.item) for line in checklist)
    lines = [style("checklist", "dim")]
    for line in checklist:
        role = _ROLES[line.answer]
        margin = room + 4
        first, *rest = wrap(
            escape_controls(line.reason), width - margin, break_long_words=False, break_on_hyphens=False
        ) or [""]
        lines.append(f"{style(line.mark, role)} {line.item.ljust(room)}  {first}")
        lines += [" " * margin + more for more in rest]
    return lines


def checklist_counts(checklist: Sequence[ChecklistLine]) -> str:
    """How many questions have which answer, and which of them are answered with no.

    >>> lines = [ChecklistLine.of("segments are shown", "no", ""), ChecklistLine.of("intervals are by case", "yes", "")]
    >>> checklist_counts(lines)
    '1 yes, 1 no (segments are shown)'
    """
    found = {answer: [line.item for line in checklist if line.answer == answer] for answer in MARKS}
    named = f" ({'; '.join(found['no'])})"
    counts = ((answer, len(items)) for answer, items in found.items() if items)
    return ", ".join(f"{n} {answer}{named if answer == 'no' else ''}" for answer, n in counts)


def checklist_part(
    checklist: Sequence[ChecklistLine], style: Callable[[str, str], str], width: int = _WIDTH, *, whole: bool = True
) -> list[str]:
    """The whole checklist, or one line that counts its answers and says how to see it."""
    if not checklist or whole:
        return checklist_lines(checklist, style, width) if checklist else []
    summary = f"{checklist_counts(checklist)}; --checklist shows it"
    first, *rest = wrap(summary, width - 11, break_long_words=False, break_on_hyphens=False)
    return [f"{style('checklist', 'dim')}  {first}", *(" " * 11 + line for line in rest)]


def _wrap_text(text: str, indent: int) -> str:
    """Text broken at white space, its further lines set in by `indent`."""
    lines = wrap(escape_controls(text), _WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines)


def interval_bar(e: Estimate, low: float = 0.0, high: float = 1.0, width: int = BAR_WIDTH) -> str:
    """The estimate drawn on a line from low to high.

    >>> from kofn.core.types import Estimate
    >>> e = Estimate(aggregator="", point=.5, low=.25, high=.75, level=.95, n=9, n_missing=0, method="")
    >>> interval_bar(e, width=9)
    '··──●──··'
    """
    if e.point is None or not low <= e.point <= high:
        return ""

    return interval_cells(e.low, e.point, e.high, (low, high), width)


def interval_cells(
    low: float | None, point: float, high: float | None, axis: tuple[float, float], width: int = BAR_WIDTH
) -> Bar:
    """A point and its interval on a line from one end of the axis to the other."""
    ends = (point, point, point) if low is None or high is None else (low, point, high)
    start, point, stop = (min(1.0, max(0.0, (x - axis[0]) / (axis[1] - axis[0]))) for x in ends)
    cells = ["·"] * width
    first, dot, last = (round(x * (width - 1)) for x in (start, point, stop))
    if low is not None and high is not None:
        cells[first : last + 1] = "─" * (last + 1 - first)
    cells[dot] = "●"
    # an axis that is symmetric around 0 shows differences: a rule marks no difference
    return Bar.of("".join(cells), (start, point, stop), 0.5 if axis[0] == -axis[1] else None)


def grid_lines(grid: Grid, style: Callable[[str, str], str]) -> list[str]:
    """A grid as lines of text, its columns aligned."""
    cells = [[escape_controls(c) for c in row] for row in (grid.header, *grid.rows)]
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(grid.header))]
    lines = [style(escape_controls(grid.title), "strong")] if grid.title else []
    for i, row in enumerate(cells):
        # by columns, not characters: str.ljust would misalign wide characters
        gaps = [" " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)]
        padded = [gap + cell if right else cell + gap for cell, gap, right in zip(row, gaps, grid.right, strict=True)]
        text = "  ".join(padded).rstrip()
        lines.append(style(text, "head") if i == 0 else text)
    return lines


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes: two for a wide character, none for a mark on another.

    >>> display_width("日本"), display_width("é"), display_width("e\u0301")
    (4, 1, 1)
    """
    marks = ("Mn", "Me")  # combining marks take no column of their own
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else unicodedata.category(c) not in marks for c in text)


ChecklistAnswer = Literal["yes", "no", "unknown", "n/a"]  # n/a: there was nothing to check


MARKS = {"yes": "✓", "no": "✗", "unknown": "?", "n/a": "–"}
_ROLES = {"yes": "good", "no": "bad", "unknown": "warn", "n/a": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistLine:
    """One question of the checklist."""

    item: str
    answer: ChecklistAnswer
    reason: str

    @classmethod
    def of(cls, item: str, answer: str, reason: str) -> ChecklistLine:
        """A line of three texts, as a file has them."""
        if answer not in MARKS:
            raise UnknownName("answer", answer, list(MARKS))
        return cls(item=item, answer=cast("ChecklistAnswer", answer), reason=reason)

    @property
    def mark(self) -> str:
        return MARKS[self.answer]

    def to_dict(self) -> dict[str, str]:
        """As JSON prints it."""
        return asdict(self)


# --- HTML for notebooks, in the colours of the surrounding theme

MOST_ROWS = 200  # a notebook file keeps every output it shows
_MARKS = {"✓": "good", "✗": "bad", "?": "warn", "▲ better": "good", "▼ better": "good", "▲ worse": "bad",
          "▼ worse": "bad"}  # fmt: skip
# everything is mixed from the colour of the text, so that it suits a light and a dark page
_STYLE = """
.kofn{font-size:13px;line-height:1.45;overflow-x:auto}.kofn p{margin:0 0 .6em}
.kofn table{font-size:inherit;color:inherit;border-collapse:collapse;margin:0 0 .8em;font-variant-numeric:tabular-nums}
.kofn caption{text-align:left;font-weight:600;padding:0 0 .2em;color:inherit}
.kofn th,.kofn td{padding:.15em .9em .15em 0;text-align:left;white-space:nowrap;background:none;border:0}
.kofn thead th{font-weight:400;opacity:.65;border-bottom:1px solid color-mix(in srgb,currentColor 35%,transparent)}
.kofn tbody tr{background:none}.kofn tbody tr:hover{background:color-mix(in srgb,currentColor 7%,transparent)}
.kofn .num{text-align:right}.kofn svg{display:block;width:11em;height:1em;overflow:visible}
.kofn .axis{display:flex;justify-content:space-between}
.kofn dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em .9em;margin:0 0 .6em;max-width:72em}
.kofn dt{opacity:.65;font-weight:400;margin:0;padding:0}.kofn dd{margin:0;padding:0}
.kofn .good{color:#2b9348}.kofn .bad{color:#d1495b}.kofn .warn{color:#c77700}.kofn summary{cursor:pointer;opacity:.65}
"""


def as_html(document: Document) -> str:
    """The document. Whatever came from a file is escaped, and characters that hide or turn a text round are shown."""
    first, *rest = document.headline
    parts = [f"<p><b>{escape_html(first)}</b>{''.join(f'<br>{escape_html(line)}' for line in rest)}</p>"]
    parts += [_table(grid) for grid in document.grids]
    parts += [_pairs([(escape_html(label), escape_html(text)) for label, text in document.notes])]
    parts += [_pairs([('<b class="warn">!</b>', escape_html(warning)) for warning in document.warnings])]
    parts += [_checklist(document.checklist)] if document.checklist else []
    return f'<div class="kofn"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _table(grid: Grid) -> str:
    """A grid; of very many rows the first. The axis of drawn intervals stands over them as text at both ends."""
    head = "".join(_cell("th", name, right) for name, right in zip(grid.header, grid.right, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell('td', cell, right) for cell, right in zip(row, grid.right, strict=True))}</tr>"
        for row in grid.rows[:MOST_ROWS]
    )
    title = f"<caption>{escape_html(grid.title)}</caption>" if grid.title else ""
    more = f"<p>and {len(grid.rows) - MOST_ROWS:,} more</p>" if len(grid.rows) > MOST_ROWS else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(tag: str, text: str, right: bool) -> str:
    if isinstance(text, Bar):
        return f"<{tag}>{_bar_svg(text)}</{tag}>"
    role = "num" if right else _MARKS.get(text, "")
    return (
        f"<{tag}{f' class={role!r}' if role else ''}>{_axis_ends(text) if tag == 'th' else escape_html(text)}</{tag}>"
    )


def _axis_ends(name: str) -> str:
    """A column's name; where it is the two ends of an axis, at both ends."""
    low, gap, high = name.partition("  ")
    if not gap:
        return escape_html(name)
    return f'<div class="axis"><span>{escape_html(low)}</span><span>{escape_html(high.strip())}</span></div>'


def _bar_svg(bar: Bar) -> str:
    """A line for the interval, a dot for the point, on a faint axis; the text is there for whoever cannot see it."""
    low, point, high = (100 * x for x in bar.places)
    parts = [(0.0, 100.0, "5", "5", ".18", "1"), (low, high, "5", "5", ".6", "2"), (point, point, "1", "9", "1", "3")]
    if bar.rule is not None:
        parts.insert(0, (100 * bar.rule, 100 * bar.rule, "-4", "14", ".3", "1"))
    # the drawing stretches with its cell; non-scaling strokes keep their width
    lines = "".join(
        f'<line x1="{x:.1f}" x2="{to:.1f}" y1="{y}" y2="{down}" stroke="currentColor" stroke-opacity="{opacity}" '
        f'stroke-width="{width}" vector-effect="non-scaling-stroke"/>'
        for x, to, y, down, opacity, width in parts
    )
    return (
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{escape_html(bar)}">{lines}</svg>'
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{label}</dt><dd>{text}</dd>' for label, text in pairs)}</dl>" if pairs else ""


def _checklist(lines: Sequence[ChecklistLine]) -> str:
    """Folded: how many of each answer, and all of them below."""
    rows = [
        (f'<b class="{_ROLES[line.answer]}">{line.mark}</b> {escape_html(line.item)}', escape_html(line.reason))
        for line in lines
    ]
    return f"<details><summary>checklist: {checklist_counts(lines)}</summary>{_pairs(rows)}</details>"


class Displayable:
    """The base of results. A subclass has the numbers and `rows`; how it looks is decided in layers above.

    The functions that show it are named as "module:function", and loaded when somebody looks, as an entry of
    `kofn.registry` is: `view` makes its document, `printer` its text, `markdown` its Markdown. `data` makes plain data,
    for a class that does not define `to_dict` itself.
    """

    __slots__ = ()
    view: ClassVar[str]
    data: ClassVar[str]
    printer: ClassVar[str] = "kofn.core.document:document_printer"
    markdown: ClassVar[str] = "kofn.render.run_markdown:document_markdown"

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, as `--json` prints it."""
        data: dict[str, Any] = _load(self.data)(self)
        return data

    def rows(self) -> list[dict[str, Any]]:
        """The main table as plain values, one dict per row, as `--output-format csv` prints it."""
        raise NotImplementedError

    def document(self) -> Document:
        """Headline, tables, notes and warnings, in order."""
        document: Document = _load(self.view)(self)
        return document

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.rows(), infer_schema_length=None)

    def to_pandas(self) -> Any:
        """The rows as a pandas frame; pandas is an optional package."""
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ImportError:
            raise InputError("to_pandas() needs pandas: pip install pandas") from None
        return pd.DataFrame(self.rows())

    def to_text(self, style: Callable[[str, str], str] = lambda text, _: text, **layout: Any) -> str:
        """What the terminal shows. `style(text, role)` adds colour; `layout` is what a view takes, such as `width`."""
        text: str = _load(self.printer)(self, style, **layout)
        return text

    def to_markdown(self) -> str:
        """The tables as Markdown."""
        text: str = _load(self.markdown)(self)
        return text

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return as_html(self.document())


def document_printer(found: Displayable, style: Callable[[str, str], str]) -> str:
    """The document of a result as text."""
    return document_text(found.document(), style)


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
