"""Sheets of labels in a run's directory: what is drawn to be labelled, and the one file that the viewer writes.

A sheet is `labels-NAME.jsonl`: a line a thing, as `kofn calibrate` reads it, `human` null until somebody says pass or
fail. Whoever changes it holds the lock, reads what is there now, and writes it whole: nobody's label is lost.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from kofn.calibration.sheet import drawn, picks, question_of
from kofn.errors import InputError
from kofn.report.files import CANDIDATES, atomic
from kofn.sets import NOT_GRADED
from kofn.web.folder import Absent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kofn.scoring import Scored
    from kofn.web.browsed import Browsed

    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Ints = np.ndarray[Any, np.dtype[np.int64]]

OF = {"sets": "sets of outputs", "candidates": "single outputs", "picks": "what a selector picks"}
AGGREGATES = {"any_pass": "at least one output is good", "all_pass": "all outputs are good"}
MOST = 5_000  # rows of a sheet
LARGEST = 32_000_000  # bytes of its file
LARGEST_SEED = 2**32 - 1
LOCK, WAIT = ".labels.lock", 10.0  # seconds
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_FILE = re.compile(rf"labels-({_NAME.pattern})\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What is to be labelled.

    of         sets, candidates or picks
    n, seed    how many, and which draw
    metric     whose verdicts it is drawn by, half passes and half fails; "": at random
    aggregate  of sets: what makes one good
    selector   of picks: whose
    title      tells a sheet from another with the same things, such as a second person's
    """

    of: str
    n: int
    seed: int = 0
    metric: str = ""
    aggregate: str = "any_pass"
    selector: str = ""
    title: str = ""

    @property
    def question(self) -> str:
        return question_of(self.aggregate if self.of == "sets" else None)

    @property
    def told(self) -> str:
        """In a few words.

        >>> Drawing(of="picks", n=20, selector="vote").told
        '20 outputs that vote picks, drawn at random, seed 0'
        """
        what = f"outputs that {self.selector} picks" if self.of == "picks" else OF[self.of]
        how = f"by verdict of {self.metric}" if self.metric else "at random"
        title = f"{self.title}: " if self.title else ""
        return f"{title}{self.n:,} {what}, drawn {how}, seed {self.seed}"

    def name(self) -> str:
        """What the sheet is called; two drawings may want the same name.

        >>> Drawing(of="sets", n=50, metric="my judge", title="Anna").name()
        'sets-50-my_judge-Anna'
        """
        kept = self.aggregate if self.of == "sets" and self.aggregate != "any_pass" else ""
        seed = f"seed{self.seed}" if self.seed else ""
        parts = [self.of, kept, self.selector if self.of == "picks" else "", str(self.n), self.metric, seed, self.title]
        return "-".join(re.sub(r"[^A-Za-z0-9._]+", "_", part)[:30] for part in parts if part)

    @classmethod
    def stored(cls, told: Mapping[str, Any]) -> Drawing:
        """From a row of a sheet; whatever a file says, nothing but these words is ever looked up."""
        found = cls(**{f.name: told[f.name] for f in fields(cls) if f.name in told})
        kinds = {f.name: int if f.name in ("n", "seed") else str for f in fields(cls)}
        if not all(isinstance(getattr(found, name), kind) for name, kind in kinds.items()):
            raise TypeError("a word where a number is expected, or the other way round")
        if found.of not in OF or found.aggregate not in AGGREGATES:
            raise TypeError("nothing that can be drawn")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """A sheet as its file has it now."""

    name: str
    path: Path
    drawing: Drawing
    rows: tuple[dict[str, Any], ...]

    @property
    def total(self) -> int:
        return len(self.rows)

    @property
    def done(self) -> int:
        return sum(row.get("human") is not None for row in self.rows)

    def open_row(self) -> int:
        """Where to go on: the first that was neither labelled nor skipped, else the first skipped, else the first."""
        for skipped in (False, True):
            for i, row in enumerate(self.rows):
                if row.get("human") is None and bool(row.get("skipped")) is skipped:
                    return i
        return 0

    def states(self, by: str) -> str:
        """A letter a row: o open, s skipped, d done, t done by somebody else; never what was said."""

        def state(row: Mapping[str, Any]) -> str:
            if row.get("human") is None:
                return "s" if row.get("skipped") else "o"
            return "d" if is_own(row, by) else "t"

        return "".join(map(state, self.rows))


def is_own(row: Mapping[str, Any], by: str) -> bool:
    """Whether a person may see and change the label of a row: it is theirs, or nobody's."""
    return row.get("human") is None or str(row.get("by") or "") == by


# --- what there is to draw from


def graded_by(one: Browsed) -> list[str]:
    """The metrics with verdicts, judges first."""
    result = one.run.result
    if result is None:
        return []
    names = [s.metric for s in result.scored if s.metric]
    return sorted(names, key=lambda name: name not in judges_of(one))


