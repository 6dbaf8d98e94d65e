"""Marks of candidates that people look for: cut off, judged otherwise than labelled, read differently."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from kofn.report.files import CANDIDATES

if TYPE_CHECKING:
    from kofn.web.browsed import Bools, Browsed

CUT_OFF = ("length", "max_tokens", "model_length", "MAX_TOKENS")  # what servers say of an output that was cut
# texts that the metric `truncated` could mark; it looks at these only
_OPENED = ("```", "<think>", "\\boxed{")
_JSON = r"^\s*(?:\{\"|\[\{|\[\")"
_DANGLES = r"(?:[,({\[<&*]|\s[-+*/=]|(?i:\b(?:the|an|and|or|but|of|because|which|if|than|its|their)))\s*$"
_TAIL = 40  # characters
PIECE = 20_000  # candidates that are read again at once


def cut_candidates(one: Browsed) -> Bools | None:
    """Which candidates were cut off: by the reason a server gave, by the run's own flag, else by how they end."""
    known = set(one.candidate_schema)
    if "finish" in known:
        return _column(one, pl.col("finish").is_in(CUT_OFF))
    if "score.truncated" in known:
        return _column(one, pl.col("score.truncated") > 0)
    if "text" not in known:
        return None
    text = pl.col("text")
    open_still = text.str.contains_any(list(_OPENED)) | text.str.head(_TAIL).str.contains(_JSON)
    maybe = _column(one, open_still | text.str.tail(_TAIL).str.contains(_DANGLES))
    rows = np.flatnonzero(maybe)
    if len(rows):
        from kofn.metrics.flags import Truncated

        cut = Truncated()
        texts = _scan(one).select("text", at=pl.int_range(pl.len())).filter(pl.col("at").is_in(rows.tolist()))
        maybe[rows] = [cut(text) == 1.0 for text in texts.collect(engine="streaming")["text"]]
    return maybe


def judge_differs(one: Browsed) -> Bools | None:
    """Which candidates a judge passes and a label fails, or the other way; also where two judges differ."""
    result = one.run.result
    if result is None:
        return None
    graded = {s.metric: s.sets.passes for s in result.scored if s.metric}
    judges = [name for name in graded if name in result.judges]
    others = [name for name in graded if name not in result.judges]
    against = others[:1] or judges[1:]
    if not judges or not against:
        return None
    out = np.zeros(result.n_candidates, dtype=bool)
    for judge in judges:
        for other in against:
            a, b = graded[judge], graded[other]
            out |= (a >= 0) & (b >= 0) & (a != b)
    return out


def has_judged_labels(one: Browsed) -> bool:
    """Whether `judge_differs` can say anything of a run."""
    result = one.run.result
    if result is None:
        return False
    judges = [s.metric for s in result.scored if s.metric in result.judges]
    return bool(judges) and len([s for s in result.scored if s.metric]) > 1


class ReadAgain:
    """Which candidates other extractors of the same kind read differently: found piece by piece, in the background.

    Two readers of an output cost far more than a look at a column. What a page waits for is the first piece, or a
    second; the rest goes on, and a later page has it.
    """

    def __init__(self, one: Browsed) -> None:
        assert one.sets is not None
        self.one, self.n, self.done = one, int(one.sets.offsets[-1]), 0
        self.differs = np.zeros(self.n, dtype=bool)
        self._going = threading.Thread(target=self._read, daemon=True, name="kofn-read-again")
        self._going.start()

    def wait(self, seconds: float) -> Bools:
        """What was found, after this time at the latest."""
        self._going.join(seconds)
        return self.differs

    def _read(self) -> None:
        for low in range(0, self.n, PIECE):
            high = min(low + PIECE, self.n)
            self.differs[low:high] = read_differently(self.one, low, high)
            self.done = high


def family_of(one: Browsed) -> tuple[str, ...]:
    """The run's extractor and its relatives, all kofn's own; nothing where it is none of these.

    A run names its extractor, and a run may be anybody's: what it names is never looked up, let alone called.
    """
    from kofn.diagnose import FAMILIES

    told = {} if one.run.result is None else one.run.result.extraction
    return FAMILIES.get(str(told.get("extractor")), ())


def read_differently(one: Browsed, low: int, high: int) -> Bools:
    """Which of the candidates low..high give another answer to a second extractor of the same kind."""
    from kofn.extract.columns import extract_column
    from kofn.registry import extractor

    texts = _scan(one).slice(low, high - low).select("text").collect().to_series()
    first, *others = [extract_column(extractor(name), texts) for name in family_of(one)]
    differs = np.zeros(high - low, dtype=bool)
    for other in others:
        differs |= (~first.eq_missing(other)).to_numpy()
    return differs


def _scan(one: Browsed) -> pl.LazyFrame:
    return pl.scan_parquet(one.file(CANDIDATES), glob=False)


def _column(one: Browsed, expression: pl.Expr) -> Bools:
    found = _scan(one).select(expression.fill_null(value=False)).collect(engine="streaming").to_series()
    return np.array(found.to_numpy(), dtype=bool)
