"""A run or a file, judged: the candidates that are there get one metric more, and nothing is generated again."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.errors import InputError, UnknownName
from kofn.generate.calls import summed
from kofn.generate.limits import Limits
from kofn.judge.asking import ask
from kofn.judge.questions import questions_of
from kofn.judge.rubric import load_rubric
from kofn.judge.scores import column_of, panel_of, panel_rates, variance_of, verdict_lists
from kofn.judge.told import described, fingerprint_of, verdict_frame, warnings_of
from kofn.models.base import Sampling
from kofn.running.now import now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kofn.evaluate import Options, Result
    from kofn.generate.progress import Snapshot
    from kofn.generate.pulse import Pulse
    from kofn.generate.runner import Tally
    from kofn.judge.asking import Asked, Question
    from kofn.judge.rubric import Rubric
    from kofn.judge.scores import Column, Panel
    from kofn.models.base import Model
    from kofn.opened import Opened
    from kofn.report.run import Run
    from kofn.scoring import Scored

FOLDER = "judging"  # the store of verdicts, in the run's directory
VERDICTS = "verdicts.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How judges are asked. None is the rubric's, or the model's own."""

    models: tuple[Any, ...]
    repeats: int = 1
    panel: Panel = "mean"
    name: str | None = None
    choose: bool = False
    replace: bool = False
    temperature: float | None = None
    max_tokens: int | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    prices: Path | None = None
    cache: bool = False
    retry_errors: bool = False
    progress: bool = False

    def rubric(self, given: Any) -> Rubric:
        """The rubric, with the likeliest verdict instead of a reply where that was asked for."""
        found = load_rubric(given)
        return found.model_copy(update={"parse": "choose"}) if self.choose else found

    def sampling(self, rubric: Rubric) -> Sampling:
        """How a verdict is drawn."""
        heat = rubric.temperature if self.temperature is None else self.temperature
        return Sampling(temperature=heat, max_tokens=self.max_tokens or rubric.max_tokens)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What came of it: the result with its new metrics, what judges said one by one, and why it ended early if so."""

    result: Result
    verdicts: pl.DataFrame
    names: tuple[str, ...]
    stopped: str | None


def judge(
    source: Path | str,
    rubric: Any,
    settings: JudgeSettings,
    *,
    out: Path | None = None,
    options: Options | None = None,
    fields: Mapping[str, str] | None = None,
) -> Run:
    """Judge a run in place, or a file into a new run directory `out`; asking again pays only for what is new.

    The directory is held from before it is read until it is written: of two judges none loses what the other gave.
    """
    from kofn.evaluate import Options
    from kofn.generate.store import held

    wanted = settings.rubric(rubric)
    source = Path(source)
    if source.is_dir():
        _check_whole(source, out, options, fields)
    elif not source.exists():
        raise InputError(f"{source}: no such file or directory")
    directory = source if source.is_dir() else out or Path("runs") / f"{source.name.partition('.')[0]}-{wanted.name}"
    with held(directory):
        return _judged_in(directory, source, wanted, settings, options or Options(), fields)


def _judged_in(
    directory: Path,
    source: Path,
    wanted: Rubric,
    settings: JudgeSettings,
    options: Options,
    fields: Mapping[str, str] | None,
) -> Run:
    """The same in a directory that is held."""
    from kofn.report.files import update_run

    work = _judged
    if wanted.kind == "pairwise":
        from kofn.judge.pairs import tournament

        work = tournament
    what = _opened(directory if _is_run_of(directory, source) else source, options, fields)
    judged = work(what, wanted, settings, directory)
    run = what.run or _new_run(what, judged, directory)
    return update_run(
        run,
        judged.result,
        tables={VERDICTS: merged(directory / VERDICTS, judged, run.manifest["files"].get(VERDICTS))},
        manifest={"options": _plain(what.options, run)},
    )


def _check_whole(source: Path, out: Path | None, options: Options | None, fields: Mapping[str, str] | None) -> None:
    """A run is judged in place and as a whole: a part of it would be written over the rest."""
    if out is not None:
        raise InputError(f"{source}: a run is judged in place: leave out --out")
    given = {"--split": options and options.split, "--top-k": options and options.top_k, "--field": fields}
    for name, value in given.items():
        if value:
            raise InputError(
                f"{source}: a run is judged as a whole: leave out {name}, or judge the file it was made of"
            )


def _is_run_of(directory: Path, source: Path) -> bool:
    """Whether there is a run to judge: the source itself, or one that an earlier judging made of the same file."""
    from kofn.report.files import MANIFEST, check_new, digest, read_json
    from kofn.report.staging import settle

    if directory == source:
        return True
    settle(directory)
    if (directory / MANIFEST).is_file() and source.is_file():
        made_of = [one.get("sha256") for one in read_json(directory / MANIFEST).get("sources", [])]
        if made_of == [digest(source)]:
            return True
    if (directory / MANIFEST).exists() or not (directory / FOLDER).is_dir():  # else an earlier start began it
        check_new(directory)
    return False


def _new_run(what: Opened, judged: Judged, directory: Path) -> Run:
    """The run of a file, as kofn score would write it; where nothing else grades, the judge does."""
    from kofn.report.convert import Plan
    from kofn.report.files import write_run

    first = what.result if what.result.scored[0].metric else judged.result
    plan = Plan(task=what.name, name=directory.resolve().name)
    run = write_run(first, directory, sources=[what.path], options=_plain(what.options, None), plan=plan)
    return replace(run, path=directory)


def _plain(options: Options, run: Run | None) -> dict[str, Any]:
    """Options as run.json keeps them: those the run has, with what was asked for now."""
    from dataclasses import asdict

    told = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items() if k != "engine"}
    before = {} if run is None else run.manifest["options"]
    return {**told, **before, **{k: told[k] for k in ("aggregate", "by", "use")}}


def _opened(source: Path, options: Options, fields: Mapping[str, str] | None) -> Opened:
    """What is judged. Aggregators may need the judge's own scores, so they are asked for once these are there."""
    from kofn.opened import opened

    what = opened(source, replace(options, aggregate=()), fields=fields)
    asked = options.aggregate or pinned(what.options.aggregate, list(what.result.scored[0].sets.selectors))
    return replace(what, options=replace(what.options, aggregate=asked))


