"""Calls any callable as a metric, turns whatever it returns into an `Outcome`, and scores whole columns at once.

Columns of millions of rows need no Python call per row; every path gives what calling the metric on each pair gives.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.numbers import canonical_number
from kofn.errors import CallFailed, InputError
from kofn.metrics.base import Metric, metric_name, references_of, trait
from kofn.metrics.numeric import Numeric
from kofn.metrics.text_match import WHITESPACE, WRAPPING, Choice, ExactMatch

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from kofn.metrics.base import MetricFunction

# Parameter names by which libraries mean all predictions of a data set, one prediction, several references of one
# prediction, and so on: evaluate and torchmetrics (predictions, preds), sacrebleu (hypotheses), scikit-learn (y_pred).
_ALL_PREDICTIONS = frozenset(
    [
        *("predictions", "preds", "answers", "outputs", "responses", "completions", "hypotheses", "hyps"),
        *("candidates", "y_pred"),
    ]
)
_PREDICTION_NAMES = _ALL_PREDICTIONS | frozenset(
    ["prediction", "pred", "answer", "output", "response", "completion", "hypothesis", "candidate", "actual"]
)
_SEVERAL = frozenset(["references", "refs", "targets", "golds", "labels", "ground_truths"])
_ALL_REFERENCES = _SEVERAL | {"y_true"}
_REFERENCE_NAMES = _ALL_REFERENCES | frozenset(
    ["reference", "ref", "target", "gold", "label", "ground_truth", "expected", "truth"]
)
_NESTED = re.compile(
    r"\b(?:Sequence|List|list|Iterable|Collection)\[(?:\w+\.)*(?:Sequence|List|list|Iterable|Collection)\["
)
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one metric on one candidate: `value` (None: not graded), and other numbers by full name.

    `taken` is the entry of a mapping that is the value, where none has the name of the metric.
    """

    value: float | None
    extra: Mapping[str, float] = field(default_factory=dict)
    taken: str | None = field(default=None, compare=False, repr=False)


