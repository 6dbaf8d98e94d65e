"""The extraction audit as text and as an HTML page: scores, agreement, and the outputs on which extractors disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.analysis.extraction_audit import audit_headline
from kofn.core.document import Document, Grid, grid_lines
from kofn.core.escape import escape_controls, show_hidden
from kofn.extract.answer_spans import locate
from kofn.render.comparison_text import excerpt
from kofn.render.page import html_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.analysis.extraction_audit import Disagreement, ExtractionAudit


def format_audit(
    audit: ExtractionAudit, style: Callable[[str, str], str] = lambda text, _: text, *, width: int = 100, most: int = 10
) -> str:
    """The scores and failures of each, the agreement matrix, and the first outputs on which they disagree."""
    first, *rest = map(escape_controls, audit_headline(audit))
    parts = [[style(first, "strong"), *rest]]
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
            # without its name, which heads the column
            *("-" if e.point is None else e.format() for e in audit.estimates.get(name, ())),
        )
        for name in audit.names
    ]
    header = ("extractor", "no answer", "share", *names)
    return Grid(title, header, tuple(rows), (False, True, True, *([False] * len(names))))


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


def shorten_text(text: str, most: int = 48) -> str:
    """A text on one line.

    >>> shorten_text("a\\n  b"), shorten_text("a" * 9, 5)
    ('a b', 'aaaa…')
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


MOST = 1_000  # outputs in the page
_TEXT = 4_000  # characters of each: its end, for that is where answers stand


def audit_page(audit: ExtractionAudit) -> str:
    """The whole page, in one file that needs no network and no script."""
    return html_page(
        "audit.html.j2",
        {
            "sources": ", ".join(audit.sources[:3]),
            "lines": audit_headline(audit),
            "notes": [*map(str, audit.warnings), *audit.notes],
            "scores": scores_grid(audit),
            "names": audit.names,
            "agreement": [(a, [agreement_cell(audit.agreement[a][b]) for b in audit.names]) for a in audit.names],
            "rows": [disagreement_row(one, audit.names) for one in audit.disagreements[:MOST]],
            "n": len(audit.disagreements),
            "metric": audit.metric,
        },
        title="Extraction audit · kofn",
    )


def agreement_cell(share: float) -> dict[str, str]:
    """A share, and how strongly its cell is shaded: full where all disagree."""
    # three times: most extractors agree on most outputs, so a third of disagreement is full shade
    return {"text": f"{share:.1%}", "shade": f"{100 * min(1.0, 3 * (1 - share)):.0f}%"}


def disagreement_row(one: Disagreement, names: tuple[str, ...]) -> dict[str, Any]:
    words = {True: "pass", False: "fail", None: ""}
    shown = {name: answer and show_hidden(shorten_text(answer, 200)) for name, answer in one.answers.items()}
    return {
        "case": show_hidden(one.case_id),
        "index": one.index + 1,
        "reference": None if one.reference is None else show_hidden(shorten_text(one.reference, 200)),
        "answers": [{"name": name, "answer": shown[name], "word": words[one.passed.get(name)]} for name in names],
        "matters": one.matters,
        "parts": _mark_answers(one),
    }


def _mark_answers(one: Disagreement) -> list[dict[str, Any]]:
    """The end of the text in pieces, each with the extractors whose answer stands there."""
    start = max(0, len(one.text) - _TEXT)
    text = one.text[start:]
    found: dict[tuple[int, int], list[str]] = {}
    for name, answer in one.answers.items():
        if answer is not None and (place := locate(text, answer)) is not None:
            found.setdefault((place[0], place[1]), []).append(name)
    pieces: list[dict[str, Any]] = [{"text": "…", "names": ""}] if start else []
    at = 0
    for (low, high), names in sorted(found.items()):
        # places may overlap: the first is marked, for marks cannot cross
        if low >= at:
            pieces += [{"text": text[at:low], "names": ""}, {"text": text[low:high], "names": ", ".join(names)}]
            at = high
    pieces.append({"text": text[at:], "names": ""})
    return [{"lines": piece["text"].split("\n"), "names": piece["names"]} for piece in pieces if piece["text"]]
