"""Analyses of graded candidates and stored runs: comparisons, best of n, plans, trends, checks, audits.

In: results, candidate sets and stored runs. Out: report objects with numbers, which `kofn.render` shows.
Imports runs, scoring and the packages below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.analysis import rescore as rescore
    from kofn.analysis.best_of.best_of import BestOfOptions as BestOfOptions
    from kofn.analysis.best_of.best_of import JudgeErrors as JudgeErrors
    from kofn.analysis.best_of.choose_n import SpendingBounds as SpendingBounds
    from kofn.analysis.best_of.report import best_of_report as best_of_report
    from kofn.analysis.best_of.report import default_measure as default_measure
    from kofn.analysis.best_of.report import only_selector as only_selector
    from kofn.analysis.checks import CheckOptions as CheckOptions
    from kofn.analysis.checks import CheckSubject as CheckSubject
    from kofn.analysis.checks import MinPasses as MinPasses
    from kofn.analysis.checks import run_checks as run_checks
    from kofn.analysis.compare.differences import ComparisonRules as ComparisonRules
    from kofn.analysis.compare.graders import by_extractor as by_extractor
    from kofn.analysis.compare.graders import by_metric as by_metric
    from kofn.analysis.compare.graders import compare_graders as compare_graders
    from kofn.analysis.compare.selections import compare_selectors as compare_selectors
    from kofn.analysis.compare.systems import ComparisonOptions as ComparisonOptions
    from kofn.analysis.compare.systems import Side as Side
    from kofn.analysis.compare.systems import compare_systems as compare_systems
    from kofn.analysis.extraction_audit import audit_extractors as audit_extractors
    from kofn.analysis.extraction_audit import extractors_for as extractors_for
    from kofn.analysis.plan import PlanQuestion as PlanQuestion
    from kofn.analysis.plan import UnitPrices as UnitPrices
    from kofn.analysis.plan import Variances as Variances
    from kofn.analysis.plan import alike_variances as alike_variances
    from kofn.analysis.plan import candidate_cost as candidate_cost
    from kofn.analysis.plan import make_plan as make_plan
    from kofn.analysis.plan import paired_variances as paired_variances
    from kofn.analysis.plan import pilot_variances as pilot_variances
    from kofn.analysis.plan import plan_assumptions as plan_assumptions
    from kofn.analysis.plan import plan_grid as plan_grid
    from kofn.analysis.plan import plan_sentence as plan_sentence
    from kofn.analysis.plan import plan_with_labels as plan_with_labels
    from kofn.analysis.plan import share_variances as share_variances
    from kofn.analysis.rescore import is_run as is_run
    from kofn.analysis.selector_file import load_selector as load_selector
    from kofn.analysis.selectors import BUILT_IN as BUILT_IN
    from kofn.analysis.selectors import with_values as with_values
    from kofn.analysis.trend.trend import load_trend as load_trend

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.analysis.best_of.best_of": (
            "BestOfOptions",
            "JudgeErrors",
        ),
        "kofn.analysis.best_of.choose_n": ("SpendingBounds",),
        "kofn.analysis.best_of.report": (
            "best_of_report",
            "default_measure",
            "only_selector",
        ),
        "kofn.analysis.checks": (
            "CheckOptions",
            "CheckSubject",
            "MinPasses",
            "run_checks",
        ),
        "kofn.analysis.compare.differences": ("ComparisonRules",),
        "kofn.analysis.compare.graders": (
            "by_extractor",
            "by_metric",
            "compare_graders",
        ),
        "kofn.analysis.compare.selections": ("compare_selectors",),
        "kofn.analysis.compare.systems": (
            "ComparisonOptions",
            "Side",
            "compare_systems",
        ),
        "kofn.analysis.extraction_audit": (
            "audit_extractors",
            "extractors_for",
        ),
        "kofn.analysis.plan": (
            "PlanQuestion",
            "UnitPrices",
            "Variances",
            "alike_variances",
            "candidate_cost",
            "make_plan",
            "paired_variances",
            "pilot_variances",
            "plan_assumptions",
            "plan_grid",
            "plan_sentence",
            "plan_with_labels",
            "share_variances",
        ),
        "kofn.analysis.rescore": ("is_run",),
        "kofn.analysis.selector_file": ("load_selector",),
        "kofn.analysis.selectors": (
            "BUILT_IN",
            "with_values",
        ),
        "kofn.analysis.trend.trend": ("load_trend",),
    },
    submodules=("rescore",),
)
