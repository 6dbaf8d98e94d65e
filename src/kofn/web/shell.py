"""Pages of the viewer: the templates and style of report.html inside a frame with ways to everywhere else."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from kofn.report.html import environment as report_environment
from kofn.report.html import json_text, own_script, source
from kofn.report.islands import packed
from kofn.web.folder import address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment

OWN = ("viewer.css", "viewer.js", "runs.js", "run.js", "live.js", "choose.js", "explore.js", "labels.js", "asked.js")
SHARED = ("page.css", "page.js", "compare.js", "trend.js")
VEGA = "vega.js"
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


@cache
def environment() -> Environment:
    """The viewer's templates, and those of the report behind them."""
    from jinja2 import ChoiceLoader, PackageLoader

    base = report_environment()
    assert base.loader is not None
    found = base.overlay(loader=ChoiceLoader([PackageLoader("kofn.web"), base.loader]))
    found.globals = {**found.globals, "static": static, "run_at": address}
    found.filters = {**found.filters, "number": number, "amount": amount, "when": when, "seconds": seconds}
    return found


def page(
    template: str,
    *,
    title: str,
    crumbs: Sequence[tuple[str, str]] = (),
    charts: Mapping[str, dict[str, Any]] | None = None,
    scripts: Sequence[str] = (),
    islands: Mapping[str, bytes] | None = None,
    here: str = "",
    status: int = 200,
    refresh: int | None = None,
    **data: Any,
) -> Response:
    """A whole page. `crumbs` are (words, address) from the list of runs to here; `here` is the way that is taken.

    `refresh`: seconds after which a browser without script asks for the page again.
    """
    body = environment().get_template(template).render(**data)
    return framed(
        Markup(body),  # noqa: S704 - the template escapes
        title=title,
        crumbs=crumbs,
        charts=charts,
        scripts=scripts,
        islands=islands,
        here=here,
        status=status,
        refresh=refresh,
    )


def framed(
    body: Markup,
    *,
    title: str,
    crumbs: Sequence[tuple[str, str]] = (),
    charts: Mapping[str, dict[str, Any]] | None = None,
    scripts: Sequence[str] = (),
    islands: Mapping[str, bytes] | None = None,
    here: str = "",
    status: int = 200,
    refresh: int | None = None,
) -> Response:
    """Markup that is made already, in the viewer's frame."""
    names = ([VEGA] if charts is not None else []) + ["page.js", "viewer.js", *scripts]
    text = (
        environment()
        .get_template("shell.html.j2")
        .render(
            title=f"{title} · kofn",
            body=body,
            crumbs=list(crumbs),
            charts=Markup(json_text(dict(charts))) if charts is not None else None,  # noqa: S704 - `<` is escaped
            scripts=names,
            islands={name: Markup(packed(data)) for name, data in (islands or {}).items()},  # noqa: S704 - base64
            here=here,
            refresh=refresh,
        )
    )
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


def fragment(template: str, **data: Any) -> str:
    """A part of a page."""
    return environment().get_template(template).render(**data)


def problem(status: int, what: str, why: str) -> Response:
    """A page that says what cannot be shown."""
    return page("problem.html.j2", title=what, status=status, what=what, why=why)


# --- what pages load


@cache
def asset(name: str) -> tuple[bytes, str]:
    """The bytes of a script or a style sheet, and what they are."""
    kind = _KINDS[name.rpartition(".")[2]]
    if name == VEGA:
        from kofn.report.vega import vega_bundle

        return vega_bundle().encode(), kind
    text = source(name) if name in SHARED else (files("kofn.web") / "templates" / name).read_text(encoding="utf-8")
    return (own_script(text) if name.endswith(".js") else text).encode(), kind


@cache
def static(name: str) -> str:
    """The address of a script or a style sheet; it changes when the file does, so that a browser may keep it."""
    return f"/static/{sha256(asset(name)[0]).hexdigest()[:16]}/{name}"


def serve_static(name: str) -> Response:
    """A file that pages load."""
    if name not in (*OWN, *SHARED, VEGA):
        return Response(status_code=404)
    data, kind = asset(name)
    return Response(data, media_type=kind, headers={"cache-control": "public, max-age=31536000, immutable"})


# --- numbers as words


def number(value: float | None) -> str:
    """Three digits behind the point.

    >>> number(0.61234), number(None)
    ('0.612', '–')
    """
    return "–" if value is None else f"{round(value, 3) + 0.0:.3f}"  # no minus before nothing


def amount(value: float | None) -> str:
    """Four significant digits.

    >>> amount(0.0058046), amount(None)
    ('0.005805', '–')
    """
    from kofn.report.pagedata import amount as of

    return of(value)


def seconds(value: float | None) -> str:
    """A length of time."""
    from kofn.report.findings import duration

    return "–" if value is None else duration(value)


def when(text: str) -> str:
    """A moment as people write it.

    >>> when("2026-11-18T10:25:13+00:00"), when("no time")
    ('2026-11-18 10:25', 'no time')
    """
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text[:40]
    return f"{moment.astimezone(UTC) if moment.tzinfo else moment:%Y-%m-%d %H:%M}"
