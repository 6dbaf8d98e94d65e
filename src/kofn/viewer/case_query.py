"""Which cases of a run a page lists: filters, search words, order and page, all of them from the URL alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from kofn.viewer.urls import run_url, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

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
            within="outputs" if params.get("within") == "outputs" else "",
            verdict=params.get("verdict", "") if params.get("verdict") in VERDICTS else "",
            show=params.get("show", "") if params.get("show") in FILTERS else "",
            group=params.get("group", ""),
            tags=tuple(tag for tag in tags if "=" in tag),
            sort=params.get("sort", "") if params.get("sort") in SORTS else "",
            down=params.get("down") == "1",
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
        query, default = replace(self, **changes), CaseQuery()
        pairs = [("tag", tag) for tag in query.tags]
        for field in fields(query):
            value = getattr(query, field.name)
            if field.name != "tags" and value != getattr(default, field.name):
                pairs.append((field.name, "1" if value is True else str(value)))
        return f"?{urlencode(pairs)}" if pairs else ""


def case_url(name: str, case: str, row: int, query: CaseQuery) -> str:
    """The URL of a case; `query` keeps the filters of the list that it was opened from."""
    filters = query.query_string(page=1).lstrip("?")
    key = urlencode({"id": case, "row": row}, errors="replace")
    return f"{run_url(name, 'case')}?{key}{'&' + filters if filters else ''}"
