"""Checks requirements on a run: bounds, no drop against a baseline, passes per case, cost, completeness."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from kofn.analysis.finding import Finding
from kofn.analysis.series import align_column, count_changed_questions, questions_in
from kofn.core.document import Displayable, Document, Grid
from kofn.core.escape import escape_controls
from kofn.core.format import format_count, format_p_in_text, format_signed_interval, pluralize
from kofn.core.table import case_codes, case_numbers, segment_names
from kofn.core.types import Estimate
from kofn.core.warnings import DOUBLE_DIPPING, CodedWarning, warning_kind, warnings_dict, with_code
from kofn.errors import InputError, UnknownName
from kofn.registry import aggregator, higher_is_better, known
from kofn.runs.index import Questions, score_weights
from kofn.scoring.configuration import GroupType, Requirement
from kofn.scoring.diagnostics import find_double_dipping
from kofn.scoring.evaluate import apply_aggregator
from kofn.stats import SMALL_SEGMENT, compare, estimate, holm, segment_estimates
from kofn.stats.estimates import suitable_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

    from kofn.aggregators.base import Aggregator
    from kofn.core.candidate_sets import Floats, Ints
    from kofn.core.types import Decision
    from kofn.scoring.configuration import GradingConfig, PassPolicy
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import ScoredResult
    from kofn.stats import Comparison

PASS_RATE, SCORE = "pass_rate", "score"
CASE_MEASURES = (PASS_RATE, SCORE)  # numbers of the report itself, so that every run has them
# what `kofn calibrate --save` keeps: the rate corrected for the judge's errors, and how it agrees with people
CORRECTED, JUDGE_RATES = "corrected", ("kappa", "sensitivity", "specificity")
REPORT_FIELDS = ("group", "type")  # fields that every run has
_NAMED = 5  # so many cases are named in a line
# nine digits at most: `int` of a longer text could take long
_PASSES = re.compile(r"\s*(\d{1,9})\s*(?:/\s*(\d{1,9})\s*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One requirement and what came of it. `numbers` is plain data for programs.

    >>> print(Check(name="any_pass >= 0.8", kind="require", passed=True, found="0.850, 60 cases", segment="kind=a"))
    any_pass >= 0.8 in kind=a: 0.850, 60 cases
    """

    name: str
    kind: str
    passed: bool
    found: str
    segment: str | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = "" if self.segment is None else f" in {self.segment}"
        return f"{self.name}{where}: {self.found}"

    def to_dict(self) -> dict[str, Any]:
        """As `kofn check --json` prints it."""
        own = {name: getattr(self, name) for name in ("name", "kind", "segment", "passed")}
        return {**own, "reason": str(self), **self.numbers}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckReport(Displayable):
    """All requirements on a run, and whether they hold; `warnings` say which numbers are double-dipped."""

    view: ClassVar[str] = "kofn.analysis.checks:check_document"
    printer: ClassVar[str] = "kofn.analysis.checks:format_checks"

    run: str
    checks: tuple[Check, ...]
    warnings: tuple[CodedWarning, ...] = ()

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def headline(self) -> Finding:
        """How many requirements hold, and the first that does not (or the first) with its numbers."""
        first = next((check for check in self.checks if not check.passed), self.checks[0] if self.checks else None)
        failed, n = sum(not check.passed for check in self.checks), len(self.checks)
        which = (
            f"{failed} of {format_count(n, 'requirement')} failed"
            if failed
            else f"{n} of {format_count(n, 'requirement')} passed"
        )
        text = which if first is None else f"{which}: {first}"
        numbers = {"n_passed": n - failed, "n_failed": failed, "first": None if first is None else first.to_dict()}
        return Finding(text=text, numbers=numbers)

    @property
    def summary(self) -> str:
        """How many requirements hold."""
        failed, n = sum(not check.passed for check in self.checks), len(self.checks)
        return f"failed: {failed} of {n}" if failed else f"passed: {n} of {n}"

    def rows(self) -> list[dict[str, Any]]:
        """One row per requirement."""
        names = ("name", "kind", "segment", "passed", "reason")
        return [{name: one[name] for name in names} for one in (check.to_dict() for check in self.checks)]

    def to_dict(self) -> dict[str, Any]:
        """As `kofn check --json` prints it."""
        return {
            "headline": self.headline.to_dict(),
            "run": self.run,
            "passed": self.passed,
            "checks": [check.to_dict() for check in self.checks],
            **warnings_dict(self.warnings),
        }


