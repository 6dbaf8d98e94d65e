"""A run as one object: its manifest, evaluation, case reports and result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kofn.core.candidate_sets import NOT_GRADED, offsets_of
from kofn.core.document import Displayable, Headline
from kofn.core.format import format_count, format_number
from kofn.core.table import CASE_COLUMNS, Table
from kofn.core.types import Estimate
from kofn.core.warnings import coded_sentence, stored_warnings
from kofn.errors import InputError
from kofn.runs.case_reports import case_scores
from kofn.runs.files import CANDIDATES, CASES, CHECKS, MANIFEST, checksum_mismatch, read_parquet, recover
from kofn.runs.manifest import check_digest, defines_verdict, read_checks
from kofn.runs.migrations import FIRST, first_reports, load_manifest
from kofn.runs.run_tables import EVALUATION, REPORTS, CorrectnessResults, load_evaluation, load_reports, with_texts
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.diagnostics import line_from_dict
from kofn.scoring.grade import with_answers
from kofn.scoring.result import ScoredResult, headline_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from kofn.scoring.grade import Graded


OUTPUTS, QUESTIONS = ("text", "reasoning", "note"), ("input", "choices")  # what models and people wrote
_MADE = ("score.", "passed.")  # columns of a run's candidates that its metrics made


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(Displayable):
    """One evaluation with its manifest.

    name         what the directory is called
    evaluation   CorrectnessResults without its case reports (`reports` is empty)
    reports      the case reports as columns: `kofn.runs.case_reports.SCHEMA`
    manifest     run.json; empty where there is none (an evaluation saved by itself)
    result       the candidate sets, their scores and estimates; None where the run has no candidates
    """

    view: ClassVar[str] = "kofn.render.run_text:run_document"
    printer: ClassVar[str] = "kofn.render.run_text:format_run"
    markdown: ClassVar[str] = "kofn.render.run_markdown:run_markdown"
    data: ClassVar[str] = "kofn.render.run_summary:run_dict"

    name: str
    evaluation: CorrectnessResults
    reports: pl.DataFrame
    manifest: Mapping[str, Any]
    result: ScoredResult | None
    path: Path | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One row per estimate; where the run has no candidates, one row per case."""
        return self.result.rows() if self.result is not None else case_scores(self.reports).to_dicts()

    @property
    def scored_result(self) -> ScoredResult:
        """The result of a run that has candidates; asking a run of programs alone for it is a mistake."""
        if self.result is None:
            raise InputError(f"{self.path or self.name}: this run has no candidates, only case reports")
        return self.result

    @property
    def headline(self) -> Headline:
        """What the run says first: the headline of its result; of programs, how many cases pass."""
        if self.result is not None:
            return self.result.headline
        e = self.evaluation
        passed, total, score = sum(e.pass_counts.values()), sum(e.total_counts.values()), e.score()
        known = f"score {format_number(score)}, " if score is not None else ""
        return Headline(estimate=None, about=f"{known}{passed:,} of {format_count(total, 'case')} pass")

    @property
    def directory(self) -> Path:
        """Where a stored run is; asking one that was not written for it is a mistake."""
        if self.path is None:
            raise InputError(f"{self.name}: this run is not stored anywhere")
        return self.path

    @property
    def task(self) -> str:
        """What was evaluated: runs of one task can be compared."""
        return self.evaluation.problem_name

    @property
    def options(self) -> GradingConfig:
        """How the run was evaluated, so that further numbers are made the same way."""
        names = ("threshold", "top_k", "interval", "level", "n_resamples", "seed", "cluster", "weight", "use")
        stored = self.manifest.get("options", {})
        kept = {k: stored[k] for k in names if stored.get(k) is not None}
        by, aggregate = (stored.get(name) or () for name in ("by", "aggregate"))
        return GradingConfig(**kept, by=(by,) if isinstance(by, str) else tuple(by), aggregate=tuple(aggregate))

    @property
    def defines_verdict(self) -> bool:
        """Whether somebody said when the run passes; without that it has a headline and no verdict."""
        return defines_verdict(self.manifest, self.evaluation.policy.value)

    @property
    def checks(self) -> Mapping[str, Any] | None:
        """The last outcome of `kofn check` on the stored run, as checks.json has it; None where there is none."""
        return None if self.path is None else read_checks(self.path / CHECKS, self.manifest)

    def full(self) -> CorrectnessResults:
        """The evaluation with its case reports as objects."""
        found = load_reports(Path(REPORTS) if self.path is None else self.path / REPORTS, self.reports)
        return self.evaluation.model_copy(update={"reports": found})


