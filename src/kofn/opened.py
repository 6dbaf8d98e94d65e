"""What a verb is given: a run directory, or a file of outputs. Either way candidates that are graded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.evaluate import Options, Result
    from kofn.importers.rows import ReadOptions
    from kofn.report.run import Run
    from kofn.scoring import Answers, Scored
    from kofn.table import Table


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Graded candidates, and where they came from. `run` is None for a file."""

    name: str
    path: Path
    result: Result
    options: Options
    run: Run | None = None

    @property
    def table(self) -> Table:
        """The candidates as an importer hands them on, whatever they were read from."""
        assert self.result.table is not None
        return self.result.table

    @property
    def manifest(self) -> Mapping[str, Any]:
        return {} if self.run is None else self.run.manifest

    def metric(self, name: str | None = None) -> Scored:
        """The sets under this metric; without a name under the first."""
        from kofn.errors import UnknownName

        if name is None:
            first = self.result.scored[0]
            if not first.metric:
                raise InputError(f"{self.path}: nothing is graded: it has no labels, scores or references")
            return first
        for one in self.result.scored:
            if one.metric == name:
                return one
        raise UnknownName("metric", name, [one.metric for one in self.result.scored if one.metric])

    def units(self) -> dict[str, Any]:
        """Weights and clusters of the cases, as the statistics take them."""
        from kofn.evaluate import case_codes, case_numbers

        cases = self.table.cases.columns
        weight = self.options.weight or ("weight" if "weight" in cases else None)
        cluster = self.options.cluster or ("cluster" if "cluster" in cases else None)
        return {"weights": case_numbers(self.table, weight), "clusters": case_codes(self.table, cluster)}


def opened(path: Path | str, options: Options | None = None, *, fields: Mapping[str, str] | None = None) -> Opened:
    """Open a run directory or read a file of outputs and score it.

    Of a run the stored grades are taken, and with `options` only what slices, weighs, splits or draws is changed; a
    run is graded again where an extractor or metrics are named. A file is always graded.
    """
    from kofn.evaluate import Options

    path = Path(path)
    given = options or Options()
    if not path.is_dir() or _is_log(path):
        return _of_file(path, given, fields)
    from kofn.report.run import load_run, restored

    run = load_run(path)
    if run.result is None:
        raise InputError(f"{path}: this run has no candidates: give one of kofn score --out, kofn run or kofn judge")
    merged = _merged(run.options, given)
    table = restored(run.result)
    if given.extract or given.metrics:
        from kofn.evaluate import evaluate

        return Opened(name=run.name, path=path, run=run, options=merged, result=evaluate(table, merged))
    result = replace(run.result, table=table)
    if any((given.by, given.aggregate, given.split, given.cluster, given.weight, given.use)):
        result = again_of(result, merged)
    return Opened(name=run.name, path=path, run=run, options=merged, result=result)


def _is_log(path: Path) -> bool:
    """Whether a folder is another tool's and no run."""
    from kofn.importers import importer_of
    from kofn.importers.base import Peek
    from kofn.report.files import MANIFEST

    return not (path / MANIFEST).exists() and importer_of(Peek(path)) is not None


def opened_all(
    paths: Sequence[Path | str], options: Options, *, reading: ReadOptions, as_repeats: bool = False
) -> Opened:
    """One run as it is stored, or whatever else `kofn score` reads, graded as `options` say."""
    from kofn.api import load
    from kofn.evaluate import evaluate
    from kofn.importers.sources import expand
    from kofn.report.files import MANIFEST

    places = expand(paths)
    if len(places) == 1 and "://" not in places[0] and (Path(places[0]) / MANIFEST).is_file():
        return opened(places[0], options)
    result = evaluate(load(places, reading, as_repeats=as_repeats), options)
    name = places[0].rstrip("/").rpartition("/")[2].partition(".")[0]
    return Opened(name=name, path=Path(places[0]), options=options, result=result)


def _of_file(path: Path, options: Options, fields: Mapping[str, str] | None) -> Opened:
    from kofn.api import load
    from kofn.evaluate import evaluate
    from kofn.importers.rows import ReadOptions

    keep = tuple(n for n in (*options.by, options.cluster, options.weight) if n is not None)
    table = load(path, ReadOptions(fields=fields or {}, keep=keep, everything=True))
    result = evaluate(table, options)
    return Opened(name=path.name.partition(".")[0], path=path, options=options, result=result)


def _merged(stored: Options, given: Options) -> Options:
    """How the run was evaluated, with what was asked for now."""
    from dataclasses import fields

    from kofn.evaluate import Options

    plain = Options()
    names = (f.name for f in fields(Options))
    return replace(stored, **{n: v for n in names if (v := getattr(given, n)) != getattr(plain, n)})


def answers_of(result: Result) -> Answers:
    """The answers a stored result voted on."""
    from kofn.scoring import Answers

    found = result.extraction
    return Answers(
        column=result.scored[0].sets.answers,
        extractor=found["extractor"],
        reason=found["reason"],
        n=found.get("n") or 0,
        n_failed=found.get("n_failed") or 0,
    )


def again_of(result: Result, options: Options) -> Result:
    """The numbers of stored grades made again with other options."""
    from kofn.evaluate import result_of

    table, scored = result.table, list(result.scored)
    assert table is not None
    answers = answers_of(result)
    if options.split is not None:
        kept = np.isin(table.cases["case_id"].to_numpy(), options.split.of(table).cases["case_id"].to_numpy())
        rows = np.repeat(kept, np.diff(table.offsets))
        table = table.of_cases(kept)
        scored = [replace(one, sets=one.sets.take(np.flatnonzero(kept))) for one in scored]
        answers = answers if answers.column is None else replace(answers, column=answers.column.filter(rows))
    found = result_of(table, answers, scored, options, result.judges).with_told(result.told)
    return (
        found if options.split is not None or options.weight or options.cluster else with_stored(found, result, options)
    )


def with_stored(result: Result, stored: Result, options: Options) -> Result:
    """A result made again, with the estimates that were stored where it has the same ones.

    They are equal but for runs whose sets stopped early, where a mean over everything drawn would be biased; there the
    usual aggregators are those that were stored.
    """
    known = {(e.metric, e.aggregator, e.segment): e for e in stored.estimates}
    metrics = {metric for metric, _ in stored.case_values}
    kept = {
        key: stored.case_values.get(key, values)
        for key, values in result.case_values.items()
        if options.aggregate or key in stored.case_values or key[0] not in metrics
    }
    estimates = [known.get((e.metric, e.aggregator, e.segment), e) for e in result.estimates]
    return replace(result, estimates=tuple(e for e in estimates if (e.metric, e.aggregator) in kept), case_values=kept)
