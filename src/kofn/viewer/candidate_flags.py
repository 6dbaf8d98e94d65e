"""Flags of candidates that readers filter by: cut off, judge and label differ, extractors disagree."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.extract.columnar_extraction import extract_column
from kofn.metrics.flags import Truncated
from kofn.registry import extractor
from kofn.scoring.diagnostics import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from kofn.scoring.result import Result

    Bools = np.ndarray[Any, np.dtype[np.bool_]]

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


def judge_disagrees(result: Result | None) -> Bools | None:
    """Which candidates a judge passes and a label fails, or the other way round; also where two judges differ."""
    if result is None:
        return None
    graded = {s.metric: s.sets.passes for s in result.scored if s.metric}
    judges = [name for name in graded if name in result.judges]
    labels = [name for name in graded if name not in result.judges]
    against = labels[:1] or judges[1:]
    if not judges or not against:
        return None
    flags = np.zeros(result.n_candidates, dtype=bool)
    for judge in judges:
        for other in against:
            a, b = graded[judge], graded[other]
            flags |= (a >= 0) & (b >= 0) & (a != b)  # negative: not graded
    return flags


def has_judge_and_label(result: Result | None) -> bool:
    """Whether `judge_disagrees` has two verdicts to compare."""
    if result is None:
        return False
    judges = [s.metric for s in result.scored if s.metric in result.judges]
    return bool(judges) and len([s for s in result.scored if s.metric]) > 1


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
            high = min(low + BATCH, self.n)
            self.differs[low:high] = extractors_disagree(self.candidates, self.extractors, low, high)
            self.done = high


def related_extractors(result: Result | None) -> tuple[str, ...]:
    """The run's extractor and its relatives, all built in; nothing where it is not one of these.

    A run names its extractor, and anybody may have written the run: the name is never imported, let alone called.
    """
    extraction = {} if result is None else result.extraction
    return FAMILIES.get(str(extraction.get("extractor")), ())


def extractors_disagree(candidates: Path, extractors: Sequence[str], low: int, high: int) -> Bools:
    """Which of the candidates low to high get another answer from one of the other extractors."""
    texts = _scan(candidates).slice(low, high - low).select("text").collect().to_series()
    first, *others = [extract_column(extractor(name), texts) for name in extractors]
    differs = np.zeros(high - low, dtype=bool)
    for other in others:
        differs |= (~first.eq_missing(other)).to_numpy()
    return differs


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False)  # the name of a folder may hold `*` or `[`


def _read_flags(path: Path, expression: pl.Expr) -> Bools:
    flags = _scan(path).select(expression.fill_null(value=False)).collect(engine="streaming").to_series()
    return np.array(flags.to_numpy(), dtype=bool)
