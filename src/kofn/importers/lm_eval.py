"""Importer of lm-evaluation-harness logs (`--log_samples`): `samples_TASK_DATE.jsonl`, with `results_DATE.json` beside.

A line is a document and a filter; the lines of one document are one set, and every response in `resps` is a candidate.
A grade on a line is of what its filter made of the responses. Of one response that is its label. Of several it is of
the filter's choice (the first, a vote), so it stays with the case as the tag `lm_eval.METRIC`, and candidates are
graded here.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import polars as pl

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers.base import Importer
from kofn.importers.lm_eval_lines import METRIC, TAG, LineSelection, read_lines
from kofn.importers.log_table import LogFacts
from kofn.importers.reading import combine
from kofn.importers.recognition import Peek, is_lm_eval, is_lm_eval_results, lm_eval_logs
from kofn.importers.scalars import as_object, object_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions

LOWER = frozenset({"perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "brier_score", "ter", "wer"})

_MEANS = ("mean", "nanmean", "bypass")  # aggregations of lm-eval that are the mean over documents
FORM = "lm-eval samples"
FILTER = "filter"
_NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?))?\.jsonl?$")
_ANNOUNCED = {"id": "doc_id", "text": "resps", "answer": "filtered_resps", "reference": "target", "input": "arguments"}
_NO_SAMPLES = "results of lm-eval without samples: run it with --log_samples, and give samples_*.jsonl"
_NOTHING = "[invalid]"  # what the tool's regex filter puts where it finds no answer
_NO_RESPONSE = "no response in the log"
_ROLES = {*_ANNOUNCED, *_ANNOUNCED.values()}
_OF_SETS = "lm_eval."
_EXAMPLES = 3

# --- results: the model, the task and the number of samples of the log beside them


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of one task; everything is optional, since samples may come without results."""

    task: str | None = None
    whole: Mapping[str, Any] = field(default_factory=dict)
    problem: CodedWarning | None = None

    def of_task(self, key: str) -> Any:
        """The entry of this task in a part of the results."""
        return object_in(self.whole, key).get(str(self.task))

    @property
    def nothing(self) -> set[str]:
        """The texts that the filters of the task give where they find no answer."""
        filters = as_object(self.of_task("configs")).get("filter_list")
        steps = [step for one in filters or [] if isinstance(one, dict) for step in one.get("filter") or []]
        return {str(step["fallback"]) for step in steps if isinstance(step, dict) and "fallback" in step}

    def higher_is_better(self, metric: str) -> bool:
        """As the results say; else by the metric's name."""
        value = as_object(self.of_task("higher_is_better")).get(metric)
        return value if isinstance(value, bool) else metric not in LOWER

    def notes(self, n_cases: int) -> Iterator[CodedWarning]:
        """Notes: unreadable results, a number of cases that is not that of the run."""
        if self.problem:
            yield self.problem
        expected = as_object(self.of_task("n-samples")).get("effective")
        if isinstance(expected, int) and expected != n_cases:
            why = "cut short, or a part of it" if n_cases < expected else "more than one run"
            yield CodedWarning.of("log-incomplete", about="documents", n=n_cases, of=expected, why=why)

    def not_means(self, metrics: Iterable[str]) -> Iterator[CodedWarning]:
        """Notes on metrics that the tool aggregates over cases otherwise than by the mean."""
        listed = as_object(self.of_task("configs")).get("metric_list")
        entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        how = {str(one.get("metric")): one.get("aggregation") for one in entries}
        for name in metrics:
            if isinstance(how.get(name), str) and how[name] not in _MEANS:
                yield CodedWarning.of("log-grades-otherwise", about="aggregation", metric=name, aggregation=how[name])

    def origin(self) -> dict[str, Any]:
        """Where the samples come from, as far as it is known."""
        config = object_in(self.whole, "config")
        name, kind = self.whole.get("model_name"), config.get("model") or self.whole.get("model_source")
        # where the user did not name the model the tool makes up a `model_name`, a new one for each run
        made_up = "model_args" in config and str(name) not in str(config["model_args"])
        seconds: float | None = None
        with suppress(TypeError, ValueError):
            seconds = float(self.whole.get("total_evaluation_time_seconds", ""))
        found = {
            "tool": "lm-eval",
            "task": self.task,
            "model": kind if kind and (made_up or not name) else name,
            "version": self.whole.get("lm_eval_version"),
            "task_version": self.of_task("versions"),
            "n_shot": self.of_task("n-shot"),
            "seconds": seconds,
            "date": self.whole.get("date"),
        }
        return {name: value for name, value in found.items() if value is not None}


