"""Statistics over cases: intervals, comparisons, variance and power. Pure: no I/O, no global state."""

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
from kofn.stats.paired import Comparison, compare
from kofn.stats.permutation import holm, mcnemar_p, sign_flip_p
from kofn.stats.power import cases_for_width, cases_needed, detectable_difference
from kofn.stats.resample import bootstrap, bootstrap_mean, bootstrap_means, resampled_means
from kofn.stats.variance import VarianceShares, variance_shares, what_buys

__all__ = [
    "DEFAULT_INTERVAL",
    "INTERVALS",
    "SMALL_SEGMENT",
    "Comparison",
    "Interval",
    "VarianceShares",
    "bootstrap",
    "bootstrap_mean",
    "bootstrap_means",
    "cases_for_width",
    "cases_needed",
    "clopper_pearson",
    "cluster_robust",
    "clustered_se",
    "compare",
    "detectable_difference",
    "estimate",
    "holm",
    "jeffreys",
    "mcnemar_p",
    "normal_interval",
    "resampled_means",
    "segment_estimates",
    "sign_flip_p",
    "t_interval",
    "variance_shares",
    "what_buys",
    "wilson",
]
