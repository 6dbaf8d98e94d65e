"""Results of an evaluation: objects, files, pages. Names load when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kofn.policy import GroupType as GroupType
    from kofn.policy import PassPolicy as PassPolicy
    from kofn.report.convert import Plan as Plan
    from kofn.report.convert import report_of as report_of
    from kofn.report.files import write_run as write_run
    from kofn.report.results import AttributeResult as AttributeResult
    from kofn.report.results import CorrectnessResults as CorrectnessResults
    from kofn.report.results import GroupReport as GroupReport
    from kofn.report.results import VerificationResult as VerificationResult
    from kofn.report.results import VerifierReport as VerifierReport
    from kofn.report.run import Run as Run
    from kofn.report.run import load_run as load_run

_LAZY = {
    "GroupType": "kofn.policy",
    "PassPolicy": "kofn.policy",
    "AttributeResult": "kofn.report.results",
    "CorrectnessResults": "kofn.report.results",
    "GroupReport": "kofn.report.results",
    "VerificationResult": "kofn.report.results",
    "VerifierReport": "kofn.report.results",
    "Run": "kofn.report.run",
    "load_run": "kofn.report.run",
    "Plan": "kofn.report.convert",
    "report_of": "kofn.report.convert",
    "write_run": "kofn.report.files",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