def pinned(aggregate: Sequence[Any], selectors: Sequence[str]) -> tuple[Any, ...]:
    """Aggregators that pick by the only selector there is, with its name: soon there may be another.

    >>> pinned(["mean", "selected", "weighted_vote(scale='exp')"], ["reward"])
    ('mean', "selected(by='reward')", "weighted_vote(by='reward', scale='exp')")
    """
    from kofn.registry import aggregator

    rules: list[Any] = [aggregator(spec) for spec in aggregate]
    return tuple(
        replace(rule, by=selectors[0]).name
        if len(selectors) == 1 and "selectors" in rule.needs and getattr(rule, "by", None) == ""
        else spec
        for spec, rule in zip(aggregate, rules, strict=True)
    )


def check_aggregators(what: Opened, names: Sequence[str]) -> None:
    """Refuse, before anything is asked, an aggregator that nobody knows, that no set is large enough for, or that could
    pick by several selectors or by none there is.
    """
    from kofn.registry import aggregator

    sets = what.result.scored[0].sets
    there = list(dict.fromkeys([*sets.selectors, *names]))
    largest = int(sets.sizes.max()) if len(sets) else 0
    for rule in map(aggregator, what.options.aggregate):
        by, k = getattr(rule, "by", None), getattr(rule, "k", None)
        if isinstance(k, int) and k > largest:
            raise InputError(f"{rule.name} is undefined: the largest set has {largest} candidates")
        if "selectors" in rule.needs and by and by not in there:
            raise UnknownName("selector", by, there)
        if "selectors" in rule.needs and by == "" and len(there) > 1:
            raise InputError(f"{rule.name}: several selectors: name one, such as {rule.label}(by={there[-1]!r})")


def merged(path: Path, judged: Judged, sha256: str | None = None) -> pl.DataFrame:
    """The verdicts of a run with those of other judges that it had before."""
    if not path.exists():
        return judged.verdicts
    from kofn.report.files import changed, read_compared

    before, _, same = read_compared(path, judged.verdicts.schema, sha256=sha256)
    if not same:
        raise changed(path)
    return pl.concat([before.filter(~pl.col("metric").is_in(judged.names)), judged.verdicts])


