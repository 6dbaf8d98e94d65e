"""Extracts an answer from every output, scores it, and builds the candidate sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.candidate_sets import CandidateSets, passes_of
from kofn.core.numbers import canonical_number
from kofn.errors import InputError
from kofn.extract import choose_extractor, extract_column, none
from kofn.metrics import Metric, Numeric, Outcome, default_metric, metric_name, score_answers, score_column, trait
from kofn.metrics.outcomes import FirstEntryWarning
from kofn.registry import extractor, metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table

_SAMPLE = 400  # values by which an extractor is chosen
# canonical already, as most answers are: these need no parsing
_PLAIN_NUMBER = r"^(?:0|-?[1-9][0-9]{0,17})$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answer of every candidate: where it came from and why that way."""

    column: pl.Series | None
    extractor: str | None
    reason: str
    n: int = 0
    n_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSets:
    """The sets under one metric. `beside_labels`: only its values are news, its passes are the labels'.

    `notes`: what was noticed while grading.
    """

    metric: str
    sets: CandidateSets
    source: str
    beside_labels: bool = False
    notes: tuple[str, ...] = ()


def find_answers(table: Table, extract: str | Callable[..., Any] | None) -> Answers:
    """Extract answers; without an extractor take the file's own answers, else choose one from what is there.

    With `none` there are no answers, which is not the same as outputs that fail to give one.
    """
    if extract is not None and extractor(extract) is none:
        return Answers(column=None, extractor=None, reason="none are looked for")

    rows = table.candidates
    if extract is None and "answer" in rows.columns:
        given = _canonicalize(rows["answer"])
        reason = f"given in `{table.fields['answer']}`"
        return Answers(column=given, extractor=None, reason=reason, n=len(given), n_failed=given.null_count())
    if "text" not in rows.columns:
        if extract is not None:
            raise InputError(f"nothing to extract from: {_source(table)} has no texts")
        return Answers(column=None, extractor=None, reason="no texts and no answers")
    reason = "asked for"
    if extract is None:
        choice = choose_extractor(_references(table), _sample(rows["text"]), "choices" in table.cases.columns)
        extract, reason = choice.name, choice.reason
    name = (
        extract if isinstance(extract, str) else f"{extract.__module__}:{getattr(extract, '__name__', repr(extract))}"
    )
    column = extract_column(extractor(extract), rows["text"], choices_of(table))
    # a failed call has no text: it is no output in which an answer could be missing
    no_output = rows["text"].null_count()
    return Answers(
        column=column,
        extractor=name,
        reason=reason,
        n=len(column) - no_output,
        n_failed=column.null_count() - no_output,
    )


def score_table(
    table: Table,
    answers: Answers,
    metrics: Sequence[str | Callable[..., Any]],
    threshold: float | None,
    engine: Any = None,
    *,
    whole: bool = True,
) -> list[ScoredSets]:
    """The sets of every metric: those asked for, else the file's labels and scores, else the default metric.

    `engine` is where heavy metrics and functions of the user's own are called; None: the latter right here. Scores
    that are the labels again say nothing new and are left out, unless the table is not the `whole`: then others may
    differ.
    """
    if metrics:
        of_file = {s.metric: s for s in _stored_grades(table, answers, threshold, whole=whole)}
        return _unique_names(
            [
                scored
                for metric in metrics
                for scored in (
                    [of_file[metric]]
                    if isinstance(metric, str) and metric in of_file
                    else _score_by_metric(table, answers, metric, threshold, engine)
                )
            ]
        )
    found = _stored_grades(table, answers, threshold, whole=whole)
    if not found and answers.column is not None and "reference" in table.candidates.columns:
        found = _score_by_metric(
            table, answers, default_metric(answers.extractor or _kind_of(answers.column)), threshold
        )
    return found


def _stored_grades(table: Table, answers: Answers, threshold: float | None, *, whole: bool) -> list[ScoredSets]:
    """What the file itself says: its labels as metric `pass`, its scores as metric `score`, a log's grades by name."""
    rows = table.candidates
    found: list[ScoredSets] = []
    if "passed" in rows.columns:
        flags = rows["passed"].cast(pl.Float64).to_numpy()
        found.append(
            ScoredSets(
                metric="pass",
                sets=_sets(table, answers, flags, passes_of(flags)),
                source=table.fields["passed"],
            )
        )
    if "score" in rows.columns:
        values = rows["score"].to_numpy()
        passes = found[0].sets.passes if found and threshold is None else passes_of(values, threshold)
        # with labels the passes are theirs; a threshold says that the scores decide
        labelled = bool(found) and threshold is None
        if not (whole and labelled and np.array_equal(values, found[0].sets.values, equal_nan=True)):
            sets = _sets(table, answers, values, passes)
            found.append(ScoredSets(metric="score", sets=sets, source=table.fields["score"], beside_labels=labelled))
    for name, better in table.labels.items():
        values = rows[f"label.{name}"].to_numpy()
        passes = passes_of(values, threshold, better)
        sets = _sets(table, answers, values, passes, higher_is_better=better)
        found.append(ScoredSets(metric=name, sets=sets, source=table.fields.get(f"label.{name}", name)))
    return found


