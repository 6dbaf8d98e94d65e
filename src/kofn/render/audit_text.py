"""The extraction audit as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.analysis.extraction_audit import audit_headline
from kofn.core.document import Document, Grid, grid_lines
from kofn.core.escape import escape_controls
from kofn.render.comparison_text import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.analysis.extraction_audit import ExtractionAudit
    from kofn.core.types import Estimate

_ANSWER = 24  # characters of a short answer


def format_audit(
    audit: ExtractionAudit, style: Callable[[str, str], str] = lambda text, _: text, *, width: int = 100, most: int = 10
) -> str:
    """The scores and failures of each, the agreement matrix, and the first outputs on which they disagree."""
    first, *rest = audit_headline(audit)
    parts = [[style(escape_controls(first), "strong"), *map(escape_controls, rest)]]
    parts += [grid_lines(scores_grid(audit), style), grid_lines(agreement_grid(audit), style)]
    parts += [_disagreement(audit, at, style, width) for at in range(min(most, len(audit.disagreements)))]
    left = len(audit.disagreements) - most
    if left > 0:
        parts.append([style(f"{left:,} more: --show N, --html FILE or --json", "dim")])
    parts += [[f"{style('!', 'warn')} {escape_controls(line)}" for line in (*map(str, audit.warnings), *audit.notes)]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def audit_document(audit: ExtractionAudit) -> Document:
    """The same for a notebook, without single outputs."""
    return Document(tuple(audit_headline(audit)), (scores_grid(audit), agreement_grid(audit)), (), audit.notes)


def scores_grid(audit: ExtractionAudit) -> Grid:
    """A row an extractor: what it misses, and the numbers it would give."""
    names = [e.aggregator for e in next(iter(audit.estimates.values()), ())]
    title = f"scored by {audit.metric}" if audit.metric else ""
    rows = [
        (
            f"{name} (chosen)" if name == audit.chosen else name,
            f"{audit.n_failed[name]:,}",
            f"{audit.n_failed[name] / audit.n:.1%}",
            *map(_number, audit.estimates.get(name, ())),
        )
        for name in audit.names
    ]
    header = ("extractor", "no answer", "share", *names)
    return Grid(title, header, tuple(rows), (False, True, True, *([False] * len(names))))


def _number(e: Estimate) -> str:
    # the estimate without its name, which heads the column
    return "-" if e.point is None else e.format()


def agreement_grid(audit: ExtractionAudit) -> Grid:
    """The share of the outputs where two extractors give the same answer."""
    rows = [(a, *(f"{audit.agreement[a][b]:.1%}" for b in audit.names)) for a in audit.names]
    return Grid("the same answer", ("", *audit.names), tuple(rows), (False, *([True] * len(audit.names))))


def _disagreement(audit: ExtractionAudit, at: int, style: Callable[[str, str], str], width: int) -> list[str]:
    one = audit.disagreements[at]
    head = f"{one.case_id} #{one.index + 1}" + (f", reference {shorten_text(one.reference)}" if one.reference else "")
    lines = [style(escape_controls(head), "strong")]
    pad = max(map(len, audit.names))
    marks = {True: ("pass", "good"), False: ("fail", "bad"), None: ("", "dim")}
    for name in audit.names:
        word, role = marks[one.passed.get(name)]
        answer = one.answers[name]
        text = "none" if answer is None else escape_controls(shorten_text(answer))
        lines.append(f"  {name.ljust(pad)}  {style(word.ljust(4), role)}  {text}".rstrip())
    answer = one.answers[audit.chosen]
    return [*lines, style(f"  {excerpt(one.text, answer, width - 2)}", "dim")]


def shorten_text(text: str, most: int = _ANSWER * 2) -> str:
    """A text on one line.

    >>> shorten_text("a\\n  b"), shorten_text("a" * 9, 5)
    ('a b', 'aaaa…')
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
