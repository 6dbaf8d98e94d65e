"""Blind labels of a run: which things are drawn, the files they are kept in, and what they say of a judge."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import orjson
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.system import lock_file
from kofn.core.table import case_codes
from kofn.errors import InputError
from kofn.judge.calibration import CalibrationSettings, annotators_of, calibrate
from kofn.judge.label_sheet import draw_by_verdict, question_for
from kofn.judge.labels import picked_candidates, read_labels
from kofn.judge.rubric import rubric_question
from kofn.registry import aggregator
from kofn.runs.files import CANDIDATES, write_atomically
from kofn.stats import Confusion, weights_by_verdict
from kofn.viewer.run_folder import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kofn.viewer.run_view import RunView

    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Ints = np.ndarray[Any, np.dtype[np.int64]]
    from kofn.judge.calibration import Annotators, Calibration

KINDS = {"sets": "sets of outputs", "candidates": "single outputs", "picks": "what a selector picks"}
AGGREGATES = {"any_pass": "at least one output is good", "all_pass": "all outputs are good"}
MAX_ROWS = 5_000  # of a sheet
MAX_SEED = 2**32 - 1
MAX_NAME_PART = 30  # characters of each part of a sheet's name
MAX_QUESTION = 500  # characters
MAX_BYTES = 32_000_000  # of a sheet
LOCK, LOCK_TIMEOUT = ".labels.lock", 10.0  # seconds
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_FILE = re.compile(rf"labels-({_NAME.pattern})\.jsonl")


LABEL_FIELDS = ("human", "skipped", "annotator", "by", "at", "question", "sheet")  # of a line, not of what is labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFile:
    """A sheet as its file has it now: what was drawn, and for each row the labels by annotator."""

    name: str
    path: Path
    spec: SheetSpec
    rows: tuple[dict[str, Any], ...]
    labels: tuple[dict[str, dict[str, Any]], ...]

    @property
    def total(self) -> int:
        return len(self.rows)

    @property
    def done(self) -> int:
        """Rows that at least one annotator has labelled."""
        return sum(any(one["human"] is not None for one in given.values()) for given in self.labels)

    @property
    def annotators(self) -> dict[str, int]:
        """Name -> number of rows labelled, in the order in which they come up."""
        counts: dict[str, int] = {}
        for given in self.labels:
            for name, one in given.items():
                if one["human"] is not None:
                    counts[name] = counts.get(name, 0) + 1
        return counts

    @property
    def n_earlier(self) -> int:
        """Labels that answer an earlier wording of the question."""
        return sum("question" in one for given in self.labels for one in given.values() if one["human"] is not None)

    def next_row(self, by: str) -> int:
        """Where an annotator continues: the first open row, else the first skipped one, else the first."""
        states = self.states(by)
        return next((states.index(state) for state in "os" if state in states), 0)

    def states(self, by: str) -> str:
        """One letter per row, of this annotator alone: o open, s skipped, d done; never the label itself."""

        def state(label: Mapping[str, Any] | None) -> str:
            if label is None or label["human"] is None:
                return "s" if label is not None and label.get("skipped") else "o"
            return "d"

        return "".join(state(given.get(by)) for given in self.labels)


def row_key(row: Mapping[str, Any]) -> tuple[str, int | None]:
    """What a row is about: a case, and one of its candidates."""
    return row["id"], row.get("index", row.get("picked"))


# --- reading


def list_sheets(directory: Path) -> list[LabelFile]:
    """The sheets of a run, by name; files that the viewer did not make are left alone."""
    sheets = []
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        match = _FILE.fullmatch(entry.name)
        if match and entry.is_file(follow_symlinks=False):
            try:
                sheets.append(read_sheet(directory, match[1]))
            except (InputError, NotFound, OSError):
                continue
    return sheets


def read_sheet(directory: Path, name: str) -> LabelFile:
    """A sheet as it is now."""
    path = _path(directory, name)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # no link is followed, no pipe waited for
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a path knows no flags
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no sheet {name!r:.130} in this run: it may have been moved or deleted") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path.name}: larger than a sheet of labels can be")
    lines = [_parse_row(path.name, i, line) for i, line in enumerate(data.splitlines(), 1) if line.strip()]
    if not lines or not isinstance(lines[0].get("sheet"), dict):
        raise InputError(f"{path.name}: not a label sheet made by the viewer")
    with suppress(ValidationError):
        spec = SheetSpec.model_validate(lines[0]["sheet"], strict=True)
        if spec.aggregate in AGGREGATES:
            return _sheet_of(name, path, spec, lines)
    raise InputError(f"{path.name}: line 1: cannot read the field `sheet`")


def _sheet_of(name: str, path: Path, spec: SheetSpec, lines: Sequence[Mapping[str, Any]]) -> LabelFile:
    """One row per thing; its lines, one per annotator, become its labels. Old files name the annotator `by`."""
    rows: dict[tuple[str, int | None], dict[str, Any]] = {}
    labels: dict[tuple[str, int | None], dict[str, dict[str, Any]]] = {}
    for line in lines:
        key = row_key(line)
        rows.setdefault(key, {k: v for k, v in line.items() if k not in LABEL_FIELDS})
        given = labels.setdefault(key, {})
        label = {k: line[k] for k in ("skipped", "at", "question") if k in line}
        if line.get("human") is not None or label.get("skipped"):
            given[str(line.get("annotator") or line.get("by") or "")] = {"human": line.get("human"), **label}
    return LabelFile(name=name, path=path, spec=spec, rows=tuple(rows.values()), labels=tuple(labels.values()))


def _lines_of(sheet: LabelFile) -> Iterator[dict[str, Any]]:
    """The lines of a file: for each row one per annotator, or one without a label."""
    drawn = sheet.spec.model_dump()
    for row, given in zip(sheet.rows, sheet.labels, strict=True):
        for name, label in given.items() or [("", {"human": None})]:
            who = {"annotator": name} if name else {}
            # the specification last: it is the longest part of a line, and of least interest to a reader
            yield {
                **row,
                "human": label["human"],
                **who,
                **{k: v for k, v in label.items() if k != "human"},
                "sheet": drawn,
            }


def _parse_row(name: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{name}: line {number}: not JSON: {problem}") from None
    index = row.get("index", row.get("picked", 0)) if isinstance(row, dict) else None
    if not isinstance(index, int) or not isinstance(row.get("id"), str) or row.get("human") not in (0, 1, None):
        raise InputError(f"{name}: line {number}: expected a row with id, and human 1, 0 or null")
    return dict(row)


def _path(directory: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):  # comes from a URL: no slash, no dot at its beginning
        raise NotFound(f"there is no sheet {name!r:.130} in this run")
    return directory / f"labels-{name}.jsonl"


# --- writing


@contextmanager
def lock_labels(directory: Path) -> Iterator[None]:
    """The lock on the labels of a run, against all viewers there are; given up after `LOCK_TIMEOUT`."""
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        lock_file(handle, timeout=LOCK_TIMEOUT)
        yield
    finally:
        os.close(handle)  # releases the lock


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    data = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    write_atomically(path, lambda partial: partial.write_bytes(data))


def start_sheet(view: RunView, spec: SheetSpec) -> str:
    """The name of the sheet with this specification: the one that is there, or a new one."""
    check_spec(view, spec)
    with lock_labels(view.path):
        for known in list_sheets(view.path):
            if known.spec.model_copy(update={} if spec.question else {"question": ""}) == spec:
                return known.name
        spec = spec.model_copy(update={"question": spec.question or default_question(view, spec)})
        stem = spec.file_stem
        names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1000))
        name = next(name for name in names if not os.path.lexists(_path(view.path, name)))
        _write(_path(view.path, name), draw_rows(view, spec))
    return name


class LabelUpdate(BaseModel):
    """A label for a row; `human` None takes one back. `id` and `index` say which row was meant."""

    model_config = ConfigDict(strict=True, extra="forbid")

    row: int = Field(ge=0, lt=MAX_ROWS)
    id: str
    index: int | None = None
    human: Annotated[int, Field(ge=0, le=1)] | None
    skipped: bool = False


class LabelsBody(BaseModel):
    """What the page's script sends: labels of one sheet, and who gave them."""

    model_config = ConfigDict(strict=True, extra="forbid")

    sheet: str = Field(max_length=121)
    by: str = Field(default="", max_length=80)
    labels: list[LabelUpdate] = Field(min_length=1, max_length=200)


