"""The run directory: what is stored of an evaluation, and how it is read back.

In: a `Result`, or a directory. Out: report classes, `Run` objects, and the files of a run.
Imports scoring, importers and the packages below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.runs import files as files
    from kofn.runs.correctness_results import CorrectnessResults as CorrectnessResults
    from kofn.runs.evaluation_files import evaluation_body as evaluation_body
    from kofn.runs.files import check_new as check_new
    from kofn.runs.files import to_json as to_json
    from kofn.runs.files import write_atomically as write_atomically
    from kofn.runs.generation_record import generation_facts as generation_facts
    from kofn.runs.generation_record import generation_of as generation_of
    from kofn.runs.load import GradedCandidates as GradedCandidates
    from kofn.runs.load import load_graded as load_graded
    from kofn.runs.load import load_graded_files as load_graded_files
    from kofn.runs.load import load_table as load_table
    from kofn.runs.lock import lock_directory as lock_directory
    from kofn.runs.record import Run as Run
    from kofn.runs.record import load_run as load_run
    from kofn.runs.report_builder import ReportPlan as ReportPlan
    from kofn.runs.report_builder import report_of as report_of
    from kofn.runs.report_classes import AttributeResult as AttributeResult
    from kofn.runs.report_classes import GroupReport as GroupReport
    from kofn.runs.report_classes import VerificationResult as VerificationResult
    from kofn.runs.report_classes import VerifierReport as VerifierReport
    from kofn.runs.report_table import case_scores as case_scores
    from kofn.runs.report_table import flat_frame as flat_frame
    from kofn.runs.tags import validate_tags as validate_tags
    from kofn.scoring.policy import GroupType as GroupType
    from kofn.scoring.policy import PassPolicy as PassPolicy

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.runs.correctness_results": ("CorrectnessResults",),
        "kofn.runs.evaluation_files": ("evaluation_body",),
        "kofn.runs.files": (
            "check_new",
            "to_json",
            "write_atomically",
        ),
        "kofn.runs.generation_record": (
            "generation_facts",
            "generation_of",
        ),
        "kofn.runs.load": (
            "GradedCandidates",
            "load_graded",
            "load_graded_files",
            "load_table",
        ),
        "kofn.runs.lock": ("lock_directory",),
        "kofn.runs.record": (
            "Run",
            "load_run",
        ),
        "kofn.runs.report_builder": (
            "ReportPlan",
            "report_of",
        ),
        "kofn.runs.report_classes": (
            "AttributeResult",
            "GroupReport",
            "VerificationResult",
            "VerifierReport",
        ),
        "kofn.runs.report_table": (
            "case_scores",
            "flat_frame",
        ),
        "kofn.runs.tags": ("validate_tags",),
        "kofn.scoring.policy": (
            "GroupType",
            "PassPolicy",
        ),
    },
    submodules=("files",),
)
