"""The list of runs: one line per run, read from its small files and kept until they change; search and order."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kofn.core.document import estimate_dict
from kofn.errors import InputError
from kofn.generate.progress_file import RECENT
from kofn.render.run_summary import UNDEFINED, checks_sentence
from kofn.runs.files import CHECKS, MANIFEST, read_json
from kofn.runs.index import read_evaluation_body, task_of
from kofn.runs.manifest import defines_verdict, read_checks
from kofn.runs.record import stored_headline
from kofn.runs.run_tables import EVALUATION
from kofn.viewer.event_streams import PAUSE
from kofn.viewer.run_folder import PROGRESS_FILE, STORE_FILE, fraction_done, read_status
from kofn.viewer.templating import changed_pairs, query_string, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.viewer.run_folder import RunEntry, RunFolder

SORTS = ("when", "name", "task", "model", "status", "point", "cases", "candidates", "cost")
_HEADLINE = ("metric", "aggregator", "point", "low", "high")  # of the estimate that a line shows
IDLE_PAUSE = 3.0  # seconds between two scans of a folder in which no run is active
MAX_SHARE, MAX_PAUSE = 0.05, 5.0  # of the time that scanning a folder may take; seconds between two scans, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run in the list. Its fields are the columns of runs.csv too.

    `problem` is the task without the checkpoint of programs. `status`: finished, or passed or failed where there is
    a verdict; incomplete, running, stopped or unreadable; `why` says more.
    """

    name: str
    status: str
    why: str = ""
    task: str = ""
    problem: str = ""
    when: str = ""
    kind: str = ""
    model: str = ""
    headline: str = ""
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
    share: float | None = None  # of the work that is done, while a run is active

    @property
    def words(self) -> str:
        """The text that a search goes through."""
        return "\n".join((self.name, self.task, self.model, self.status, self.kind, *self.tags)).lower()


class RunList:
    """The lines of a folder; a line is read again only where a file of its run has changed."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[Any, ...], RunLine]] = {}
        self._lock = threading.Lock()

    def lines(self) -> list[RunLine]:
        """Every run there is now, by name."""
        with self._lock:
            entries = list(self.folder.runs())
            known, self._known = self._known, {}
            for entry in entries:
                stamp, line = known.get(entry.name, (None, None))
                # a process that is killed changes no file: what runs is checked every time
                if line is None or stamp != entry.stamp or line.status == "running":
                    line = read_line(entry)
                self._known[entry.name] = entry.stamp, line
            return [line for _, line in self._known.values()]


class RecentLines:
    """The list of runs for all who poll it: scanned at most so often that it takes little of the time."""

    def __init__(self, run_list: RunList) -> None:
        self.run_list = run_list
        self._lock = threading.Lock()
        self._lines: dict[str, RunLine] = {}
        self._due = 0.0

    def lines(self) -> dict[str, RunLine]:
        """Every run by name, as of a moment ago; the same object until the folder is scanned again."""
        with self._lock:
            start = time.monotonic()
            if start >= self._due:
                self._lines = {line.name: line for line in self.run_list.lines()}
                took = time.monotonic() - start
                pause = PAUSE if any(line.status == "running" for line in self._lines.values()) else IDLE_PAUSE
                # a little less than the pause of a stream, so that each of its polls finds a new scan
                self._due = start + max(0.9 * pause, min(MAX_PAUSE, took / MAX_SHARE))
            return self._lines


def read_line(entry: RunEntry) -> RunLine:
    """The line of one run. One that cannot be read, or is gone meanwhile, has a line that says so."""
    names = {name for name, _, _ in entry.stamp}
    try:
        if MANIFEST not in names and (EVALUATION not in names or STORE_FILE in names):
            return _unfinished_line(entry)
        now = time.time()
        # results and a progress file that is a moment old: a process may be at work
        if any(name == PROGRESS_FILE and abs(now - at / 1e9) < 2 * RECENT for name, at, _ in entry.stamp):
            line = _unfinished_line(entry)
            if line.status == "running":
                return line
        manifest = read_json(entry.path / MANIFEST) if MANIFEST in names else {}
        body = read_evaluation_body(entry.path, manifest)
        return _stored_line(entry, body, manifest)
    except InputError as problem:
        return RunLine(name=entry.name, status="unreadable", why=str(problem).replace(f"{entry.path}/", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        why = f"not as kofn writes it ({type(problem).__name__}: {problem})"
        return RunLine(name=entry.name, status="unreadable", why=why[:200])


def _unfinished_line(entry: RunEntry) -> RunLine:
    """The line of a run without results, from the progress that its process wrote."""
    status = read_status(entry.path)
    live = status.live
    if live is None:
        return RunLine(name=entry.name, status="stopped", why=status.detail)
    headline: dict[str, Any] = {}
    if live.estimates:
        headline = {name: getattr(live.estimates[0], name) for name in _HEADLINE}
    is_special = status.active and status.label != "Running"
    return RunLine(
        name=entry.name,
        status="running" if status.active else "stopped",
        why=f"{status.label.lower()}: {status.detail}" if is_special else status.detail,
        task=live.task,
        when=live.started,
        kind=live.kind,
        model=live.model,
        cases=live.cases_total,
        candidates=live.candidates_total if live.kind == "run" else None,
        cost=live.cost or None,
        share=fraction_done(live) if status.active else None,
        **headline,
    )


def _stored_line(entry: RunEntry, body: Mapping[str, Any], manifest: Mapping[str, Any]) -> RunLine:
    result = manifest.get("result") or {}
    status, why = _status(entry, body, manifest)
    cost = (result.get("diagnostics") or {}).get("cost") or {}
    headline = stored_headline(manifest)
    estimate = None if headline is None else headline.estimate
    first: Mapping[str, Any] = {"aggregator": "score", "point": body.get("score")}
    if headline is not None:
        first = {"aggregator": ""} if estimate is None else estimate_dict(estimate)
    return RunLine(
        name=entry.name,
        status=status,
        why=why,
        problem=str(body["problem_name"]),
        task=task_of(str(body["problem_name"]), str(body.get("name")), manifest),
        when=str(manifest.get("created") or body.get("timestamp") or ""),
        kind=str(manifest.get("kind") or ""),
        model=_model(manifest),
        cases=result.get("n_cases", sum(body["total_counts"].values())),
        candidates=result.get("n_candidates"),
        cost=cost.get("total"),
        missing=int(result.get("n_missing") or 0) + int(body.get("n_unverified") or 0),
        tags=tuple(map(str, manifest.get("tags") or ())),
        parent=str((manifest.get("parent") or {}).get("name") or ""),
        headline="" if headline is None else headline.text,
        metric=str(first.get("metric") or ""),
        aggregator=str(first["aggregator"]),
        **{name: first.get(name) for name in ("point", "low", "high")},
    )


def _status(entry: RunEntry, body: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Passed or failed only where somebody defined a verdict, or checked the run; else finished."""
    if body.get("infrastructure_failure") is not None:
        return "incomplete", f"the harness failed: {body['infrastructure_failure']}"
    stopped = (manifest.get("generation") or {}).get("stopped")
    decision = body["policies"][body["policy"]]
    if stopped:
        return "incomplete", f"stopped: {stopped}"
    if body.get("n_unverified") == sum(body["total_counts"].values()) > 0:
        return "incomplete", "nothing was verified"
    if defines_verdict(manifest, str(body["policy"])):
        return ("passed" if decision["passed"] else "failed"), str(decision["reason"])
    checks = read_checks(entry.path / CHECKS, manifest)
    if checks is None:
        return "finished", UNDEFINED
    return ("passed" if checks["passed"] else "failed"), checks_sentence(checks)