def save_labels(directory: Path, name: str, updates: Sequence[LabelUpdate], *, by: str, now: str) -> LabelFile:
    """Write labels of one annotator; those of others stay as they are."""
    with lock_labels(directory):
        sheet = read_sheet(directory, name)
        labels = [dict(given) for given in sheet.labels]
        for update in updates:
            at = update.row
            if at >= sheet.total or row_key(sheet.rows[at]) != (update.id, update.index):
                raise InputError(f"{sheet.path.name}: row {at + 1} has changed; reload the page")
            if update.human is not None:
                labels[at][by] = {"human": update.human, "at": now}
            elif update.skipped:
                labels[at][by] = {"human": None, "skipped": True}
            else:
                labels[at].pop(by, None)
        sheet = replace(sheet, labels=tuple(labels))
        _write(sheet.path, _lines_of(sheet))
    return sheet


def edit_question(directory: Path, name: str, question: str) -> None:
    """Ask another question from now on; labels given before keep the question that they answer."""
    with lock_labels(directory):
        sheet = read_sheet(directory, name)
        before = sheet.spec.asked
        if question == before:
            return
        labels = tuple(
            {who: {"question": before, **one} if one["human"] is not None else one for who, one in given.items()}
            for given in sheet.labels
        )
        spec = sheet.spec.model_copy(update={"question": question})
        _write(sheet.path, _lines_of(replace(sheet, spec=spec, labels=labels)))


