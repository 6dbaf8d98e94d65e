"""Indexes stored runs: reads verdicts, scores and selected columns without loading candidates."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kofn.errors import InputError
from kofn.runs.case_reports import SCHEMA, case_scores
from kofn.runs.files import (
    CANDIDATES,
    CASES,
    MANIFEST,
    check_version,
    check_whole,
    checksum_mismatch,
    digest,
    read_json,
    read_parquet,
    recover,
)
from kofn.runs.manifest import check_digest
from kofn.runs.migrations import FIRST, load_manifest
from kofn.runs.record import load_run
from kofn.runs.run_tables import EVALUATION, REPORTS, CorrectnessResults, evaluation_body, load_evaluation_summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl
    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats


# any one of them: a damaged run is found too, and reported
_RUN_FILES = (MANIFEST, EVALUATION, REPORTS)
QUESTION_COLUMNS = ("input", "reference", "choices")  # what a case is, as against what was answered


class Questions(NamedTuple):
    """What the cases of a run ask and expect: a hash a case of each column in `QUESTION_COLUMNS` that the run has."""

    cases: Sequence[str]
    hashes: Mapping[str, NDArray[Any]]


class IndexColumn(NamedTuple):
    """Where a run keeps the value of every case."""

    metric: str
    aggregator: str
    column: str


class StoredNumbers(NamedTuple):
    """The columns of cases.parquet that are needed: values by column name, and a hash of what each case is."""

    cases: tuple[str, ...]
    values: dict[str, Floats]
    clusters: NDArray[Any] | None
    weights: Floats | None
    questions: Questions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A stored run, as much of it as a trend needs.

    manifest                run.json, checked; empty for an evaluation saved by itself
    cases, scores, passed   one a case report: NaN and false where nothing was verified
    weights                 of the case reports in the report's score, None where all are alike
    stored                  None for runs without candidates, and until `read_columns` read it
    """

    name: str
    path: Path
    evaluation: CorrectnessResults
    manifest: Mapping[str, Any]
    cases: tuple[str, ...]
    scores: Floats
    passed: NDArray[np.bool_]
    weights: Floats | None
    stored: StoredNumbers | None = None

    @property
    def task(self) -> str:
        """What was evaluated: runs of one task have the same cases."""
        return task_of(self.evaluation.problem_name, self.evaluation.name, self.manifest)

    @property
    def when(self) -> datetime:
        """When the run was made."""
        if "created" not in self.manifest:
            return self.evaluation.timestamp
        when = datetime.fromisoformat(self.manifest["created"])
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)

    @property
    def result(self) -> Mapping[str, Any] | None:
        """What `kofn score --json` printed; None for runs without candidates."""
        return self.manifest.get("result")

    @property
    def columns(self) -> list[IndexColumn]:
        """Every number that the run keeps by case."""
        layout = self.manifest.get("layout")
        return [IndexColumn(v["metric"], v["aggregator"], v["column"]) for v in layout["values"]] if layout else []

    @property
    def n_passed(self) -> int:
        return int(self.passed.sum())

    @property
    def pass_rate(self) -> float | None:
        """The share of the cases that pass; one of which nothing was verified does not."""
        return self.n_passed / len(self.passed) if len(self.passed) else None

    @property
    def cost(self) -> float | None:
        return self._total("cost")

    @property
    def seconds(self) -> float | None:
        """What the candidates took, or the evaluation; None where nobody measured."""
        took = self._total("seconds")
        return took if took is not None else self.evaluation.duration or None

    def _total(self, name: str) -> float | None:
        spent = self.result["diagnostics"].get(name) if self.result else None
        return float(spent["total"]) if spent else None

    @property
    def verdicts(self) -> list[bool | None]:
        """Whether each case passes; None where nothing was verified."""
        unknown = np.isnan(self.scores).tolist()
        return [None if u else p for u, p in zip(unknown, self.passed.tolist(), strict=True)]

    def verdict_of(self, case: str) -> bool | None:
        """Whether one case passes; None where the run does not have it, or did not verify it."""
        at = self.cases.index(case) if case in self.cases else -1
        return None if at < 0 or np.isnan(self.scores[at]) else bool(self.passed[at])

    @property
    def digests(self) -> list[str | None]:
        """Of the files that were scored."""
        return [source["sha256"] for source in self.manifest.get("sources", ())]

    def column(self, aggregator: str, metric: str | None = None) -> IndexColumn | None:
        """Where the run keeps an aggregator; under its first metric that has it, unless one is named."""
        return next((c for c in self.columns if c.aggregator == aggregator and metric in (None, c.metric)), None)


