"""Extracts an answer from every output, scores it, and builds the candidate sets."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.candidate_sets import CandidateSets, passes_of
from kofn.core.numbers import canonical_number
from kofn.core.warnings import CodedWarning
from kofn.errors import CallFailed, InputError
from kofn.extract import choose_extractor, extract_column, none
from kofn.extract.extractor_choice import possible_answers
from kofn.extract.letter_answer import labels_of_references, parse_choices
from kofn.metrics import Metric, Numeric, Outcome, default_metric, metric_name, score_answers, score_column, trait
from kofn.metrics.json_metrics import read_literal
from kofn.metrics.outcomes import FirstEntryWarning
from kofn.registry import check_unique, extractor, metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table


def with_labels(table: Table, base: int | None = None) -> Table:
    """The table with its options labelled and its references as labels, where it has both.

    `base`: references that are places count from here; None: what the table's own say (`detect_base`).
    """
    if "choices" not in table.cases.columns or "reference" not in table.cases.columns:
        return table
    if table.cases["reference"].dtype != pl.String:
        return table
    choices, references = table.cases["choices"].to_list(), table.cases["reference"].to_list()
    base = detect_base(choices, references) if base is None else base
    normalized = [normalize_choices(c, r, base) for c, r in zip(choices, references, strict=True)]
    labels = pl.Series("reference", [label for _, label in normalized], dtype=pl.String)
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    options = pl.Series(
        "choices", [list(c) if c is not None else None for c, _ in normalized], dtype=pl.List(pl.String)
    )
    return replace(
        table,
        cases=table.cases.with_columns(options, labels),
        candidates=table.candidates.with_columns(labels.gather(owner).alias("reference")),
    )


def normalize_choices(
    choices: Sequence[str] | None, reference: str | None, base: int = 0
) -> tuple[Sequence[str] | None, str | None]:
    """(options, label of the right one).

    >>> normalize_choices(["London", "Paris"], "Paris"), normalize_choices(["London", "Paris"], "1")
    ((['London', 'Paris'], 'B'), (['London', 'Paris'], 'B'))
    >>> normalize_choices(["1", "2"], "B")
    (['A) 1', 'B) 2'], 'B')
    """
    if not choices or reference is None:
        return choices, reference
    options, answer = parse_choices(choices), reference.strip()
    # letters first: "B" may be the text of an option too, and means the letter far more often
    if answer.strip("().[] ").upper() in options.labels:
        return choices, answer.strip("().[] ").upper()
    if len(answer) == 1 and answer.upper() in ascii_uppercase[: len(choices)]:
        # the options only look like labels: they are texts, and the letters go by place
        return [f"{ascii_uppercase[i]}) {text}" for i, text in enumerate(choices)], answer.upper()
    texts = [t.strip().casefold() for t in (options.texts or choices)]
    # a text that two options share names neither
    if texts.count(answer.casefold()) == 1:
        return choices, options.labels[texts.index(answer.casefold())]
    if answer.isdecimal() and 0 <= int(answer) - base < len(choices):
        return choices, options.labels[int(answer) - base]
    return choices, reference


def detect_base(choices: Sequence[Sequence[str] | None], references: Sequence[str | None]) -> int:
    """Whether references that are places count from 0 or from 1: from 1 when none is 0 and one is the last place."""
    pairs = [(c, r.strip()) for c, r in zip(choices, references, strict=True) if c and r is not None]
    places = [(int(r), len(c)) for c, r in pairs if r.isdecimal()]
    return int(bool(places) and all(p > 0 for p, _ in places) and any(p == n for p, n in places))


def count_unmatched(table: Table) -> int:
    """Cases whose reference names none of their options."""
    if "choices" not in table.cases.columns or "reference" not in table.cases.columns:
        return 0
    if table.cases["reference"].dtype != pl.String:
        return 0
    pairs = zip(table.cases["choices"].to_list(), table.cases["reference"].to_list(), strict=True)
    return sum(r is not None and bool(c) and r not in parse_choices(c).labels for c, r in pairs)


_SAMPLE = 400  # values by which an extractor is chosen
# canonical already, as most answers are: these need no parsing
_PLAIN_NUMBER = r"^(?:0|-?[1-9][0-9]{0,17})$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """Candidate sets as one metric grades them, and how their answers were found.

    metric         "" where nothing is graded: agreement and diversity are still computed
    source         what the grades come from: a field of the file, the references, the texts, a judge
    extractor      None where answers came with the file, or none are looked for; `reason` says which
    n_outputs      outputs in which an answer was looked for, `n_failed` of them without one
    beside_labels  only its values are news, its passes are the labels'
    notes          what was noticed while grading
    """

    sets: CandidateSets
    metric: str = ""
    source: str = ""
    extractor: str | None = None
    reason: str = ""
    n_outputs: int = 0
    n_failed: int = 0
    beside_labels: bool = False
    notes: tuple[CodedWarning, ...] = ()

    def under(
        self, metric: str, values: Floats, passes: Any, *, source: str, higher_is_better: bool = True, **changes: Any
    ) -> Graded:
        """The same sets and answers as another metric grades them."""
        sets = replace(self.sets, values=values, passes=passes, higher_is_better=higher_is_better)
        given: dict[str, Any] = {"beside_labels": False, "notes": (), **changes}
        return replace(self, metric=metric, sets=sets, source=source, **given)


def find_answers(table: Table, extract: str | Callable[..., Any] | None) -> Graded:
    """The sets of a table with their answers, not graded yet.

    Without an extractor the file's own answers are taken, else one is chosen by what is there. With `none` there are
    no answers, which is not the same as outputs that fail to give one.
    """
    if extract is not None and extractor(extract) is none:
        return with_answers(table, None, reason="none are looked for")

    rows = table.candidates
    if extract is None and "answer" in rows.columns:
        given = _canonicalize(rows["answer"])
        return with_answers(table, given, reason=f"given in `{table.fields['answer']}`")
    if "text" not in rows.columns:
        if extract is not None:
            raise InputError(f"nothing to extract from: {_source(table)} has no texts")
        return with_answers(table, None, reason="no texts and no answers")
    reason = "asked for"
    if extract is None:
        choice = choose_extractor(_references(table), _sample(rows["text"]), "choices" in table.cases.columns)
        extract, reason = choice.name, choice.reason
    name = (
        extract if isinstance(extract, str) else f"{extract.__module__}:{getattr(extract, '__name__', repr(extract))}"
    )
    with _naming_candidate(table):
        column = extract_column(extractor(extract), rows["text"], answer_options(table, name))
    found = with_answers(table, column, extractor=name, reason=reason)
    # a failed call has no text: it is no output in which an answer could be missing
    no_output = rows["text"].null_count()
    return replace(found, n_outputs=found.n_outputs - no_output, n_failed=found.n_failed - no_output)


@contextmanager
def _naming_candidate(table: Table) -> Iterator[None]:
    """Where a function of the user's own raises: of which case, and which of its candidates."""
    try:
        yield
    except CallFailed as problem:
        if problem.row is None:
            raise
        at = int(np.searchsorted(table.offsets, problem.row, side="right")) - 1
        start, end = (int(edge) for edge in table.offsets[at : at + 2])
        case = f"case {table.cases['case_id'][at]!r}, candidate {problem.row - start + 1} of {end - start}"
        raise CallFailed(f"{case}: {problem}", problem.row) from problem.__cause__


