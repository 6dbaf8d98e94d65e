"""Extraction audits of runs: of a sample of the cases, in the background; what may not end, in its own process.

A pattern that somebody typed, or that a run brought along, can take exponential time, and so can the comparison of two
formulas. Neither can be stopped inside this process, so there another one does it, for a limited time.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from kofn.auditing import TEXTS, audited, extractors_for
from kofn.diagnose import FAMILIES
from kofn.errors import InputError, KofnError, UnknownName
from kofn.metrics import default_metric
from kofn.registry import EXTRACTORS, metric
from kofn.report.files import CANDIDATES, CASES
from kofn.report.run import restored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.auditing import ExtractionAudit
    from kofn.evaluate import Options, Result
    from kofn.table import Table
    from kofn.web.browsed import Browsed

    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Ints = np.ndarray[Any, np.dtype[np.int64]]

PLAIN = tuple(name for name in EXTRACTORS if name not in ("none", "pattern", "json_field", "lm_eval_filter"))
STORED = "as in the run"
COMPARE = ("exact_match", "numeric", "choice", "math_equal")  # metrics that compare an answer and run nothing
MOST_NAMES = 8
KEPT = 4  # audits of a run
AT_ONCE, WAITING = 2, 8
SECONDS = 30  # for which a process of its own may go on
QUICK_BYTES, QUICK_OUTPUTS = 3_000_000, 20_000  # more than these are read in a process of their own


class Level(NamedTuple):
    """How much is looked at: cases, outputs and bytes of text, whichever ends first."""

    cases: int
    outputs: int
    bytes: int


LEVELS = {level.cases: level for level in (Level(2_000, 16_000, 4_000_000), Level(10_000, 40_000, 16_000_000))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Which extractors, on how many cases, drawn how. No names: those that suit the outputs."""

    names: tuple[str, ...] = ()
    cases: int = 2_000
    seed: int = 0

    @classmethod
    def of(cls, one: Browsed, given: Mapping[str, str], ticked: Sequence[str]) -> Ask:
        """What an address asks for. A name is one of those that are offered; only patterns come from outside."""
        known = offered(one)
        for name in ticked:
            if name not in known:
                raise UnknownName("extractor", name, list(known))
        names = tuple(dict.fromkeys((*ticked, *pattern_names(given.get("pattern", "")))))
        if len(names) > MOST_NAMES:
            raise InputError(f"{len(names)} extractors: choose at most {MOST_NAMES}")
        if names == (STORED,):
            raise InputError(f"`{STORED}` is no extractor: choose another to compare it with")
        cases, seed = given.get("cases", ""), given.get("seed", "")
        return cls(
            names=names,
            cases=int(cases) if cases.isdigit() and cases.isascii() and int(cases[:9]) in LEVELS else min(LEVELS),
            seed=int(seed) if seed.isdigit() and seed.isascii() and len(seed) < 10 else 0,
        )


def pattern_names(regex: str) -> list[str]:
    r"""The extractor of a typed pattern: its first group, or all of it where it has none.

    >>> pattern_names(r"x=(\d+)"), pattern_names("[0-9]+"), pattern_names(" ")
    (["pattern('x=(\\\\d+)')"], ["pattern('[0-9]+', group=0)"], [])
    """
    if not regex.strip():
        return []
    if len(regex) > 500:
        raise InputError(f"pattern: {len(regex):,} characters are too many: at most 500")
    try:
        groups = re.compile(regex).groups
    except (re.error, OverflowError, RecursionError) as problem:
        raise InputError(f"pattern {regex!r} is no regular expression: {problem}") from None
    return [f"pattern({regex!r})" if groups else f"pattern({regex!r}, group=0)"]


def offered(one: Browsed) -> tuple[str, ...]:
    """The extractors to choose from, the run's own first. Of what a run names only what kofn itself has is called."""
    told = {} if one.run.result is None else one.run.result.extraction
    own = str(told.get("extractor") or "")
    first = (own,) if own.partition("(")[0] in EXTRACTORS and own != "none" else ()
    stored = (STORED,) if one.sets is not None and one.sets.answers is not None and not first else ()
    return tuple(dict.fromkeys((*first, *stored, *PLAIN)))


