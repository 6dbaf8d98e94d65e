"""Runs of a task over time for a page: each run is read once, lightly, and kept until its files change."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.report.past import LeftOut, load_whole, with_columns
from kofn.report.trend import trend_of
from kofn.web.folder import Absent
from kofn.web.later import Later, stamp_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kofn.report.past import Column, Past
    from kofn.report.trend import Trend
    from kofn.web.folder import Folder
    from kofn.web.later import Stamp
    from kofn.web.listing import Line

NEWEST = 200  # runs on a page, unless more are asked for
MOST_RUNS = 2_500  # on a page, and in memory
CASES = 400_000  # of all runs on a page, unless more are asked for; of two runs there may be more
MOST_CASES = 2_000_000  # of all runs on a page, and in memory
LEFT = ("running", "stopped", "unreadable")  # what is no part of a trend
_SOME = ("created", "kind", "sources", "options", "files")  # of a manifest
_LAYOUT = ("case_columns", "tags", "values", "metrics")
_UNDERSTOOD = ("fields", "weight", "cluster", "metrics", "set_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The newest runs of a task, oldest first; `total` is how many it has."""

    lines: tuple[Line, ...]
    total: int

    @property
    def left(self) -> int:
        return self.total - len(self.lines)


def of_task(lines: Sequence[Line], task: str) -> list[Line]:
    """The runs of a task that can be followed, oldest first."""
    return sorted((line for line in lines if line.task == task and line.status not in LEFT), key=moment)


def moment(line: Line) -> datetime:
    """When a run was made; one that does not say comes first."""
    try:
        when = datetime.fromisoformat(line.when)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def newest(runs: Sequence[Line], last: int | None) -> Chosen:
    """The newest so many (None: the usual number of them), as long as their cases are not too many.

    >>> from kofn.web.listing import Line
    >>> lines = [Line(name=str(i), status="passed", cases=300_000) for i in range(9)]
    >>> [len(newest(lines, last).lines) for last in (None, 1, 4, 9)]
    [2, 1, 4, 6]
    """
    most, room = (NEWEST, CASES) if last is None else (min(last, MOST_RUNS), MOST_CASES)
    kept: list[Line] = []
    for line in reversed(runs[-most:]):
        room -= line.cases or 0
        if room < 0 and len(kept) >= 2:
            break
        kept.append(line)
    return Chosen(lines=tuple(reversed(kept)), total=len(runs))


@dataclass(slots=True)
class _Read:
    """A run as it was read, and with the columns that were asked for; or why it is no part of a trend."""

    stamp: Stamp
    past: Past | None = None
    reason: str = ""
    joined: bool = False
    with_columns: dict[tuple[str, ...], Past] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        return len(self.past.cases) if self.past is not None else 1


class Trends:
    """The trends that were looked at, and the runs they are of."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._runs: OrderedDict[str, _Read] = OrderedDict()
        self._ids: deque[tuple[str, ...]] = deque(maxlen=8)
        self._kept = Later["Trend"](most=6, room=MOST_CASES, size=lambda t: sum(len(p.cases) for p in t.tasks))

    def get(self, lines: Sequence[Line], numbers: tuple[str, ...], metric: str | None) -> Trend | None:
        """The trend of these runs; None while it is being made. Its tasks are none where no run can be read."""
        there = {line.name: found for line in lines if (found := self._there(line.name)) is not None}
        key = (tuple((name, stamp) for name, (_, stamp) in there.items()), numbers, metric)
        return self._kept.get(key, partial(self._made, there, numbers, metric))

    def name_of(self, run: Past) -> str:
        """What a run is called in addresses."""
        return "" if run.path == self.folder.root else str(run.path.relative_to(self.folder.root))

    def is_joined(self, run: Past) -> bool:
        """Whether the ids of a run's cases have the names of their groups before them."""
        known = self._runs.get(self.name_of(run))
        return known is not None and known.joined

    def _there(self, name: str) -> tuple[Path, Stamp] | None:
        try:
            path = self.folder.run(name)
            return path, stamp_of(path)
        except (Absent, OSError):  # gone since the list was made
            return None

    # --- what follows is done by one thread at a time

    def _made(self, there: Mapping[str, tuple[Path, Stamp]], numbers: tuple[str, ...], metric: str | None) -> Trend:
        read = {name: self._read(name, path, stamp) for name, (path, stamp) in there.items()}
        left_out = [LeftOut(name, one.reason) for name, one in read.items() if one.reason]
        pasts = [one.past for one in read.values() if one.past is not None]
        made = trend_of(pasts, left_out, aggregate=numbers, metric=metric, read=self._with_columns)
        self._forget()
        return replace(made, left_out=tuple(LeftOut(one.path, self.inside(one.reason)) for one in made.left_out))

    def inside(self, reason: str) -> str:
        """A reason with places as they are below the folder."""
        return reason.replace(f"{self.folder.root}/", "")

    def _read(self, name: str, path: Path, stamp: Stamp) -> _Read:
        known = self._runs.get(name)
        if known is None or known.stamp != stamp:
            known = self._runs[name] = self._loaded(name, path, stamp)
        self._runs.move_to_end(name)
        return known

    def _loaded(self, name: str, path: Path, stamp: Stamp) -> _Read:
        try:
            str(path).encode()
            past = load_whole(path)
        except InputError as problem:
            return _Read(stamp, reason=str(problem))
        except UnicodeEncodeError:
            return _Read(stamp, reason=f"{name}: its name is no Unicode text, so its files cannot be opened: rename it")
        groups = past.evaluation.group_outcomes.values()
        joined = len(groups) > 1 and sum(len(g.results) for g in groups) > len({c for g in groups for c in g.results})
        slim = replace(_slim(past), name=name or self.folder.root.name, cases=self._shared(past.cases))
        return _Read(stamp, past=slim, joined=joined)

    def _shared(self, cases: tuple[str, ...]) -> tuple[str, ...]:
        """The same ids as one object: runs of a task have the same cases, mostly."""
        for known in self._ids:
            if known == cases:
                return known
        self._ids.append(cases)
        return cases

    def _with_columns(self, run: Past, columns: Sequence[Column]) -> Past:
        known = self._runs[self.name_of(run)]
        key = tuple(c.column for c in columns)
        if key not in known.with_columns:
            found = with_columns(run, columns)
            if found.stored is not None:
                ids = self._shared(found.stored.cases)
                questions = found.stored.questions._replace(cases=ids)
                found = replace(found, stored=found.stored._replace(cases=ids, questions=questions))
            known.with_columns[key] = found
        return known.with_columns[key]

    def _forget(self) -> None:
        """Let go of the runs that were looked at longest ago, where there are too many."""
        room = MOST_CASES - sum(one.cases for one in self._runs.values())
        while len(self._runs) > MOST_RUNS or (room < 0 and len(self._runs) > 2):
            room += self._runs.popitem(last=False)[1].cases


def _slim(run: Past) -> Past:
    """A run without what no trend asks for: most of its manifest, and the scores that `run.scores` holds too."""
    evaluation = run.evaluation.model_copy(update={"group_outcomes": {}})
    manifest: dict[str, Any] = {name: run.manifest[name] for name in _SOME if name in run.manifest}
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