def task_of(problem: str, name: str, manifest: Mapping[str, Any]) -> str:
    """What runs have in common that can be followed: the task; of programs the problem and its checkpoint.

    >>> task_of("gsm8k", "tuesday", {"kind": "run"}), task_of("calculator", "basics", {"kind": "verify"})
    ('gsm8k', 'calculator, basics')
    """
    programs = manifest.get("kind") == "verify" and manifest.get("result") is None
    return f"{problem}, {name}" if programs else problem


class SkippedRun(NamedTuple):
    """A directory that is no part of the trend, and why."""

    path: str
    reason: str


def find_runs(directory: Path) -> Iterator[Path]:
    """The run directories at or below a directory, each once; nothing inside a run or a hidden folder is looked at.

    Links are followed, and a folder reached twice is entered once, so that a loop of links ends.
    """
    seen: set[Path] = set()
    waiting = [directory]
    while waiting:
        folder = waiting.pop()
        # by its real path: links may lead to the same folder twice, or back up
        real = folder.resolve()
        if real in seen:
            continue
        seen.add(real)
        entries = list_entries(folder)
        if any(e.name in _RUN_FILES for e in entries):
            yield folder
        else:
            waiting += [folder / e.name for e in entries if not e.name.startswith(".") and _is_folder(e)]


def list_entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, last name first, since stacks are filled with it; one that cannot be read holds nothing."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda e: e.name, reverse=True)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def load_all(directories: Sequence[Path]) -> tuple[list[StoredRun], list[SkippedRun]]:
    """Every run in these directories, once, and those that cannot be read or whose harness failed."""
    runs: list[StoredRun] = []
    left_out: list[SkippedRun] = []
    seen: set[Path] = set()
    for directory in directories:
        if not directory.is_dir():
            what = "is a file" if directory.exists() else "no such directory"
            raise InputError(f"{directory}: {what}: expected a run directory, or one that holds runs")
        for path in find_runs(directory):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                runs.append(load_completed(path))
            except InputError as problem:
                left_out.append(SkippedRun(str(path), str(problem)))
    return runs, left_out


def load_completed(path: Path) -> StoredRun:
    """The run, unless its harness failed: what it measured then is not the system."""
    run = load_stored(path)
    if run.evaluation.infrastructure_failure is not None:
        raise InputError(f"{run.path}: the harness failed: {run.evaluation.infrastructure_failure}")
    return run


def load_stored(path: Path) -> StoredRun:
    """The evaluation and the manifest of a run. What is missing, damaged or foreign is named in one line."""
    stored: dict[str, Any] = {}
    manifest: dict[str, Any] = {}
    reports: pl.DataFrame | None = None
    recover(path)
    if (path / MANIFEST).exists() or (path / CANDIDATES).exists():
        stored, manifest = load_manifest(path)
        if manifest.get("result") is not None:  # programs have cases and no candidates
            check_whole(path / CANDIDATES)
    if stored.get("schema_version") == FIRST:
        run = load_run(path, texts=False)
        evaluation, reports = run.evaluation, run.reports
    else:
        evaluation = load_evaluation_summary(path, CorrectnessResults, finished=bool(manifest))
        check_digest(path / MANIFEST, stored)
    groups = [name for name, g in evaluation.group_outcomes.items() for _ in g.results]
    cases, scores, passed = _case_reports(path, evaluation, reports)
    return StoredRun(
        name=path.resolve().name,
        path=path,
        evaluation=evaluation,
        manifest=manifest,
        cases=cases,
        scores=scores,
        passed=passed,
        weights=score_weights(groups, {name: g.weight for name, g in evaluation.group_outcomes.items()}, scores),
    )


