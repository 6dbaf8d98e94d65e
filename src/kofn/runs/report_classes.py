"""The report classes: weighted attributes of cases, in groups with a type, for texts and programs alike."""

from __future__ import annotations

from datetime import UTC, datetime
from math import fsum, isfinite
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from kofn.errors import InputError, UnknownName
from kofn.scoring.policy import GroupType, PassPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kofn.core.types import Decision


_DEEPEST = 100  # levels of lists and objects: a cycle would go on for ever
_LONGEST = 10_000  # bits of an integer: Python reads and writes about 14,000 as text


class _NotJson(Exception):
    """What is wrong with a value; the place is put together on the way out, for most values have nothing wrong."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.what, self.advice, self.place = what, advice, ""


def json_value(value: Any) -> Any:
    """A JSON value as itself (tuples as lists); anything else is refused, NaN and infinity among it.

    >>> json_value({"a": (1, None)})
    {'a': [1, None]}
    """
    try:
        return _to_json_value(value, 0)
    except _NotJson as bad:
        where = f" at {bad.place[:200]}" if bad.place else ""
        raise ValueError(f"{bad.what}{where}{bad.advice}") from None


def _to_json_value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if value.bit_length() > _LONGEST:
            raise _NotJson(f"an integer of {value.bit_length():,} bits is too long", ": use a string")
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise _NotJson(f"{value} is not a JSON value", ": use null where there is no number")
        return value
    if depth >= _DEEPEST:
        raise _NotJson(f"a value is nested deeper than {_DEEPEST} levels")
    if isinstance(value, (list, tuple)):
        return [_to_json_member(v, i, depth) for i, v in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _NotJson(f"key {key!r} is not a string")
        return {k: _to_json_member(v, k, depth) for k, v in value.items()}
    raise _NotJson(f"{type(value).__name__} is not a JSON value")


def _to_json_member(value: Any, key: str | int, depth: int) -> Any:
    try:
        return _to_json_value(value, depth + 1)
    except _NotJson as bad:
        bad.place = (f"[{key}]" if isinstance(key, int) else f".{key}") + bad.place
        raise


def _to_utc(value: Any) -> Any:
    """A time in UTC; one without a zone is taken to be."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return value
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value.isoformat()} is out of range in UTC") from None


def _check_unicode(name: str) -> str:
    """A name that can be written: half of a surrogate pair cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!a} holds half of a surrogate pair: a name is Unicode text") from None
    return name


def _escape_surrogates(text: str) -> str:
    """Text for people: half of a surrogate pair as its escape."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _check_flag(value: Any) -> Any:
    """True, False or none, and nothing that merely looks like one of them."""
    if value is None or isinstance(value, bool):
        return value
    if type(value).__name__ in ("bool", "bool_"):  # numpy's
        return bool(value)
    raise ValueError(f"expected true, false or none, not {value!r:.40}")


Flag = Annotated[bool | None, BeforeValidator(_check_flag)]
Json = Annotated[Any, BeforeValidator(json_value)]
Time = Annotated[datetime, BeforeValidator(_to_utc)]
Name = Annotated[str, AfterValidator(_check_unicode)]
Prose = Annotated[str, AfterValidator(_escape_surrogates)]
Weight = Annotated[float, Field(gt=0)]
Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Version = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what a column of integers holds


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_assignment=True)


# fields of a program's case that say how it ran; the others say what it was given
EXECUTION = (
    *("exit_status", "stopped", "timed_out", "peak_memory_mb", "stderr_ends", "server_log_ends", "harness"),
    *("times_run", "times_passed", "flaky"),
)


class AttributeResult(_Model):
    """One checked thing about a case. `is_correct` is None where it was not verified."""

    is_correct: Flag
    weight: Weight = 1.0
    expected: Json = None
    actual: Json = None
    diff: Prose = ""


VerificationResult = AttributeResult


class VerifierReport(_Model):
    """One case: what was checked, and what came of it."""

    id: Name
    group: Name
    type: GroupType
    timestamp: Time = Field(default_factory=lambda: datetime.now(UTC))
    duration: Seconds = 0.0
    results: dict[Name, AttributeResult] = Field(default_factory=dict)
    case: dict[Name, Json] = Field(default_factory=dict)
    original_checkpoint: Name | None = None
    original_group: Name | None = None

    def calculate_score(self) -> float | None:
        """Correct weight / verified weight; None where nothing was verified.

        >>> right, wrong = AttributeResult(is_correct=True), AttributeResult(is_correct=False, weight=0.3)
        >>> half = AttributeResult(is_correct=True, weight=0.5)
        >>> report = VerifierReport(id="c", group="g", type="Core", results={"a": right, "b": half, "c": wrong})
        >>> round(report.calculate_score(), 3), report.did_pass()
        (0.833, False)
        """
        # what could not be checked counts neither for nor against
        verified = [r for r in self.results.values() if r.is_correct is not None]
        return weighted_mean((r.weight, bool(r.is_correct)) for r in verified)

    def did_pass(self) -> bool:
        """Whether every verified attribute is correct, and there is one."""
        verified = [r.is_correct for r in self.results.values() if r.is_correct is not None]
        return bool(verified) and all(verified)


