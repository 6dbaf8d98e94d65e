"""Grades a stored run again with other extractors, metrics or thresholds, and lists what changes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.metrics import default_metric
from kofn.registry import METRICS, parse_spec
from kofn.runs.files import MANIFEST, digest
from kofn.runs.load import reestimate
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.evaluate import evaluate, result_of
from kofn.stats import compare

if TYPE_CHECKING:
    from kofn.runs.record import Run
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult
    from kofn.stats import Comparison

CHANGES = "changes.parquet"
_EXAMPLES = 20  # in run.json; changes.parquet has them all
_REGRADES = ("extract", "metrics", "threshold", "top_k")  # any other option makes other numbers of the same grades
_COMPARED = ("first", "mean", "any_pass", "all_pass", "majority", "best_score")
_WORDS = {1: "pass", 0: "fail", -1: "not graded"}


@dataclass(frozen=True, kw_only=True)
class VerdictChanges:
    """What became of every candidate's verdict.

    before, after   the metrics
    n               candidates
    moved           (verdict before, verdict after) -> how many candidates, of those that changed
    n_answers       candidates whose answer is another one now
    rows            the candidates whose verdict, value or answer changed: case_id, index, answer_before, answer_after,
                    value_before, value_after, passed_before, passed_after
    numbers         aggregator -> the paired comparison over cases, after - before
    """

    before: str
    after: str
    n: int
    moved: dict[tuple[str, str], int]
    n_answers: int
    rows: pl.DataFrame
    numbers: dict[str, Comparison]

    def to_dict(self) -> dict[str, Any]:
        """As run.json keeps it, with the first candidates whose verdict changed."""
        names = ("a", "b", "difference", "low", "high", "p", "wins", "losses", "n")
        return {
            "before": self.before,
            "after": self.after,
            "n": self.n,
            "moved": [{"before": a, "after": b, "n": n} for (a, b), n in self.moved.items()],
            "n_answers": self.n_answers,
            "numbers": {name: {k: getattr(c, k) for k in names} for name, c in self.numbers.items()},
            "examples": self.examples(_EXAMPLES),
        }

    def examples(self, most: int) -> list[dict[str, Any]]:
        """The first candidates whose verdict changed."""
        moved = self.rows.filter(pl.col("passed_before").ne_missing(pl.col("passed_after")))
        return moved.head(most).to_dicts()


@dataclass(frozen=True, kw_only=True)
class RescoredRun:
    """A run graded again: the new result, the run it came from, and what changed under each of its metrics."""

    parent: Run
    result: ScoredResult
    options: GradingConfig
    changes: tuple[VerdictChanges, ...]

    def manifest(self) -> dict[str, Any]:
        """What the new run says of its parent."""
        path = self.parent.directory
        return {
            "parent": {
                "path": str(path.resolve()),
                "name": self.parent.name,
                "created": self.parent.manifest.get("created"),
                "run_json_sha256": digest(path / MANIFEST),
                "extractor": (self.parent.result.extraction if self.parent.result else {}).get("extractor"),
                "changes": [one.to_dict() for one in self.changes],
            }
        }

    def tables(self) -> dict[str, pl.DataFrame]:
        """Further files of the new run: every candidate that changed."""
        if not self.changes:
            return {}
        rows = [one.rows.with_columns(pl.lit(one.after).alias("metric")) for one in self.changes]
        return {CHANGES: pl.concat(rows)}


def rescore(source: Path | Run, options: GradingConfig) -> RescoredRun:
    """Grade a stored run again, as `options` say; what they leave open is as the run had it.

    Outputs, references and labels are those of the run. Its metrics that a model graded are kept, for nothing is asked
    again. With neither an extractor, a metric nor a threshold the stored grades stay and only numbers are made anew.
    """
    from kofn.runs.record import load_run, restore_table  # pydantic: only for runs, not for files

    run = load_run(source) if isinstance(source, (str, Path)) else source
    if run.result is None:
        raise InputError(
            f"{run.path or run.name}: no candidates to grade again: give a run of kofn score --out or kofn run"
        )
    plain = GradingConfig()
    given = {f.name: v for f in fields(options) if (v := getattr(options, f.name)) != getattr(plain, f.name)}
    merged = replace(run.options, **{**_explicit_options(run, given.get("extract")), **given})
    table = restore_table(run.result)
    if not given.keys() & set(_REGRADES):
        result = replace(run.result, table=table)
        result = reestimate(result, merged) if given else result
        return RescoredRun(parent=run, result=result, options=merged, changes=())
    result = _with_judges(evaluate(table, merged), run.result, merged)
    new = [one for one in result.scored if one.metric and one.metric not in result.judges]
    changes = [_verdict_changes(run.result, result, one, merged) for one in new]
    return RescoredRun(parent=run, result=result, options=merged, changes=tuple(c for c in changes if c is not None))


def _explicit_options(run: Run, extract: Any) -> dict[str, Any]:
    """The extractor and the metrics that somebody chose for the run.

    Where nobody did, the metric is the run's too, unless the new extractor finds answers of a kind of its own: then it
    is the one that suits them.
    """
    stored, result = run.manifest.get("options", {}), run.scored_result
    metrics = tuple(m for m in stored.get("metrics") or () if isinstance(m, str) and m not in result.judges)
    if not metrics and isinstance(extract, str) and default_metric(extract) == "exact_match":
        names = [one.metric for one in result.scored if one.metric and one.metric not in result.judges]
        metrics = tuple(name for name in names if parse_spec("metric", name)[0] in METRICS)
    return {"extract": stored.get("extract"), "metrics": metrics}


def _with_judges(result: ScoredResult, stored: ScoredResult, options: GradingConfig) -> ScoredResult:
    """With the verdicts of models that the run had; candidates left out have none to keep."""
    names = {one.metric for one in result.scored}
    judged = [one for one in stored.scored if one.metric in stored.judges and one.metric not in names]
    table = result.table
    if not judged:
        return result.with_warnings(stored.source_warnings)
    # verdicts belong to candidates by position: with some left out they no longer match
    if any(len(one.sets.values) != table.n_candidates for one in judged):
        left = ", ".join(one.metric for one in judged)
        return result.with_warnings([CodedWarning.of("verdicts-dropped", left)])
    judges = {one.metric: stored.judges[one.metric] for one in judged}
    graded = [one for one in result.scored if one.metric]
    whole = result_of(table, [*graded, *judged], options, judges)
    return whole.with_warnings([*result.source_warnings, *stored.source_warnings])


def _verdict_changes(
    stored: ScoredResult, result: ScoredResult, scored: Graded, options: GradingConfig
) -> VerdictChanges | None:
    """What one metric changes, against the metric of that name before, or the run's first; None where none was."""
    # the same metric where the run had it, else the one it was judged by
    old = next((one for one in stored.scored if one.metric == scored.metric), stored.scored[0])
    if not old.metric:
        return None
    # candidates of both: those that are left out now are not among them
    key, named = ["case_id", "index"], ("answer", "value", "passed")
    before, after = (
        _frame(one).rename({name: f"{name}_{side}" for name in named})
        for one, side in ((old, "before"), (scored, "after"))
    )
    frame = after.join(before, on=key, how="inner", maintain_order="left")
    frame = frame.select(*key, *(f"{name}_{side}" for name in named for side in ("before", "after")))
    # here passes are 1, 0 and -1, never null
    moved = frame.filter(pl.col("passed_before") != pl.col("passed_after"))
    sides = ("passed_before", "passed_after")
    counts = moved.group_by(*sides).len().sort(*sides, descending=True)
    differs = (pl.col(f"{name}_before").ne_missing(pl.col(f"{name}_after")) for name in named)
    # passes as true, false or null, as every other file has them
    as_flags = (pl.when(pl.col(s) >= 0).then(pl.col(s) == 1).alias(s) for s in sides)
    a, b = stored.table.cases["case_id"].to_list(), result.table.cases["case_id"].to_list()
    numbers: dict[str, Comparison] = {}
    for (metric, name), values in result.case_values.items():
        kept = name in _COMPARED or options.aggregate
        if metric == scored.metric and kept and (old.metric, name) in stored.case_values:
            numbers[name] = compare(a, stored.case_values[old.metric, name], b, values, **options.drawing)
    return VerdictChanges(
        before=old.metric,
        after=scored.metric,
        n=frame.height,
        moved={(_WORDS[a], _WORDS[b]): n for a, b, n in counts.iter_rows()},
        n_answers=int(frame["answer_before"].ne_missing(frame["answer_after"]).sum()),
        rows=frame.filter(pl.any_horizontal(*differs)).with_columns(as_flags),
        numbers=numbers,
    )


def _frame(scored: Graded) -> pl.DataFrame:
    sets = scored.sets
    sizes = np.diff(sets.offsets)
    answers = sets.answers if sets.answers is not None else pl.Series([None] * len(sets.values), dtype=pl.String)
    return pl.DataFrame(
        {
            "case_id": sets.case_ids.gather(np.repeat(np.arange(len(sizes)), sizes)),
            "index": np.arange(int(sizes.sum())) - np.repeat(sets.offsets[:-1], sizes),
            "answer": answers,
            "value": pl.Series(sets.values, nan_to_null=True),
            "passed": sets.passes,
        }
    )