def usual(one: Browsed, table: Table) -> tuple[str, ...]:
    """The run's own extractor and its relatives; without one of ours, those that suit the outputs."""
    first = offered(one)[0]
    if first in PLAIN or "(" in first:
        family = FAMILIES.get(first.partition("(")[0], TEXTS)
        return tuple(dict.fromkeys((first, *family)))
    found = extractors_for(table)
    return (*found, STORED) if STORED in offered(one) else found


# --- some of the cases


def sample_of(one: Browsed, level: Level, seed: int) -> Table:
    """Cases drawn without regard to what they hold, in their order, texts and all; all of them where they are few."""
    result = one.run.result
    if result is None or one.sets is None or "text" not in one.candidate_schema:
        raise InputError(f"{one.name or 'this run'}: no texts: nothing to extract from")
    sizes = one.sets.sizes
    order = np.random.default_rng(seed).permutation(one.n)[: level.cases]
    drawn = within(order, sizes[order], level.outputs)
    kept = _mask(one.n, drawn)
    texts = _filtered(one, CANDIDATES, "text", np.repeat(kept, sizes))
    owner = np.repeat(np.flatnonzero(kept), sizes[kept])
    lengths = np.bincount(owner, weights=texts.str.len_bytes().fill_null(0).to_numpy(), minlength=one.n)
    fewer = _mask(one.n, within(drawn, lengths[drawn], level.bytes))
    return _table(one, result, fewer, texts.filter(pl.Series(fewer[owner])))


def within(drawn: Ints, sizes: Any, most: int) -> Ints:
    """The first of these that together have at most `most`, and always one.

    >>> within(np.array([4, 2, 7]), [5, 3, 9], 8).tolist(), within(np.array([4]), [5], 1).tolist()
    ([4, 2], [4])
    """
    return drawn[: max(1, int((np.cumsum(sizes) <= most).sum()))]


def _mask(n: int, rows: Ints) -> Bools:
    kept = np.zeros(n, dtype=np.bool_)
    kept[rows] = True
    return kept


def _filtered(one: Browsed, file: str, column: str, kept: Bools) -> pl.Series:
    """One column of a file, the rows that are kept."""
    scan = pl.scan_parquet(one.file(file), glob=False).select(pl.col(column))
    if not kept.all():
        at = pl.Series(np.flatnonzero(kept))
        scan = scan.with_row_index("at").filter(pl.col("at").is_in(at.implode())).select(column)
    return scan.collect(engine="streaming").to_series()


def _table(one: Browsed, result: Result, kept: Bools, texts: pl.Series) -> Table:
    """The cases as an importer hands them on: texts, references and options."""
    assert result.table is not None
    part = result.table.of_cases(kept)
    cases = part.cases
    if "choices" in one.case_schema:
        cases = cases.with_columns(_filtered(one, CASES, "choices", kept))
    part = replace(part, candidates=part.candidates.with_columns(texts.alias("text")), cases=cases)
    return restored(replace(result, table=part))


# --- the audit


def options_of(one: Browsed) -> Options:
    """How the run weighs its cases; its metric where that compares answers."""
    options = replace(one.run.options, by=(), aggregate=(), split=None, metrics=(), engine=None, threshold=None)
    name = "" if one.run.result is None else one.run.result.scored[0].metric
    if name.partition("(")[0] in COMPARE:
        try:
            metric(name)
            return replace(options, metrics=(name,))
        except KofnError:
            pass  # needs what is not installed here, or another kofn wrote it
    return options