def load_run(directory: Path | str, *, texts: bool = True) -> Run:
    """Read a run directory. What is missing, damaged or foreign is named in one line.

    Without `texts` the table lacks what models and people wrote (`OUTPUTS`, `QUESTIONS`): most of a run's bytes, and in
    no number but those of diversity. The case reports of a large run then refer to them.
    """
    path = Path(directory)
    stored, manifest = load_manifest(path) if _has_manifest(path) else ({}, {})
    has_result = manifest.get("result") is not None
    result: ScoredResult | None
    if stored.get("schema_version") == FIRST:
        result = _result(path, manifest, None, texts=texts)
        evaluation, reports = first_reports(path.resolve().name, manifest, result)
    else:
        evaluation, reports = load_evaluation(path, CorrectnessResults, finished=bool(manifest))
        check_digest(path / MANIFEST, stored)
        result = _result(path, manifest, reports, texts=texts) if has_result else None
        if result is not None and texts:
            table = result.table
            reports = with_texts(reports, result.scored[0].sets.answers, table.offsets, table.cases)
    return Run(
        name=path.resolve().name, evaluation=evaluation, reports=reports, manifest=manifest, result=result, path=path
    )


def _has_manifest(path: Path) -> bool:
    """Whether a directory is a run with run.json; an evaluation saved by itself has none, and no candidates."""
    try:
        if not path.is_dir():
            what = "is a file" if path.exists() else "no such directory"
            raise InputError(f"{path}: {what}: expected a run directory (kofn score ... --out DIR)")
        recover(path)
        # a directory with candidates and no manifest is an unfinished run, and reading run.json says so
        alone = (path / EVALUATION).exists() and not (path / CANDIDATES).exists()
        return (path / MANIFEST).exists() or not alone
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


def _result(path: Path, manifest: Mapping[str, Any], reports: pl.DataFrame | None, *, texts: bool) -> ScoredResult:
    """The stored result; its numbers are read, not made again. `reports` must be of the same cases."""
    stored, layout = manifest["result"], manifest["layout"]
    known = manifest["files"]
    sides = ((CANDIDATES, OUTPUTS), (CASES, QUESTIONS))
    (candidates, first), (cases, second) = (
        read_parquet(path / name, sha256=known.get(name), without=() if texts else wordy) for name, wordy in sides
    )
    if not texts:
        layout = {**layout, "case_columns": [c for c in layout["case_columns"] if c not in QUESTIONS]}
        manifest = {**manifest, "layout": layout}
    _check_columns(path / CASES, cases, _case_types(layout))
    _check_columns(path / CANDIDATES, candidates, _candidate_types(layout, candidates.columns))
    for name, frame, said in ((CASES, cases, "n_cases"), (CANDIDATES, candidates, "n_candidates")):
        if frame.height != stored[said]:
            raise InputError(f"{path / name}: {frame.height:,} rows where {MANIFEST} says {stored[said]:,} ({said})")
    if cases["case_id"].null_count() or cases["case_id"].n_unique() < cases.height:
        raise InputError(f"{path / CASES}: a case_id is null or there twice")
    if reports is not None and not reports["id"].equals(cases["case_id"]):
        raise InputError(f"{path / REPORTS}: its cases are not those of {CASES}: the two files are not of one run")
    table = _table(path, stored, layout, candidates, cases)
    # checked after the content: a missing column is a better message than a changed checksum
    if not (first and second):
        raise checksum_mismatch(path / (CASES if first else CANDIDATES))
    return _rebuild_result(manifest, table, cases)


