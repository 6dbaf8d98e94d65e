"""Which outputs people label: the specification of a sheet, and the random draw of its rows."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.table import case_codes
from kofn.errors import InputError
from kofn.judge.label_sheet import draw_by_verdict, question_for
from kofn.judge.verdict_source import picked_candidates
from kofn.registry import aggregator
from kofn.runs.files import CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.scoring.grade import Graded
    from kofn.viewer.run_view import RunView

    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Ints = np.ndarray[Any, np.dtype[np.int64]]

KINDS = {"sets": "sets of outputs", "candidates": "single outputs", "picks": "what a selector picks"}
AGGREGATES = {"any_pass": "at least one output is good", "all_pass": "all outputs are good"}
MAX_ROWS = 5_000  # of a sheet
MAX_SEED = 2**32 - 1
MAX_NAME_PART = 30  # characters of each part of a sheet's name


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetSpec:
    """What is to be labelled. The fields are stored in every row of the sheet's file.

    of         sets, candidates or picks
    n, seed    how many, and which draw
    metric     whose verdicts stratify the draw, half passes and half fails; "": a simple random draw
    aggregate  of sets: what makes one good
    selector   of picks: whose
    title      tells a sheet from another of the same outputs, such as a second person's
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
        return question_for(self.aggregate if self.of == "sets" else None)

    @property
    def description(self) -> str:
        """One line about the sheet.

        >>> SheetSpec(of="picks", n=20, selector="vote").description
        '20 outputs that vote picks, drawn at random, seed 0'
        """
        what = f"outputs that {self.selector} picks" if self.of == "picks" else KINDS[self.of]
        how = f"by verdict of {self.metric}" if self.metric else "at random"
        title = f"{self.title}: " if self.title else ""
        return f"{title}{self.n:,} {what}, drawn {how}, seed {self.seed}"

    @property
    def file_stem(self) -> str:
        """What the file of the sheet is called; two specifications may have the same name.

        >>> SheetSpec(of="sets", n=50, metric="my judge", title="Anna").file_stem
        'sets-50-my_judge-Anna'
        """
        rule = self.aggregate if self.of == "sets" and self.aggregate != "any_pass" else ""
        seed = f"seed{self.seed}" if self.seed else ""
        parts = [self.of, rule, self.selector if self.of == "picks" else "", str(self.n), self.metric, seed, self.title]
        return "-".join(re.sub(r"[^A-Za-z0-9._]+", "_", part)[:MAX_NAME_PART] for part in parts if part)

    @classmethod
    def from_row(cls, stored: Mapping[str, Any]) -> SheetSpec:
        """The specification in a row of a sheet; a TypeError where a file holds anything else.

        Whatever a file says, only the names of fields are looked up in it.
        """
        spec = cls(**{f.name: stored[f.name] for f in fields(cls) if f.name in stored})
        types = {f.name: int if f.name in ("n", "seed") else str for f in fields(cls)}
        if not all(isinstance(getattr(spec, name), type_) for name, type_ in types.items()):
            raise TypeError("a word where a number is expected, or the other way round")
        if spec.of not in KINDS or spec.aggregate not in AGGREGATES:
            raise TypeError("nothing that can be drawn")
        return spec


# --- what a run offers


def graded_metrics(view: RunView) -> list[str]:
    """The metrics with verdicts, judges first."""
    result = view.run.result
    if result is None:
        return []
    names = [s.metric for s in result.scored if s.metric]
    return sorted(names, key=lambda name: name not in judge_metrics(view))


def judge_metrics(view: RunView) -> list[str]:
    """The metrics that judges gave, as `kofn calibrate` finds them."""
    result = view.run.result
    names = [] if result is None else [s.metric for s in result.scored if s.metric]
    judges = [] if result is None else [name for name in names if name in result.judges]
    return judges or [name for name in names if "judge" in name.lower()]


def selector_names(view: RunView) -> list[str]:
    """The selectors that can pick in this run."""
    sets = view.sets
    if sets is None or not (sets.sizes > 1).any():
        return []
    return [*sets.selectors, *(["vote"] if sets.answers is not None else []), "first"]


def scored_by(view: RunView, metric: str) -> Graded:
    assert view.run.result is not None
    return next(s for s in view.run.result.scored if s.metric == metric)


