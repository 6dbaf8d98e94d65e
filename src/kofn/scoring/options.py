"""How to score a table: extractor, metrics, aggregators, intervals, segments, split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kofn.scoring.splits import Split


Spec = str | Callable[..., Any]  # a registered name with its settings, "module:name", or a function itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to evaluate. Everything has a sensible default.

    `engine` calls metrics that take long on several processes or machines (`kofn.parallel`). `use` is how the product
    uses a set: any, vote, select, list or all. `split` takes the design or the test part of the cases.
    """

    extract: Spec | None = None
    metrics: tuple[Spec, ...] = ()
    aggregate: tuple[Spec, ...] = ()
    threshold: float | None = None
    top_k: int | None = None
    interval: str = "auto"
    level: float = 0.95
    n_resamples: int = 10_000
    seed: int = 0
    by: tuple[str, ...] = ()
    cluster: str | None = None
    weight: str | None = None
    engine: Any = None
    use: str | None = None
    split: Split | None = None
