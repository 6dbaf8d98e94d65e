"""The judges of a run as rows of a table in report.html and Markdown: rubric, missing verdicts, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.format import format_estimate
from kofn.render.run_summary import cut_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.runs.record import Run

_NAME, _SENTENCE = 120, 600  # characters of a name and of a note
NOT_CORRECTED = "not corrected"


def judge_rows(run: Run) -> list[dict[str, str]]:
    """A row a judge, in words."""
    found = {} if run.result is None else run.result.judges
    return [_row(name, judge, run) for name, judge in found.items()]


def _row(name: str, judge: Mapping[str, Any], run: Run) -> dict[str, str]:
    calibration = judge.get("calibration")
    return {
        "name": cut_text(name, _NAME),
        "models": cut_text(", ".join(judge["models"]), _NAME),
        "rubric": cut_text(f"{judge['rubric']} version {judge['version']}, {judge['scale']}", _NAME),
        "missing": f"{judge['n_not_graded']:,}",
        "raw": _raw(name, run) if calibration is None else _estimate(calibration["raw"]),
        "corrected": NOT_CORRECTED if calibration is None else _estimate(calibration["corrected"]),
        "rates": "" if calibration is None else _rates(calibration),
        "note": "" if calibration is None else cut_text(calibration.get("note", ""), _SENTENCE),
    }


def _raw(name: str, run: Run) -> str:
    """The first number that the judge gave, with what it is."""
    own = [e for e in run.scored_result.estimates if e.metric == name and e.segment is None]
    estimate = next((e for e in own if e.aggregator == "mean"), own[0] if own else None)
    if estimate is None:
        return "picks only"
    return f"{estimate.aggregator} {_estimate({'point': estimate.point, 'low': estimate.low, 'high': estimate.high})}"


def _estimate(judge: Mapping[str, Any]) -> str:
    """
    >>> _estimate({"point": 0.5, "low": 0.4, "high": 0.6, "clipped": True}), _estimate({"point": None})
    ('0.500 [0.400, 0.600] (clipped)', 'undefined')
    """
    text = format_estimate(judge.get("point"), judge.get("low"), judge.get("high"))
    return f"{text} (clipped)" if judge.get("clipped") else text


def _rates(calibration: Mapping[str, Any]) -> str:
    rates = ", ".join(_estimate(calibration[name]) for name in ("sensitivity", "specificity"))
    return f"{rates}; {calibration['n_labels']:,} labels"
