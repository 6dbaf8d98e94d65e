"""Runs over time: the tasks of the folder, and one of them with its numbers from run to run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup

from kofn.diagnose import counted
from kofn.errors import InputError
from kofn.report.past import LeftOut
from kofn.report.trend import FROM_REPORTS
from kofn.report.trend_page import Links, charts_of, page_data, title
from kofn.trends import sparkline
from kofn.web import compare_page, shell
from kofn.web.cases import Wanted
from kofn.web.folder import Absent, address
from kofn.web.followed import LEFT, MOST_RUNS, NEWEST, moment, newest, of_task
from kofn.web.later import waiting
from kofn.web.run_page import case_at
from kofn.web.runs_page import pager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.report.past import Past
    from kofn.report.trend import Trend
    from kofn.web.app import Viewer
    from kofn.web.followed import Chosen
    from kofn.web.listing import Line

PAGE = 100  # tasks
BLOCKS = 40  # runs of the little line of a task
STEPS = (50, NEWEST, 1_000, MOST_RUNS)  # how many runs are offered


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an address asks for: a task (None: the list of them), its numbers, a metric, and how many runs."""

    task: str | None = None
    numbers: tuple[str, ...] = ()
    metric: str | None = None
    last: int | None = None
    q: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: str) -> Asked:
        """What is asked for; words that mean nothing here are passed over.

        >>> Asked.of("task=sums&number=mean&last=1000")
        Asked(task='sums', numbers=('mean',), metric=None, last=1000, q='', page=1)
        """
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
        except ValueError:
            raise InputError("this address asks for more than 50 things") from None
        one = dict(pairs)
        numbers = dict.fromkeys(value for key, value in pairs if key == "number" and value)
        return cls(
            task=one.get("task"),
            numbers=tuple(numbers)[:6],
            metric=one.get("metric") or None,
            last=_number(one.get("last", "")),
            q=one.get("q", "")[:500].strip(),
            page=_number(one.get("page", "")) or 1,
        )

    def address(self, **changes: Any) -> str:
        """Where this is shown, with changes."""
        asked = replace(self, **changes)
        pairs = [] if asked.task is None else [("task", asked.task)]
        pairs += [("number", number) for number in asked.numbers]
        told = {"metric": asked.metric, "last": asked.last, "q": asked.q, "page": asked.page if asked.page > 1 else ""}
        pairs += [(name, str(value)) for name, value in told.items() if value]
        return f"/trend?{urlencode(pairs, errors='replace')}" if pairs else "/trend"


def _number(text: str) -> int | None:
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 9 else None


def show(viewer: Viewer, request: Request) -> Response:
    """The tasks, or the runs of one over time."""
    asked = Asked.of(request.url.query)
    lines = viewer.listing.lines()
    return tasks(lines, asked) if asked.task is None else task(viewer, lines, asked)


def left_of(lines: Sequence[Line]) -> list[LeftOut]:
    """The runs that cannot be read, each with the reason."""
    return [
        LeftOut(line.name, f"{line.name or '(this folder)'}: {line.why}")
        for line in lines
        if line.status == "unreadable"
    ]


# --- the tasks


class Row(NamedTuple):
    """A task in the list."""

    task: str
    runs: int
    going: int
    newest: Line | None
    blocks: str


