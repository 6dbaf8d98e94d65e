"""The extraction audit as one page: scores, agreement, and every output on which extractors disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kofn.auditing import headline
from kofn.report.audit_text import scores_grid, shortened
from kofn.report.html import document, environment
from kofn.report.visible import visible

if TYPE_CHECKING:
    from kofn.auditing import Disagreement, ExtractionAudit

MOST = 1_000  # outputs in the page
_TEXT = 4_000  # characters of each: its end, for that is where answers stand


def page(audit: ExtractionAudit) -> str:
    """The whole page, in one file that needs no network and no script."""
    shown = audit.disagreements[:MOST]
    body = (
        environment()
        .get_template("audit.html.j2")
        .render(
            sources=", ".join(audit.sources[:3]),
            lines=headline(audit),
            told=audit.told,
            scores=scores_grid(audit),
            names=audit.names,
            agreement=[(a, [cell_of(audit.agreement[a][b]) for b in audit.names]) for a in audit.names],
            rows=[row_of(one, audit.names) for one in shown],
            n=len(audit.disagreements),
            metric=audit.metric,
        )
    )
    return document(title="Extraction audit · kofn", body=Markup(body))  # noqa: S704 - the template escapes


def cell_of(share: float) -> dict[str, str]:
    """A share, and how strongly its cell is shaded: full where all disagree."""
    return {"text": f"{share:.1%}", "shade": f"{100 * min(1.0, 3 * (1 - share)):.0f}%"}


def row_of(one: Disagreement, names: tuple[str, ...]) -> dict[str, Any]:
    words = {True: "pass", False: "fail", None: ""}
    return {
        "case": visible(one.case_id),
        "index": one.index + 1,
        "reference": None if one.reference is None else visible(shortened(one.reference, 200)),
        "answers": [
            {"name": name, "answer": _shown(one.answers[name]), "word": words[one.passed.get(name)]} for name in names
        ],
        "matters": one.matters,
        "parts": _marked(one),
    }


def _shown(answer: str | None) -> str | None:
    return None if answer is None else visible(shortened(answer, 200))


def _marked(one: Disagreement) -> list[dict[str, Any]]:
    """The end of the text in pieces, each with the extractors whose answer stands there."""
    from kofn.extract.locate import locate

    start = max(0, len(one.text) - _TEXT)
    text = one.text[start:]
    found: dict[tuple[int, int], list[str]] = {}
    for name, answer in one.answers.items():
        if answer is not None and (place := locate(text, answer)) is not None:
            found.setdefault((place[0], place[1]), []).append(name)
    pieces: list[dict[str, Any]] = [{"text": "…", "names": ""}] if start else []
    at = 0
    for (low, high), names in sorted(found.items()):
        if low >= at:
            pieces += [{"text": text[at:low], "names": ""}, {"text": text[low:high], "names": ", ".join(names)}]
            at = high
    pieces.append({"text": text[at:], "names": ""})
    return [{"lines": piece["text"].split("\n"), "names": piece["names"]} for piece in pieces if piece["text"]]