def with_answers(
    table: Table, answers: pl.Series | None, *, extractor: str | None = None, reason: str = "stored"
) -> Graded:
    """The sets of a table with these answers, none of them graded."""
    rows, cases = table.candidates, table.cases
    nothing = np.full(table.n_candidates, np.nan)

    def numbers(name: str) -> Floats | None:
        return rows[name].to_numpy() if name in rows.columns else None

    selectors = {c.removeprefix("selector."): rows[c].to_numpy() for c in rows.columns if c.startswith("selector.")}
    if "score" in rows.columns:
        # scores of the file may pick too, also where another metric grades
        selectors["score"] = rows["score"].to_numpy()
    sets = CandidateSets(
        case_ids=cases["case_id"],
        offsets=table.offsets,
        values=nothing,
        passes=passes_of(nothing),
        answers=answers,
        texts=rows["text"] if "text" in rows.columns else None,
        costs=numbers("cost"),
        seconds=numbers("seconds"),
        candidate_weights=numbers("candidate_weight"),
        selectors=selectors,
        facets=rows["facets"] if "facets" in rows.columns else None,
        required=cases["required"] if "required" in cases.columns else None,
        ideal=cases["ideal"] if "ideal" in cases.columns else None,
    )
    n, n_failed = (0, 0) if answers is None else (len(answers), answers.null_count())
    return Graded(sets=sets, extractor=extractor, reason=reason, n_outputs=n, n_failed=n_failed)


