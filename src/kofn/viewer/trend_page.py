"""The pages of runs over time: the tasks of the folder, and one task with its numbers from run to run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from kofn.analysis.trend import FROM_REPORTS
from kofn.core.format import format_count, format_number
from kofn.errors import InputError
from kofn.render.plot import sparkline
from kofn.render.trend_html import TrendLinks, trend_data, trend_title
from kofn.runs.index import SkippedRun
from kofn.viewer.case_list import CaseQuery, case_url
from kofn.viewer.compare_data import CompareQuery
from kofn.viewer.run_folder import NotFound
from kofn.viewer.templating import (
    changed_pairs,
    pager,
    query_string,
    render_page,
    rows_of_page,
    run_url,
    waiting_page,
    whole_number,
)
from kofn.viewer.trend_data import EXCLUDED, MAX_RUNS, NEWEST, created, newest, runs_of_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.analysis.trend import Trend
    from kofn.runs.index import StoredRun
    from kofn.viewer.run_list import RunLine
    from kofn.viewer.server import Viewer
    from kofn.viewer.trend_data import RunWindow

PAGE = 100  # tasks
MAX_NUMBERS = 6
SPARKLINE_RUNS = 40
STEPS = (50, NEWEST, 1_000, MAX_RUNS)  # numbers of runs that the page offers
_MAX_PARAMS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendQuery:
    """A task (None: the list of tasks), its numbers, a metric, and how many runs."""

    task: str | None = None
    numbers: tuple[str, ...] = ()
    metric: str | None = None
    last: int | None = None
    q: str = ""
    page: int = 1

    @classmethod
    def parse(cls, query: str) -> TrendQuery:
        """The query of a URL; unknown parameters are ignored.

        >>> TrendQuery.parse("task=sums&number=mean&last=1000")
        TrendQuery(task='sums', numbers=('mean',), metric=None, last=1000, q='', page=1)
        """
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMS)
        except ValueError:
            raise InputError(f"this address asks for more than {_MAX_PARAMS} things") from None
        params = dict(pairs)
        numbers = dict.fromkeys(value for key, value in pairs if key == "number" and value)
        return cls(
            task=params.get("task"),
            numbers=tuple(numbers)[:MAX_NUMBERS],
            metric=params.get("metric") or None,
            last=whole_number(params.get("last", ""), 8) or None,
            q=params.get("q", "")[:500].strip(),
            page=whole_number(params.get("page", ""), 8) or 1,
        )

    def url(self, **changes: Any) -> str:
        """The URL of this page with changes."""
        query = replace(self, **changes)
        pairs = [] if query.task is None else [("task", query.task)]
        pairs += [("number", number) for number in query.numbers]
        rest = {"metric": query.metric, "last": query.last, "q": query.q, "page": query.page}
        return "/trend" + query_string(pairs + changed_pairs(rest, {"metric": None, "last": None, "q": "", "page": 1}))


def show(viewer: Viewer, request: Request) -> Response:
    """The tasks, or the runs of one over time."""
    query = TrendQuery.parse(request.url.query)
    lines = viewer.run_list.lines()
    return task_list(lines, query) if query.task is None else task_page(viewer, lines, query, query.task)


def unreadable(lines: Sequence[RunLine]) -> list[SkippedRun]:
    """The runs that cannot be read, each with the reason."""
    return [
        SkippedRun(line.name, f"{line.name or '(this folder)'}: {line.why}")
        for line in lines
        if line.status == "unreadable"
    ]


# --- the tasks


class TaskRow(NamedTuple):
    """A task in the list."""

    task: str
    runs: int
    unfinished: int
    newest: RunLine | None
    sparkline: Markup | None


def task_list(lines: Sequence[RunLine], query: TrendQuery) -> Response:
    """Every task with how many runs it has, those with new runs first."""
    tasks: dict[str, list[RunLine]] = {}
    for line in lines:
        if line.status != "unreadable":
            tasks.setdefault(line.task, []).append(line)
    words = query.q.lower().split()
    matches = [(name, runs) for name, runs in tasks.items() if all(word in name.lower() for word in words)]
    matches.sort(key=lambda match: max(map(created, match[1])), reverse=True)
    n, total = len(matches), len(tasks)
    part, page = rows_of_page(n, PAGE, query.page)
    return render_page(
        "trend_tasks.html.j2",
        title="Trend",
        section="trend",
        query=query,
        rows=[_task_row(name, runs) for name, runs in matches[part]],
        n_tasks=total,
        count=format_count(n, "task") if n == total else f"{n:,} of {total:,} tasks",
        task_url=lambda name: TrendQuery(task=name).url(),
        left_out=[run.reason for run in unreadable(lines)],
        pager=pager(n, PAGE, page, lambda to: query.url(page=to), "Pages of tasks"),
    )


def _task_row(name: str, lines: Sequence[RunLine]) -> TaskRow:
    runs = runs_of_task(lines, name)
    # only points that measure the same form a sparkline
    points = [
        line.point
        for line in runs[-SPARKLINE_RUNS:]
        if (line.metric, line.aggregator) == (runs[-1].metric, runs[-1].aggregator)
    ]
    known = [format_number(point, none="–") for point in points if point is not None]
    return TaskRow(
        task=name,
        runs=len(runs),
        unfinished=sum(line.status in EXCLUDED for line in lines),
        newest=runs[-1] if runs else None,
        sparkline=sparkline(points, f"{len(known)} runs, from {known[0]} to {known[-1]}") if len(known) > 1 else None,
    )


# --- one task


def task_page(viewer: Viewer, lines: Sequence[RunLine], query: TrendQuery, task: str) -> Response:
    """A task from run to run."""
    window = newest(runs_of_task(lines, task), query.last)
    if not window.lines:
        raise NotFound(f"no finished run of a task {task[:200]!r} is here")
    trend = viewer.trends.get(window.lines, query.numbers, query.metric)
    if trend is None:
        n_runs = format_count(len(window.lines), "run")
        return waiting_page("Reading …", f"{n_runs} of {task}: the page comes by itself.")
    if not trend.tasks:
        why = trend.left_out[0].reason if trend.left_out else "they are gone meanwhile"
        raise InputError(f"no run of {task} can be followed: {why}")
    trend = replace(trend, left_out=(*trend.left_out, *unreadable(lines)))
    names = [viewer.trends.name_of(run) for run in trend.tasks[0].runs]
    # the newest run against the one before, and against the oldest
    others = dict.fromkeys([names[-2], names[0]]) if len(names) > 1 else {}
    return render_page(
        "trend_task.html.j2",
        title=trend_title(trend),
        crumbs=[("Trend", "/trend"), (task or "(no name)", query.url())],
        section="trend",
        scripts=["trend.js"],
        query=query,
        compare_urls=[CompareQuery(runs=(other, names[-1])).url() for other in others],
        **trend_data(trend, _links(viewer)),
        **_choices(trend, window, query),
    )


def _links(viewer: Viewer) -> TrendLinks:
    """The URLs of runs and cases."""

    def to_run(run: StoredRun) -> str:
        return run_url(viewer.trends.name_of(run))

    def to_case(run: StoredRun, case: str) -> str:
        if viewer.trends.is_joined(run):  # the page of a case would not know the joined id
            return to_run(run)
        return case_url(viewer.trends.name_of(run), case, run.cases.index(case), CaseQuery())

    return TrendLinks(to_run, to_case)


def _choices(trend: Trend, window: RunWindow, query: TrendQuery) -> dict[str, Any]:
    """The other numbers, metrics and spans that the page offers."""
    part = trend.tasks[0]
    columns = [column for run in part.runs for column in run.columns]
    numbers = dict.fromkeys((*FROM_REPORTS, *(c.aggregator for c in columns)))
    n = len(window.lines)
    full = query.last is not None and n < min(query.last, window.total)  # more runs are wanted than fit on a page
    steps = [step for step in STEPS if n < step < window.total]
    steps += [window.total] if n < window.total <= MAX_RUNS else []
    return {
        "numbers": list(numbers),
        "current": [f.name for f in part.metrics],
        "metrics": list(dict.fromkeys(c.metric for c in columns if c.metric)),
        "total": window.total,
        "n_window": n,
        "more": [] if full else [(step, query.url(last=step)) for step in dict.fromkeys(steps)],
        "fewer": query.url(last=None) if query.last is not None and n > NEWEST else "",
        "is_full": full,
    }
