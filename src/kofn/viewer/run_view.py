"""One run as the pages see it: its columns in memory, its texts read from Parquet when a page shows them."""

from __future__ import annotations

import threading
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.aggregators.votes import any_agree, graded_votes, tally_votes
from kofn.core.format import MB, format_duration
from kofn.extract.extractor_choice import extract_column
from kofn.metrics.flags import Truncated
from kofn.registry import extractor
from kofn.render.case_payload import case_sums, report_lines
from kofn.runs.case_reports import case_scores
from kofn.runs.files import CANDIDATES, CASES, check_whole
from kofn.runs.load import GradedCandidates
from kofn.scoring.diagnostics import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    from collections.abc import Container, Sequence

    from kofn.core.candidate_sets import CandidateSets, Floats
    from kofn.core.table import Table
    from kofn.runs.record import Run
    from kofn.scoring.result import ScoredResult

MAX_EXECUTIONS = 20  # of a case on one page
EXECUTION_TEXTS = ("stopped", "harness", "output", "stderr")


def with_attribute(reports: pl.DataFrame, attribute: str, *values: str) -> Bools:
    """Which cases' reports hold this attribute of their execution, with one of these values; without values, any."""
    entry = pl.element().struct
    named = entry.field("attribute") == attribute
    fits = named & entry.field("value").is_in(values) if values else named
    flags = reports.select(pl.col("case").list.eval(fits).list.any().fill_null(value=False))
    return flags.to_series().to_numpy().astype(bool)


def executions(path: Path, group: str, case: str) -> list[dict[str, Any]]:
    """The first executions of a case in a run's executions.parquet: how each ended, what it used and wrote."""
    is_case = (pl.col("group") == group) & (pl.col("case_id") == case)
    return [_execution(i, row) for i, row in enumerate(rows_of_case(path, is_case, MAX_EXECUTIONS + 1), 1)]


def rows_of_case(path: Path, is_case: pl.Expr, most: int | None = None) -> list[dict[str, Any]]:
    """The rows of a case in a file that not every run has."""
    if not path.is_file():
        return []
    check_whole(path)
    try:
        return _scan(path).filter(is_case).slice(0, most).collect().to_dicts()
    except pl.exceptions.PolarsError:  # written by another version: the page does without
        return []