def _judged(what: Opened, rubric: Rubric, settings: JudgeSettings, directory: Path) -> Judged:
    """Ask every judge about every output, and make metrics of what they say."""
    table = what.table
    questions = questions_of(table, rubric, what.path)
    ids = [None if q is None else q.id for q in questions]
    unique = {q.id: q for q in questions if q is not None}
    name = settings.name or rubric.name
    check_name(name, what)
    models = open_judges(settings)
    labels = label_judges(name, models)
    check_aggregators(what, [*labels, name])
    check_replaced(what, name, fingerprint_of(rubric, settings, models), settings)
    asked = now(ask_all(models, unique, rubric, settings, directory))
    lists = {label: verdict_lists(one, ids) for label, one in zip(labels, asked, strict=True)}
    columns = [column_of(label, of, rubric) for label, of in lists.items()]
    if len(columns) > 1:
        columns.append(panel_of(name, columns, settings.panel, rubric.passing))
    told = {
        label: described(rubric, settings, [model], [one], column)
        for label, model, one, column in zip(labels, models, asked, columns, strict=False)
    }
    if len(models) > 1:
        told[name] = {
            **described(rubric, settings, models, asked, columns[-1]),
            "panel": {"how": settings.panel, **(panel_rates(columns[:-1]) or {})},
        }
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    told[name]["variance"] = variance_of(lists, owner, rubric)
    _keep_calibration(what, columns, told)
    result = with_columns(what, columns, told)
    result = result.with_told(warnings_of(what, unique, told, name, settings, rubric))
    return Judged(
        result=result,
        verdicts=verdict_frame(table, lists, rubric),
        names=tuple(told),
        stopped=next((one.stopped for one in asked if one.stopped), None),
    )


def check_replaced(what: Opened, name: str, fingerprint: str, settings: JudgeSettings) -> None:
    """A metric of another judge is not replaced by accident, nor is a calibration lost with it."""
    before = what.result.judges.get(name)
    if before is None or settings.replace or before["fingerprint"] == fingerprint:
        return
    by = ", ".join(before["models"])
    also = " and is calibrated" if before.get("calibrated") else ""
    raise InputError(
        f"{what.path}: {name} is there already, by {by} with another model, prompt or parameters{also}: "
        "give --name for one more metric, or --replace"
    )


def _keep_calibration(what: Opened, columns: Sequence[Column], told: dict[str, Any]) -> None:
    """The calibration of a judge whose verdicts are what they were."""
    values = {one.metric: one.sets.values for one in what.result.scored}
    for column in columns:
        before = what.result.judges.get(column.name, {})
        same = np.array_equal(values.get(column.name, np.empty(0)), column.values, equal_nan=True)
        if before.get("calibration") and before["fingerprint"] == told[column.name]["fingerprint"] and same:
            told[column.name] |= {"calibrated": True, "calibration": before["calibration"]}


def check_name(name: str, what: Opened) -> None:
    """A judge may be asked again under its name, and replaces what it gave; it may not replace another metric."""
    others = {one.metric for one in what.result.scored} - set(what.result.judges)
    if name in others | {"score", "pass"}:
        raise InputError(f"{what.path}: there is a metric {name} already: give the judge another --name")


def open_judges(settings: JudgeSettings) -> list[Model]:
    """The models, each once."""
    from kofn.models import open_model

    models = [open_model(spec) for spec in settings.models]
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"judge {name} is there twice: --repeats asks one judge several times")
    return models


def label_judges(name: str, models: Sequence[Model]) -> list[str]:
    """Metric names: the rubric's for one judge, with the model's behind it for several."""
    if len(models) == 1:
        return [name]
    short = [model.name.rpartition("/")[2].partition("@")[0] for model in models]
    if len(set(short)) < len(short):
        short = [f"{s}-{i + 1}" for i, s in enumerate(short)]
    return [f"{name}.{s}" for s in short]


async def ask_all(
    models: Sequence[Model],
    questions: Mapping[str, Question],
    rubric: Rubric,
    settings: JudgeSettings,
    directory: Path,
) -> list[Asked]:
    """Every judge, one after another; a budget is of all of them together."""
    from kofn.generate.prices import Prices
    from kofn.generate.runner import Tally
    from kofn.generate.store import Cache, Store
    from kofn.models.weights import cache_folder

    prices = Prices.load(settings.prices)
    unknown = [model.name for model in models if not prices.known(model.name)]
    if settings.limits.max_cost is not None and unknown:
        raise InputError(f"max_cost: no price is known for {unknown[0]}: give --prices FILE, or --max-tokens-total")
    found: list[Asked] = []
    tallies: list[Tally] = []
    with (
        Store.open(directory / FOLDER, fingerprint={}) as store,
        _told(directory / FOLDER, rubric, models, len(questions), settings.repeats, tallies) as pulse,
    ):
        if settings.retry_errors:
            store.forget_errors()
        cache = Cache.open(cache_folder() / "replies.sqlite") if settings.cache else None
        try:
            for model in models:
                limits = _left(settings.limits, tallies)
                tallies.append(Tally())
                async with _shown(tallies[-1], len(questions) * settings.repeats, settings):
                    asked = await ask(
                        questions,
                        rubric,
                        model,
                        store,
                        sampling=settings.sampling(rubric),
                        repeats=settings.repeats,
                        limits=limits,
                        seed=settings.seed,
                        price=prices.cost,
                        cache=cache,
                        tally=tallies[-1],
                    )
                found.append(asked)
                pulse.stop(next((one.stopped for one in found if one.stopped), None))
        finally:
            for model in models:
                await model.close()
            if cache is not None:
                cache.close()
    return found


