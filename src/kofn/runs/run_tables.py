"""The tables of a run, and evaluation.json: how they are written and read, and how files refer to texts of others.

reports.parquet repeats a column of texts while it is small. A large one is replaced in every row by a constant such as
`{"see":"candidates.parquet","column":"answer"}`: the rows there with the case_id of this row, in the order of `index`.

`CorrectnessResults` is an evaluation, saved as evaluation.json and reports.parquet. The latter carries it in its own
metadata too. It is renamed into place first, so that a writer killed between the two files leaves a directory that
reads as the new evaluation, never as a mixture.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import polars as pl

from kofn.core.candidate_sets import offsets_of
from kofn.errors import InputError, WorldError
from kofn.runs.case_reports import (
    SCHEMA,
    Correctness,
    case_scores,
    check_reports,
    encode_json,
    explode_structs,
    flat_frame,
    json_list,
    json_text,
    nest_rows,
    reports_frame,
    reports_of,
)
from kofn.runs.files import (
    CANDIDATES,
    CASES,
    SCHEMA_VERSION,
    check_parquet,
    check_version,
    digest,
    read_json,
    read_parquet,
    refusing_damage,
    to_json,
    write_atomically,
)
from kofn.scoring.configuration import PassPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.candidate_sets import Ints
    from kofn.runs.case_reports import VerifierReport
    from kofn.scoring.result import ScoredResult

MAX_REPEATED = 200_000  # bytes of a column of texts that files beside candidates.parquet repeat


def write_tables(result: ScoredResult, directory: Path, more: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    """Write a run's Parquet files; the digest of each."""
    frames = {CANDIDATES: candidates_frame(result), CASES: cases_frame(result), **more}
    for name, frame in frames.items():
        frame.write_parquet(directory / name)
    return {name: digest(directory / name) for name in frames}


def candidates_frame(result: ScoredResult) -> pl.DataFrame:
    """A row a candidate: case_id, index, what was read, the answer, and score and passed a metric."""
    table = result.table
    sizes = np.diff(table.offsets)
    # these are stored per case (reference), per metric (passed) or as found (answer); the order is the repeat
    kept = [c for c in table.candidates.columns if c not in ("reference", "passed", "repeat", "answer")]
    columns = [
        table.cases["case_id"].gather(np.repeat(np.arange(len(sizes)), sizes)),
        pl.Series("index", np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes)),
        *table.candidates.select(kept).iter_columns(),
    ]
    first = result.scored[0].sets
    if first.answers is not None:
        columns.append(first.answers.alias("answer"))
    for one in result.scored:
        if one.metric:
            columns.append(pl.Series(f"score.{one.metric}", one.sets.values, nan_to_null=True))
            passed = pl.Series(f"passed.{one.metric}", one.sets.passes)
            columns.append((passed == 1).set(passed < 0, None))  # -1: not graded
    return pl.DataFrame(columns)


def cases_frame(result: ScoredResult) -> pl.DataFrame:
    """A row a case: its input, reference, tags, and the value of every aggregator under every metric."""
    table = result.table
    layout = layout_of(result)
    tags = [table.tags[name].alias(column) for name, column in layout["tags"].items()]
    values = [
        pl.Series(v["column"], result.case_values[v["metric"], v["aggregator"]], nan_to_null=True)
        for v in layout["values"]
    ]
    return pl.DataFrame([*table.cases.iter_columns(), *tags, *values])


def layout_of(result: ScoredResult) -> dict[str, Any]:
    """Which column of the files holds what: a tag may be called like an aggregator."""
    table = result.table
    values = [
        {"metric": metric, "aggregator": name, "column": f"{metric}.{name}" if metric else name}
        for metric, name in result.case_values
    ]
    return {
        "case_columns": table.cases.columns,
        "tags": _free_names(table.tags.columns, {*table.cases.columns, *(v["column"] for v in values)}),
        "values": values,
        "metrics": [
            {
                "metric": one.metric,
                "source": one.source,
                "beside_labels": one.beside_labels,
                "higher_is_better": one.sets.higher_is_better,
            }
            for one in result.scored
        ],
    }


