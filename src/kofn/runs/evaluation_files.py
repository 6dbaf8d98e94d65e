"""`CorrectnessResults`: an evaluation as an object that is saved as evaluation.json and reports.parquet.

reports.parquet carries the evaluation in its own metadata too. It is renamed into place first, so that a writer killed
between the two files leaves a directory that reads as the new evaluation, never as a mixture.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from kofn.errors import InputError, WorldError
from kofn.runs.files import (
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
from kofn.runs.report_classes import Correctness
from kofn.runs.report_table import SCHEMA, case_scores, check_reports, flat_frame, reports_frame, reports_of
from kofn.runs.run_tables import with_stored_texts
from kofn.scoring.policy import PassPolicy

if TYPE_CHECKING:
    import polars as pl

    from kofn.runs.report_classes import VerifierReport

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
    needs_rows = head.torn or "scores_in" in head.body
    return load_evaluation(directory, kind, finished=finished)[0] if needs_rows else head.results(directory, kind, None)


class _Head(NamedTuple):
    """evaluation.json, what reports.parquet carries of it (None: another program wrote that), and what that file is."""

    body: dict[str, Any]
    carried: dict[str, Any] | None
    sha256: str

    @property
    def torn(self) -> bool:
        """Whether a writer was killed between the two files."""
        return self.carried is not None and self.carried.get("digest") != self.body.get("digest")

    def results(self, directory: Path, kind: type[Results], frame: pl.DataFrame | None) -> Results:
        if self.torn:
            assert self.carried is not None
            assert frame is not None
            check_version(directory / REPORTS, self.carried)
            return _validate(_with_scores(self.carried, frame), directory / REPORTS, kind)
        body = self.body
        if "scores_in" in body:
            assert frame is not None
            body = _with_scores(body, frame)
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
    import polars as pl

    path, of_reports = directory / EVALUATION, directory / REPORTS
    body = read_json(path)
    check_version(path, body)
    # before polars opens the file: a damaged one can end the process
    check_parquet(of_reports, body.get("reports_sha256"))
    with refusing_damage(of_reports):
        carried = _embedded_evaluation(of_reports, pl.read_parquet_metadata(of_reports))
    head = _Head(body, carried, digest(of_reports))
    if head.torn and finished:
        raise InputError(f"{of_reports}: of another evaluation than {EVALUATION}: the two files are not of one run")
    return head


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
