"""Inspect: aggregators as reducers of its epochs.

    from kofn.integrations.inspect_ai import reducer
    Task(..., epochs=Epochs(5, [reducer("majority"), reducer("pass@3")]))

or by name, once this module is imported (Inspect imports it itself where kofn is installed): `kofn/majority`,
`kofn/pass_at_3`. Numbers are those of `kofn score` on the log, for they are made by the same code.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kofn.core.numbers import canonical_number
from kofn.errors import InputError, MissingExtra
from kofn.registry import AGGREGATORS, aggregator, named_object
from kofn.scoring.groupwise import aggregate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.aggregators.base import Aggregator

_PROVIDED = {"answers"}  # columns that a reducer gets beside values: no texts, no selector scores
_LOG = logging.getLogger(__name__)
_COUNTS = {"at_least": "m"}  # the parameter that the 3 of Inspect's `name_3` sets, where it is not k


def reducer(spec: str | Callable[..., Any]) -> Any:
    """An Inspect score reducer from an aggregator: a name, a spec such as "pass@5", or a function of one set.

    Values are converted as Inspect converts them (C, I, P, N are 1, 0, 0.5, 0); votes are over `Score.answer`. Values
    that are dicts or lists are reduced by key and by place. What an aggregator leaves undefined (pass@5 of 3 scores)
    is NaN, Inspect's word for unscored: the sample is left out of its metrics and counted in `unscored_samples`.
    """
    rule = aggregator(spec)
    name, count = _name(rule)
    make = _register(name, rule)
    return make() if count is None else make(k=count)


def _name(rule: Aggregator) -> tuple[str, int | None]:
    """The name of an aggregator in Inspect's registry, and the count that Inspect writes after it.

    >>> from kofn.registry import aggregator
    >>> _name(aggregator("pass@5")), _name(aggregator("majority(ties='score')"))
    (('kofn/pass_at', 5), ('kofn/majority_ties_score', None))
    """
    if rule.label == "per_set":
        return f"kofn/{re.sub(r'[^0-9A-Za-z_]+', '_', rule.name).strip('_')}", None
    changed = {f.name: getattr(rule, f.name) for f in fields(rule) if getattr(rule, f.name) != f.default}  # type: ignore[arg-type]  # aggregators are dataclasses
    count = changed.pop(_COUNTS.get(rule.label, "k"), None)
    words = [rule.label, *(f"{name}_{value}" for name, value in changed.items())]
    return f"kofn/{'_'.join(words)}", count


def _register(name: str, rule: Aggregator | None) -> Callable[..., Any]:
    """Put a maker of reducers under this name in Inspect's registry; `name_5` calls it with k=5.

    Without a rule the name is a built-in's, which is made when asked for.
    """
    if find_spec("inspect_ai") is None:
        raise MissingExtra("inspect-ai", "inspect", "a reducer of Inspect's epochs")
    from inspect_ai.scorer import score_reducer

    counted = _COUNTS.get(name.removeprefix("kofn/"), "k")

    def make(k: int | None = None) -> Callable[[list[Any]], Any]:
        if rule is not None and (k is None or getattr(rule, counted, None) == k):
            return _reduction(rule)
        parameters = "" if k is None else f"({counted}={k!r})"
        return _reduction(aggregator(f"{name.removeprefix('kofn/')}{parameters}"))

    registered: Callable[..., Any] = score_reducer(name=name)(make)
    return registered


def _reduction(rule: Aggregator) -> Callable[[list[Any]], Any]:
    """The scores of one sample's epochs -> one score."""
    if missing := set(rule.needs) - _PROVIDED:
        raise InputError(
            f"reducer {rule.name}: it needs {', '.join(sorted(missing))} of each candidate and Inspect hands a reducer "
            "values and answers: run `kofn score LOG` instead"
        )
    from inspect_ai.scorer import Score, value_to_float

    to_float, votes = value_to_float(), "answers" in rule.needs

    def reduce(scores: list[Score]) -> Score:
        shape = next((s.value for s in scores if not _is_nan(s.value)), math.nan)
        # as votes compare them: numbers by value, other text trimmed; None where it is empty
        texts = [score.answer for score in scores]
        answers = [None if text is None else canonical_number(text) or text.strip() or None for text in texts]
        if votes and not any(answers):
            _LOG.warning("%s: no score of a sample has an answer, so nobody votes: does this scorer give any?", rule)

        def of(values: Sequence[Any]) -> float:
            floats = [math.nan if v is None or _is_nan(v) else to_float(v) for v in values]
            numbers = [number if math.isfinite(number) else None for number in floats]
            found = aggregate(rule, values=numbers, answers=answers)
            return math.nan if found is None else found

        value: Any
        if isinstance(shape, dict):
            keys = dict.fromkeys(key for s in scores if isinstance(s.value, dict) for key in s.value)
            value = {key: of([_at(s.value, key) for s in scores]) for key in keys}
        elif isinstance(shape, list):
            value = [of([_at(s.value, place) for s in scores]) for place in range(len(shape))]
        else:
            value = of([s.value for s in scores])
        same: dict[str, Any] = {}
        for name in ("answer", "explanation"):
            texts = [getattr(score, name) for score in scores]
            same[name] = texts[0] if texts and all(text == texts[0] for text in texts) else None
        return Score(value=value, **same, metadata=scores[0].metadata if scores else None)

    return reduce


def _at(value: Any, key: Any) -> Any:
    """A part of a dict or list value; None where a score is not of that shape or lacks it: not graded."""
    if isinstance(value, dict):
        return value.get(key)
    return value[key] if isinstance(value, list) and isinstance(key, int) and key < len(value) else None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# Inspect loads this module by its entry point and expects the names to be registered afterwards
if find_spec("inspect_ai") is not None:
    for label, target in AGGREGATORS.items():
        # every built-in one that needs no more than values and answers
        if not set(named_object(target, "aggregator").needs) - _PROVIDED:
            _register(f"kofn/{label}", None)
