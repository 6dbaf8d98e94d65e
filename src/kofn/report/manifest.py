"""What run.json must hold, so that whoever reads a run can rely on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from kofn.errors import InputError
from kofn.report.evaluation import first_problem
from kofn.report.generation import Generation  # noqa: TC001 - as below
from kofn.report.results import Time  # noqa: TC001 - pydantic reads it when it makes the class

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest in which something is missing or has another type, naming the field."""
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as problem:
        raise InputError(f"{path}: {first_problem(problem)}") from None


class _Strict(BaseModel):
    """A part of run.json: what it must have, of which type. What else it has is left alone."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _Sizes(_Strict):
    min: int
    median: float
    max: int
    counts: dict[str, int] | None


class _Votes(_Strict):
    agreement: float | None
    margin: float | None
    unique_answers: float | None
    ties: int
    unanimous: int
    nobody_answered: int


class _Diversity(_Strict):
    unique_texts: float | None
    identical_sets: int
    n_sets_of_several: int
    distinct_1: float | None
    distinct_2: float | None
    redundancy: float | None
    n_sets_sampled: int


class _Spent(_Strict):
    total: float
    per_case: float
    n: int


class _Diagnostics(_Strict):
    sizes: _Sizes
    votes: _Votes | None = None
    diversity: _Diversity | None = None
    cost: _Spent | None = None
    seconds: _Spent | None = None


class _Audit(_Strict):
    n: int
    agreement: dict[str, dict[str, float]]
    failure_rate: dict[str, float]
    score: dict[str, float] | None
    span: float | None

    @model_validator(mode="after")
    def _square(self) -> _Audit:
        names = set(self.failure_rate)
        if not names or any(names - set(self.agreement.get(name, ())) for name in names):
            raise ValueError("agreement and failure_rate name different extractors")
        return self


class _Labels(_Strict):
    metric: str
    n: int
    n_differ: int


class _Extraction(_Strict):
    extractor: str | None
    reason: str
    n: int | None = None
    n_failed: int | None = None
    audit: _Audit | None = None
    labels: _Labels | None = None

    @model_validator(mode="after")
    def _both(self) -> _Extraction:
        if (self.n is None) != (self.n_failed is None):
            raise ValueError("one of n and n_failed is missing")
        return self


class _Understood(_Strict):
    form: str
    sources: list[str]
    origin: dict[str, Any] = {}
    labels: dict[str, bool] = {}
    fields: dict[str, str]
    set_size: int | None
    metrics: dict[str, str]
    answers: str
    top_k: int | None
    selectors: list[str]
    weight: str | None
    cluster: str | None


class _Estimate(_Strict):
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


class _Rate(_Strict):
    point: float | None
    low: float | None = None
    high: float | None = None
    clipped: bool = False


class _Calibration(_Strict):
    n_labels: int
    raw: _Rate
    corrected: _Rate
    sensitivity: _Rate
    specificity: _Rate
    note: str = ""


class _Judge(_Strict):
    rubric: str
    version: int
    models: list[str]
    scale: str
    fingerprint: str
    prompt_sha256: str
    n_not_graded: int
    calibrated: bool
    calibration: _Calibration | None = None


class _Line(_Strict):
    item: str
    answer: Literal["yes", "no", "unknown"]
    reason: str


class _Result(_Strict):
    n_cases: int
    n_candidates: int
    n_missing: int
    understood: _Understood
    estimates: list[_Estimate]
    extraction: _Extraction
    diagnostics: _Diagnostics
    warnings: list[str]
    judges: dict[str, _Judge] = {}
    checklist: list[_Line] = []
    told: list[str] = []


class _Value(_Strict):
    metric: str
    aggregator: str
    column: str


class _Metric(_Strict):
    metric: str
    source: str
    beside_labels: bool
    higher_is_better: bool


class _Layout(_Strict):
    case_columns: list[str]
    tags: dict[str, str]
    values: list[_Value]
    metrics: list[_Metric]


class _Options(_Strict):
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


class _Source(_Strict):
    path: str
    bytes: int | None
    sha256: str | None


class _Moved(_Strict):
    before: str
    after: str
    n: int


class _Paired(_Strict):
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    wins: int
    losses: int


class _Example(_Strict):
    case_id: str
    index: int
    answer_before: str | None
    answer_after: str | None
    passed_before: bool | None
    passed_after: bool | None


class _Change(_Strict):
    before: str
    after: str
    n: int
    moved: list[_Moved]
    n_answers: int
    numbers: dict[str, _Paired]
    examples: list[_Example]


class _Parent(_Strict):
    name: str
    created: str | None
    changes: list[_Change]


class _Manifest(_Strict):
    kind: str
    created: Time
    sources: list[_Source]
    parent: _Parent | None = None
    tags: list[str] = []
    options: _Options
    versions: dict[str, str]
    git_commit: str | None = None
    files: dict[str, str]
    generation: Generation | None = None
    layout: _Layout | None = None
    result: _Result | None = None

    @model_validator(mode="after")
    def _whole(self) -> _Manifest:
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
