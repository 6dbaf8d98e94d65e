"""Aggregators of coverage: the share of required ids or facets that the candidates of a set cover together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kofn.aggregators.base import Aggregator, positive

if TYPE_CHECKING:
    import polars as pl

    from kofn.core.candidate_sets import CandidateSets, Floats


@dataclass(frozen=True, slots=True)
class Coverage(Aggregator):
    """Share of the required ids that the candidates' answers hold; a case that requires nothing is undefined.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[0, 0, 0]], answers=[["d1", "d7", "d1"]], required=[["d1", "d2"]])
    >>> Coverage()(sets).tolist()
    [0.5]
    """

    k: int | None = None
    label: ClassVar[str] = "coverage"
    needs: ClassVar[tuple[str, ...]] = ("answers", "required")
    ordered: ClassVar[bool] = True  # through k

    def __post_init__(self) -> None:
        positive("coverage k", self.k, none_is_all=True)

    def compute(self, sets: CandidateSets) -> Floats:
        sets = sets if self.k is None else sets.truncate(self.k)
        assert sets.answers is not None
        return _share_found(sets, sets.answers)


@dataclass(frozen=True, slots=True)
class FacetCoverage(Aggregator):
    """Share of the required facets that at least one candidate covers; a case that requires nothing is undefined."""

    k: int | None = None
    label: ClassVar[str] = "facet_coverage"
    needs: ClassVar[tuple[str, ...]] = ("facets", "required")
    ordered: ClassVar[bool] = True  # through k

    def __post_init__(self) -> None:
        positive("facet_coverage k", self.k, none_is_all=True)

    def compute(self, sets: CandidateSets) -> Floats:
        sets = sets if self.k is None else sets.truncate(self.k)
        assert sets.facets is not None
        return _share_found(sets, sets.facets)


def _share_found(sets: CandidateSets, found: pl.Series) -> Floats:
    """|required ∩ found| / |required| a set, each id counted once; an empty set is undefined."""
    import polars as pl

    assert sets.required is not None
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    have = pl.DataFrame({"set": owner, "id": found})
    if isinstance(found.dtype, pl.List):
        have = have.explode("id")
    need = pl.DataFrame({"set": np.arange(len(sets)), "id": sets.required}).explode("id").drop_nulls().unique()
    hits = need.join(have.unique(), on=["set", "id"], how="semi").group_by("set").len("hits")
    shares = (
        need.group_by("set").len("needed").join(hits, on="set", how="left").with_columns(pl.col("hits").fill_null(0))
    )
    out = np.full(len(sets), np.nan)
    out[shares["set"].to_numpy()] = shares["hits"].to_numpy() / shares["needed"].to_numpy()
    out[sets.sizes == 0] = np.nan
    return out