def format_checks(report: CheckReport, style: Callable[[str, str], str] = lambda text, _: text) -> str:
    """The headline, one line per requirement, and the warnings."""
    marks = {True: style("✓", "good"), False: style("✗", "bad")}
    lines = [style(escape_controls(report.headline.text), "strong")]
    lines += [f"{marks[check.passed]} {escape_controls(str(check))}" for check in report.checks]
    lines += [f"{style('!', 'warn')} {escape_controls(str(warning))}" for warning in report.warnings]
    return "\n".join(lines)


def check_document(report: CheckReport) -> Document:
    """The same for a notebook."""
    rows = tuple(("✓" if c.passed else "✗", c.name, c.segment or "", c.found) for c in report.checks)
    grid = Grid("", ("", "requirement", "segment", "found"), rows, (False,) * 4)
    return Document((report.headline.text, report.run), (grid,), (), tuple(map(str, report.warnings)))


@dataclass(frozen=True, slots=True)
class MinPasses:
    """At least `passing` candidates of a case pass and, where `of` is given, at least so many are graded.

    >>> str(MinPasses.parse("2")), str(MinPasses.parse("3/5"))
    ('at least 2 passes', 'at least 3 of 5 passes')
    """

    passing: int
    of: int | None = None

    @classmethod
    def parse(cls, text: str) -> MinPasses:
        """Read `M` or `M/N`, with 1 <= M <= N."""
        found = _PASSES.fullmatch(text)
        if found is None:
            raise InputError(f"passes {text!r}: expected M or M/N, such as 3 or 3/5")
        passing, of = int(found[1]), None if found[2] is None else int(found[2])
        if passing < 1 or (of is not None and of < passing):
            raise InputError(f"passes {text!r}: expected at least 1, and no more passes than candidates")
        return cls(passing, of)

    def __str__(self) -> str:
        share = f"{self.passing}" if self.of is None else f"{self.passing} of {self.of}"
        return f"at least {share} {'pass' if self.passing == 1 and self.of is None else 'passes'}"


@dataclass(frozen=True, kw_only=True)
class CheckSubject:
    """What a run holds that something can be required of.

    cases          a row a case: id, group, type, score (null where nothing was verified), passed
    group_weights  group -> the weight of its score
    decide         what a policy says of the run; of None: what its own says
    verdict        the rule by which a case passes, such as "majority >= 1"
    result         the candidate sets and their numbers, cases in the same order; None where there are no candidates
    failure        what broke where the harness did
    stopped        why outputs are missing that the run should have made
    """

    name: str
    task: str
    cases: pl.DataFrame
    group_weights: Mapping[str, float]
    decide: Callable[[PassPolicy | None], Decision]
    options: GradingConfig
    verdict: str | None = None
    result: ScoredResult | None = None
    failure: str | None = None
    stopped: str | None = None

    def __post_init__(self) -> None:
        if self.result is not None and self.result.scored[0].sets.case_ids.to_list() != self.cases["id"].to_list():
            raise InputError(f"run {self.name}: its reports and its candidates are not of the same cases")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What is required. Nothing at all means the run's own policy."""

    policy: PassPolicy | None = None
    requirements: tuple[Requirement, ...] = ()
    each: tuple[str, ...] = ()
    alpha: float = 0.05
    max_cost: float | None = None
    passes: MinPasses | None = None
    allow_missing: bool = False
    strict: bool = False
    allow_double_dipping: bool = False
    fail_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.strict and self.allow_double_dipping:
            raise InputError("strict refuses double-dipping, and allow_double_dipping accepts it: give one of them")
        if self.each and not self.requirements:
            raise InputError("each says where a requirement must hold: give a requirement too")
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha {self.alpha:g}: expected a number between 0 and 1")
        if self.max_cost is not None and not self.max_cost >= 0:
            raise InputError(f"cost {self.max_cost:g}: expected a number of 0 or more")
        for code in self.fail_on:
            warning_kind(code)


