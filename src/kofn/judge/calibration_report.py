"""A calibration as text, JSON, a document for notebooks, and an entry in run.json."""

from __future__ import annotations

from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from kofn.core.document import Document, Grid, grid_lines
from kofn.core.escape import escape_controls
from kofn.core.format import format_count, format_interval, format_level, format_number
from kofn.core.warnings import warnings_dict
from kofn.errors import InputError
from kofn.render.run_directory import update_run
from kofn.runs.files import digest, lock_directory
from kofn.runs.load import load_graded, reestimate
from kofn.runs.record import load_run
from kofn.stats import FEW_LABELS, PredictionPowered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kofn.core.types import Estimate
    from kofn.judge.calibration import Annotators, Calibration, ScoreCorrection
    from kofn.judge.labels import VerdictRows
    from kofn.runs.record import Run
    from kofn.stats import AnnotatorAgreement, Corrected, JudgeRates


MEANS = {
    "sensitivity": "share of human passes that the judge passes",
    "specificity": "share of human fails that the judge fails",
    "agreement": "share of labels on which both agree",
    "kappa": "agreement beyond chance",
}
MAX_PAIRS = 10  # of annotators, in a table
_WIDTH, _INDENTED = 110, "\n  "


def to_dict(calibration: Calibration) -> dict[str, Any]:
    """As `kofn calibrate --json` prints it."""
    rates = calibration.rates
    confusion = None
    if rates is not None:
        counts = {k: getattr(rates.confusion, k) for k in ("tp", "fp", "fn", "tn")}
        confusion = {k: int(v) if v == int(v) else v for k, v in counts.items()}
    scores = None
    if (s := calibration.scores) is not None:
        means = {name: _estimate(getattr(s, name)) for name in ("human", "judge", "difference")}
        scores = {**means, "correlation": s.correlation}
    bounds = ("point", "low", "high", "level", "method", "positions", "assumption")
    fields: dict[str, Any] = {
        "of": calibration.of,
        "n_rows": calibration.n_rows,
        "n_labels": calibration.n_labels,
        "n_unlabelled": calibration.n_unlabelled,
        "n_not_graded": calibration.n_not_graded,
        "annotators": None if calibration.annotators is None else _annotators_dict(calibration.annotators),
        "n_passing": None if rates is None else rates.n_passing,
        "n_failing": None if rates is None else rates.n_failing,
        "confusion": confusion,
        **{name: None if rates is None else _estimate(getattr(rates, name)) for name in MEANS},
        "scores": scores,
        "n_judged": calibration.n_judged,
        "n_judged_not_graded": calibration.n_judged_not_graded,
        "raw": _estimate(calibration.raw),
        "corrected": _corrected(calibration.corrected),
        "not_corrected_because": calibration.why,
        "raw_sets": _estimate(calibration.raw_sets),
        "corrected_sets": _fields_of(calibration.sets, bounds),
        "labels_to_halve": None
        if calibration.more is None
        else {"more": calibration.more.more, "reason": calibration.more.reason or None},
    }
    if calibration.segment is not None:
        return {"segment": calibration.segment, **fields}
    return {**fields, **warnings_dict(calibration.warnings), "segments": [to_dict(s) for s in calibration.segments]}


def _annotators_dict(annotators: Annotators) -> dict[str, Any]:
    """Who labelled how much, the agreement of all, and that of every pair where there are more than two."""

    def agreement(of: AnnotatorAgreement) -> dict[str, Any]:
        rates = {"agreement": _estimate(of.agreement), "kappa": _estimate(of.kappa)}
        return {"n": of.n, **rates, "statistic": of.statistic}

    pairs = [{"annotators": list(one.annotators), **agreement(one)} for one in annotators.pairs]
    together = agreement(annotators.together)
    return {"n_labels": dict(annotators.n_labels), "n_tied": annotators.n_tied, **together, "pairs": pairs}


def _fields_of(value: object | None, names: Sequence[str]) -> dict[str, Any] | None:
    return None if value is None else {name: getattr(value, name) for name in names}


