"""Running estimates with closed-form intervals, over the cases that are finished so far.

Intervals of a finished run are resampled. These are computed once per second, so they have closed forms.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import TYPE_CHECKING

import numpy as np

from kofn.core.types import Estimate
from kofn.stats.estimates import choose_interval, rarer_side
from kofn.stats.intervals import NO_INTERVAL, cluster_robust, t_interval, wilson
from kofn.stats.resample import as_units, without_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.types import Case
    from kofn.stats.intervals import Interval

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]


def closed_interval(
    values: Floats, level: float = 0.95, *, weights: Floats | None = None, clusters: Codes | None = None, rate: bool
) -> Interval:
    """An interval of the mean that needs no resampling: Wilson's of plain 0/1 values, else Student's t.

    With weights or clusters it is the cluster-robust one (CR1). Values that are all equal show no spread: all 0 or all
    1 have Wilson's interval, others none, and none of them one of width 0. Its ends stay within [0, 1] where every
    value does. `rate` is as in `kofn.stats.estimates`.

    >>> closed_interval(np.array([1.0, 1.0, 1.0]), rate=True)
    Interval(low=0.4385..., high=1.0, method='wilson')
    >>> closed_interval(np.array([0.5, 0.5, 0.5]), rate=True).method
    'none'
    >>> closed_interval(np.array([0.25, 0.75, 1.0]), rate=True)
    Interval(low=0.0, high=1.0, method='t')
    """
    narrow = without_width(as_units(values, weights, clusters), level)
    if narrow is not None:
        return narrow if rate and narrow.method == "wilson" else NO_INTERVAL
    plain = weights is None and clusters is None
    method = choose_interval(values.size, plain=plain, rarer=rarer_side(values) if rate else None, closed=True)
    if method == "wilson":
        return wilson(float(values.sum()), values.size, level)
    units = np.arange(values.size) if clusters is None else clusters
    found = t_interval(values, level) if method == "t" else cluster_robust(values, units, level, weights=weights)
    if values.min() < 0 or values.max() > 1:
        return found
    return found._replace(low=max(0.0, found.low), high=min(1.0, found.high))


@dataclass(slots=True)
class InterimEstimates:
    """The values of the cases that are done, by aggregator, with the weights and clusters of these cases."""

    level: float = 0.95
    metric: str = ""
    _values: dict[str, array[float]] = field(default_factory=dict)
    _rates: dict[str, bool] = field(default_factory=dict)
    _weights: array[float] = field(default_factory=lambda: array("d"))
    _clusters: array[int] = field(default_factory=lambda: array("q"))
    _codes: dict[str, int] = field(default_factory=dict)

    def add(self, cases: Sequence[Case], values: Mapping[str, Floats], rates: Mapping[str, bool]) -> None:
        """Some cases more: the value of each by aggregator, NaN where it has none; which of them are shares."""
        before = len(self._weights)
        for name in values:
            self._values.setdefault(name, array("d", [nan] * before))
        for name, of in self._values.items():
            of.extend(values[name].tolist() if name in values else [nan] * len(cases))
            self._rates[name] = self._rates.get(name, True) and rates.get(name, True)
        for case in cases:
            self._weights.append(case.weight)
            alone = -1 - len(self._clusters)  # a case without a cluster is one of its own: codes of others are from 0
            self._clusters.append(
                alone if case.cluster is None else self._codes.setdefault(case.cluster, len(self._codes))
            )

    def estimates(self) -> tuple[Estimate, ...]:
        """One an aggregator, in the order they came; those that no case has a value of are left out."""
        weights = np.array(self._weights)
        clusters = np.array(self._clusters) if self._codes else None
        found = [self._estimate(name, weights if (weights != 1).any() else None, clusters) for name in self._values]
        return tuple(one for one in found if one.point is not None)

    def _estimate(self, name: str, weights: Floats | None, clusters: Codes | None) -> Estimate:
        every = np.array(self._values[name])
        kept = ~np.isnan(every)
        x = every[kept]
        w, c = None if weights is None else weights[kept], None if clusters is None else clusters[kept]
        some = x.size > 0 and (w is None or bool(w.any()))
        ends = NO_INTERVAL
        if some:
            ends = closed_interval(x, self.level, weights=w, clusters=c, rate=self._rates[name])
        return Estimate(
            metric=self.metric,
            aggregator=name,
            point=as_units(x, w, None).point if some else None,
            low=ends.low if isfinite(ends.low) else None,
            high=ends.high if isfinite(ends.high) else None,
            level=self.level,
            n=x.size,
            n_missing=every.size - x.size,
            method=ends.method,
        )