def verdicts_of(view: RunView, spec: SheetSpec, metric: str) -> Floats:
    """The verdicts of a metric on everything that could be drawn: 1, 0, NaN. By candidate, or for sets by case."""
    sets = scored_by(view, metric).sets
    if spec.of == "sets":
        return np.asarray(aggregator(spec.aggregate)(sets), dtype=float)
    return np.where(sets.passes == NOT_GRADED, np.nan, sets.passes.astype(float))


# --- the draw


def check_spec(view: RunView, spec: SheetSpec) -> None:
    """Refuse what cannot be drawn from this run."""
    if view.sets is None or "text" not in view.candidate_schema:
        raise InputError("this run has no outputs to label")
    if spec.of not in KINDS or spec.aggregate not in AGGREGATES:
        raise InputError(f"labels of {spec.of!r:.60}: expected {', '.join(KINDS)}, by {' or '.join(AGGREGATES)}")
    if not 1 <= spec.n <= MAX_ROWS:
        raise InputError(f"{spec.n:,} to label: expected a number from 1 to {MAX_ROWS:,}")
    if not 0 <= spec.seed <= MAX_SEED:
        raise InputError(f"seed {spec.seed}: expected a number from 0 to {MAX_SEED:,}")
    if spec.metric and spec.metric not in graded_metrics(view):
        raise InputError(f"no metric {spec.metric!r:.80} here: there is {', '.join(graded_metrics(view)) or 'none'}")
    check_selector(view, spec)


def check_selector(view: RunView, spec: SheetSpec) -> None:
    """Refuse picks of anything but a selector of the run: a name such as `module:function` would be imported."""
    if spec.of == "picks" and spec.selector not in selector_names(view):
        known = ", ".join(selector_names(view)) or "none"
        raise InputError(f"no selector {spec.selector!r:.80} here: there is {known}")


def draw_rows(view: RunView, spec: SheetSpec) -> list[dict[str, Any]]:
    """The rows of a sheet; by verdict the same rows, in the same order, as those of `kofn calibrate --sample`."""
    check_spec(view, spec)
    assert view.sets is not None
    of_cases = spec.of == "sets"
    pool = picked_candidates(view.sets, spec.selector) if spec.of == "picks" else None
    if spec.metric:
        verdicts = verdicts_of(view, spec, spec.metric)
        chosen, weights = draw_by_verdict(verdicts if pool is None else verdicts[pool], spec.n, spec.seed)
        at = chosen if pool is None else pool[chosen]
        graded: list[dict[str, Any]] = [
            {"judge": int(verdicts[place]), "weight": round(float(weight), 6)}
            for place, weight in zip(at.tolist(), weights.tolist(), strict=True)
        ]
    else:
        has_output = _with_outputs(view, of_cases=of_cases)
        pool = np.flatnonzero(has_output) if pool is None else pool[has_output[pool]]
        if not len(pool):
            raise InputError("nothing to draw from: no case has an output")
        # a stream of its own: the same seed draws other rows by verdict
        at = np.random.default_rng([spec.seed, 2]).permutation(pool)[: spec.n]
        graded = [{} for _ in at]
    owner = at if of_cases else np.searchsorted(view.sets.offsets, at, side="right") - 1
    return _rows(view, spec, at, owner, graded)


def _with_outputs(view: RunView, *, of_cases: bool) -> Bools:
    """Which candidates have a text, or which cases have a candidate with one."""
    assert view.sets is not None
    texts = pl.scan_parquet(view.file(CANDIDATES), glob=False).select(pl.col("text").is_not_null())
    has_text = texts.collect(engine="streaming").to_series().to_numpy()
    if not of_cases:
        return has_text
    running = np.concatenate([[0], np.cumsum(has_text)])
    return np.asarray(running[view.sets.offsets[1:]] > running[view.sets.offsets[:-1]], dtype=bool)


def _rows(
    view: RunView, spec: SheetSpec, at: Ints, owner: Ints, graded: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    table = view.table
    assert table is not None
    assert view.sets is not None
    ids = view.scores["id"].gather(owner).to_list()
    cluster = view.run.options.cluster or ("cluster" if "cluster" in table.cases.columns else None)
    codes = case_codes(table, cluster)
    index_name = {"candidates": "index", "picks": "picked"}.get(spec.of)
    stored = asdict(spec)
    return [
        {
            "id": ids[i],
            **({} if index_name is None else {index_name: int(at[i] - view.sets.offsets[owner[i]])}),
            **({} if codes is None else {"cluster": str(codes[owner[i]])}),
            **graded[i],
            "human": None,
            "sheet": stored,
        }
        for i in range(len(ids))
    ]
