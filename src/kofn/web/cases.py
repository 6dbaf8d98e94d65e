"""The cases of a run, filtered, searched, sorted and cut into pages. What is asked for is in the address alone."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
import polars as pl

from kofn.diagnose import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.web.browsed import Bools, Browsed

    Ints = np.ndarray[Any, np.dtype[np.int64]]

PAGE = 50
MOST_VALUES = 60  # a tag with more values is no filter
MOST_TAGS = 8
SNIPPET = 300
STRIP = 40  # candidates that are drawn one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which cases, in which order, and which page of them.

    q        words that the id or the input holds; `within` "outputs" looks into the candidates' texts instead
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
    def of(cls, asked: Mapping[str, str], tags: tuple[str, ...] = ()) -> Wanted:
        """What an address asks for. Words that mean nothing here are no filter.

        >>> Wanted.of({"show": "tied", "page": "3", "sort": "cost", "down": "1", "verdict": "?"})
        Wanted(q='', within='', verdict='', show='tied', group='', tags=(), sort='cost', down=True, page=3)
        """
        return cls(
            q=asked.get("q", "")[:500].strip(),
            within="outputs" if asked.get("within") == "outputs" else "",
            verdict=asked.get("verdict", "") if asked.get("verdict") in VERDICTS else "",
            show=asked.get("show", "") if asked.get("show") in FILTERS else "",
            group=asked.get("group", ""),
            tags=tuple(tag for tag in tags if "=" in tag),
            sort=asked.get("sort", "") if asked.get("sort") in SORTS else "",
            down=asked.get("down") == "1",
            page=whole(asked.get("page", "1")) or 1,
        )

    def query(self, **changes: Any) -> str:
        """The same as the end of an address, with changes; nothing where nothing is asked for.

        >>> Wanted(show="tied").query(page=2), Wanted().query()
        ('?show=tied&page=2', '')
        """
        asked, plain = replace(self, **changes), Wanted()
        pairs = [("tag", tag) for tag in asked.tags]
        for one in fields(asked):
            value = getattr(asked, one.name)
            if one.name != "tags" and value != getattr(plain, one.name):
                pairs.append((one.name, "1" if value is True else str(value)))
        return f"?{urlencode(pairs)}" if pairs else ""


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


def whole(text: str) -> int | None:
    """A whole number of an address; None for anything else.

    >>> whole("12"), whole("-1"), whole("x"), whole("9" * 40)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The rows that fit, in order; `note` says where not everything was looked at yet."""

    rows: Ints
    note: str = ""


def filters_of(one: Browsed) -> dict[str, str]:
    """The filters that can find something in a run."""
    if one.sets is None:
        return {name: FILTERS[name] for name in ("flaky", "stopped") if _FLAGS[name](one).any()}
    known = set(one.candidate_schema)
    from kofn.web.marks import family_of, has_judged_labels

    there = {
        **dict.fromkeys(("all_fail", "some_fail", "all_pass", "not_graded"), one.graded),
        "tied": one.sets.answers is not None,
        "extractors": "text" in known and bool(family_of(one)),
        "judge": has_judged_labels(one),
        "identical": "text" in known and bool((one.sets.sizes > 1).any()),
        "truncated": "text" in known or "finish" in known,
        "errors": "error" in known,
    }
    return {name: words for name, words in FILTERS.items() if there.get(name)}


def chosen(one: Browsed, wanted: Wanted) -> Chosen:
    """The cases that fit what is asked."""
    kept = np.ones(one.n, dtype=bool)
    note = ""
    if wanted.verdict:
        kept &= one.verdicts == VERDICTS[wanted.verdict]
    if wanted.show and wanted.show in filters_of(one):
        flags, note = _shown(one, wanted.show)
        kept &= flags
    if wanted.group:
        kept &= (one.scores["group"] == wanted.group).to_numpy()
    for tag in wanted.tags:
        kept &= _tagged(one, tag)
    if wanted.q:
        kept &= _searched(one, wanted)
    return Chosen(rows=_sorted(one, np.flatnonzero(kept), wanted), note=note)


def _shown(one: Browsed, show: str) -> tuple[Bools, str]:
    if show == "extractors":
        flags, share = one.read_differently()
        note = f"{share:.0%} of the outputs were read again so far: reload for the rest" if share < 1 else ""
        return flags, note
    with one.lock:  # each is made once, however many ask
        return _FLAGS[show](one), ""


def _of_counts(test: Callable[[Any, Any], Any]) -> Callable[[Browsed], Bools]:
    return lambda one: np.asarray(test(*one.counts), dtype=bool)


def _not_graded(one: Browsed) -> Bools:
    assert one.sets is not None
    return np.asarray(one.counts[0] < np.maximum(one.sets.sizes, 1), dtype=bool)


_FLAGS: dict[str, Callable[[Browsed], Bools]] = {
    "all_fail": _of_counts(lambda graded, passing: (graded > 0) & (passing == 0)),
    "some_fail": _of_counts(lambda graded, passing: (passing > 0) & (passing < graded)),
    "all_pass": _of_counts(lambda graded, passing: (graded > 0) & (passing == graded)),
    "not_graded": _not_graded,
    "tied": lambda one: one.tied,
    "judge": lambda one: one.judge_differs,
    "identical": lambda one: one.identical,
    "truncated": lambda one: one.truncated,
    "errors": lambda one: one.failed_calls,
    "flaky": lambda one: one.flaky,
    "stopped": lambda one: one.stopped,
}


def _tagged(one: Browsed, tag: str) -> Bools:
    """Cases with "name=value"; a name that nobody knows fits none."""
    name, _, value = tag.partition("=")
    if one.table is None or name not in one.table.tags.columns:
        return np.zeros(one.n, dtype=bool)
    column = one.table.tags[name].cast(pl.String).fill_null("(none)")
    return (column == value).to_numpy()


def _searched(one: Browsed, wanted: Wanted) -> Bools:
    if wanted.within == "outputs":
        return one.outputs_with(wanted.q)
    words = wanted.q.lower()
    found = one.scores["id"].str.to_lowercase().str.contains(words, literal=True)
    inputs = one.questions(np.arange(one.n))
    return (found | inputs.str.to_lowercase().str.contains(words, literal=True).fill_null(value=False)).to_numpy()


def _sorted(one: Browsed, rows: Ints, wanted: Wanted) -> Ints:
    if not wanted.sort and one.sets is None:  # of programs, what fails comes first
        rank = np.array([0, 2, 1])[one.verdicts[rows]]  # failed is 0, passed 1, and -1 counts from the end
        return np.asarray(rows[np.argsort(rank, kind="stable")], dtype=np.int64)
    values = _values(one, wanted.sort)
    if values is None:
        return rows
    order = pl.Series(values).gather(rows).arg_sort(descending=wanted.down, nulls_last=True).to_numpy()
    return np.asarray(rows[order], dtype=np.int64)


def _values(one: Browsed, sort: str) -> Any:
    """What is sorted by; null where a case has none. None: as they are."""
    if sort in ("", "order"):
        return None
    if sort == "id":
        return one.scores["id"]
    if sort == "verdict":
        return one.verdicts
    if sort == "score":
        return one.scores["score"]
    if sort == "passing":
        if not one.graded:
            return None
        graded, passing = one.counts
        with np.errstate(all="ignore"):
            return pl.Series(np.where(graded > 0, passing / graded, np.nan), nan_to_null=True)
    found = one.costs if sort == "cost" else one.seconds
    return None if found is None else pl.Series(found, nan_to_null=True)


# --- a page of them


def page_of(one: Browsed, found: Chosen, wanted: Wanted) -> list[dict[str, Any]]:
    """What the table shows of the rows of one page."""
    rows = found.rows[(wanted.page - 1) * PAGE : wanted.page * PAGE]
    inputs = one.questions(rows).str.slice(0, SNIPPET).to_list()
    scores = one.scores[rows]
    failing = _failing(one, rows)
    return [
        {
            "row": int(row),
            "id": scores["id"][i],
            "input": " ".join((inputs[i] or "").split()),
            "verdict": int(one.verdicts[row]),
            "group": scores["group"][i],
            "score": scores["score"][i],
            "cost": _at(one.costs, row),
            "seconds": _at(one.seconds, row),
            "failing": failing[i] if failing else "",
            **_candidates(one, int(row)),
        }
        for i, row in enumerate(rows.tolist())
    ]


def _failing(one: Browsed, rows: Ints) -> list[str]:
    if one.sets is not None:
        return []
    from kofn.web.programs import failing

    return failing(one, rows)


def _at(values: Any, row: int) -> float | None:
    return None if values is None or np.isnan(values[row]) else float(values[row])


def _candidates(one: Browsed, row: int) -> dict[str, Any]:
    """How many candidates pass, and each of a few as a mark."""
    if one.sets is None:
        return {"strip": None, "words": ""}
    low, high = int(one.sets.offsets[row]), int(one.sets.offsets[row + 1])
    if not one.graded:
        return {"strip": None, "words": counted(high - low, "candidate")}
    graded, passing = int(one.counts[0][row]), int(one.counts[1][row])
    marks = one.sets.passes[low:high].tolist() if high - low <= STRIP else None
    kinds = None if marks is None else [{1: "s1", 0: "s0"}.get(mark, "sx") for mark in marks]
    return {"strip": kinds, "words": f"{passing:,} of {graded:,}", "tied": bool(one.tied[row])}


def tags_of(one: Browsed) -> list[dict[str, Any]]:
    """Tags of few values: filters."""
    if one.table is None:
        return []
    by = one.run.options.by
    out: list[dict[str, Any]] = []
    for column in sorted(one.table.tags.iter_columns(), key=lambda c: c.name not in by):
        if column.dtype.is_nested() or len(out) == MOST_TAGS:
            continue
        values = column.cast(pl.String).fill_null("(none)").unique(maintain_order=True)
        if 1 < len(values) <= MOST_VALUES:
            out.append({"name": column.name, "values": sorted(values.to_list())})
    return out


def neighbours(found: Chosen, row: int) -> tuple[int | None, int | None, int | None]:
    """(the row before, the row after, the place) of a row among those that fit; None where there is none."""
    at = np.flatnonzero(found.rows == row)
    if not len(at):
        return None, None, None
    i = int(at[0])
    before = int(found.rows[i - 1]) if i else None
    after = int(found.rows[i + 1]) if i + 1 < len(found.rows) else None
    return before, after, i
