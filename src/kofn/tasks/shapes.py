"""The example that a record holds, in no particular shape or in that of a published data set (GSM8K, MMLU, ARC...)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.core.fields import CASE_ROLES, recognise
from kofn.core.numbers import canonical_number
from kofn.errors import InputError, UnknownName
from kofn.extract.answer_labels import boxes
from kofn.extract.letter_answer import parse_choices
from kofn.tasks.stages import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROLES = ("id", "question", "input", "reference", "choices", "group", "cluster", "weight")
_READ = {role: names for role, names in CASE_ROLES.items() if role not in ("required", "ideal")}
Record = Mapping[str, Any]


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
    if value.get("input") is None:
        there = ", ".join(map(str, record)) or "no field"
        raise InputError(f"no question: there is {there}; say which it is with fields: question")
    named = {role: text_of(value[role]) for role in ("id", "group", "cluster") if value.get(role) is not None}
    return Example(
        question=text_of(value["input"]),
        references=_references(value.get("reference")),
        choices=_choices(value.get("choices")),
        weight=_weight(value.get("weight")),
        tags={k: v for k, v in plain_fields(record).items() if k not in used},
        id=named.get("id"),
        group=named.get("group"),
        cluster=named.get("cluster"),
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


def _references(value: Any) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(map(text_of, value))
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
    from kofn.scoring.grade import detect_base  # brings polars, which `kofn list tasks` does without

    reference = [e.references[0] if e.references else None for e in examples]
    # over all records: whether 1 is the first option or the second shows only in the whole data set
    base = detect_base([e.choices or None for e in examples], reference)
    return [e if e.options or not e.choices else _label_example(e, base) for e in examples]


def _label_example(example: Example, base: int) -> Example | InputError:
    from kofn.scoring.grade import normalize_choices  # brings polars, as above

    normalized = [normalize_choices(example.choices, r, base) for r in example.references]
    labels = tuple(label for _, label in normalized if label is not None)
    known = parse_choices(normalized[0][0] if normalized else example.choices)
    if wrong := [label for label in labels if label not in known.labels]:
        excerpts = ", ".join(str(c)[:30] for c in example.choices)
        return InputError(f"reference {wrong[0]!r} names none of the options {excerpts}")
    texts = known.texts or example.choices
    options = tuple(Option(label, text) for label, text in zip(known.labels, texts, strict=True))
    return replace(example, options=options, references=labels)


# --- formats of published data sets


class Shape(NamedTuple):
    """How a record is read, and whether its files are CSV without a header, one file per subject."""

    example: Callable[[Record], Example]
    subjects: bool = False


def gsm8k(record: Record) -> Example:
    """Grade-school problems: the gold number stands after `####`, with or without commas.

    >>> gsm8k({"question": "How many?", "answer": "1000 + 80 = 1080\\n#### 1,080"}).references
    ('1080',)
    """
    _, mark, gold = text_of(required(record, "answer")).rpartition("####")
    if not mark:
        raise InputError("answer: no #### with the gold number behind it")
    return Example(question=text_of(required(record, "question")), references=(_number(gold, "answer"),))


def svamp(record: Record) -> Example:
    """Body and question. A body that breaks off ("If he had $ 4 at the start") goes on with a comma.

    >>> svamp({"ID": "chal-2", "Body": "If he had 4", "Question": "How much is left?", "Answer": 1.0}).question
    'If he had 4, How much is left?'
    """
    body = text_of(required(record, "Body", "body")).strip()
    question = text_of(required(record, "Question", "question")).strip()
    joint = " " if body[-1] in ".?!,:;" else ", "
    kind = record.get("Type", record.get("type"))
    return Example(
        id=text_of(record.get("ID")) or None,
        question=f"{body}{joint}{question}",
        references=(_number(text_of(required(record, "Answer", "answer")), "Answer"),),
        tags={"type": text_of(kind)} if kind is not None else {},
    )


def math(record: Record) -> Example:
    r"""Competition problems: the gold answer is what the last `\boxed{}` of the solution holds, braces nested.

    >>> math({"problem": "?", "solution": r"So $\boxed{\frac{1}{2}}$."}).references
    ('\\frac{1}{2}',)
    """
    found = [box.content for box in boxes(text_of(required(record, "solution")))]
    given = text_of(record.get("answer")).strip()
    if not found and not given:
        raise InputError(r"solution: no \boxed{} with the gold answer in it")
    tags = {name: text_of(record[name]) for name in ("subject", "level") if record.get(name) is not None}
    if "subject" not in tags and record.get("type") is not None:
        tags["subject"] = text_of(record["type"])
    return Example(
        id=text_of(record.get("unique_id")) or None,
        question=text_of(required(record, "problem")),
        references=(given or found[-1].strip(),),
        tags=tags,
    )


def mmlu(record: Record) -> Example:
    """Four options and the right one as a letter or as its place from 0; the subject is a tag.

    >>> mmlu({"question": "?", "choices": ["x", "y"], "answer": "1", "subject": "logic"}).references
    ('B',)
    """
    texts = [text_of(c) for c in required(record, "choices")]
    options = tuple(Option(ascii_uppercase[i], text) for i, text in enumerate(texts))
    gold = text_of(required(record, "answer")).strip()
    label = options[int(gold)].label if gold.isdecimal() and int(gold) < len(options) else gold.upper()
    tags = {"subject": text_of(required(record, "subject"))}
    return _multiple_choice(text_of(required(record, "question")), options, label, tags=tags)


def arc(record: Record) -> Example:
    """Science questions with three to five options, labelled A to E or 1 to 4 as the record has them.

    A record of the instruction form ("... Answer1: x Answer2: y", answer2) gets letters.

    >>> choices = [{"label": "1", "text": "x"}, {"label": "2", "text": "y"}]
    >>> arc({"id": "q", "question": {"stem": "?", "choices": choices}, "answerKey": "2"}).references
    ('2',)
    """
    if "instruction" in record:
        return _arc_instruction(record)
    stem, choices = record.get("question"), record.get("choices")
    if isinstance(stem, Mapping):
        choices, stem = stem.get("choices"), stem.get("stem")
    if isinstance(choices, Mapping):
        pairs = list(zip(choices.get("label", ()), choices.get("text", ()), strict=True))
    else:
        pairs = [(c["label"], c["text"]) for c in choices or []]
    options = tuple(Option(text_of(label), text_of(text)) for label, text in pairs)
    if not stem or not options:
        raise InputError("expected a question with its choices")
    gold = text_of(required(record, "answerKey", "answer")).strip()
    return _multiple_choice(text_of(stem), options, gold, id=text_of(record.get("id")) or None)


_ARC_QUESTION = re.compile(
    r"\A(?:Please choose the correct answer to the question:\s*)?(?P<stem>.*?)\s+(?=Answer1:)", re.S
)
_ARC_END = re.compile(r"\s*Answer format:.*\Z", re.S)
_ARC_OPTION = re.compile(r"\bAnswer(\d):\s*")


def _arc_instruction(record: Record) -> Example:
    instruction = _ARC_END.sub("", text_of(required(record, "instruction")))
    stem = _ARC_QUESTION.match(instruction)
    if stem is None:
        raise InputError("instruction: expected a question followed by Answer1: ... Answer2: ...")
    parts = _ARC_OPTION.split(instruction[stem.end() :])[1:]
    options = tuple(
        Option(ascii_uppercase[int(n) - 1], t.strip()) for n, t in zip(parts[::2], parts[1::2], strict=True)
    )
    gold = text_of(required(record, "answer")).strip().lower()
    place = gold.removeprefix("answer")
    if not place.isdecimal() or not 0 < int(place) <= len(options):
        raise InputError(f"answer: {gold!r} is none of answer1 to answer{len(options)}")
    return _multiple_choice(stem["stem"], options, ascii_uppercase[int(place) - 1])


# an option with its label: "A)5", "(A) 5", "[A] 5", "A. 5", "A: 5"
_LABELLED = re.compile(r"\s*[(\[]?([A-Za-z])\s*[).\]:]\s*(.*?)\s*", re.DOTALL)


def aqua(record: Record) -> Example:
    """Algebra with options "A)5", "B) 6": the label, a bracket, the text, spaced in any way.

    >>> [str(o) for o in aqua({"question": "?", "options": ["A)5", "B ) 6"], "correct": "B"}).options]
    ['A) 5', 'B) 6']
    """
    options = tuple(_option(text_of(o)) for o in required(record, "options"))
    return _multiple_choice(text_of(required(record, "question")), options, _letter(record))


_MATHQA_OPTION = re.compile(r"(?:\A|,\s*)([a-e])\s*\)\s*")


def mathqa(record: Record) -> Example:
    """All options in one string, "a ) 12 , b ) 16": texts may hold commas, some strings are Python lists.

    Some texts begin with their label once more; it is taken out.

    >>> [str(o) for o in mathqa({"problem": "?", "options": "a ) 1,600 , b ) $ 2", "correct": "a"}).options]
    ['A) 1,600', 'B) $ 2']
    """
    listed = text_of(required(record, "options")).strip()
    if listed.startswith("["):
        try:  # as Python writes it; nothing is evaluated
            found = ast.literal_eval(listed)
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two from deep nesting
            found = None
        if not isinstance(found, list):
            raise InputError(f"options: {listed[:40]!r} is neither a list nor 'a ) .. , b ) ..'")
        options = [_option(text_of(one)) for one in found]
    else:
        parts = _MATHQA_OPTION.split(listed)[1:]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        options = [Option(label.upper(), text.strip(" ,")) for label, text in pairs]
    kind = record.get("type", record.get("category"))
    return _multiple_choice(
        text_of(required(record, "problem", "Problem")),
        # without a label at the beginning of the text once more: "a ) a ) 15"
        [Option(o.label, re.sub(rf"^{o.label}\s*\)\s*", "", o.text, flags=re.IGNORECASE)) for o in options],
        _letter(record),
        tags={"category": text_of(kind)} if kind is not None else {},
    )


def humaneval(record: Record) -> Example:
    """Programs to complete. The reference is what running them needs (metric `runs_tests`), as JSON.

    A program is right when its tests pass, not when it is like another.

    >>> example = humaneval({"task_id": "HumanEval/0", "prompt": "def f():", "entry_point": "f", "test": "..."})
    >>> example.id, example.references
    ('HumanEval/0', ('{"prompt": "def f():", "entry_point": "f", "test": "..."}',))
    """
    tests = {name: text_of(required(record, name)) for name in ("prompt", "entry_point", "test")}
    return Example(
        id=text_of(required(record, "task_id")),
        question=tests["prompt"],
        references=(json.dumps(tests),),
        tags={"entry_point": tests["entry_point"]},
    )


_READERS = (gsm8k, svamp, math, mmlu, arc, aqua, mathqa, humaneval)
SHAPES = {reader.__name__: Shape(reader, subjects=reader is mmlu) for reader in _READERS}


def _number(text: str, name: str) -> str:
    found = canonical_number(text)
    if found is None:
        raise InputError(f"{name}: {text.strip()[:40]!r} is no number")
    return found


def _option(text: str) -> Option:
    found = _LABELLED.fullmatch(text)
    if found is None:
        raise InputError(f"options: {text[:40]!r} has no label such as A)")
    return Option(found[1].upper(), found[2])


def _letter(record: Record) -> str:
    return text_of(required(record, "correct", "answer")).strip(" ().").upper()


def _multiple_choice(question: str, options: Iterable[Option], label: str, **more: Any) -> Example:
    """An example whose reference is the label of one of its options."""
    given = tuple(options)
    labels = [option.label for option in given]
    if len(given) < 2 or len(set(labels)) != len(labels):
        raise InputError(f"expected two or more options with labels of their own, found {', '.join(labels) or 'none'}")
    if label not in labels:
        raise InputError(f"the right option is {label!r}, which is none of {', '.join(labels)}")
    return Example(question=question, options=given, references=(label,), **more)
