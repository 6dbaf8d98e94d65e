"""Pages from templates: those of report.html and the viewer's own, in a frame with links to every other page."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.responses import HTMLResponse

from kofn.core.format import format_duration
from kofn.render.page import environment as report_environment
from kofn.render.page_payload import format_amount
from kofn.viewer.assets import static_url
from kofn.viewer.urls import run_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jinja2 import Environment
    from starlette.responses import Response


@cache
def environment() -> Environment:
    """The viewer's templates, and those of the report behind them."""
    from jinja2 import ChoiceLoader, PackageLoader

    base = report_environment()
    assert base.loader is not None
    overlay = base.overlay(loader=ChoiceLoader([PackageLoader("kofn.viewer"), base.loader]))
    # new dictionaries: an overlay shares those of the environment it is made from
    overlay.globals = {**overlay.globals, "static_url": static_url, "run_url": run_url}
    filters = {"number": format_number, "amount": format_amount, "when": format_time, "seconds": format_seconds}
    overlay.filters = {**overlay.filters, **filters}
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
    body = environment().get_template(template).render(**data)
    return frame_page(
        Markup(body),  # noqa: S704 - the template escapes
        title=title,
        crumbs=crumbs,
        scripts=scripts,
        section=section,
        status=status,
        refresh=refresh,
    )


def frame_page(
    body: Markup,
    *,
    title: str,
    crumbs: Sequence[tuple[str, str]] = (),
    scripts: Sequence[str] = (),
    section: str = "",
    status: int = 200,
    refresh: int | None = None,
) -> Response:
    """Rendered markup in the viewer's frame; the parameters are those of `render_page`."""
    names = ["page.js", "viewer.js", *scripts]
    text = (
        environment()
        .get_template("frame.html.j2")
        .render(
            title=f"{title} · kofn",
            body=body,
            crumbs=list(crumbs),
            scripts=names,
            section=section,
            refresh=refresh,
        )
    )
    # names of files may hold surrogates, which UTF-8 does not have
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)


def render_fragment(template: str, **data: Any) -> str:
    """A part of a page."""
    return environment().get_template(template).render(**data)


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
    first = (page - 1) * size + 1
    markup = render_fragment(
        "pager.html.j2",
        pages=-(-total // size),
        page=page,
        url=url,
        first=first,
        last=min(total, first + size - 1),
        total=total,
        label=label,
    )
    return Markup(markup)  # noqa: S704 - the template escapes


# --- filters of the templates


def format_number(value: float | None) -> str:
    """Three decimal places.

    >>> format_number(0.61234), format_number(None)
    ('0.612', '–')
    """
    return "–" if value is None else f"{round(value, 3) + 0.0:.3f}"  # adding 0.0 turns -0.0 into 0.0


def format_seconds(value: float | None) -> str:
    """A length of time."""
    return "–" if value is None else format_duration(value)


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
