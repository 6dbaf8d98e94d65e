"""Assembles self-contained HTML pages: no network, no eval, and text from a file is never markup."""

from __future__ import annotations

import base64
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from kofn.core.escape import escape_json, escape_script, html_lines, show_hidden
from kofn.render.case_payload import case_blocks
from kofn.render.embedded_data import PackedData, pack
from kofn.render.page_payload import report_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment

    from kofn.render.embedded_data import ByteBudget
    from kofn.runs.record import Run


def html_document(
    *,
    title: str,
    body: Markup,
    scripts: Sequence[str] = (),
    blocks: Mapping[str, bytes | PackedData] | None = None,
) -> str:
    """A whole page: our style sheet, the body, scripts and data.

    title    text, escaped here
    body     markup
    scripts  JavaScript; each runs alone (strict, its names are its own) after the body is there
    blocks   ID -> bytes, put in as `<script type="text/plain" id=ID>` gzipped in base64; `kofn.embedded(ID)` gives a
             script a promise of the text
    """
    code = [wrap_script(script) for script in (read_template("page.js"), *scripts)]
    style = read_template("page.css")
    return (
        environment()
        .get_template("document.html.j2")
        .render(
            title=title,
            policy=content_policy(code, style),
            style=Markup(style),  # noqa: S704 - our own file
            body=body,
            scripts=[Markup(text) for text in code],  # noqa: S704 - ours, made fit for a script element
            blocks={name: _embed(data) for name, data in (blocks or {}).items()},
        )
    )


def report_page(run: Run, budget: ByteBudget | None = None) -> str:
    """report.html of a run: its verdict, numbers, charts, and every case with its candidates."""
    data = report_data(run)
    cases = case_blocks(run, budget)
    data["warnings"] += [(note, "") for note in cases.notes]
    template = environment().get_template("report.html.j2")
    body = template.render(
        **data, n_shown=cases.n_shown, total=cases.total, searched=cases.searched, case_link=_link_inside
    )
    return html_document(
        title=f"{data['task']} – {data['verdict']['word'].lower()} · kofn",
        body=Markup(body),  # noqa: S704 - the template escapes
        scripts=[read_template("report.js")],
        blocks=cases.blocks,
    )


def _link_inside(case: Mapping[str, Any]) -> str:
    """Where the page itself shows a case."""
    return f"#case={quote(case['id'][:1000], errors='replace')}&row={case['row']}"


def _embed(data: bytes | PackedData) -> Markup:
    return Markup(data if isinstance(data, PackedData) else pack(data))  # noqa: S704 - base64 holds no markup


def wrap_script(text: str) -> str:
    """A script of ours with names of its own."""
    return escape_script(f'(() => {{\n"use strict";\n{text}\n}})();\n')


def content_policy(scripts: Sequence[str], style: str) -> str:
    """Only these scripts and this style sheet apply, by their hashes; nothing is loaded from anywhere.

    Attributes may set styles: charts and bars have their sizes there.
    """
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash_source, scripts))}",
        f"style-src {_hash_source(style)}",
        "style-src-attr 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def read_template(name: str) -> str:
    """A file of ours beside the templates."""
    return (files("kofn.render") / "templates" / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """The templates; everything put into them is escaped unless it is Markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("kofn.render"),
        autoescape=True,
        # a misspelt name fails instead of printing nothing
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["lines"] = html_lines
    env.filters["json"] = lambda data: Markup(escape_json(data))  # noqa: S704 - `<` is escaped
    return env


def _finalize(value: Any) -> Any:
    """Every text a template prints shows all its characters; markup is left as it is."""
    # before autoescape, so that it sees the text and not entities
    return show_hidden(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
