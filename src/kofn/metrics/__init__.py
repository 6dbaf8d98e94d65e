"""Metrics on one candidate: callables `(prediction, reference) -> number | bool | mapping`.

In: an answer or a text, and one reference or several. Out: a score in [0, 1], or None for "not graded". The built-in
metrics are frozen dataclasses with traits (`higher_is_better`, `uses`). Imports core alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.metrics.base import Metric as Metric
    from kofn.metrics.base import as_metric as as_metric
    from kofn.metrics.base import default_metric as default_metric
    from kofn.metrics.base import metric_name as metric_name
    from kofn.metrics.base import trait as trait
    from kofn.metrics.columnar_scoring import score_column as score_column
    from kofn.metrics.flags import Refused as Refused
    from kofn.metrics.flags import Truncated as Truncated
    from kofn.metrics.flags import Unparsed as Unparsed
    from kofn.metrics.json_metrics import JsonEqual as JsonEqual
    from kofn.metrics.json_metrics import Schema as Schema
    from kofn.metrics.metric_config import REPEAT_AGGREGATORS as REPEAT_AGGREGATORS
    from kofn.metrics.metric_config import MetricConfig as MetricConfig
    from kofn.metrics.metric_config import dataset_aggregate as dataset_aggregate
    from kofn.metrics.metric_config import identity as identity
    from kofn.metrics.metric_config import process_metrics as process_metrics
    from kofn.metrics.metric_config import process_repeats as process_repeats
    from kofn.metrics.numeric import MathEqual as MathEqual
    from kofn.metrics.numeric import Numeric as Numeric
    from kofn.metrics.outcomes import Outcome as Outcome
    from kofn.metrics.outcomes import call_metric as call_metric
    from kofn.metrics.outcomes import grade as grade
    from kofn.metrics.outcomes import normalise as normalise
    from kofn.metrics.outcomes import score_answers as score_answers
    from kofn.metrics.text_match import Choice as Choice
    from kofn.metrics.text_match import Contains as Contains
    from kofn.metrics.text_match import ExactMatch as ExactMatch
    from kofn.metrics.text_match import RegexMatch as RegexMatch
    from kofn.metrics.text_overlap import Bleu as Bleu
    from kofn.metrics.text_overlap import Chrf as Chrf
    from kofn.metrics.text_overlap import RougeL as RougeL
    from kofn.metrics.text_overlap import TokenF1 as TokenF1

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.metrics.base": (
            "Metric",
            "as_metric",
            "default_metric",
            "metric_name",
            "trait",
        ),
        "kofn.metrics.columnar_scoring": ("score_column",),
        "kofn.metrics.flags": (
            "Refused",
            "Truncated",
            "Unparsed",
        ),
        "kofn.metrics.json_metrics": (
            "JsonEqual",
            "Schema",
        ),
        "kofn.metrics.metric_config": (
            "MetricConfig",
            "REPEAT_AGGREGATORS",
            "dataset_aggregate",
            "identity",
            "process_metrics",
            "process_repeats",
        ),
        "kofn.metrics.numeric": (
            "MathEqual",
            "Numeric",
        ),
        "kofn.metrics.outcomes": (
            "Outcome",
            "call_metric",
            "grade",
            "normalise",
            "score_answers",
        ),
        "kofn.metrics.text_match": (
            "Choice",
            "Contains",
            "ExactMatch",
            "RegexMatch",
        ),
        "kofn.metrics.text_overlap": (
            "Bleu",
            "Chrf",
            "RougeL",
            "TokenF1",
        ),
    },
)
