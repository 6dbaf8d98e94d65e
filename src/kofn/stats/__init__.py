"""Statistics over cases: intervals, comparisons, judges against people, variance and power.

In: arrays with one value per case, their weights and clusters, a seed. Out: `Estimate`, `Interval`, `Comparison`, ...
Pure functions: no files, no clock, no global state. Imports core alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.stats import corrected_curve as corrected_curve
    from kofn.stats import corrected_rates as corrected_rates
    from kofn.stats.corrected_curve import AnyOfCandidates as AnyOfCandidates
    from kofn.stats.corrected_curve import any_of_candidates as any_of_candidates
    from kofn.stats.corrected_rates import Corrected as Corrected
    from kofn.stats.corrected_rates import MoreLabels as MoreLabels
    from kofn.stats.corrected_rates import corrected_rate as corrected_rate
    from kofn.stats.corrected_rates import corrected_with_known_rates as corrected_with_known_rates
    from kofn.stats.corrected_rates import labels_to_halve as labels_to_halve
    from kofn.stats.correction_data import weights_by_verdict as weights_by_verdict
    from kofn.stats.estimates import DEFAULT_INTERVAL as DEFAULT_INTERVAL
    from kofn.stats.estimates import INTERVALS as INTERVALS
    from kofn.stats.estimates import SMALL_SEGMENT as SMALL_SEGMENT
    from kofn.stats.estimates import check_interval as check_interval
    from kofn.stats.estimates import estimate as estimate
    from kofn.stats.estimates import segment_estimates as segment_estimates
    from kofn.stats.intervals import Interval as Interval
    from kofn.stats.intervals import check_level as check_level
    from kofn.stats.intervals import clopper_pearson as clopper_pearson
    from kofn.stats.intervals import cluster_robust as cluster_robust
    from kofn.stats.intervals import clustered_se as clustered_se
    from kofn.stats.intervals import jeffreys as jeffreys
    from kofn.stats.intervals import normal_interval as normal_interval
    from kofn.stats.intervals import t_interval as t_interval
    from kofn.stats.intervals import wilson as wilson
    from kofn.stats.judge_accuracy import FEW_LABELS as FEW_LABELS
    from kofn.stats.judge_accuracy import Confusion as Confusion
    from kofn.stats.judge_accuracy import DawidSkene as DawidSkene
    from kofn.stats.judge_accuracy import JudgeRates as JudgeRates
    from kofn.stats.judge_accuracy import PositionBias as PositionBias
    from kofn.stats.judge_accuracy import cohen_kappa as cohen_kappa
    from kofn.stats.judge_accuracy import dawid_skene as dawid_skene
    from kofn.stats.judge_accuracy import fleiss_kappa as fleiss_kappa
    from kofn.stats.judge_accuracy import judge_rates as judge_rates
    from kofn.stats.judge_accuracy import position_bias as position_bias
    from kofn.stats.paired import Comparison as Comparison
    from kofn.stats.paired import compare as compare
    from kofn.stats.paired import holm as holm
    from kofn.stats.paired import mcnemar_p as mcnemar_p
    from kofn.stats.paired import sign_flip_p as sign_flip_p
    from kofn.stats.prevalence import Posterior as Posterior
    from kofn.stats.prevalence import PredictionPowered as PredictionPowered
    from kofn.stats.prevalence import Prevalence as Prevalence
    from kofn.stats.prevalence import known_rates as known_rates
    from kofn.stats.prevalence import lang_reiczigel as lang_reiczigel
    from kofn.stats.prevalence import ppi_mean as ppi_mean
    from kofn.stats.prevalence import rogan_gladen as rogan_gladen
    from kofn.stats.prevalence import true_prevalence as true_prevalence
    from kofn.stats.resample import bootstrap as bootstrap
    from kofn.stats.resample import bootstrap_mean as bootstrap_mean
    from kofn.stats.resample import bootstrap_means as bootstrap_means
    from kofn.stats.resample import resampled_means as resampled_means
    from kofn.stats.variance import VarianceShares as VarianceShares
    from kofn.stats.variance import cases_for_width as cases_for_width
    from kofn.stats.variance import cases_needed as cases_needed
    from kofn.stats.variance import detectable_difference as detectable_difference
    from kofn.stats.variance import variance_shares as variance_shares
    from kofn.stats.variance import what_buys as what_buys

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.stats.corrected_curve": (
            "AnyOfCandidates",
            "any_of_candidates",
        ),
        "kofn.stats.corrected_rates": (
            "Corrected",
            "MoreLabels",
            "corrected_rate",
            "corrected_with_known_rates",
            "labels_to_halve",
        ),
        "kofn.stats.correction_data": ("weights_by_verdict",),
        "kofn.stats.estimates": (
            "DEFAULT_INTERVAL",
            "INTERVALS",
            "SMALL_SEGMENT",
            "check_interval",
            "estimate",
            "segment_estimates",
        ),
        "kofn.stats.intervals": (
            "Interval",
            "check_level",
            "clopper_pearson",
            "cluster_robust",
            "clustered_se",
            "jeffreys",
            "normal_interval",
            "t_interval",
            "wilson",
        ),
        "kofn.stats.judge_accuracy": (
            "Confusion",
            "DawidSkene",
            "FEW_LABELS",
            "JudgeRates",
            "PositionBias",
            "cohen_kappa",
            "dawid_skene",
            "fleiss_kappa",
            "judge_rates",
            "position_bias",
        ),
        "kofn.stats.paired": (
            "Comparison",
            "compare",
            "holm",
            "mcnemar_p",
            "sign_flip_p",
        ),
        "kofn.stats.prevalence": (
            "Posterior",
            "PredictionPowered",
            "Prevalence",
            "known_rates",
            "lang_reiczigel",
            "ppi_mean",
            "rogan_gladen",
            "true_prevalence",
        ),
        "kofn.stats.resample": (
            "bootstrap",
            "bootstrap_mean",
            "bootstrap_means",
            "resampled_means",
        ),
        "kofn.stats.variance": (
            "VarianceShares",
            "cases_for_width",
            "cases_needed",
            "detectable_difference",
            "variance_shares",
            "what_buys",
        ),
    },
    submodules=("corrected_curve", "corrected_rates"),
)
