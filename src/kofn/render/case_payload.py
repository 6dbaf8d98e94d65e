"""The cases of a run as compressed data blocks for report.html.

One block is the index: what the table of cases sorts, filters and searches. The others hold the texts, some 200 cases
each, and are unpacked when a case is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.aggregators.votes import any_agree, graded_votes, tally_votes
from kofn.errors import InputError
from kofn.extract.answer_spans import locate_column
from kofn.render.charts import candidate_tokens
from kofn.render.page import ByteBudget, cut_texts, fit_chunks, pack, round_digits, shift_spans, to_json
from kofn.render.run_summary import first_difference
from kofn.runs.case_reports import EXECUTION, case_scores, explode_structs, json_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.candidate_sets import CandidateSets, Floats, Ints
    from kofn.core.table import Table
    from kofn.render.page import PackedData
    from kofn.runs.record import Run

_SNIPPET = (2_000, 400, 150, 50, 0)  # characters of an input in the index, the first that fits
_LONGEST_ID = 1_000
_LONGEST_TAG = 200
_MOST_VALUES = 60  # a tag with more values is no filter
_MOST_FILTERS = 8
_MOST_STRIP = 40  # candidates a case that the table draws one by one
_CASES_A_CHUNK = 200
_BYTES_A_CHUNK = 1_000_000
_MOST_LOCATED = 15_000  # answers looked for in their texts, of about 0.2 milliseconds each


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBlocks:
    """The blocks, and what was left out of them.

    cut       the length at which texts were cut; None where all are whole
    searched  the characters of an input that the index holds; None where it holds all
    """

    blocks: Mapping[str, PackedData]
    n_shown: int
    total: int
    cut: int | None
    searched: int | None
    notes: tuple[str, ...]


def case_blocks(run: Run, budget: ByteBudget | None = None) -> CaseBlocks:
    """The index as block `case-index`, the texts as `texts-0`, `texts-1`, ..."""
    budget = budget or ByteBudget()
    source = _CaseSource(run)
    at = source.most_interesting(budget)
    while True:
        chosen = _PageCases(source, at, budget.candidates_a_case)
        # half of the cases at a time, until they fit with their texts cut
        found = _fit_budget(chosen, budget)
        if found is not None or len(at) <= 1:
            break
        at = source.first(at, len(at) // 2)
    if found is None:  # a single case is too large for the page: its numbers, and texts cut to nothing
        chunks = {f"texts-{i}": pack(_chunk(chosen, *ends, 0)) for i, ends in enumerate(chosen.chunks)}
        found = {"case-index": pack(_index(chosen, 0)), **chunks}, 0, 0
    blocks, length, snippet = found
    return CaseBlocks(
        blocks=blocks,
        n_shown=len(at),
        total=source.n,
        cut=length,
        searched=snippet if source.longest_input > snippet else None,
        notes=tuple(_notes(source, chosen, length)),
    )


def _notes(source: _CaseSource, chosen: _PageCases, length: int | None) -> list[str]:
    """What the page leaves out, in one line each."""
    notes = []
    where = "reports.parquet" if source.table is None else "candidates.parquet"
    if chosen.n < source.n:
        notes.append(
            f"the table shows {chosen.n:,} of {source.n:,} cases, failing ones first: the numbers and charts are over "
            "all of them, and reports.parquet holds every case"
        )
    if chosen.left_out:
        notes.append(f"{chosen.left_out:,} candidates of very large sets are not in the page: {where} holds them")
    if length is not None:
        notes.append(
            f"texts of more than {length:,} characters are cut in the middle to keep the page small: "
            f"{where} holds the whole"
        )
    return notes


def _fit_budget(chosen: _PageCases, budget: ByteBudget) -> tuple[dict[str, PackedData], int | None, int] | None:
    """The blocks, the length of texts in them, and that of inputs in the index; None where even nothing fits."""
    # lazily: mostly the first length fits
    indexes = ((length, pack(_index(chosen, length))) for length in _SNIPPET)
    snippet, index = next(((length, index) for length, index in indexes if len(index) <= budget.index), (0, None))
    if index is None:
        return None
    # bytes of text by chunk, by which a sample of chunks is taken
    sizes = np.add.reduceat(chosen.bytes, [first for first, _ in chosen.chunks]) if chosen.n else np.zeros(0)
    found = fit_chunks(
        sizes,
        lambda i, length: pack(_chunk(chosen, *chosen.chunks[i], length)),
        chosen.longest(),
        budget.packed - len(index),
    )
    if found is None:
        return None
    texts, length = found
    return {"case-index": index, **{f"texts-{i}": text for i, text in enumerate(texts)}}, length, snippet


def report_lines(reports: pl.DataFrame) -> pl.Series:
    """What the report of every case tells of it, but how it was executed, in a line each."""
    one = pl.element().struct
    line = one.field("attribute") + ": " + one.field("value").fill_null("null").str.slice(0, 300)
    given = line.filter(~one.field("attribute").is_in(EXECUTION))
    return reports.select(pl.col("case").list.eval(given).list.join(" · ")).to_series()


class _CaseSource:
    """A run's cases, a row each in the order of reports.parquet, and their candidates where there are some."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.scores = case_scores(run.reports)
        self.n = self.scores.height
        result = run.result
        self.table: Table | None = None if result is None else result.table
        self.sets: CandidateSets | None = None if result is None else result.scored[0].sets
        # the page joins both by position
        if self.sets is not None and not self.sets.case_ids.equals(self.scores["id"], check_names=False):
            raise InputError("reports.parquet and cases.parquet name different cases: they are not of one run")

    @cached_property
    def inputs(self) -> pl.Series | None:
        """The input of every case; for a case of a program, the fields of its report."""
        if self.table is not None:
            return self.table.cases["input"] if "input" in self.table.cases.columns else None
        lines = report_lines(self.run.reports)
        return lines if bool((lines != "").any()) else None

    @property
    def longest_input(self) -> int:
        return 0 if self.inputs is None else int(self.inputs.str.len_chars().max() or 0)  # type: ignore[arg-type]

    @cached_property
    def rank(self) -> Ints:
        """The cases by interest: failing first, then those of which nothing was verified."""
        passed = self.scores["passed"].to_numpy()
        verified = self.scores["score"].is_not_null().to_numpy()
        # stable: within each kind the order of the file
        return np.argsort(np.where(passed, 2, np.where(verified, 0, 1)), kind="stable")

    def most_interesting(self, budget: ByteBudget) -> Ints:
        """The most interesting cases that fit, in their own order."""
        most = min(budget.cases, self.n)
        if self.sets is not None and self.n:
            sizes = np.minimum(self.sets.sizes[self.rank], budget.candidates_a_case)
            # as many cases as keep within the budget of candidates, and at least one
            most = min(most, max(1, int(np.searchsorted(np.cumsum(sizes), budget.candidates, side="right"))))
        return np.sort(self.rank[:most])

    def first(self, at: Ints, n: int) -> Ints:
        """The n most interesting of some cases."""
        return np.sort(self.rank[np.isin(self.rank, at)][:n])