def run_checks(subject: CheckSubject, options: CheckOptions, baseline: CheckSubject | None = None) -> list[Check]:
    """Every requirement in the order asked for; last, where something is missing, whether the run is complete."""
    requested = bool(options.requirements) or options.max_cost is not None or options.passes is not None
    # with no requirement at all the run's own policy decides
    by_policy = options.policy is not None or not (requested or baseline is not None)
    checks = []
    if by_policy:
        said = subject.decide(options.policy)
        reason = said.reason.removeprefix(f"{said.policy}: ")
        own = {"policy": said.policy}
        checks.append(Check(name=said.policy, kind="policy", passed=said.passed, found=reason, numbers=own))
    for requirement in options.requirements:
        checks += requirement_checks(subject, requirement, options.each)
    if baseline is not None:
        checks += baseline_checks(subject, baseline, options.requirements, options.alpha)
    if options.passes is not None:
        checks.append(passes_check(subject, options.passes))
    if options.max_cost is not None:
        checks.append(cost_check(subject, options.max_cost))
    dipped = double_dipped(
        subject, _names_required(subject, options, by_policy=by_policy, against=baseline is not None)
    )
    if dipped and not options.strict and not options.allow_double_dipping:
        found = "; ".join([*map(str, dipped), "--allow-double-dipping lets it pass"])
        checks.append(Check(name="no double-dipped number", kind="double-dipping", passed=False, found=found))
    if options.strict:
        twice = dipped if subject.result is None else (*dipped, *subject.result.double_dipping)
        reason = str(twice[0]) if twice else "nothing picks and grades at once"
        name = "selector and evaluator are apart"
        checks.append(Check(name=name, kind="apart", passed=not twice, found=reason))
    for code in dict.fromkeys(options.fail_on):
        coded = () if subject.result is None else with_code(subject.result.warnings, code)
        reason, own = "; ".join(map(str, coded)) or "there is none", {"code": code}
        checks.append(Check(name=f"no warning {code}", kind="warning", passed=not coded, found=reason, numbers=own))
    # a policy fails by itself where the harness failed
    if subject.failure is not None and not by_policy:
        checks.append(Check(name="harness", kind="complete", passed=False, found=f"it failed: {subject.failure}"))
    incomplete = complete_check(subject, allowed=options.allow_missing)
    return checks if incomplete is None else [*checks, incomplete]


def check_warnings(subject: CheckSubject, options: CheckOptions, *, against: bool = False) -> tuple[CodedWarning, ...]:
    """The double-dipping of the numbers that are checked (`against` a baseline too), then that of the run's others."""
    by_policy = options.policy is not None or not (options.requirements or against)
    named = double_dipped(subject, _names_required(subject, options, by_policy=by_policy, against=against))
    every = () if subject.result is None else subject.result.double_dipping
    # one entry per number and metric: the run's own warning may be worded for a result of several metrics
    return tuple({(w.values["picks"], w.values["metric"]): w for w in (*every, *named)}.values())


def _names_required(subject: CheckSubject, options: CheckOptions, *, by_policy: bool, against: bool) -> list[str]:
    """The numbers that decide: those required, and where a policy or a baseline looks at it, that of the verdict."""
    names = [rule.name for rule in options.requirements]
    verdict = by_policy or (against and not options.requirements)
    return [*names, *(rule.name for rule in _verdict_rules(subject))] if verdict else names


def double_dipped(subject: CheckSubject, names: Sequence[str]) -> tuple[CodedWarning, ...]:
    """Of these numbers those that are picked and graded by the same judge or score."""
    result, found = subject.result, []
    if result is None:
        return ()
    for name in names:
        if name in CASE_MEASURES or judge_measure(subject, name) is not None:
            continue
        scored, spec = _metric_and_spec(result, name)
        try:
            rule = aggregator(spec)
        except InputError:  # a function of the user's own, which `find_measure` takes or refuses
            continue
        if "selectors" not in rule.needs:
            continue
        by = getattr(rule, "by", "") or next(iter(scored.sets.selectors), "")
        if (fault := find_double_dipping(scored, by, result.judges)) is not None:
            found.append(CodedWarning.of(DOUBLE_DIPPING, picks=rule.name, **fault))
    return tuple(dict.fromkeys(found))


