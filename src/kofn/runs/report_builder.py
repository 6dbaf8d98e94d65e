"""Builds the report of a result: groups, metrics as weighted attributes, a verdict per case."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.table import segment_names
from kofn.errors import InputError, UnknownName
from kofn.registry import aggregator, higher_is_better
from kofn.runs.case_reports import FIELD, RESULT, SCHEMA, GroupReport, case_scores, json_list, json_text
from kofn.runs.run_tables import CorrectnessResults
from kofn.scoring.configuration import GroupType, PassPolicy, ReportConfig, Requirement
from kofn.scoring.result import measures_of_use

if TYPE_CHECKING:
    from kofn.aggregators.base import Aggregator
    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult

ALL = "cases"  # the group of every case where none is named
_SHOWN, _LONG = 5, 60  # answers a diff shows, and characters of each


def report_of(result: ScoredResult, plan: ReportConfig | None = None) -> tuple[CorrectnessResults, pl.DataFrame]:
    """The evaluation without case reports, and those as columns."""
    plan = plan or ReportConfig()
    table = result.table
    groups = _groups(table, plan)
    verdicts = verdicts_of(result, plan)
    frame = _frame(result, plan, groups, verdicts)
    scores = case_scores(frame)
    outcomes = _outcomes(scores, plan)
    by_type = scores.group_by("type", maintain_order=True).agg(passed=pl.col("passed").sum(), total=pl.len())
    evaluation = CorrectnessResults(
        problem_name=plan.task,
        problem_version=plan.task_version,
        name=plan.name,
        version=plan.version,
        timestamp=frame["timestamp"][0],
        duration=float(frame["duration"].sum()),
        group_outcomes=outcomes,
        pass_counts={GroupType(t): n for t, n in by_type.select("type", "passed").iter_rows()},
        total_counts={GroupType(t): n for t, n in by_type.select("type", "total").iter_rows()},
        policy=plan.policy or PassPolicy.CORE_CASES,
        verdict=_verdict_text(verdicts),
    )
    return evaluation, frame


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """What one metric says of every case: the rule, and 1, 0 or NaN a case."""

    metric: str
    rule: Requirement
    met: Floats


def verdict_name(result: ScoredResult, plan: ReportConfig) -> str:
    """The aggregator that says whether a case passes: the one asked for, else that of the declared use, else `first`.

    Where aggregators were asked for, it is one of them, and which one does not depend on their order. One can say it
    that has a natural bound, and of which more or less is better; where none of the run's can, `first` says it.
    """
    if plan.verdict is not None:
        return Requirement.parse(plan.verdict).name if has_bound(plan.verdict) else plan.verdict
    if plan.case_rule is not None:
        return plan.case_rule
    able = sorted({name for _, name in result.case_values if _can_decide(name)})
    use = result.understood.get("use")
    if use is not None and (measuring := measures_of_use(able, use)):
        return measuring[0]
    return next((name for name in _CASE_RULES if name in able), able[0] if able else "first")


# without a verdict and a declared use: the first of these that the run shows says whether a case passes
_CASE_RULES = ("first", "majority", "any_pass", "all_pass", "mean")


def _can_decide(name: str) -> bool:
    try:
        known = aggregator(name)
    except InputError:
        return False  # a function of the user's own
    return (known.of_values or known.bounded) and higher_is_better(known.name) is not None


def has_bound(text: str) -> bool:
    return any(sign in text for sign in "<>")


def _verdict_text(verdicts: list[VerdictRule]) -> str | None:
    """The rule by which cases pass; metrics of different directions have one each."""
    rules = list(dict.fromkeys(str(v.rule) for v in verdicts))
    if len(rules) > 1:
        return "; ".join(f"{v.rule} under {v.metric}" for v in verdicts)
    return rules[0] if rules else None


def verdicts_of(result: ScoredResult, plan: ReportConfig) -> list[VerdictRule]:
    """What every metric that has a say in it says of every case."""
    graded = [one for one in result.scored if one.metric and not one.beside_labels]  # else the verdicts are the labels'
    known = [one.metric for one in graded]
    for name, weight in plan.metric_weights.items():
        if name not in known:
            raise UnknownName("metric", name, known)
        _check_weight("metric", name, weight)
    found = [(one, *_verdict_of(result, one, plan)) for one in graded]
    return [VerdictRule(one.metric, rule, apply_rule(rule, values)) for one, values, rule in found]


def _check_weight(kind: str, name: str, weight: float) -> None:
    if not (np.isfinite(weight) and weight > 0):
        raise InputError(f"{kind} weight {name}={weight}: a weight is above 0")


def apply_rule(rule: Requirement, values: Floats) -> Floats:
    """1 or 0 a case, NaN where it has no value; the different values are few, and each is looked at once."""
    # a million cases have few distinct values: each is compared with the bound once
    kinds, which = np.unique(values, return_inverse=True)
    of_kind = np.array([np.nan if v != v else rule.met_by(v) for v in kinds.tolist()], dtype=np.float64)
    found: Floats = of_kind[which] if len(of_kind) else of_kind
    return found


def _verdict_of(result: ScoredResult, one: Graded, plan: ReportConfig) -> tuple[Floats, Requirement]:
    name = verdict_name(result, plan)
    values = result.case_values.get((one.metric, name))
    known = None
    try:
        known = aggregator(name)
        values = known(one.sets) if values is None else values
    except InputError:
        if values is None:  # else a function of the user's own, which has been called already
            raise
    if plan.verdict and has_bound(plan.verdict):
        return values, _requested_rule(result, one, plan.verdict, known)
    return values, _default_rule(one, plan.threshold, name, known)


def _requested_rule(result: ScoredResult, one: Graded, text: str, known: Aggregator | None) -> Requirement:
    """The bound that was asked for. Metrics of which more and of which less is better cannot share one."""
    rule = Requirement.parse(text)
    if rule.part != "point":
        raise InputError(f"verdict {text!r}: a single case has no interval; bound the value itself")
    # a bound above 1 on a share is a percentage without its sign
    share = known is not None and known.bounded and (one.sets.zero_one or not known.of_values)
    if share and rule.bound > 1:
        raise InputError(f"verdict {text!r}: {rule.name} goes from 0 to 1: no case can pass")
    directions = {s.sets.higher_is_better for s in result.scored if s.metric and not s.beside_labels}
    if known is not None and known.of_values and len(directions) > 1:
        better = "more" if one.sets.higher_is_better else "less"
        raise InputError(
            f"verdict {text!r}: {better} is better under {one.metric}, unlike the other: leave the bound out"
        )
    return rule


def _default_rule(one: Graded, threshold: float | None, name: str, known: Aggregator | None) -> Requirement:
    """From where on a case passes where nobody said: 1 of a share, the threshold of the metric's values."""
    if known is None or not _can_decide(name):
        raise InputError(f"verdict {name}: say from where on a case passes, such as --verdict '{name} >= 1'")
    higher = one.sets.higher_is_better or not known.of_values
    usual = 1.0 if higher else 0.0
    bound = threshold if threshold is not None and known.of_values else usual
    return Requirement(name=name, operator=">=" if higher else "<=", bound=bound)


