"""The extraction audit as an HTML page: scores, agreement, and the outputs on which extractors disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kofn.analysis.extraction_audit import audit_headline
from kofn.core.escape import show_hidden
from kofn.extract.answer_spans import locate
from kofn.render.audit_text import scores_grid, shorten_text
from kofn.render.page import environment, html_document

if TYPE_CHECKING:
    from kofn.analysis.extraction_audit import Disagreement, ExtractionAudit

MOST = 1_000  # outputs in the page
_TEXT = 4_000  # characters of each: its end, for that is where answers stand


def audit_page(audit: ExtractionAudit) -> str:
    """The whole page, in one file that needs no network and no script."""
    listed = audit.disagreements[:MOST]
    body = (
        environment()
        .get_template("audit.html.j2")
        .render(
            sources=", ".join(audit.sources[:3]),
            lines=audit_headline(audit),
            notes=[*map(str, audit.warnings), *audit.notes],
            scores=scores_grid(audit),
            names=audit.names,
            agreement=[(a, [agreement_cell(audit.agreement[a][b]) for b in audit.names]) for a in audit.names],
            rows=[disagreement_row(one, audit.names) for one in listed],
            n=len(audit.disagreements),
            metric=audit.metric,
        )
    )
    return html_document(title="Extraction audit · kofn", body=Markup(body))  # noqa: S704 - the template escapes


def agreement_cell(share: float) -> dict[str, str]:
    """A share, and how strongly its cell is shaded: full where all disagree."""
    # three times: most extractors agree on most outputs, so a third of disagreement is full shade
    return {"text": f"{share:.1%}", "shade": f"{100 * min(1.0, 3 * (1 - share)):.0f}%"}


def disagreement_row(one: Disagreement, names: tuple[str, ...]) -> dict[str, Any]:
    words = {True: "pass", False: "fail", None: ""}
    return {
        "case": show_hidden(one.case_id),
        "index": one.index + 1,
        "reference": None if one.reference is None else show_hidden(shorten_text(one.reference, 200)),
        "answers": [
            {"name": name, "answer": _shown_answer(one.answers[name]), "word": words[one.passed.get(name)]}
            for name in names
        ],
        "matters": one.matters,
        "parts": _mark_answers(one),
    }


def _shown_answer(answer: str | None) -> str | None:
    return None if answer is None else show_hidden(shorten_text(answer, 200))


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