class FirstEntryWarning(UserWarning):
    """A metric returned a mapping without an entry of its name: the first entry is the score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStyle:
    """How a metric takes its arguments; decided once from its signature.

    `by_list`: the predictions and references of a whole dataset, so it gets lists of one. `by_keyword`: as
    `predictions=` and `references=`. `nested`: each reference is a list itself. `swapped`: the reference goes
    first. `takes_several`: its reference is the list of all. `accepts`: the further fields it names, of which it
    cannot do without those in `requires`.
    """

    by_list: bool = False
    by_keyword: bool = False
    nested: bool = False
    swapped: bool = False
    takes_several: bool = False
    accepts: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()


def normalise(result: object, name: str) -> Outcome:
    """Return what a metric returned as one number, and the numbers beside it.

    A number or bool is the value. Of a mapping the entry called `name` is, or else the first one, with a
    warning that says which; the other numbers are kept as `name.key`, and entries that are no numbers (an
    explanation, a list of precisions) are notes, not scores. None is not graded. NumPy scalars, containers of
    one number and objects with a number as `score` count as that number. Anything else is an error.

    >>> normalise({"f1": 0.8, "recall": 0.6}, "f1")
    Outcome(value=0.8, extra={'f1.recall': 0.6})
    >>> normalise(True, "m").value, normalise(None, "m").value
    (1.0, None)
    >>> normalise("yes", "m")
    Traceback (most recent call last):
    kofn.errors.InputError: metric m returned 'yes': it must return a number, a bool or a mapping to numbers
    """
    if result is None:
        return Outcome(value=None)
    if not isinstance(result, Mapping):
        return Outcome(value=_required_number(result, name))
    key, is_named = _score_key(result, name)
    value = _required_number(result[key], name, key)
    others = {other: _number(entry) for other, entry in result.items() if other != key}
    for other, number in others.items():
        if number is not None and not math.isfinite(number):
            raise InputError(f"metric {name} returned {number} for {other!r}: a score must be finite")
    extra = {f"{name}.{other}": n for other, n in others.items() if n is not None}
    return Outcome(value=value, extra=extra, taken=None if is_named else str(key))


def call_metric(metric: MetricFunction, prediction: object, reference: object, **fields: object) -> Any:
    """Return what `metric` returns for one prediction, called the way its signature asks for.

    With parameters `predictions` and `references`: by keyword, each in a list of one. With other names in the plural
    for both, or `y_true, y_pred`: in lists of one, in their order. With names that say the reference comes first: in
    that order. Otherwise `(prediction, reference)`. Of `fields` (`choices`, say) it gets those that it names.

    >>> call_metric(lambda prediction, reference: prediction == reference, "a", "a")
    True
    >>> call_metric(lambda references, predictions: (references, predictions), "p", "r")
    (['r'], ['p'])
    >>> call_metric(lambda y_true, y_pred: (y_true, y_pred), "p", "r")
    (['r'], ['p'])
    >>> call_metric(lambda gold, pred: f"{pred} for {gold}", "p", "r")
    'p for r'
    """
    style = call_style(metric)
    further = {key: value for key, value in fields.items() if key in style.accepts}
    if missing := sorted(style.requires - further.keys()):
        name = metric_name(metric)
        raise InputError(f"metric {name} asks for {missing[0]!r}: it must take (prediction, reference)")
    if style.by_list:
        prediction, reference = [prediction], [[reference] if style.nested else reference]
    if style.by_keyword:
        return metric(predictions=prediction, references=reference, **further)
    if style.swapped:
        return metric(reference, prediction, **further)
    return metric(prediction, reference, **further)


def grade(
    metric: MetricFunction,
    prediction: object,
    reference: object,
    *,
    name: str = "",
    higher_is_better: bool | None = None,
    **fields: object,
) -> Outcome:
    """Return the normalised outcome of one metric on one prediction.

    Of several references the best match counts, unless the metric takes `(prediction, references)`, in the
    plural, and so gets the list of them all. No answer scores the worst of the unit range without a call, unless
    the metric handles it (`handles_none`): 0, or 1 where lower is better. No reference is not graded if the metric
    needs one. Which way is better is the metric's own `higher_is_better` unless given.

    >>> grade(lambda prediction, reference: prediction == reference, "b", ["a", "b"], name="same")
    Outcome(value=1.0, extra={})
    """
    name = name or metric_name(metric)
    references = references_of(reference)
    if not references and trait(metric, "needs_reference"):
        return Outcome(value=None)
    higher = trait(metric, "higher_is_better") if higher_is_better is None else higher_is_better
    if prediction is None and not trait(metric, "handles_none"):
        return Outcome(value=0.0 if higher else 1.0)
    items = [references] if call_style(metric).takes_several else references or [None]
    outcomes = [normalise(_call_named(metric, name, prediction, item, **fields), name) for item in items]
    graded = [outcome for outcome in outcomes if outcome.value is not None]
    choose = max if higher else min
    return choose(graded, key=lambda outcome: outcome.value or 0.0, default=Outcome(value=None))


def _call_named(metric: MetricFunction, name: str, prediction: object, reference: object, **fields: object) -> Any:
    """The metric's result; an exception becomes an error with the metric's name and its arguments."""
    try:
        return call_metric(metric, prediction, reference, **fields)
    except InputError:
        raise
    except Exception as problem:
        arguments = f"{prediction!r:.40} against {reference!r:.40}"
        raise CallFailed(f"metric {name} failed on {arguments}: {type(problem).__name__}: {problem}") from problem


def score_answers(
    metric: MetricFunction,
    predictions: Sequence[object],
    references: Sequence[object],
    *,
    name: str = "",
    **columns: Sequence[object],
) -> list[Outcome]:
    """Return one outcome per prediction, each distinct (prediction, reference) pair graded once.

    `columns` hold one further field per row, such as `choices`. A metric that answers differently to the
    same question, such as a judge, does not belong here.

    >>> [o.value for o in score_answers(lambda p, r: p == r, ["1", "2", None], ["1", "1", "1"], name="same")]
    [1.0, 0.0, 0.0]
    """
    for what, column in {"references": references, **columns}.items():
        if len(column) != len(predictions):
            raise InputError(f"{len(predictions)} predictions but {len(column)} {what}: give one each")
    name = name or metric_name(metric)
    accepted = {key: column for key, column in columns.items() if key in call_style(metric).accepts}
    memo: dict[Hashable, Outcome] = {}
    outcomes = []
    rows = zip(predictions, references, *accepted.values(), strict=True)
    for row, (prediction, reference, *values) in enumerate(rows):
        key = _memo_key((prediction, reference, *values))
        outcome = memo.get(key) if key is not None else None
        if outcome is None:
            further = dict(zip(accepted, values, strict=True))
            try:
                outcome = grade(metric, prediction, reference, name=name, **further)
            except CallFailed as problem:
                raise CallFailed(str(problem), row) from problem.__cause__
        if key is not None:
            memo[key] = outcome
        outcomes.append(outcome)
    return outcomes


def call_style(metric: MetricFunction) -> CallStyle:
    """Return how `metric` is called; an error names the metric that cannot take two arguments.

    >>> call_style(lambda prediction, references: 1.0).takes_several
    True
    """
    try:
        return _cached_style(metric)
    except TypeError:  # unhashable, so not cached; InputError is no TypeError
        return _style(metric)


def _style(metric: MetricFunction) -> CallStyle:
    if not callable(metric):
        raise InputError(f"a metric must be callable, not {metric!r}")
    try:
        signature = inspect.signature(metric)
    except ValueError:  # some functions written in C show no signature
        return CallStyle()
    keywords = {p.name: p for p in signature.parameters.values() if p.kind in _BY_KEYWORD}
    if {"predictions", "references"} <= keywords.keys():
        nested = _is_nested(keywords["references"])
        return CallStyle(
            by_list=True, by_keyword=True, nested=nested, **_fields(keywords, ("predictions", "references"))
        )
    try:
        bound = signature.bind_partial(None, None)
    except TypeError:
        raise InputError(f"metric {metric_name(metric)}{signature} must take (prediction, reference)") from None
    names = [*bound.arguments, "", ""][:2]
    swapped = names[0] in _REFERENCE_NAMES and names[1] in _PREDICTION_NAMES
    theirs, ours = (names[0], names[1]) if swapped else (names[1], names[0])
    fields = _fields(keywords, names)
    if ours in _ALL_PREDICTIONS and theirs in _ALL_REFERENCES:
        return CallStyle(by_list=True, nested=_is_nested(signature.parameters[theirs]), swapped=swapped, **fields)
    return CallStyle(swapped=swapped, takes_several=theirs in _SEVERAL, **fields)


_cached_style = lru_cache(maxsize=512)(_style)


def _is_nested(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is declared as lists of lists, as the references of sacrebleu's corpus functions are."""
    return _NESTED.search(str(parameter.annotation)) is not None


