"""Case reports: results, groups and verdicts as classes, and as the columns of reports.parquet.

`expected`, `actual` and the values of `case` are JSON texts, so that "123" and 123 stay what they were; null is none.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from math import fsum, isfinite
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from kofn.errors import InputError, UnknownName
from kofn.scoring.configuration import GroupType, PassPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kofn.core.candidate_sets import Ints
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


RESULT = pl.Struct(
    {
        "attribute": pl.String,
        "expected": pl.String,
        "actual": pl.String,
        "diff": pl.String,
        "is_correct": pl.Boolean,
        "weight": pl.Float64,
    }
)
FIELD = pl.Struct({"attribute": pl.String, "value": pl.String})
_COLUMNS: dict[str, Any] = {
    "problem": pl.String,
    "checkpoint": pl.String,
    "version": pl.Int64,
    "problem_version": pl.Int64,
    "id": pl.String,
    "group": pl.String,
    "type": pl.String,
    "timestamp": pl.Datetime("us", "UTC"),
    "duration": pl.Float64,
    "results": pl.List(RESULT),
    "case": pl.List(FIELD),
    "original_checkpoint": pl.String,
    "original_group": pl.String,
}
SCHEMA = pl.Schema(_COLUMNS)
_FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"  # what a spreadsheet would run
_SPECIAL = r'[\x00-\x1f"\\]'  # what a JSON string must escape
_REQUIRED = ("problem", "checkpoint", "version", "problem_version", "id", "group", "type", "timestamp", "duration")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


# the standard library's: orjson refuses integers beyond 64 bits, which reports may hold
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_SCAN: Any = _DECODER.scan_once  # type: ignore[attr-defined]  # `decode` without its look for white space


def encode_json(value: Any) -> str | None:
    """A JSON value as its text; none as none.

    >>> encode_json("123"), encode_json(123), encode_json(None)
    ('"123"', '123', None)
    """
    if value is None:
        return None
    text = _ENCODER.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: written as an escape
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


def decode_json(text: str | None) -> Any:
    """What `encode` was given; text that is no JSON is refused."""
    if text is None:
        return None
    try:
        value, end = _SCAN(text, 0)
        if end == len(text):
            return value
    except (StopIteration, ValueError, RecursionError):
        pass  # `decode` says what is wrong
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{text!r:.80} is not JSON: {problem}") from None


def json_text(column: pl.Series) -> pl.Series:
    """Every value as JSON; null stays null.

    >>> json_text(pl.Series(["a", None, 'say "b"'])).to_list()
    ['"a"', None, '"say \\\\"b\\\\""']
    >>> json_text(pl.Series([1, None])).to_list()
    ['1', None]
    """
    if column.dtype == pl.String:
        return _quote(column)
    if column.dtype.is_integer():
        return column.cast(pl.String)
    if column.dtype == pl.Boolean:
        return column.replace_strict({True: "true", False: "false"}, return_dtype=pl.String)

    return pl.Series(column.name, [encode_json(_to_plain(v)) for v in column.to_list()], dtype=pl.String)


def json_list(column: pl.Series, offsets: Ints) -> pl.Series:
    """The strings of every set as one JSON text: a list, or the value itself where the set has one.

    >>> json_list(pl.Series(["a", None, "b"]), np.array([0, 2, 3])).to_list()
    ['["a",null]', '"b"']
    """
    sizes = np.diff(offsets)

    # nulls are the text "null" from here on, so that they can be joined
    lists = nest_rows(_quote(column).fill_null("null"), np.repeat(np.arange(len(sizes)), sizes), len(sizes))
    text = pl.col("items").list.join(",")
    alone = pl.when(text != "null").then(text)
    listed = pl.lit("[") + text + pl.lit("]")
    one = pl.col("items").list.len() == 1
    return lists.to_frame().select(pl.when(one).then(alone).otherwise(listed).alias("value")).to_series()


def _quote(column: pl.Series) -> pl.Series:
    special = column.str.contains(_SPECIAL).fill_null(value=False)
    # quoted as a whole; only the few texts with special characters go through the JSON encoder
    plain = pl.select(pl.lit('"') + column + pl.lit('"')).to_series().alias(column.name)
    if not special.any():
        return plain
    at = special.arg_true()
    escaped = [json.dumps(v, ensure_ascii=False) for v in column.gather(at).to_list()]
    return plain.scatter(at, escaped)


def _to_plain(value: Any) -> Any:
    """A value of a frame as JSON: a series as a list, a number that is none as null, a date as text."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, (list, pl.Series)):
        return [_to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _to_plain(v) for k, v in value.items()}
    return value if value is None or isinstance(value, (str, bool, int)) else str(value)


