"""The manifest run.json: how it is built, what it must contain to be read, and what it says of generated outputs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kofn._version import __version__
from kofn.core.escape import redact_address
from kofn.core.format import format_duration
from kofn.errors import InputError
from kofn.runs.case_reports import Time  # noqa: TC001 - pydantic reads it when it makes the class
from kofn.runs.files import SCHEMA_VERSION, digest, read_json, to_json
from kofn.runs.run_tables import first_validation_error, layout_of
from kofn.scoring.configuration import PassPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kofn.scoring.result import ScoredResult


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest in which something is missing or has another type, naming the field."""
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as problem:
        raise InputError(f"{path}: {first_validation_error(problem)}") from None


class Generation(BaseModel):
    """The part `generation` of run.json, as far as it is shown."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)  # newer versions may add entries

    models: dict[str, str]
    mode: str
    seed: int
    repeats: int
    stages: list[dict[str, Any]]
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    calls: int | None = None
    errors: int | None = None
    stopped: str | None = None
    adaptive: dict[str, Any] | None = None
    wall_seconds: float | None = None
    notes: dict[str, str] = {}


class _ManifestPart(BaseModel):
    """A part of run.json: what it must have, of which type. What else it has is left alone."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


# the parts follow the file, so that an error can name its field; they are checked, not kept
class _Sizes(_ManifestPart):
    min: int
    median: float
    max: int
    counts: dict[str, int] | None


class _Votes(_ManifestPart):
    agreement: float | None
    margin: float | None
    unique_answers: float | None
    ties: int
    unanimous: int
    nobody_answered: int


class _Diversity(_ManifestPart):
    unique_texts: float | None
    identical_sets: int
    n_sets_of_several: int
    distinct_1: float | None
    distinct_2: float | None
    redundancy: float | None
    n_sets_sampled: int


class _Spent(_ManifestPart):
    total: float
    per_case: float
    n: int


class _Diagnostics(_ManifestPart):
    sizes: _Sizes
    votes: _Votes | None = None
    diversity: _Diversity | None = None
    cost: _Spent | None = None
    seconds: _Spent | None = None


class _Audit(_ManifestPart):
    n: int
    agreement: dict[str, dict[str, float]]
    failure_rate: dict[str, float]
    score: dict[str, float] | None
    span: float | None

    @model_validator(mode="after")
    def _check_extractors(self) -> _Audit:
        names = set(self.failure_rate)
        if not names or any(names - set(self.agreement.get(name, ())) for name in names):
            raise ValueError("agreement and failure_rate name different extractors")
        return self


class _Labels(_ManifestPart):
    metric: str
    n: int
    n_differ: int


class _Extraction(_ManifestPart):
    extractor: str | None
    reason: str
    n: int | None = None
    n_failed: int | None = None
    audit: _Audit | None = None
    labels: _Labels | None = None

    @model_validator(mode="after")
    def _check_counts(self) -> _Extraction:
        if (self.n is None) != (self.n_failed is None):
            raise ValueError("one of n and n_failed is missing")
        return self


class _Understood(_ManifestPart):
    form: str
    sources: list[str]
    origin: dict[str, Any] = {}
    labels: dict[str, bool] = {}
    fields: dict[str, str]
    set_size: int | None
    metrics: dict[str, str]
    answers: str
    top_k: int | None
    use: str | None = None
    aggregators: list[str] | None = None  # none before schema 3; empty where the defaults are shown
    selectors: list[str]
    weight: str | None
    cluster: str | None


class _Estimate(_ManifestPart):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    metric: str
    aggregator: str
    segment: str | None
    point: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    n_missing: int
    method: str


class _Rate(_ManifestPart):
    point: float | None
    low: float | None = None
    high: float | None = None
    clipped: bool = False


class _Calibration(_ManifestPart):
    n_labels: int
    raw: _Rate
    corrected: _Rate
    sensitivity: _Rate
    specificity: _Rate
    note: str = ""


class _Judge(_ManifestPart):
    rubric: str
    version: int
    models: list[str]
    scale: str
    fingerprint: str
    prompt_sha256: str
    n_not_graded: int
    calibrated: bool
    calibration: _Calibration | None = None


class _ChecklistItem(_ManifestPart):
    item: str
    answer: Literal["yes", "no", "unknown", "n/a"]
    reason: str