def _fields(keywords: Mapping[str, inspect.Parameter], taken: Sequence[str]) -> dict[str, Any]:
    others = [parameter for name, parameter in keywords.items() if name not in taken]
    required = (parameter.name for parameter in others if parameter.default is parameter.empty)
    return {"accepts": frozenset(p.name for p in others), "requires": frozenset(required)}


def _score_key(result: Mapping[Any, object], name: str) -> tuple[Any, bool]:
    """The entry that is the score, and whether it has the name of the metric."""
    if not result:
        raise InputError(f"metric {name} returned an empty mapping: it must hold a number")
    base = name.split("(")[0]
    for key in (name, base):
        if key in result:
            return key, True
    first = next(iter(result))
    keys = ", ".join(map(repr, result))
    warnings.warn(
        f"metric {name} returned {keys}: the first, {first!r}, is taken as the score",
        FirstEntryWarning,
        stacklevel=4,  # the caller of `grade`
    )
    return first, False


def _required_number(value: object, name: str, key: object = None) -> float:
    number = _number(value)
    where = f" for {key!r}" if key is not None else ""
    if number is None:
        short = " ".join(repr(value).split())[:80]
        raise InputError(
            f"metric {name} returned {short}{where}: it must return a number, a bool or a mapping to numbers"
        )
    if not math.isfinite(number):
        raise InputError(f"metric {name} returned {number}{where}: a score must be finite (None is not graded)")
    return number


