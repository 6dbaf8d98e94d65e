"""The schema of problem files (pydantic): wrong types and unknown keys are refused."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from kofn.core.yaml_file import Strict, check_keys
from kofn.errors import InputError, UnknownName
from kofn.scoring.configuration import GroupType

NAME = r"^[^/\\\x00\n]+$"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
EVERY = "*"


def _word(value: Any) -> Any:
    """A whole number is a word too; what YAML read as something else has lost how it was written."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InputError(f"expected text, and YAML reads this as {_describe(value)}: put it in quotes")
    text = str(value)
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise InputError(f"{text!a:.60}: half of a character, which no file can hold")
    return text


def _describe(value: Any) -> str:
    """What a value is in words.

    >>> from datetime import date
    >>> _describe(True), _describe(None), _describe(date(2024, 5, 1)), _describe(1.5), _describe([])
    ('true', 'nothing', 'the date 2024-05-01', 'the number 1.5', 'a list')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    kinds = {float: f"the number {value}", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), f"the {type(value).__name__} {value}")


def _list(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise InputError(f"expected a list of words, such as [balance, --json], not {_describe(value)}")
    return tuple(value)


def _words(value: Any) -> Any:
    """A command as a list of words; text is split as a shell would, and nothing of it is interpreted."""
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as problem:
            raise InputError(f"{value!r}: {problem}") from None
    return tuple(value) if isinstance(value, list) else value


def _json(value: Any) -> Any:
    """A JSON value; what YAML made a date is refused."""
    from kofn.runs.case_reports import json_value

    try:
        return json_value(value)
    except ValueError as problem:
        raise InputError(f"{problem}: put it in quotes") from None


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _group_type(name: str) -> str:
    return GroupType(name).value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"expected a number, not {value!r}")
    return value


Word = Annotated[str, BeforeValidator(_word)]
Words = Annotated[tuple[Word, ...], BeforeValidator(_words)]
Names = Annotated[tuple[str, ...], BeforeValidator(_several)]
Json = Annotated[Any, BeforeValidator(_json)]
Environment = dict[str, Word]
Positive = Annotated[float, Field(gt=0, strict=False), BeforeValidator(_number)]
Version = Annotated[int, Field(ge=0, lt=2**63)]


class FromFile(NamedTuple):
    """Contents that stand in a file, named relative to the folder of the case."""

    path: str


def _contents(value: Any) -> Any:
    if isinstance(value, (str, FromFile)):
        return value
    if isinstance(value, dict) and list(value) == ["from"] and isinstance(value["from"], str):
        return FromFile(value["from"])
    raise InputError("expected text, or a mapping with `from: PATH`")


Contents = Annotated[str | FromFile, BeforeValidator(_contents)]


class RequestSpec(Strict):
    """An HTTP request. `json` and `body` both say what is sent: one of them, or none."""

    method: str = "GET"
    path: str = "/"
    headers: dict[str, Word] = Field(default_factory=dict)
    query: dict[str, Word] = Field(default_factory=dict)
    json_: Json = Field(default=None, alias="json")
    body: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_body(cls, value: Any) -> Any:
        if isinstance(value, dict) and "json" in value and "body" in value:
            raise InputError("json and body both say what is sent: give one")
        return value

    @field_validator("method")
    @classmethod
    def _known_method(cls, name: str) -> str:
        if name.upper() not in METHODS:
            raise UnknownName("method", name, list(METHODS))
        return name.upper()

    @field_validator("path")
    @classmethod
    def _is_path(cls, path: str) -> str:
        if not path.startswith("/") or any(c.isspace() or ord(c) < 32 for c in path):
            raise InputError(f"{path!r}: expected a path that begins with / and has no space; encode it")
        return path

    @field_validator("headers")
    @classmethod
    def _one_line(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if any(c in name + value for c in "\r\n\0") or ":" in name or not (name + value).isascii():
                raise InputError(f"{name!r}: a header is one line of ASCII")
        return headers


class ExpectedSpec(Strict):
    """What a case is to show. What is not named here is not checked."""

    output: Json = None
    stderr: Json = None
    status_code: int | None = None
    files: dict[str, Json] = Field(default_factory=dict)
    response: Json = None
    headers: dict[str, Word] = Field(default_factory=dict)

    def attributes(self) -> dict[str, Any]:
        """Attribute -> what is expected of it; `null` that somebody wrote is an expected value too."""
        names = ("output", "stderr", "status_code", "response")
        found: dict[str, Any] = {name: getattr(self, name) for name in names if name in self.model_fields_set}
        if self.status_code is None:  # a status that is null is none
            found.pop("status_code", None)
        found |= {f"files/{name}": value for name, value in self.files.items()}
        return found | {f"headers/{name.lower()}": value for name, value in self.headers.items()}


class VerifySpec(Strict):
    """How an attribute is compared: the matcher and its parameters, what it weighs, what is expected if not above."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    match: str | None = None
    weight: Positive = 1.0
    expected: Json = None

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        return {"match": value} if isinstance(value, str) else value  # other keys are the matcher's, which checks them

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class CaseSpec(Strict):
    """One case: what a program is given, and what is expected of it."""

    id: Word = Field(pattern=r"^[^\x00\n]+$")
    args: Annotated[tuple[Word, ...], BeforeValidator(_list)] = ()
    stdin: Contents = ""
    files: dict[str, Contents] = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)
    request: RequestSpec | None = None
    timeout: Positive | None = None
    expected: ExpectedSpec = Field(default_factory=ExpectedSpec)
    verify: dict[str, VerifySpec] = Field(default_factory=dict)
    description: str = ""


