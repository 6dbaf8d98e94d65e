"""The judges of a run as a table: what each says, and what people would, where they were asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.report.findings import cut_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.report.run import Run

_NAME, _SENTENCE = 120, 600
NOT_CORRECTED = "not corrected"


def judges_of(run: Run) -> list[dict[str, str]]:
    """A row a judge, in words."""
    found = {} if run.result is None else run.result.judges
    return [_row(name, told, run) for name, told in found.items()]


def _row(name: str, told: Mapping[str, Any], run: Run) -> dict[str, str]:
    calibration = told.get("calibration")
    return {
        "name": cut_text(name, _NAME),
        "models": cut_text(", ".join(told["models"]), _NAME),
        "rubric": cut_text(f"{told['rubric']} version {told['version']}, {told['scale']}", _NAME),
        "missing": f"{told['n_not_graded']:,}",
        "raw": _raw(name, run) if calibration is None else _estimate(calibration["raw"]),
        "corrected": NOT_CORRECTED if calibration is None else _estimate(calibration["corrected"]),
        "rates": "" if calibration is None else _rates(calibration),
        "note": "" if calibration is None else cut_text(calibration.get("note", ""), _SENTENCE),
    }


def _raw(name: str, run: Run) -> str:
    """The first number that the judge gave, with what it is."""
    assert run.result is not None
    own = [e for e in run.result.estimates if e.metric == name and e.segment is None]
    shown = next((e for e in own if e.aggregator == "mean"), own[0] if own else None)
    if shown is None:
        return "picks only"
    return f"{shown.aggregator} {_estimate({'point': shown.point, 'low': shown.low, 'high': shown.high})}"


def _estimate(told: Mapping[str, Any]) -> str:
    """
    >>> _estimate({"point": 0.5, "low": 0.4, "high": 0.6, "clipped": True}), _estimate({"point": None})
    ('0.500 [0.400, 0.600] (clipped)', 'undefined')
    """
    if told.get("point") is None:
        return "undefined"
    ends = "" if told.get("low") is None or told.get("high") is None else f" [{told['low']:.3f}, {told['high']:.3f}]"
    return f"{told['point']:.3f}{ends}{' (clipped)' if told.get('clipped') else ''}"


def _rates(calibration: Mapping[str, Any]) -> str:
    rates = ", ".join(_estimate(calibration[name]) for name in ("sensitivity", "specificity"))
    return f"{rates}; {calibration['n_labels']:,} labels"
