"""`kofn.curve`, `plan`, `check` and `trend`: what stored runs and graded outputs say."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kofn import analysis, render, runs, scoring, stats
from kofn.api.judging import labelled_candidates
from kofn.api.options import CheckKeywords, CurveKeywords, OptionError, PlanKeywords, TrendKeywords, settle
from kofn.api.output_scores import score
from kofn.core.warnings import CodedWarning, with_code
from kofn.errors import InputError

if TYPE_CHECKING:
    from types import SimpleNamespace

    from kofn.analysis.checks import CheckReport
    from kofn.analysis.curve_report import BestOfReport
    from kofn.analysis.plan import Plan, PlanQuestion, UnitPrices
    from kofn.analysis.trend import Trend
    from kofn.runs.load import GradedCandidates
    from kofn.runs.record import Run
    from kofn.scoring.grade import Graded


# best of n


def curve(data: Any, **options: Unpack[CurveKeywords]) -> BestOfReport:
    """Best of n: what k candidates reach and cost, and how many to ask for.

    `data` is a run, a file, rows, a frame or a result of `kofn.score`; options are those of `kofn curve`.

    >>> rows = [{"id": f"q{i}", "reference": "4", "outputs": ["5", "4", "4"]} for i in range(9)]
    >>> [round(row.any, 3) for row in curve(rows).table.rows]
    [0.667, 1.0, 1.0]
    """
    asked = settle(CurveKeywords, options)
    if asked.sequential and asked.max_latency is None:
        raise OptionError("--sequential says how --max-latency is counted: give --max-latency too")
    bounds = analysis.SpendingBounds(
        gain=asked.min_gain_per_dollar, latency=asked.max_latency, budget=asked.budget, sequential=asked.sequential
    )
    stats.check_level(asked.level)
    stats.check_interval(asked.interval)
    graded = runs.load_graded(
        data,
        scoring.GradingConfig(
            by=asked.by,
            split=None if asked.split is None else scoring.Split.parse(asked.split),
            interval=asked.interval,
            level=asked.level,
            seed=asked.seed,
            use=asked.use,
        ),
    )
    scored = graded.metric(asked.metric)
    if asked.threshold is not None:
        scored = replace(scored, sets=scored.sets.passing_from(asked.threshold))
    found = analysis.best_of_report(
        graded.name,
        scored,
        graded.table,
        graded.options,
        _best_of_options(graded, scored, asked),
        bounds,
        judges=graded.result.judges,
        units=graded.units(),
    )
    carried = with_code(graded.result.warnings, "no-threshold") if asked.threshold is None else ()
    return replace(found, warnings=(*found.warnings, *carried)).with_checklist(
        graded.result.checklist, graded.options.use
    )


def _best_of_options(graded: GradedCandidates, scored: Graded, asked: SimpleNamespace) -> analysis.BestOfOptions:
    if asked.cost_per_candidate is not None and not 0 < asked.cost_per_candidate < inf:
        raise InputError(f"--cost-per-candidate {asked.cost_per_candidate:g}: expected a number above 0")
    selector = analysis.only_selector(scored) if asked.selector is None else analysis.load_selector(asked.selector)
    measure = asked.measure or analysis.default_measure(graded.options)
    if asked.measure is None and measure == "selected" and selector is None:
        measure = "any"
    return analysis.BestOfOptions(
        measure=measure,
        selector=selector,
        extend=asked.extend,
        cost=asked.cost_per_candidate,
        labels=None if asked.labels is None else labelled_candidates(asked.labels, scored),
    )


# checks


def check(data: Any, **options: Unpack[CheckKeywords]) -> CheckReport:
    """Check a run against requirements; `passed` of the report says whether all are met.

    `data` is a run directory or a loaded run; outputs that are no run yet (a file, rows, a frame) are scored first.
    Options are those of `kofn check`. The outcome is recorded in the directory of a stored run and shown in its report.

    >>> rows = [{"id": f"q{i}", "reference": "4", "outputs": ["5", "4"]} for i in range(9)]
    >>> print(check(rows, require="any_pass >= 0.8"))
    1 of 1 requirement passed: any_pass >= 0.8: 1.000 [0.701, 1.000], 9 cases
    ✓ any_pass >= 0.8: 1.000 [0.701, 1.000], 9 cases
    """
    asked = settle(CheckKeywords, options)
    if asked.each and not asked.require:
        raise OptionError("--each says where --require must hold: give --require too")
    wanted = analysis.CheckOptions(
        policy=None if asked.policy is None else scoring.PassPolicy(asked.policy),
        requirements=tuple(scoring.Requirement.parse(text) for text in asked.require),
        each=asked.each,
        alpha=asked.alpha,
        max_cost=asked.max_cost,
        passes=None if asked.min_passes is None else analysis.MinPasses.parse(asked.min_passes),
        allow_missing=asked.allow_missing,
        strict=asked.strict,
        allow_double_dipping=asked.allow_double_dipping,
        fail_on=asked.fail_on,
    )
    if asked.baseline is None and "alpha" in asked.given:
        raise OptionError("--alpha says when a drop against --baseline is significant: give --baseline too")
    for path in (asked.junit, asked.summary):
        if path is not None:
            runs.check_writable(Path(path))
    run = as_run(data)
    against = None if asked.baseline is None else subject_of(as_run(asked.baseline))
    if asked.junit_cases and asked.junit is None:
        raise OptionError("--junit-cases adds cases to the file of --junit: give --junit too")
    subject = subject_of(run)
    checks = analysis.run_checks(subject, wanted, against)
    warnings = analysis.check_warnings(subject, wanted, against=against is not None)
    report = analysis.CheckReport(run=run.name, checks=tuple(checks), warnings=warnings)
    if asked.junit is not None:
        render.write_junit(asked.junit, run, checks, cases=asked.junit_cases)
    if asked.summary is not None:
        render.append_summary(asked.summary, run, report)
    # a run that cannot be written to is checked all the same
    problem = None if run.path is None else render.record_checks(run, report)
    if problem is not None and asked.on_note is not None:
        asked.on_note(problem)
    return report


def as_run(data: Any) -> Run:
    """A loaded run. Of a directory the stored run; of other outputs the run that `kofn.score` would write."""
    if hasattr(data, "manifest"):
        run: Run = data
        return run
    if isinstance(data, (str, Path)) and (Path(data).is_dir() or not Path(data).exists()):
        return runs.load_run(data)
    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        name = Path(data).name.partition(".")[0] if isinstance(data, (str, Path)) else "rows"
        score(data, out=Path(folder) / name)
        return replace(runs.load_run(Path(folder) / name), path=None)


def subject_of(run: Run) -> analysis.CheckSubject:
    """What of a run can be checked."""
    evaluation = run.evaluation
    return analysis.CheckSubject(
        name=run.name,
        task=run.task,
        cases=runs.case_scores(run.reports),
        group_weights={name: group.weight for name, group in evaluation.group_outcomes.items()},
        decide=evaluation.decide,
        options=run.options,
        verdict=evaluation.verdict,
        result=run.result,
        failure=evaluation.infrastructure_failure,
        stopped=made.stopped if (made := runs.generation_of(run.manifest)) is not None else None,
    )


# plans


def plan(data: Any = None, **options: Unpack[PlanKeywords]) -> Plan:
    """How many cases and repeats a question needs: from a pilot (`data`), or from variances that are given.

    The pilot is a run, a file, rows, a frame or a result of `kofn.score`; options are those of `kofn plan`.

    >>> plan(p=0.5, width=0.1).cheapest.cases
    385
    """
    asked = settle(PlanKeywords, options)
    question = analysis.PlanQuestion(
        width=asked.width, difference=asked.difference, power=asked.power, level=asked.level
    )
    _check_given(data, asked)
    pilot, notes = (None, ()) if data is None else _pilot(data, asked.metric)
    variances = _variances(pilot, asked, question)
    candidate = asked.cost_per_candidate
    if candidate is None and pilot is not None:
        candidate = analysis.candidate_cost(pilot.sets)
    prices = analysis.UnitPrices(case=asked.cost_per_case, candidate=candidate, label=asked.cost_per_label)
    if asked.labels is not None and pilot is not None:
        found = _with_labels(pilot, asked.labels, question, prices)
    else:
        systems = 1 if asked.difference is None else 2
        found = analysis.make_plan(question, variances, prices, systems=systems, most_cases=asked.max_cases)
    return replace(found, notes=(*found.notes, *notes))


def _check_given(data: Any, asked: SimpleNamespace) -> None:
    """Options that belong together, or exclude each other."""
    if sum((data is not None, asked.p is not None, asked.between is not None)) != 1:
        raise OptionError("plan from a pilot (RUN or FILE), from --p, or from --between and --within: give one")
    if asked.within is not None and asked.between is None:
        raise OptionError("--within goes with --between")
    for name in ("against", "labels"):
        if getattr(asked, name) is not None and data is None:
            raise OptionError(f"--{name} goes with a pilot: give RUN or FILE too")
    if asked.against is not None and asked.difference is None:
        raise OptionError("--against is for a difference: give --difference too")
    if asked.correlation and (asked.difference is None or asked.against is not None or asked.between is not None):
        raise OptionError("--correlation goes with --difference and a single pilot or --p")


def _pilot(data: Any, metric: str | None) -> tuple[Graded, tuple[CodedWarning, ...]]:
    """The pilot's graded candidates, and what of it a plan does not use."""
    graded = runs.load_graded(data)
    units = graded.units()
    notes = []
    if units["clusters"] is not None:
        notes.append(CodedWarning.of("pilot-units", about="clusters"))
    if units["weights"] is not None:
        notes.append(CodedWarning.of("pilot-units", about="weights"))
    if graded.options.use == "list":
        notes.append(CodedWarning.of("pilot-units", about="lists"))
    return graded.metric(metric), tuple(notes)