class GroupReport(_Model):
    """A group's cases and their scores; None for a case of which nothing was verified."""

    duration: Seconds = 0.0
    results: dict[str, Share | None] = Field(default_factory=dict)
    type: GroupType = GroupType.FUNCTIONALITY
    weight: Weight = 1.0

    def score(self) -> float | None:
        """The mean of the scores there are; None where there is none.

        >>> GroupReport(results={"a": 1, "b": 0.8, "c": 0.9, "d": 0.6}).score()
        0.825
        """
        known = [s for s in self.results.values() if s is not None]
        return fsum(known) / len(known) if known else None


class Correctness(_Model):
    """One evaluation of one checkpoint (or of one run of a task): the reports of its cases, by group.

    `infrastructure_failure` says what broke when the harness did; it fails every policy. `verdict` names what made a
    case of several candidates pass.
    """

    problem_name: Name
    problem_version: Version = 1
    name: Name
    version: Version = 1
    timestamp: Time = Field(default_factory=lambda: datetime.now(UTC))
    duration: Seconds = 0.0
    reports: list[VerifierReport] = Field(default_factory=list)
    group_outcomes: dict[Name, GroupReport] = Field(default_factory=dict)
    pass_counts: dict[GroupType, Count] = Field(default_factory=dict)
    total_counts: dict[GroupType, Count] = Field(default_factory=dict)
    policy: PassPolicy = PassPolicy.CORE_CASES
    verdict: Prose | None = None
    infrastructure_failure: Prose | None = None

    def add_group_report(
        self,
        group_name: str,
        group_type: GroupType | str,
        duration: float,
        reports: Iterable[VerifierReport],
        weight: float = 1.0,
    ) -> None:
        """Add a group's case reports and count them. A group, and an id in it, may be there only once."""
        kind, added = GroupType(group_type), list(reports)
        if group_name in self.group_outcomes:
            raise InputError(f"group {group_name!r} is there already")
        results: dict[str, float | None] = {}
        for report in added:
            if report.group != group_name or report.type is not kind:
                raise InputError(
                    f"case {report.id!r} says group {report.group!r} of type {report.type}: "
                    f"expected {group_name!r} of type {kind}"
                )
            if report.id in results:
                raise InputError(f"case {report.id!r} is there twice in group {group_name!r}: give each its own id")
            results[report.id] = report.calculate_score()
        outcome = GroupReport(duration=duration, results=results, type=kind, weight=weight)
        self.duration += duration  # refuses a sum that is no number, before anything else is changed
        self.group_outcomes[group_name] = outcome
        self.reports.extend(added)
        if added:
            self.pass_counts[kind] = self.pass_counts.get(kind, 0) + sum(r.did_pass() for r in added)
            self.total_counts[kind] = self.total_counts.get(kind, 0) + len(added)

    def group_score(self, name: str) -> float | None:
        """The mean of a group's case scores; None where none of its cases was verified."""
        if name not in self.group_outcomes:
            raise UnknownName("group", name, list(self.group_outcomes))
        return self.group_outcomes[name].score()

    def score(self) -> float | None:
        """The mean of the group scores by group weight, over the groups that have one.

        >>> results = Correctness(problem_name="p", name="c")
        >>> results.group_outcomes["a"] = GroupReport(results={"x": 0.8}, weight=2)
        >>> results.group_outcomes["b"] = GroupReport(results={"y": 0.6}, weight=0.5)
        >>> round(results.score(), 2)
        0.76
        """
        return weighted_mean((g.weight, s) for g in self.group_outcomes.values() if (s := g.score()) is not None)

    @property
    def n_unverified(self) -> int:
        """Cases of which nothing was verified: they are in the totals, and they do not pass."""
        return sum(s is None for g in self.group_outcomes.values() for s in g.results.values())

    def decide(self, policy: PassPolicy | str | None = None) -> Decision:
        """What a policy says of this evaluation; without one, its own."""
        rule = self.policy if policy is None else PassPolicy(policy)
        return rule.decide(self.pass_counts, self.total_counts, self.infrastructure_failure)


def weighted_mean(parts: Iterable[tuple[float, float]]) -> float | None:
    """The mean of (weight, value from 0 to 1), without overflow at any weight; None of nothing.

    >>> weighted_mean([(1e308, 1), (1e308, 0)])
    0.5
    """
    known = list(parts)
    if not known:
        return None
    # divided by the largest first: weights near the largest float do not overflow
    largest = max(weight for weight, _ in known)
    total = fsum(weight / largest for weight, _ in known)
    # rounding may reach above 1
    return min(1.0, fsum(weight / largest * value for weight, value in known) / total)
