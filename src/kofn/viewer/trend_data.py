"""Trends of a task for a page: each run is read once, only what a trend needs, and kept until its files change."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.analysis.trend import build_trend
from kofn.errors import InputError
from kofn.runs.index import SkippedRun, load_completed, read_columns
from kofn.viewer.caches import BackgroundCache
from kofn.viewer.run_folder import NotFound, run_stamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kofn.analysis.trend import Trend
    from kofn.runs.index import IndexColumn, StoredRun
    from kofn.viewer.run_folder import RunFolder, Stamp
    from kofn.viewer.run_list import RunLine

NEWEST = 200  # runs on a page by default
MAX_RUNS = 2_500  # on a page, and in memory
CASES = 400_000  # of all runs on a page by default; two runs may have more
MAX_CASES = 2_000_000  # of all runs on a page, and in memory
EXCLUDED = ("running", "stopped", "unreadable")  # statuses of runs that have no part in a trend
# the entries of a manifest that a trend reads
_MANIFEST = ("created", "kind", "sources", "options", "files")
_LAYOUT = ("case_columns", "tags", "values", "metrics")
_UNDERSTOOD = ("fields", "weight", "cluster", "metrics", "set_size")


class RunWindow(NamedTuple):
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

    >>> from kofn.viewer.run_list import RunLine
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
            reason = f"{name}: its name is no Unicode text, so its files cannot be opened: rename it"
            return _LoadedRun(stamp, reason=reason)
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
    if models := (run.manifest.get("generation") or {}).get("models"):
        manifest["generation"] = {"models": models}
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