class _PageCases:
    """The cases that go into the page."""

    def __init__(self, source: _CaseSource, at: Ints, most: int) -> None:
        self.source, self.at, self.n = source, at, len(at)
        self.scores = source.scores[at]
        self.left_out = 0
        self.sizes = np.zeros(self.n, dtype=np.int64)
        self.rows = np.zeros(0, dtype=np.int64)
        if source.sets is not None:
            whole = source.sets.sizes[at]
            self.sizes = np.minimum(whole, most)
            self.left_out = int((whole - self.sizes).sum())
            starts = _running(self.sizes)[:-1]
            self.rows = np.repeat(source.sets.offsets[at] - starts, self.sizes) + np.arange(int(self.sizes.sum()))
        self.ends = _running(self.sizes)

    @cached_property
    def candidates(self) -> pl.DataFrame:
        """The texts of the candidates: text, reasoning, answer, error and note, where there are some."""
        table, sets = self.source.table, self.source.sets
        if table is None or sets is None:
            return pl.DataFrame()
        names = [n for n in ("text", "reasoning", "error", "note") if n in table.candidates.columns]
        texts = [table.candidates[name].cast(pl.String) for name in names]
        texts += [] if sets.answers is None else [sets.answers.alias("answer")]
        return pl.DataFrame([column.gather(self.rows) for column in texts])

    @cached_property
    def text_is_answer(self) -> pl.Series | None:
        """Where the answer is the whole text: it need not be there twice."""
        c = self.candidates
        if not {"text", "answer"} <= set(c.columns):
            return None
        return c.select((pl.col("text").str.strip_chars() == pl.col("answer")).fill_null(value=False)).to_series()

    @cached_property
    def spans(self) -> Ints:
        """(start, end) in characters of the answer's place in its text, a row a candidate; -1 where there is none.

        The page itself finds an answer that its text spells once. Of the others the first so many are looked for, in
        failing cases before passing ones; beyond that the page takes the last place that spells the answer.
        """
        spans = np.full((len(self.rows), 2), -1, dtype=np.int64)
        if self.text_is_answer is None:
            return spans

        text, answer = pl.col("text"), pl.col("answer")
        # 0: spelled another way, as "1,000" for 1000; 2 or more: which one is meant must be found
        several = text.str.count_matches(answer, literal=True) != 1
        unclear = self.candidates.select(
            (several & ~self.text_is_answer & (answer != "")).fill_null(value=False)
        ).to_series()
        rows = unclear.arg_true().to_numpy()
        passed = np.repeat(self.scores["passed"].to_numpy(), self.sizes)[rows]
        # failing cases are the ones that are opened
        rows = rows[np.argsort(passed, kind="stable")][:_MOST_LOCATED]
        found = locate_column(self.candidates["text"].gather(rows), self.candidates["answer"].gather(rows))
        spans[rows] = np.stack(found, axis=1)
        return spans

    @cached_property
    def cases(self) -> pl.DataFrame:
        """The texts of the cases: input and reference, and every tag as text."""
        table = self.source.table
        if table is None:
            return pl.DataFrame()
        columns = [table.cases[name].gather(self.at) for name in ("input", "reference") if name in table.cases.columns]
        if "choices" in table.cases.columns:
            choices = table.cases["choices"].gather(self.at).cast(pl.List(pl.String))
            columns.append(choices.list.join("\n", ignore_nulls=True).alias("choices"))
        return pl.DataFrame([_text(c) for c in columns])

    @cached_property
    def tags(self) -> pl.DataFrame:
        """The tags as text, and what else is one value a case."""
        table = self.source.table
        if table is None:
            return pl.DataFrame()
        more = [table.cases[name] for name in ("cluster", "weight") if name in table.cases.columns]
        names = {c.name for c in more}
        columns = [*more, *(c for c in table.tags.iter_columns() if c.name not in names)]
        return pl.DataFrame([_text(c).gather(self.at) for c in columns])

    @cached_property
    def origins(self) -> pl.Series:
        """Where a regression case comes from: its checkpoint and group; null for any other."""
        names = ("original_checkpoint", "original_group")
        named = self.source.run.reports[self.at].select(pl.concat_str(names, separator=", ", ignore_nulls=True))
        return named.select(pl.when(pl.first() != "").then(pl.first())).to_series()

    @cached_property
    def attributes(self) -> pl.DataFrame:
        """A row an attribute of a case: row (of the case), attribute, is_correct, weight, expected, actual, diff.

        In a run with candidates, what is expected is the reference and what is actual are the answers: both are in the
        page already.
        """
        flat = explode_structs(self.source.run.reports[self.at], "results")
        nothing = pl.lit(None, dtype=pl.String)
        return flat if self.source.table is None else flat.with_columns(expected=nothing, actual=nothing)

    @cached_property
    def fields(self) -> pl.DataFrame:
        """What the report of a program's case tells of it: row, attribute, value."""
        if self.source.table is not None:
            return pl.DataFrame(schema={"row": pl.UInt32, "attribute": pl.String, "value": pl.String})
        return explode_structs(self.source.run.reports[self.at], "case")

    def longest(self) -> int:
        """The most characters a text has."""
        texts = [*self.candidates.iter_columns(), *self.cases.iter_columns(), *self.tags.iter_columns()]
        texts += [self.attributes[name] for name in ("expected", "actual", "diff")]
        texts += [self.fields["value"], self.scores["id"]]
        return max((int(t.str.len_chars().max() or 0) for t in texts if t.dtype == pl.String), default=0)  # type: ignore[arg-type]

    @cached_property
    def chunks(self) -> list[tuple[int, int]]:
        """(first, end) of the cases of every chunk: at most 200, and about a megabyte where texts are long."""
        if not self.n:
            return []
        # a chunk is full at 200 cases, 2,000 candidates or a megabyte, whichever comes first
        weight = np.maximum(self.sizes / (10 * _CASES_A_CHUNK), self.bytes / _BYTES_A_CHUNK)
        weight = np.maximum(weight, 1 / _CASES_A_CHUNK)
        # 1e-9: sums of 1/200 fall just short of whole numbers
        number = np.floor(_running(weight)[:-1] + 1e-9)
        starts = np.flatnonzero(np.diff(number, prepend=-1.0)).tolist()
        return list(zip(starts, [*starts[1:], self.n], strict=True))

    @cached_property
    def bytes(self) -> Floats:
        """The bytes of text of every case, of its candidates and of its report."""
        # differences of running sums: the sum of every slice without a loop
        running = _running(_bytes(self.candidates, len(self.rows)))
        total: Floats = running[self.ends[1:]] - running[self.ends[:-1]] + _bytes(self.cases, self.n)
        for flat, names in ((self.attributes, ("expected", "actual", "diff")), (self.fields, ("value",))):
            rows = flat["row"].to_numpy().astype(np.int64)
            total += np.bincount(rows, weights=_bytes(flat.select(names), len(rows)), minlength=self.n)
        return total