def unlabelled_sets(table: Table, answers: Answers) -> CandidateSets:
    """The sets without any score: for agreement and diversity."""
    nothing = np.full(table.n_candidates, np.nan)
    return _sets(table, answers, nothing, passes_of(nothing))


def stored_sets(table: Table, values: Floats, passes: Any, *, higher_is_better: bool) -> CandidateSets:
    """The sets of a run that was stored: its answers, values and passes are columns by now."""
    column = table.candidates["answer"] if "answer" in table.candidates.columns else None
    answers = Answers(column=column, extractor=None, reason="stored")
    return _sets(table, answers, values, passes, higher_is_better=higher_is_better)


def _score_by_metric(
    table: Table, answers: Answers, spec: str | Callable[..., Any], threshold: float | None, engine: Any = None
) -> list[ScoredSets]:
    """The sets of one metric, and of what else it returned (`name.key`)."""
    function = metric(spec)
    name = spec if isinstance(spec, str) and ":" not in spec else metric_name(function)
    predictions = _predictions(table, answers, trait(function, "uses"), name)
    references = table.candidates["reference"] if "reference" in table.candidates.columns else None
    if references is None:
        if trait(function, "needs_reference"):
            what = f"metric {name} compares with a reference and {_source(table)} has none"
            raise InputError(f"{what}: {hint}" if (hint := trait(function, "reference_is")) else what)
        references = pl.Series("reference", [None] * len(predictions), dtype=pl.String)
    if trait(function, "uses") == "answer":
        references = reference_answers(references, answers.extractor)
    better = bool(trait(function, "higher_is_better"))
    ungraded = _missing_outputs(table, answers)
    source = "reference" if references.null_count() < len(references) else "text"
    notes: list[str] = []
    columns = _columns(spec, name, predictions, references, answers.extractor, engine, notes)
    return [
        ScoredSets(
            metric=found,
            sets=_sets(table, answers, values, passes_of(values, threshold, better), higher_is_better=better),
            source=source,
            notes=tuple(notes) if found == name else (),
        )
        for found, raw in columns.items()
        for values in [raw if ungraded is None else np.where(ungraded, np.nan, raw)]
    ]


def _missing_outputs(table: Table, answers: Answers) -> Any:
    """Candidates there is no output of (a failed call): not graded, which is not the same as no answer."""
    rows = table.candidates
    # a constant series of the length of the table
    missing = pl.Series([False]).new_from_index(0, rows.height)
    if "error" in rows.columns:
        missing = missing | rows["error"].is_not_null()
    if "text" in rows.columns and answers.extractor is not None:
        missing = missing | rows["text"].is_null()
    return missing.to_numpy() if missing.any() else None


def reference_answers(references: pl.Series, extractor_name: str | None) -> pl.Series:
    """References given as whole solutions ("... #### 18") reduced to their answer, by the same extractor."""
    if extractor_name is None or references.dtype != pl.String:
        return references
    kind = extractor_name.partition("(")[0]
    if kind not in ("number", "math", "boxed"):
        return references

    find = extractor(extractor_name)
    # a percentage keeps its sign, for it also equals its share
    others = references.filter(~references.str.contains(_PLAIN_NUMBER) & ~references.str.ends_with("%")).unique()
    # a solution ends in "#### 18" or \boxed{18}, or has words around spaces; "1 234" alone has not
    solutions = others.str.contains(r"####|\\boxed|\s\S+\s").to_list()
    pairs = zip(others.to_list(), solutions, strict=True)
    whole = [canonical_number(r) or (find(r) if solution else None) or r for r, solution in pairs]
    return references.replace(others, pl.Series(whole, dtype=pl.String)) if len(others) else references