class _CodedWarning(_ManifestPart):
    code: str
    severity: str
    subject: str = ""
    values: dict[str, Any] = {}


class _Result(_ManifestPart):
    n_cases: int
    n_candidates: int
    n_missing: int
    understood: _Understood
    estimates: list[_Estimate]
    extraction: _Extraction
    diagnostics: _Diagnostics
    warnings: list[str]
    coded_warnings: list[_CodedWarning] | None = None  # none before schema 3
    judges: dict[str, _Judge] = {}
    checklist: list[_ChecklistItem] = []
    source_warnings: list[str] = Field(default=[], alias="told")  # its name in run.json since schema 1


class _Value(_ManifestPart):
    metric: str
    aggregator: str
    column: str


class _Metric(_ManifestPart):
    metric: str
    source: str
    beside_labels: bool
    higher_is_better: bool


class _Layout(_ManifestPart):
    case_columns: list[str]
    tags: dict[str, str]
    values: list[_Value]
    metrics: list[_Metric]


class _Options(_ManifestPart):
    threshold: float | None = None
    top_k: int | None = None
    interval: str | None = None
    level: float | None = None
    n_resamples: int | None = None
    seed: int | None = None
    cluster: str | None = None
    weight: str | None = None
    by: list[str] | str | None = None
    use: str | None = None
    split: dict[str, Any] | str | None = None
    aggregate: list[str] | None = None


class _Source(_ManifestPart):
    path: str
    bytes: int | None
    sha256: str | None


class _VerdictMove(_ManifestPart):
    before: str
    after: str
    n: int


class _PairedNumber(_ManifestPart):
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    wins: int
    losses: int


class _Example(_ManifestPart):
    case_id: str
    index: int
    answer_before: str | None
    answer_after: str | None
    passed_before: bool | None
    passed_after: bool | None


class _Change(_ManifestPart):
    before: str
    after: str
    n: int
    moved: list[_VerdictMove]
    n_answers: int
    numbers: dict[str, _PairedNumber]
    examples: list[_Example]


class _Parent(_ManifestPart):
    name: str
    created: str | None
    changes: list[_Change]


class _AskedVerdict(_ManifestPart):
    policy: str | None
    rule: str | None


class _Manifest(_ManifestPart):
    kind: str
    created: Time
    sources: list[_Source]
    parent: _Parent | None = None
    tags: list[str] = []
    options: _Options
    versions: dict[str, str]
    git_commit: str | None = None
    files: dict[str, str]
    verdict: _AskedVerdict | None = None
    generation: Generation | None = None
    layout: _Layout | None = None
    result: _Result | None = None

    @model_validator(mode="after")
    def _check_layout(self) -> _Manifest:
        if (self.layout is None) != (self.result is None) or (self.kind in ("score", "run") and self.result is None):
            raise ValueError(f"{'layout' if self.layout is None else 'result'} is missing")
        if self.layout is not None and self.result is not None:
            _check_names(self.layout, self.result)
        return self


def _check_names(layout: _Layout, result: _Result) -> None:
    """What the parts of a manifest say of each other."""
    metrics = [m.metric for m in layout.metrics]
    values = [(v.metric, v.aggregator) for v in layout.values]
    if not metrics or len(set(metrics)) < len(metrics):
        raise ValueError("layout.metrics: expected at least one metric, each once")
    if not {metric for metric, _ in values} <= set(metrics) or len(set(values)) < len(values):
        raise ValueError("layout.values: expected every metric and aggregator once, of the metrics in layout.metrics")
    if not {(e.metric, e.aggregator) for e in result.estimates} <= set(values):
        raise ValueError("result.estimates: one is of an aggregator that layout.values does not name")


DIGEST = "digest"  # of run.json, in itself