def results_beside(peek: Peek, task: str | None, date: str | None) -> Results:
    """The results beside a file of samples: of the same date, else the only ones in the folder."""
    for folder in dict.fromkeys((peek.path.parent, Path(peek.source).parent)):
        if "://" in peek.source and folder != peek.path.parent:
            continue
        try:
            found = sorted(folder.glob("*.json"))
        except OSError:
            continue
        dated = [path for path in found if date is not None and path.stem.endswith(date)]
        only = [path for path in found if path.name.startswith("results")]
        if dated or (date is None and len(only) == 1):
            path = (dated or only)[0]
            break
    else:
        return Results(task=task)
    try:
        whole = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return Results(task=task, problem=CodedWarning.of("log-incomplete", about="results", file=path.name))
    return of_results(whole, task) if isinstance(whole, dict) else Results(task=task)


def of_results(whole: Mapping[str, Any], task: str | None) -> Results:
    """The results of a task; without a name that of the only one there is."""
    names = list(object_in(whole, "configs"))
    if task not in names and len(names) == 1:
        task = names[0]
    return Results(task=task, whole=whole)


# --- samples


def read(peek: Peek, options: ReadOptions) -> Table:
    """The sets of one task, or of all tasks of a folder, ids led by the task."""
    if peek.path.is_dir():
        return _read_folder(peek, options)
    if is_lm_eval_results(peek):
        raise InputError(f"{peek.source}: {_NO_SAMPLES}")
    names = dict.fromkeys((*options.keep, *options.where))
    tags = tuple(name for name in names if name not in (FILTER, "task"))
    selection = LineSelection(input=options.everything, filter=options.where.get(FILTER), tags=tags)
    lines, line_notes = read_lines(peek, selection)
    _check_fields(lines, peek)
    task, date = parse_name(Path(peek.source).name)
    return table_of_lines(lines, peek.source, options, results_beside(peek, task, date), line_notes)


def _check_fields(lines: pl.DataFrame, peek: Peek) -> None:
    """Refuse a selected field that no document has; `lm_eval.METRIC` is exempt, since those tags are made later."""
    document = (peek.first or {}).get("doc")
    for column in lines.columns:
        name = column.removeprefix(TAG)
        found = name == column or name.startswith(_OF_SETS) or lines[column].null_count() < lines.height
        if not found and name not in _ROLES and isinstance(document, dict) and name not in document:
            near = get_close_matches(name, document, n=1)
            offer = f"did you mean {near[0]}?" if near else f"its documents have {', '.join(list(document)[:20])}"
            raise InputError(f"{peek.source}: no field {name!r}: {offer}")


def parse_name(name: str) -> tuple[str | None, str | None]:
    """(task, date) as the tool writes them into the name of a file; none where it has another name.

    >>> parse_name("samples_gsm8k_cot_2026-01-21T03-44-18.458309.jsonl")
    ('gsm8k_cot', '2026-01-21T03-44-18.458309')
    >>> parse_name("outputs.jsonl")
    (None, None)
    """
    match = _NAME.match(name)
    return (match["task"], match["date"]) if match else (None, None)


# --- folders