def _outcomes(
    engine: Any, spec: str | Callable[..., Any], name: str, predictions: list[Any], references: list[Any]
) -> list[Any]:
    """A metric's outcome a pair, from calls on an engine, or right here where there is none."""
    pairs = list(zip(predictions, references, strict=True))
    if engine is None:
        return grade_chunk(spec, pairs)
    # eight chunks per worker even out slow pairs; 64 pairs keep progress and retries fine-grained
    size = max(1, min(64, len(pairs) // (8 * engine.workers)))
    chunks = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    outcomes: list[Any] = []
    for chunk, outcome in zip(chunks, engine.map(grade_chunk, chunks, shared=spec), strict=True):
        if isinstance(outcome, list):
            outcomes += outcome
        elif outcome.lost:  # its process was lost each time: a fact about us, so these are not graded
            outcomes += [Outcome(value=None)] * len(chunk)
        else:
            raise InputError(f"metric {name}: {outcome.reason.removeprefix('InputError: ')}")
    return outcomes


def grade_chunk(spec: str | Callable[..., Any], chunk: list[tuple[Any, Any]]) -> list[Any]:
    """What a worker does: a metric's outcomes for some pairs of prediction and reference."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FirstEntryWarning)  # shown once, with the result
        return score_answers(metric(spec), [p for p, _ in chunk], [r for _, r in chunk])


def _columns(
    spec: str | Callable[..., Any],
    name: str,
    predictions: pl.Series,
    references: pl.Series,
    extractor_name: str | None,
    engine: Any,
    notes: list[str],
) -> dict[str, Floats]:
    """The metric's own column, and one for every other number it returned; what was noticed goes to `notes`."""
    function: Any = metric(spec)
    plain = references.dtype == pl.String and not references.str.ends_with("%").any()
    if plain and extractor_name == "number" and function == Numeric():
        # both sides are canonical texts by now: equal numbers are equal texts
        same = (predictions == references).fill_null(value=False).cast(pl.Float64)
        return {name: same.set(references.is_null(), None).to_numpy()}
    if trait(function, "heavy"):
        scores = function.many(predictions.to_list(), references.to_list(), engine)
        return {name: np.array([np.nan if v is None else v for v in scores], dtype=np.float64)}
    if isinstance(function, Metric):
        scorer: Any = function
        return {name: score_column(scorer, predictions, references).to_numpy()}
    outcomes = _outcomes(engine, spec, name, predictions.to_list(), references.to_list())
    if taken := next((outcome.taken for outcome in outcomes if outcome.taken is not None), None):
        notes.append(f"metric {name} returned a mapping without {name!r}: its first entry, {taken!r}, is the score")
    columns = {name: [outcome.value for outcome in outcomes]}
    for extra in dict.fromkeys(key for outcome in outcomes for key in outcome.extra):
        columns[extra] = [outcome.extra.get(extra) for outcome in outcomes]
    return {k: np.array([np.nan if v is None else v for v in vs], dtype=np.float64) for k, vs in columns.items()}


def _predictions(table: Table, answers: Answers, uses: str, name: str) -> pl.Series:
    if uses == "answer" and answers.column is not None:
        return answers.column
    if "text" not in table.candidates.columns:
        raise InputError(f"metric {name} reads the {uses} of a candidate and {_source(table)} has none")
    return table.candidates["text"]


def _sets(
    table: Table, answers: Answers, values: Floats, passes: Any, *, higher_is_better: bool = True
) -> CandidateSets:
    rows, cases = table.candidates, table.cases

    def numbers(name: str) -> Floats | None:
        return rows[name].to_numpy() if name in rows.columns else None

    selectors = {c.removeprefix("selector."): rows[c].to_numpy() for c in rows.columns if c.startswith("selector.")}
    if "score" in rows.columns:
        # scores of the file may pick too, also where another metric grades
        selectors["score"] = rows["score"].to_numpy()
    return CandidateSets(
        case_ids=cases["case_id"],
        offsets=table.offsets,
        values=values,
        passes=passes,
        answers=answers.column,
        texts=rows["text"] if "text" in rows.columns else None,
        costs=numbers("cost"),
        seconds=numbers("seconds"),
        candidate_weights=numbers("candidate_weight"),
        selectors=selectors,
        facets=rows["facets"] if "facets" in rows.columns else None,
        required=cases["required"] if "required" in cases.columns else None,
        ideal=cases["ideal"] if "ideal" in cases.columns else None,
        higher_is_better=higher_is_better,
    )


def _unique_names(found: list[ScoredSets]) -> list[ScoredSets]:
    names = [scored.metric for scored in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"metric {name} is there twice: give each its own name or parameters")
    return found


def _canonicalize(answers: pl.Series) -> pl.Series:
    """Given answers, so that votes see one answer: numbers by value, other text trimmed; empty is no answer."""
    # each distinct text is parsed once
    others = answers.filter(~answers.str.contains(_PLAIN_NUMBER)).unique()
    texts = pl.Series([canonical_number(a) or a.strip() or None for a in others.to_list()], dtype=pl.String)
    return answers.replace(others, texts) if len(others) else answers


def _kind_of(answers: pl.Series) -> str:
    """Which default metric suits answers that came with the file."""
    some = _sample(answers)
    return choose_extractor(some, some, choices=False).name


def _references(table: Table) -> list[str]:
    if "reference" not in table.cases.columns:
        return []
    column = table.cases["reference"]
    if isinstance(column.dtype, pl.List):
        column = column.list.first()
    return _sample(column)


def _sample(column: pl.Series) -> list[str]:
    """Up to 400 values spread over the column."""
    present = column.drop_nulls()
    # spread over the column: files are often sorted by kind of question
    step = max(1, len(present) // _SAMPLE)
    return present.gather_every(step).head(_SAMPLE).to_list()


def choices_of(table: Table) -> Any:
    """The options of every candidate: none, one list for all, or a list a row."""
    if "choices" not in table.cases.columns:
        return None
    per_case = table.cases["choices"]
    # one list for all, so that it is parsed once
    if per_case.n_unique() == 1:
        return per_case[0].to_list() if per_case[0] is not None else None
    return per_case.gather(np.repeat(np.arange(table.n_cases), np.diff(table.offsets)))


def _source(table: Table) -> str:
    return table.sources[0] if table.sources else "the input"