def _estimate(e: Estimate | None) -> dict[str, Any] | None:
    return _fields_of(e, ("point", "low", "high", "level", "n", "method"))


def _corrected(c: Corrected | PredictionPowered | None) -> dict[str, Any] | None:
    if c is None:
        return None
    fields: dict[str, Any] = {"point": c.point, "low": c.low, "high": c.high, "level": c.level, "method": c.method}
    if isinstance(c, PredictionPowered):
        return {**fields, "clipped": False, "lambda": c.lam}
    names = ("clipped", "unclipped", "fits", "design", "sensitivity", "specificity")
    return {**fields, **{name: getattr(c, name) for name in names}}


def as_text(calibration: Calibration, style: Callable[[str, str], str] = lambda text, _: text) -> str:
    """A few lines: how many labels, the confusion, the rates, the corrected rate, segments, warnings."""
    parts = [[style(_headline(calibration), "strong")]] if calibration.n_rows else []
    if calibration.annotators is not None:
        parts.append(grid_lines(annotators_grid(calibration.annotators), style))
    if calibration.rates is not None and calibration.n_labels:
        parts += [grid_lines(_confusion(calibration.rates), style), grid_lines(_rates_grid(calibration.rates), style)]
    if calibration.scores is not None:
        parts.append(grid_lines(_scores_grid(calibration.scores), style))
    if calibration.raw is not None:
        grid = _corrections(calibration, calibration.source)
        parts.append([*grid_lines(grid, style), *_labels_words(calibration)])
    if calibration.segments:
        parts += [grid_lines(grid, style) for grid in _by_segment(calibration.segments)]
    if calibration.warnings:
        texts = [
            wrap(escape_controls(str(w)), _WIDTH - 2, break_long_words=False, break_on_hyphens=False)
            for w in calibration.warnings
        ]
        parts.append([f"{style('!', 'warn')} {_INDENTED.join(lines)}" for lines in texts])
    return "\n\n".join("\n".join(part) for part in parts)


def document(calibration: Calibration) -> Document:
    """The same for a notebook."""
    grids, notes = [], []
    if calibration.annotators is not None:
        grids.append(annotators_grid(calibration.annotators))
    if calibration.rates is not None and calibration.n_labels:
        grids += [_confusion(calibration.rates), _rates_grid(calibration.rates)]
    if calibration.scores is not None:
        grids.append(_scores_grid(calibration.scores))
    if calibration.raw is not None:
        grids.append(_corrections(calibration, {}))
        notes = [("", text) for text in _labels_words(calibration)]
    grids += _by_segment(calibration.segments)
    return Document((_headline(calibration),), tuple(grids), tuple(notes), tuple(map(str, calibration.warnings)))


def _things(calibration: Calibration) -> str:
    return "candidates" if calibration.of == "candidate" else "cases"


def _headline(calibration: Calibration) -> str:
    parts = [f"{format_count(calibration.n_labels, f'labelled {_things(calibration)[:-1]}')}"]
    if calibration.annotators is not None:
        parts[0] += f" by {len(calibration.annotators.n_labels)} annotators"
        if calibration.annotators.n_tied:
            parts.append(f"{calibration.annotators.n_tied:,} tied")
    if calibration.n_unlabelled:
        parts.append(f"{calibration.n_unlabelled:,} not labelled yet")
    if calibration.n_not_graded:
        parts.append(f"{calibration.n_not_graded:,} without a verdict of the judge")
    return ", ".join(parts)