def _number(value: object) -> float | None:
    """Return the number that `value` is or holds alone, else None."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    value = getattr(value, "score", value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", 1) == 1:
        value = item()
    if not isinstance(value, (Real, Decimal)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _memo_key(parts: Sequence[object]) -> Hashable | None:
    key = tuple(_typed(parts))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _typed(parts: Sequence[object]) -> Iterator[tuple[type, object]]:
    """Yield each part with its type: 1, 1.0 and True are equal keys but different texts."""
    for part in parts:
        if isinstance(part, (list, tuple)):
            yield type(part), tuple(_typed(part))
        else:
            yield type(part), part


# Numbers already in their canonical spelling, for which equal text means equal value. Longer ones are left to Python's
# exact decimals.
_CANONICAL = r"^(?:0|-?[1-9][0-9]{0,17}|-?(?:0|[1-9][0-9]{0,17})\.[0-9]{0,17}[1-9])$"
# The commonest other spellings, $1,234.50 and 29.00, which two replacements make canonical.
_GROUPED = r"^(?:\$|-)?(?:[0-9]{1,3}(?:,[0-9]{3}){0,5}|[0-9]{1,17})(?:\.[0-9]{1,17})?$"
_FINAL_ZEROS = r"\.0+$|(\.[0-9]*[1-9])0+$"
_PERCENT = "[%％٪]"


def score_column(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Return one score per row, as Float64: null where the row has no reference (or was not graded).

    `references` holds text, or lists of text of which the best match counts. `ExactMatch()`, `Numeric()` and
    `Choice()` run as polars expressions; any other metric is called once per distinct pair. Numbers a metric
    returns beside its score are in `score_answers`, not here.

    >>> import polars as pl
    >>> score_column(Numeric(), pl.Series(["42.0", None, "7"]), pl.Series(["42", "42", None])).to_list()
    [1.0, 0.0, None]
    """
    if len(answers) != len(references):
        raise InputError(f"{len(answers)} answers but {len(references)} references: give one each")
    # the type of a column of nulls alone is not known: it is taken for text
    answers, references = (c.cast(pl.String) if c.dtype == pl.Null else c for c in (answers, references))
    # by the contract of `Metric` the score over a list of references is then the best over each
    columnar = _is_ours(metric) and trait(metric, "needs_reference") and not call_style(metric).takes_several
    if not columnar or answers.dtype != pl.String:
        return _by_pair(metric, answers, references)
    if references.dtype == pl.List(pl.String):
        return _best_of_lists(metric, answers, references)
    if references.dtype != pl.String:
        return _by_pair(metric, answers, references)
    return _score_text(metric, answers, references)


def _is_ours(metric: object) -> bool:
    return isinstance(metric, Metric)


