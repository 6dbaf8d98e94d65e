"""Extraction audits of runs in the background: on a sample, and in a process of its own where one may never end.

A pattern that somebody typed, or that a run brought along, can take exponential time, and so can the comparison of two
formulas. Neither can be stopped within this process, so another one does it, for a limited time.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from kofn.analysis.extraction_audit import audit_extractors
from kofn.errors import InputError, KofnError
from kofn.metrics import default_metric
from kofn.registry import metric
from kofn.runs.files import CANDIDATES, CASES
from kofn.runs.record import restore_table
from kofn.viewer.audit_query import SAMPLE_SIZES, STORED, default_extractors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.analysis.extraction_audit import ExtractionAudit
    from kofn.core.table import Table
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.result import Result
    from kofn.viewer.audit_query import AuditQuery, SampleSize
    from kofn.viewer.run_view import RunView

    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Ints = np.ndarray[Any, np.dtype[np.int64]]

COMPARISONS = ("exact_match", "numeric", "choice", "math_equal")  # metrics that compare an answer and run no code
MAX_KEPT = 4  # audits of a run
MAX_RUNNING, MAX_WAITING = 2, 8
TIME_LIMIT = 30  # seconds of a process of its own
QUICK_BYTES, QUICK_OUTPUTS = 3_000_000, 20_000  # more than these are read in a process of their own


# --- the sample


def sample_of(view: RunView, size: SampleSize, seed: int) -> Table:
    """Cases drawn at random, in their order, with their texts; all of them where they are few."""
    result = view.run.result
    if result is None or view.sets is None or "text" not in view.candidate_schema:
        raise InputError(f"{view.name or 'this run'}: no texts: nothing to extract from")
    sizes = view.sets.sizes
    order = np.random.default_rng(seed).permutation(view.n)[: size.cases]
    drawn = within_limit(order, sizes[order], size.outputs)
    selected = _mask(view.n, drawn)
    texts = _read_rows(view, CANDIDATES, "text", np.repeat(selected, sizes))
    owner = np.repeat(np.flatnonzero(selected), sizes[selected])
    lengths = np.bincount(owner, weights=texts.str.len_bytes().fill_null(0).to_numpy(), minlength=view.n)
    fewer = _mask(view.n, within_limit(drawn, lengths[drawn], size.bytes))
    return _table(view, result, fewer, texts.filter(pl.Series(fewer[owner])))


def within_limit(drawn: Ints, sizes: Any, limit: int) -> Ints:
    """The first rows whose sizes add up to at most `limit`, and always one row.

    >>> within_limit(np.array([4, 2, 7]), [5, 3, 9], 8).tolist(), within_limit(np.array([4]), [5], 1).tolist()
    ([4, 2], [4])
    """
    return drawn[: max(1, int((np.cumsum(sizes) <= limit).sum()))]


def _mask(n: int, rows: Ints) -> Bools:
    mask = np.zeros(n, dtype=np.bool_)
    mask[rows] = True
    return mask


def _read_rows(view: RunView, file: str, column: str, mask: Bools) -> pl.Series:
    """One column of a file, the rows of the mask."""
    scan = pl.scan_parquet(view.file(file), glob=False).select(pl.col(column))
    if not mask.all():
        at = pl.Series(np.flatnonzero(mask))
        scan = scan.with_row_index("at").filter(pl.col("at").is_in(at.implode())).select(column)
    return scan.collect(engine="streaming").to_series()


def _table(view: RunView, result: Result, mask: Bools, texts: pl.Series) -> Table:
    """The cases as an importer returns them: texts, references and choices."""
    assert result.table is not None
    part = result.table.select_cases(mask)
    cases = part.cases
    if "choices" in view.case_schema:
        cases = cases.with_columns(_read_rows(view, CASES, "choices", mask))
    part = replace(part, candidates=part.candidates.with_columns(texts.alias("text")), cases=cases)
    return restore_table(replace(result, table=part))


# --- the audit


def options_of(view: RunView) -> GradingConfig:
    """How the run weighs its cases; its metric where that compares answers."""
    options = replace(view.run.options, by=(), aggregate=(), split=None, metrics=(), engine=None, threshold=None)
    name = "" if view.run.result is None else view.run.result.scored[0].metric
    if name.partition("(")[0] in COMPARISONS:
        try:
            metric(name)
            return replace(options, metrics=(name,))
        except KofnError:
            pass  # needs what is not installed here, or another version of kofn wrote it
    return options


def run_audit(view: RunView, query: AuditQuery) -> ExtractionAudit:
    """The audit of a sample of a run."""
    table = sample_of(view, SAMPLE_SIZES[query.cases], query.seed)
    names = query.names or default_extractors(view, table)
    plain, options = [name for name in names if name != STORED], options_of(view)
    read = {STORED: table.candidates["answer"].to_list()} if STORED in names else {}
    if takes_long(table, plain, options):
        return audit_in_process((table, plain, options, read))
    return _audit(table, plain, options, read)


def _audit(table: Table, names: Sequence[str], options: GradingConfig, read: Mapping[str, Any]) -> ExtractionAudit:
    return audit_extractors(table, names, options, read=read)


def takes_long(table: Table, names: Sequence[str], options: GradingConfig) -> bool:
    """Whether it takes long, or for how long cannot be known."""
    compare = options.metrics[0] if options.metrics else default_metric(names[0])
    texts = table.candidates["text"]
    # an argument may be a pattern, and patterns and formulas can take exponential time
    risky = str(compare).startswith("math_equal") or any("(" in name for name in names)
    return risky or len(texts) > QUICK_OUTPUTS or int(texts.str.len_bytes().sum() or 0) > QUICK_BYTES


_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from kofn.viewer.audit_jobs import child_main; child_main()"


def audit_in_process(arguments: tuple[Any, ...]) -> ExtractionAudit:
    """`_audit` in a process of its own, which is killed when its time is over."""
    command = [sys.executable, "-c", _CHILD, *sys.path]
    try:
        process = subprocess.run(  # noqa: S603 - our own interpreter and words
            command, input=pickle.dumps(arguments), capture_output=True, timeout=TIME_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"these extractors take more than {TIME_LIMIT:g} s on these outputs: choose others, or a simpler pattern"
        ) from None
    if process.returncode:
        last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it was ended"]
        raise InputError(f"the audit failed: {last[0][:300]}")
    result: ExtractionAudit | str = pickle.loads(process.stdout)  # noqa: S301 - of our own process
    if isinstance(result, str):
        raise InputError(result)
    return result


def child_main() -> None:
    """The other process: read the arguments, write the audit, or a text that says what is wrong."""
    import resource  # not on every system

    # CPU time too, in case the viewer is killed and nobody is left to end this process
    resource.setrlimit(resource.RLIMIT_CPU, (4 * TIME_LIMIT, 4 * TIME_LIMIT))
    out, sys.stdout = sys.stdout, sys.stderr  # what an extractor prints must not get into the result
    result: ExtractionAudit | str
    try:
        result = _audit(*pickle.loads(sys.stdin.buffer.read()))  # noqa: S301 - of our own process
    except KofnError as problem:
        result = str(problem)
    out.buffer.write(pickle.dumps(result))


# --- in the background


class AuditJob:
    """One audit: in progress, done, or failed."""

    def __init__(self, audit: Callable[[], ExtractionAudit]) -> None:
        self.done = threading.Event()
        self._audit: ExtractionAudit | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._run, args=(audit,), daemon=True, name="kofn-audit").start()

    def _run(self, audit: Callable[[], ExtractionAudit]) -> None:
        try:
            with _RUNNING:
                self._audit = audit()
        except Exception as error:  # raised again by `wait`
            self._error = error
        finally:
            self.done.set()

    def wait(self, seconds: float) -> ExtractionAudit | None:
        """The audit; None where it takes longer than this."""
        if not self.done.wait(seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._audit


_RUNNING = threading.Semaphore(MAX_RUNNING)
_LOCK = threading.Lock()
_JOBS: WeakKeyDictionary[RunView, OrderedDict[AuditQuery, AuditJob]] = WeakKeyDictionary()


def audit_of(view: RunView, query: AuditQuery, seconds: float = 1.5) -> ExtractionAudit | None:
    """The audit of a run; None where it takes longer than this, and is to be requested again."""
    with _LOCK:
        jobs = _JOBS.setdefault(view, OrderedDict())
        if query not in jobs:
            if sum(not job.done.is_set() for of_run in _JOBS.values() for job in of_run.values()) >= MAX_WAITING:
                raise InputError("too many audits at once: wait until one is done")
            jobs[query] = AuditJob(lambda: run_audit(view, query))
        jobs.move_to_end(query)
        job = jobs[query]
        finished = [key for key, other in jobs.items() if other.done.is_set() and other is not job]
        for key in finished[: -MAX_KEPT + 1 or None]:
            del jobs[key]
    return job.wait(seconds)