def annotators_grid(annotators: Annotators) -> Grid:
    """Agreement of all annotators, then of each pair; the labels of each in the title."""
    together, level = annotators.together, format_level(annotators.together.agreement.level)
    rows = [_agreement_row("all" if annotators.pairs else " and ".join(together.annotators), together)]
    rows += [_agreement_row(" and ".join(one.annotators), one) for one in annotators.pairs[:MAX_PAIRS]]
    left = len(annotators.pairs) - MAX_PAIRS
    if left > 0:
        rows.append((f"{left} more pairs: --json", "", "", "", "", ""))
    given = ", ".join(f"{name or '(no name)'} {n:,}" for name, n in annotators.n_labels.items())
    header = ("annotators", "shared", "agreement", f"{level} interval", "kappa", f"{level} interval")
    kappas = "Fleiss', of pairs Cohen's" if annotators.pairs else "Cohen's"
    return Grid(f"labels: {given} (kappa: {kappas})", header, tuple(rows), (False, True, True, False, True, False))


def _agreement_row(name: str, of: AnnotatorAgreement) -> tuple[str, ...]:
    a, k = of.agreement, of.kappa
    ends = format_interval(a.low, a.high), format_interval(k.low, k.high)
    return name, f"{of.n:,}", _value(a.point), ends[0], _value(k.point), ends[1]


def _confusion(rates: JudgeRates) -> Grid:
    c = rates.confusion
    digits = 0 if all(n == int(n) for n in (c.tp, c.fp, c.fn, c.tn)) else 1
    counts = (("judge passes", c.tp, c.fp), ("judge fails", c.fn, c.tn))
    rows = tuple((name, f"{people:,.{digits}f}", f"{others:,.{digits}f}") for name, people, others in counts)
    return Grid("", ("", "human pass", "human fail"), rows, (False, True, True))


def _value(point: float | None) -> str:
    return format_number(point, none="undefined")


def _row(name: str, e: Any) -> tuple[str, str, str, str]:
    """A name, an estimate of any kind, its interval and method."""
    return name, _value(e.point), format_interval(e.low, e.high), e.method


def _rates_grid(rates: JudgeRates) -> Grid:
    estimates = [(name, getattr(rates, name)) for name in MEANS]
    rows = tuple(
        (name, _value(e.point), format_interval(e.low, e.high), str(e.n), e.method, MEANS[name])
        for name, e in estimates
    )
    header = ("rate", "value", f"{format_level(rates.sensitivity.level)} interval", "labels", "method", "meaning")
    return Grid("", header, rows, (False, True, False, True, False, False))


def _scores_grid(s: ScoreCorrection) -> Grid:
    rows = [_row(e.aggregator, e) for e in (s.human, s.judge, s.difference)]
    rows.append(("correlation", _value(s.correlation), "", ""))
    level = f"{format_level(s.human.level)} interval"
    return Grid("", ("score", "mean", level, "method"), tuple(rows), (False, True, False, False))


def _corrections(calibration: Calibration, source: Mapping[str, str]) -> Grid:
    raw, c = calibration.raw, calibration.corrected
    assert raw is not None
    rows = [_row(f"raw ({source.get('metric', 'the judge')})", raw)]
    if c is not None:
        mark = " (clipped)" if getattr(c, "clipped", False) else ""
        how = "with known rates" if getattr(c, "design", "") == "known rates" else "with labels"
        rows.append(_row(f"corrected {how}{mark}", c))
    if calibration.sets is not None and calibration.raw_sets is not None:
        rows.append(_row("raw (any candidate passes)", calibration.raw_sets))
        rows.append(_row("corrected, upper bound if independent", calibration.sets))
    of = f" of {source['name']}" if "name" in source else ""
    title = f"{'rate' if calibration.scores is None else 'mean'}{of}, {calibration.n_judged:,} {_things(calibration)}"
    level = f"{format_level(raw.level)} interval"
    return Grid("", (title, "value", level, "method"), tuple(rows), (False, True, False, False))


def _labels_words(calibration: Calibration) -> list[str]:
    """Which cases the labels cover, and how many more labels would halve the interval."""
    words = {
        "inside": "The labels cover judged cases: the labels of each verdict stand for all cases with that verdict.",
        "separate": "The labels cover other cases than the judged ones.",
        "overlapping": "The labels cover some of the judged cases, and others.",
    }
    lines = [text for design, text in words.items() if getattr(calibration.corrected, "design", "") == design]
    more = calibration.more
    if more is not None:
        lines.append(
            f"To halve the interval: {more.reason if more.more is None else f'about {more.more:,} more labels'}."
        )
    return lines


