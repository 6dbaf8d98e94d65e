"""Two runs compared for a page: from their columns alone, and kept while their files are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.comparing import Ask, Side, asked_of, comparing, shown
from kofn.differences import Changed, Shown
from kofn.errors import InputError
from kofn.report.files import CANDIDATES, CASES, MANIFEST, read_json
from kofn.trends import TOLD, Questions
from kofn.web.cases import MOST_VALUES, tags_of
from kofn.web.later import Later, stamp_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.differences import Compared
    from kofn.sets import CandidateSets
    from kofn.web.browsed import Browsed
    from kofn.web.folder import Folder
    from kofn.web.shelf import Shelf

MOST = 6  # comparisons that are kept
ROOM = 400_000  # changed and unmatched cases in all of them
MOST_NUMBERS = 24
MOST_CASES, MOST_CANDIDATES = 300_000, 1_500_000  # of a run: two of these are on the shelf together
MOST_SHOWN = 100  # candidates of a side; the case's own page has the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is compared, as `kofn compare` takes it."""

    metrics: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    verdict: str = ""
    top_k: int | None = None

    @property
    def ask(self) -> Ask:
        """The same for what compares."""
        return Ask(
            aggregate=self.numbers,
            metrics=self.metrics,
            by=self.by,
            top_k=self.top_k,
            verdict=self.verdict or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A comparison, where the cases that changed stand in each run, and what else could be asked for."""

    found: Compared
    rows: dict[str, tuple[int, int]]
    metrics: tuple[str, ...]
    numbers: tuple[str, ...]
    fields: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.found.changed) + sum(len(u.only_a) + len(u.only_b) for u in self.found.unmatched)


class Comparisons:
    """The last few comparisons, each kept until a file of its runs changes."""

    def __init__(self, folder: Folder, shelf: Shelf) -> None:
        self.folder, self.shelf = folder, shelf
        self._kept = Later[Kept](most=MOST, room=ROOM, size=lambda kept: kept.size)

    def get(self, runs: tuple[str, str], wish: Wish) -> Kept | None:
        """The second against the first; None while it is being made. What cannot be compared is an InputError."""
        paths = [self.folder.run(name) for name in runs]
        for name, path in zip(runs, paths, strict=True):
            check_size(name, path)
        return self._kept.get((runs, tuple(map(stamp_of, paths)), wish), partial(self._made, runs, wish))

    def _made(self, runs: tuple[str, str], wish: Wish) -> Kept:
        return _made(self.shelf.get(runs[0]), self.shelf.get(runs[1]), wish)


def check_size(name: str, path: Path) -> None:
    """Refuse what takes minutes, or more memory than a viewer may; run.json says how large a run is."""
    told = (read_json(path / MANIFEST).get("result") or {}) if (path / MANIFEST).is_file() else {}
    for what, most in (("case", MOST_CASES), ("candidate", MOST_CANDIDATES)):
        n = told.get(f"n_{what}s") or 0
        if n > most:
            raise InputError(
                f"{label(name)}: {n:,} {what}s: at most {most:,} are compared on a page; "
                "`kofn compare A B --html FILE` takes more"
            )


def _made(a: Browsed, b: Browsed, wish: Wish) -> Kept:
    """b against a."""
    sides = side_of(a), side_of(b)
    _check(sides, wish)
    found = comparing(sides, wish.ask, bodies=False)
    changed = {one.case for one in found.changed}
    at_a, at_b = ({case: i for i, case in enumerate(side.cases) if case in changed} for side in sides)
    metrics = tuple(m for m in sides[0].metrics if m in sides[1].metrics)
    stored = sides[1].result.case_values
    of_both = [name for of, name in sides[0].result.case_values if of in metrics and (of, name) in stored]
    return Kept(
        found=found,
        rows={one.case: (at_a[one.case], at_b[one.case]) for one in found.changed},
        metrics=metrics,
        numbers=tuple(dict.fromkeys(of_both)),
        fields=tuple(dict.fromkeys(name for one in (a, b) for name in _fields(one))),
    )


def _fields(one: Browsed) -> list[str]:
    """What cases can be sliced by."""
    if one.table is None:
        return ["group"] if 1 < one.scores["group"].n_unique() <= MOST_VALUES else []
    return [tag["name"] for tag in tags_of(one)]


def label(name: str) -> str:
    """What a run is called; the folder itself may be one."""
    return name or "(this folder)"


def side_of(one: Browsed) -> Side:
    """A run as a side of a comparison; of a program's cases each is a candidate that passes or not."""
    from kofn.opened import Opened

    if one.run.result is None:
        return _of_program(one)
    opened = Opened(name=one.name, path=one.path, result=one.run.result, options=one.run.options, run=one.run)
    return Side(name=label(one.name), result=one.run.result, questions=_questions(one), **opened.units())


def _questions(one: Browsed) -> Questions:
    """A hash of what each case asks and expects; the texts are not kept."""
    told = [name for name in TOLD if name in one.case_schema]
    frame = pl.scan_parquet(one.file(CASES), glob=False).select(pl.col(told).hash()).collect(engine="streaming")
    assert one.table is not None
    return Questions(one.table.cases["case_id"].to_list(), {c.name: c.to_numpy() for c in frame.iter_columns()})


def _of_program(one: Browsed) -> Side:
    from kofn.api import score

    scores = one.scores
    ids = scores["id"] if scores["id"].n_unique() == one.n else scores["group"] + " / " + scores["id"]
    rows = [
        {"id": case, "score": value, "passed": None if value is None else passed, "group": group}
        for case, value, passed, group in zip(ids, scores["score"], scores["passed"], scores["group"], strict=True)
    ]
    if not rows:
        raise InputError(f"{label(one.name)}: this run has no case")
    return Side(name=label(one.name), result=score(rows, aggregate="mean", threshold=1.0, everything=True))


def _check(sides: Sequence[Side], wish: Wish) -> None:
    """Refuse what would take forever, and names that would be imported: an address can come from anywhere."""
    for name in (*wish.numbers, wish.verdict):
        if ":" in name:
            raise InputError(f"{name}: functions of your own are run by `kofn compare -a {name}`, not from an address")
    if len(wish.numbers) > MOST_NUMBERS:
        raise InputError(f"{len(wish.numbers)} numbers: at most {MOST_NUMBERS} are compared on one page")
    for field in wish.by:
        _check_field(sides, field)


def _check_field(sides: Sequence[Side], field: str) -> None:
    from kofn.evaluate import segment_names

    problem: InputError | None = None
    for side in sides:
        try:
            n = len(set(segment_names(side.table, field)))
        except InputError as told:
            problem = told
            continue
        if n > MOST_VALUES:
            raise InputError(f"by {field}: it has {n:,} values: at most {MOST_VALUES} are compared on one page")
        return
    assert problem is not None
    raise problem


# --- the cases that changed


def bare(one: Browsed, row: int, metric: str, top_k: int | None) -> tuple[tuple[Shown, ...], int]:
    """The candidates of a case without their texts, and how many are left out."""
    sets = sets_of(one, metric)
    if sets is None:
        return (), 0
    n = int(sets.sizes[row]) if top_k is None else min(top_k, int(sets.sizes[row]))
    return shown(sets, row, range(min(n, MOST_SHOWN))), max(0, n - MOST_SHOWN)


def sets_of(one: Browsed, metric: str) -> CandidateSets | None:
    """The candidates under a metric; None where a run has none."""
    if one.run.result is None:
        return None
    found = one.run.result.scored
    return next((scored.sets for scored in found if scored.metric == metric), found[0].sets)


def marks(one: Browsed, row: int, metric: str, top_k: int | None) -> list[str]:
    """Whether the first candidates pass, as the list of changed cases draws it."""
    sets = sets_of(one, metric)
    if sets is None:
        return []
    low = int(sets.offsets[row])
    high = min(int(sets.offsets[row + 1]), low + min(40, top_k or 40))
    return [{1: "s1", 0: "s0"}.get(mark, "sx") for mark in sets.passes[low:high].tolist()]


def case_of(
    a: Browsed, b: Browsed, rows: tuple[int, int], metric: str, top_k: int | None
) -> tuple[Changed, tuple[int, int]]:
    """A case of both runs with its candidates, texts and all, and how many of each side are left out."""
    (left, left_out), (right, right_out) = (bare(one, row, metric, top_k) for one, row in ((a, rows[0]), (b, rows[1])))
    changed = Changed(
        case=a.scores["id"][rows[0]],
        name_a=label(a.name),
        name_b=label(b.name),
        passed_a=None,
        passed_b=None,
        a=_with_texts(a, rows[0], left),
        b=_with_texts(b, rows[1], right),
        **_asked(b, rows[1]),
    )
    return changed, (left_out, right_out)


def _with_texts(one: Browsed, row: int, candidates: tuple[Shown, ...]) -> tuple[Shown, ...]:
    if one.sets is None:
        return _attributes(one, row)
    if "text" not in one.candidate_schema or not candidates:
        return candidates
    low = int(one.sets.offsets[row])
    rows = pl.scan_parquet(one.file(CANDIDATES), glob=False).slice(low, len(candidates)).select("text").collect()
    return tuple(replace(c, text=text) for c, text in zip(candidates, rows["text"].to_list(), strict=True))


def _attributes(one: Browsed, row: int) -> tuple[Shown, ...]:
    """What was checked of a program's case, a line each."""
    signs = {True: "✓", False: "✗"}
    results = one.run.reports["results"][row].to_list()
    lines = [f"{signs.get(r['is_correct'], '?')} {r['attribute']}" for r in results[:MOST_SHOWN]]
    verdict = {1: True, 0: False}.get(int(one.verdicts[row]))
    return (Shown(index=0, text="\n".join(lines), answer=None, passed=verdict),)


def _asked(one: Browsed, row: int) -> dict[str, Any]:
    """What a case asks and expects."""
    if one.table is None:
        return {"input": one.questions(np.array([row]))[0], "reference": None}
    known = one.case(row)
    frame = pl.DataFrame({name: [known[name]] for name in ("input", "reference") if known.get(name) is not None})
    return asked_of(replace(one.table, cases=frame), 0)
