"""`MetricConfig`: a metric, how the repeats of a case are combined, and how cases are aggregated.

The repeat aggregators here are the documented names on plain lists of scores. The columnar ones for whole
runs, with ties, thresholds and estimators, are in `kofn.aggregators`.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kofn.errors import InputError, UnknownName
from kofn.metrics.base import Metric, as_metric, trait
from kofn.metrics.outcomes import grade

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kofn.metrics.base import MetricFunction

Scores: TypeAlias = Sequence[float]
RepeatAggregator: TypeAlias = Callable[..., float]

OUTPUT_TYPES = ("generate_until", "loglikelihood", "loglikelihood_rolling", "multiple_choice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(Metric):
    """The prediction itself as the score: for outputs that are scores already, such as log-likelihoods.

    >>> identity(0.5, "reference")
    0.5
    """

    @property
    def needs_reference(self) -> bool:
        """Never: the prediction is the score."""
        return False

    def __call__(self, prediction: object, reference: object = None) -> object:  # noqa: ARG002 - as any metric
        return prediction


identity = Identity()


def mean(values: Scores, **_kwargs: object) -> float:
    """Return the arithmetic mean.

    >>> round(mean([0.5, 0.8, 0.3]), 4)
    0.5333
    """
    return math.fsum(values) / len(values)


def median(values: Scores, **_kwargs: object) -> float:
    """Return the median; of an even number of values the mean of the middle two."""
    ordered, half = sorted(values), len(values) // 2
    return float(ordered[half]) if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def first(values: Scores, **_kwargs: object) -> float:
    """Return the first score."""
    return float(values[0])


def best(values: Scores, *, higher_is_better: bool = True, **_kwargs: object) -> float:
    """Return the best score: the largest, or the smallest when lower is better."""
    return float(max(values) if higher_is_better else min(values))


def worst(values: Scores, *, higher_is_better: bool = True, **_kwargs: object) -> float:
    """Return the worst score: the smallest, or the largest when lower is better."""
    return best(values, higher_is_better=not higher_is_better)


def majority(values: Scores, *, predictions: Sequence[object] | None = None, **_kwargs: object) -> float:
    """Return the mean score of the candidates that gave the most frequent prediction.

    The prediction seen first wins a tie. None never votes; when nobody votes there is no consensus and the
    value is 0. Without predictions it is the most frequent score, the first seen of equally frequent ones.

    >>> majority([1, 0, 1, 1, 0], predictions=["42", "43", "42", "42", "41"])
    1.0
    >>> majority([0, 1], predictions=[None, None]), majority([0.2, 0.7, 0.7])
    (0.0, 0.7)
    """
    if predictions is None:
        return float(Counter(values).most_common(1)[0][0])
    ballots = [vote if vote is None or isinstance(vote, (str, int, float)) else repr(vote) for vote in predictions]
    counts = Counter(ballot for ballot in ballots if ballot is not None)
    if not counts:
        return 0.0
    winner = counts.most_common(1)[0][0]  # equal counts keep the order of first appearance
    return mean([value for value, ballot in zip(values, ballots, strict=True) if ballot == winner])


def any_correct(
    values: Scores, *, higher_is_better: bool = True, threshold: float | None = None, **_kwargs: object
) -> float:
    """Return 1 if any score passes: reaches `threshold` (1), or stays within it (0) when lower is better.

    >>> any_correct([0, 0, 1, 0]), any_correct([3, 0], higher_is_better=False)
    (1.0, 1.0)
    """
    return float(any(_passes(values, higher_is_better, threshold)))


def all_correct(
    values: Scores, *, higher_is_better: bool = True, threshold: float | None = None, **_kwargs: object
) -> float:
    """Return 1 if every score passes, as `any_correct` says.

    >>> all_correct([1, 0, 1]), all_correct([1, 1])
    (0.0, 1.0)
    """
    return float(all(_passes(values, higher_is_better, threshold)))


REPEAT_AGGREGATORS: Mapping[str, RepeatAggregator] = {
    "first": first,
    "mean": mean,
    "median": median,
    "max": best,
    "min": worst,
    "best": best,
    "best_score": best,
    "majority": majority,
    "any_correct": any_correct,
    "all_correct": all_correct,
}


@dataclass(frozen=True)
class MetricConfig:
    """One metric of a task: how a prediction is scored, repeats are combined, and cases are aggregated.

    `fn` is any metric (a function, or an object that has `compute`), `kwargs` its settings.
    `repeat_aggregation_fn` is a name (`REPEAT_AGGREGATORS`) or a callable `(scores, **kwargs) -> float`; None means
    "first", and an unknown name is an error when built. `higher_is_better` is True unless given or unless `fn` says
    otherwise. `threshold` is what any_correct and all_correct ask for: by default 1, and 0 when lower is better.

    >>> config = MetricConfig(name="acc", repeat_aggregation_fn="max")
    >>> config.compute_repeat_aggregation([0.5, 0.8, 0.3])
    0.8
    >>> MetricConfig(name="acc", repeat_aggregation_fn="maxx")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown repeat aggregator 'maxx': did you mean max?
    """

    name: str
    fn: MetricFunction = identity
    aggregation_fn: Callable[..., float] = mean
    repeat_aggregation_fn: RepeatAggregator | str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    higher_is_better: bool | None = None
    output_type: str = "generate_until"
    threshold: float | None = None
    metric: MetricFunction = field(init=False, repr=False, compare=False)
    """`fn` with its settings."""
    repeat_aggregation: RepeatAggregator = field(init=False, repr=False, compare=False)
    """The callable that combines the repeats of one case."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a metric needs a name")
        if self.output_type not in OUTPUT_TYPES:
            raise UnknownName("output_type", str(self.output_type), list(OUTPUT_TYPES))
        object.__setattr__(self, "fn", as_metric(self.fn))
        for what in ("fn", "aggregation_fn"):
            if not callable(getattr(self, what)):
                raise InputError(f"metric {self.name}: {what} must be callable, not {getattr(self, what)!r}")
        if self.higher_is_better is None:
            object.__setattr__(self, "higher_is_better", trait(self.fn, "higher_is_better"))
        # both are resolved now so that a wrong name or setting fails when built
        if self.kwargs:
            try:
                inspect.signature(self.fn).bind_partial(**self.kwargs)
            except TypeError as error:
                raise InputError(f"metric {self.name}: kwargs do not fit its function: {error}") from None
        object.__setattr__(self, "metric", partial(self.fn, **self.kwargs) if self.kwargs else self.fn)
        spec = "first" if self.repeat_aggregation_fn is None else self.repeat_aggregation_fn
        if not callable(spec):
            if spec not in REPEAT_AGGREGATORS:
                raise UnknownName("repeat aggregator", spec, list(REPEAT_AGGREGATORS))
            spec = REPEAT_AGGREGATORS[spec]
            if spec in (best, worst, any_correct, all_correct):
                spec = partial(spec, higher_is_better=self.higher_is_better, threshold=self.threshold)
        object.__setattr__(self, "repeat_aggregation", spec)

    @property
    def metric_name(self) -> str:
        """The name results are stored under."""
        return self.name

    @property
    def compute(self) -> MetricFunction:
        """The metric function, `fn`."""
        return self.fn

    @property
    def aggregation(self) -> Callable[..., float]:
        """The function over cases, `aggregation_fn`."""
        return self.aggregation_fn

    aggregate = aggregation

    def compute_metric(self, *args: Any, **kwargs: Any) -> Any:
        """Return what `fn` returns, with the configured settings and these on top."""
        return self.fn(*args, **{**self.kwargs, **kwargs})

    def compute_aggregation(self, values: Iterable[float | None]) -> float | None:
        """Return the value over cases; cases without a value are left out, and of none it is None."""
        known = [value for value in values if value is not None]
        return float(self.aggregation_fn(known)) if known else None

    def compute_repeat_aggregation(
        self,
        scores: Sequence[float | None],
        predictions: Sequence[object] | None = None,
        references: object = None,
        **kwargs: object,
    ) -> float | None:
        """Return the value of one case; repeats that were not graded are left out, and of none it is None.

        The aggregator gets `predictions`, `references` and further keywords as far as it names them.
        """
        if predictions is not None and len(predictions) != len(scores):
            raise InputError(f"metric {self.name}: {len(scores)} scores but {len(predictions)} predictions")
        kept = [index for index, score in enumerate(scores) if score is not None]
        if not kept:
            return None
        if predictions is not None:
            kwargs["predictions"] = [predictions[index] for index in kept]
        function = self.repeat_aggregation
        accepted = _accepted(function, {**kwargs, "references": references})
        return float(function([scores[index] for index in kept], **accepted))


