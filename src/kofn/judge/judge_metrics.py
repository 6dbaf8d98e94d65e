"""Judges' scores as metrics and selectors of a result, and the checks that nothing else is replaced by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.errors import InputError, UnknownName
from kofn.registry import aggregator
from kofn.runs.load import with_stored_estimates
from kofn.scoring.evaluate import result_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.judge.judge_settings import JudgeSettings
    from kofn.judge.verdict_scores import JudgeScores
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.result import ScoredResult


@dataclass(frozen=True, kw_only=True)
class JudgeResult:
    """The result with its new metrics, the single verdicts, and why judging ended early where it did."""

    result: ScoredResult
    verdicts: pl.DataFrame
    names: tuple[str, ...]
    stopped: str | None


def check_aggregators(graded: GradedCandidates, names: Sequence[str]) -> None:
    """Refuse, before anything is asked, an aggregator that is unknown, that no set is large enough for, or that could
    pick by several selectors or by none there is.
    """
    sets = graded.result.scored[0].sets
    there = list(dict.fromkeys([*sets.selectors, *names]))
    largest = int(sets.sizes.max()) if len(sets) else 0
    for rule in map(aggregator, graded.options.aggregate):
        by, k = getattr(rule, "by", None), getattr(rule, "k", None)
        if isinstance(k, int) and k > largest:
            raise InputError(f"{rule.name} is undefined: the largest set has {largest} candidates")
        if "selectors" in rule.needs and by and by not in there:
            raise UnknownName("selector", by, there)
        if "selectors" in rule.needs and by == "" and len(there) > 1:
            raise InputError(f"{rule.name}: several selectors: name one, such as {rule.label}(by={there[-1]!r})")


def check_replaced(graded: GradedCandidates, name: str, fingerprint: str, settings: JudgeSettings) -> None:
    """A metric of another judge is not replaced by accident, nor is a calibration lost with it."""
    before = graded.result.judges.get(name)
    if before is None or settings.replace or before["fingerprint"] == fingerprint:
        return
    by = ", ".join(before["models"])
    also = " and is calibrated" if before.get("calibrated") else ""
    raise InputError(
        f"{graded.path}: {name} is there already, by {by} with another model, prompt or parameters{also}: "
        "give --name for one more metric, or --replace"
    )


def keep_calibration(graded: GradedCandidates, columns: Sequence[JudgeScores], judges: dict[str, Any]) -> None:
    """The calibration of a judge whose verdicts are what they were."""
    values = {one.metric: one.sets.values for one in graded.result.scored}
    for column in columns:
        before = graded.result.judges.get(column.name, {})
        same = np.array_equal(values.get(column.name, np.empty(0)), column.values, equal_nan=True)
        if before.get("calibration") and before["fingerprint"] == judges[column.name]["fingerprint"] and same:
            judges[column.name] |= {"calibrated": True, "calibration": before["calibration"]}


def check_name(name: str, graded: GradedCandidates) -> None:
    """A judge may be asked again under its name, and replaces what it gave; it may not replace another metric."""
    others = {one.metric for one in graded.result.scored} - set(graded.result.judges)
    if name in others | {"score", "pass"}:
        raise InputError(f"{graded.path}: there is a metric {name} already: give the judge another --name")


def with_verdict_columns(
    graded: GradedCandidates,
    columns: Sequence[JudgeScores],
    new_judges: Mapping[str, Mapping[str, Any]],
    *,
    selector_only: bool = False,
) -> ScoredResult:
    """The result with new metrics. A judge's score can pick, too, so it is also a selector, or only that."""
    result, table = graded.result, graded.table
    selectors = {c.name: c.values for c in columns}
    rows = table.candidates.with_columns(
        *(pl.Series(f"selector.{c.name}", c.values, nan_to_null=True) for c in columns),
        *(pl.Series(f"verdict.{c.name}", c.words, dtype=pl.String) for c in columns if any(c.words)),
    )
    rows = rows.with_columns(note=_notes(rows))
    table = replace(table, candidates=rows)
    kept = [one for one in result.scored if one.metric and one.metric not in new_judges]
    sets = result.scored[0].sets
    base = replace(sets, selectors={**sets.selectors, **selectors}, higher_is_better=True)
    scored = [replace(one, sets=replace(one.sets, selectors={**one.sets.selectors, **selectors})) for one in kept]
    order = [*columns[-1:], *columns[:-1]]  # the panel before its members
    scored += [
        replace(result.scored[0], sets=base).under(
            c.name, c.values, c.passes, source=f"judge {new_judges[c.name]['rubric']}"
        )
        for c in ([] if selector_only else order)
    ]
    scored = scored or [replace(result.scored[0], sets=base)]
    judges = {**{k: v for k, v in result.judges.items() if k not in new_judges}, **new_judges}
    before = [w for w in result.source_warnings if w.subject not in new_judges]
    found = result_of(table, scored, graded.options, judges).with_warnings(before)
    others = replace(
        result,
        estimates=tuple(e for e in result.estimates if e.metric not in new_judges),
        case_values={key: values for key, values in result.case_values.items() if key[0] not in new_judges},
    )
    return found if graded.run is None else with_stored_estimates(found, others, graded.options)


def _notes(rows: pl.DataFrame) -> pl.Series:
    """What every judge said of a candidate, for the page: each with its name where there are several."""
    names = [c.removeprefix("verdict.") for c in rows.columns if c.startswith("verdict.")]
    texts = [rows[f"verdict.{n}"].to_list() for n in names]
    joined = [
        "\n\n".join(f"{n}: {t}" for n, t in zip(names, said, strict=True) if t is not None) or None
        for said in zip(*texts, strict=True)
    ]
    return pl.Series("note", joined or [None] * rows.height, dtype=pl.String)


def name_only_selector(aggregate: Sequence[Any], selectors: Sequence[str]) -> tuple[Any, ...]:
    """Aggregators that pick by the only selector there is, with its name: soon there may be another.

    >>> name_only_selector(["mean", "selected", "weighted_vote(scale='exp')"], ["reward"])
    ('mean', "selected(by='reward')", "weighted_vote(by='reward', scale='exp')")
    """
    rules: list[Any] = [aggregator(spec) for spec in aggregate]
    return tuple(
        replace(rule, by=selectors[0]).name
        if len(selectors) == 1 and "selectors" in rule.needs and getattr(rule, "by", None) == ""
        else spec
        for spec, rule in zip(aggregate, rules, strict=True)
    )
