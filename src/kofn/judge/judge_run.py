"""`kofn judge`: judges every candidate, and adds a judge's metric to a run, or to the candidates of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.sync import run_sync
from kofn.errors import InputError
from kofn.judge.client import questions_of
from kofn.judge.judge_calls import JUDGE_FOLDER, ask_judges, label_judges, open_judges
from kofn.judge.judge_metrics import (
    JudgeResult,
    check_aggregators,
    check_name,
    check_replaced,
    judge_entry,
    judge_fingerprint,
    judge_scores,
    judge_warnings,
    keep_calibration,
    name_only_selector,
    panel_entry,
    panel_scores,
    variance_entry,
    verdict_frame,
    verdict_lists,
    with_verdict_columns,
)
from kofn.judge.pairwise import tournament
from kofn.render.run_directory import update_run, write_run
from kofn.runs.files import (
    MANIFEST,
    check_new,
    checksum_mismatch,
    digest,
    lock_directory,
    read_json,
    read_parquet,
    recover,
)
from kofn.runs.load import load_graded
from kofn.scoring.configuration import GradingConfig, ReportConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.judge.judge_calls import JudgeSettings
    from kofn.judge.rubric import Rubric
    from kofn.runs.load import GradedCandidates
    from kofn.runs.record import Run


def judge_outputs(graded: GradedCandidates, rubric: Rubric, settings: JudgeSettings, directory: Path) -> JudgeResult:
    """Ask every judge about every output, and make metrics of their verdicts."""
    table = graded.table
    questions = questions_of(table, rubric, graded.path)
    ids = [None if q is None else q.id for q in questions]
    unique = {q.id: q for q in questions if q is not None}
    name = settings.name or rubric.name
    check_name(name, graded)
    models = open_judges(settings)
    labels = label_judges(name, models)
    check_aggregators(graded, [*labels, name])
    check_replaced(graded, name, judge_fingerprint(rubric, settings, models), settings)
    replies = run_sync(ask_judges(models, unique, rubric, settings, directory))
    lists = {label: verdict_lists(one, ids) for label, one in zip(labels, replies, strict=True)}
    columns = [judge_scores(label, of, rubric) for label, of in lists.items()]
    if len(columns) > 1:
        columns.append(panel_scores(name, columns, settings.panel, rubric.passing))
    entries = {
        label: judge_entry(rubric, settings, [model], [one], column)
        for label, model, one, column in zip(labels, models, replies, columns, strict=False)
    }
    if len(models) > 1:
        entries[name] = {
            **judge_entry(rubric, settings, models, replies, columns[-1]),
            "panel": {"how": settings.panel, **(panel_entry(columns[:-1]) or {})},
        }
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    entries[name]["variance"] = variance_entry(lists, owner, rubric)
    keep_calibration(graded, columns, entries)
    result = with_verdict_columns(graded, columns, entries)
    result = result.with_warnings(judge_warnings(graded, unique, entries, name, settings, rubric))
    return JudgeResult(
        result=result,
        verdicts=verdict_frame(table, lists, rubric),
        names=tuple(entries),
        stopped=next((one.stopped for one in replies if one.stopped), None),
    )


VERDICTS = "verdicts.parquet"


def judge(
    source: Path | str,
    rubric: Any,
    settings: JudgeSettings,
    *,
    out: Path | None = None,
    options: GradingConfig | None = None,
    fields: Mapping[str, str] | None = None,
) -> Run:
    """Judge a run in place, or a file into a new run directory `out`; asking again pays only for what is new.

    The directory is locked from before it is read until it is written: of two judges none loses what the other gave.
    """
    loaded = settings.rubric(rubric)
    source = Path(source)
    if source.is_dir():
        _check_whole(source, out, options, fields)
    elif not source.exists():
        raise InputError(f"{source}: no such file or directory")
    directory = source if source.is_dir() else out or Path("runs") / f"{source.name.partition('.')[0]}-{loaded.name}"
    with lock_directory(directory):
        return _judge_in(directory, source, loaded, settings, options or GradingConfig(), fields)


def _judge_in(
    directory: Path,
    source: Path,
    rubric: Rubric,
    settings: JudgeSettings,
    options: GradingConfig,
    fields: Mapping[str, str] | None,
) -> Run:
    """The same in a directory that is locked."""
    judge_all = judge_outputs
    if rubric.kind == "pairwise":
        judge_all = tournament
    graded = _load(directory if _is_run_of(directory, source) else source, options, fields)
    judge_result = judge_all(graded, rubric, settings, directory)
    run = graded.run or _new_run(graded, judge_result, directory)
    return update_run(
        run,
        judge_result.result,
        tables={VERDICTS: merge_verdicts(directory / VERDICTS, judge_result, run.manifest["files"].get(VERDICTS))},
        manifest={"options": _manifest_options(graded.options, run)},
    )


def _check_whole(
    source: Path, out: Path | None, options: GradingConfig | None, fields: Mapping[str, str] | None
) -> None:
    """A run is judged in place and as a whole: a part of it would be written over the rest."""
    if out is not None:
        raise InputError(f"{source}: a run is judged in place: leave out --out")
    refused = {"--split": options and options.split, "--top-k": options and options.top_k, "--field": fields}
    for name, value in refused.items():
        if value:
            raise InputError(
                f"{source}: a run is judged as a whole: leave out {name}, or judge the file it was made of"
            )


def _is_run_of(directory: Path, source: Path) -> bool:
    """Whether there is a run to judge: the source itself, or one that an earlier judging made of the same file."""
    if directory == source:
        return True
    recover(directory)
    if (directory / MANIFEST).is_file() and source.is_file():
        source_digests = [one.get("sha256") for one in read_json(directory / MANIFEST).get("sources", [])]
        if source_digests == [digest(source)]:
            return True
    if (directory / MANIFEST).exists() or not (directory / JUDGE_FOLDER).is_dir():  # else an earlier start began it
        check_new(directory)
    return False


def _new_run(graded: GradedCandidates, judge_result: JudgeResult, directory: Path) -> Run:
    """The run of a file, as kofn score would write it; where nothing else grades, the judge does."""
    first = graded.result if graded.result.scored[0].metric else judge_result.result
    plan = ReportConfig(task=graded.name, name=directory.resolve().name)
    run = write_run(
        first, directory, sources=[graded.path], options=_manifest_options(graded.options, None), report=plan
    )
    return replace(run, path=directory)


def _manifest_options(options: GradingConfig, run: Run | None) -> dict[str, Any]:
    """Options as run.json keeps them: those the run has, with what was asked for now."""
    from dataclasses import asdict

    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items() if k != "engine"}
    before = {} if run is None else run.manifest["options"]  # how the run was graded stays on record
    return {**plain, **before, **{k: plain[k] for k in ("aggregate", "by", "use")}}


def _load(source: Path, options: GradingConfig, fields: Mapping[str, str] | None) -> GradedCandidates:
    """What is judged. Aggregators may need the judge's own scores, so they are asked for once these are there."""
    graded = load_graded(source, replace(options, aggregate=()), fields=fields)
    aggregate = options.aggregate or name_only_selector(
        graded.options.aggregate, list(graded.result.scored[0].sets.selectors)
    )
    return replace(graded, options=replace(graded.options, aggregate=aggregate))


def merge_verdicts(path: Path, judge_result: JudgeResult, sha256: str | None = None) -> pl.DataFrame:
    """The verdicts of a run with those of other judges that it had before."""
    if not path.exists():
        return judge_result.verdicts

    before, same = read_parquet(path, judge_result.verdicts.schema, sha256=sha256)
    if not same:
        raise checksum_mismatch(path)
    return pl.concat([before.filter(~pl.col("metric").is_in(judge_result.names)), judge_result.verdicts])