class GroupSpec(Strict):
    """A group of cases: what it is for, what it weighs, and where its cases are.

    `cases` is a list of them, or the name of a file; without it they are in the folder of the group's name.
    """

    type: Annotated[str, AfterValidator(_group_type)] = GroupType.FUNCTIONALITY.value
    weight: Positive = 1.0
    timeout: Positive | None = None
    case_defaults: dict[str, Any] = Field(default_factory=dict)
    isolated: bool | None = None
    cases: list[dict[str, Any]] | str | None = None

    @field_validator("case_defaults")
    @classmethod
    def _known_defaults(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_keys(value, [name for name in CaseSpec.model_fields if name != "id"])
        return value


class RegressionSpec(Strict):
    """Groups of earlier checkpoints that must still hold. They become groups of type Regression."""

    checkpoints: Names = ()
    groups: Names = ()
    type_filter: Annotated[Names, AfterValidator(lambda names: tuple(map(_group_type, names)))] = ()
    exclude: Names = ()
    name_template: str = "{checkpoint}-{group}"

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"checkpoints": value}
        if not isinstance(value, dict):
            return value
        check_keys(value, ["checkpoint", *cls.model_fields])
        if ("checkpoint" in value) == ("checkpoints" in value):
            raise InputError('expected `checkpoint: NAME`, or `checkpoints:` with a list of names or "*"')
        rest = {k: v for k, v in value.items() if k != "checkpoint"}
        return rest if "checkpoints" in rest else {**rest, "checkpoints": value["checkpoint"]}

    @field_validator("name_template")
    @classmethod
    def _is_template(cls, text: str) -> str:
        try:
            text.format(checkpoint="c", group="g")
        except (KeyError, IndexError, ValueError):
            raise InputError(f"{text!r}: expected text with {{checkpoint}} and {{group}}") from None
        if any(c in text for c in "/\\\0\n"):
            raise InputError(f"{text!r}: the name of a group has no slash")
        return text


class CheckpointSpec(Strict):
    """A checkpoint: a version of the problem, with its groups of cases."""

    version: Version = 1
    order: int | None = None
    timeout: Positive | None = None
    env: Environment = Field(default_factory=dict)
    specification: str = ""
    groups: Annotated[
        dict[Annotated[str, Field(pattern=NAME)], GroupSpec], BeforeValidator(lambda value: by_name(value, "groups"))
    ] = Field(default_factory=dict)
    regressions: Annotated[
        tuple[RegressionSpec, ...],
        Field(strict=False),
        BeforeValidator(lambda value: (value,) if isinstance(value, (dict, str)) else value),
    ] = ()


def by_name(value: Any, what: str) -> Any:
    """A list of mappings with `name:` as a mapping; a name may be there once."""
    if value is None:
        return {}
    if not isinstance(value, list):
        return {name: {} if one is None else one for name, one in value.items()} if isinstance(value, dict) else value
    found: dict[str, Any] = {}
    for i, one in enumerate(value):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise InputError(f"{what}[{i}]: expected a mapping with `name:`")
        if one["name"] in found:
            raise InputError(f"{what}: {one['name']!r} is there twice")
        found[one["name"]] = {k: v for k, v in one.items() if k != "name"}
    return found


class AdapterSpec(Strict):
    """How a submission is used: a process a case, or a server that is asked. `ready_path` is asked until it answers."""

    kind: Literal["cli", "api"] = "cli"
    ready_path: str | None = None
    ready_timeout: Positive = 10.0

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in ("cli", "api"):
                raise UnknownName("adapter", value, ["cli", "api"])
            return {"kind": value}
        return value


class LimitsSpec(Strict):
    """What one execution may use, in MB and numbers."""

    memory_mb: int | None = Field(default=None, ge=16)
    file_mb: int | None = Field(default=None, ge=1)
    disk_mb: int | None = Field(default=None, ge=1)
    files: int | None = Field(default=None, ge=1)
    processes: int | None = Field(default=None, ge=1)
    output_mb: int | None = Field(default=None, ge=1, le=256)


class ProblemSpec(Strict):
    """The whole config.yaml of a problem."""

    name: str = Field(pattern=r"^[\w.-]+$")
    version: Version = 1
    description: str = ""
    tags: Annotated[tuple[str, ...], Field(strict=False)] = ()
    entry: Words
    adapter: AdapterSpec = Field(default_factory=AdapterSpec)
    timeout: Positive = 10.0
    env: Environment = Field(default_factory=dict)
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    static_assets: Annotated[
        dict[str, str],
        BeforeValidator(lambda value: {path: path for path in value} if isinstance(value, list) else value),
    ] = Field(default_factory=dict)
    checkpoints: dict[Annotated[str, Field(pattern=NAME)], CheckpointSpec] | list[str]

    @field_validator("entry")
    @classmethod
    def _is_command(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if not words:
            raise InputError("expected the command that runs a submission, such as python main.py")
        return words

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return value
        if value is not None and not isinstance(value, (list, dict)):
            raise InputError("expected a list of folder names, or a mapping of names to checkpoints")
        return by_name(value, "checkpoints")
