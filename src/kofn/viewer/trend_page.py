"""The pages of runs over time: the tasks of the folder, and one task with its numbers from run to run."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from kofn.analysis.trend import FROM_REPORTS, build_trend
from kofn.core.format import format_count, format_number
from kofn.errors import InputError
from kofn.render.plot import sparkline
from kofn.render.trend_html import TrendLinks, trend_data, trend_title
from kofn.runs.index import SkippedRun, load_completed, read_columns
from kofn.viewer.caches import BackgroundCache
from kofn.viewer.case_list import CaseQuery, case_url
from kofn.viewer.compare_page import CompareQuery
from kofn.viewer.run_folder import NotFound, run_stamp
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from markupsafe import Markup
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.analysis.trend import Trend
    from kofn.runs.index import IndexColumn, StoredRun
    from kofn.viewer.run_folder import RunFolder, Stamp
    from kofn.viewer.runs_page import RunLine
    from kofn.viewer.server import Viewer

NEWEST = 200  # runs on a page by default
MAX_RUNS = 2_500  # on a page, and in memory
CASES = 400_000  # of all runs on a page by default; two runs may have more
MAX_CASES = 2_000_000  # of all runs on a page, and in memory
EXCLUDED = ("running", "stopped", "unreadable")  # statuses of runs that have no part in a trend
# the entries of a manifest that a trend reads
_MANIFEST = ("created", "kind", "sources", "options", "files")
_LAYOUT = ("case_columns", "tags", "values", "metrics")
_UNDERSTOOD = ("fields", "weight", "cluster", "metrics", "set_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWindow:
    """The newest runs of a task, oldest first; `total` is how many it has."""

    lines: tuple[RunLine, ...]
    total: int


def runs_of_task(lines: Sequence[RunLine], task: str) -> list[RunLine]:
    """The runs of a task that can be part of a trend, oldest first."""
    return sorted((line for line in lines if line.task == task and line.status not in EXCLUDED), key=created)


def created(line: RunLine) -> datetime:
    """When a run was made; one without a time comes first."""
    try:
        when = datetime.fromisoformat(line.when)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def newest(runs: Sequence[RunLine], last: int | None) -> RunWindow:
    """The last so many runs (None: the default number), fewer where they have too many cases, but always two.

    >>> from kofn.viewer.runs_page import RunLine
    >>> lines = [RunLine(name=str(i), status="passed", cases=300_000) for i in range(9)]
    >>> [len(newest(lines, last).lines) for last in (None, 1, 4, 9)]
    [2, 1, 4, 6]
    """
    most, room = (NEWEST, CASES) if last is None else (min(last, MAX_RUNS), MAX_CASES)
    lines: list[RunLine] = []
    for line in reversed(runs[-most:]):
        room -= line.cases or 0
        if room < 0 and len(lines) >= 2:
            break
        lines.append(line)
    return RunWindow(lines=tuple(reversed(lines)), total=len(runs))


@dataclass(slots=True)
class _LoadedRun:
    """A run in memory, also with the columns that trends needed; or the reason why it has no part in a trend."""

    stamp: Stamp
    run: StoredRun | None = None
    reason: str = ""
    joined: bool = False
    with_columns: dict[tuple[str, ...], StoredRun] = field(default_factory=dict)

    @property
    def n_cases(self) -> int:
        return len(self.run.cases) if self.run is not None else 1


class TrendCache:
    """The last few trends, and the runs they are of."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._loaded: OrderedDict[str, _LoadedRun] = OrderedDict()
        self._ids: deque[tuple[str, ...]] = deque(maxlen=8)
        self._cache = BackgroundCache["Trend"](
            max_values=6, max_size=MAX_CASES, size=lambda trend: sum(len(task.cases) for task in trend.tasks)
        )

    def get(self, lines: Sequence[RunLine], numbers: tuple[str, ...], metric: str | None) -> Trend | None:
        """The trend of these runs; None while it is computed. It has no tasks where no run can be read."""
        places: dict[str, tuple[Path, Stamp]] = {}
        for line in lines:
            with suppress(NotFound, OSError):  # gone since the list was made
                path = self.folder.run(line.name)
                places[line.name] = path, run_stamp(path)
        key = (tuple((name, stamp) for name, (_, stamp) in places.items()), numbers, metric)
        return self._cache.get(key, partial(self._compute, places, numbers, metric))

    def name_of(self, run: StoredRun) -> str:
        """The name of a run in URLs."""
        return "" if run.path == self.folder.root else str(run.path.relative_to(self.folder.root))

    def is_joined(self, run: StoredRun) -> bool:
        """Whether the ids of a run's cases have the names of their groups before them."""
        known = self._loaded.get(self.name_of(run))
        return known is not None and known.joined

    # --- called by one thread at a time: the cache computes one trend after another

    def _compute(self, places: Mapping[str, tuple[Path, Stamp]], numbers: tuple[str, ...], metric: str | None) -> Trend:
        loaded = {name: self._load_once(name, path, stamp) for name, (path, stamp) in places.items()}
        skipped = [SkippedRun(name, entry.reason) for name, entry in loaded.items() if entry.reason]
        runs = [entry.run for entry in loaded.values() if entry.run is not None]
        trend = build_trend(runs, skipped, aggregate=numbers, metric=metric, read=self._with_columns)
        # drop the runs that were used longest ago, where there are too many
        room = MAX_CASES - sum(entry.n_cases for entry in self._loaded.values())
        while len(self._loaded) > MAX_RUNS or (room < 0 and len(self._loaded) > 2):
            room += self._loaded.popitem(last=False)[1].n_cases
        # paths relative to the folder
        left_out = (SkippedRun(run.path, run.reason.replace(f"{self.folder.root}/", "")) for run in trend.left_out)
        return replace(trend, left_out=tuple(left_out))

    def _load_once(self, name: str, path: Path, stamp: Stamp) -> _LoadedRun:
        known = self._loaded.get(name)
        if known is None or known.stamp != stamp:
            known = self._loaded[name] = self._load(name, path, stamp)
        self._loaded.move_to_end(name)
        return known

    def _load(self, name: str, path: Path, stamp: Stamp) -> _LoadedRun:
        try:
            str(path).encode()
            run = load_completed(path)
        except InputError as problem:
            return _LoadedRun(stamp, reason=str(problem))
        except UnicodeEncodeError:
            return _LoadedRun(
                stamp, reason=f"{name}: its name is no Unicode text, so its files cannot be opened: rename it"
            )
        groups = run.evaluation.group_outcomes.values()
        # ids that occur in several groups were joined with the groups' names when the run was loaded
        joined = len(groups) > 1 and sum(len(g.results) for g in groups) > len({c for g in groups for c in g.results})
        slim = replace(_slim(run), name=name or self.folder.root.name, cases=self._shared(run.cases))
        return _LoadedRun(stamp, run=slim, joined=joined)

    def _shared(self, cases: tuple[str, ...]) -> tuple[str, ...]:
        """Equal ids as one object: runs of a task mostly have the same cases, and memory for one list is enough."""
        if cases not in self._ids:
            self._ids.append(cases)
        return self._ids[self._ids.index(cases)]

    def _with_columns(self, run: StoredRun, columns: Sequence[IndexColumn]) -> StoredRun:
        known = self._loaded[self.name_of(run)]
        key = tuple(c.column for c in columns)
        if key not in known.with_columns:
            extended = read_columns(run, columns)
            if extended.stored is not None:
                ids = self._shared(extended.stored.cases)
                questions = extended.stored.questions._replace(cases=ids)
                extended = replace(extended, stored=extended.stored._replace(cases=ids, questions=questions))
            known.with_columns[key] = extended
        return known.with_columns[key]