def process_repeats(
    config: MetricConfig, predictions: Sequence[object], references: object, **fields: object
) -> dict[str, Any]:
    """Return the result of one case under one metric.

    `{name: value}`, and with more than one repeat also `name_repeats`, the scores in order. Numbers a metric
    returned beside its score are combined alike, under `name.key`. `references` is the reference of the
    case or a list of alternatives, for every repeat.

    >>> from kofn.metrics import Numeric
    >>> config = MetricConfig("exact_match", Numeric(), repeat_aggregation_fn="majority")
    >>> process_repeats(config, ["42", "43", "42", "42", "41"], "42")
    {'exact_match': 1.0, 'exact_match_repeats': [1.0, 0.0, 1.0, 1.0, 0.0]}
    """
    settings: dict[str, Any] = {"name": config.name, "higher_is_better": config.higher_is_better, **fields}
    outcomes = [grade(config.metric, prediction, references, **settings) for prediction in predictions]
    result: dict[str, Any] = {}
    by_name = {config.name: [outcome.value for outcome in outcomes]}
    for key in dict.fromkeys(key for outcome in outcomes for key in outcome.extra):
        by_name[key] = [outcome.extra.get(key) for outcome in outcomes]
    for name, scores in by_name.items():
        result[name] = config.compute_repeat_aggregation(scores, predictions, references)
        if len(scores) > 1:
            result[f"{name}_repeats"] = scores
    return result