def _free_names(names: Sequence[str], taken: set[str]) -> dict[str, str]:
    """A column for every name: its own where that is free.

    >>> _free_names(["a", "b", "tag.a"], {"a"})
    {'a': 'tag.tag.a', 'b': 'b', 'tag.a': 'tag.a'}
    """
    used = taken | {name for name in names if name not in taken}
    found = {}
    for name in names:
        column = name
        # "tag." until it is free: a tag may itself be called "tag.a"
        while name in taken and column in used:
            column = f"tag.{column}"
        used.add(column)
        found[name] = column
    return found


class _Place(NamedTuple):
    """A field of reports.parquet, and the column that it repeats: in `results` of every attribute, in `case` of one."""

    column: str
    field: str
    attribute: str | None
    file: str
    source: str

    @property
    def reference(self) -> str:
        return str(encode_json(reference_to(self.file, self.source)))


_PLACES = (
    _Place("results", "actual", None, CANDIDATES, "answer"),
    _Place("results", "expected", None, CASES, "reference"),
    _Place("case", "value", "input", CASES, "input"),
)


def reference_to(file: str, column: str) -> dict[str, str]:
    """What stands in place of a text that another file holds."""
    return {"see": file, "column": column}


def is_large(column: pl.Series | None) -> bool:
    """Whether a column of texts, or of lists of texts, is referred to instead of repeated.

    >>> is_large(pl.Series(["short"])), is_large(pl.Series(["long " * 100] * 3000)), is_large(pl.Series([1, 2]))
    (False, True, False)
    """
    if column is None:
        return False
    if column.dtype == pl.List(pl.String):
        column = column.explode()
    return column.dtype == pl.String and int(column.str.len_bytes().sum()) > MAX_REPEATED


def with_references(reports: pl.DataFrame, answers: pl.Series | None, cases: pl.DataFrame) -> pl.DataFrame:
    """Case reports as reports.parquet keeps them, of a run with these answers of candidates and these cases."""
    columns = {(CANDIDATES, "answer"): answers}
    columns |= {(CASES, name): cases[name] for name in ("reference", "input") if name in cases.columns}
    for place in _PLACES:
        if is_large(columns.get((place.file, place.source))):
            constant = pl.repeat(place.reference, reports.height, eager=True)
            reports = _replace(reports, place, constant, only_references=False)
    return reports


def with_texts(reports: pl.DataFrame, answers: pl.Series | None, offsets: Ints, cases: pl.DataFrame) -> pl.DataFrame:
    """Case reports with the texts that they refer to, of these answers and cases in the order of the reports.

    Without answers no report refers to one.
    """
    for place in _referring(reports):
        if place.file == CANDIDATES and answers is not None:
            values = json_list(answers, offsets)
        else:
            values = json_text(cases[place.source])
        reports = _replace(reports, place, values, only_references=True)
    return reports


def with_stored_texts(reports: pl.DataFrame, directory: Path) -> pl.DataFrame:
    """The same, the texts read from the files of the run."""
    places = _referring(reports)
    if not places:
        return reports
    cases, _ = read_parquet(directory / CASES, columns=["case_id", *_columns(places, CASES)])
    answers, sizes = None, np.zeros(cases.height, dtype=np.int64)
    if _columns(places, CANDIDATES):
        candidates, _ = read_parquet(directory / CANDIDATES, columns=["case_id", "answer"])
        answers = candidates["answer"]
        counts = candidates.group_by("case_id", maintain_order=True).len()
        known = cases.select("case_id").join(counts, on="case_id", how="left", maintain_order="left")
        sizes = known["len"].fill_null(0).to_numpy().astype(np.int64)
    return with_texts(reports, answers, offsets_of(sizes), cases)


def _columns(places: Sequence[_Place], file: str) -> list[str]:
    return [place.source for place in places if place.file == file]


