"""The extraction audit of a run: extractors to choose from, how far they agree, and where they do not.

It is computed in the background, on a sample. A pattern that somebody typed, or that a run brought along, can take
exponential time, and so can the comparison of two formulas. Neither can be stopped within this process, so another one
does it, for a limited time.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from kofn.analysis.extraction_audit import TEXTS, audit_extractors, audit_headline, extractors_for
from kofn.core.escape import show_hidden
from kofn.core.format import format_count
from kofn.errors import InputError, KofnError, UnknownName
from kofn.metrics import default_metric
from kofn.registry import EXTRACTORS, entries, metric
from kofn.render.audit_report import agreement_cell, disagreement_row, scores_grid
from kofn.runs.files import CANDIDATES, CASES
from kofn.runs.record import restore_table
from kofn.scoring.diagnostics import FAMILIES
from kofn.viewer.caches import Computation
from kofn.viewer.case_list import CaseQuery, case_url
from kofn.viewer.case_page import MAX_CANDIDATES
from kofn.viewer.templating import (
    breadcrumbs,
    changed_pairs,
    pager,
    query_string,
    render_page,
    rows_of_page,
    run_url,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.analysis.extraction_audit import ExtractionAudit
    from kofn.core.table import Table
    from kofn.scoring.configuration import GradingConfig
    from kofn.viewer.run_view import RunView

    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Ints = np.ndarray[Any, np.dtype[np.int64]]
    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.analysis.extraction_audit import Disagreement
    from kofn.viewer.server import Viewer

# extractors without a required argument
PLAIN = tuple(name for name in EXTRACTORS if name not in ("none", "pattern", "json_field", "lm_eval_filter"))
STORED = "as in the run"  # the answers that the run stored, as if an extractor had given them
MAX_NAMES = 8
MAX_PATTERN = 500  # characters


class SampleSize(NamedTuple):
    """How much is read: cases, outputs and bytes of text, whichever limit is reached first."""

    cases: int
    outputs: int
    bytes: int


SAMPLE_SIZES = {
    size.cases: size for size in (SampleSize(2_000, 16_000, 4_000_000), SampleSize(10_000, 40_000, 16_000_000))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which extractors, on how many cases, drawn with which seed. No names: those that fit the outputs."""

    names: tuple[str, ...] = ()
    cases: int = 2_000
    seed: int = 0

    @classmethod
    def parse(cls, view: RunView, params: Mapping[str, str], ticked: Sequence[str]) -> AuditQuery:
        """The audit of a URL. A name must be one that the page offers; only patterns are free."""
        known = available_extractors(view)
        for name in ticked:
            if name not in known:
                raise UnknownName("extractor", name, list(known))
        names = tuple(dict.fromkeys((*ticked, *pattern_names(params.get("pattern", "")))))
        if len(names) > MAX_NAMES:
            raise InputError(f"{len(names)} extractors: choose at most {MAX_NAMES}")
        if names == (STORED,):
            raise InputError(f"`{STORED}` is no extractor: choose another to compare it with")
        cases = whole_number(params.get("cases", ""), 9)
        return cls(
            names=names,
            cases=cases if cases in SAMPLE_SIZES else min(SAMPLE_SIZES),
            seed=whole_number(params.get("seed", ""), 9) or 0,
        )


def pattern_names(regex: str) -> list[str]:
    r"""The extractor of a typed pattern: its first group, or the whole match where it has none.

    >>> pattern_names(r"x=(\d+)"), pattern_names("[0-9]+"), pattern_names(" ")
    (["pattern('x=(\\\\d+)')"], ["pattern('[0-9]+', group=0)"], [])
    """
    if not regex.strip():
        return []
    if len(regex) > MAX_PATTERN:
        raise InputError(f"pattern: {len(regex):,} characters are too many: at most {MAX_PATTERN}")
    try:
        groups = re.compile(regex).groups
    except (re.error, OverflowError, RecursionError) as problem:
        raise InputError(f"pattern {regex!r} is no regular expression: {problem}") from None
    return [f"pattern({regex!r})" if groups else f"pattern({regex!r}, group=0)"]


def available_extractors(view: RunView) -> tuple[str, ...]:
    """The extractors to choose from, the run's own first, if it is built in: anybody may have written the run."""
    extraction = {} if view.run.result is None else view.run.result.extraction
    own = str(extraction.get("extractor") or "")
    if own.partition("(")[0] in EXTRACTORS and own != "none":
        return tuple(dict.fromkeys((own, *PLAIN)))
    return (STORED, *PLAIN) if view.has_answers else PLAIN


def default_extractors(view: RunView, table: Table) -> tuple[str, ...]:
    """The run's own extractor and its relatives; without a built-in one, those that fit the outputs."""
    first = available_extractors(view)[0]
    if first in PLAIN or "(" in first:
        return tuple(dict.fromkeys((first, *FAMILIES.get(first.partition("(")[0], TEXTS))))
    return (*extractors_for(table), *([STORED] if first == STORED else []))