class SheetSpec(BaseModel):
    """What is to be labelled. The fields are stored in every row of the sheet's file.

    of         sets, candidates or picks
    n, seed    how many, and which draw
    metric     whose verdicts stratify the draw, half passes and half fails; "": a simple random draw
    aggregate  of sets: what makes one good
    selector   of picks: whose
    title      tells a sheet from another of the same outputs
    question   what people are asked; "" in sheets older than this field
    """

    of: Literal["sets", "candidates", "picks"]
    n: int
    seed: int = 0
    metric: str = ""
    aggregate: str = "any_pass"
    selector: str = ""
    title: str = ""
    question: str = Field(default="", max_length=MAX_QUESTION)

    @property
    def asked(self) -> str:
        """The question, also of older sheets."""
        return self.question or question_for(self.aggregate if self.of == "sets" else None)

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


# --- what a run offers


def graded_metrics(view: RunView) -> list[str]:
    """The metrics with verdicts, judges first."""
    return sorted(view.metrics, key=lambda name: name not in judge_metrics(view))


def judge_metrics(view: RunView) -> list[str]:
    """The metrics that judges gave, as `kofn calibrate` finds them."""
    return view.judges or [name for name in view.metrics if "judge" in name.lower()]


def default_question(view: RunView, spec: SheetSpec) -> str:
    """The question of the judge's rubric: of the metric drawn by, else of the run's first judge."""
    judges = {} if view.run.result is None else view.run.result.judges
    metric = spec.metric if spec.metric in judges else next(iter(judges), "")
    return question_for(spec.aggregate if spec.of == "sets" else None, rubric_question(judges.get(metric, {})))


def selector_names(view: RunView) -> list[str]:
    """The selectors that can pick in this run."""
    sets = view.sets
    if sets is None or not (sets.sizes > 1).any():
        return []
    return [*sets.selectors, *(["vote"] if view.has_answers else []), "first"]


def verdicts_of(view: RunView, spec: SheetSpec, metric: str) -> Floats:
    """The verdicts of a metric on everything that could be drawn: 1, 0, NaN. By candidate, or for sets by case."""
    sets = view.graded_candidates.metric(metric).sets
    if spec.of == "sets":
        return np.asarray(aggregator(spec.aggregate)(sets), dtype=float)
    return np.where(sets.passes == NOT_GRADED, np.nan, sets.passes.astype(float))


# --- the draw


def check_spec(view: RunView, spec: SheetSpec) -> None:
    """Refuse what cannot be drawn from this run."""
    if not view.has_texts:
        raise InputError("this run has no outputs to label")
    if spec.aggregate not in AGGREGATES:
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
    of_cases = spec.of == "sets"
    pool = picked_candidates(view.candidate_sets, spec.selector) if spec.of == "picks" else None
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
    owner = at if of_cases else np.searchsorted(view.candidate_sets.offsets, at, side="right") - 1
    return _rows(view, spec, at, owner, graded)