def judge_measure(subject: CheckSubject, name: str) -> Estimate | None:
    """A rate that `kofn calibrate --save` keeps: `corrected`, `judge.kappa`, `judge.sensitivity`, `judge.specificity`.

    METRIC:corrected names the judge where several are calibrated. None where the name is another number's; its `n` are
    labels.
    """
    metric, colon, rate = name.rpartition(":")
    key = rate.removeprefix("judge.")
    if rate != CORRECTED and not (rate.startswith("judge.") and key in JUDGE_RATES):
        return None
    judges = {} if subject.result is None else subject.result.judges
    calibrated = {of: judge["calibration"] for of, judge in judges.items() if judge.get("calibration")}
    if colon and metric not in judges:
        raise UnknownName("judge", metric, list(judges))
    if colon:
        calibrated = {of: entry for of, entry in calibrated.items() if of == metric}
    if not calibrated:
        raise InputError(
            f"requirement {name}: run {subject.name} has no calibrated judge: "
            f"kofn calibrate LABELS --apply {subject.name} --save keeps its rates"
        )
    if len(calibrated) > 1:
        known = " or ".join(f"{of}:{rate}" for of in calibrated)
        raise InputError(f"requirement {name}: {len(calibrated)} judges are calibrated: write {known}")
    ((of, entry),) = calibrated.items()
    found = entry.get(key)
    if found is None:
        raise InputError(f"requirement {name}: the calibration of {of} does not have it: calibrate and save again")
    return Estimate(
        metric=of,
        aggregator=rate,
        point=found["point"],
        low=found.get("low"),
        high=found.get("high"),
        level=found.get("level") or 0.95,
        n=entry["n_labels"],
        n_missing=0,
        method=found.get("method") or "",
    )


def _judge_check(requirement: Requirement, e: Estimate) -> Check:
    """A bound on a rate of a judge. Its numbers are of labels, not of cases."""
    found = requirement.describe(e).rpartition(", ")[0] + f", {format_count(e.n, 'label')}"
    names = ("metric", "aggregator", "point", "low", "high", "level", "method")
    numbers = {name: getattr(e, name) for name in names}
    rule = {"part": requirement.part, "operator": requirement.operator, "bound": requirement.bound}
    return Check(
        name=str(requirement),
        kind="require",
        passed=requirement.decide(e).passed,
        found=found,
        numbers={**rule, "value": getattr(e, requirement.part), **numbers, "n_labels": e.n},
    )


class Measure(NamedTuple):
    """A number that every case has one of, and how to take its mean as the run takes its own.

    `higher` says whether more is better; None where nobody can know (a spread, a count).
    """

    metric: str
    name: str
    values: Floats
    rate: bool
    higher: bool | None
    weights: Floats | None = None
    clusters: Ints | None = None
    interval: str = "auto"

    @property
    def title(self) -> str:
        return f"{self.metric}:{self.name}" if self.metric else self.name


def find_measure(subject: CheckSubject, name: str) -> Measure:
    """The number of this name: pass_rate, score, an aggregator, or METRIC:AGGREGATOR of one of the run's metrics."""
    if name in CASE_MEASURES:
        return _case_measure(subject, name)
    result = subject.result
    if result is None:
        hint = f"the run has no candidates, so there is only {' and '.join(CASE_MEASURES)}"
        raise UnknownName("number", name, list(CASE_MEASURES), hint)
    scored, spec = _metric_and_spec(result, name)
    if spec in CASE_MEASURES:
        raise InputError(f"{name}: {spec} is of whole cases: ask for it without a metric")
    rule: Aggregator | None = None
    try:
        rule = aggregator(spec)
    except InputError:  # one that only the run knows: a function of whoever made it
        if (scored.metric, spec) not in result.case_values:
            raise
    key = (scored.metric, spec if rule is None else rule.name)
    stored = result.case_values.get(key)
    rate = rule is not None and rule.bounded and (scored.sets.zero_one or not rule.of_values)
    made = apply_aggregator(rule, scored) if stored is None and rule is not None else stored
    return Measure(
        *key,
        values=np.asarray(made, dtype=np.float64),
        rate=rate,
        higher=None if rule is None else higher_is_better(rule.name, scored.sets.higher_is_better),
        weights=_case_numbers(subject, "weight"),
        clusters=_case_numbers(subject, "cluster"),
        interval=subject.options.interval,
    )


