"""Renders a document as HTML for notebooks, in the colours of the surrounding theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.document import Bar
from kofn.core.escape import escape_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.core.document import ChecklistLine, Document, Grid

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
    role = {"yes": "good", "no": "bad", "unknown": "warn"}
    said = ", ".join(f"{n} {answer}" for answer in role if (n := sum(line.answer == answer for line in lines)))
    rows = [
        (f'<b class="{role[line.answer]}">{line.mark}</b> {escape_html(line.item)}', escape_html(line.reason))
        for line in lines
    ]
    return f"<details><summary>checklist: {said}</summary>{_pairs(rows)}</details>"