def reports_frame(results: Correctness) -> pl.DataFrame:
    """A row a case report."""
    reports = results.reports
    attributes = [(i, name, a) for i, r in enumerate(reports) for name, a in r.results.items()]
    fields = [(i, name, value) for i, r in enumerate(reports) for name, value in r.case.items()]
    checked: dict[str, list[Any]] = {
        "attribute": [name for _, name, _ in attributes],
        "expected": [_encode_value(reports[i], f"{name}.expected", a.expected) for i, name, a in attributes],
        "actual": [_encode_value(reports[i], f"{name}.actual", a.actual) for i, name, a in attributes],
        "diff": [a.diff for *_, a in attributes],
        "is_correct": [a.is_correct for *_, a in attributes],
        "weight": [a.weight for *_, a in attributes],
    }
    case_fields: dict[str, list[Any]] = {
        "attribute": [name for _, name, _ in fields],
        "value": [_encode_value(reports[i], f"case.{name}", value) for i, name, value in fields],
    }
    columns = {
        "problem": [results.problem_name] * len(reports),
        "checkpoint": [results.name] * len(reports),
        "version": [results.version] * len(reports),
        "problem_version": [results.problem_version] * len(reports),
        "id": [r.id for r in reports],
        "group": [r.group for r in reports],
        "type": [r.type.value for r in reports],
        "timestamp": [r.timestamp for r in reports],
        "duration": [r.duration for r in reports],
        "results": nest_rows(_typed_frame(RESULT, checked), [row for row, *_ in attributes], len(reports)),
        "case": nest_rows(_typed_frame(FIELD, case_fields), [row for row, *_ in fields], len(reports)),
        "original_checkpoint": [r.original_checkpoint for r in reports],
        "original_group": [r.original_group for r in reports],
    }
    return pl.DataFrame(columns, schema=SCHEMA)


def _encode_value(report: VerifierReport, where: str, value: Any) -> str | None:
    """A value's text; one that was put there past the checks of the classes is refused here."""
    try:
        return encode_json(value)
    except (ValueError, TypeError, RecursionError) as problem:
        raise InputError(f"case {report.id!r}: {where}: {problem}") from None


def _typed_frame(kind: pl.Struct, columns: dict[str, list[Any]]) -> pl.DataFrame:
    return pl.DataFrame(columns, schema={field.name: field.dtype for field in kind.fields})


def nest_rows(flat: pl.DataFrame | pl.Series, rows: Any, n: int) -> pl.Series:
    """A list a row, of structs where there are several columns: item i of `flat` belongs to row rows[i]; rows ascend.

    >>> nest_rows(pl.DataFrame({"a": [1, 2]}), [1, 1], 3).to_list()
    [[], [{'a': 1}, {'a': 2}], []]
    """
    items = flat.to_struct("items") if isinstance(flat, pl.DataFrame) else flat.alias("items")
    owner = pl.Series("row", rows, dtype=pl.UInt32).set_sorted()
    lists = pl.DataFrame([owner, items]).group_by("row", maintain_order=True).agg("items")
    # rows without an item get an empty list, not null
    everyone = pl.DataFrame({"row": pl.Series(range(n), dtype=pl.UInt32)})
    filled = everyone.join(lists, on="row", how="left", maintain_order="left")["items"]
    return filled.fill_null(pl.Series([[]], dtype=filled.dtype)) if n else filled


def reports_of(frame: pl.DataFrame) -> list[VerifierReport]:
    """The objects of a frame that `check_reports` let through."""
    plain = frame.drop("problem", "checkpoint", "version", "problem_version", "results", "case")
    reports = [VerifierReport(**row) for row in plain.iter_rows(named=True)]
    order = ("row", "attribute", "is_correct", "weight", "expected", "actual", "diff")
    for row, name, is_correct, weight, expected, actual, diff in explode_structs(frame, "results").select(order).rows():
        reports[row].results[name] = AttributeResult(
            is_correct=is_correct, weight=weight, expected=decode_json(expected), actual=decode_json(actual), diff=diff
        )
    for row, name, value in explode_structs(frame, "case").rows():
        reports[row].case[name] = decode_json(value)
    return reports