def _groups(table: Table, plan: ReportConfig) -> pl.Series:
    names = [ALL] * table.n_cases if plan.group is None else segment_names(table, plan.group)
    groups = pl.Series("group", names, dtype=pl.String)
    known = groups.unique(maintain_order=True).to_list()
    for given in (*plan.types, *plan.weights):
        if given not in known:
            raise UnknownName("group", given, known)
    return groups


def _outcomes(scores: pl.DataFrame, plan: ReportConfig) -> dict[str, GroupReport]:
    outcomes = {}
    for (name,), part in scores.group_by("group", maintain_order=True):
        weight = plan.weights.get(str(name), 1.0)
        _check_weight("group", str(name), weight)
        outcomes[str(name)] = GroupReport(
            duration=float(part["duration"].sum()),
            results=dict(zip(part["id"].to_list(), part["score"].to_list(), strict=True)),
            type=GroupType(part["type"][0]),
            weight=weight,
        )
    return outcomes


def _frame(result: ScoredResult, plan: ReportConfig, groups: pl.Series, verdicts: list[VerdictRule]) -> pl.DataFrame:
    """The case reports, built as columns: a million cases must not become a million objects."""
    table = result.table
    n = table.n_cases
    when = plan.timestamp or datetime.now(UTC)
    # a time without a zone is UTC here, as in the report classes
    when = when if when.tzinfo is None else when.astimezone(UTC)
    seconds = result.scored[0].sets.seconds
    attributes = _attributes(result, plan, verdicts)
    fields = _case_fields(result)
    types = {name: GroupType(plan.types.get(name, GroupType.CORE)).value for name in groups.unique().to_list()}
    columns = {
        "problem": pl.repeat(plan.task, n, eager=True),
        "checkpoint": pl.repeat(plan.name, n, eager=True),
        "version": pl.repeat(plan.version, n, eager=True, dtype=pl.Int64),
        "problem_version": pl.repeat(plan.task_version, n, eager=True, dtype=pl.Int64),
        "id": table.cases["case_id"],
        "group": groups,
        "type": groups.replace_strict(types, return_dtype=pl.String),
        "timestamp": pl.repeat(when, n, eager=True, dtype=pl.Datetime("us", "UTC")),
        "duration": np.zeros(n) if seconds is None else _sums(seconds, table.offsets),
        "results": _by_case(RESULT, attributes, n),
        "case": _by_case(FIELD, fields, n),
        "original_checkpoint": pl.repeat(None, n, eager=True, dtype=pl.String),
        "original_group": pl.repeat(None, n, eager=True, dtype=pl.String),
    }
    return pl.DataFrame(columns).cast(dict(SCHEMA))  # type: ignore[arg-type]