def _read_folder(peek: Peek, options: ReadOptions) -> Table:
    logs = lm_eval_logs(peek.path)
    if not logs:
        raise InputError(f"{peek.source}: {_NO_SAMPLES}")
    if len(models := sorted({path.parent.name for path in logs})) > 1:
        some = ", ".join(models[:_EXAMPLES])
        raise InputError(f"{peek.source}: samples of several models ({some}): score each folder by itself")
    if task := options.where.get("task"):
        tasks = dict.fromkeys(parse_name(path.name)[0] for path in logs)
        logs = [path for path in logs if parse_name(path.name)[0] == task]
        if not logs:
            raise InputError(f"{peek.source}: no case has task={task}: there is {', '.join(filter(None, tasks))}")
    # the tool writes a new dated file for each run into the same folder: the newest of each task counts
    newest: dict[str | None, Path] = {}
    for path in sorted(logs, key=lambda path: parse_name(path.name)[1] or ""):
        newest[parse_name(path.name)[0]] = path
    tables = [read(Peek(path), options) for path in sorted(newest.values())]
    whole = tables[0] if len(tables) == 1 else combine(tables, options)
    if older := len(logs) - len(newest):
        note = CodedWarning.of("left-out-of-log", about="older", n=older, folder=peek.source)
        whole = replace(whole, notes=(*whole.notes, note))
    return whole


# --- from lines to sets


class _Grade(NamedTuple):
    """A metric under one filter: its column in the lines, the metric, the filter, and the name of the label."""

    column: str
    metric: str
    filter: str
    name: str


def table_of_lines(
    lines: pl.DataFrame, source: str, options: ReadOptions, results: Results, line_notes: Iterable[CodedWarning] = ()
) -> Table:
    """A table of the lines: those of one document together, with the grades of every filter."""
    if not lines.height:
        raise InputError(f"{source}: no candidates in these {FORM}: the log is empty, or its run had not begun")
    if "task" in (*options.keep, *options.where):
        lines = lines.with_columns(pl.lit(results.task, dtype=pl.String).alias(f"{TAG}task"))
    notes = list(line_notes)
    if f"{METRIC}perplexity" in lines.columns:  # it holds log-likelihoods, one per case
        lines = lines.drop(f"{METRIC}perplexity")
        notes.append(CodedWarning.of("left-out-of-log", about="perplexity"))
    if lines[FILTER].null_count():  # versions that do not name filters: those of a document are told apart by order
        place = pl.int_range(pl.len()).over("id") + 1
        lines = lines.with_columns(pl.col(FILTER).fill_null(pl.format("filter {}", place)))
        if lines[FILTER].n_unique() > 1:
            notes.append(CodedWarning.of("log-grades-otherwise", about="no-filters"))
    lines, copies = _without_copies(_select_lines(lines, source, options))
    filters = lines[FILTER].unique(maintain_order=True).to_list()
    first = lines.filter(pl.col(FILTER) == filters[0]) if len(filters) > 1 else lines
    first = _with_reference(first)
    several = bool((first["resps"].list.len() > 1).any())
    grades = [
        _Grade(c, metric, name, metric if len(filters) == 1 else f"{metric},{name}")
        for name in filters
        for c in lines.columns
        if c.startswith(METRIC) and lines[c].null_count() < lines.height
        for metric in [c.removeprefix(METRIC)]
    ]
    if FILTER in (*options.keep, *options.where):
        first = first.with_columns(pl.col(FILTER).alias(f"{TAG}{FILTER}"))
    cases = first.select(c for c in first.columns if not c.startswith(METRIC) and c != FILTER)
    cases = _with_grades(cases, lines, grades, filters, prefix=f"{TAG}{_OF_SETS}" if several else "label.")
    cases, own = _own_grades(cases, first, several)
    rows = _explode(cases, results.nothing | {_NOTHING})
    names = [g.metric for g in grades]
    notes += [*copies, *_notes(first, grades, filters, several, own)]
    notes += [*results.notes(first.height), *results.not_means(dict.fromkeys(names))]
    at = rows["line"]
    facts = LogFacts(
        source=source,
        form=FORM,
        labels={g.name: results.higher_is_better(g.metric) for g in grades},
        notes=notes,
        origin=results.origin(),
        fields=_ANNOUNCED,
    )
    return facts.table_of_frame(rows.drop("line"), lambda row: f"line {at[row]}", options)


