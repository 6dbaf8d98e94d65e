"""Two runs beside each other: every difference with its interval, and the cases that changed, a page at a time."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
from markupsafe import Markup
from starlette.responses import Response

from kofn.diagnose import counted
from kofn.errors import InputError
from kofn.report.comparison_page import bodies, page_data, summary
from kofn.report.comparison_text import title
from kofn.web import shell
from kofn.web.cases import Wanted
from kofn.web.compared import Wish, case_of, label, marks
from kofn.web.folder import Absent, address
from kofn.web.later import waiting
from kofn.web.run_page import case_at
from kofn.web.runs_page import pager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from kofn.differences import Changed
    from kofn.web.app import Viewer
    from kofn.web.browsed import Browsed
    from kofn.web.compared import Kept
    from kofn.web.listing import Line

PAGE = 50  # changed cases on one page
ROOM = 2_000_000  # characters of the candidates of one case
MOST_OFFERED = 1_000  # runs to choose from
MOST_TASKS = 30  # tasks whose newest runs are offered
WAYS = {"down": "pass → fail", "up": "fail → pass"}
_MOST_FIELDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an address asks for: which runs, what of them, and which of the cases that changed.

    runs  the baseline first; `a=` and `b=` name them one by one
    """

    runs: tuple[str, ...] = ()
    wish: Wish = field(default_factory=Wish)
    way: str = ""
    q: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: bytes) -> Asked:
        """What is asked for; words that mean nothing here are passed over. Names of runs may hold any bytes.

        >>> Asked.of(b"run=x&b=y%ff&number=mean&page=2").pairs()
        [('a', b'x'), ('b', b'y\\xff'), ('number', 'mean'), ('page', '2')]
        """
        pairs = _pairs(query)

        def every(name: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(value for key, value in pairs if key == name and value))

        def one(name: str) -> str:
            return next(iter(every(name)), "")

        runs = _runs(pairs)
        numbers = tuple(part.strip() for text in every("number") for part in _split(text) if part.strip())
        return cls(
            runs=runs,
            wish=Wish(
                metrics=every("metric"),
                numbers=tuple(dict.fromkeys(numbers)),
                by=every("by"),
                verdict=one("verdict").strip()[:200],
                top_k=_number(one("top_k")),
            ),
            way=one("way") if one("way") in WAYS else "",
            q=one("q")[:500].strip(),
            page=_number(one("page")) or 1,
        )

    def pairs(self) -> list[tuple[str, str | bytes]]:
        """The same as names and values."""
        wish = self.wish
        told = (
            [("number", n) for n in wish.numbers] + [("metric", m) for m in wish.metrics] + [("by", b) for b in wish.by]
        )
        told += [("verdict", wish.verdict), ("top_k", str(wish.top_k or "")), ("way", self.way), ("q", self.q)]
        told += [("page", str(self.page) if self.page > 1 else "")]
        runs: list[tuple[str, str | bytes]] = [(n, os.fsencode(run)) for n, run in zip("ab", self.runs, strict=False)]
        return [*runs, *((name, value) for name, value in told if value)]

    def address(self, **changes: Any) -> str:
        """Where this is shown, with changes."""
        return f"/compare?{urlencode(replace(self, **changes).pairs(), errors='replace')}"


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("utf-8", "surrogateescape"),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError:
        raise InputError(f"this address asks for more than {_MOST_FIELDS} things") from None