COMPARISONS = ("exact_match", "numeric", "choice", "math_equal")  # metrics that compare an answer and run no code
MAX_KEPT = 4  # audits of a run
MAX_RUNNING, MAX_WAITING = 2, 8
TIME_LIMIT = 30  # seconds of a process of its own
QUICK_BYTES, QUICK_OUTPUTS = 3_000_000, 20_000  # more than these are read in a process of their own


# --- the sample


def sample_of(view: RunView, size: SampleSize, seed: int) -> Table:
    """Cases drawn at random, in their order, with their texts; all of them where they are few."""
    result = view.run.result
    if result is None or not view.has_texts:
        raise InputError(f"{view.name or 'this run'}: no texts: nothing to extract from")
    sizes = view.candidate_sets.sizes
    order = np.random.default_rng(seed).permutation(view.n)[: size.cases]
    drawn = within_limit(order, sizes[order], size.outputs)
    selected = np.isin(np.arange(view.n), drawn)
    texts = _read_rows(view, CANDIDATES, "text", np.repeat(selected, sizes))
    owner = np.repeat(np.flatnonzero(selected), sizes[selected])
    lengths = np.bincount(owner, weights=texts.str.len_bytes().fill_null(0).to_numpy(), minlength=view.n)
    fewer = np.isin(np.arange(view.n), within_limit(drawn, lengths[drawn], size.bytes))
    # as an importer returns them: texts, references and choices
    part = result.table.select_cases(fewer)
    candidates = part.candidates.with_columns(texts.filter(pl.Series(fewer[owner])).alias("text"))
    choices = [_read_rows(view, CASES, "choices", fewer)] if "choices" in view.case_schema else []
    part = replace(part, candidates=candidates, cases=part.cases.with_columns(choices))
    return restore_table(replace(result, table=part))


def within_limit(drawn: Ints, sizes: Any, limit: int) -> Ints:
    """The first rows whose sizes add up to at most `limit`, and always one row.

    >>> within_limit(np.array([4, 2, 7]), [5, 3, 9], 8).tolist(), within_limit(np.array([4]), [5], 1).tolist()
    ([4, 2], [4])
    """
    return drawn[: max(1, int((np.cumsum(sizes) <= limit).sum()))]


def _read_rows(view: RunView, file: str, column: str, mask: Bools) -> pl.Series:
    """One column of a file, the rows of the mask."""
    scan = view.scan(file).select(pl.col(column))
    if not mask.all():
        at = pl.Series(np.flatnonzero(mask))
        scan = scan.with_row_index("at").filter(pl.col("at").is_in(at.implode())).select(column)
    return scan.collect(engine="streaming").to_series()


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
    """The audit of a sample of a run, when it is its turn."""
    with _RUNNING:
        table = sample_of(view, SAMPLE_SIZES[query.cases], query.seed)
        names = query.names or default_extractors(view, table)
        plain, options = [name for name in names if name != STORED], options_of(view)
        read = {STORED: table.candidates["answer"].to_list()} if STORED in names else {}
        audit = audit_in_process if takes_long(table, plain, options) else _audit
        return audit(table, plain, options, read)


def _audit(table: Table, names: Sequence[str], options: GradingConfig, read: Mapping[str, Any]) -> ExtractionAudit:
    return audit_extractors(table, names, options, read=read)


def takes_long(table: Table, names: Sequence[str], options: GradingConfig) -> bool:
    """Whether it takes long, or for how long cannot be known."""
    compare = options.metrics[0] if options.metrics else default_metric(names[0])
    texts = table.candidates["text"]
    # an argument may be a pattern, and patterns and formulas can take exponential time
    risky = str(compare).startswith("math_equal") or any("(" in name for name in names)
    return risky or len(texts) > QUICK_OUTPUTS or int(texts.str.len_bytes().sum() or 0) > QUICK_BYTES


_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from kofn.viewer.audit_page import child_main; child_main()"


def audit_in_process(*arguments: Any) -> ExtractionAudit:
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


_RUNNING = threading.Semaphore(MAX_RUNNING)
_LOCK = threading.Lock()
_JOBS: WeakKeyDictionary[RunView, OrderedDict[AuditQuery, Computation[ExtractionAudit]]] = WeakKeyDictionary()