def score_table(
    table: Table,
    answers: Graded,
    metrics: Sequence[str | Callable[..., Any]],
    threshold: float | None,
    engine: Any = None,
    *,
    whole: bool = True,
) -> list[Graded]:
    """The sets of every metric: those asked for, else the file's labels and scores, else the default metric.

    `engine` is where heavy metrics and functions of the user's own are called; None: the latter right here. Scores
    that are the labels again say nothing new and are left out, unless the table is not the `whole`: then others may
    differ.
    """
    stored = _stored_grades(table, answers, threshold, whole=whole)
    if metrics:
        of_file = {one.metric: one for one in stored}
        found: list[Graded] = []
        for metric in metrics:
            known = of_file.get(metric) if isinstance(metric, str) else None
            found += _score_by_metric(table, answers, metric, threshold, engine) if known is None else [known]
        names = [one.metric for one in found]
        check_unique(names, "metric {} is there twice: give each its own name or parameters")
        return found
    column = answers.sets.answers
    if not stored and column is not None and "reference" in table.candidates.columns:
        some = _sample(column)
        # answers that came with the file are told by what they look like
        kind = answers.extractor or choose_extractor(some, some, choices=False).name
        name = "literal_equal" if kind == "text" and _are_literals(_references(table)) else default_metric(kind)
        return _score_by_metric(table, answers, name, threshold)
    return stored


def _stored_grades(table: Table, answers: Graded, threshold: float | None, *, whole: bool) -> list[Graded]:
    """What the file itself says: its labels as metric `pass`, its scores as metric `score`, a log's grades by name."""
    rows = table.candidates
    found: list[Graded] = []
    if "passed" in rows.columns:
        flags = rows["passed"].cast(pl.Float64).to_numpy()
        found.append(answers.under("pass", flags, passes_of(flags), source=table.fields["passed"]))
    if "score" in rows.columns:
        values = rows["score"].to_numpy()
        passes = found[0].sets.passes if found and threshold is None else passes_of(values, threshold)
        # with labels the passes are theirs; a threshold says that the scores decide
        labelled = bool(found) and threshold is None
        if not (whole and labelled and np.array_equal(values, found[0].sets.values, equal_nan=True)):
            found.append(answers.under("score", values, passes, source=table.fields["score"], beside_labels=labelled))
    for name, better in table.labels.items():
        values = rows[f"label.{name}"].to_numpy()
        passes, source = passes_of(values, threshold, better), table.fields.get(f"label.{name}", name)
        found.append(answers.under(name, values, passes, source=source, higher_is_better=better))
    return found


def _score_by_metric(
    table: Table, answers: Graded, spec: str | Callable[..., Any], threshold: float | None, engine: Any = None
) -> list[Graded]:
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
    notes: list[CodedWarning] = []
    with _naming_candidate(table):
        columns = _columns(spec, name, predictions, references, answers.extractor, engine, notes)
    return [
        answers.under(
            found,
            values,
            passes_of(values, threshold, better),
            source=source,
            higher_is_better=better,
            notes=tuple(notes) if found == name else (),
        )
        for found, raw in columns.items()
        for values in [raw if ungraded is None else np.where(ungraded, np.nan, raw)]
    ]