def _metric_and_spec(result: ScoredResult, name: str) -> tuple[Graded, str]:
    """METRIC:AGGREGATOR taken apart where METRIC is one of the run's; otherwise the run's first metric."""
    for one in result.scored:
        if one.metric and name.startswith(f"{one.metric}:"):
            return one, name.removeprefix(f"{one.metric}:").strip()
    prefix, colon, rest = name.partition(":")
    # "numeric:mean" names a metric that the run lacks, "module:function" an aggregator of the user's own
    rule = rest.partition("(")[0].partition("@")[0].partition("^")[0]
    if colon and "." not in prefix and "(" not in prefix and rule in {*known("aggregator"), "pass", "maj", "any"}:
        raise UnknownName("metric", prefix, [one.metric for one in result.scored if one.metric])
    return result.scored[0], name


def _case_numbers(subject: CheckSubject, role: str) -> Any:
    """The weight or the cluster of every case, as the run took them."""
    result = subject.result
    if result is None or result.table is None:
        return None
    name = result.understood.get(role)
    return case_numbers(result.table, name) if role == "weight" else case_codes(result.table, name)


def _case_measure(subject: CheckSubject, name: str) -> Measure:
    """Whether a case passes, or its score. A case of which nothing was verified does not pass and has no score.

    The mean of scores is the report's: each group's mean counts by the group's weight, w = weight / cases with a score.
    """
    cases, interval = subject.cases, subject.options.interval
    scores = np.array(cases["score"].cast(float).to_numpy(), dtype=np.float64)
    common: dict[str, Any] = {"rate": True, "higher": True, "clusters": _case_numbers(subject, "cluster")}
    if name == PASS_RATE:
        values = np.array(cases["passed"].cast(float).to_numpy(), dtype=np.float64)
        return Measure("", name, values, interval=interval, **common)
    weights = score_weights(cases["group"].to_list(), subject.group_weights, scores)
    return Measure("", name, scores, weights=weights, interval=suitable_interval(interval), **common)


def requirement_checks(subject: CheckSubject, requirement: Requirement, each: Sequence[str] = ()) -> list[Check]:
    """The requirement on all cases and, for every field of `each`, within each of its segments.

    Rates of a judge are known for all cases alone.
    """
    if (rate := judge_measure(subject, requirement.name)) is not None:
        return [_judge_check(requirement, rate)]
    found = find_measure(subject, requirement.name)
    estimates = [e for by in (None, *each) for e in _estimates(subject, found, by)]
    return [_requirement_check(requirement, found, e) for e in estimates]


def _estimates(subject: CheckSubject, found: Measure, by: str | None) -> list[Estimate]:
    """The estimates the run stored, where it did; else made in the same way."""
    stored = [] if subject.result is None or found.name in CASE_MEASURES else list(subject.result.estimates)
    own = {e.segment: e for e in stored if (e.metric, e.aggregator) == (found.metric, found.name)}
    how: dict[str, Any] = {"aggregator": found.name, **subject.options.drawing}
    how |= {name: getattr(found, name) for name in ("metric", "weights", "clusters", "interval", "rate")}
    names = [] if by is None else [f"{by}={name}" for name in segments_of(subject, by)]
    segments = [None] if by is None else sorted(set(names))
    # the stored numbers, so that a check says what the report says
    if all(name in own for name in segments):
        return [own[name] for name in segments]
    try:
        return [estimate(found.values, **how)] if by is None else segment_estimates(found.values, names, **how)
    except InputError as problem:  # an interval of the run's that is not for such values
        raise InputError(f"{found.name}: {problem}") from None


def segments_of(subject: CheckSubject, by: str) -> list[str | None]:
    """The segment of every case by a field: of the file, else the report's `group` or `type`."""
    table = None if subject.result is None else subject.result.table
    if table is not None:
        try:
            return list(segment_names(table, by))
        except UnknownName:
            if by not in REPORT_FIELDS:
                raise
    elif by not in REPORT_FIELDS:
        raise UnknownName("field", by, list(REPORT_FIELDS))
    return list(subject.cases[by].to_list())


