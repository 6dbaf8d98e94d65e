"""The example that a record of a data set holds: question, references, options, group and tags."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kofn.core.fields import CASE_ROLES, recognise
from kofn.errors import InputError, UnknownName
from kofn.extract.letter_answer import parse_choices
from kofn.tasks.template import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROLES = ("id", "question", "input", "reference", "choices", "group", "cluster", "weight")
_READ = {role: names for role, names in CASE_ROLES.items() if role not in ("required", "ideal")}


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its label, and its text."""

    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.label}) {self.text}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What a record says. `choices` are options as the file writes them, `options` those whose labels are known."""

    question: str
    references: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    choices: tuple[str, ...] = ()
    id: str | None = None
    group: str | None = None
    cluster: str | None = None
    weight: float = 1.0
    tags: Mapping[str, str] = field(default_factory=dict)


def text_of(value: Any) -> str:
    """A plain value as text; a whole number has no ".0".

    >>> text_of(51.0), text_of(True), text_of(" x "), text_of(None)
    ('51', 'true', ' x ', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):  # before numbers: True is an int to Python
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def plain_fields(record: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a record that are plain values, as text."""
    return {str(k): text_of(v) for k, v in record.items() if not isinstance(v, (list, dict, tuple))}


def required(record: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that is there and holds something.

    >>> required({"Problem": "1 + 1"}, "problem", "Problem")
    '1 + 1'
    """
    for name in names:
        if (value := record.get(name)) is not None and value != "":
            return value
    raise InputError(f"no field {' or '.join(map(repr, names))}: there is {', '.join(record) or 'none'}")


def generic(record: Mapping[str, Any], fields: Mapping[str, str] | None = None) -> Example:
    """A record in no particular shape: `fields` says what is what, else the usual names do.

    Every other plain field is a tag.

    >>> e = generic({"question": "2 + 2?", "answer": 4, "level": "easy"})
    >>> e.question, e.references, dict(e.tags)
    ('2 + 2?', ('4',), {'level': 'easy'})
    """
    given = _named_roles(fields or {})
    found = {**recognise(record, _READ, {r: n for r, n in given.items() if "{" not in n}), **given}
    value = {role: field_value(record, name, role) for role, name in found.items()}
    used = set(found.values())
    return Example(
        question=text_of(value["input"]) if value.get("input") is not None else _no_question(record),
        references=_references(value.get("reference")),
        choices=_choices(value.get("choices")),
        id=text_of(value["id"]) if value.get("id") is not None else None,
        group=text_of(value["group"]) if value.get("group") is not None else None,
        cluster=text_of(value["cluster"]) if value.get("cluster") is not None else None,
        weight=_weight(value.get("weight")),
        tags={k: v for k, v in plain_fields(record).items() if k not in used},
    )


def with_fields(example: Example, record: Mapping[str, Any], fields: Mapping[str, str]) -> Example:
    """An example of a native shape, with the roles that a task file gives in its own way."""
    changes: dict[str, Any] = {}
    for role, name in _named_roles(fields).items():
        value = field_value(record, name, role)
        if role == "reference":
            changes["references"] = _references(value)
        elif role == "choices":
            changes["choices"], changes["options"] = _choices(value), ()
        elif role == "weight":
            changes["weight"] = _weight(value)
        else:
            changes["question" if role == "input" else role] = text_of(value)
    return replace(example, **changes) if changes else example


def field_value(record: Mapping[str, Any], name: str, role: str) -> Any:
    """A field, or a template of fields."""
    if "{" in name:
        template, plain = Template(name), plain_fields(record)
        template.check(plain, f"fields.{role}")
        return template.fill(plain)
    if name not in record:
        raise UnknownName("field", name, list(record), hint=f"there is {', '.join(map(str, record))}")
    return record[name]


def _named_roles(fields: Mapping[str, str]) -> dict[str, str]:
    """The roles asked for; `question` and `input` are one."""
    return {"input" if role == "question" else role: name for role, name in fields.items()}


def _no_question(record: Mapping[str, Any]) -> str:
    raise InputError(
        f"no question: there is {', '.join(map(str, record)) or 'no field'}; say which it is with fields: question"
    )


def _references(value: Any) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(text_of(v) for v in value)
    return () if value is None else (text_of(value),)


def _choices(value: Any) -> tuple[str, ...]:
    """Options as texts: a list, letters with texts, or the lists `label` and `text` beside each other."""
    if value is None:
        return ()
    if isinstance(value, dict) and {"label", "text"} <= value.keys():
        return tuple(f"{label}) {text}" for label, text in zip(value["label"], value["text"], strict=True))
    if isinstance(value, dict):
        return tuple(f"{label}) {text_of(text)}" for label, text in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(text_of(v) for v in value)
    raise InputError(f"choices: expected a list of options, found {str(value)[:40]!r}")


def _weight(value: Any) -> float:
    try:
        weight = 1.0 if value is None else float(value)
    except (TypeError, ValueError):
        weight = -1.0
    if not 0 <= weight < float("inf"):
        raise InputError(f"weight: expected a number of at least 0, found {value!r}")
    return weight


def label_options(examples: Sequence[Example]) -> list[Example | InputError]:
    """The examples with their options labelled and the label of the right one as reference, in the order given.

    An example whose reference names none of its options is replaced by the error that says so.
    """
    from kofn.scoring.multiple_choice import detect_base  # brings polars, which `kofn list tasks` does without

    reference = [e.references[0] if e.references else None for e in examples]
    # over all records: whether 1 is the first option or the second shows only in the whole data set
    base = detect_base([e.choices or None for e in examples], reference)
    return [e if e.options or not e.choices else _label_example(e, base) for e in examples]


def _label_example(example: Example, base: int) -> Example | InputError:
    from kofn.scoring.multiple_choice import normalize_choices  # brings polars, as above

    if not example.references:
        found: Any = example.choices
        labels: tuple[str, ...] = ()
    else:
        normalized = [normalize_choices(example.choices, r, base) for r in example.references]
        found, labels = normalized[0][0], tuple(label for _, label in normalized if label is not None)
    known = parse_choices(found)
    if wrong := [label for label in labels if label not in known.labels]:
        excerpts = ", ".join(str(c)[:30] for c in example.choices)
        return InputError(f"reference {wrong[0]!r} names none of the options {excerpts}")
    texts = known.texts or example.choices
    options = tuple(Option(label, text) for label, text in zip(known.labels, texts, strict=True))
    return replace(example, options=options, references=labels)