def _execution(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    signs = {True: ("pass", "pass"), False: ("fail", "fail"), None: ("none", "not verified")}
    sign, words = signs[row.get("passed")]
    texts = {name: row.get(name) for name in EXECUTION_TEXTS}
    return {"number": number, "sign": sign, "words": words, "facts": list(_usage(row)), **texts}


def _usage(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if row.get("status_code") is not None:
        yield "exit status", str(row["status_code"])
    if row.get("seconds") is not None:
        yield "took", format_duration(row["seconds"])
    if row.get("cpu_seconds") is not None:
        yield "CPU", format_duration(row["cpu_seconds"])
    if row.get("peak_memory"):
        yield "memory", f"{row['peak_memory'] / MB:,.1f} MB"


CUT_OFF = ("length", "max_tokens", "model_length", "MAX_TOKENS")  # finish reasons of an output that was cut
# a cheap filter for the metric `truncated`, which takes long on a million texts: it sees only texts that match one of
# these patterns, and no other could be flagged by it
_OPENERS = ("```", "<think>", "\\boxed{")
_JSON_START = r"^\s*(?:\{\"|\[\{|\[\")"
_DANGLING_END = r"(?:[,({\[<&*]|\s[-+*/=]|(?i:\b(?:the|an|and|or|but|of|because|which|if|than|its|their)))\s*$"
_TAIL = 40  # characters
BATCH = 20_000  # candidates that are extracted again at once


def cut_off(candidates: Path, columns: Container[str]) -> Bools | None:
    """Which candidates of a file were cut off; None where it does not have the columns to tell.

    By the finish reason that a server gave, else by the run's own metric, else by how the texts end.
    """
    if "finish" in columns:
        return _read_flags(candidates, pl.col("finish").is_in(CUT_OFF))
    if "score.truncated" in columns:
        return _read_flags(candidates, pl.col("score.truncated") > 0)
    if "text" not in columns:
        return None
    text = pl.col("text")
    is_open = text.str.contains_any(list(_OPENERS)) | text.str.head(_TAIL).str.contains(_JSON_START)
    flags = _read_flags(candidates, is_open | text.str.tail(_TAIL).str.contains(_DANGLING_END))
    rows = np.flatnonzero(flags)
    if len(rows):
        truncated = Truncated()
        texts = _scan(candidates).select("text", at=pl.int_range(pl.len())).filter(pl.col("at").is_in(rows.tolist()))
        flags[rows] = [truncated(text) == 1.0 for text in texts.collect(engine="streaming")["text"]]
    return flags


class ExtractorComparison:
    """Which candidates other extractors of the same kind read differently: batch by batch, in the background.

    Two extractions of an output cost far more than reading a column. A page waits for the first batch or two; the
    thread goes on, and a later page has the rest.
    """

    def __init__(self, candidates: Path, extractors: Sequence[str], n: int) -> None:
        self.candidates, self.extractors, self.n, self.done = candidates, extractors, n, 0
        self.differs = np.zeros(n, dtype=bool)
        self._thread = threading.Thread(target=self._compare, daemon=True, name="kofn-extractors")
        self._thread.start()

    def wait(self, seconds: float) -> Bools:
        """What is known, after this time at the latest."""
        self._thread.join(seconds)
        return self.differs

    def _compare(self) -> None:
        for low in range(0, self.n, BATCH):
            texts = _scan(self.candidates).slice(low, BATCH).select("text").collect().to_series()
            first, *others = [extract_column(extractor(name), texts) for name in self.extractors]
            differs = np.any([first.ne_missing(other).to_numpy() for other in others], axis=0)
            self.differs[low : low + len(texts)] = differs
            self.done = low + len(texts)


def related_extractors(result: ScoredResult | None) -> tuple[str, ...]:
    """The run's extractor and its relatives, all built in; nothing where it is not one of these.

    A run names its extractor, and anybody may have written the run: the name is never imported, let alone called.
    """
    return () if result is None else FAMILIES.get(str(result.extraction.get("extractor")), ())


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False)  # the name of a folder may hold `*` or `[`


def _read_flags(path: Path, expression: pl.Expr) -> Bools:
    flags = _scan(path).select(expression.fill_null(value=False)).collect(engine="streaming").to_series()
    return np.array(flags.to_numpy(), dtype=bool)


class RunView:
    """A run without its texts, and properties of its cases, each computed once.

    Rows are those of reports.parquet, in a run with candidates those of cases.parquet too.
    """

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run, self.path = name, run, run.directory
        self.lock = threading.RLock()

    # --- the run

    @cached_property
    def scores(self) -> pl.DataFrame:
        """id, group, type, score, passed and duration of every case."""
        return case_scores(self.run.reports)

    @property
    def keys(self) -> list[str]:
        """What identifies a case through runs: its id, or with its group where ids occur twice."""
        if self.scores["id"].n_unique() == self.n:
            return self.scores["id"].to_list()
        return (self.scores["group"] + " / " + self.scores["id"]).to_list()

    @property
    def n(self) -> int:
        return self.run.reports.height

    @property
    def table(self) -> Table | None:
        return None if self.run.result is None else self.run.result.table

    @property
    def sets(self) -> CandidateSets | None:
        """The candidates of every case under the first metric; None for programs' cases."""
        return None if self.run.result is None else self.run.result.scored[0].sets

    @property
    def candidate_sets(self) -> CandidateSets:
        """The same of a run that has candidates."""
        return self.run.scored_result.scored[0].sets

    @cached_property
    def graded_candidates(self) -> GradedCandidates:
        """The same as `kofn compare` and `kofn curve` take it."""
        run = self.run
        return GradedCandidates(name=self.name, path=self.path, result=run.scored_result, options=run.options, run=run)

    @property
    def graded(self) -> bool:
        """Whether candidates pass or fail."""
        return self.run.result is not None and bool(self.run.result.scored[0].metric)

    @property
    def metrics(self) -> list[str]:
        """The metrics that candidates were graded with."""
        return [] if self.run.result is None else [s.metric for s in self.run.result.scored if s.metric]

    @property
    def judges(self) -> list[str]:
        """Those of the metrics that a judge gave."""
        return [name for name in self.metrics if name in self.run.scored_result.judges]

    @property
    def has_answers(self) -> bool:
        """Whether answers were extracted from the candidates."""
        return self.sets is not None and self.sets.answers is not None

    @property
    def has_texts(self) -> bool:
        """Whether the candidates' texts are there."""
        return self.sets is not None and "text" in self.candidate_schema

    @property
    def bytes(self) -> int:
        """An estimate of the memory it takes."""
        frames = [self.run.reports, *([self.table.candidates, self.table.cases] if self.table else [])]
        return int(sum(f.estimated_size() for f in frames)) + (0 if self.sets is None else 24 * len(self.sets.values))

    def file(self, name: str) -> Path:
        return self.path / name

    def scan(self, name: str) -> pl.LazyFrame:
        return _scan(self.file(name))

    def row_of(self, case: str, row: int | None = None) -> int | None:
        """The row of a case. Ids of programs' cases may occur once per group: then `row` says which is meant."""
        ids = self.scores["id"]
        if row is not None and 0 <= row < self.n and ids[row] == case:
            return row
        return ids.index_of(case)

    # --- texts, read when they are shown

    def questions(self, rows: np.ndarray[Any, Any]) -> pl.Series:
        """The inputs of these cases; null where there are none."""
        if self.table is None:
            return self._descriptions.gather(rows)
        if "input" not in self.case_schema:
            return pl.Series("input", [None] * len(rows), dtype=pl.String)
        return self._inputs.gather(rows)

    @cached_property
    def case_schema(self) -> dict[str, Any]:
        return dict(pl.read_parquet_schema(self.file(CASES)))

    @cached_property
    def candidate_schema(self) -> dict[str, Any]:
        return dict(pl.read_parquet_schema(self.file(CANDIDATES)))

    @cached_property
    def _inputs(self) -> pl.Series:
        return pl.read_parquet(self.file(CASES), columns=["input"], glob=False)["input"].cast(pl.String)

    @cached_property
    def _descriptions(self) -> pl.Series:
        """One line about each case of a program, which has no input."""
        return report_lines(self.run.reports)

    def candidates(self, row: int) -> pl.DataFrame:
        """All columns of the candidates of one case, read from the file."""
        low, high = self.candidate_sets.offsets[row : row + 2].tolist()
        return self.scan(CANDIDATES).slice(low, high - low).collect()

    def case(self, row: int) -> dict[str, Any]:
        """All columns of one case, read from the file."""
        return self.scan(CASES).slice(row, 1).collect().row(0, named=True)

    def outputs_with(self, words: str) -> Bools:
        """Which cases have a candidate whose text holds these words, in upper or lower case."""
        text = pl.col("text")
        if words.isascii():  # most are, and then no lower-case copy of the texts is made
            holds = text.str.contains_any([words], ascii_case_insensitive=True)
        else:
            holds = text.str.to_lowercase().str.contains(words.lower(), literal=True)
        return self._any(_read_flags(self.file(CANDIDATES), holds) if self.has_texts else None)

    # --- properties of cases, one value per case

    @cached_property
    def _owner(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The case of every candidate."""
        return np.repeat(np.arange(len(self.candidate_sets)), self.candidate_sets.sizes)

    @cached_property
    def verdicts(self) -> np.ndarray[Any, np.dtype[np.int8]]:
        """1 passed, 0 did not, -1 nothing was verified."""
        unknown = self.scores["score"].is_null().to_numpy()
        return np.where(unknown, -1, self.scores["passed"].to_numpy()).astype(np.int8)

    @cached_property
    def counts(self) -> tuple[Any, Any]:
        """(candidates graded, candidates passing)."""
        return self.candidate_sets.counts

    @cached_property
    def has_votes(self) -> bool:
        """Whether there is a vote: two candidates of some case agree."""
        return self.has_answers and any_agree(self.candidate_sets)

    @cached_property
    def tied(self) -> Bools:
        """Whether the vote of a case is a tie."""
        if not self.has_answers:
            return self._any(None)
        return np.asarray(tally_votes(graded_votes(self.candidate_sets)).tied, dtype=bool)

    @cached_property
    def identical(self) -> Bools:
        """Whether a case has several candidates with one and the same text."""
        flags = self._any(None)
        if not self.has_texts:
            return flags
        # all texts of a case are equal where each equals the one before: a difference of running sums counts those
        hashed = pl.when(pl.col("text").is_not_null()).then(pl.col("text").hash())
        hashes = self.scan(CANDIDATES).select(hashed).collect(engine="streaming").to_series()
        same = (hashes == hashes.shift(1)).fill_null(value=False).to_numpy().astype(np.int64)
        running = np.concatenate([[0], np.cumsum(same)])
        sizes, offsets = self.candidate_sets.sizes, self.candidate_sets.offsets
        several = sizes > 1
        low, high = offsets[:-1][several] + 1, offsets[1:][several]
        flags[several] = running[high] - running[low] == sizes[several] - 1
        return flags

    @cached_property
    def truncated(self) -> Bools:
        """Whether a candidate of a case was cut off."""
        return self._any(None if self.sets is None else cut_off(self.file(CANDIDATES), self.candidate_schema))

    def _any(self, candidates: Bools | None) -> Bools:
        """Whether any candidate of a case is flagged; None flags none."""
        flags = np.zeros(self.n, dtype=bool)
        if candidates is not None and self.sets is not None:
            flags[self._owner[candidates]] = True
        return flags

    @cached_property
    def failed_calls(self) -> Bools:
        """Whether a call of a case failed."""
        if self.table is None or "error" not in self.table.candidates.columns:
            return self._any(None)
        return self._any(self.table.candidates["error"].is_not_null().to_numpy())

    @cached_property
    def flaky(self) -> Bools:
        """Whether a program's case passed at some times and failed at others."""
        return with_attribute(self.run.reports, "flaky", "true") if self.sets is None else self._any(None)

    @cached_property
    def stopped(self) -> Bools:
        """Whether a program was stopped in a case: it took too long, or too much memory."""
        return with_attribute(self.run.reports, "stopped") if self.sets is None else self._any(None)

    @cached_property
    def judge_differs(self) -> Bools:
        """Whether a judge and a label, or two judges, disagree on a candidate."""
        labels = [name for name in self.metrics if name not in self.judges]
        flags = self._any(None)
        for judge, other in product(self.judges, labels[:1] or self.judges[1:]):
            a, b = (self.graded_candidates.metric(name).sets.passes for name in (judge, other))
            flags |= self._any((a >= 0) & (b >= 0) & (a != b))  # negative: not graded
        return flags

    @cached_property
    def extractor_comparison(self) -> ExtractorComparison | None:
        """Other extractors on the same outputs; None where there are none."""
        extractors = related_extractors(self.run.result)
        if not extractors or not self.has_texts:
            return None
        return ExtractorComparison(self.file(CANDIDATES), extractors, int(self.candidate_sets.offsets[-1]))

    def extracted_differently(self, seconds: float = 0.7) -> tuple[Bools, float]:
        """Which cases have a candidate on which extractors disagree, and the share that was compared so far."""
        with self.lock:
            comparison = self.extractor_comparison
        if comparison is None:
            return self._any(None), 1.0
        return self._any(comparison.wait(seconds)), comparison.done / max(1, comparison.n)

    @cached_property
    def costs(self) -> Floats | None:
        """What the candidates of a case cost, NaN where that is not known; tokens where money is not known."""
        if self.sets is None or self.table is None:
            return None
        costs = self.sets.costs
        if costs is None and "tokens" in self.table.candidates.columns:
            costs = self.table.candidates["tokens"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return None if costs is None else np.asarray(case_sums(costs, self.sets), dtype=np.float64)

    @cached_property
    def seconds(self) -> Floats | None:
        """What the candidates of a case took, or the case itself."""
        if self.sets is None:
            durations = self.scores["duration"].to_numpy()
            return durations if durations.any() else None
        times = self.sets.seconds
        return None if times is None else np.asarray(case_sums(times, self.sets), dtype=np.float64)