def read_evaluation_body(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What evaluation.json says, its digests not looked at; of a run of schema 1, which has none, what it would say."""
    if manifest.get("schema_version") == FIRST:
        return evaluation_body(load_run(path, texts=False).evaluation)
    body = read_json(path / EVALUATION)
    check_version(path / EVALUATION, body)
    return body


def _case_reports(
    path: Path, evaluation: CorrectnessResults, reports: pl.DataFrame | None
) -> tuple[tuple[str, ...], Floats, NDArray[np.bool_]]:
    """Ids, scores and verdicts. A case passes where its score is 1, unless the counts say that rounding made it so."""
    groups = evaluation.group_outcomes
    pairs = [(group, case) for group, g in groups.items() for case in g.results]
    given = [score for g in groups.values() for score in g.results.values()]
    scores = np.array([np.nan if s is None else s for s in given], dtype=np.float64)
    passed = scores == 1.0
    if int(passed.sum()) != sum(evaluation.pass_counts.values()):
        passed = _exact_verdicts(path, pairs, passed.tolist(), reports)
    ids = tuple(case for _, case in pairs)
    if len(set(ids)) < len(ids):  # an id is one case only within its group
        ids = tuple(f"{group} / {case}" for group, case in pairs)
    return ids, scores, passed


def _exact_verdicts(
    path: Path, pairs: list[tuple[str, str]], by_score: list[bool], reports: pl.DataFrame | None
) -> NDArray[np.bool_]:
    """Verdicts from the case reports themselves; by the score where a case has none."""
    if reports is None:
        reports, _ = read_parquet(path / REPORTS, SCHEMA, sha256=digest(path / REPORTS))  # checked when it was found
    table = case_scores(reports)
    known = dict(zip(zip(table["group"], table["id"], strict=True), table["passed"], strict=True))
    return np.array([known.get(pair, score) for pair, score in zip(pairs, by_score, strict=True)], dtype=bool)


def read_columns(run: StoredRun, columns: Sequence[IndexColumn]) -> StoredRun:
    """The run with these columns of cases.parquet, its clusters and weights, and a hash of what each case is."""
    import polars as pl

    if run.result is None:
        return run
    path = run.path / CASES
    roles = {role: _field_column(run, role) for role in ("cluster", "weight")}
    # hashes only: whether two runs asked the same needs no texts in memory
    data = [c for c in QUESTION_COLUMNS if c in run.manifest["layout"]["case_columns"]]
    # each once, in order: a column may be a value, a cluster and a weight at the same time
    names = dict.fromkeys(["case_id", *(c.column for c in columns), *filter(None, roles.values()), *data])
    frame, same = read_parquet(path, sha256=run.manifest["files"].get(CASES), columns=list(names))
    try:
        floats = {c.column: frame[c.column].cast(pl.Float64).to_numpy() for c in columns}
        weights = None if roles["weight"] is None else frame[roles["weight"]].cast(pl.Float64).to_numpy()
    except pl.exceptions.PolarsError as problem:
        raise InputError(f"{path}: a value is not a number: {str(problem).splitlines()[0][:200]}") from None
    cases = tuple(frame["case_id"].cast(pl.String).to_list())
    clusters = None
    if roles["cluster"] is not None:
        clusters = np.array(frame[roles["cluster"]].cast(pl.String).to_list(), dtype=object)
    stored = StoredNumbers(
        cases=cases,
        values=floats,
        clusters=clusters,
        weights=weights,
        questions=Questions(cases, {c: frame[c].hash().to_numpy() for c in data}),
    )
    if len(set(stored.cases)) < len(stored.cases) or None in stored.cases:
        raise InputError(f"{path}: a case is there twice, or has no id")
    # last: a wrong type or id is the better message where the file can say so
    if not same:
        raise checksum_mismatch(path)
    return replace(run, stored=stored)


def _field_column(run: StoredRun, role: str) -> str | None:
    """The column of the field that cases were clustered or weighted by."""
    understood = run.manifest["result"]["understood"]
    name = understood[role]
    if name is None:
        return None
    known = next((r for r, field_name in understood["fields"].items() if field_name == name), name)
    column: str = run.manifest["layout"]["tags"].get(known, "case_id" if known == "id" else known)
    return column


def score_weights(groups: Sequence[str], weights: Mapping[str, float], scores: Floats) -> Floats | None:
    """What every case counts in a report's score, w = weight of its group / cases of the group with a score.

    `groups` names the group of every case. None where all count alike.

    >>> score_weights(["x", "x", "y"], {"x": 1.0, "y": 1.0}, np.array([1.0, 0.0, 1.0])).tolist()
    [0.5, 0.5, 1.0]
    """
    if not scores.size:
        return None
    names, codes = np.unique(np.array(groups, dtype=object), return_inverse=True)
    known = np.bincount(codes, weights=~np.isnan(scores), minlength=len(names))
    of_group = np.array([weights.get(name, 1.0) for name in names]) / np.maximum(known, 1)
    found: Floats = (of_group / of_group.max())[codes]  # by ratio, so that the largest is 1
    counting = found[~np.isnan(scores)]
    return None if not counting.size or bool((counting == counting[0]).all()) else found