def _runs(pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The runs that are named, the baseline first; an empty name is the folder itself."""
    named = {key: value.strip("/") for key, value in reversed(pairs) if key in ("a", "b")}
    rest = [value.strip("/") for key, value in pairs if key == "run"]
    return tuple(([named["a"]] if "a" in named else []) + rest + ([named["b"]] if "b" in named else []))


def _split(text: str) -> list[str]:
    """Names between commas that stand in no brackets.

    >>> _split("pass@2, ndcg(k=3, gain='exp2')")
    ['pass@2', " ndcg(k=3, gain='exp2')"]
    """
    parts, depth = [""], 0
    for letter in text[:1000]:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _number(text: str) -> int | None:
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 9 else None


def show(viewer: Viewer, request: Request) -> Response:
    """The page; where two runs are not named yet, two lists of them."""
    asked = Asked.of(request.scope["query_string"])
    if len(asked.runs) < 2:
        return choose(viewer, asked)
    if len(asked.runs) > 2:
        raise InputError(f"{len(asked.runs)} runs: two are compared here; `kofn compare A B C` takes more")
    if viewer.folder.run(asked.runs[0]) == viewer.folder.run(asked.runs[1]):
        return choose(viewer, replace(asked, runs=asked.runs[:1]), "These are one and the same run: choose another.")
    kept = viewer.comparisons.get((asked.runs[0], asked.runs[1]), asked.wish)
    if kept is None:
        return waiting("Comparing …", f"{' and '.join(map(label, asked.runs))}: the page comes by itself.")
    a, b = (viewer.shelf.get(name) for name in asked.runs)
    body = shell.fragment(
        "compared.html.j2",
        asked=asked,
        runs=[(label(name), address(name)) for name in asked.runs],
        swap=asked.address(runs=asked.runs[::-1], way=_other(asked.way), page=1),
        others=[f"/compare?{urlencode([('run', os.fsencode(name))])}" for name in asked.runs],
        kept=kept,
        **page_data(kept.found),
        **_changes(a, b, kept, asked),
    )
    return shell.framed(
        Markup(body),  # noqa: S704 - the template escapes
        title=title(kept.found),
        here="compare",
        scripts=["compare.js", "asked.js"],
    )


def _other(way: str) -> str:
    return {"up": "down", "down": "up"}.get(way, "")


# --- the cases that changed


def _changes(a: Browsed, b: Browsed, kept: Kept, asked: Asked) -> dict[str, Any]:
    """The cases that changed and fit what is asked, a page of them."""
    fits = _fitting(b, kept, asked)
    page = min(asked.page, max(1, -(-len(fits) // PAGE)))
    part = fits[(page - 1) * PAGE : page * PAGE]
    inputs = b.questions(np.array([kept.rows[one.case][1] for one in part], dtype=np.int64)).to_list()
    total = len(kept.found.changed)
    return {
        "changed": [_line(a, b, kept, asked, one, text) for one, text in zip(part, inputs, strict=True)],
        "ways": WAYS,
        "hidden": [(n, v.decode("utf-8", "replace") if isinstance(v, bytes) else v) for n, v in asked.pairs()],
        "count": counted(total, "case") if len(fits) == total else f"{len(fits):,} of {counted(total, 'case')}",
        "pager": pager(len(fits), PAGE, page, lambda to: asked.address(page=to) + "#changes", "Pages of changed cases"),
        "all_changes": asked.address(way="", q="", page=1) + "#changes" if asked.way or asked.q else "",
    }


def _fitting(b: Browsed, kept: Kept, asked: Asked) -> list[Changed]:
    """Those of the way and with the words that are asked for."""
    found = [one for one in kept.found.changed if asked.way in ("", one.way)]
    if not asked.q or not found:
        return found
    words = asked.q.lower()
    inputs = b.questions(np.array([kept.rows[one.case][1] for one in found], dtype=np.int64))
    there = inputs.str.to_lowercase().str.contains(words, literal=True).fill_null(value=False).to_list()
    return [one for one, inside in zip(found, there, strict=True) if inside or words in one.case.lower()]


def _line(a: Browsed, b: Browsed, kept: Kept, asked: Asked, one: Changed, text: str | None) -> dict[str, Any]:
    """What the list shows of one, and where its candidates are."""
    rows, metric, top_k = kept.rows[one.case], kept.found.graded_by, asked.wish.top_k
    more = {"rows": f"{rows[0]},{rows[1]}", "metric": metric} | ({"top_k": str(top_k)} if top_k else {})
    runs = [(name, os.fsencode(run)) for name, run in zip("ab", asked.runs, strict=True)]
    return {
        **summary(replace(one, input=text)),
        "strips": [marks(side, row, metric, top_k) for side, row in zip((a, b), rows, strict=True)],
        "from_": f"/compare/case?{urlencode([*runs, *more.items()], errors='replace')}",
        "links": _links((a, b), rows),
    }


def _links(sides: Sequence[Browsed], rows: Sequence[int]) -> list[str]:
    """The case in each run."""
    pairs = zip(sides, rows, strict=True)
    return [case_at(one.name, one.scores["id"][row], row, Wanted()) for one, row in pairs]


def case(viewer: Viewer, request: Request) -> Response:
    """The candidates of both runs for one case, as the page unfolds them."""
    pairs = dict(_pairs(request.scope["query_string"]))
    runs = _runs(list(pairs.items()))
    if len(runs) != 2:
        raise Absent("this takes two runs, a= and b=")
    a, b = (viewer.shelf.get(name) for name in runs)
    rows = _rows((a, b), pairs.get("rows", ""))
    found, left = case_of(a, b, rows, pairs.get("metric", ""), _number(pairs.get("top_k", "")))
    body = {**bodies([found], ROOM)[0], "left": left, "links": _links((a, b), rows)}
    return Response(json.dumps(body), media_type="application/json")  # in ASCII: names may hold any bytes


def _rows(sides: Sequence[Browsed], text: str) -> tuple[int, int]:
    first, _, second = text.partition(",")
    rows = [int(part) if part.isascii() and part.isdigit() and len(part) < 12 else -1 for part in (first, second)]
    if not all(0 <= row < one.n for one, row in zip(sides, rows, strict=True)):
        raise Absent("there is no such case: the runs may have changed meanwhile")
    return rows[0], rows[1]


# --- which runs


def choose(viewer: Viewer, asked: Asked, said: str = "") -> Response:
    """Two lists of runs; those of the task of the first come first."""
    lines = [line for line in viewer.listing.lines() if line.status not in ("unreadable", "running", "stopped")]
    newest = sorted(lines, key=lambda line: line.when, reverse=True)
    first = asked.runs[0] if asked.runs else None
    task = next((line.task for line in newest if line.name == first), None)
    offered = _offered(newest, first)
    return shell.page(
        "compare_pick.html.j2",
        title="Compare",
        here="compare",
        scripts=["asked.js"],
        said=said,
        first=first,
        task=task,
        groups=_by_task(offered, task),
        n_offered=len(offered),
        n_runs=len(lines),
        label=label,
        newest=[(task, *runs[:2]) for task, runs in _by_task(newest, task) if len(runs) > 1][:MOST_TASKS],
        compare_at=lambda a, b: Asked(runs=(a.name, b.name)).address(),
    )


def _offered(newest: Sequence[Line], first: str | None) -> list[Line]:
    """The newest runs, and the one that is chosen already."""
    kept = list(newest[:MOST_OFFERED])
    return kept + [line for line in newest[MOST_OFFERED:] if line.name == first]


def _by_task(lines: Sequence[Line], first: str | None) -> list[tuple[str, list[Line]]]:
    """The runs of each task, the wanted task first, then by how new they are."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.task, []).append(line)
    return sorted(groups.items(), key=lambda group: group[0] != first)
