"""A run that is going on: how far it is, as its process tells it, and told again when that changes."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from kofn.generate.progress import clock_time, dollars, short
from kofn.report.pagedata import Stat
from kofn.web import shell
from kofn.web.folder import Absent, address
from kofn.web.narrowing import narrowing
from kofn.web.standing import JUDGING, UNITS, share, standing
from kofn.web.streams import PAUSE, Tick

if TYPE_CHECKING:
    from starlette.requests import Request

    from kofn.generate.live import Live
    from kofn.types import Estimate
    from kofn.web.app import Viewer
    from kofn.web.listing import Line
    from kofn.web.standing import Standing

REFRESH = 5  # seconds after which a browser without script asks again
IDLE = 3.0  # seconds between two looks at a folder in which nothing goes on
SHARE, SLOWEST = 0.05, 5.0  # of the time that looking at a folder may take; seconds between two looks, at most
MOST_NAMES = 200  # of runs, in one message
LONGEST = 1e9  # seconds; beyond that nobody knows


def show(viewer: Viewer, request: Request, name: str) -> Response:  # noqa: ARG001 - every page takes these
    """The page of a run that has no results yet."""
    from kofn.web.run_page import crumbs_of

    now = standing(viewer.folder.run(name))
    task = now.live.task if now.live else ""
    return shell.page(
        "live.html.j2",
        title=f"{task or name or 'this folder'} – {now.word.lower()}",
        crumbs=crumbs_of(name),
        scripts=["live.js"],
        refresh=REFRESH,
        run=name,
        task=task,
        model=now.live.model if now.live else "",
        panel=panel(now, name),
    )


def fragment(viewer: Viewer, request: Request, name: str) -> Response:  # noqa: ARG001 - every page takes these
    """The part of a page that changes; nothing of a run that is gone, for the stream says where to go then."""
    try:
        path = viewer.folder.run(name)
    except Absent:
        return Response(status_code=204)
    return HTMLResponse(panel(standing(path), name))


def panel(now: Standing, name: str) -> Markup:
    """How far a run is, as a part of a page."""
    live = now.live
    made = shell.fragment(
        "live_panel.html.j2",
        now=now,
        live=live,
        events=f"{address(name, 'events')}?seen={quote(now.phase)}",
        again=address(name, "live"),
        done=share(live) if live else 0.0,
        stats=[_stat(one) for one in live.estimates[:4]] if live else [],
        numbers=_numbers(live, going=now.going) if live else [],
        chart=narrowing(live) if live else None,
    )
    return Markup(made)  # noqa: S704 - the template escapes


def _stat(one: Estimate) -> Stat:
    drawn = one.low is not None and one.high is not None and one.point is not None and one.low >= 0 and one.high <= 1
    ends = "" if one.low is None or one.high is None else f"[{one.low:.3f}, {one.high:.3f}]"
    return Stat(
        name=f"{one.metric} {one.aggregator}".strip(),
        value=shell.number(one.point),
        detail=f"{ends} {one.n:,} cases".strip(),
        point=one.point if drawn else None,
        low=one.low if drawn else None,
        high=one.high if drawn else None,
    )


def _numbers(live: Live, *, going: bool) -> list[tuple[str, str, str]]:
    """(what, how much, more of it), those that say something."""
    cases, candidates = UNITS.get(live.kind, UNITS["run"])
    found = [(cases, f"{live.cases_done:,} of {live.cases_total:,}", "")]
    if candidates:
        found.append((candidates, f"{live.candidates_done:,} of {live.candidates_total:,}", ""))
    if live.reused:
        found.append(("there already", f"{live.reused:,}", "not asked again"))
    eta = live.eta if live.eta is not None and live.eta < LONGEST else None
    if going and live.state == "running":
        found.append(("to go", clock_time(eta), f"at {live.rate:.1f} a second"))
    found.append(("so far", clock_time(live.seconds), ""))
    if live.cost or live.unpriced:
        unknown = f"{live.unpriced:,} replies have no known price" if live.unpriced else ""
        found.append(("cost", dollars(live.cost) + ("+" if live.unpriced else ""), unknown))
    if live.tokens_in or live.tokens_out:
        found.append(
            ("tokens", short(live.tokens_in + live.tokens_out), f"{live.tokens_in:,} in, {live.tokens_out:,} out")
        )
    found.append(("errors", f"{live.errors:,}", ""))
    if live.kind != "verify":
        found.append(("retries", f"{live.retries:,}", ""))
    return found


# --- events


async def events(viewer: Viewer, request: Request, name: str) -> Response:
    """What changes of one run. It ends with `done` when the page should be another one; `seen` is what it shows."""
    return viewer.streams.answer(request, _RunLook(viewer, name, request.query_params.get("seen", "")))


async def list_events(viewer: Viewer, request: Request) -> Response:
    """Which runs changed, came or went."""
    return viewer.streams.answer(request, _ListLook(viewer.watch))


events.is_async = True  # type: ignore[attr-defined]
list_events.is_async = True  # type: ignore[attr-defined]


class _RunLook:
    """Looks at one run."""

    def __init__(self, viewer: Viewer, name: str, seen: str) -> None:
        self.viewer, self.name, self.seen = viewer, name, seen
        self._said: Any = None

    def __call__(self) -> Tick:
        try:
            now = standing(self.viewer.folder.run(self.name))
        except Absent:  # a verification removes its file when it is done, and leaves runs
            return Tick({"to": f"/?q={quote(os.fsencode(self.name))}"}, last=True)
        self.seen = self.seen or now.phase
        if now.phase != self.seen:
            return Tick({"to": address(self._home(now))}, last=True)
        told = _told(now)
        if told == self._said:
            return Tick()
        self._said = told
        return Tick(told)

    def _home(self, now: Standing) -> str:
        """The run that has the results."""
        above, _, last = self.name.rpartition("/")
        return above if last == JUDGING and now.finished else self.name


def _told(now: Standing) -> dict[str, Any]:
    """A run in a few numbers."""
    live = now.live
    if live is None:
        return {"state": "stopped"}
    first = live.estimates[0] if live.estimates else None
    return {
        "state": live.state if now.going else "stopped",
        "cases": [live.cases_done, live.cases_total],
        "candidates": [live.candidates_done, live.candidates_total],
        "seconds": round(live.seconds) if now.going else None,
        "cost": live.cost,
        "errors": live.errors,
        "retries": live.retries,
        "estimate": [first.aggregator, first.point, first.low, first.high] if first else None,
    }


class Watch:
    """The list of runs, looked at for all who watch it at once, and no oftener than it takes little of the time."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._due = 0.0

    def lines(self) -> dict[str, Line]:
        """Every run by name, as of a moment ago."""
        with self._lock:
            start = time.monotonic()
            if start >= self._due:
                self._lines = {line.name: line for line in self.viewer.listing.lines()}
                took = time.monotonic() - start
                pause = PAUSE if any(line.status == "running" for line in self._lines.values()) else IDLE
                self._due = start + max(0.9 * pause, min(SLOWEST, took / SHARE))
            return self._lines


class _ListLook:
    """Looks at the list of runs, and says which lines are others than at the last look."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._seen: dict[str, Line] | None = None

    def __call__(self) -> Tick:
        seen, self._seen = self._seen, self.watch.lines()
        now = self._seen
        if seen is None:
            return Tick({"running": _running(now)})
        if now is seen:
            return Tick()
        told = {
            "changed": [name for name, line in now.items() if name in seen and seen[name] != line],
            "new": [name for name in now if name not in seen],
            "gone": [name for name in seen if name not in now],
        }
        if not any(told.values()):
            return Tick()
        return Tick({**{kind: _sendable(names) for kind, names in told.items()}, "running": _running(now)})


def _sendable(names: list[str]) -> list[str]:
    """Names as JSON can have them: those of folders may be no text at all."""
    return [name.encode("utf-8", "replace").decode() for name in names[:MOST_NAMES]]


def _running(lines: dict[str, Line]) -> int:
    return sum(line.status == "running" for line in lines.values())
