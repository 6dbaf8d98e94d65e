"""The page that compares runs: every difference with its interval, and of two the changed cases, a page at a time."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
from starlette.responses import Response

from kofn.errors import InputError
from kofn.render.comparison_html import case_bodies, case_summary, comparison_data
from kofn.viewer.case_list import CaseQuery, case_url
from kofn.viewer.compare_data import (
    DIRECTIONS,
    MAX_RUNS,
    CompareQuery,
    compared_case,
    label,
    marks,
    named_runs,
    parse_params,
    positive,
)
from kofn.viewer.run_folder import NotFound
from kofn.viewer.templating import count_of, pager, render_page, rows_of_page, run_url, waiting_page, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from starlette.requests import Request

    from kofn.analysis.compare.differences import ChangedCase
    from kofn.viewer.compare_data import PageComparison
    from kofn.viewer.run_list import RunLine
    from kofn.viewer.run_view import RunView
    from kofn.viewer.server import Viewer

PAGE = 50  # changed cases on one page
MAX_CHARACTERS = 2_000_000  # of the candidates of one case
MAX_OFFERED = 1_000  # runs to choose from
MAX_TASKS = 30  # tasks whose newest runs are offered


def show(viewer: Viewer, request: Request) -> Response:
    """The page; where two runs are not named yet, two lists of them."""
    query = CompareQuery.parse(request.scope["query_string"])
    if len(query.runs) < 2:
        return choose(viewer, query)
    if len(query.runs) > MAX_RUNS:
        raise InputError(
            f"{len(query.runs)} runs: at most {MAX_RUNS} are compared here; `kofn compare A B C` takes more"
        )
    places = [viewer.folder.run(name) for name in query.runs]
    if len(set(places)) < len(places):
        return choose(viewer, replace(query, runs=query.runs[:1]), "These are one and the same run: choose another.")
    comparison = viewer.comparisons.get(query.runs, query.fields)
    if comparison is None:
        return waiting_page("Comparing …", f"{' and '.join(map(label, query.runs))}: the page comes by itself.")
    views = [viewer.runs.get(name) for name in query.runs]
    two = len(views) == 2
    return render_page(
        "comparison.html.j2",
        section="compare",
        scripts=["compare.js", "compare_form.js"],
        query=query,
        two=two,
        runs=[(label(name), run_url(name)) for name in query.runs],
        swap_url=query.url(runs=query.runs[::-1], way={"up": "down", "down": "up"}.get(query.way, ""), page=1),
        choose_urls=[f"/compare?{urlencode([('run', os.fsencode(name))])}" for name in query.runs],
        pairs_url=query.url(fields=replace(query.fields, all_pairs=not query.fields.all_pairs)),
        pair_urls=_pair_urls(comparison, query),
        comparison=comparison,
        **comparison_data(comparison.report),
        hidden=_hidden(query),
        **(_changes(views[0], views[1], comparison, query) if two else {}),
    )


def _hidden(query: CompareQuery) -> list[tuple[str, str]]:
    """The query as the fields of a form."""
    return [(n, v.decode("utf-8", "replace") if isinstance(v, bytes) else v) for n, v in query.pairs()]


def _pair_urls(comparison: PageComparison, query: CompareQuery) -> list[str]:
    """Where the changed cases of each pair are, in the order of the pairs."""
    fields = replace(query.fields, all_pairs=False)
    sides = dict.fromkeys(d.sides for d in comparison.report.differences)
    return [replace(query, runs=(query.runs[a], query.runs[b]), fields=fields).url(page=1) for a, b in sides]


# --- the cases that changed


def _changes(a: RunView, b: RunView, comparison: PageComparison, query: CompareQuery) -> dict[str, Any]:
    """One page of the changed cases that match the query."""

    def inputs(changes: Sequence[ChangedCase]) -> pl.Series:
        return b.questions(np.array([comparison.rows[c.case][1] for c in changes], dtype=np.int64))

    matches = [c for c in comparison.report.changed if query.way in ("", c.way)]
    if query.q and matches:
        words = query.q.lower()
        in_input = inputs(matches).str.to_lowercase().str.contains(words, literal=True).fill_null(value=False)
        matches = [c for c, inside in zip(matches, in_input, strict=True) if inside or words in c.case.lower()]
    total, n = len(comparison.report.changed), len(matches)
    part, page = rows_of_page(n, PAGE, query.page)
    listed = [replace(c, input=text) for c, text in zip(matches[part], inputs(matches[part]), strict=True)]
    filtered = bool(query.way or query.q)
    return {
        "changed": [_change_line((a, b), comparison, query, change) for change in listed],
        "directions": DIRECTIONS,
        "count": count_of(n, total, "case"),
        "pager": pager(n, PAGE, page, lambda to: query.url(page=to) + "#changes", "Pages of changed cases"),
        "all_changes": query.url(way="", q="", page=1) + "#changes" if filtered else "",
    }


def _change_line(
    sides: Sequence[RunView], comparison: PageComparison, query: CompareQuery, change: ChangedCase
) -> dict[str, Any]:
    """A changed case in the list, and where the page loads its candidates from."""
    rows, metric, top_k = comparison.rows[change.case], comparison.report.graded_by, query.fields.top_k
    params = {"rows": f"{rows[0]},{rows[1]}", "metric": metric} | ({"top_k": str(top_k)} if top_k else {})
    runs = [(name, os.fsencode(run)) for name, run in zip("ab", query.runs, strict=True)]
    return {
        **case_summary(change),
        "strips": [marks(side, row, metric, top_k) for side, row in zip(sides, rows, strict=True)],
        "candidates_url": f"/compare/case?{urlencode([*runs, *params.items()], errors='replace')}",
        "links": _case_urls(sides, rows),
    }


def _case_urls(sides: Sequence[RunView], rows: Sequence[int]) -> list[str]:
    """The case in each run."""
    pairs = zip(sides, rows, strict=True)
    return [case_url(view.name, view.scores["id"][row], row, CaseQuery()) for view, row in pairs]


def case(viewer: Viewer, request: Request) -> Response:
    """The candidates of both runs for one case, which the page loads when it is unfolded."""
    params = dict(parse_params(request.scope["query_string"]))
    names = named_runs(list(params.items()))
    if len(names) != 2:
        raise NotFound("this takes two runs, a= and b=")
    a, b = (viewer.runs.get(name) for name in names)
    first, _, second = params.get("rows", "").partition(",")
    at_a, at_b = whole_number(first), whole_number(second)
    if at_a is None or at_b is None or at_a >= a.n or at_b >= b.n:
        raise NotFound("there is no such case: the runs may have changed meanwhile")
    rows = at_a, at_b
    changed, left = compared_case(a, b, rows, params.get("metric", ""), positive(params.get("top_k", "")))
    body = {**case_bodies([changed], MAX_CHARACTERS)[0], "left": left, "links": _case_urls((a, b), rows)}
    return Response(json.dumps(body), media_type="application/json")  # in ASCII: names may hold any bytes


# --- which runs


def choose(viewer: Viewer, query: CompareQuery, message: str = "") -> Response:
    """Two lists of runs; those of the task of the first come first."""
    lines = [line for line in viewer.run_list.lines() if line.status not in ("unreadable", "running", "stopped")]
    newest = sorted(lines, key=lambda line: line.when, reverse=True)
    first = query.runs[0] if query.runs else None
    task = next((line.task for line in newest if line.name == first), None)
    # the newest, and the one that is chosen already
    offered = [*newest[:MAX_OFFERED], *(line for line in newest[MAX_OFFERED:] if line.name == first)]
    return render_page(
        "compare_choose.html.j2",
        title="Compare",
        section="compare",
        scripts=["compare_form.js"],
        message=message,
        first=first,
        task=task,
        groups=_by_task(offered, task),
        n_offered=len(offered),
        n_runs=len(lines),
        label=label,
        newest=[(task, *runs[:2]) for task, runs in _by_task(newest, task) if len(runs) > 1][:MAX_TASKS],
        compare_url=lambda a, b: CompareQuery(runs=(a.name, b.name)).url(),
    )


def _by_task(lines: Sequence[RunLine], first: str | None) -> list[tuple[str, list[RunLine]]]:
    """The runs of each task: the task `first`, then the others in the order of their newest runs."""
    groups: dict[str, list[RunLine]] = {}
    for line in lines:
        groups.setdefault(line.task, []).append(line)
    return sorted(groups.items(), key=lambda group: group[0] != first)