def judges_of(one: Browsed) -> list[str]:
    """The metrics that judges gave, as `kofn calibrate` finds them."""
    result = one.run.result
    names = [] if result is None else [s.metric for s in result.scored if s.metric]
    found = [] if result is None else [name for name in names if name in result.judges]
    return found or [name for name in names if "judge" in name.lower()]


def selectors_of(one: Browsed) -> list[str]:
    """The selectors that can pick here."""
    sets = one.sets
    if sets is None or not (sets.sizes > 1).any():
        return []
    return [*sets.selectors, *(["vote"] if sets.answers is not None else []), "first"]


def scored_by(one: Browsed, metric: str) -> Scored:
    assert one.run.result is not None
    return next(s for s in one.run.result.scored if s.metric == metric)


def verdicts_of(one: Browsed, drawing: Drawing, metric: str) -> Floats:
    """What a metric says of everything that could be drawn: 1, 0, NaN. By candidate, or for sets by case."""
    from kofn.registry import aggregator

    sets = scored_by(one, metric).sets
    if drawing.of == "sets":
        return np.asarray(aggregator(drawing.aggregate)(sets), dtype=float)
    return np.where(sets.passes == NOT_GRADED, np.nan, sets.passes.astype(float))


def check(one: Browsed, drawing: Drawing) -> None:
    """Refuse what cannot be drawn here."""
    if one.sets is None or "text" not in one.candidate_schema:
        raise InputError("this run has no outputs to label")
    if drawing.of not in OF or drawing.aggregate not in AGGREGATES:
        raise InputError(f"labels of {drawing.of!r:.60}: expected {', '.join(OF)}, by {' or '.join(AGGREGATES)}")
    if not 1 <= drawing.n <= MOST:
        raise InputError(f"{drawing.n:,} to label: expected a number from 1 to {MOST:,}")
    if not 0 <= drawing.seed <= LARGEST_SEED:
        raise InputError(f"seed {drawing.seed}: expected a number from 0 to {LARGEST_SEED:,}")
    if drawing.metric and drawing.metric not in graded_by(one):
        raise InputError(f"no metric {drawing.metric!r:.80} here: there is {', '.join(graded_by(one)) or 'none'}")
    check_selector(one, drawing)


def check_selector(one: Browsed, drawing: Drawing) -> None:
    """Refuse picks of whatever is no selector of the run: a name such as `module:function` would be imported."""
    if drawing.of == "picks" and drawing.selector not in selectors_of(one):
        known = ", ".join(selectors_of(one)) or "none"
        raise InputError(f"no selector {drawing.selector!r:.80} here: there is {known}")


def draw(one: Browsed, drawing: Drawing) -> list[dict[str, Any]]:
    """The rows of a sheet: the same things, in the same order, as `kofn calibrate --sample` draws by verdict."""
    check(one, drawing)
    assert one.sets is not None
    of_cases = drawing.of == "sets"
    pool = picks(one.sets, drawing.selector) if drawing.of == "picks" else None
    if drawing.metric:
        verdicts = verdicts_of(one, drawing, drawing.metric)
        chosen, weights = drawn(verdicts if pool is None else verdicts[pool], drawing.n, drawing.seed)
        at = chosen if pool is None else pool[chosen]
        graded: list[dict[str, Any]] = [
            {"judge": int(verdicts[place]), "weight": round(float(weight), 6)}
            for place, weight in zip(at.tolist(), weights.tolist(), strict=True)
        ]
    else:
        there = _with_outputs(one, of_cases=of_cases)
        pool = np.flatnonzero(there) if pool is None else pool[there[pool]]
        if not len(pool):
            raise InputError("nothing to draw from: no case has an output")
        at = np.random.default_rng([drawing.seed, 2]).permutation(pool)[: drawing.n]
        graded = [{} for _ in at]
    owner = at if of_cases else np.searchsorted(one.sets.offsets, at, side="right") - 1
    return _rows(one, drawing, at, owner, graded)