def work_of(one: Browsed, ask: Ask) -> Callable[[], ExtractionAudit]:
    """All that an audit needs, read when it begins."""

    def work() -> ExtractionAudit:
        table = sample_of(one, LEVELS[ask.cases], ask.seed)
        names = ask.names or usual(one, table)
        plain, options = [name for name in names if name != STORED], options_of(one)
        read = {STORED: table.candidates["answer"].to_list()} if STORED in names else {}
        given = (table, plain, options, read)
        return apart(given) if takes_long(table, plain, options) else _audit(*given)

    return work


def _audit(table: Table, names: Sequence[str], options: Options, read: Mapping[str, Any]) -> ExtractionAudit:
    return audited(table, names, options, read=read)


def takes_long(table: Table, names: Sequence[str], options: Options) -> bool:
    """Whether nobody can say how long it takes, or everybody that it is long."""
    compare = options.metrics[0] if options.metrics else default_metric(names[0])
    texts = table.candidates["text"]
    risky = str(compare).startswith("math_equal") or any("(" in name for name in names)
    return risky or len(texts) > QUICK_OUTPUTS or int(texts.str.len_bytes().sum() or 0) > QUICK_BYTES


_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from kofn.web.audits import answer; answer()"


def apart(given: tuple[Any, ...]) -> ExtractionAudit:
    """The same in a process of its own, which is ended when its time is over."""
    command = [sys.executable, "-c", _BOOT, *sys.path]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and words
            command, input=pickle.dumps(given), capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"these extractors take more than {SECONDS:g} s on these outputs: choose others, or a simpler pattern"
        ) from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it was ended"]
        raise InputError(f"the audit failed: {last[0][:300]}")
    found: ExtractionAudit | str = pickle.loads(done.stdout)  # noqa: S301 - of our own process
    if isinstance(found, str):
        raise InputError(found)
    return found


def answer() -> None:
    """What the other process does: read what is asked, write what was found or what is wrong."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (4 * SECONDS, 4 * SECONDS))  # nobody may be left who would end it
    out, sys.stdout = sys.stdout, sys.stderr
    found: ExtractionAudit | str
    try:
        found = _audit(*pickle.loads(sys.stdin.buffer.read()))  # noqa: S301 - of our own process
    except KofnError as problem:
        found = str(problem)
    out.buffer.write(pickle.dumps(found))


# --- in the background


class Job:
    """One audit: going on, found, or what is wrong with it."""

    def __init__(self, work: Callable[[], ExtractionAudit]) -> None:
        self.done = threading.Event()
        self._found: ExtractionAudit | None = None
        self._problem: Exception | None = None
        threading.Thread(target=self._go, args=(work,), daemon=True, name="kofn-audit").start()

    def _go(self, work: Callable[[], ExtractionAudit]) -> None:
        try:
            with _ROOM:
                self._found = work()
        except Exception as problem:  # told to whoever asks
            self._problem = problem
        finally:
            self.done.set()

    def wait(self, seconds: float) -> ExtractionAudit | None:
        """What was found, after this time at the latest; None where it goes on."""
        if not self.done.wait(seconds):
            return None
        if self._problem is not None:
            raise self._problem
        return self._found


_ROOM = threading.Semaphore(AT_ONCE)
_LOCK = threading.Lock()
_JOBS: WeakKeyDictionary[Browsed, OrderedDict[Ask, Job]] = WeakKeyDictionary()


def audit_of(one: Browsed, ask: Ask, seconds: float = 1.5) -> ExtractionAudit | None:
    """The audit of a run; None where it goes on after this time, and asking again later is what helps."""
    with _LOCK:
        jobs = _JOBS.setdefault(one, OrderedDict())
        if ask not in jobs:
            if sum(not job.done.is_set() for of_run in _JOBS.values() for job in of_run.values()) >= WAITING:
                raise InputError("too many audits at once: wait until one is done")
            jobs[ask] = Job(work_of(one, ask))
        jobs.move_to_end(ask)
        job = jobs[ask]
        for old in [key for key, other in jobs.items() if other.done.is_set() and other is not job][
            : -KEPT + 1 or None
        ]:
            del jobs[old]
    return job.wait(seconds)