def _missing_outputs(table: Table, answers: Graded) -> Any:
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
        return _whole(grade_chunk(spec, pairs), 0)
    # eight chunks per worker even out slow pairs; 64 pairs keep progress and retries fine-grained
    size = max(1, min(64, len(pairs) // (8 * engine.workers)))
    chunks = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    outcomes: list[Any] = []
    for chunk, outcome in zip(chunks, engine.map(grade_chunk, chunks, shared=spec), strict=True):
        if isinstance(outcome, list | CallFailed):
            outcomes += _whole(outcome, len(outcomes))
        elif outcome.lost:  # its process was lost each time: a fact about us, so these are not graded
            outcomes += [Outcome(value=None)] * len(chunk)
        else:
            raise InputError(f"metric {name}: {outcome.reason.removeprefix('InputError: ')}")
    return outcomes


def _whole(outcome: list[Any] | CallFailed, before: int) -> list[Any]:
    """A chunk's outcomes; an exception in it is raised, with its row among all."""
    if isinstance(outcome, CallFailed):
        raise CallFailed(str(outcome), None if outcome.row is None else before + outcome.row) from outcome.__cause__
    return outcome


def grade_chunk(spec: str | Callable[..., Any], chunk: list[tuple[Any, Any]]) -> list[Any] | CallFailed:
    """What a worker does: a metric's outcomes for pairs of prediction and reference, or the exception it raised."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FirstEntryWarning)  # shown once, with the result
        try:
            return score_answers(metric(spec), [p for p, _ in chunk], [r for _, r in chunk])
        except CallFailed as problem:
            return problem


def _columns(
    spec: str | Callable[..., Any],
    name: str,
    predictions: pl.Series,
    references: pl.Series,
    extractor_name: str | None,
    engine: Any,
    notes: list[CodedWarning],
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
        notes.append(CodedWarning.of("first-entry-taken", metric=name, taken=taken))
    columns = {name: [outcome.value for outcome in outcomes]}
    for extra in dict.fromkeys(key for outcome in outcomes for key in outcome.extra):
        columns[extra] = [outcome.extra.get(extra) for outcome in outcomes]
    return {k: np.array([np.nan if v is None else v for v in vs], dtype=np.float64) for k, vs in columns.items()}


def _predictions(table: Table, answers: Graded, uses: str, name: str) -> pl.Series:
    if uses == "answer" and answers.sets.answers is not None:
        return answers.sets.answers
    if "text" not in table.candidates.columns:
        raise InputError(f"metric {name} reads the {uses} of a candidate and {_source(table)} has none")
    return table.candidates["text"]


def _canonicalize(answers: pl.Series) -> pl.Series:
    """Given answers, so that votes see one answer: numbers by value, other text trimmed; empty is no answer."""
    # each distinct text is parsed once
    others = answers.filter(~answers.str.contains(_PLAIN_NUMBER)).unique()
    texts = pl.Series([canonical_number(a) or a.strip() or None for a in others.to_list()], dtype=pl.String)
    return answers.replace(others, texts) if len(others) else answers


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


def answer_options(table: Table, extractor_name: str) -> Any:
    """What an answer can be: the options of the cases, else the labels or the few words that the references use."""
    if (options := choices_of(table)) is not None:
        return options
    if "reference" not in table.cases.columns or table.cases["reference"].dtype != pl.String:
        return None
    references = table.cases["reference"].drop_nulls()
    if extractor_name == "letter":
        return labels_of_references(references.to_list())
    return possible_answers(references.to_list()) if extractor_name == "labelled_text" else None


def _are_literals(references: Sequence[str]) -> bool:
    """Whether nearly all references are Python or JSON literals, and some are more than a bare word or number."""
    read = sum(read_literal(one.strip()) is not None for one in references)
    quoted = sum(one.strip()[:1] in ("'", '"', "[", "(", "{") for one in references)
    return read >= 0.95 * len(references) > 0 and quoted >= 0.1 * len(references)


def _source(table: Table) -> str:
    return table.sources[0] if table.sources else "the input"