def _model(manifest: Mapping[str, Any]) -> str:
    models = (manifest.get("generation") or {}).get("models")
    if isinstance(models, dict):
        return ", ".join(dict.fromkeys(map(str, models.values())))
    verify = manifest.get("verify")
    if isinstance(verify, dict) and verify.get("submission"):
        return str(verify["submission"])
    return str((((manifest.get("result") or {}).get("understood") or {}).get("origin") or {}).get("model") or "")


# --- search, filters and order


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which lines, in which order, and which page of them."""

    q: str = ""
    task: str = ""
    model: str = ""
    status: str = ""
    tag: str = ""
    sort: str = "when"
    down: bool = True
    page: int = 1

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> RunQuery:
        """The query of a URL. Unknown values are ignored.

        >>> RunQuery.parse({"q": "gsm", "sort": "cost", "page": "x"})
        RunQuery(q='gsm', task='', model='', status='', tag='', sort='cost', down=True, page=1)
        """
        return cls(
            q=params.get("q", "")[:500],
            **{name: params.get(name, "") for name in ("task", "model", "status", "tag")},
            sort=params["sort"] if params.get("sort") in SORTS else "when",
            down=params.get("up") != "1",
            page=whole_number(params.get("page", "1")) or 1,
        )

    def query_string(self, **changes: Any) -> str:
        """The query string of this query with changes.

        >>> RunQuery(q="a b").query_string(page=2)
        '?q=a+b&page=2'
        """
        values = asdict(replace(self, **changes))
        up = [] if values.pop("down") else [("up", "1")]
        return query_string(changed_pairs(values, asdict(RunQuery())) + up)


def filter_runs(lines: Sequence[RunLine], query: RunQuery) -> list[RunLine]:
    """The lines that match, in order. Every word of the query must occur in a line; lines without a value come last.

    >>> lines = [RunLine(name="a", status="passed", task="t"), RunLine(name="b", status="failed", task="u", point=0.5)]
    >>> [line.name for line in filter_runs(lines, RunQuery(sort="point"))]
    ['b', 'a']
    >>> [line.name for line in filter_runs(lines, RunQuery(q="T a"))]
    ['a']
    """
    words = query.q.lower().split()
    matches = [
        line
        for line in lines
        if all(getattr(query, field) in ("", getattr(line, field)) for field in ("task", "model", "status"))
        and (not query.tag or query.tag in line.tags)
        and all(word in line.words for word in words)
    ]
    known = [line for line in matches if getattr(line, query.sort) not in (None, "")]
    unknown = [line for line in matches if getattr(line, query.sort) in (None, "")]
    return sorted(known, key=lambda line: getattr(line, query.sort), reverse=query.down) + unknown


def filter_choices(lines: Sequence[RunLine]) -> dict[str, list[str]]:
    """The tasks, models, statuses and tags to filter by; only those that tell lines apart."""
    choices = {field: {getattr(line, field) for line in lines} - {""} for field in ("task", "model", "status")}
    choices["tag"] = {tag for line in lines for tag in line.tags}
    # one tag is worth a filter: not every run has it
    return {name: sorted(values) for name, values in choices.items() if len(values) > (name != "tag")}
