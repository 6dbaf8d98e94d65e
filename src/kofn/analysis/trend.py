"""Follows the runs of each task over time, and notes what differs between them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from kofn.analysis.compare.differences import FEWEST_SHARED
from kofn.analysis.finding import Finding
from kofn.analysis.series import (
    TrendPoint,
    align_column,
    build_series,
    case_histories,
    count_changed_questions,
    most_flaky,
)
from kofn.core.document import Displayable
from kofn.core.format import (
    format_count,
    format_estimate,
    format_interval,
    format_number,
    format_p_in_text,
    format_signed,
)
from kofn.core.types import Estimate
from kofn.errors import InputError, UnknownName
from kofn.registry import aggregator, higher_is_better
from kofn.runs.index import SkippedRun, load_all, read_columns
from kofn.scoring.configuration import Requirement
from kofn.stats import estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.analysis.series import CaseHistory, Change, Series
    from kofn.runs.index import IndexColumn, StoredRun


FROM_REPORTS = ("pass_rate", "score")  # what every run has, with candidates or without


class TrendNumber(NamedTuple):
    """What is followed: an aggregator, under a metric where one is named."""

    aggregator: str
    metric: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTrend:
    """One number over the runs of a task. `notes` says of every run what is different from the one before."""

    name: str
    metric: str
    higher_is_better: bool | None
    series: Series
    notes: tuple[tuple[str, ...], ...]

    @property
    def level(self) -> float | None:
        """The level of the runs' intervals, where it is one."""
        levels = {p.estimate.level for p in self.series.points if p.estimate.low is not None}
        return levels.pop() if len(levels) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTrend:
    """The runs of one task, oldest first; of one model, where the runs of the task name several."""

    task: str
    runs: tuple[StoredRun, ...]
    metrics: tuple[MetricTrend, ...]
    cases: tuple[CaseHistory, ...]
    model: str | None = None

    @property
    def title(self) -> str:
        """The task, and the model where the task has a section for each."""
        return self.task if self.model is None else f"{self.task}, {self.model}"

    @property
    def headline(self) -> Finding:
        """The last run against the first on the first number that is followed, and what that would hide."""
        f = self.metrics[0]
        change = f.series.overall
        own = {"task": self.task, "model": self.model, "metric": f.metric, "aggregator": f.name}
        return Finding(
            text=f"{_trend_text(self.runs, f)}.",
            numbers={**own, "first_to_last": _change_dict(change, f, self.runs)},
        )

    @property
    def pass_rate(self) -> float | None:
        """The mean of the runs' pass rates."""
        return _mean([r.pass_rate for r in self.runs])

    @property
    def seconds(self) -> float | None:
        return _mean([r.seconds for r in self.runs])

    @property
    def cost(self) -> float | None:
        return _mean([r.cost for r in self.runs])

    @property
    def counts(self) -> dict[str, int]:
        """How many cases pass in all, some and none of the runs that verified them; and how many none did."""
        verified = [h for h in self.cases if h.runs]
        return {
            "n": len(self.cases),
            "pass_in_all": sum(h.passes == h.runs for h in verified),
            "pass_in_some": sum(0 < h.passes < h.runs for h in verified),
            "pass_in_none": sum(not h.passes for h in verified),
            "unverified": len(self.cases) - len(verified),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trend(Displayable):
    """Every task that was found, and what was left out."""

    view: ClassVar[str] = "kofn.render.trend_text:trend_document"
    printer: ClassVar[str] = "kofn.render.trend_text:format_trend"

    tasks: tuple[TaskTrend, ...]
    left_out: tuple[SkippedRun, ...]
    alpha: float

    @property
    def headline(self) -> Finding:
        """Those of the tasks."""
        found = [part.headline for part in self.tasks]
        titles = [f"{part.title}: " if len(found) > 1 else "" for part in self.tasks]
        text = " ".join(f"{title}{one}" for title, one in zip(titles, found, strict=True))
        return Finding(text=text, numbers={"tasks": [one.to_dict() for one in found]})

    def rows(self) -> list[dict[str, Any]]:
        """One row per run and number that is followed, with its difference from the run before."""
        return [
            {
                "task": part.task,
                "model": part.model,
                "aggregator": f.name,
                "metric": f.metric,
                **{key: value for key, value in row.items() if key not in ("change", "notes")},
                **{key: (row["change"] or {}).get(key) for key in ("against", "difference", "p")},
            }
            for part in self.tasks
            for f in part.metrics
            for row in (_run_dict(part.runs, f, i) for i in range(len(part.runs)))
        ]

    def to_dict(self) -> dict[str, Any]:
        """As `kofn trend --json` prints it."""
        return {
            "headline": self.headline.to_dict(),
            "alpha": self.alpha,
            "n_runs": sum(len(t.runs) for t in self.tasks),
            "tasks": [_task_dict(t) for t in self.tasks],
            "left_out": [one._asdict() for one in self.left_out],
        }


def load_trend(
    directories: Sequence[Path | str],
    *,
    task: str | None = None,
    aggregate: Sequence[str] = (),
    metric: str | None = None,
    alpha: float = 0.05,
    last: int | None = None,
) -> Trend:
    """Follow the runs in these directories; `last` keeps the newest so many of each task."""
    found, left_out = load_all([Path(d) for d in directories])
    tasks = sorted({r.task for r in found})
    if found and task is not None and task not in tasks:
        raise UnknownName("task", task, tasks)
    selected = [r for r in found if task in (None, r.task)]
    result = build_trend(selected, left_out, aggregate=aggregate, metric=metric, alpha=alpha, last=last)
    if not result.tasks:
        where, why = ", ".join(map(str, directories[:3])) + (", ..." if len(directories) > 3 else ""), result.left_out
        if not why:
            raise InputError(f"{where}: no run in it: expected run directories (kofn score ... --out DIR)")
        more = f" (and {len(why) - 1:,} more)" if len(why) > 1 else ""
        raise InputError(f"{where}: no run that can be read: {why[0].reason}{more}")
    return result


def build_trend(
    found: Sequence[StoredRun],
    left_out: Sequence[SkippedRun] = (),
    *,
    aggregate: Sequence[str] = (),
    metric: str | None = None,
    alpha: float = 0.05,
    last: int | None = None,
    read: Callable[[StoredRun, Sequence[IndexColumn]], StoredRun] = read_columns,
) -> Trend:
    """The same of runs that are loaded already; `read` gives a run with the columns that are followed."""
    # by the time a run was made: run.json tells it to the second; of one second the evaluation's own time decides
    ordered = sorted(found, key=lambda r: (r.when.replace(microsecond=0), r.evaluation.timestamp, r.name, str(r.path)))
    groups: dict[tuple[str, str | None], list[StoredRun]] = {}
    for run in ordered:
        groups.setdefault((run.task, models_of(run)), []).append(run)
    several = {task for task, _ in groups if len({model for t, model in groups if t == task}) > 1}
    kept = {key: groups[key][-last if last else 0 :] for key in sorted(groups, key=lambda key: (key[0], key[1] or ""))}
    _check_requested([r for runs in kept.values() for r in runs], aggregate, metric)
    parts, left = [], list(left_out)
    for (name, model), runs in kept.items():
        numbers = _numbers(runs, aggregate, metric)
        whole = []
        for run in runs:
            try:
                whole.append(read(run, [c for n in numbers if (c := _find_column(run, n))]))
            except InputError as problem:
                left.append(SkippedRun(str(run.path), str(problem)))
        if whole:
            named = _unique_names(whole)
            metrics = tuple(_metric_trend(named, n, alpha) for n in numbers)
            cases = tuple(case_histories([(r.cases, r.verdicts) for r in named]))
            own = (model or "no model named") if name in several else None
            parts.append(TaskTrend(task=name, runs=tuple(named), metrics=metrics, cases=cases, model=own))
    return Trend(tasks=tuple(parts), left_out=tuple(left), alpha=alpha)


def models_of(run: StoredRun) -> str | None:
    """The models that made a run, as run.json names them; None where it does not."""
    models = (run.manifest.get("generation") or {}).get("models") or {}
    return ", ".join(dict.fromkeys(map(str, models.values()))) or None


def _unique_names(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Runs whose directories are called alike go by their paths."""
    names = [r.name for r in runs]
    # counting is quadratic, so only where a name is there twice at all
    twice = {n for n in names if names.count(n) > 1} if len(set(names)) < len(names) else set()
    return [replace(r, name=str(r.path)) if r.name in twice else r for r in runs]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _check_requested(runs: Sequence[StoredRun], aggregate: Sequence[str], metric: str | None) -> None:
    """Refuse a name that no run has."""
    stored = [c for r in runs for c in r.columns]
    metrics = sorted({c.metric for c in stored} - {""})
    if runs and metric is not None and metric not in metrics:
        raise UnknownName("metric", metric, metrics, "" if metrics else "no run has candidates")
    known = [*FROM_REPORTS, *sorted({c.aggregator for c in stored})]
    for name in aggregate:
        if name in FROM_REPORTS and metric is not None:
            raise InputError(f"-a {name}: it is over all metrics of a run: leave --metric out")
        if runs and _canonical(name, known) not in known:
            raise UnknownName("aggregator", name, known, f"the runs have {', '.join(known)}")


def _canonical(name: str, known: Sequence[str]) -> str:
    """The name an aggregator is stored by: any@5 and pass_at(k=5) are pass@5."""
    if name in known or ":" in name:
        return name
    try:
        return aggregator(name).name
    except InputError:
        return name


def _numbers(runs: Sequence[StoredRun], aggregate: Sequence[str], metric: str | None) -> list[TrendNumber]:
    """What is asked for; else the verdict's aggregator where all runs have the same one, else the pass rate."""
    if aggregate:
        known = {*FROM_REPORTS, *(c.aggregator for r in runs for c in r.columns)}
        return [TrendNumber(name, metric) for name in dict.fromkeys(_canonical(a, list(known)) for a in aggregate)]
    # runs with different verdicts have no number in common but their pass rate
    verdicts = {_verdict_name(r) for r in runs}
    offered = [v for v in verdicts if v] if len(verdicts) == 1 else []
    if metric is not None or not any(r.evaluation.verdict or r.n_passed for r in runs):
        offered += [c.aggregator for c in runs[-1].columns]  # runs without labels pass nothing
    for name in offered:
        if all(r.column(name, metric) for r in runs):
            return [TrendNumber(name, metric)]
    return [TrendNumber("pass_rate")]


def _verdict_name(run: StoredRun) -> str | None:
    verdict = run.evaluation.verdict
    try:
        return None if verdict is None else Requirement.of_verdict(verdict).name
    except InputError:
        return verdict


def _find_column(run: StoredRun, number: TrendNumber) -> IndexColumn | None:
    return None if number.aggregator in FROM_REPORTS else run.column(*number)


def _metric_trend(runs: Sequence[StoredRun], number: TrendNumber, alpha: float) -> MetricTrend:
    found = build_series([_point(r, number) for r in runs], alpha=alpha)
    columns = [c for r in runs if (c := _find_column(r, number))]
    metric = columns[-1].metric if columns else ""
    layouts = [r.manifest["layout"] for r in runs if r.result]
    said = [m["higher_is_better"] for layout in layouts for m in layout["metrics"] if m["metric"] == metric]
    more_is_better = bool(said[-1]) if said else True  # as the newest run that has the metric says
    return MetricTrend(
        name=number.aggregator,
        metric=metric,
        higher_is_better=number.aggregator in FROM_REPORTS or higher_is_better(number.aggregator, more_is_better),
        series=found,
        notes=tuple(_notes(runs, i, found.changes[i], number) for i in range(len(runs))),
    )


def _point(run: StoredRun, number: TrendNumber) -> TrendPoint:
    """The number of every case of a run, with its estimate: the stored one, so that a trend shows what the run did."""
    name, column, stored = number.aggregator, _find_column(run, number), run.stored
    if column is not None and stored is not None:
        units: dict[str, Any] = {"clusters": stored.clusters, "weights": stored.weights}
        cases, values = stored.cases, stored.values[column.column]
        key, estimates = (column.metric, column.aggregator, None), run.manifest["result"]["estimates"]
        known = next((e for e in estimates if (e["metric"], e["aggregator"], e["segment"]) == key), None)
        found = Estimate(**known) if known else estimate(values, aggregator=name, **units)
    elif name in FROM_REPORTS:
        cases, values = run.cases, run.scores if name == "score" else run.passed.astype(np.float64)
        units = {"clusters": None, "weights": run.weights if name == "score" else None}
        if stored is not None and stored.clusters is not None:
            aligned = align_column(cases, stored.cases, stored.clusters.tolist(), None)
            units["clusters"] = np.array(aligned, dtype=object)
        found = estimate(values, aggregator=name, **units)
    else:
        # a run without the number keeps its place in the series
        cases, values, units = run.cases, np.full(len(run.cases), np.nan), {}
        found = estimate([], aggregator=name)
    return TrendPoint(name=run.name, cases=cases, values=values, estimate=found, **units)


def _notes(runs: Sequence[StoredRun], at: int, change: Change | None, number: TrendNumber) -> tuple[str, ...]:
    """What somebody should know of a run beside its value: what is different from the one it is compared with."""
    run, notes = runs[at], []
    if number.aggregator not in FROM_REPORTS and _find_column(run, number) is None:
        return (f"has no {number.aggregator}",)
    if number.aggregator in FROM_REPORTS and (n := int(np.isnan(run.scores).sum())):
        notes.append(f"{n:,} unverified")
    if change is None:
        return tuple(notes)
    before, found = runs[change.against], change.comparison
    if not found.n:
        notes.append("other cases")
    elif found.only_a or found.only_b:
        notes.append(f"{len(found.only_b):,} new cases, {len(found.only_a):,} gone")
    if said := _data_note(before, run):
        notes.append(said)
    old, new = _settings(before, number), _settings(run, number)
    notes += [f"other {k} ({old[k]} → {new[k]})" for k in new if k in old and old[k] != new[k]]
    return tuple(notes)


def _data_note(before: StoredRun, after: StoredRun) -> str:
    """What two runs were of: the same outputs, cases that ask or expect something else, other files.

    The files of `kofn score` hold the outputs, so they are others in every run; its data are the cases' inputs,
    references and choices. The files of other runs are their data.
    """
    digests = after.digests
    outputs = after.manifest.get("kind") == "score"
    if digests and None not in digests and digests == before.digests:
        return "the same file" if outputs else ""
    if not outputs and digests and before.digests:
        return "other data"
    if before.stored is None or after.stored is None:
        return ""
    n, _ = count_changed_questions(before.stored.questions, after.stored.questions)
    return f"other data ({n:,} cases ask or expect something else)" if n else ""


def _settings(run: StoredRun, number: TrendNumber) -> dict[str, str]:
    """What makes two values of the same cases comparable, as texts; what a run does not say is left out."""
    known: dict[str, Any] = {"task version": run.evaluation.problem_version}
    if number.aggregator in FROM_REPORTS:
        known["verdict"] = run.evaluation.verdict
    column = _find_column(run, number)
    if run.result is not None:
        understood, options = run.result["understood"], run.manifest["options"]
        known |= {
            "extractor": run.result["extraction"]["extractor"],
            "metric": column.metric if column else ", ".join(understood["metrics"]),
            "number of candidates": understood["set_size"] or "mixed",
            **{name: options.get(name) for name in ("threshold", "top_k")},
            **{name: understood[name] for name in ("weight", "cluster")},
        }
    texts = {k: "none" if v is None else str(v) for k, v in known.items()}
    return {k: text if len(text) <= 40 else text[:39] + "…" for k, text in texts.items()}


def _trend_text(runs: Sequence[StoredRun], f: MetricTrend) -> str:
    """The last run against the first, in one sentence."""
    known = [(run, p.estimate) for run, p in zip(runs, f.series.points, strict=True) if p.estimate.point is not None]
    change, spread, alpha = f.series.overall, f.series.spread, f.series.alpha
    if not known:
        return f"No run has a value of {f.name}"
    if change is None:
        run, e = known[-1]
        value = format_estimate(e.point, e.low, e.high)
        return f"{f.name} {value} in {run.name}, {format_count(e.n, 'case')}: one run, so nothing to compare"
    c, first, last = change.comparison, runs[change.against].name, known[-1][0].name
    if not c.n:
        return f"{first} and {last} share no case with a value of {f.name}"
    ends = "" if c.low is None else f" {format_interval(c.low, c.high)}"
    size = f"{format_number(c.a)} to {format_number(c.b)}, difference {format_signed(c.difference)}{ends}"
    size = f"{size}, {format_p_in_text(c.p)}, {format_count(c.n, 'case')}"
    if c.n < FEWEST_SHARED:
        return (
            f"Too few shared cases to tell ({c.n}, at least {FEWEST_SHARED} needed): {f.name} from {first} to {last}: "
            f"{size}"
        )
    words = [change_verdict(one, f.higher_is_better) for one in f.series.changes if one is not None and one.real]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    are = "is" if len(words) == 1 else "are"
    between = f"{format_count(len(words), 'change')} between consecutive runs {are} significant"
    if change.real:
        word = change_verdict(change, f.higher_is_better)
        against = [one for one in words if one != word]
        but = f"; but {between} ({counts})" if against else ""
        return f"{last} is {word} than {first} on {f.name}: {size}{but}"
    if words:
        return f"{f.name} from {first} to {last}: {size}: not significant; but {between} ({counts})"
    if spread is not None and spread.is_noise(alpha) is False:
        apart = f"sd {format_number(spread.sd)}, {format_p_in_text(spread.p)}"
        return (
            f"{f.name} from {first} to {last}: {size}: not significant; but the {spread.n} runs differ by more than "
            f"chance ({apart})"
        )
    return f"No significant change in {f.name} from {first} to {last}: {size}"


def change_verdict(change: Change, more_is_better: bool | None) -> str:
    """A change in a word or two: better, worse, higher, lower, noise; other cases or too few where none can be told."""
    if not change.comparison.n:
        return "other cases"
    if change.comparison.n < FEWEST_SHARED:
        return "too few cases"
    return change.comparison.word(more_is_better) if change.real else "noise"


def _task_dict(part: TaskTrend) -> dict[str, Any]:
    shaky = [{"case": h.case, "flips": h.flips, "passes": h.passes, "runs": h.runs} for h in most_flaky(part.cases)]
    return {
        "headline": part.headline.to_dict(),
        "task": part.task,
        "model": part.model,
        "n_runs": len(part.runs),
        "mean_pass_rate": part.pass_rate,
        "mean_seconds": part.seconds,
        "mean_cost": part.cost,
        "cases": {**part.counts, "flaky": shaky},
        "series": [_metric_dict(part, f) for f in part.metrics],
    }


_SPREAD = {"low": "min", "high": "max", "standard_error": "mean_standard_error"}  # field -> key of the documented JSON


def _metric_dict(part: TaskTrend, f: MetricTrend) -> dict[str, Any]:
    spread = None
    if (s := f.series.spread) is not None:
        spread = {**{_SPREAD.get(k, k): v for k, v in asdict(s).items()}, "is_noise": s.is_noise(f.series.alpha)}
    return {
        "aggregator": f.name,
        "metric": f.metric,
        "higher_is_better": f.higher_is_better,
        "runs": [_run_dict(part.runs, f, i) for i in range(len(part.runs))],
        "first_to_last": _change_dict(f.series.overall, f, part.runs),
        "spread": spread,
    }


def _run_dict(runs: Sequence[StoredRun], f: MetricTrend, at: int) -> dict[str, Any]:
    run, e = runs[at], f.series.points[at].estimate
    return {
        "run": run.name,
        "path": str(run.path),
        "when": run.when.isoformat(),
        **{name: getattr(e, name) for name in ("point", "low", "high", "level", "method", "n", "n_missing")},
        "passed": run.n_passed,
        "total": len(run.cases),
        "cost": run.cost,
        "seconds": run.seconds,
        "change": _change_dict(f.series.changes[at], f, runs),
        "notes": list(f.notes[at]),
    }


def _change_dict(change: Change | None, f: MetricTrend, runs: Sequence[StoredRun]) -> dict[str, Any] | None:
    if change is None:
        return None
    c = change.comparison
    return {
        "against": runs[change.against].name,
        **{name: getattr(c, name) for name in ("n", "difference", "low", "high", "level", "p")},
        "p_holm": change.p_holm,
        "real": change.real,
        "verdict": change_verdict(change, f.higher_is_better),
        **{name: getattr(c, name) for name in ("wins", "ties", "losses")},
    }