def _referring(reports: pl.DataFrame) -> list[_Place]:
    """The fields that hold references: all rows of a field do, or none."""
    first = reports.head(1)
    return [place for place in _PLACES if explode_structs(first, place.column)[place.field].eq(place.reference).any()]


def _replace(reports: pl.DataFrame, place: _Place, values: pl.Series, *, only_references: bool) -> pl.DataFrame:
    """One field of the structs in a column of lists, by a value of each row."""
    flat = explode_structs(reports, place.column)
    wanted: Any = pl.lit(value=True) if place.attribute is None else pl.col("attribute") == place.attribute
    if only_references:
        wanted &= pl.col(place.field) == place.reference
    new = values.gather(flat["row"])
    flat = flat.with_columns(pl.when(wanted).then(new).otherwise(pl.col(place.field)).alias(place.field))
    nested = nest_rows(flat.drop("row"), flat["row"], reports.height)
    return reports.with_columns(nested.alias(place.column)).cast({place.column: SCHEMA[place.column]})


Results = TypeVar("Results", bound=Correctness)

EVALUATION = "evaluation.json"
REPORTS = "reports.parquet"
_OF_THE_ROWS = "of the rows"  # what the evaluation in reports.parquet says of scores that its rows give
_KEY = "kofn.evaluation"  # a key in files on disk: it stays whatever modules are called
# written for readers of the file, computed again when it is loaded
_DERIVED = ("schema_version", "score", "n_unverified", "policies", "digest", "reports_sha256", "scores_in")
MAX_SCORES = 200_000  # cases whose scores evaluation.json repeats; of more it names reports.parquet


def evaluation_body(results: Correctness) -> dict[str, Any]:
    """Everything but the case reports, in a stable order, with the score and what every policy says of it."""
    _check_scores(results)
    fields = results.model_dump(mode="json", exclude={"reports"})
    decisions = {p.value: results.decide(p) for p in PassPolicy}
    body = {
        "schema_version": SCHEMA_VERSION,
        **fields,
        "n_unverified": results.n_unverified,
        "score": results.score(),
        "policies": {name: {"passed": d.passed, "reason": d.reason} for name, d in decisions.items()},
    }
    return {**body, "digest": _digest(body)}


def _digest(body: dict[str, Any]) -> str:
    """The digest of everything in evaluation.json but the digests themselves."""
    kept = {k: v for k, v in body.items() if k not in ("digest", "reports_sha256", "scores_in")}
    return sha256(to_json(kept)).hexdigest()


def _check_scores(results: Correctness) -> None:
    """Refuse scores and ids that JSON would change: NaN (to null), half of a surrogate pair (to other characters)."""
    for name, group in results.group_outcomes.items():
        for case, score in group.results.items():
            if score is not None and not 0 <= score <= 1:
                raise InputError(f"group {name!r}: case {case!r}: a score is from 0 to 1, or none, not {score}")
        try:
            # one encoding of all ids together, instead of one per id
            "".join(group.results).encode()
        except UnicodeEncodeError as problem:
            raise InputError(f"group {name!r}: the id of a case is no Unicode text: {problem.reason}") from None


def write_evaluation_frame(results: Correctness, reports: pl.DataFrame, directory: Path) -> None:
    """Write both files of an evaluation, its case reports given as columns: `results.reports` is not looked at."""
    import orjson

    check_reports(reports)
    body = evaluation_body(results)
    # the evaluation travels in the metadata of the file that is renamed first: see the top of this module
    carried = _without_scores(body, reports)
    embedded = {_KEY: orjson.dumps(carried).decode()}
    write_atomically(
        directory / REPORTS, lambda path: reports.write_parquet(path, compression="zstd", metadata=embedded)
    )
    body["reports_sha256"] = digest(directory / REPORTS)
    if reports.height > MAX_SCORES and carried["scores"] == _OF_THE_ROWS:
        body |= {"scores_in": REPORTS, "group_outcomes": carried["group_outcomes"]}
    write_atomically(directory / EVALUATION, lambda path: path.write_bytes(to_json(body)))