def _by_segment(segments: Sequence[Calibration]) -> list[Grid]:
    """One table per field: rates and corrected rates of its segments."""
    fields: dict[str, list[Calibration]] = {}
    for one in segments:
        fields.setdefault((one.segment or "").partition("=")[0], []).append(one)
    return [_segment_grid(name, some) for name, some in fields.items()]


def _segment_grid(name: str, segments: Sequence[Calibration]) -> Grid:
    corrected = any(one.raw is not None for one in segments)
    rows = []
    for one in segments:
        rates = one.rates
        few = rates is not None and min(rates.n_passing, rates.n_failing) < FEW_LABELS
        cells = [(one.segment or "").partition("=")[2] + ("*" if few else ""), f"{one.n_labels:,}"]
        if rates is not None:
            cells += [rates.sensitivity.format(), rates.specificity.format(), rates.kappa.format()]
        if corrected:
            c = one.corrected
            raw = "-" if one.raw is None else _value(one.raw.point)
            mark = " (clipped)" if getattr(c, "clipped", False) else ""
            ends = "" if c is None else format_interval(c.low, c.high)
            cells += [raw, "not corrected" if c is None else f"{c.point:.3f} {ends}{mark}"]
        rows.append(tuple(cells))
    rated = ("sensitivity", "specificity", "kappa") if segments[0].rates is not None else ()
    header = (name, "labels", *rated, *(("raw", "corrected") if corrected else ()))
    some = any(row[0].endswith("*") for row in rows)
    title = f"by {name}" + (f" (*: fewer than {FEW_LABELS} passes or fails labelled)" if some else "")
    return Grid(title, header, tuple(rows), tuple(h in ("labels", "raw") for h in header))


def save_calibration(directory: Path, calibration: Calibration, verdicts: VerdictRows, labels: Path | None) -> Run:
    """Write a calibration to a run's manifest and make its page again. The judge's grades stay as they are."""
    if not directory.is_dir():
        raise InputError(f"{directory}: not a run directory. --save stores a calibration in a run; omit it for a file")
    with lock_directory(directory):
        run = load_run(directory)
        what = load_graded(run)
        judges = what.result.judges
        if verdicts.metric not in judges:
            known = f"use one of {', '.join(judges)}" if judges else "grade the run with kofn judge first"
            raise InputError(f"{directory}: --save: metric {verdicts.metric} is not from a judge; {known}")
        if None in (calibration.rates, calibration.raw, calibration.corrected) or not calibration.n_labels:
            raise InputError(
                f"{directory}: --save: no labels to store; pass a labels file with pass or fail in the column human"
            )
        entry = calibration_entry(calibration, verdicts, labels)
        kept = {**judges[verdicts.metric], "calibrated": True, "calibration": entry}
        result = replace(what.result, judges={**judges, verdicts.metric: kept})
        return update_run(run, reestimate(result, what.options))


def calibration_entry(calibration: Calibration, verdicts: VerdictRows, labels: Path | None) -> dict[str, Any]:
    """What run.json keeps: the rates, which labels they are of, and what was corrected."""
    entry = to_dict(calibration)
    rates = ("sensitivity", "specificity", "kappa", "raw", "corrected")
    names = ("of", "n_labels", "confusion", *rates, "warnings", "coded_warnings")
    of_sets = calibration.of == "set" and verdicts.aggregate
    of = f"{verdicts.aggregate} of {verdicts.metric}" if of_sets else verdicts.metric
    corrected, labelled = entry["corrected"], f"{calibration.n_labels:,} labels of {calibration.of}s"
    return {
        **{name: entry[name] for name in names},
        "corrected": {**corrected, "clipped": bool(corrected["clipped"])},
        "labels": None if labels is None else {"path": str(labels), "sha256": digest(labels)},
        "note": f"{verdicts.metric}: {of}, corrected by {labelled}, {corrected['method']}",
    }
