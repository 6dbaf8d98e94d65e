"""`kofn.judge` and `kofn.calibrate`: a model grades outputs, and people say how far it can be trusted."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import orjson

from kofn import analysis, runs, scoring, stats
from kofn.api.options import CalibrateKeywords, JudgeKeywords, OptionError, call_limits, settle
from kofn.api.output_scores import score
from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.document import Displayable
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName
from kofn.judge import JudgeSettings, labels_on_run_scale, open_verdicts, prefer, read_labels
from kofn.judge import calibrate as calibrate_rows
from kofn.judge import judge as judge_outputs
from kofn.judge.calibration import CalibrationSettings
from kofn.judge.calibration_report import save_calibration
from kofn.runs.load import rows_of
from kofn.runs.record import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

    from kofn.core.candidate_sets import Floats
    from kofn.judge.calibration import Calibration
    from kofn.judge.judge_run import Preference
    from kofn.judge.labels import LabelRows, VerdictRows
    from kofn.scoring.grade import Graded


@dataclass(frozen=True, kw_only=True, repr=False)
class JudgedRun(Run):
    """A run as `kofn.judge` returns it. `metric` is the one that the judge gave."""

    metric: str

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "judge": self.scored_result.judges[self.metric]}


def judge(data: Any, **options: Unpack[JudgeKeywords]) -> JudgedRun | Preference:
    """Let a model grade outputs that are there: one metric more, and nothing is generated again.

    A run (its directory, or a loaded run that is stored) is judged in place. Other outputs (a file, rows, a frame, a
    result of `kofn.score`) become a new run: in the directory `out`, or without it in memory alone, of a file in
    runs/FILE-RUBRIC. `model` is a name, a model or a callable, or several as a panel. With `against` two systems are
    compared pair by pair, in both orders. Options are those of `kofn judge`.
    """
    asked = settle(JudgeKeywords, options)
    if asked.rubric is None:
        raise OptionError("--rubric says what the judge looks for: give it too")
    settings = judge_settings(asked)
    rubric = settings.rubric(asked.rubric)
    reading: dict[str, Any] = {"options": _options(asked), "fields": dict(asked.field)}
    stored = _is_stored(data)
    if asked.against is not None:
        names = ("rows", "rows") if stored or _is_stored(asked.against) else ("rows 1", "rows 2")
        with _as_path(data, names[0]) as source, _as_path(asked.against, names[1]) as other:
            out = asked.out or (None if stored else source.parent / "pairs")
            return prefer(source, other, rubric, settings, out=out, **reading)
    with _as_path(data, out=asked.out) as source:
        out = asked.out or (None if stored else source.parent / "run")
        if source.is_dir() and not stored:
            out = None  # the run that was made of a result is judged in place
        run = judge_outputs(source, rubric, settings, out=out, **reading)
        if asked.out is None and not stored:
            run = replace(runs.load_run(out or source), name=run.name, path=None)
    return JudgedRun(**vars(run), metric=settings.name or rubric.name)


def judge_settings(asked: SimpleNamespace) -> JudgeSettings:
    """How judges are asked."""
    own = ("repeats", "panel", "name", "choose", "replace", "temperature", "max_tokens", "seed", "prices", "cache",
           "retry_errors")  # fmt: skip
    if not asked.model:
        raise OptionError("--model names the judge: give it too")
    return JudgeSettings(
        models=asked.model,
        **{name: getattr(asked, name) for name in own},
        limits=call_limits(asked),
        progress=bool(asked.progress),
    )


def judge_options(options: JudgeKeywords) -> scoring.GradingConfig:
    """How what is judged is read and reported."""
    return _options(settle(JudgeKeywords, options))


def _options(asked: SimpleNamespace) -> scoring.GradingConfig:
    return scoring.GradingConfig(
        aggregate=asked.aggregate,
        by=asked.by,
        top_k=asked.top_k,
        use=asked.use,
        split=None if asked.split is None else scoring.Split.parse(asked.split),
        seed=asked.seed,
    )


def _is_stored(data: Any) -> bool:
    return isinstance(data, (str, Path)) or hasattr(data, "manifest")


@contextmanager
def _as_path(data: Any, name: str = "rows", out: Path | None = None) -> Iterator[Path]:
    """Where data is stored: its path, that of a loaded run, the run that is made of a result, or a file of rows.

    What is made is called `name` and gone afterwards; only the run of a result is kept where `out` says so.
    """
    if isinstance(data, (list, tuple)) and data and all(isinstance(one, (str, Path)) for one in data):
        if len(data) > 1:
            raise InputError(f"expected one run or file, not {len(data)}")
        data = data[0]
    if _is_stored(data):
        if not isinstance(data, (str, Path)) and data.path is None:
            raise InputError(f"{data.name}: this run is not stored: give its directory (out=DIR when it is made)")
        yield Path(data) if isinstance(data, (str, Path)) else data.path
        return
    with tempfile.TemporaryDirectory(prefix="kofn-") as folder:
        path = Path(folder) / name
        if isinstance(data, Displayable):
            path = out or path
            score(data, out=path)
        else:
            path = path.with_suffix(".jsonl")
            form = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
            path.write_bytes(b"".join(orjson.dumps(row, str, form) for row in rows_of(data)))
        try:
            yield path
        except InputError as problem:  # which names a file that only exists meanwhile
            if str(path) not in str(problem):
                raise
            raise InputError(str(problem).replace(str(path), name)) from None


# calibration


def calibrate(labels: Any = None, **options: Unpack[CalibrateKeywords]) -> Calibration:
    """Measure a judge against human labels, and correct the rates it measured.

    `labels` (a file, rows, a frame, or a list of files) has one row per case or candidate: id, human, judge, and
    optionally index, segment, cluster, weight, annotator. `apply` names the run or the outputs whose rate is corrected.
    Options are those of `kofn calibrate`; `known_rates` is (sensitivity, specificity).

    >>> labels = [{"id": f"q{i}", "human": i % 3 > 0, "judge": i % 4 > 0} for i in range(60)]
    >>> calibrate(labels).rates.agreement.point
    0.5833333333333334
    """
    asked = settle(CalibrateKeywords, options)
    known = _known_rates(asked.known_rates)
    if known is not None and asked.apply is None:
        raise OptionError("--known-rates correct a judged rate: give --apply RUN too")
    if labels is None and known is None:
        raise OptionError("give LABELS (or --known-rates S,T with --apply RUN)")
    if asked.apply is None and (asked.metric or asked.aggregate):
        raise OptionError("--metric and --aggregate are about a run: give --apply RUN too")
    settings = CalibrationSettings(method=asked.method, level=asked.level, seed=asked.seed, known=known, by=asked.by)
    stats.check_level(settings.level)
    if settings.method not in stats.corrected_rates.METHODS:
        raise UnknownName("method of correction", settings.method, list(stats.corrected_rates.METHODS))
    rows = None if labels is None else read_labels(labels, asked.threshold)
    _check_picks(rows, asked)
    judged = None if asked.apply is None else _verdicts_of(asked, scores=rows is not None and rows.scores)
    on_scale = None if rows is None else labels_on_run_scale(rows, judged)
    found = calibrate_rows(on_scale, judged, settings)
    if asked.save:
        _save(found, judged, labels, asked)
    if judged is None:
        return found
    of_sets = found.of == "set" and judged.aggregate is not None
    metric = f"{judged.aggregate} by {judged.metric}" if of_sets else judged.metric
    return replace(found, source={"name": judged.name, "metric": metric})


def _verdicts_of(asked: SimpleNamespace, *, scores: bool) -> VerdictRows:
    return open_verdicts(
        asked.apply,
        metric=asked.metric,
        aggregate=asked.aggregate,
        threshold=asked.threshold,
        scores=scores,
        selected=asked.selected,
        selector=asked.by_selector,
    )


def _save(found: Calibration, judged: VerdictRows | None, labels: Any, asked: SimpleNamespace) -> None:
    if judged is None:
        raise OptionError("--save keeps what --apply RUN corrects: give --apply too")
    if labels is not None and not isinstance(labels, (str, Path)):
        raise InputError("--save records the labels file, and takes exactly one: concatenate several files first")
    with _as_path(asked.apply) as directory:
        save_calibration(directory, found, judged, None if labels is None else Path(labels))


def _check_picks(rows: LabelRows | None, asked: SimpleNamespace) -> None:
    """Labels of what a selector picked say nothing of other candidates."""
    if asked.by_selector and not asked.selected:
        raise OptionError("--by-selector says whose picks are meant: give --selected too")
    if asked.apply is not None and rows is not None and "picked" in rows.fields and not asked.selected:
        raise OptionError("these labels are of what a selector picked (column `picked`): give --selected too")
    if asked.selected and asked.apply is None:
        raise OptionError("--selected corrects the rate of a selector's picks: give --apply RUN too")


def _known_rates(given: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        s, t = (float(part) for part in (given.split(",") if isinstance(given, str) else given))
    except (TypeError, ValueError):
        raise OptionError(f"--known-rates {given!r}: expected sensitivity,specificity, such as 0.9,0.8") from None
    if not (0 <= s <= 1 and 0 <= t <= 1):
        raise OptionError(f"--known-rates {given!r}: both lie between 0 and 1")
    return s, t


# labels of candidates, for curves and plans


def labelled_candidates(source: Any, scored: Graded, *, candidates: bool = True) -> analysis.JudgeErrors:
    """Verdicts of people and of the judge from a file, rows or a frame, as `kofn calibrate` takes them.

    Of a candidate that the metric graded its verdict counts, whatever the file says of the judge. Labels that are all
    of these candidates stand for those with the same verdict (weights N_v/n_v): they may have been drawn by verdict.
    Rows that are not labelled or not graded are left out. With `candidates` labels of whole cases are refused: they say
    nothing of how often the judge is right about one candidate.
    """
    rows = read_labels(source)
    name = source if isinstance(source, (str, Path)) else "labels"
    if rows.scores:
        raise InputError(f"{name}: scores, not verdicts: expected 0 and 1, or pass and fail")
    if candidates and not rows.of_candidates:
        raise InputError(f"{name}: one label a case: expected labels of candidates, with their place in `index`")
    human, theirs = rows.human_values, _verdicts(rows, scored)
    if rows.judge is None and rows.indices is None:
        raise InputError(f"{name}: no column `judge`, and no `index` to look its verdicts up with")
    said = np.full(len(rows), np.nan) if rows.judge is None else rows.judge
    judge = np.where(np.isnan(theirs), said, theirs)
    kept = ~np.isnan(human) & ~np.isnan(judge)
    if not kept.any():
        raise InputError(f"{name}: no row has a verdict of a person and one of the judge")
    inside = not bool(np.isnan(theirs[kept]).any())
    weights = None if rows.weights is None else rows.weights[kept]
    if inside and weights is None:
        weights = stats.weights_by_verdict(judge[kept], scored.sets.passes.astype(float))
    differ = int((np.isfinite(said) & np.isfinite(theirs) & (said != theirs)).sum())
    return analysis.JudgeErrors(
        human=human[kept],
        judge=judge[kept],
        cases=[name for name, there in zip(rows.ids, kept, strict=True) if there],
        weights=weights,
        notes=(CodedWarning.of("verdicts-differ", sheet=str(name), n=differ),) if differ else (),
    )


def _verdicts(rows: LabelRows, scored: Graded) -> Floats:
    """What the metric says of each labelled candidate, by case and place; NaN where it says nothing."""
    sets = scored.sets
    out = np.full(len(rows), np.nan)
    if rows.indices is None:
        return out
    place = {name: i for i, name in enumerate(sets.case_ids.to_list())}
    for row, (name, index) in enumerate(zip(rows.ids, rows.indices, strict=True)):
        i = place.get(name)
        if i is not None and 0 <= index < int(sets.sizes[i]):
            verdict = int(sets.passes[int(sets.offsets[i]) + index])
            out[row] = np.nan if verdict == NOT_GRADED else verdict
    return out