def process_metrics(
    configs: Iterable[MetricConfig], predictions: Sequence[object], references: object, **fields: object
) -> dict[str, Any]:
    """Return the result of one case under several metrics; two that write the same key are an error.

    >>> process_metrics([MetricConfig("a"), MetricConfig("b")], [0.5], None)
    {'a': 0.5, 'b': 0.5}
    """
    result: dict[str, Any] = {}
    for config in configs:
        new = process_repeats(config, predictions, references, **fields)
        if clash := sorted(result.keys() & new.keys()):
            raise InputError(f"two metrics are named {clash[0]!r}: give each a name of its own")
        result |= new
    return result


def dataset_aggregate(results: Sequence[Mapping[str, Any]], configs: Iterable[MetricConfig]) -> dict[str, float | None]:
    """Return one number a metric over the results of all cases; the lists of repeats are never included.

    >>> dataset_aggregate([{"a": 1.0, "a_repeats": [1.0, 0.0]}, {"a": 0.0}], [MetricConfig("a")])
    {'a': 0.5}
    """
    by_name: dict[str, MetricConfig] = {}
    for config in configs:
        if config.name in by_name:
            raise InputError(f"two metrics are named {config.name!r}: give each a name of its own")
        by_name[config.name] = config
    totals: dict[str, float | None] = {}
    for key in dict.fromkeys([*by_name, *(key for result in results for key in result)]):
        # the metric that wrote it: its own name, or a part `name.key` of it
        owners = [name for name in by_name if key == name or key.startswith(f"{name}.")]
        if owners and (key in by_name or not key.endswith("_repeats")):
            owner = by_name[max(owners, key=len)]
            totals[key] = owner.compute_aggregation(result.get(key) for result in results)
    return totals


def _accepted(function: RepeatAggregator, offered: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords that `function` names, or all of them if it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C show no signature
        return {}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(offered)
    return {parameter.name: offered[parameter.name] for parameter in parameters if parameter.name in offered}


def _passes(values: Scores, higher_is_better: bool, threshold: float | None) -> Iterable[bool]:
    bar = float(higher_is_better) if threshold is None else threshold
    return (value >= bar if higher_is_better else value <= bar for value in values)