def _requirement_check(requirement: Requirement, found: Measure, e: Estimate) -> Check:
    few = e.segment is not None and e.n + e.n_missing < SMALL_SEGMENT
    if found.rate and requirement.bound > 1:
        raise InputError(
            f"requirement {str(requirement)!r}: {found.name} goes from 0 to 1: write {requirement.bound:g}%"
        )
    return Check(
        name=str(requirement),
        kind="require",
        segment=e.segment,
        passed=requirement.decide(e).passed,
        found=requirement.describe(e) + (" (few cases)" if few else ""),
        numbers={
            "metric": found.metric,
            "aggregator": found.name,
            "part": requirement.part,
            "operator": requirement.operator,
            "bound": requirement.bound,
            "value": getattr(e, requirement.part),
            **{name: getattr(e, name) for name in ("point", "low", "high", "level", "n", "n_missing", "method")},
            "few_cases": few,
        },
    )


class _MeasurePair(NamedTuple):
    """One number of the run and of the baseline, which way is better, and what a line calls it."""

    new: Measure
    old: Measure
    higher: bool
    title: str


def baseline_checks(
    subject: CheckSubject, baseline: CheckSubject, requirements: Sequence[Requirement] = (), alpha: float = 0.05
) -> list[Check]:
    """No significant drop, case by case: for every number required, else for the run's verdict.

    A drop is a difference the wrong way whose two-sided permutation p, adjusted by Holm for all numbers looked at, is
    below alpha. Cases that only one run has, or has a value for, take no part.
    """
    if baseline.failure is not None:
        raise InputError(f"baseline {baseline.name}: its harness failed: {baseline.failure}")
    pairs = list(_pairs(subject, baseline, requirements))
    keys_new, keys_old = _pairing_keys(subject, baseline)
    if not set(keys_new) & set(keys_old):
        raise InputError(f"baseline {baseline.name}: has no case of {subject.name}: compare runs of the same cases")
    # most ids with other content: two data sets that number their cases alike
    tables = [None if one.result is None else one.result.table for one in (subject, baseline)]
    asked = [Questions((), {}) if table is None else questions_in(table) for table in tables]
    other, shared = count_changed_questions(*asked)
    if 2 * other > shared:
        raise InputError(
            f"baseline {baseline.name}: {other:,} of {shared:,} cases of the same id ask or expect something else: "
            "compare runs of the same cases"
        )
    compared = [_compare_pair(subject, pair, keys_new, keys_old) for pair in pairs]
    # only tests that were made count: an undefined difference has no p
    adjusted = iter(holm([c.p for c in compared if c.p is not None]))
    checks = []
    for pair, c in zip(pairs, compared, strict=True):
        p = None if c.p is None else next(adjusted)
        notes = _mismatch_notes(subject, baseline, pair.new)
        notes += [f"{other:,} cases ask or expect something else there"] if other else []
        worse = c.difference is not None and (c.difference < 0 if pair.higher else c.difference > 0)
        wins, losses = (c.wins, c.losses) if pair.higher else (c.losses, c.wins)
        # cases that took no part, and whether the rest could show a drop at all: n signs give p of at least 2^(1 - n)
        unmatched = len(c.only_a) + len(c.only_b)
        left_out = [f"{format_count(unmatched, 'case')} unmatched"] if unmatched else []
        left_out += [f"{c.n_missing:,} without a value in one of the runs"] if c.n_missing else []
        left_out += ["too few cases to find any drop"] if 0 < c.n < 64 and 2.0 ** (1 - c.n) >= alpha else []
        found = f"undefined against {baseline.name}: no case has a value in both"
        if c.a is not None and c.b is not None and c.difference is not None and p is not None:
            ends = "" if c.low is None or c.high is None else f" {format_signed_interval(c.low, c.high)}"
            over = f" (Holm over {len(pairs)})" if len(pairs) > 1 else ""
            found = (
                f"{c.a:.3f} in {baseline.name}, {c.b:.3f} here, difference {c.difference:+.3f}{ends}, "
                f"{format_p_in_text(p)}{over}, {wins:,} wins and {losses:,} losses in {c.n:,} cases"
            )
        own = {name: getattr(c, name) for name in ("difference", "low", "high", "level", "method", "p")}
        check = Check(
            name=f"no drop in {pair.title}",
            kind="baseline",
            passed=c.n > 0 and not (worse and p is not None and p < alpha),
            found="; ".join([found, *left_out, *notes]),
            numbers={
                "baseline": baseline.name,
                "metric": pair.new.metric,
                "aggregator": pair.new.name,
                "before": c.a,
                "after": c.b,
                **own,
                "p_adjusted": p,
                "alpha": alpha,
                "higher_is_better": pair.higher,
                "wins": wins,
                "ties": c.ties,
                "losses": losses,
                "n": c.n,
                "n_missing": c.n_missing,
                "n_only_here": len(c.only_b),
                "n_only_there": len(c.only_a),
                "notes": notes,
            },
        )
        checks.append(check)
    return checks