def _running(values: Any) -> Any:
    """The sums before each value and after the last."""
    return np.concatenate([[0], np.cumsum(values)])


def _bytes(texts: pl.DataFrame, n: int) -> Floats:
    """The bytes of the texts in each of n rows; a frame without columns has no rows of its own."""
    total = np.zeros(n)
    for column in texts.iter_columns():
        total += column.str.len_bytes().fill_null(0).to_numpy()
    return total


def _text(column: pl.Series) -> pl.Series:
    """A column as text; lists as JSON."""
    if column.dtype == pl.String:
        return column
    if column.dtype.is_nested() or column.dtype == pl.Boolean:
        return json_text(column)
    return column.cast(pl.String)


def _index(chosen: _PageCases, snippet: int) -> bytes:
    """What the table of cases shows and filters by, as columns."""
    source, scores, inputs = chosen.source, chosen.scores, chosen.source.inputs
    groups = scores.group_by("group", maintain_order=True).agg(pl.col("type").first())
    # codes and a list of names: a page of 20,000 cases repeats few group names
    group_codes = {name: i for i, name in enumerate(groups["group"])}
    passed = scores["passed"].to_numpy()
    unverified = scores["score"].is_null().to_numpy()
    data: dict[str, Any] = {
        "n": chosen.n,
        "total": source.n,
        "row": chosen.at,
        "id": scores["id"].str.slice(0, _LONGEST_ID).to_list(),
        "groups": groups["group"].str.slice(0, _LONGEST_TAG).to_list(),
        "types": groups["type"].to_list(),
        "group": scores["group"].replace_strict(group_codes, return_dtype=pl.Int64).to_numpy().astype(np.int64),
        "verdict": np.where(unverified, -1, passed).astype(np.int64),
        "score": round_digits(scores["score"].cast(float).fill_null(np.nan).to_numpy()),
        "chunks": [first for first, _ in chosen.chunks],
        "tags": _filters(chosen),
        "input": None if inputs is None or not snippet else inputs.gather(chosen.at).str.slice(0, snippet).to_list(),
    }
    if source.sets is not None:
        return to_json(data | _candidate_columns(chosen))
    duration = scores["duration"].to_numpy()
    data["failing"] = first_failures(chosen.attributes, chosen.n)
    data["seconds"] = round_digits(duration) if duration.any() else None
    return to_json(data)