def load_evaluation(directory: Path, kind: type[Results], *, finished: bool = False) -> tuple[Results, pl.DataFrame]:
    """The evaluation without its case reports, and those as columns.

    In a `finished` run, one with its manifest, no writer was killed: files that do not belong together are foreign.
    """
    head = _head(directory, finished=finished)
    frame, _ = read_parquet(directory / REPORTS, SCHEMA, sha256=head.sha256)
    try:
        check_reports(frame)
    except InputError as problem:
        raise InputError(f"{directory / REPORTS}: {problem}") from None
    results = head.results(directory, kind, frame)
    if head.n_reports(results, frame) != frame.height:
        raise InputError(
            f"{directory / REPORTS}: {frame.height:,} case reports, and {head.n_reports(results, frame):,} belong to "
            f"{EVALUATION}: the two files are not of one run"
        )
    if finished and head.body.get("reports_sha256") not in (None, head.sha256):
        raise InputError(f"{directory / REPORTS}: changed since it was written: {EVALUATION} has another digest of it")
    return results, frame


def load_evaluation_summary(directory: Path, kind: type[Results], *, finished: bool = False) -> Results:
    """The evaluation alone; the rows of reports.parquet are read only where evaluation.json is older than they."""
    head = _head(directory, finished=finished)
    # only a torn pair of files needs the rows: they complete the evaluation that reports.parquet carries
    needs_rows = head.newer is not None or "scores_in" in head.body
    return (
        load_evaluation(directory, kind, finished=finished)[0]
        if needs_rows
        else head.checked(directory, kind, head.body)
    )


class _Head(NamedTuple):
    """evaluation.json, what reports.parquet carries of it (None: another program wrote that), and what that file is.

    `newer` is what it carries where that is another evaluation: a writer was killed between the two files.
    """

    body: dict[str, Any]
    carried: dict[str, Any] | None
    newer: dict[str, Any] | None
    sha256: str

    def results(self, directory: Path, kind: type[Results], frame: pl.DataFrame) -> Results:
        if self.newer is not None:
            check_version(directory / REPORTS, self.newer)
            return _validate(_with_scores(self.newer, frame), directory / REPORTS, kind)
        body = _with_scores(self.body, frame) if "scores_in" in self.body else self.body
        return self.checked(directory, kind, body)

    def checked(self, directory: Path, kind: type[Results], body: dict[str, Any]) -> Results:
        """The evaluation of a body that nobody changed."""
        found = _validate(body, directory / EVALUATION, kind)
        if body.get("digest") != _digest(body):
            raise InputError(f"{directory / EVALUATION}: changed since it was written: its digest is of other numbers")
        return found

    def n_reports(self, results: Correctness, frame: pl.DataFrame) -> int:
        """How many case reports belong to the evaluation."""
        if self.carried is not None:
            return int(self.carried["n_reports"])
        named = sum(len(g.results) for g in results.group_outcomes.values())
        return named if results.group_outcomes else frame.height


def _head(directory: Path, *, finished: bool) -> _Head:
    path, of_reports = directory / EVALUATION, directory / REPORTS
    body = read_json(path)
    check_version(path, body)
    # before polars opens the file: a damaged one can end the process
    check_parquet(of_reports, body.get("reports_sha256"))
    with refusing_damage(of_reports):
        carried = _embedded_evaluation(of_reports, pl.read_parquet_metadata(of_reports))
    newer = carried if carried is not None and carried.get("digest") != body.get("digest") else None
    if newer is not None and finished:
        raise InputError(f"{of_reports}: of another evaluation than {EVALUATION}: the two files are not of one run")
    return _Head(body, carried, newer, digest(of_reports))


def load_reports(path: Path, frame: pl.DataFrame) -> list[VerifierReport]:
    """The objects of a file's case reports; a value in it that is no JSON is named."""
    from pydantic import ValidationError

    try:
        return reports_of(frame)
    except (ValidationError, InputError) as problem:
        raise InputError(f"{path}: {first_validation_error(problem)}") from None


