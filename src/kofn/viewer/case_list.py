"""The cases of a run that a query asks for, a page at a time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from kofn.core.format import format_count
from kofn.render.case_payload import first_failures
from kofn.runs.case_reports import explode_structs
from kofn.viewer.run_view import related_extractors
from kofn.viewer.templating import changed_pairs, query_string, run_url, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from kofn.viewer.run_view import Bools, RunView

    Ints = np.ndarray[Any, np.dtype[np.int64]]

VERDICTS = {"passed": 1, "failed": 0, "unverified": -1}
FILTERS: dict[str, str] = {
    "all_fail": "all candidates fail",
    "some_fail": "some fail, some pass",
    "all_pass": "all candidates pass",
    "not_graded": "some not graded",
    "tied": "the vote is a tie",
    "extractors": "extractors disagree",
    "judge": "judge and label disagree",
    "identical": "identical candidates",
    "truncated": "cut off",
    "errors": "a call failed",
    "flaky": "passes only sometimes",
    "stopped": "was stopped",
}
SORTS = {
    "id": "case",
    "verdict": "verdict",
    "passing": "candidates",
    "score": "score",
    "cost": "cost",
    "seconds": "time",
    "order": "order of the run",
}


_KNOWN = {"within": ("outputs",), "verdict": VERDICTS, "show": FILTERS, "sort": SORTS}  # values that a query may have


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseQuery:
    """Which cases, in which order, and which page of them.

    q        words that the id or the input holds; `within` "outputs" searches the candidates' texts instead
    verdict  passed, failed or unverified
    show     one of `FILTERS`
    group    cases of one group
    tags     "name=value", all of them
    sort     one of `SORTS`; "" is the order of the run
    """

    q: str = ""
    within: str = ""
    verdict: str = ""
    show: str = ""
    group: str = ""
    tags: tuple[str, ...] = ()
    sort: str = ""
    down: bool = False
    page: int = 1

    @classmethod
    def parse(cls, params: Mapping[str, str], tags: tuple[str, ...] = ()) -> CaseQuery:
        """The query of a URL. Unknown values are ignored, so that an old bookmark still opens.

        >>> CaseQuery.parse({"show": "tied", "page": "3", "sort": "cost", "down": "1", "verdict": "?"})
        CaseQuery(q='', within='', verdict='', show='tied', group='', tags=(), sort='cost', down=True, page=3)
        """
        return cls(
            q=params.get("q", "")[:500].strip(),
            group=params.get("group", ""),
            tags=tuple(tag for tag in tags if "=" in tag),
            down=params.get("down") == "1",
            **{name: params[name] for name, known in _KNOWN.items() if params.get(name) in known},
            page=whole_number(params.get("page", "1")) or 1,
        )

    @classmethod
    def from_request(cls, request: Request) -> CaseQuery:
        """The query of a request; `tag` may be given several times."""
        return cls.parse(request.query_params, tuple(request.query_params.getlist("tag")))

    def query_string(self, **changes: Any) -> str:
        """The query string of this query with changes; "" where every field has its default.

        >>> CaseQuery(show="tied").query_string(page=2), CaseQuery().query_string()
        ('?show=tied&page=2', '')
        """
        values = asdict(replace(self, **changes))
        tags = [("tag", tag) for tag in values.pop("tags")]
        return query_string(tags + changed_pairs(values, asdict(CaseQuery())))


def case_url(name: str, case: str, row: int, query: CaseQuery) -> str:
    """The URL of a case; `query` keeps the filters of the list that it was opened from."""
    filters = query.query_string(page=1).replace("?", "&", 1)
    return f"{run_url(name, 'case')}{query_string([('id', case), ('row', str(row))])}{filters}"


PAGE = 50
MAX_VALUES = 60  # a tag with more values is not offered as a filter
MAX_TAGS = 8
SNIPPET = 300
MAX_MARKS = 40  # candidates that are drawn one by one


class CaseSelection(NamedTuple):
    """The rows that match, in order; `note` says where not every candidate was examined yet."""

    rows: Ints
    note: str = ""


def available_filters(view: RunView) -> dict[str, str]:
    """The filters that can match something in a run."""
    if view.sets is None:
        return {name: FILTERS[name] for name in ("flaky", "stopped") if _FLAGS[name](view).any()}
    available = {
        **dict.fromkeys(("all_fail", "some_fail", "all_pass", "not_graded"), view.graded),
        "tied": view.has_votes,
        "extractors": view.has_texts and bool(related_extractors(view.run.result)),
        "judge": bool(view.judges) and len(view.metrics) > 1,
        "identical": view.has_texts and bool((view.sets.sizes > 1).any()),
        "truncated": view.has_texts or "finish" in view.candidate_schema,
        "errors": "error" in view.candidate_schema,
    }
    return {name: words for name, words in FILTERS.items() if available.get(name)}


def select_cases(view: RunView, query: CaseQuery) -> CaseSelection:
    """The cases that match a query."""
    matches = np.ones(view.n, dtype=bool)
    note = ""
    if query.verdict:
        matches &= view.verdicts == VERDICTS[query.verdict]
    if query.show and query.show in available_filters(view):
        if query.show == "extractors":
            flags, share = view.extracted_differently()
            note = f"{share:.0%} of the outputs were read again so far: reload for the rest" if share < 1 else ""
        else:
            with view.lock:  # each is computed once, however many requests need it
                flags = _FLAGS[query.show](view)
        matches &= flags
    if query.group:
        matches &= (view.scores["group"] == query.group).to_numpy()
    for tag in query.tags:
        matches &= _with_tag(view, tag)
    if query.q:
        matches &= _with_words(view, query)
    return CaseSelection(rows=_sorted(view, np.flatnonzero(matches), query), note=note)


def _of_counts(test: Callable[[Any, Any], Any]) -> Callable[[RunView], Bools]:
    return lambda view: np.asarray(test(*view.counts), dtype=bool)


_FLAGS: dict[str, Callable[[RunView], Bools]] = {
    "all_fail": _of_counts(lambda graded, passing: (graded > 0) & (passing == 0)),
    "some_fail": _of_counts(lambda graded, passing: (passing > 0) & (passing < graded)),
    "all_pass": _of_counts(lambda graded, passing: (graded > 0) & (passing == graded)),
    # a case without candidates has nothing graded either
    "not_graded": lambda view: np.asarray(view.counts[0] < np.maximum(view.candidate_sets.sizes, 1), dtype=bool),
    "tied": lambda view: view.tied,
    "judge": lambda view: view.judge_differs,
    "identical": lambda view: view.identical,
    "truncated": lambda view: view.truncated,
    "errors": lambda view: view.failed_calls,
    "flaky": lambda view: view.flaky,
    "stopped": lambda view: view.stopped,
}


def _with_tag(view: RunView, tag: str) -> Bools:
    """Cases with "name=value"; an unknown name matches none."""
    name, _, value = tag.partition("=")
    if view.table is None or name not in view.table.tags.columns:
        return np.zeros(view.n, dtype=bool)
    column = view.table.tags[name].cast(pl.String).fill_null("(none)")
    return (column == value).to_numpy()


def _with_words(view: RunView, query: CaseQuery) -> Bools:
    if query.within == "outputs":
        return view.outputs_with(query.q)
    words = query.q.lower()
    in_id = view.scores["id"].str.to_lowercase().str.contains(words, literal=True)
    inputs = view.questions(np.arange(view.n))
    return (in_id | inputs.str.to_lowercase().str.contains(words, literal=True).fill_null(value=False)).to_numpy()


def _sorted(view: RunView, rows: Ints, query: CaseQuery) -> Ints:
    if not query.sort and view.sets is None:  # of programs, what fails comes first
        rank = np.array([0, 2, 1])[view.verdicts[rows]]  # failed is 0, passed 1, and -1 counts from the end
        return np.asarray(rows[np.argsort(rank, kind="stable")], dtype=np.int64)
    values = _sort_values(view, query.sort)
    if values is None:
        return rows
    order = pl.Series(values).gather(rows).arg_sort(descending=query.down, nulls_last=True).to_numpy()
    return np.asarray(rows[order], dtype=np.int64)


def _sort_values(view: RunView, sort: str) -> Any:
    """The values to sort by, null where a case has none. None: the order of the run."""
    if sort in ("id", "score"):
        return view.scores[sort]
    if sort == "verdict":
        return view.verdicts
    values = view.costs if sort == "cost" else view.seconds if sort == "seconds" else None
    if sort == "passing" and view.graded:
        graded, passing = view.counts
        with np.errstate(all="ignore"):
            values = np.where(graded > 0, passing / graded, np.nan)
    return None if values is None else pl.Series(values, nan_to_null=True)


# --- one page


def page_rows(view: RunView, rows: Ints) -> list[dict[str, Any]]:
    """These cases, as the table shows them."""
    inputs = view.questions(rows).str.slice(0, SNIPPET).to_list()
    scores = view.scores[rows]
    # of a program's case the first wrong attribute and the first difference
    wrong = explode_structs(view.run.reports[rows], "results") if view.sets is None else None
    failing = [""] * len(rows) if wrong is None else first_failures(wrong, len(rows))
    return [
        {
            "row": int(row),
            "id": scores["id"][i],
            "input": " ".join((inputs[i] or "").split()),
            "verdict": int(view.verdicts[row]),
            "group": scores["group"][i],
            "score": scores["score"][i],
            "cost": value_at(view.costs, row),
            "seconds": value_at(view.seconds, row),
            "failing": failing[i],
            **_candidates(view, int(row)),
        }
        for i, row in enumerate(rows.tolist())
    ]


def value_at(values: Any, row: int) -> float | None:
    return None if values is None or np.isnan(values[row]) else float(values[row])


def _candidates(view: RunView, row: int) -> dict[str, Any]:
    """How many candidates pass, and each of a few as a mark."""
    if view.sets is None:
        return {"strip": None, "words": "", "tied": False}
    low, high = view.sets.offsets[row : row + 2].tolist()
    if not view.graded:
        return {
            "strip": None,
            "words": format_count(high - low, "candidate"),
            "tied": view.has_votes and bool(view.tied[row]),
        }
    graded, passing = int(view.counts[0][row]), int(view.counts[1][row])
    marks = pass_marks(view.sets.passes[low:high]) if high - low <= MAX_MARKS else None
    return {"strip": marks, "words": f"{passing:,} of {graded:,}", "tied": view.has_votes and bool(view.tied[row])}


def pass_marks(passes: np.ndarray[Any, np.dtype[np.int8]]) -> list[str]:
    """Whether candidates pass, as CSS classes of the marks that stand for them."""
    return [{1: "s1", 0: "s0"}.get(value, "sx") for value in passes.tolist()]


def tag_filters(view: RunView) -> list[dict[str, Any]]:
    """Tags with few values, those that the run is segmented by first."""
    if view.table is None:
        return []
    by = view.run.options.by
    tags: list[dict[str, Any]] = []
    for column in sorted(view.table.tags.iter_columns(), key=lambda column: column.name not in by):
        if column.dtype.is_nested() or len(tags) == MAX_TAGS:
            continue
        values = column.cast(pl.String).fill_null("(none)").unique(maintain_order=True)
        if 1 < len(values) <= MAX_VALUES:
            tags.append({"name": column.name, "values": sorted(values.to_list())})
    return tags
