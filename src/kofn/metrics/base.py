"""The `Metric` interface: traits, the stored name, the best match over several references, the default metrics."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeAlias

MetricFunction: TypeAlias = Callable[..., Any]

_METHODS = ("compute", "sentence_score")  # of `evaluate` modules, of sacrebleu's metrics

# what a plain function is taken for, where that is not what `Metric` says
_PLAIN_TRAITS = {"needs_reference": True, "handles_none": False}


class Metric:
    """Base of the built-in metrics: called `(prediction, reference) -> float | None`, with these traits.

    `higher_is_better`: which way is good. `uses`: whether it looks at the extracted answer or at the whole
    output. `needs_reference`: without a reference such a metric grades nothing (the value is None).
    `handles_none`: whether it is called when there is no answer; for the others no answer scores 0. `heavy`: it
    has `many(predictions, references, engine)`, which does them all on several processes. `reference_is`: what the
    reference must be, where that is not obvious. `extractor`: the default one. A plain function may carry the same
    traits as attributes; without them `trait` gives the defaults.
    """

    __slots__ = ()

    higher_is_better: ClassVar[bool] = True
    uses: ClassVar[Literal["answer", "text"]] = "answer"
    handles_none: ClassVar[bool] = True
    heavy: ClassVar[bool] = False
    reference_is: ClassVar[str] = ""
    extractor: ClassVar[str] = ""

    def __init_subclass__(cls, *, uses: Literal["answer", "text"] | None = None) -> None:
        super().__init_subclass__()
        cls.uses = uses or cls.uses

    @property
    def needs_reference(self) -> bool:
        """False for a metric that judges the output alone."""
        return True


class ReferenceMetric(Metric):
    """A metric that compares one text with one reference by `score`; of several references the best match counts."""

    __slots__ = ()

    def __call__(self, prediction: object, reference: object) -> float | None:
        return best_match(self.score, prediction, reference)

    @abstractmethod
    def score(self, prediction: str, reference: str) -> float | None:
        """The score against one reference; None where it cannot be told."""


def as_metric(thing: Any) -> Any:
    """Return the method of a metric object that scores, such as `compute` of an `evaluate` module.

    What can be called, and what has no such method, is returned as it is.

    >>> class Accuracy:
    ...     def compute(self, *, predictions=None, references=None): ...
    >>> metric_name(as_metric(Accuracy()))
    'accuracy'
    """
    if callable(thing):
        return thing
    return next((method for name in _METHODS if callable(method := getattr(thing, name, None))), thing)


def _wrapped(metric: object) -> object:
    """The object with the name and the traits: a partial's function, or the object of a scoring method."""
    function = getattr(metric, "func", metric)
    owner = getattr(function, "__self__", None)
    return owner if owner is not None and getattr(function, "__name__", "") in _METHODS else function


def trait(metric: object, name: str) -> Any:
    """Return a trait of `metric`, or the default that a plain function gets.

    >>> trait(len, "higher_is_better"), trait(len, "uses"), trait(len, "handles_none")
    (True, 'answer', False)
    """
    default = _PLAIN_TRAITS[name] if name in _PLAIN_TRAITS else getattr(Metric, name)
    return getattr(_wrapped(metric), name, default)


def metric_name(metric: object) -> str:
    """Return the stored name of a metric: snake case, with the settings that differ from the default.

    >>> from kofn.metrics import ExactMatch
    >>> metric_name(ExactMatch()), metric_name(ExactMatch(ignore_case=True))
    ('exact_match', 'exact_match(ignore_case=True)')
    >>> def accuracy(prediction, reference): ...
    >>> metric_name(accuracy)
    'accuracy'
    """
    function = _wrapped(metric)
    own_name = getattr(function, "__name__", None)
    if hasattr(getattr(metric, "func", metric), "__self__"):  # an `evaluate` module has its name as an attribute
        own_name = getattr(function, "name", own_name)
    if isinstance(own_name, str) and own_name:
        return own_name
    base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(function).__name__).lower()
    settings = ", ".join(_changed_settings(function))
    return f"{base}({settings})" if settings else base


def _changed_settings(metric: object) -> Iterable[str]:
    if not is_dataclass(metric) or isinstance(metric, type):
        return
    for item in fields(metric):
        value = getattr(metric, item.name)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if value != default:
            yield f"{item.name}={value!r}"


def text_of(value: object) -> str:
    """Return a prediction or a reference as text; numbers are written as Python writes them.

    >>> text_of(42), text_of("C")
    ('42', 'C')
    """
    return value if isinstance(value, str) else str(value)


def references_of(reference: object) -> list[Any]:
    """Return the references as a list: one stays one, several are kept, None counts as none given.

    >>> references_of("a"), references_of(["a", None, "b"]), references_of(None)
    (['a'], ['a', 'b'], [])
    """
    if reference is None:
        return []
    if isinstance(reference, (str, bytes, Mapping)) or not isinstance(reference, Iterable):
        return [reference]
    return [item for item in reference if item is not None]


def best_match(score: Callable[[str, str], float | None], prediction: object, reference: object) -> float | None:
    """Return the highest score of `prediction` over its references.

    No answer scores 0; no reference is nothing to compare with, so the value is None (not graded).

    >>> best_match(lambda a, b: float(a == b), "b", ["a", "b"])
    1.0
    >>> best_match(lambda a, b: float(a == b), None, "a")
    0.0
    >>> best_match(lambda a, b: float(a == b), "b", []) is None
    True
    """
    references = references_of(reference)
    if not references:
        return None
    if prediction is None:
        return 0.0
    text = text_of(prediction)
    scores = [score(text, text_of(item)) for item in references]
    return max((value for value in scores if value is not None), default=None)


def default_metric(extractor_name: str) -> str:
    """Return the name of the metric that compares what an extractor finds.

    Numbers are compared as values, letters as options, boxed answers as mathematics, labelled words as phrases,
    anything else as text.

    >>> default_metric("number"), default_metric("letter_first"), default_metric("last_line")
    ('numeric', 'choice', 'exact_match')
    """
    kind = extractor_name.split("(")[0].split("_")[0]
    if kind == "labelled":
        return "text_equal"
    if kind in ("math", "boxed"):
        return "math_equal"
    return {"number": "numeric", "letter": "choice"}.get(kind, "exact_match")