def _select_lines(lines: pl.DataFrame, source: str, options: ReadOptions) -> pl.DataFrame:
    for name, value in options.where.items():
        column = name if name == FILTER else f"{TAG}{name}"
        if column not in lines.columns:
            continue
        kept = lines.filter(pl.col(column).cast(pl.String) == value)
        if not kept.height:
            some = ", ".join(lines[column].drop_nulls().cast(pl.String).unique(maintain_order=True)[:_EXAMPLES])
            raise InputError(f"{source}: no case has {name}={value}: there is {some or 'no such field'}")
        lines = kept
    return lines


def _without_copies(lines: pl.DataFrame) -> tuple[pl.DataFrame, tuple[CodedWarning, ...]]:
    """Of lines with the same document and filter the last is kept: a resumed log has some twice."""
    key = ["id", FILTER]
    if lines.group_by(FILTER).agg(pl.col("id").n_unique())["id"].sum() == lines.height:
        return lines, ()
    kept = lines.unique(key, maintain_order=True).select(key)  # the last, in the place of the first
    kept = kept.join(lines.unique(key, keep="last"), on=key, how="left", maintain_order="left").select(lines.columns)
    copies = lines.height - kept.height
    if not copies:
        return lines, ()
    twice = lines.filter(lines.select(key).is_duplicated())
    others = twice.drop("line").unique().height - twice.select(key).unique().height
    some = tuple(twice["id"].unique(maintain_order=True)[:_EXAMPLES])
    return kept, (CodedWarning.of("conflicting-rows", n=copies, cases=some, others=others),)


def _with_reference(first: pl.DataFrame) -> pl.DataFrame:
    """The column `reference`: the label of the right option, or the target, which may list several."""
    parts = []
    if "by_place" in first.columns:
        parts.append(_right_options(first))
    if "target" in first.columns:
        parts.append(_targets(first["target"]))
    if not parts:
        return first
    if len(parts) == 2 and {p.dtype for p in parts} != {pl.String}:
        parts = [p if p.dtype != pl.String else p.reshape((-1, 1)).arr.to_list() for p in parts]
    whole = parts[0] if len(parts) == 1 else pl.select(pl.coalesce(parts)).to_series()
    return first.drop("by_place", "by_text", "target", strict=False).with_columns(whole.alias("reference"))


def _right_options(first: pl.DataFrame) -> pl.Series:
    """A target "1" is the second option, or the option that reads 1: whichever the tool's own accuracy goes with."""
    grade = f"{METRIC}acc"
    readings = ["by_place", "by_text"]
    if grade in first.columns:
        picks = pl.col("filtered").list.first()
        agree = [(pl.col(r).list.contains(picks) == (pl.col(grade) == 1)).sum().alias(r) for r in readings]
        counts = first.select(agree).row(0)
        readings = readings if counts[0] >= counts[1] else readings[::-1]
    labels = first.select(pl.coalesce(readings)).to_series()
    return labels if (labels.list.len() > 1).any() else labels.list.first()


def _targets(targets: pl.Series) -> pl.Series:
    """Targets as references. A list of texts, which the log has in the words of Python, is several; "" is none."""
    if (empty := targets == "").any():
        targets = targets.set(empty, None)
    if not targets.str.starts_with("[").any():
        return targets
    listed = targets.str.contains(r"^\[\s*['\"]") & targets.str.ends_with("]")
    found: list[list[str] | None] = [None if target is None else [target] for target in targets]
    several = False
    for at, target in enumerate(targets):
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(target) if listed[at] else None
            if isinstance(value, list) and all(isinstance(t, str) for t in value):
                found[at], several = value, True
    return pl.Series("target", found, dtype=pl.List(pl.String)) if several else targets


def _with_grades(
    cases: pl.DataFrame, lines: pl.DataFrame, grades: Sequence[_Grade], filters: Sequence[str], prefix: str
) -> pl.DataFrame:
    """The grades of every filter beside their case."""
    for name in filters:
        columns = [pl.col(g.column).alias(f"{prefix}{g.name}") for g in grades if g.filter == name]
        if len(filters) == 1:
            return cases.with_columns(lines.select(columns))
        own_lines = lines.filter(pl.col(FILTER) == name).select("id", *columns)
        cases = cases.join(own_lines, on="id", how="left", maintain_order="left")
    return cases


