"""The runs of a folder, a line each: read lightly, kept until a file changes, searched and sorted."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.generate.live import RECENT
from kofn.report.evaluation import EVALUATION, check_version
from kofn.report.files import MANIFEST, read_json
from kofn.report.past import task_of
from kofn.web.folder import LIVE, STORE
from kofn.web.standing import share, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.web.folder import Folder, Found

FIRST = ("any_pass", "majority", "mean", "first")  # of several numbers the one that heads a line, after the verdict's
SORTS = ("when", "name", "task", "model", "status", "point", "cases", "candidates", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A run in the list. `problem` is the task without the checkpoint of programs.

    `status`: passed, failed, incomplete, running, stopped or unreadable; `why` says more.
    """

    name: str
    status: str
    why: str = ""
    task: str = ""
    problem: str = ""
    when: str = ""
    kind: str = ""
    model: str = ""
    metric: str = ""
    aggregator: str = ""
    point: float | None = None
    low: float | None = None
    high: float | None = None
    cases: int | None = None
    candidates: int | None = None
    cost: float | None = None
    missing: int = 0
    tags: tuple[str, ...] = ()
    parent: str = ""
    share: float | None = None  # of what is to be done, while it is

    @property
    def words(self) -> str:
        """What a search looks through."""
        return "\n".join((self.name, self.task, self.model, self.status, self.kind, *self.tags)).lower()


class Listing:
    """The lines of a folder; of a run whose files have not changed since, the line is not made again."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[Any, ...], Line]] = {}
        self._lock = threading.Lock()

    def lines(self) -> list[Line]:
        """Every run there is now, by name."""
        with self._lock:
            found = list(self.folder.runs())
            self._known = {one.name: self._line(one) for one in found}
            return [line for _, line in self._known.values()]

    def _line(self, found: Found) -> tuple[tuple[Any, ...], Line]:
        known = self._known.get(found.name)
        if known is not None and known[0] == found.stamp and known[1].status != "running":
            return known
        return found.stamp, line_of(found)


def line_of(found: Found) -> Line:
    """The line of one run. One that cannot be read, or is gone meanwhile, has a line that says so."""
    names = {name for name, _, _ in found.stamp}
    try:
        if MANIFEST not in names and (EVALUATION not in names or STORE in names):
            return _going(found)
        if _is_fresh(found):
            again = _going(found)
            if again.status == "running":
                return again
        body = read_json(found.path / EVALUATION)
        check_version(found.path / EVALUATION, body)
        manifest = read_json(found.path / MANIFEST) if MANIFEST in names else {}
        return _stored(found, body, manifest)
    except InputError as problem:
        return Line(name=found.name, status="unreadable", why=str(problem).replace(f"{found.path}/", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        why = f"not as kofn writes it ({type(problem).__name__}: {problem})"
        return Line(name=found.name, status="unreadable", why=why[:200])


def _is_fresh(found: Found) -> bool:
    """Whether a process may be at work in a directory that holds results: it would have said so a moment ago."""
    now = time.time()
    return any(name == LIVE and abs(now - changed / 1e9) < 2 * RECENT for name, changed, _ in found.stamp)


def _going(found: Found) -> Line:
    """A run that is not finished: what its process says of it."""
    now = standing(found.path)
    live = now.live
    if live is None:
        return Line(name=found.name, status="stopped", why=now.why)
    first = live.estimates[0] if live.estimates else None
    return Line(
        name=found.name,
        status="running" if now.going else "stopped",
        why=f"{now.word.lower()}: {now.why}" if now.going and now.word != "Running" else now.why,
        task=live.task,
        when=live.started,
        kind=live.kind,
        model=live.model,
        cases=live.cases_total,
        candidates=live.candidates_total if live.kind == "run" else None,
        cost=live.cost or None,
        metric=first.metric if first else "",
        aggregator=first.aggregator if first else "",
        point=first.point if first else None,
        low=first.low if first else None,
        high=first.high if first else None,
        share=share(live) if now.going else None,
    )


def _stored(found: Found, body: Mapping[str, Any], manifest: Mapping[str, Any]) -> Line:
    result = manifest.get("result") or {}
    status, why = _status(body, manifest)
    spent = (result.get("diagnostics") or {}).get("cost") or {}
    first = _headline(result.get("estimates") or (), body.get("verdict"))
    first = first or {"aggregator": "score", "point": body.get("score")}
    return Line(
        name=found.name,
        status=status,
        why=why,
        problem=str(body["problem_name"]),
        task=task_of(str(body["problem_name"]), str(body.get("name")), manifest),
        when=str(manifest.get("created") or body.get("timestamp") or ""),
        kind=str(manifest.get("kind") or ""),
        model=_model(manifest),
        cases=result.get("n_cases", sum(body["total_counts"].values())),
        candidates=result.get("n_candidates"),
        cost=spent.get("total"),
        missing=int(result.get("n_missing") or 0) + int(body.get("n_unverified") or 0),
        tags=tuple(map(str, manifest.get("tags") or ())),
        parent=str((manifest.get("parent") or {}).get("name") or ""),
        metric=str(first.get("metric") or ""),
        aggregator=str(first["aggregator"]),
        point=first.get("point"),
        low=first.get("low"),
        high=first.get("high"),
    )


def _status(body: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[str, str]:
    if body.get("infrastructure_failure") is not None:
        return "incomplete", f"the harness failed: {body['infrastructure_failure']}"
    stopped = (manifest.get("generation") or {}).get("stopped")
    decision = body["policies"][body["policy"]]
    if stopped:
        return "incomplete", f"stopped: {stopped}"
    if body.get("n_unverified") == sum(body["total_counts"].values()) > 0:
        return "incomplete", "nothing was verified"
    return ("passed" if decision["passed"] else "failed"), str(decision["reason"])


def _model(manifest: Mapping[str, Any]) -> str:
    made = (manifest.get("generation") or {}).get("models")
    if isinstance(made, dict):
        return ", ".join(dict.fromkeys(map(str, made.values())))
    told = manifest.get("verify")
    if isinstance(told, dict) and told.get("submission"):
        return str(told["submission"])
    return str((((manifest.get("result") or {}).get("understood") or {}).get("origin") or {}).get("model") or "")


def _headline(estimates: Sequence[Mapping[str, Any]], verdict: Any) -> Mapping[str, Any] | None:
    """The number a reader looks for first: what says whether a case passes, else the usual ones, else the first."""
    overall = [e for e in estimates if e.get("segment") is None]
    if not overall:
        return None
    of_first = {e["aggregator"]: e for e in overall if e["metric"] == overall[0]["metric"]}
    rule = str(verdict or "").partition(" ")[0]
    return next((of_first[name] for name in (rule, *FIRST) if name in of_first), overall[0])


# --- what is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which lines, in which order, and which of their pages."""

    query: str = ""
    task: str = ""
    model: str = ""
    status: str = ""
    tag: str = ""
    sort: str = "when"
    down: bool = True
    page: int = 1