def _slim(run: StoredRun) -> StoredRun:
    """A run without what no trend reads: most of its manifest, and the scores that `run.scores` holds too."""
    evaluation = run.evaluation.model_copy(update={"group_outcomes": {}})
    manifest: dict[str, Any] = {name: run.manifest[name] for name in _MANIFEST if name in run.manifest}
    if "layout" in run.manifest:
        manifest["layout"] = {name: value for name, value in run.manifest["layout"].items() if name in _LAYOUT}
    if run.result is not None:
        manifest["result"] = {
            "estimates": [e for e in run.result["estimates"] if e["segment"] is None],
            "understood": {name: value for name, value in run.result["understood"].items() if name in _UNDERSTOOD},
            "extraction": {"extractor": run.result["extraction"]["extractor"]},
            "diagnostics": {n: run.result["diagnostics"].get(n) for n in ("cost", "seconds")},
        }
    return replace(run, evaluation=evaluation, manifest=manifest)


# --- the page


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
    return task_list(lines, query) if query.task is None else task_page(viewer, lines, query)


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


def task_page(viewer: Viewer, lines: Sequence[RunLine], query: TrendQuery) -> Response:
    """A task from run to run."""
    assert query.task is not None
    window = newest(runs_of_task(lines, query.task), query.last)
    if not window.lines:
        raise NotFound(f"no finished run of a task {query.task[:200]!r} is here")
    trend = viewer.trends.get(window.lines, query.numbers, query.metric)
    if trend is None:
        n_runs = format_count(len(window.lines), "run")
        return waiting_page("Reading …", f"{n_runs} of {query.task}: the page comes by itself.")
    if not trend.tasks:
        why = trend.left_out[0].reason if trend.left_out else "they are gone meanwhile"
        raise InputError(f"no run of {query.task} can be followed: {why}")
    trend = replace(trend, left_out=(*trend.left_out, *unreadable(lines)))
    names = [viewer.trends.name_of(run) for run in trend.tasks[0].runs]
    # the newest run against the one before, and against the oldest
    others = dict.fromkeys([names[-2], names[0]]) if len(names) > 1 else {}
    return render_page(
        "trend_task.html.j2",
        title=trend_title(trend),
        crumbs=[("Trend", "/trend"), (query.task or "(no name)", query.url())],
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
