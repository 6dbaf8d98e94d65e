"""Statistics over cases: intervals, comparisons, judges against people, variance and power.

Pure: no I/O, no global state.
"""

from kofn.stats.corrected import (
    AnyOfCandidates,
    Corrected,
    MoreLabels,
    any_of_candidates,
    corrected_rate,
    corrected_with_known_rates,
    labels_to_halve,
    weights_by_verdict,
)
from kofn.stats.estimate import DEFAULT_INTERVAL, INTERVALS, SMALL_SEGMENT, estimate, segment_estimates
from kofn.stats.intervals import (
    Interval,
    clopper_pearson,
    cluster_robust,
    clustered_se,
    jeffreys,
    normal_interval,
    t_interval,
    wilson,
)
from kofn.stats.judge import (
    FEW_LABELS,
    Confusion,
    JudgeRates,
    Posterior,
    Prevalence,
    judge_rates,
    known_rates,
    lang_reiczigel,
    rogan_gladen,
    true_prevalence,
)
from kofn.stats.paired import Comparison, compare
from kofn.stats.panel import DawidSkene, PositionBias, cohen_kappa, dawid_skene, fleiss_kappa, position_bias
from kofn.stats.permutation import holm, mcnemar_p, sign_flip_p
from kofn.stats.power import cases_for_width, cases_needed, detectable_difference
from kofn.stats.ppi import PredictionPowered, ppi_mean
from kofn.stats.resample import bootstrap, bootstrap_mean, bootstrap_means, resampled_means
from kofn.stats.variance import VarianceShares, variance_shares, what_buys

__all__ = [
    "DEFAULT_INTERVAL",
    "FEW_LABELS",
    "INTERVALS",
    "SMALL_SEGMENT",
    "AnyOfCandidates",
    "Comparison",
    "Confusion",
    "Corrected",
    "DawidSkene",
    "Interval",
    "JudgeRates",
    "MoreLabels",
    "PositionBias",
    "Posterior",
    "PredictionPowered",
    "Prevalence",
    "VarianceShares",
    "any_of_candidates",
    "bootstrap",
    "bootstrap_mean",
    "bootstrap_means",
    "cases_for_width",
    "cases_needed",
    "clopper_pearson",
    "cluster_robust",
    "clustered_se",
    "cohen_kappa",
    "compare",
    "corrected_rate",
    "corrected_with_known_rates",
    "dawid_skene",
    "detectable_difference",
    "estimate",
    "fleiss_kappa",
    "holm",
    "jeffreys",
    "judge_rates",
    "known_rates",
    "labels_to_halve",
    "lang_reiczigel",
    "mcnemar_p",
    "normal_interval",
    "position_bias",
    "ppi_mean",
    "resampled_means",
    "rogan_gladen",
    "segment_estimates",
    "sign_flip_p",
    "t_interval",
    "true_prevalence",
    "variance_shares",
    "weights_by_verdict",
    "what_buys",
    "wilson",
]