def _with_outputs(view: RunView, *, of_cases: bool) -> Bools:
    """Which candidates have a text, or which cases have a candidate with one."""
    texts = view.scan(CANDIDATES).select(pl.col("text").is_not_null())
    has_text = texts.collect(engine="streaming").to_series().to_numpy()
    if not of_cases:
        return has_text
    running = np.concatenate([[0], np.cumsum(has_text)])
    return np.asarray(running[view.candidate_sets.offsets[1:]] > running[view.candidate_sets.offsets[:-1]], dtype=bool)


def _rows(
    view: RunView, spec: SheetSpec, at: Ints, owner: Ints, graded: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    table = view.run.scored_result.table
    ids = view.scores["id"].gather(owner).to_list()
    cluster = view.run.options.cluster or ("cluster" if "cluster" in table.cases.columns else None)
    codes = case_codes(table, cluster)
    index_name = {"candidates": "index", "picks": "picked"}.get(spec.of)
    rows: list[dict[str, Any]] = [{"id": case} for case in ids]
    for i, row in enumerate(rows):
        if index_name is not None:
            row[index_name] = int(at[i] - view.candidate_sets.offsets[owner[i]])
        if codes is not None:
            row["cluster"] = str(codes[owner[i]])
        row |= {**graded[i], "human": None, "sheet": spec.model_dump()}
    return rows


N_RESAMPLES = 2_000


def sheet_annotators(sheet: LabelFile) -> Annotators | None:
    """How far the annotators of a sheet agree; None where fewer than two have labelled."""
    if len(sheet.annotators) < 2:
        return None
    return annotators_of(read_labels(sheet.path), CalibrationSettings(n_resamples=N_RESAMPLES))


def calibrate_sheet(view: RunView, sheet: LabelFile) -> tuple[str, Calibration, Confusion] | None:
    """(metric, its agreement with the labels so far, the labels by verdict); None without labels or verdicts."""
    graded, spec = graded_metrics(view), sheet.spec
    if not graded or not sheet.done:
        return None
    metric = spec.metric if spec.metric in graded else graded[0]
    verdicts = verdicts_of(view, spec, metric)
    rows = replace(read_labels(sheet.path), judge=_verdicts_of_rows(view, sheet, verdicts), source=sheet.path.name)
    both = np.isfinite(rows.human_values) & np.isfinite(rows.judge_values)
    counts = Confusion.of(rows.human_values[both], rows.judge_values[both])
    weights = np.ones(sheet.total)
    if spec.of == "picks":
        verdicts = verdicts[picked_candidates(view.candidate_sets, spec.selector)]
    # as `kofn calibrate --apply` weighs labels: by the share of their verdict among all that could be drawn
    weights[both] = weights_by_verdict(rows.judge_values[both], verdicts[np.isfinite(verdicts)])
    rows = replace(rows, weights=weights)
    return metric, calibrate(rows, None, CalibrationSettings(n_resamples=N_RESAMPLES)), counts


def _verdicts_of_rows(view: RunView, sheet: LabelFile, verdicts: Any) -> Any:
    """The verdict on every row as it is now; NaN where it is not graded, or no longer there."""
    keys = [row_key(row) for row in sheet.rows]
    known = view.scores.select("id", at=pl.int_range(pl.len()))
    at = pl.DataFrame({"id": [case for case, _ in keys]}).join(known, on="id", how="left", maintain_order="left")["at"]
    out = np.full(len(keys), np.nan)
    for i, (case, (_, index)) in enumerate(zip(at.to_list(), keys, strict=True)):
        if case is None:
            continue
        if index is None:
            out[i] = verdicts[case]
        elif 0 <= index < view.candidate_sets.sizes[case]:
            out[i] = verdicts[view.candidate_sets.offsets[case] + index]
    return out


def calibrate_commands(view: RunView, sheet: LabelFile) -> dict[str, Any]:
    """What to type when the labels are there; without verdicts first what makes a judge give them."""
    graded, spec = graded_metrics(view), sheet.spec
    words = ["kofn", "calibrate", str(sheet.path), "--apply", str(view.path)]
    metric = spec.metric if spec.metric in graded else ""
    words += ["--metric", metric] if metric and metric != graded[0] else []
    words += ["--aggregate", spec.aggregate] if spec.of == "sets" and spec.aggregate != "any_pass" else []
    words += ["--selected", "--by-selector", spec.selector] if spec.of == "picks" else []
    judge = shlex.join(["kofn", "judge", str(view.path)]) if not graded else ""
    return {"command": shlex.join(words), "judge_command": judge, "graded": bool(graded)}