def _score_text(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    # an expression scores the rows that it can decide and leaves the rest null
    fast_path = next((expression for plain, expression in _EXPRESSIONS if metric == plain), None)
    if fast_path is None:
        return _by_pair(metric, answers, references)
    scores = fast_path(answers, references)
    open_rows = (scores.is_null() & references.is_not_null()).arg_true()
    if len(open_rows) == 0:
        return scores
    scored = _by_pair(metric, answers.gather(open_rows), references.gather(open_rows))
    return scores.scatter(open_rows, scored)


def _exact_scores(answers: pl.Series, references: pl.Series) -> pl.Series:
    answer, reference = (pl.col(name).str.strip_chars(WHITESPACE) for name in ("answer", "reference"))
    return _select(answers, references, _graded((answer == reference).fill_null(value=False)))


def _numeric_scores(answers: pl.Series, references: pl.Series) -> pl.Series:
    """Equal canonical texts are equal values; a percentage also equals its share, so it is left undecided."""
    values = _frame(_canonical_numbers(answers), _canonical_numbers(references))
    equal = values.select(pl.col("answer") == pl.col("reference")).to_series()
    percent = answers.str.contains(_PERCENT) | references.str.contains(_PERCENT)
    undecided = equal.not_() & percent
    scores = pl.when(undecided.fill_null(value=False)).then(None).otherwise(equal.fill_null(value=False))
    return _select(answers, references, _graded(scores))


def _choice_scores(answers: pl.Series, references: pl.Series) -> pl.Series:
    answer, reference = (_label(pl.col(name)) for name in ("answer", "reference"))
    no_answer = pl.col("answer").is_null()
    return _select(answers, references, _graded(pl.when(no_answer).then(False).otherwise(answer == reference)))


def _label(column: pl.Expr) -> pl.Expr:
    """The label of a text that is one, else null."""
    bare = column.str.strip_chars(WRAPPING)
    return pl.when(bare.str.contains("^[A-Za-z0-9]$")).then(bare.str.to_uppercase())


def _canonical_numbers(texts: pl.Series) -> pl.Series:
    """Return the canonical text of each number, null for other texts; each odd spelling is parsed once."""
    plain = texts.str.contains(_CANONICAL).fill_null(value=False)
    spelled = texts.filter(~plain).drop_nulls().unique()
    canonical = texts.replace_strict(spelled, _parsed(spelled), default=None, return_dtype=pl.String)
    return texts.zip_with(plain, canonical)


def _parsed(texts: pl.Series) -> pl.Series:
    text = pl.col("text")
    tidied = text.str.replace_all("[$,]", "").str.replace(_FINAL_ZEROS, "$1")
    simple = text.str.contains(_GROUPED) & tidied.str.contains(_CANONICAL)
    numbers = pl.DataFrame({"text": texts}).select(pl.when(simple).then(tidied)).to_series()
    rest = numbers.is_null().arg_true()
    parsed = [canonical_number(text) for text in texts.gather(rest).to_list()]
    return numbers.scatter(rest, pl.Series(parsed, dtype=pl.String))


def _best_of_lists(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Score each (answer, reference) pair of each row, then take the best of the row."""
    frame = _frame(answers, references).with_row_index("row").filter(pl.col("reference").list.len() > 0)
    pairs = frame.explode("reference")
    scores = _score_text(metric, pairs["answer"], pairs["reference"])
    column = pl.col("score")
    best = column.max() if trait(metric, "higher_is_better") else column.min()
    found = pairs.select("row", score=scores).group_by("row", maintain_order=True).agg(best)
    empty = pl.Series([None], dtype=pl.Float64).new_from_index(0, len(answers))
    return empty.scatter(found["row"], found["score"])


def _by_pair(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Call the metric once per distinct (answer, reference) pair."""
    if not trait(metric, "needs_reference"):
        references = pl.Series([None], dtype=pl.String).new_from_index(0, len(answers))
    if references.dtype.is_nested():
        return _graded_rows(metric, answers, references)
    frame = _frame(answers, references)
    distinct = frame.unique()
    score = _call_each if _is_ours(metric) else _graded_rows
    distinct = distinct.with_columns(score(metric, distinct["answer"], distinct["reference"]))
    keys = ["answer", "reference"]
    return frame.join(distinct, on=keys, how="left", nulls_equal=True, maintain_order="left")["score"]


def _call_each(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    """Call a metric that handles missing answers and references itself, as every `Metric` does."""
    values = [metric(*pair) for pair in zip(answers.to_list(), references.to_list(), strict=True)]
    return pl.Series("score", values, dtype=pl.Float64)


def _graded_rows(metric: MetricFunction, answers: pl.Series, references: pl.Series) -> pl.Series:
    outcomes = score_answers(metric, answers.to_list(), references.to_list())
    return pl.Series("score", [outcome.value for outcome in outcomes], dtype=pl.Float64)


def _graded(scores: pl.Expr) -> pl.Expr:
    """Make scores of booleans, null where there is no reference."""
    return pl.when(pl.col("reference").is_not_null()).then(scores.cast(pl.Float64))


def _select(answers: pl.Series, references: pl.Series, scores: pl.Expr) -> pl.Series:
    return _frame(answers, references).select(score=scores).to_series()


def _frame(answers: pl.Series, references: pl.Series) -> pl.DataFrame:
    return pl.DataFrame({"answer": answers, "reference": references})


_EXPRESSIONS = ((ExactMatch(), _exact_scores), (Numeric(), _numeric_scores), (Choice(), _choice_scores))