def _own_grades(cases: pl.DataFrame, first: pl.DataFrame, several: bool) -> tuple[pl.DataFrame, list[str]]:
    """Grades of every repeat of options, where those of the first repeat are what the tool says of it."""
    names = [c.removeprefix("each.") for c in cases.columns if c.startswith("each.")]
    own = [
        name
        for name in names
        if several
        and f"{METRIC}{name}" in first.columns
        and not first[f"each.{name}"].null_count()
        and (first[f"each.{name}"].list.first() == first[f"{METRIC}{name}"]).all()
    ]
    cases = cases.rename({f"each.{name}": f"label.{name}" for name in own})
    return cases.drop(f"each.{name}" for name in names if name not in own), own


def _explode(cases: pl.DataFrame, nothing: set[str]) -> pl.DataFrame:
    """A row a candidate."""
    resps = cases["resps"]
    sizes = resps.list.len()
    if (sizes == 0).any():  # a document without a response keeps its place
        none = pl.when(sizes == 0).then(pl.lit([None], dtype=resps.dtype))
        cases = cases.with_columns(none.otherwise("resps").alias("resps"))
        sizes = cases["resps"].list.len()
    lists = [c for c in ("loglik", *cases.columns) if c in cases.columns and _is_per_candidate(c, cases, sizes)]
    answers = "filtered" in cases.columns and _is_per_candidate("filtered", cases, sizes)
    cases = cases.drop([c for c in ("filtered", "loglik") if c in cases.columns and c not in lists])
    rows = cases.explode(list(dict.fromkeys(["resps", *lists])))
    lost = rows["resps"].is_null()
    if "likelihood" in rows.columns:
        lost &= ~rows["likelihood"].fill_null(value=False)
    if lost.any():
        rows = rows.with_columns(pl.when(lost).then(pl.lit(_NO_RESPONSE)).alias("error"))
        labels = [c for c in rows.columns if c.startswith("label.")]
        rows = rows.with_columns(pl.when(~lost).then(pl.col(c)).alias(c) for c in labels)
    rows = rows.drop("likelihood", strict=False).rename({"resps": "text"})
    if "loglik" in rows.columns:
        rows = rows.rename({"loglik": "selector.logprob"}) if (sizes > 1).any() else rows.drop("loglik")
    if not answers:
        return rows
    # what the filter made of each response is its answer, unless the filter left them as they are
    made = rows["filtered"]
    rows = rows.drop("filtered")
    if (made == rows["text"]).fill_null(value=True).all():
        return rows
    return rows.with_columns(made.set(made.is_in(list(nothing)), None).alias("answer"))


def _is_per_candidate(column: str, cases: pl.DataFrame, sizes: pl.Series) -> bool:
    """Whether a column holds a list with a value for every candidate of its case."""
    if column != "filtered" and column != "loglik" and not column.startswith("label."):
        return False
    values = cases[column]
    return isinstance(values.dtype, pl.List) and bool((values.list.len() == sizes).fill_null(value=False).all())


def _notes(
    first: pl.DataFrame, grades: Sequence[_Grade], filters: Sequence[str], several: bool, own: Sequence[str]
) -> list[CodedWarning]:
    notes = []
    if len(filters) > 1:
        n, names, head = len(filters), tuple(filters), filters[0]
        notes.append(CodedWarning.of("left-out-of-log", about="filters", n=n, filters=names, first=head))
    if several and (names := tuple(g.name for g in grades if g.metric not in own or len(filters) > 1)):
        whole = {"names": names, "n": max(first["resps"].list.len().to_list()), "tag": f"{_OF_SETS}{names[0]}"}
        notes.append(CodedWarning.of("log-grades-otherwise", about="filtered", **whole))
    return notes


IMPORTER = Importer(
    name="lm_eval",
    what="samples of lm-evaluation-harness (--log_samples), one file or a folder with its results",
    recognises=is_lm_eval,
    read=read,
)
