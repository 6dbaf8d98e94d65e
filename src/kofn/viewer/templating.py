"""Pages from templates, in a frame; their URLs, scripts and style sheets."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes, urlencode

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from kofn.core.format import format_amount, format_count, format_duration, format_number
from kofn.render.page import environment as report_environment
from kofn.render.page import read_template, wrap_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2 import Environment

RUN_PREFIX = "/run/"
PAGE_MARK = "/-/"  # between the name of a run, which may hold slashes, and the page of that run


def run_url(name: str, page: str = "") -> str:
    """The URL of a run, or of one of its pages. File names may hold any bytes.

    >>> run_url("models/a b"), run_url("", "case")
    ('/run/models/a%20b', '/run//-/case')
    """
    return RUN_PREFIX + quote(os.fsencode(name)) + (f"{PAGE_MARK}{page}" if page else "")


def split_run_path(raw_path: bytes) -> tuple[str, str]:
    """(name of the run, page of it) of a path as the server received it.

    >>> split_run_path(b"/run/models/a%20b/-/case"), split_run_path(b"/run/first")
    (('models/a b', 'case'), ('first', ''))
    """
    rest, mark = raw_path.removeprefix(RUN_PREFIX.encode()), PAGE_MARK.encode()
    name, _, page = rest.partition(mark) if mark in rest else (rest, b"", b"")
    return os.fsdecode(unquote_to_bytes(name)).strip("/"), unquote_to_bytes(page).decode("utf-8", "replace")


def breadcrumbs(name: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    """(title, URL) of a run and of the pages below it."""
    return [(name or "(this folder)", run_url(name)), *more]


def whole_number(text: str, digits: int = 11) -> int | None:
    """The whole number that a query string holds; None for anything else, or for more digits.

    >>> whole_number("12"), whole_number("-1"), whole_number("x"), whole_number("9" * 40)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def query_string(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values as they stand at the end of a URL; "" where there are none."""
    return f"?{urlencode(pairs, errors='replace')}" if pairs else ""


def changed_pairs(values: Mapping[str, Any], usual: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The names and values for a URL that are not as usual.

    >>> changed_pairs({"q": "a b", "down": True, "page": 1}, {"q": "", "down": False, "page": 1})
    [('q', 'a b'), ('down', '1')]
    """
    return [(name, "1" if value is True else str(value)) for name, value in values.items() if value != usual[name]]


_TEMPLATES = files("kofn.viewer") / "templates"
OWN = tuple(file.name for file in _TEMPLATES.iterdir() if file.name.endswith((".css", ".js")))
SHARED = ("page.css", "theme.js", "page.js", "compare.js", "trend.js")  # with report.html and its siblings
_CONTENT_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@cache
def asset(name: str) -> tuple[bytes, str]:
    """The bytes of a script or a style sheet, and its content type."""
    content_type = _CONTENT_TYPES[name.rpartition(".")[2]]
    text = read_template(name) if name in SHARED else (_TEMPLATES / name).read_text(encoding="utf-8")
    return (wrap_script(text) if name.endswith(".js") else text).encode(), content_type


@cache
def static_url(name: str) -> str:
    """The URL of a script or a style sheet; it holds a hash of the content, so that browsers may cache it for good."""
    return f"/static/{sha256(asset(name)[0]).hexdigest()[:16]}/{name}"


def asset_response(name: str) -> Response:
    """A script or a style sheet; any other name is not found, whatever files there are."""
    if name not in (*OWN, *SHARED):
        return Response(status_code=404)
    data, content_type = asset(name)
    return Response(data, media_type=content_type, headers={"cache-control": "public, max-age=31536000, immutable"})


@cache
def environment() -> Environment:
    """The viewer's templates, and those of the report behind them."""
    from jinja2 import ChoiceLoader, PackageLoader

    base = report_environment()
    assert base.loader is not None
    overlay = base.overlay(loader=ChoiceLoader([PackageLoader("kofn.viewer"), base.loader]))
    # new dictionaries: an overlay shares those of the environment it is made from
    overlay.globals = {**overlay.globals, "static_url": static_url, "run_url": run_url}
    overlay.filters = {
        **overlay.filters,
        "number": partial(format_number, none="–"),
        "amount": format_amount,
        "short_model": short_model,
        "when": format_time,
        "seconds": partial(format_duration, none="–"),
    }
    return overlay


def render_page(
    template: str,
    *,
    title: str,
    crumbs: Sequence[tuple[str, str]] = (),
    scripts: Sequence[str] = (),
    section: str = "",
    status: int = 200,
    refresh: int | None = None,
    **data: Any,
) -> Response:
    """A whole page. `crumbs` are (title, URL) from the list of runs to this page.

    `section`: which of the top links is current. `refresh`: seconds after which a browser without JavaScript reloads.
    """
    text = render_fragment(
        "frame.html.j2",
        title=f"{title} · kofn",
        body=render_fragment(template, title=title, **data),
        crumbs=list(crumbs),
        scripts=["page.js", "viewer.js", *scripts],
        section=section,
        refresh=refresh,
    )
    # names of files may hold surrogates, which UTF-8 does not have
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


def render_fragment(template: str, **data: Any) -> Markup:
    """A part of a page."""
    return Markup(environment().get_template(template).render(**data))  # noqa: S704 - the template escapes


def error_page(status: int, title: str, reason: str) -> Response:
    """A page that says what cannot be shown, and why."""
    return render_page("error.html.j2", title=title, status=status, heading=title, reason=reason)


def waiting_page(title: str, reason: str) -> Response:
    """A page that reloads itself after a second."""
    response = error_page(202, title, reason)
    response.headers["refresh"] = "1"
    return response


def pager(total: int, size: int, page: int, url: Callable[[int], str], label: str) -> Markup:
    """Links to the other pages of a table with `total` rows; `url` gives the URL of a page."""
    pages, first, last = -(-total // size), (page - 1) * size + 1, min(total, page * size)
    return render_fragment(
        "pager.html.j2", pages=pages, page=page, url=url, first=first, last=last, total=total, label=label
    )


def rows_of_page(total: int, size: int, page: int) -> tuple[slice, int]:
    """Which rows of a table are on a page, and the page's number: that of the last where there are not so many.

    >>> rows_of_page(5, 2, 2), rows_of_page(5, 2, 9), rows_of_page(0, 2, 1)
    ((slice(2, 4, None), 2), (slice(4, 6, None), 3), (slice(0, 2, None), 1))
    """
    page = min(page, max(1, -(-total // size)))
    return slice((page - 1) * size, page * size), page


def count_of(n: int, total: int, noun: str) -> str:
    """How many of all are listed.

    >>> count_of(3, 3, "case"), count_of(1, 3, "case")
    ('3 cases', '1 of 3 cases')
    """
    every = format_count(total, noun)
    return every if n == total else f"{n:,} of {every}"


# --- filters of the templates


def short_model(names: str) -> str:
    """Names of models without their provider, organisation and folder.

    >>> short_model("openai:gpt-4o, hf:Qwen/Qwen2.5-7B"), short_model("replay:/data/replies.jsonl"), short_model("")
    ('gpt-4o, Qwen2.5-7B', 'replies.jsonl', '')
    """
    parts = (name.rstrip("/").rpartition("/")[2] for name in names.split(", "))
    return ", ".join(part.partition(":")[2] or part for part in parts)


def format_time(text: str) -> str:
    """An ISO 8601 time in UTC, to the minute; a text that is none is shortened.

    >>> format_time("2026-11-18T10:25:13+00:00"), format_time("no time")
    ('2026-11-18 10:25', 'no time')
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text[:40]
    return f"{moment.astimezone(UTC) if moment.tzinfo else moment:%Y-%m-%d %H:%M}"