def first_failures(attributes: pl.DataFrame, n: int) -> list[str]:
    """Of each of n cases the first attribute that is wrong, with the first thing its diff says, and how many more are.

    `attributes` has a row an attribute: row (of the case), attribute, is_correct, diff.
    """
    found = [""] * n
    more = [0] * n
    wrong = attributes.filter(pl.col("is_correct") == False)  # noqa: E712 - null is not wrong
    for row, attribute, diff in wrong.select("row", "attribute", "diff").iter_rows():
        if found[row]:
            more[row] += 1
        else:
            found[row] = f"{attribute}: {first}" if (first := first_difference(diff)) else attribute
    cut = [why[:_LONGEST_TAG] for why in found]
    return [f"{why} (and {n} more)" if n else why for why, n in zip(cut, more, strict=True)]


def _candidate_columns(chosen: _PageCases) -> dict[str, Any]:
    result, at = chosen.source.run.scored_result, chosen.at
    sets = result.scored[0].sets
    graded, passing = sets.counts
    # one character per candidate; above the limit the table draws a bar from the counts
    strips = None
    if result.scored[0].metric and chosen.sizes.max(initial=0) <= _MOST_STRIP:
        marks = _marks(sets.passes[chosen.rows])
        strips = [marks[a:b] for a, b in pairwise(chosen.ends.tolist())]
    return {
        "metrics": [one.metric for one in result.scored if one.metric],
        "values": [[metric, name] for metric, name in result.case_values],
        "selectors": [name[:_LONGEST_TAG] for name in sets.selectors],
        "size": sets.sizes[at],
        "has_texts": "text" in chosen.candidates.columns,
        "graded": graded[at] if result.scored[0].metric else None,
        "passing": passing[at] if result.scored[0].metric else None,
        "strip": strips,
        "has_answers": sets.answers is not None,
        "tied": tally_votes(graded_votes(sets)).tied.astype(np.int64)[at] if any_agree(sets) else None,
        "cost": case_sums(sets.costs, sets)[at] if sets.costs is not None else None,
        "seconds": case_sums(sets.seconds, sets)[at] if sets.seconds is not None else None,
    }


