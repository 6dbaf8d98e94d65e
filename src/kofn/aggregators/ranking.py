"""Aggregators of retrieval: ranked lists (DCG, nDCG, MRR, precision, recall), and coverage of required ids or facets.

The first candidate has rank 1. A place whose candidate was not graded makes a ranked list undefined: leaving it out
would move the others up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kofn.aggregators.base import Aggregator, one_of, positive
from kofn.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from kofn.core.candidate_sets import CandidateSets, Floats

GAINS = ("linear", "exp2")


@dataclass(frozen=True, slots=True)
class _TopK(Aggregator, ordered=True):
    """An aggregator of the first k places of a list; of all where k is None."""

    k: int | None = None

    def __post_init__(self) -> None:
        positive(f"{self.label} k", self.k, none_is_all=True)


@dataclass(frozen=True, slots=True)
class Dcg(_TopK, label="dcg", bounded=False):
    """Discounted cumulative gain: sum over the first k places j of gain(value_j) / log2(j + 1).

    gain "linear" is the value itself (trec_eval), "exp2" is 2^value - 1 (Burges).

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> round(float(Dcg(k=6)(CandidateSets.from_lists([[3, 2, 3, 0, 1, 2]]))[0]), 6)
    6.861127
    """

    gain: str = "linear"

    def __post_init__(self) -> None:
        _TopK.__post_init__(self)  # slots leave no super()
        one_of("dcg gain", self.gain, GAINS)

    def compute(self, sets: CandidateSets) -> Floats:
        return sets.map_blocks(lambda v: _discounted(_gains(v, self.gain), self.k), sets.values)


@dataclass(frozen=True, slots=True)
class Ndcg(_TopK, label="ndcg"):
    """DCG divided by the DCG of the ideal order; all values zero -> 0; ties keep the given order.

    The ideal is the case's `ideal` list of values where it is given (all judged items), else the best order of
    the same set, which cannot see relevant items that were never returned. ideal="set" or "given" insists.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[3, 2, 3, 0, 1, 2]], ideal=[[3, 3, 3, 2, 2, 2, 1, 0]])
    >>> [round(float(Ndcg(k=6, ideal=i)(sets)[0]), 6) for i in ("set", "given")]
    [0.960808, 0.785002]
    """

    gain: str = "linear"
    ideal: str = "auto"

    def __post_init__(self) -> None:
        _TopK.__post_init__(self)  # slots leave no super()
        one_of("ndcg gain", self.gain, GAINS)
        one_of("ndcg ideal", self.ideal, ("auto", "set", "given"))

    def compute(self, sets: CandidateSets) -> Floats:
        got = Dcg(k=self.k, gain=self.gain).compute(sets)

        def kernel(values: Floats) -> Floats:
            best_first = -np.sort(-_gains(values, self.gain), axis=0)  # NaN sorts last
            unknown = np.isnan(values).any(axis=0)
            return np.where(unknown, np.nan, _discounted(best_first, self.k))

        best = sets.map_blocks(kernel, sets.values)
        if sets.ideal is None and self.ideal == "given":
            raise InputError(f"{self.name} needs the ideal values of each case (field `ideal`)")
        for i, values in enumerate(sets.ideal.to_list() if sets.ideal is not None and self.ideal != "set" else ()):
            if values is not None:
                gains = _gains(np.array(sorted(values, reverse=True), dtype=np.float64), self.gain)
                best[i] = _discounted(gains[:, None], self.k)[0] if len(gains) else 0.0
        return np.where(best > 0, got / np.where(best > 0, best, 1.0), np.where(np.isnan(got + best), np.nan, 0.0))


@dataclass(frozen=True, slots=True)
class Mrr(_TopK, label="mrr"):
    """Reciprocal rank of the first candidate that passes, 0 when none does; mean over cases is MRR."""

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(flags: Floats) -> Floats:
            top = flags[: self.k]
            hits = top == 1
            rank = hits.argmax(axis=0)
            found = hits.any(axis=0)
            before = np.where(found, rank, len(top))
            unknown = (np.isnan(top) & (np.arange(len(top))[:, None] < before)).any(axis=0)
            return np.where(unknown, np.nan, found / (rank + 1.0))

        return sets.map_blocks(kernel, _verdicts(sets))


@dataclass(frozen=True, slots=True)
class Precision(_TopK, label="precision"):
    """Share of the first k places that pass; a list shorter than k has empty places, which do not (trec_eval)."""

    def compute(self, sets: CandidateSets) -> Floats:
        return sets.map_blocks(lambda f: f[: self.k].sum(axis=0) / (self.k or len(f)), _verdicts(sets))


@dataclass(frozen=True, slots=True)
class Recall(_TopK, label="recall"):
    """Passing candidates in the first k places over all relevant ones; none relevant -> undefined.

    Relevant are as many as the case's `required` lists, and at least the passing candidates of the whole set.
    """

    def compute(self, sets: CandidateSets) -> Floats:
        verdicts = _verdicts(sets)
        found = sets.map_blocks(lambda f: f[: self.k].sum(axis=0), verdicts)
        relevant = sets.map_blocks(lambda f: f.sum(axis=0), verdicts)
        if sets.required is not None:
            listed = sets.required.list.len().cast(float).to_numpy()
            relevant = np.where(np.isnan(listed), relevant, np.maximum(listed, relevant))
        return np.where(relevant > 0, found / np.where(relevant > 0, relevant, 1.0), np.nan)


def _verdicts(sets: CandidateSets) -> Floats:
    return np.where(sets.passes < 0, np.nan, sets.passes.astype(np.float64))


def _gains(values: Floats, gain: str) -> Floats:
    return values if gain == "linear" else np.exp2(values) - 1.0


def _discounted(gains: Floats, k: int | None) -> Floats:
    top = gains[:k]
    discounts = np.log2(np.arange(2, len(top) + 2))
    result: Floats = (top / discounts[:, None]).sum(axis=0)
    return result


@dataclass(frozen=True, slots=True)
class Coverage(_TopK, label="coverage", needs=("answers", "required")):
    """Share of the required ids that the candidates' answers hold; a case that requires nothing is undefined.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[0, 0, 0]], answers=[["d1", "d7", "d1"]], required=[["d1", "d2"]])
    >>> Coverage()(sets).tolist()
    [0.5]
    """

    def compute(self, sets: CandidateSets) -> Floats:
        import polars as pl

        sets = sets if self.k is None else sets.truncate(self.k)
        found: pl.Series = getattr(sets, self.needs[0])
        have = pl.DataFrame({"set": np.repeat(np.arange(len(sets)), sets.sizes), "id": found})
        if isinstance(found.dtype, pl.List):
            have = have.explode("id")
        need = pl.DataFrame({"set": np.arange(len(sets)), "id": sets.having("required")})
        need = need.explode("id").drop_nulls().unique()
        hits = need.join(have.unique(), on=["set", "id"], how="semi").group_by("set").len("hits")
        shares = need.group_by("set").len("needed").join(hits, on="set", how="left")
        out = np.full(len(sets), np.nan)
        out[shares["set"].to_numpy()] = shares["hits"].fill_null(0).to_numpy() / shares["needed"].to_numpy()
        out[sets.sizes == 0] = np.nan
        return out


@dataclass(frozen=True, slots=True)
class FacetCoverage(Coverage, label="facet_coverage", needs=("facets", "required")):
    """Share of the required facets that at least one candidate covers; a case that requires nothing is undefined."""