def explode_structs(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """A row a struct in a column of lists, and in `row` whose it is."""
    # an empty list would explode to a row of nulls
    filled = frame.select(column).with_row_index("row").filter(pl.col(column).list.len() > 0)
    return filled.explode(column).unnest(column)


def check_reports(frame: pl.DataFrame) -> None:
    """Refuse a frame whose values no report can have: it has the columns of `SCHEMA`, and was written by others."""
    known = list(GroupType)
    wrong_type = ~pl.col("type").is_in(known)
    wrong_time = ~(pl.col("duration").is_finite() & (pl.col("duration") >= 0))
    for required in (*_REQUIRED, "results", "case"):
        _refuse(frame, pl.col(required).is_null(), f"{required} is null")
    _refuse(frame, wrong_type, f"type is none of {', '.join(known)}")
    _refuse(frame, wrong_time, "duration is not a number of 0 or more")
    _refuse(frame, ~pl.struct("group", "id").is_first_distinct(), "its id is there before in its group")
    one = pl.element().struct
    name, weight, diff = one.field("attribute"), one.field("weight"), one.field("diff")
    sound = (weight.is_finite() & (weight > 0)).fill_null(value=False)
    for column in ("results", "case"):
        names = pl.col(column).list.eval(name)
        _refuse(frame, pl.col(column).list.eval(name.is_null()).list.any(), f"an attribute of {column} has no name")
        _refuse(frame, names.list.n_unique() < names.list.len(), f"an attribute of {column} is there twice")
    _refuse(frame, pl.col("results").list.eval(~sound).list.any(), "a weight is not a number above 0")
    _refuse(frame, pl.col("results").list.eval(diff.is_null()).list.any(), "a diff is null")


def _refuse(frame: pl.DataFrame, wrong: pl.Expr, what: str) -> None:
    """Raise where an expression holds, naming the first row."""
    found = frame.select(wrong).to_series().fill_null(value=False)
    if found.any():
        raise InputError(f"row {found.arg_true()[0] + 1}: {what}")


def case_scores(frame: pl.DataFrame) -> pl.DataFrame:
    """A row a case: id, group, type, duration, score (null: nothing verified), passed, and the attributes that fail.

    score = correct weight / verified weight; passed where every verified attribute is correct, and there is one.
    """
    one = pl.element().struct
    correct, weight = one.field("is_correct"), one.field("weight")
    fields = frame.select(
        "id",
        "group",
        "type",
        "duration",
        weights=pl.col("results").list.eval(weight.filter(correct.is_not_null())),
        marks=pl.col("results").list.eval(correct.drop_nulls()),
        failing=pl.col("results").list.eval(one.field("attribute").filter(~correct.fill_null(value=True))),
    )
    verified = pl.col("weights").list.len() > 0
    return fields.with_columns(_scores(fields), passed=verified & (pl.col("failing").list.len() == 0)).select(
        "id", "group", "type", "duration", "score", "passed", "failing"
    )


def _scores(fields: pl.DataFrame) -> pl.Series:
    """The weighted mean of every case's marks: computed once for all cases with the same weights and marks.

    Those are few even among a million cases, so that the objects' own rule can be used, to the last digit.
    """
    keyed = fields.select("weights", "marks")
    kinds = keyed.unique(maintain_order=True)
    pairs = zip(kinds["weights"].to_list(), kinds["marks"].to_list(), strict=True)
    scores = [weighted_mean(zip(weights, marks, strict=True)) for weights, marks in pairs]
    kinds = kinds.with_columns(pl.Series("score", scores, dtype=pl.Float64))
    return keyed.join(kinds, on=["weights", "marks"], how="left", maintain_order="left")["score"]


def flat_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """A row a case and attribute, with the case's score and verdict: the form spreadsheets read.

    Names and diffs that a spreadsheet would run as a formula get a leading apostrophe.
    """
    scores = case_scores(frame).select("score", "passed")
    whole = pl.concat([frame.drop("case"), scores], how="horizontal")
    flat = whole.explode("results", empty_as_null=True, keep_nulls=True).unnest("results")
    order = ["problem", "checkpoint", "version", "problem_version", "id", "group", "type", "timestamp", "duration"]
    order += ["passed", "score", "attribute", "is_correct", "weight", "expected", "actual", "diff"]
    order += ["original_checkpoint", "original_group"]
    # expected and actual are JSON: a string in them begins with its quote
    names = pl.col("problem", "checkpoint", "id", "group", "attribute", "diff", "original_checkpoint", "original_group")
    harmless = pl.when(names.str.contains(_FORMULA)).then(pl.lit("'") + names).otherwise(names)
    return flat.select(order).with_columns(harmless.name.keep())