def chosen(lines: Sequence[Line], asked: Asked) -> list[Line]:
    """The lines that fit, in order. Every word of the query must be somewhere in a line; what has no value comes last.

    >>> lines = [Line(name="a", status="passed", task="t"), Line(name="b", status="failed", task="u", point=0.5)]
    >>> [line.name for line in chosen(lines, Asked(sort="point"))]
    ['b', 'a']
    >>> [line.name for line in chosen(lines, Asked(query="T a"))]
    ['a']
    """
    words = asked.query.lower().split()
    tests: list[tuple[str, Callable[[Line], bool]]] = [
        (asked.task, lambda line: line.task == asked.task),
        (asked.model, lambda line: line.model == asked.model),
        (asked.status, lambda line: line.status == asked.status),
        (asked.tag, lambda line: asked.tag in line.tags),
    ]
    found = [line for line in lines if all(test(line) for given, test in tests if given)]
    if words:
        found = [line for line in found if all(word in line.words for word in words)]
    known = [line for line in found if getattr(line, asked.sort) not in (None, "")]
    rest = [line for line in found if getattr(line, asked.sort) in (None, "")]
    return sorted(known, key=lambda line: getattr(line, asked.sort), reverse=asked.down) + rest


def choices(lines: Sequence[Line]) -> dict[str, list[str]]:
    """What there is to filter by: tasks, models, statuses and tags, those that tell lines apart."""
    found = {
        "task": sorted({line.task for line in lines if line.task}),
        "model": sorted({line.model for line in lines if line.model}),
        "status": sorted({line.status for line in lines}),
        "tag": sorted({tag for line in lines for tag in line.tags}),
    }
    return {name: values for name, values in found.items() if len(values) > (name != "tag")}