def tasks(lines: Sequence[Line], asked: Asked) -> Response:
    """Every task with how many runs it has, those with new runs first."""
    named: dict[str, list[Line]] = {}
    for line in lines:
        if line.status != "unreadable":
            named.setdefault(line.task, []).append(line)
    words = asked.q.lower().split()
    found = [(name, runs) for name, runs in named.items() if all(word in name.lower() for word in words)]
    found.sort(key=lambda one: max(map(moment, one[1])), reverse=True)
    page = min(asked.page, max(1, -(-len(found) // PAGE)))
    left = left_of(lines)
    return shell.page(
        "trend_tasks.html.j2",
        title="Trend",
        here="trend",
        asked=asked,
        rows=[_row(name, runs) for name, runs in found[(page - 1) * PAGE : page * PAGE]],
        n_tasks=len(named),
        count=counted(len(found), "task") if len(found) == len(named) else f"{len(found):,} of {len(named):,} tasks",
        at=lambda name: Asked(task=name).address(),
        left_out=[one.reason for one in left],
        pager=pager(len(found), PAGE, page, lambda to: asked.address(page=to), "Pages of tasks"),
    )


def _row(name: str, lines: Sequence[Line]) -> Row:
    runs = of_task(lines, name)
    last = runs[-1] if runs else None
    alike = [line.point for line in runs[-BLOCKS:] if last and _followed(line) == _followed(last)]
    return Row(
        task=name,
        runs=len(runs),
        going=sum(line.status in LEFT for line in lines),
        newest=last,
        blocks=sparkline(alike) if len(alike) > 1 else "",
    )


def _followed(line: Line) -> tuple[str, str]:
    return line.metric, line.aggregator


# --- one task


def task(viewer: Viewer, lines: Sequence[Line], asked: Asked) -> Response:
    """A task from run to run."""
    assert asked.task is not None
    chosen = newest(of_task(lines, asked.task), asked.last)
    if not chosen.lines:
        raise Absent(f"no finished run of a task {asked.task[:200]!r} is here")
    found = viewer.trends.get(chosen.lines, asked.numbers, asked.metric)
    if found is None:
        return waiting("Reading …", f"{counted(len(chosen.lines), 'run')} of {asked.task}: the page comes by itself.")
    if not found.tasks:
        why = found.left_out[0].reason if found.left_out else "they are gone meanwhile"
        raise InputError(f"no run of {asked.task} can be followed: {why}")
    found = replace(found, left_out=(*found.left_out, *left_of(lines)))
    data = page_data(found, _links(viewer))
    body = shell.fragment(
        "followed.html.j2",
        asked=asked,
        compare=_comparisons(viewer, found.tasks[0].runs),
        **data,
        **_choices(found, chosen, asked),
    )
    return shell.framed(
        Markup(body),  # noqa: S704 - the template escapes
        title=title(found),
        crumbs=[("Trend", "/trend"), (asked.task or "(no name)", asked.address())],
        here="trend",
        charts=charts_of(data),
        scripts=["trend.js"],
    )


def _links(viewer: Viewer) -> Links:
    """Where runs and cases are shown."""

    def to_run(run: Past) -> str:
        return address(viewer.trends.name_of(run))

    def to_case(run: Past, case: str) -> str:
        if viewer.trends.is_joined(run):
            return to_run(run)
        return case_at(viewer.trends.name_of(run), case, run.cases.index(case), Wanted())

    return Links(to_run, to_case)


def _choices(found: Trend, chosen: Chosen, asked: Asked) -> dict[str, Any]:
    """What else could be asked for, and what was left out."""
    part = found.tasks[0]
    columns = [column for run in part.runs for column in run.columns]
    numbers = dict.fromkeys((*FROM_REPORTS, *(c.aggregator for c in columns)))
    n, full = len(chosen.lines), _is_full(chosen, asked)
    steps = [step for step in STEPS if n < step < chosen.total]
    steps += [chosen.total] if n < chosen.total <= MOST_RUNS else []
    return {
        "numbers": list(numbers),
        "followed": [f.name for f in part.followed],
        "metrics": list(dict.fromkeys(c.metric for c in columns if c.metric)),
        "total": chosen.total,
        "n_chosen": n,
        "more": [] if full else [(step, asked.address(last=step)) for step in dict.fromkeys(steps)],
        "fewer": asked.address(last=None) if asked.last is not None and n > NEWEST else "",
        "is_full": full,
    }


def _is_full(chosen: Chosen, asked: Asked) -> bool:
    """Whether more was asked for than there is room for on a page."""
    return asked.last is not None and len(chosen.lines) < min(asked.last, chosen.total)


def _comparisons(viewer: Viewer, runs: Sequence[Past]) -> list[str]:
    """The newest run against the one before, and against the oldest."""
    names = [viewer.trends.name_of(run) for run in runs]
    others = dict.fromkeys([names[-2], names[0]]) if len(names) > 1 else {}
    return [compare_page.Asked(runs=(other, names[-1])).address() for other in others]