def _pairs(
    subject: CheckSubject, baseline: CheckSubject, requirements: Sequence[Requirement]
) -> Iterator[_MeasurePair]:
    several = subject.result is not None and len(subject.result.scored) > 1
    seen = set()
    own = [rule for rule in requirements if judge_measure(subject, rule.name) is None]
    for rule in own or _verdict_rules(subject):
        new = find_measure(subject, rule.name)
        if (new.metric, new.name) not in seen:
            seen.add((new.metric, new.name))
            higher = rule.wants_high if new.higher is None else new.higher
            yield _MeasurePair(new, _baseline_measure(baseline, new), higher, new.title if several else new.name)


def _verdict_rules(subject: CheckSubject) -> list[Requirement]:
    """What the run's verdict looks at, under every metric that has a say in it; without one, the pass rate."""
    if subject.result is None or subject.verdict is None:
        return [Requirement(name=PASS_RATE, bound=1.0)]
    rule = Requirement.of_verdict(subject.verdict)
    metrics = [one.metric for one in subject.result.scored if one.metric and not one.beside_labels]
    return [Requirement(name=f"{m}:{rule.name}", operator=rule.operator, bound=rule.bound) for m in metrics]


def _baseline_measure(baseline: CheckSubject, new: Measure) -> Measure:
    """The baseline's number of the same name under the same metric."""
    metrics = [] if baseline.result is None else [one.metric for one in baseline.result.scored]
    if new.name not in CASE_MEASURES and new.metric not in metrics:
        known = ", ".join(metrics) or "no candidates"
        raise InputError(f"baseline {baseline.name}: has no {new.title} (it has {known}): compare runs graded alike")
    try:
        return find_measure(baseline, new.title)
    except InputError as problem:
        raise InputError(f"baseline {baseline.name}: {problem}") from None


def _pairing_keys(a: CheckSubject, b: CheckSubject) -> tuple[list[str], list[str]]:
    """What cases are paired by: their id, with their group where one run has an id in several."""
    ids = [one.cases["id"].to_list() for one in (a, b)]
    if all(len(set(names)) == len(names) for names in ids):
        return ids[0], ids[1]
    groups = [one.cases["group"].to_list() for one in (a, b)]
    whole = [[f"{group}\0{name}" for group, name in zip(*both, strict=True)] for both in zip(groups, ids, strict=True)]
    return whole[0], whole[1]


def _compare_pair(subject: CheckSubject, pair: _MeasurePair, keys_new: list[str], keys_old: list[str]) -> Comparison:
    """The run against the baseline, by the run's clusters and weights. `compare` wants those of its first side."""
    new, options = pair.new, subject.options

    def there(column: Any) -> list[Any] | None:  # a case that is not shared takes no part
        return None if column is None else align_column(keys_old, keys_new, column.tolist(), 0)

    return compare(
        keys_old,
        pair.old.values,
        keys_new,
        new.values,
        clusters=there(new.clusters),
        weights=there(new.weights),
        interval=suitable_interval(options.interval, resampled=True),
        **options.drawing,
    )