def _filters(chosen: _PageCases) -> list[dict[str, Any]]:
    """Tags of few values, as codes; those the run was sliced by first."""
    by = chosen.source.run.options.by if chosen.source.table is not None else ()
    # sorting by a flag is stable: sliced fields first, each kind in file order
    columns = sorted(chosen.tags.iter_columns(), key=lambda c: c.name not in by)
    out: list[dict[str, Any]] = []
    for column in columns:
        known = column.fill_null("(none)").str.slice(0, _LONGEST_TAG)
        values = known.unique(maintain_order=True)
        if 1 < len(values) <= _MOST_VALUES and len(out) < _MOST_FILTERS:
            codes = known.replace_strict(values, pl.Series(range(len(values)), dtype=pl.Int64))
            name = column.name[:_LONGEST_TAG]
            values_of = {"values": values.to_list(), "code": codes.to_numpy()}
            out.append({"name": name, **values_of, "sliced": column.name in by})
    return out


def case_sums(values: Floats, sets: CandidateSets) -> Any:
    """The sum of a set's known values; NaN where none is known."""
    known = ~np.isnan(values)
    running, counts = _running(np.where(known, values, 0.0)), _running(known)
    low, high = sets.offsets[:-1], sets.offsets[1:]
    return round_digits(np.where(counts[high] > counts[low], running[high] - running[low], np.nan))