def _with_outputs(one: Browsed, *, of_cases: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which candidates have a text, or which cases a candidate that has one."""
    import polars as pl

    assert one.sets is not None
    texts = pl.scan_parquet(one.file(CANDIDATES), glob=False).select(pl.col("text").is_not_null())
    there = texts.collect(engine="streaming").to_series().to_numpy()
    if not of_cases:
        return there
    running = np.concatenate([[0], np.cumsum(there)])
    return np.asarray(running[one.sets.offsets[1:]] > running[one.sets.offsets[:-1]], dtype=bool)


def _rows(
    one: Browsed, drawing: Drawing, at: Ints, owner: Ints, graded: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    from kofn.evaluate import case_codes

    table = one.table
    assert table is not None
    assert one.sets is not None
    ids = one.scores["id"].gather(owner).to_list()
    cluster = one.run.options.cluster or ("cluster" if "cluster" in table.cases.columns else None)
    codes = case_codes(table, cluster)
    place = {"candidates": "index", "picks": "picked"}.get(drawing.of)
    told = asdict(drawing)
    return [
        {
            "id": ids[i],
            **({} if place is None else {place: int(at[i] - one.sets.offsets[owner[i]])}),
            **({} if codes is None else {"cluster": str(codes[owner[i]])}),
            **graded[i],
            "human": None,
            "sheet": told,
        }
        for i in range(len(ids))
    ]


# --- files


def sheets_in(directory: Path) -> list[Labels]:
    """The sheets of a run, by name; files that the viewer did not make are left alone."""
    found = []
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        match = _FILE.fullmatch(entry.name)
        if match and entry.is_file(follow_symlinks=False):
            try:
                found.append(read(directory, match[1]))
            except (InputError, Absent, OSError):
                continue
    return found


def read(directory: Path, name: str) -> Labels:
    """A sheet as it is now."""
    path = _path(directory, name)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # no link is followed, no pipe waited for
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a path knows no flags
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise Absent(f"there is no sheet {name!r:.130} in this run: it may have been moved or deleted") from None
    if len(data) > LARGEST:
        raise InputError(f"{path.name}: larger than a sheet of labels can be")
    rows = tuple(_row(path.name, number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip())
    if not rows or not isinstance(rows[0].get("sheet"), dict):
        raise InputError(f"{path.name}: not a sheet that the viewer made")
    try:
        drawing = Drawing.stored(rows[0]["sheet"])
    except TypeError:
        raise InputError(f"{path.name}: line 1: what was drawn cannot be read") from None
    return Labels(name=name, path=path, drawing=drawing, rows=rows)


def _row(name: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{name}: line {number}: not JSON: {problem}") from None
    place = row.get("index", row.get("picked", 0)) if isinstance(row, dict) else None
    fits = isinstance(place, int) and isinstance(row.get("id"), str) and row.get("human") in (0, 1, None)
    if not fits:
        raise InputError(f"{name}: line {number}: expected a row with id, and human 1, 0 or null")
    return dict(row)


def _path(directory: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise Absent(f"there is no sheet {name!r:.130} in this run")
    return directory / f"labels-{name}.jsonl"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """The only one that changes labels of this run, of all viewers there are; given up where it takes too long."""
    import fcntl

    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        end = time.monotonic() + WAIT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    data = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    atomic(path, lambda partial: partial.write_bytes(data))


def start(one: Browsed, drawing: Drawing) -> str:
    """The name of the sheet with this drawing: the one that is there, or a new one."""
    check(one, drawing)
    with locked(one.path):
        for known in sheets_in(one.path):
            if known.drawing == drawing:
                return known.name
        base = drawing.name()
        names = (base if i == 1 else f"{base}-{i}" for i in range(1, 1000))
        name = next(name for name in names if not os.path.lexists(_path(one.path, name)))
        _write(_path(one.path, name), draw(one, drawing))
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What somebody said of a row; `human` None takes a label back. `id` and `index` say which row was meant."""

    row: int
    id: str
    index: int | None = None
    human: int | None = None
    skipped: bool = False


def save(directory: Path, name: str, said: Sequence[Said], *, by: str, now: str) -> tuple[Labels, list[int]]:
    """Write what was said; (the sheet, the rows left as they are because somebody else labelled them)."""
    with locked(directory):
        sheet = read(directory, name)
        rows, left = list(sheet.rows), []
        for one in said:
            if not 0 <= one.row < len(rows) or key_of(rows[one.row]) != (one.id, one.index):
                raise InputError(f"{sheet.path.name}: row {one.row + 1} is not what was labelled: load the page again")
            if is_own(rows[one.row], by):
                rows[one.row] = _labelled(rows[one.row], one, by, now)
            else:
                left.append(one.row)
        if len(left) < len(said):
            _write(sheet.path, rows)
    return Labels(name=name, path=sheet.path, drawing=sheet.drawing, rows=tuple(rows)), left


def key_of(row: Mapping[str, Any]) -> tuple[str, int | None]:
    """What a row is about: a case, and one of its candidates."""
    return row["id"], row.get("index", row.get("picked"))


def _labelled(row: Mapping[str, Any], said: Said, by: str, now: str) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in ("human", "skipped", "by", "at", "sheet")}
    mark = {"skipped": True} if said.skipped and said.human is None else {}
    who = {**({"by": by} if by else {}), "at": now} if said.human is not None else {}
    return {**kept, "human": said.human, **mark, **who, "sheet": row.get("sheet")}