def _sums(values: Floats, offsets: Any) -> Floats:
    """The sum of every set's known values, none of them below 0."""
    sizes = np.diff(offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return np.bincount(owner, np.where(values > 0, values, 0.0), minlength=len(sizes)).astype(np.float64)


def _by_case(kind: pl.Struct, parts: list[pl.DataFrame], n: int) -> pl.Series:
    """Lists of structs from one frame a member, each a row a case."""
    if not parts:
        return pl.Series([[]], dtype=pl.List(kind)).new_from_index(0, n)
    names = [f.name for f in kind.fields]
    # parts are stacked one below the other; this order puts the members of each case side by side
    by_case = np.arange(n * len(parts)).reshape(len(parts), n).T.ravel()
    members = pl.concat([p.select(names) for p in parts]).to_struct().cast(kind).gather(by_case)
    return members.reshape((n, len(parts))).cast(pl.List(kind))


def _attributes(result: ScoredResult, plan: ReportConfig, verdicts: list[VerdictRule]) -> list[pl.DataFrame]:
    table = result.table
    expected = json_text(table.cases["reference"]) if "reference" in table.cases.columns else None
    answers = result.scored[0].sets.answers
    actual = None if answers is None else json_list(answers, table.offsets)
    n = table.n_cases
    nothing = pl.repeat(None, n, eager=True, dtype=pl.String)
    parts = []
    for v in verdicts:
        correct = pl.Series("is_correct", v.met, nan_to_null=True).cast(pl.Boolean)
        fails = (~correct).fill_null(value=False).to_numpy()
        parts.append(
            pl.DataFrame(
                {
                    "attribute": pl.repeat(v.metric, n, eager=True),
                    "expected": nothing if expected is None else expected,
                    "actual": nothing if actual is None else actual,
                    "diff": _diffs(result, v, fails),
                    "is_correct": correct,
                    "weight": pl.repeat(float(plan.metric_weights.get(v.metric, 1.0)), n, eager=True),
                }
            )
        )
    return parts


def _diffs(result: ScoredResult, verdict: VerdictRule, fails: Any) -> pl.Series:
    """For a case that fails, one line: how many candidates pass, and which answers they gave instead."""
    sets = next(one.sets for one in result.scored if one.metric == verdict.metric)
    graded, passing = sets.counts
    cases = pl.DataFrame({"case": np.arange(len(sets)), "fails": fails, "graded": graded, "passing": passing})
    line = pl.format("{} of {} candidates pass", "passing", "graded")
    if sets.answers is not None:
        answers = _answers_given(
            sets.answers, np.repeat(fails, sets.sizes), np.repeat(np.arange(len(sets)), sets.sizes)
        )
        cases = cases.join(answers, on="case", how="left", maintain_order="left")
        line += pl.col("answers").fill_null("")
    return cases.select(diff=pl.when("fails").then(line).otherwise(pl.lit(""))).to_series()


def _answers_given(answers: pl.Series, rows: Any, owner: Any) -> pl.DataFrame:
    """Which answers the candidates of a case gave, the five most frequent; of equals the one seen first."""
    given = pl.DataFrame({"case": owner, "answer": answers}).filter(rows)
    counts = given.group_by("case", "answer", maintain_order=True).len()
    ordered = counts.sort("case", "len", descending=[False, True], maintain_order=True)
    text = pl.col("answer")
    # an answer may be a whole text
    short = pl.when(text.str.len_chars() > _LONG).then(text.str.head(_LONG - 1) + "…").otherwise(text)
    lines = ordered.select(pl.col("case").set_sorted(), line=pl.format("{} x{}", short.fill_null("no answer"), "len"))
    listed, line = lines.group_by("case", maintain_order=True).agg("line"), pl.col("line")
    more = pl.format(" and {} more", line.list.len() - _SHOWN)
    end = pl.when(line.list.len() > _SHOWN).then(more).otherwise(pl.lit(""))
    return listed.select("case", answers=pl.lit("; answers: ") + line.list.head(_SHOWN).list.join(", ") + end)


def _case_fields(result: ScoredResult) -> list[pl.DataFrame]:
    """What a report tells of a case: its input, its tags, how many candidates it has and how many pass."""
    table = result.table
    sets = result.scored[0].sets
    columns: list[pl.Series] = [table.cases["input"]] if "input" in table.cases.columns else []
    columns += [c for c in table.tags.iter_columns() if c.name not in ("input", "candidates", "passing")]
    columns.append(pl.Series("candidates", sets.sizes))
    if result.scored[0].metric:
        columns.append(pl.Series("passing", sets.counts[1]))
    return [pl.DataFrame({"attribute": pl.repeat(c.name, len(c), eager=True), "value": json_text(c)}) for c in columns]
