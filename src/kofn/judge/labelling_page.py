"""The page on which people label in a browser: one file, no network."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson
from markupsafe import Markup

from kofn.render.page import environment, html_document, read_template

if TYPE_CHECKING:
    from kofn.judge.label_sheet import LabelSample

SHOWN = ("input", "output", "outputs", "reference")
HIDDEN = ("id", "index", "judge", "weight", "cluster")  # kept in the file of labels, not shown among the tags


def labelling_page(sheet: LabelSample, name: str) -> str:
    """The page. The judge's verdict is in it for the file it saves, and is hidden until somebody asks to see it."""
    rows = [_packed(row) for row in sheet.rows]
    data = orjson.dumps({"name": name, "of": sheet.of, "rows": rows})
    key = sha256(data).hexdigest()[:16]
    body = (
        environment()
        .get_template("label.html.j2")
        .render(name=name, question=sheet.question, n=len(rows), key=key, of=sheet.of)
    )
    return html_document(
        title=f"label {name} · kofn",
        body=Markup(body),  # noqa: S704 - the template escapes
        scripts=[read_template("label.js")],
        blocks={"rows": data},
    )


def _packed(row: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a row, and what goes into its label."""
    kept = {name: value for name, value in row.items() if name not in (*SHOWN, "human") and value is not None}
    return {
        "keep": kept,
        "shown": {name: row[name] for name in SHOWN if row.get(name) is not None},
        "tags": {name: str(value) for name, value in kept.items() if name not in HIDDEN},
    }