def manifest_of(
    result: ScoredResult,
    sources: Sequence[Path | str],
    options: Mapping[str, Any],
    generation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything needed to make the run again, and its result."""
    return {
        **common_manifest(),
        "kind": "score" if generation is None else "run",
        "sources": [_fingerprint(source) for source in sources],
        "options": dict(options),
        **({} if generation is None else {"generation": dict(generation)}),
        "layout": layout_of(result),
        "result": result.to_dict(),
    }


def with_digest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with the digest of everything else in it: the SHA-256 of its entries as `to_json` writes them."""
    import hashlib

    # the digest cannot be of itself
    entries = {name: value for name, value in manifest.items() if name != DIGEST}
    return {**entries, DIGEST: hashlib.sha256(to_json(entries)).hexdigest()}


def check_digest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that somebody changed; those of older versions have no digest."""
    if DIGEST in manifest and with_digest(manifest)[DIGEST] != manifest[DIGEST]:
        raise InputError(f"{path}: changed since it was written: its digest is of other numbers: make the run again")


def common_manifest() -> dict[str, Any]:
    """What every run says of itself: when it was made, and with what."""
    import platform
    from importlib.metadata import version

    return {
        "schema_version": SCHEMA_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "kofn": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "polars", "scipy")},
        },
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    """The commit of the folder the command was run in, where there is one."""
    import subprocess

    try:
        command = ["git", "rev-parse", "HEAD"]
        # a hanging git (a network folder, a lock) must not hold a run up
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _fingerprint(source: Path | str) -> dict[str, Any]:
    """What a file was; of a folder, an address or a stream that has been read, nothing is said but its name."""
    from pathlib import Path

    place = Path(source)
    if "://" in str(source) or not place.is_file():
        return {"path": redact_address(str(source)), "bytes": None, "sha256": None}
    return {"path": str(source), "bytes": place.stat().st_size, "sha256": digest(place)}


def defines_verdict(manifest: Mapping[str, Any], policy: str) -> bool:
    """Whether somebody said when the run passes: its task, `--policy`, `--verdict`, or the problem of programs.

    Runs of earlier versions do not say what was asked for; there only a policy that is not the default shows it.

    >>> defines_verdict({"result": {}, "verdict": {"policy": None, "rule": "majority"}}, "core-cases")
    True
    >>> defines_verdict({"result": {}}, "core-cases"), defines_verdict({"result": {}}, "any-case")
    (False, True)
    """
    if manifest.get("result") is None:  # programs: the policy is a part of the problem
        return True
    asked = manifest.get("verdict")
    if asked is None:
        return policy != PassPolicy.CORE_CASES.value
    return asked["policy"] is not None or asked["rule"] is not None


def checks_entry(manifest: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """What checks.json holds: the outcome of a check, the run.json it is about, and the digest of both."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return with_digest({"checked": when, "of": _manifest_digest(manifest), **report})


def read_checks(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The last check of a run; None where there was none, or where the run was made again since."""
    if not path.is_file():
        return None
    stored = read_json(path)
    check_digest(path, stored)
    return stored if stored.get("of") == _manifest_digest(manifest) else None


def _manifest_digest(manifest: Mapping[str, Any]) -> str | None:
    """The digest of run.json; runs of earlier versions have none, so when they were made stands for it."""
    return manifest.get(DIGEST) or manifest.get("created")


def generation_of(manifest: Mapping[str, Any]) -> Generation | None:
    """What run.json says of it; None for outputs that kofn did not make."""
    stored = manifest.get("generation")
    return None if stored is None else Generation.model_validate(stored)


def generation_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The models, how they were asked, and what they used."""
    made = generation_of(manifest)
    if made is None:
        return []
    facts = [(role if len(made.models) > 1 else "model", name, "") for role, name in made.models.items()]
    facts += [(f"stage {s.get('name')}", str(s.get("model", "")), _sampling_text(s)) for s in made.stages]
    facts.append(("mode", made.mode, f"seed {made.seed}"))
    if made.tokens_out is not None:
        facts.append(("tokens", f"{made.tokens_in or 0:,} in, {made.tokens_out:,} out", ""))
    if made.wall_seconds and made.calls:
        facts.append(("time", format_duration(made.wall_seconds), f"of the last start, {made.calls:,} calls"))
    if made.errors:
        facts.append(("errors", f"{made.errors:,}", "calls that failed: their candidates are not graded"))
    if made.stopped:
        facts.append(("stopped", made.stopped, "the run is not whole"))
    return facts + [(name, value, "") for name, value in made.notes.items()]


def _sampling_text(stage: Mapping[str, Any]) -> str:
    stored = stage.get("sampling")
    if not isinstance(stored, dict):
        return ""
    heat = stored.get("temperature")
    parts = ["temperature default" if heat is None else f"temperature {heat:g}", f"{stored.get('max_tokens')} tokens"]
    return ", ".join(parts + ([f"top_p {stored['top_p']:g}"] if stored.get("top_p") is not None else []))