def _rebuild_result(manifest: Mapping[str, Any], table: Table, cases: pl.DataFrame) -> ScoredResult:
    stored, layout = manifest["result"], manifest["layout"]
    warnings = stored_warnings(stored["warnings"], stored.get("coded_warnings"))
    by_text = dict(zip(stored["warnings"], warnings, strict=True))
    return ScoredResult(
        n_cases=stored["n_cases"],
        n_candidates=stored["n_candidates"],
        n_missing=stored["n_missing"],
        understood=stored_understanding(manifest),
        estimates=tuple(_estimate(manifest, e) for e in stored["estimates"]),
        extraction=stored["extraction"],
        diagnostics=stored["diagnostics"],
        warnings=warnings,
        judges=stored.get("judges", {}),
        # "told" is its name in run.json since schema 1; its sentences are among the others
        source_warnings=tuple(by_text.get(text) or coded_sentence(text) for text in stored.get("told", ())),
        checklist=tuple(map(line_from_dict, stored.get("checklist", ()))),
        scored=tuple(_stored_grades(table, stored["extraction"], layout["metrics"])),
        case_values={(v["metric"], v["aggregator"]): cases[v["column"]].to_numpy() for v in layout["values"]},
        table=table,
    )


def stored_understanding(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """How the outputs were understood; runs of earlier versions name the use and the aggregators in their options."""
    options = manifest["options"]
    usual = {"use": options.get("use"), "aggregators": list(options.get("aggregate") or ())}
    return {**usual, **manifest["result"]["understood"]}


def stored_headline(manifest: Mapping[str, Any]) -> Headline | None:
    """The headline of a stored run, from its manifest alone; None for a run without candidates."""
    if (stored := manifest.get("result")) is None:
        return None
    return headline_of(
        [Estimate(**e) for e in stored["estimates"]],
        stored_understanding(manifest),
        (stored["diagnostics"]["sizes"]["min"], stored["diagnostics"]["sizes"]["max"]),
        stored["n_cases"],
        stored_warnings(stored["warnings"], stored.get("coded_warnings")),
    )


def _estimate(manifest: Mapping[str, Any], stored: Mapping[str, Any]) -> Estimate:
    """The estimate with its recipe, which is the same for all but for the metric and the aggregator."""
    # a manifest may leave the default out
    seed = manifest["options"].get("seed")
    recipe = {
        "extractor": manifest["result"]["extraction"]["extractor"],
        "seed": GradingConfig().seed if seed is None else seed,
        "version": manifest["versions"].get("kofn"),
        "top_k": manifest["result"]["understood"]["top_k"],
        "metric": stored["metric"],
        "aggregator": stored["aggregator"],
    }
    return Estimate(**stored, recipe=recipe)


def _case_types(layout: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The columns cases.parquet must have; a tag may be of any type."""
    import polars as pl

    texts = pl.List(pl.String)
    # a reference is a text, or a list of texts of which any is right
    known: dict[str, tuple[Any, ...]] = {
        "case_id": (pl.String,),
        "reference": (pl.String, texts),
        "choices": (texts,),
        "input": (pl.String,),
        "cluster": (pl.String,),
        "weight": (pl.Float64,),
        "required": (texts,),
        "ideal": (pl.List(pl.Float64),),
    }
    types: dict[str, tuple[Any, ...]] = dict.fromkeys(layout["tags"].values(), ())
    types |= {c: known[c] for c in ("case_id", *layout["case_columns"]) if c in known}
    return types | {v["column"]: (pl.Float64,) for v in layout["values"]}


def _candidate_types(layout: Mapping[str, Any], columns: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The columns candidates.parquet must have, and those it may have."""
    import polars as pl

    known: dict[str, Any] = dict.fromkeys(("text", "answer", "reasoning", "error", "note"), pl.String)
    known |= dict.fromkeys(("score", "cost", "seconds", "tokens", "candidate_weight"), pl.Float64)
    known |= {"facets": pl.List(pl.String)} | {c: pl.Float64 for c in columns if c.startswith(("selector.", "label."))}
    types: dict[str, Any] = {"case_id": pl.String, "index": pl.Int64}
    # optional columns are checked only where they are there
    types |= {name: dtype for name, dtype in known.items() if name in columns}
    types |= {f"score.{m['metric']}": pl.Float64 for m in layout["metrics"] if m["metric"]}
    types |= {f"passed.{m['metric']}": pl.Boolean for m in layout["metrics"] if m["metric"]}
    return {name: (dtype,) for name, dtype in types.items()}


def _check_columns(path: Path, frame: pl.DataFrame, types: Mapping[str, tuple[Any, ...]]) -> None:
    for name, dtypes in types.items():
        if name not in frame.columns:
            raise InputError(f"{path}: column {name!r} is missing, and {MANIFEST} names it")
        if dtypes and frame.schema[name] not in dtypes:
            expected = " or ".join(str(dtype) for dtype in dtypes)
            raise InputError(f"{path}: column {name!r} is {frame.schema[name]}, expected {expected}")


def _table(
    path: Path, stored: Mapping[str, Any], layout: Mapping[str, Any], candidates: pl.DataFrame, cases: pl.DataFrame
) -> Table:
    import polars as pl

    sizes = _sizes(candidates, cases)
    owner = cases["case_id"].gather(np.repeat(np.arange(cases.height), sizes))
    if not owner.equals(candidates["case_id"]):
        raise InputError(f"{path / CANDIDATES}: its rows are not in the order of {CASES}, or of cases that it lacks")
    understood = stored["understood"]
    return Table(
        candidates=candidates.drop("case_id", "index"),
        cases=cases.select("case_id", *(c for c in CASE_COLUMNS if c in layout["case_columns"])),
        tags=pl.DataFrame([cases[column].alias(name) for name, column in layout["tags"].items()]),
        offsets=offsets_of(sizes),
        fields=understood["fields"],
        form=understood["form"],
        sources=tuple(understood["sources"]),
        labels={n: better for n, better in understood.get("labels", {}).items() if f"label.{n}" in candidates.columns},
        origin=understood.get("origin", {}),
    )


def _sizes(candidates: pl.DataFrame, cases: pl.DataFrame) -> Any:
    """How many candidates every case has: a set begins where the index is 0."""
    # cases without candidates have no row, so their sizes are looked up by id below
    starts = np.flatnonzero(candidates["index"].to_numpy() == 0)
    lengths = np.diff(starts, append=candidates.height)
    if len(starts) == cases.height:
        return lengths.astype(np.int64)
    named = candidates["case_id"].gather(starts).to_frame().with_columns(size=lengths).unique("case_id")
    found = cases.select("case_id").join(named, on="case_id", how="left", maintain_order="left")
    return found["size"].fill_null(0).to_numpy().astype(np.int64)


def _stored_grades(
    table: Table, extraction: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]
) -> Iterator[Graded]:
    """The sets as every metric of the run graded them."""
    column = table.candidates["answer"] if "answer" in table.candidates.columns else None
    answers = replace(
        with_answers(table, column, extractor=extraction["extractor"], reason=extraction.get("reason", "stored")),
        n_outputs=extraction.get("n") or 0,
        n_failed=extraction.get("n_failed") or 0,
    )
    for one in metrics:
        name, better, beside = one["metric"], one["higher_is_better"], one["beside_labels"]
        values, passes = answers.sets.values, answers.sets.passes
        if name:
            values = table.candidates[f"score.{name}"].to_numpy()
            passes = table.candidates[f"passed.{name}"].cast(int).fill_null(NOT_GRADED).to_numpy().astype(np.int8)
        yield answers.under(name, values, passes, source=one["source"], higher_is_better=better, beside_labels=beside)


def restore_table(result: ScoredResult) -> Table:
    """The table of a stored run with what importers give: references and labels of candidates, no grades of metrics."""
    table = result.table
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    rows = table.candidates.drop([c for c in table.candidates.columns if c.startswith(_MADE)])
    if "reference" in table.cases.columns and "reference" not in rows.columns:
        rows = rows.with_columns(table.cases["reference"].gather(owner))
    if "passed.pass" in table.candidates.columns and "passed" not in rows.columns:
        rows = rows.with_columns(table.candidates["passed.pass"].cast(int).alias("passed"))
    named = {name: name for name in rows.columns if name in ("answer", "passed", "score")}  # of files that had none
    return replace(table, candidates=rows, fields={**named, **table.fields})