def audit_of(view: RunView, query: AuditQuery, seconds: float = 1.5) -> ExtractionAudit | None:
    """The audit of a run; None where it takes longer than this, and is to be requested again."""
    with _LOCK:
        jobs = _JOBS.setdefault(view, OrderedDict())
        if query not in jobs:
            if sum(job.is_alive() for of_run in _JOBS.values() for job in of_run.values()) >= MAX_WAITING:
                raise InputError("too many audits at once: wait until one is done")
            jobs[query] = Computation(lambda: run_audit(view, query))
        jobs.move_to_end(query)
        job = jobs[query]
        finished = [key for key, other in jobs.items() if not other.is_alive() and other is not job]
        for key in finished[: -MAX_KEPT + 1 or None]:
            del jobs[key]
    return job.result(seconds)


# --- the page


PAGE = 20  # outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditForm:
    """The fields of the page's form, and which outputs it shows: `only` "verdicts" those on which a verdict depends."""

    extract: tuple[str, ...]
    pattern: str
    only: str
    page: int

    @classmethod
    def parse(cls, params: Any) -> AuditForm:
        """The form of a query string."""
        return cls(
            extract=tuple(params.getlist("extract")),
            pattern=params.get("pattern", "").strip(),
            only="verdicts" if params.get("only") == "verdicts" else "",
            page=whole_number(params.get("page", ""), 8) or 1,
        )


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page; while an audit runs, one that reloads itself."""
    view = viewer.runs.get(name)
    form = AuditForm.parse(request.query_params)
    query = AuditQuery.parse(view, request.query_params, form.extract)
    audit = audit_of(view, query)
    response = render_page(
        "audit_run.html.j2",
        title=f"Extraction audit – {show_hidden(name)}",
        crumbs=breadcrumbs(name, ("Extraction audit", run_url(name, "audit"))),
        run=name,
        query=query,
        form=form,
        choices=_choices(view, query, audit),
        audit=audit,
        **({} if audit is None else _results(view, query, form, audit)),
    )
    if audit is None:
        response.headers["refresh"] = "2"
    return response


def _choices(view: RunView, query: AuditQuery, audit: ExtractionAudit | None) -> list[dict[str, Any]]:
    """The extractors with what each does; ticked are those that were compared."""
    words = {entry.name: entry.summary for entry in entries("extractor")} | {STORED: "The answers that the run stored"}
    ticked = query.names or (() if audit is None else audit.names)
    available = available_extractors(view)
    return [
        {
            "name": name,
            "words": words.get(name.partition("(")[0], ""),
            "ticked": name in ticked,
            "own": name == available[0] and name != STORED,
        }
        for name in available
    ]


def audit_url(view: RunView, query: AuditQuery, form: AuditForm, **changes: Any) -> str:
    """The URL of the same audit with changes."""
    values = {"pattern": form.pattern, "only": form.only, "cases": query.cases, "seed": query.seed, **changes}
    usual = {"pattern": "", "only": "", "cases": AuditQuery().cases, "seed": AuditQuery().seed, "page": 1}
    pairs = [("extract", name) for name in form.extract]
    return run_url(view.name, "audit") + query_string(pairs + changed_pairs(values, usual))


def _results(view: RunView, query: AuditQuery, form: AuditForm, audit: ExtractionAudit) -> dict[str, Any]:
    url = partial(audit_url, view, query, form)
    listed = [d for d in audit.disagreements if d.matters] if form.only else list(audit.disagreements)
    part, page = rows_of_page(len(listed), PAGE, form.page)
    larger = [(f"up to {cases:,} cases", url(cases=cases)) for cases in SAMPLE_SIZES if cases > query.cases]
    sample = {
        "words": f"Looked at: {audit.n_cases:,} of {format_count(view.n, 'case')}, drawn with seed {query.seed}.",
        "other": url(seed=query.seed + 1),
        "larger": larger,
    }
    return {
        "lines": audit_headline(audit),
        "scores": scores_grid(audit),
        "names": audit.names,
        "agreement": [(a, [agreement_cell(audit.agreement[a][b]) for b in audit.names]) for a in audit.names],
        "metric": audit.metric,
        "notes": [*map(str, audit.warnings), *audit.notes],
        "sample": None if audit.n_cases == view.n else sample,
        "n_listed": len(listed),
        "n_verdicts": audit.n_verdicts,
        "n_all": len(audit.disagreements),
        "rows": [(disagreement_row(d, audit.names), candidate_url(view, d)) for d in listed[part]],
        "url": url,
        "pager": pager(len(listed), PAGE, page, lambda to: url(page=to) + "#outputs", "Pages of outputs"),
    }


def candidate_url(view: RunView, disagreement: Disagreement) -> str | None:
    """The page of the case of an output, at its candidate."""
    case, index = disagreement.case_id, disagreement.index
    row = view.row_of(case)
    if row is None:
        return None
    first = index // MAX_CANDIDATES * MAX_CANDIDATES  # of the page of candidates that it is on
    page = f"&from={first}" if first else ""
    return f"{case_url(view.name, case, row, CaseQuery())}{page}#candidate-{index + 1}"