def _told(
    folder: Path, rubric: Rubric, models: Sequence[Model], questions: int, repeats: int, tallies: Sequence[Tally]
) -> Pulse:
    """What is told of the judges to whoever looks from outside: of all of them together."""
    import time

    from kofn.generate.progress import snapshot_of
    from kofn.generate.pulse import Pulse

    began, cases = time.monotonic(), questions * len(models)

    def look() -> Snapshot:
        return snapshot_of(summed(tallies), cases, cases * repeats, time.monotonic() - began)

    return Pulse(folder, look, kind="judge", task=rubric.name, model=", ".join(model.name for model in models))


def _left(limits: Limits, tallies: Sequence[Tally]) -> Limits:
    """What earlier judges left of the budget; what was stored before this start is paid for."""
    spent, used = sum(t.cost for t in tallies), sum(t.tokens_in + t.tokens_out for t in tallies)
    return replace(
        limits,
        max_cost=None if limits.max_cost is None else max(0.0, limits.max_cost - spent),
        max_tokens_total=None if limits.max_tokens_total is None else max(0, limits.max_tokens_total - used),
    )


@asynccontextmanager
async def _shown(tally: Tally, total: int, settings: JudgeSettings) -> AsyncIterator[None]:
    """The progress line of one judge, where somebody looks at a terminal."""
    import asyncio
    import sys

    from kofn.generate.progress import Progress

    if not settings.progress or not sys.stderr.isatty():
        yield
        return
    with Progress(tally, total, total, stages=1) as progress:
        watching = asyncio.create_task(progress.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


def with_columns(
    what: Opened, columns: Sequence[Column], told: Mapping[str, Mapping[str, Any]], *, selector_only: bool = False
) -> Result:
    """The result with new metrics. A judge's score can pick, too, so it is also a selector, or only that."""
    from kofn.evaluate import result_of
    from kofn.opened import answers_of, with_stored
    from kofn.scoring import Scored

    result, table = what.result, what.table
    selectors = {c.name: c.values for c in columns}
    rows = table.candidates.with_columns(
        *(pl.Series(f"selector.{c.name}", c.values, nan_to_null=True) for c in columns),
        *(pl.Series(f"verdict.{c.name}", c.words, dtype=pl.String) for c in columns if any(c.words)),
    )
    rows = rows.with_columns(note=_note(rows))
    table = replace(table, candidates=rows)
    kept = [one for one in result.scored if one.metric and one.metric not in told]
    sets = result.scored[0].sets
    base = replace(sets, selectors={**sets.selectors, **selectors}, higher_is_better=True)
    scored: list[Scored] = [
        replace(one, sets=replace(one.sets, selectors={**one.sets.selectors, **selectors})) for one in kept
    ]
    order = [*columns[-1:], *columns[:-1]]  # the panel before its members
    scored += [
        Scored(
            metric=c.name,
            sets=replace(base, values=c.values, passes=c.passes),
            source=f"judge {told[c.name]['rubric']}",
        )
        for c in ([] if selector_only else order)
    ]
    scored = scored or [replace(result.scored[0], sets=base)]
    judges = {**{k: v for k, v in result.judges.items() if k not in told}, **told}
    before = [w for w in result.told if not w.startswith(tuple(f"{name}: " for name in told))]
    found = result_of(table, answers_of(result), scored, what.options, judges).with_told(before)
    others = replace(
        result,
        estimates=tuple(e for e in result.estimates if e.metric not in told),
        case_values={key: values for key, values in result.case_values.items() if key[0] not in told},
    )
    return found if what.run is None else with_stored(found, others, what.options)


def _note(rows: pl.DataFrame) -> pl.Series:
    """What every judge said of a candidate, for the page: each with its name where there are several."""
    names = [c.removeprefix("verdict.") for c in rows.columns if c.startswith("verdict.")]
    texts = [rows[f"verdict.{n}"].to_list() for n in names]
    joined = [
        "\n\n".join(f"{n}: {t}" for n, t in zip(names, said, strict=True) if t is not None) or None
        for said in zip(*texts, strict=True)
    ]
    return pl.Series("note", joined or [None] * rows.height, dtype=pl.String)