def _marks(passes: Any) -> str:
    """1, 0 and - of candidates that pass, fail and were not graded."""
    # passes are -1, 0 and 1: an index into these three after adding 1
    marks = np.frombuffer(b"-01", dtype=np.uint8)[passes.astype(np.int64) + 1]
    return str(marks.tobytes(), "ascii")


def _chunk(chosen: _PageCases, first: int, end: int, length: int | None) -> bytes:
    """The texts and numbers of some cases, as columns; texts longer than `length` as [start, left out, end]."""
    low, high = int(chosen.ends[first]), int(chosen.ends[end])
    fields = _rows_between(chosen.fields, first, end)
    data: dict[str, Any] = {
        "first": first,
        "id": cut_texts(chosen.scores["id"][first:end], length),
        "origin": cut_texts(chosen.origins[first:end], length),
        **{c.name: cut_texts(c[first:end], length) for c in chosen.cases.iter_columns()},
        "tags": [[c.name[:_LONGEST_TAG], cut_texts(c[first:end], length)] for c in chosen.tags.iter_columns()],
        "attributes": _attributes(chosen, first, end, length),
        "fields": _nest_rows(fields, first, end, cut_texts(fields["value"], length)),
    }
    if chosen.source.sets is not None:
        data["ends"] = chosen.ends[first : end + 1] - low
        at, values = chosen.at[first:end], chosen.source.run.scored_result.case_values
        data["values"] = [round_digits(column[at]) for column in values.values()]
        data["candidates"] = _candidates(chosen, low, high, length)
    return to_json(data)


def _candidates(chosen: _PageCases, low: int, high: int, length: int | None) -> dict[str, Any]:
    result, rows = chosen.source.run.scored_result, chosen.rows[low:high]
    sets = result.scored[0].sets
    part = chosen.candidates[low:high]
    out: dict[str, Any] = {name: cut_texts(part[name], length) for name in part.columns}
    if chosen.text_is_answer is not None:
        # true stands for "the whole text"
        for i in chosen.text_is_answer[low:high].arg_true().to_list():
            out["answer"][i] = True
        out["span"] = shift_spans(chosen.spans[low:high], part["text"].str.len_chars(), length)
    graded = [one for one in result.scored if one.metric]
    out["scores"] = [round_digits(one.sets.values[rows]) for one in graded]
    out["passes"] = [_marks(one.sets.passes[rows]) for one in graded]
    out["selectors"] = [round_digits(scores[rows]) for scores in sets.selectors.values()]
    for name, values in (("cost", sets.costs), ("seconds", sets.seconds), ("tokens", candidate_tokens(result.table))):
        if values is not None:
            out[name] = round_digits(values[rows])
    return out


def _attributes(chosen: _PageCases, first: int, end: int, length: int | None) -> list[list[Any]]:
    part = _rows_between(chosen.attributes, first, end)
    texts = [cut_texts(part[name], length) for name in ("expected", "actual", "diff")]
    return _nest_rows(part, first, end, part["is_correct"].to_list(), part["weight"].to_list(), *texts)


def _rows_between(flat: pl.DataFrame, first: int, end: int) -> pl.DataFrame:
    rows = flat["row"].to_numpy()
    # rows ascend, so that a chunk is a slice
    return flat[int(np.searchsorted(rows, first)) : int(np.searchsorted(rows, end))]


def _nest_rows(flat: pl.DataFrame, first: int, end: int, *columns: Sequence[Any]) -> list[list[Any]]:
    """The attributes' names and these columns as a list a case."""
    out: list[list[Any]] = [[] for _ in range(end - first)]
    names = flat["attribute"].str.slice(0, _LONGEST_TAG).to_list()
    for row, *values in zip(flat["row"].to_list(), names, *columns, strict=True):
        out[row - first].append(values)
    return out
