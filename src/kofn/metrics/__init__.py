"""Metrics on one candidate: `(prediction, reference) -> number | bool | mapping`.

A metric is any callable. The built-in ones are values: frozen settings, a repr, equality, and traits
(`higher_is_better`, `uses`). They score in [0, 1], give no answer (None) 0, take one reference or several of
which the best match counts, and grade nothing (None) without a reference.
"""

from kofn.metrics.base import Metric, as_metric, metric_name, trait
from kofn.metrics.choice import Choice
from kofn.metrics.columns import score_column
from kofn.metrics.config import (
    REPEAT_AGGREGATORS,
    MetricConfig,
    dataset_aggregate,
    identity,
    process_metrics,
    process_repeats,
)
from kofn.metrics.defaults import default_metric
from kofn.metrics.exact import Contains, ExactMatch, RegexMatch
from kofn.metrics.flags import Refused, Truncated, Unparsed
from kofn.metrics.mathematical import MathEqual
from kofn.metrics.numeric import Numeric
from kofn.metrics.result import Outcome, call_metric, grade, normalise, score_answers
from kofn.metrics.structured import JsonEqual, Schema
from kofn.metrics.text import Bleu, Chrf, RougeL, TokenF1

__all__ = [
    "REPEAT_AGGREGATORS",
    "Bleu",
    "Choice",
    "Chrf",
    "Contains",
    "ExactMatch",
    "JsonEqual",
    "MathEqual",
    "Metric",
    "MetricConfig",
    "Numeric",
    "Outcome",
    "Refused",
    "RegexMatch",
    "RougeL",
    "Schema",
    "TokenF1",
    "Truncated",
    "Unparsed",
    "as_metric",
    "call_metric",
    "dataset_aggregate",
    "default_metric",
    "grade",
    "identity",
    "metric_name",
    "normalise",
    "process_metrics",
    "process_repeats",
    "score_answers",
    "score_column",
    "trait",
]