def _variances(pilot: Graded | None, asked: SimpleNamespace, question: PlanQuestion) -> analysis.Variances:
    paired = question.difference is not None
    if asked.between is not None:
        if min(asked.between, asked.within or 0.0) < 0:
            raise InputError("--between and --within are variances: expected 0 or more")
        both = None if asked.within is None else asked.within * (2 if paired else 1)
        return analysis.Variances(between=asked.between, within=both)
    if pilot is None:
        one = analysis.share_variances(asked.p)
    elif asked.against is not None:
        return analysis.paired_variances(pilot.sets, _pilot(asked.against, asked.metric or pilot.metric)[0].sets)
    else:
        one = analysis.pilot_variances(pilot.sets)
    return analysis.alike_variances(one, asked.correlation) if paired else one


def _with_labels(pilot: Graded, labels: Any, question: PlanQuestion, prices: UnitPrices) -> Plan:
    """The pilot's values are a judge's verdicts; the labels say how often it is right."""
    import numpy as np

    from kofn.core.candidate_sets import NOT_GRADED

    errors = labelled_candidates(labels, pilot, candidates=False)
    passes = np.where(pilot.sets.passes == NOT_GRADED, np.nan, pilot.sets.passes).astype(np.float64)
    verdicts = analysis.pilot_variances(analysis.with_values(pilot.sets, passes))
    human = np.asarray(errors.human, dtype=float)
    rates = stats.corrected_curve.rates_of(human, errors.judge, errors.weights)
    found = analysis.plan_with_labels(question, verdicts, rates, len(human), prices)
    return replace(found, notes=(*found.notes, *errors.notes))


# trends


def trend(*directories: Path | str, **options: Unpack[TrendKeywords]) -> Trend:
    """Runs of the same task over time: every run is compared, case by case, with the one before it.

    Each of `directories` is a run directory or one that holds some, at any depth, or a loaded run that is stored
    somewhere. Options are those of `kofn trend`.
    """
    asked = settle(TrendKeywords, options)
    if not 0 < asked.alpha < 1:
        raise OptionError(f"--alpha {asked.alpha:g}: expected a number between 0 and 1")
    if not directories:
        raise OptionError("nothing to follow: give run directories, or one that holds some")
    places = [_place_of(one) for one in directories]
    return analysis.load_trend(
        places, task=asked.task, aggregate=asked.aggregate, metric=asked.metric, alpha=asked.alpha, last=asked.last
    )


def _place_of(one: Any) -> Path | str:
    """Where a run is stored."""
    if isinstance(one, (str, Path)):
        return one
    path: Path | None = getattr(one, "path", None)
    if path is None:
        raise InputError("a trend is of runs that are stored: give their directories (kofn score ... --out DIR)")
    return path