def _mismatch_notes(subject: CheckSubject, baseline: CheckSubject, new: Measure) -> list[str]:
    """What makes the two runs less alike than a comparison would have them."""
    spans = [
        set() if one.result is None else set(one.result.scored[0].sets.sizes.tolist()) for one in (subject, baseline)
    ]
    sizes = [" to ".join(map(str, sorted({min(span), max(span)}))) if span else "1" for span in spans]
    notes = {
        f"another task there: {baseline.task}": subject.task != baseline.task,
        f"another verdict there: {baseline.verdict}": new.name in CASE_MEASURES and subject.verdict != baseline.verdict,
        f"sets of {sizes[1]} there, of {sizes[0]} here": sizes[0] != sizes[1],
    }
    return [note for note, holds in notes.items() if holds]


def passes_check(subject: CheckSubject, passes: MinPasses) -> Check:
    """Every Core case has enough passing candidates, under the first metric. No core cases: not met."""
    cases, result = subject.cases, subject.result
    largest = 1 if result is None else int(result.scored[0].sets.sizes.max())
    if max(passes.passing, passes.of or 0) > largest:
        raise InputError(f"{passes}: the largest set has {largest} {pluralize(largest, 'candidate')}; ask for no more")
    if result is not None:
        graded, passing = result.scored[0].sets.counts
    else:  # a case without candidates is one attempt
        graded = cases["score"].is_not_null().to_numpy().astype(np.int64)
        passing = cases["passed"].to_numpy().astype(np.int64)
    core = np.flatnonzero((cases["type"] == GroupType.CORE.value).to_numpy())
    too_few = (passing < passes.passing) | (graded < (passes.of or 0))
    if passes.of is not None:  # in larger sets the same share; by products, without rounding
        too_few |= passing * passes.of < passes.passing * graded
    short = core[too_few[core]]
    ids = cases["id"]
    failing = [{"id": ids[i], "passing": int(passing[i]), "graded": int(graded[i])} for i in short.tolist()]
    found = f"{len(core) - len(short):,} of {len(core):,} core cases" if len(core) else "no core cases"
    if failing:
        named = ", ".join(f"{f['id']} ({f['passing']} of {f['graded']})" for f in failing[:_NAMED])
        found += f"; short: {named}" + (f" and {len(failing) - _NAMED:,} more" if len(failing) > _NAMED else "")
    return Check(
        name=str(passes),
        kind="passes",
        passed=bool(len(core)) and not failing,
        found=found,
        numbers={
            "min_passing": passes.passing,
            "min_graded": passes.of,
            "n": len(core),
            "n_met": len(core) - len(short),
            "failing": failing,
        },
    )


def cost_check(subject: CheckSubject, most: float) -> Check:
    """The cost of all candidates together; those that have none are counted."""
    costs = None if subject.result is None else subject.result.scored[0].sets.costs
    if costs is None or bool(np.isnan(costs).all()):
        raise InputError(f"run {subject.name}: no candidate has a cost, so there is none to bound")
    total, without = float(np.nansum(costs)), int(np.isnan(costs).sum())
    rule = Requirement(name="cost", operator="<=", bound=most)
    note = f"; {without:,} without a cost" if without else ""
    return Check(
        name=str(rule),
        kind="cost",
        passed=rule.met_by(total),
        found=f"{total:,.6g} for {costs.size:,} candidates{note}",
        numbers={"total": total, "bound": most, "n": costs.size - without, "n_without": without},
    )


def complete_check(subject: CheckSubject, *, allowed: bool = False) -> Check | None:
    """Whether every output is there, every candidate graded and every case verified; None where it is so."""
    # ungraded under any metric with a say in the verdict: the verdict lacks a part
    scored = () if subject.result is None else subject.result.scored
    having = [one.sets.graded for one in scored if one.metric and not one.beside_labels]
    ungraded = int((~np.logical_and.reduce(having)).sum()) if having else 0
    unverified = subject.cases["score"].null_count()
    if not ungraded and not unverified and subject.stopped is None:
        return None
    parts = [f"the run was stopped: {subject.stopped}"] if subject.stopped is not None else []
    parts += [f"{format_count(ungraded, 'candidate')} not graded"] if ungraded else []
    parts += [f"{format_count(unverified, 'case')} unverified"] if unverified else []
    advice = "allowed" if allowed else "--allow-missing lets that pass"
    return Check(
        name="complete",
        kind="complete",
        passed=allowed,
        found=f"{', '.join(parts)}; {advice}",
        numbers={"n_ungraded": ungraded, "n_unverified": unverified, "allowed": allowed},
    )
