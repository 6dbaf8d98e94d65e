"""Aggregators: frozen dataclasses that map the candidate sets of all cases to one number per case.

In: `kofn.core.candidate_sets.CandidateSets`. Out: a float array with NaN where undefined. A name such as "pass@5" is
resolved by `kofn.registry.aggregator`. Imports core alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.aggregators.base import Aggregator as Aggregator
    from kofn.aggregators.base import PerSet as PerSet
    from kofn.aggregators.diversity import Distinct as Distinct
    from kofn.aggregators.diversity import Redundancy as Redundancy
    from kofn.aggregators.diversity import RedundancyPenalty as RedundancyPenalty
    from kofn.aggregators.diversity import SelfBleu as SelfBleu
    from kofn.aggregators.diversity import SemanticDiversity as SemanticDiversity
    from kofn.aggregators.diversity import UniqueTexts as UniqueTexts
    from kofn.aggregators.passes import AllCorrect as AllCorrect
    from kofn.aggregators.passes import AllPass as AllPass
    from kofn.aggregators.passes import AnyCorrect as AnyCorrect
    from kofn.aggregators.passes import AnyPass as AnyPass
    from kofn.aggregators.passes import AtLeast as AtLeast
    from kofn.aggregators.passes import CountAggregator as CountAggregator
    from kofn.aggregators.passes import GPassAt as GPassAt
    from kofn.aggregators.passes import MajorityPass as MajorityPass
    from kofn.aggregators.passes import PassAt as PassAt
    from kofn.aggregators.passes import PassHat as PassHat
    from kofn.aggregators.ranking import Coverage as Coverage
    from kofn.aggregators.ranking import Dcg as Dcg
    from kofn.aggregators.ranking import FacetCoverage as FacetCoverage
    from kofn.aggregators.ranking import Mrr as Mrr
    from kofn.aggregators.ranking import Ndcg as Ndcg
    from kofn.aggregators.ranking import Precision as Precision
    from kofn.aggregators.ranking import Recall as Recall
    from kofn.aggregators.scores import BestScore as BestScore
    from kofn.aggregators.scores import First as First
    from kofn.aggregators.scores import Max as Max
    from kofn.aggregators.scores import Mean as Mean
    from kofn.aggregators.scores import Median as Median
    from kofn.aggregators.scores import Min as Min
    from kofn.aggregators.scores import Std as Std
    from kofn.aggregators.scores import WeightedMean as WeightedMean
    from kofn.aggregators.selection import Selected as Selected
    from kofn.aggregators.selection import SelectedAt as SelectedAt
    from kofn.aggregators.votes import Agreement as Agreement
    from kofn.aggregators.votes import Answered as Answered
    from kofn.aggregators.votes import MajAt as MajAt
    from kofn.aggregators.votes import Majority as Majority
    from kofn.aggregators.votes import UniqueAnswers as UniqueAnswers
    from kofn.aggregators.votes import VoteMargin as VoteMargin
    from kofn.aggregators.votes import WeightedVote as WeightedVote

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.aggregators.base": (
            "Aggregator",
            "PerSet",
        ),
        "kofn.aggregators.diversity": (
            "Distinct",
            "Redundancy",
            "RedundancyPenalty",
            "SelfBleu",
            "SemanticDiversity",
            "UniqueTexts",
        ),
        "kofn.aggregators.passes": (
            "AllCorrect",
            "AllPass",
            "AnyCorrect",
            "AnyPass",
            "AtLeast",
            "CountAggregator",
            "GPassAt",
            "MajorityPass",
            "PassAt",
            "PassHat",
        ),
        "kofn.aggregators.ranking": (
            "Coverage",
            "Dcg",
            "FacetCoverage",
            "Mrr",
            "Ndcg",
            "Precision",
            "Recall",
        ),
        "kofn.aggregators.scores": (
            "BestScore",
            "First",
            "Max",
            "Mean",
            "Median",
            "Min",
            "Std",
            "WeightedMean",
        ),
        "kofn.aggregators.selection": (
            "Selected",
            "SelectedAt",
        ),
        "kofn.aggregators.votes": (
            "Agreement",
            "Answered",
            "MajAt",
            "Majority",
            "UniqueAnswers",
            "VoteMargin",
            "WeightedVote",
        ),
    },
)