def first_validation_error(problem: Any) -> str:
    """The first thing pydantic found, in one line."""
    from pydantic import ValidationError

    if not isinstance(problem, ValidationError):
        return str(problem)
    first = problem.errors(include_url=False, include_input=False)[0]
    where = ".".join(" ".join(str(part).split()) for part in first["loc"])
    what = first["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" if where else what


def _validate(body: dict[str, Any], path: Path, kind: type[Results]) -> Results:
    from pydantic import ValidationError

    try:
        results = kind.model_validate({k: v for k, v in body.items() if k not in _DERIVED})
        results.decide()  # refuses more passing cases than there are
        return results
    except (ValidationError, InputError) as problem:
        raise InputError(f"{path}: {first_validation_error(problem)}") from None


def _embedded_evaluation(path: Path, metadata: dict[str, str]) -> dict[str, Any] | None:
    """The evaluation that reports.parquet carries; none where another program wrote the file anew."""
    import orjson

    if _KEY not in metadata:
        return None
    try:
        found = orjson.loads(metadata[_KEY])
    except orjson.JSONDecodeError as problem:
        raise InputError(f"{path}: its metadata is not JSON: {problem}") from None
    if not (isinstance(found, dict) and isinstance(found.get("n_reports"), int)):
        raise InputError(f"{path}: its metadata is not what kofn writes")
    return found


def _without_scores(body: dict[str, Any], frame: pl.DataFrame) -> dict[str, Any]:
    """The evaluation to carry: without the case scores where the rows give the same ones."""
    carried = {**body, "n_reports": frame.height, "scores": "given"}
    given = {name: group["results"] for name, group in body["group_outcomes"].items()}
    # scores that were not computed from the rows (added by hand) are carried as they are
    if given != {name: {} for name in given} | _scores_by_group(frame):
        return carried
    groups = {name: {**group, "results": {}} for name, group in body["group_outcomes"].items()}
    return {**carried, "scores": _OF_THE_ROWS, "group_outcomes": groups}


def _with_scores(slim: dict[str, Any], frame: pl.DataFrame) -> dict[str, Any]:
    """The evaluation that `_without_scores` made smaller, or that names the file of its scores."""
    body = {k: v for k, v in slim.items() if k not in ("n_reports", "scores")}
    if slim.get("scores") == _OF_THE_ROWS or "scores_in" in slim:
        scores, groups = _scores_by_group(frame), body["group_outcomes"]
        body["group_outcomes"] = {name: {**group, "results": scores.get(name, {})} for name, group in groups.items()}
    return body


def _scores_by_group(frame: pl.DataFrame) -> dict[str, dict[str, float | None]]:
    """{group: {case id: score}} of the rows."""
    parts = case_scores(frame).group_by("group", maintain_order=True)
    return {str(name): dict(zip(p["id"].to_list(), p["score"].to_list(), strict=True)) for (name,), p in parts}


class CorrectnessResults(Correctness):
    """One evaluation of one checkpoint (or of one run of a task), with its files."""

    def save(self, directory: Path | str) -> None:
        """Write evaluation.json and reports.parquet."""
        directory = Path(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_evaluation_frame(self, reports_frame(self), directory)
        except OSError as problem:
            raise WorldError(f"{directory}: cannot write the evaluation: {problem.strerror or problem}") from None

    @classmethod
    def from_dir(cls, directory: Path | str) -> Self:
        """Read what `save` wrote: an equal object."""
        directory = Path(directory)
        results, frame = load_evaluation(directory, cls)
        results.reports = load_reports(directory / REPORTS, with_stored_texts(frame, directory))
        return results

    def to_polars(self) -> pl.DataFrame:
        """The case reports as reports.parquet holds them."""
        return reports_frame(self)

    def to_csv(self, path: Path | str) -> None:
        """A row a case and attribute, for spreadsheets."""
        rows = flat_frame(self.to_polars())
        try:
            write_atomically(Path(path), rows.write_csv)
        except OSError as problem:
            raise WorldError(f"{path}: cannot be written: {problem.strerror or problem}") from None
