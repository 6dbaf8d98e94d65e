"""The page of a run in progress: how far it is, and event streams that say when that changes."""

from __future__ import annotations

import os
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from kofn.core.escape import show_hidden
from kofn.core.format import format_clock, format_duration, format_interval, format_money, format_number, format_short
from kofn.render.charts import Chart
from kofn.render.page import Stat
from kofn.render.plot import Area, Axis, Dot, Dots, Line, Plot, Tip, number_axis
from kofn.viewer.event_streams import StreamUpdate
from kofn.viewer.run_folder import JUDGING, UNITS, NotFound, fraction_done, read_status
from kofn.viewer.templating import breadcrumbs, render_fragment, render_page, run_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup
    from starlette.requests import Request

    from kofn.core.types import Estimate
    from kofn.generate.progress_file import ProgressRecord
    from kofn.viewer.run_folder import RunStatus
    from kofn.viewer.run_list import RecentLines, RunLine
    from kofn.viewer.server import Viewer

MAX_ROWS = 12  # of the table
MAX_VALUE = 1e15  # kofn writes no larger ones; they would not fit the labels


def estimate_chart(live: ProgressRecord) -> Chart | None:
    """The first estimate over the cases done; None before there are two points of it."""
    history = [
        (seconds, p)
        for seconds, p in live.history
        if p.point is not None and all(abs(v or 0) < MAX_VALUE for v in (seconds, p.n, p.point, p.low, p.high))
    ]
    known = [estimate for _, estimate in history]
    if len(known) < 2 or not live.estimates:
        return None
    most = max(live.cases_total, known[-1].n, 1)
    first, last = known[0], known[-1]
    # at most `MAX_ROWS` points, evenly spaced, with the first and the last
    step = max(1.0, (len(known) - 1) / (MAX_ROWS - 1))
    sample = [history[round(i * step)] for i in range(min(len(known), MAX_ROWS))]
    values = [(p.n, p.point) for p in known if p.point is not None]
    band = [(p.n, p.low, p.high) for p in known if p.low is not None and p.high is not None]
    name = show_hidden(live.estimates[0].aggregator)
    dot = Dot(x=last.n, y=values[-1][1], tip=Tip(headline=name, pairs=(("so far", _summary(last)),)))
    half = [(most // 2, f"{most // 2:,}")] if most > 1 else []
    return Chart(
        id="running",
        title=f"{name}, {'as it narrows' if band else 'so far'}",
        label=f"{name} over the cases done: {_summary(first)}, {_summary(last)}",
        plot=Plot(
            x=Axis(domain=(0, most), ticks=((0, "0"), *half, (most, f"{most:,}")), title="cases", grid=False),
            y=number_axis(*domain([v for p in known for v in (p.point, p.low, p.high) if v is not None])),
            layers=(
                Area(points=tuple(band), colour="var(--accent)", opacity=0.16),
                Line(points=tuple(values), colour="var(--accent)", width=2),
                Dots(dots=(dot,), colour="var(--accent)"),
            ),
            height=180,
        ),
        header=("cases", name, "interval", "after"),
        rows=tuple(
            (f"{p.n:,}", f"{p.point:.3f}", format_interval(p.low, p.high, none="–"), format_duration(seconds))
            for seconds, p in sample
        ),
        note=f"The line is the estimate over the cases done until then{'; the band is its interval' if band else ''}.",
        numbers_from=0,
    )


def domain(values: Sequence[float]) -> tuple[float, float]:
    """The scale: 0 to 1 for shares, else round numbers around the values.

    >>> domain([0.2, 0.7]), domain([3.1, 4.2]), domain([5.0, 5.0])
    ((0.0, 1.0), (3.0, 5.0), (4.0, 6.0))
    """
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    step = 10.0 ** floor(log10(high - low)) if high > low else 1.0
    low, high = floor(low / step) * step, ceil(high / step) * step
    return (low, high) if high > low else (low - step, high + step)


def _summary(e: Estimate) -> str:
    interval = format_interval(e.low, e.high, none="")
    return f"{e.point:.3f}{interval and f' {interval}'} after {e.n:,}"


REFRESH = 5  # seconds after which a browser without JavaScript reloads
MAX_ESTIMATES = 4
MAX_NAMES = 200  # of runs, in one message
MAX_ETA = 1e9  # seconds: a longer forecast is left out


def show(viewer: Viewer, request: Request, name: str) -> Response:  # noqa: ARG001 - every page takes these
    """The page of a run that has no results yet."""
    status = read_status(viewer.folder.run(name))
    task = status.live.task if status.live else ""
    return render_page(
        "live.html.j2",
        title=f"{task or name or 'this folder'} – {status.label.lower()}",
        crumbs=breadcrumbs(name),
        scripts=["live.js"],
        refresh=REFRESH,
        run=name,
        task=task,
        model=status.live.model if status.live else "",
        panel=panel(status, name),
    )


def fragment(viewer: Viewer, request: Request, name: str) -> Response:  # noqa: ARG001 - every page takes these
    """The part of a page that changes. A run that is gone gives none: the event stream says where to go then."""
    try:
        path = viewer.folder.run(name)
    except NotFound:
        return Response(status_code=204)
    return HTMLResponse(panel(read_status(path), name))


def panel(status: RunStatus, name: str) -> Markup:
    """The progress of a run, as a part of a page."""
    live = status.live
    return render_fragment(
        "live_panel.html.j2",
        run_status=status,
        live=live,
        events=f"{run_url(name, 'events')}?seen={quote(status.phase)}",
        again=run_url(name, "live"),
        done=fraction_done(live) if live else 0.0,
        stats=[_stat(estimate) for estimate in live.estimates[:MAX_ESTIMATES]] if live else [],
        numbers=_numbers(live, active=status.active) if live else [],
        chart=estimate_chart(live) if live else None,
    )


def _stat(e: Estimate) -> Stat:
    # the range is drawn on a scale from 0 to 1
    drawn = e.low is not None and e.high is not None and e.point is not None and e.low >= 0 and e.high <= 1
    return Stat(
        name=f"{e.metric} {e.aggregator}".strip(),
        value=format_number(e.point, none="–"),
        detail=f"{format_interval(e.low, e.high, none='')} {e.n:,} cases".strip(),
        **{end: getattr(e, end) if drawn else None for end in ("point", "low", "high")},
    )


def _numbers(live: ProgressRecord, *, active: bool) -> list[tuple[str, str, str]]:
    """(what, how much, detail), those that are known."""
    cases, candidates = UNITS.get(live.kind, UNITS["run"])
    numbers = [(cases, f"{live.cases_done:,} of {live.cases_total:,}", "")]
    if candidates:
        numbers.append((candidates, f"{live.candidates_done:,} of {live.candidates_total:,}", ""))
    if live.reused:
        numbers.append(("there already", f"{live.reused:,}", "not asked again"))
    eta = live.eta if live.eta is not None and live.eta < MAX_ETA else None
    if active and live.state == "running":
        numbers.append(("to go", format_clock(eta), f"at {live.rate:.1f} a second"))
    numbers.append(("so far", format_clock(live.seconds), ""))
    if live.cost or live.unpriced:
        unknown = f"{live.unpriced:,} replies have no known price" if live.unpriced else ""
        numbers.append(("cost", format_money(live.cost) + ("+" if live.unpriced else ""), unknown))
    tokens = live.tokens_in + live.tokens_out
    if tokens:
        numbers.append(("tokens", format_short(tokens), f"{live.tokens_in:,} in, {live.tokens_out:,} out"))
    numbers.append(("errors", f"{live.errors:,}", ""))
    if live.kind != "verify":
        numbers.append(("retries", f"{live.retries:,}", ""))
    return numbers


# --- events


async def events(viewer: Viewer, request: Request, name: str) -> Response:
    """The changes of one run. `seen` is the phase that the page shows; `done` ends it when another page is due."""
    return viewer.streams.response(request, _RunPoll(viewer, name, request.query_params.get("seen", "")))


async def list_events(viewer: Viewer, request: Request) -> Response:
    """Which runs changed, are new or gone."""
    return viewer.streams.response(request, _ListPoll(viewer.recent))


class _RunPoll:
    """Polls one run."""

    def __init__(self, viewer: Viewer, name: str, seen: str) -> None:
        self.viewer, self.name, self.seen = viewer, name, seen
        self._last_sent: Any = None

    def __call__(self) -> StreamUpdate:
        try:
            status = read_status(self.viewer.folder.run(self.name))
        except NotFound:  # `kofn verify` removes its progress file when it is done, and leaves runs below
            return StreamUpdate({"to": f"/?q={quote(os.fsencode(self.name))}"}, last=True)
        self.seen = self.seen or status.phase
        if status.phase != self.seen:
            parent, _, last = self.name.rpartition("/")
            has_results = parent if last == JUDGING and status.finished else self.name
            return StreamUpdate({"to": run_url(has_results)}, last=True)
        message = _message(status)
        if message == self._last_sent:
            return StreamUpdate()
        self._last_sent = message
        return StreamUpdate(message)


def _message(status: RunStatus) -> dict[str, Any]:
    """The progress of a run in a few numbers."""
    live = status.live
    if live is None:
        return {"state": "stopped"}
    first = live.estimates[0] if live.estimates else None
    return {
        "state": live.state if status.active else "stopped",
        "cases": [live.cases_done, live.cases_total],
        "candidates": [live.candidates_done, live.candidates_total],
        "seconds": round(live.seconds) if status.active else None,
        **{name: getattr(live, name) for name in ("cost", "errors", "retries")},
        "estimate": [first.aggregator, first.point, first.low, first.high] if first else None,
    }


class _ListPoll:
    """Polls the list of runs for lines that are not as they were at the last poll."""

    def __init__(self, recent: RecentLines) -> None:
        self.recent = recent
        self._last: dict[str, RunLine] | None = None

    def __call__(self) -> StreamUpdate:
        before, now = self._last, self.recent.lines()
        self._last = now
        running = sum(line.status == "running" for line in now.values())
        if before is None:
            return StreamUpdate({"running": running})
        if now is before:  # not scanned again since
            return StreamUpdate()
        changes = {
            "changed": [name for name, line in now.items() if name in before and before[name] != line],
            "new": [name for name in now if name not in before],
            "gone": [name for name in before if name not in now],
        }
        if not any(changes.values()):
            return StreamUpdate()
        # names as JSON can hold them: those of folders may not be valid UTF-8
        encoded = {
            kind: [name.encode("utf-8", "replace").decode() for name in names[:MAX_NAMES]]
            for kind, names in changes.items()
        }
        return StreamUpdate({**encoded, "running": running})
