"""Warnings as values: a code, its severity and named numbers. The sentence is made where it is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from kofn.core.warning_codes import KINDS, OTHER
from kofn.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kofn.core.warning_codes import Severity, Value, WarningKind

DOUBLE_DIPPING = "double-dipping"


@dataclass(frozen=True, slots=True)
class CodedWarning:
    """What a careful reader would want to know, as data. `str()` makes the sentence.

    code      which warning it is: a key of the registry, stable from version to version
    values    the numbers and names that it is about
    subject   the file, judge or system it is about, in front of the sentence; "" for the whole result
    text      the sentence as a file has it, where that file is older than the codes, or newer than this version

    >>> warning = CodedWarning.of("few-cases", n=12)
    >>> warning.code, warning.severity, warning.values["n"], str(warning)
    ('few-cases', 'warning', 12, 'only 12 cases: intervals over so few are rough')
    """

    code: str
    values: Mapping[str, Value] = field(default_factory=dict)
    subject: str = ""
    text: str | None = None

    @classmethod
    def of(cls, code: str, subject: str = "", /, **values: Value) -> CodedWarning:
        """A warning of the registry; `subject` says what it is about."""
        if code not in KINDS:
            raise UnknownName("warning", code, list(KINDS))
        return cls(code, values, subject)

    @property
    def severity(self) -> Severity:
        """How much it matters: `info`, `warning` or `error`."""
        return KINDS[self.code].severity if self.code in KINDS else KINDS[OTHER].severity

    def about(self, subject: str) -> CodedWarning:
        """The same with what it is about in front.

        >>> str(CodedWarning.of("few-cases", n=1).about("a.jsonl"))
        'a.jsonl: only 1 case: intervals over so few are rough'
        """
        inner = f"{subject}: {self.subject}" if self.subject else subject
        return CodedWarning(self.code, self.values, inner, self.text)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, beside the sentence."""
        out: dict[str, Any] = {"code": self.code, "severity": self.severity}
        if self.subject:
            out["subject"] = self.subject
        return out | {"values": dict(self.values)}

    def __str__(self) -> str:
        sentence = KINDS[self.code].sentence(self.values) if self.text is None else self.text
        return f"{self.subject}: {sentence}" if self.subject else sentence

    def __hash__(self) -> int:
        return hash((self.code, self.subject, str(self)))


def warnings_dict(warnings: Iterable[CodedWarning]) -> dict[str, list[Any]]:
    """Warnings as every JSON output and stored file has them: the sentences, and beside them the values.

    >>> found = warnings_dict([CodedWarning.of("few-cases", n=12)])
    >>> found["warnings"], found["coded_warnings"][0]["code"]
    (['only 12 cases: intervals over so few are rough'], 'few-cases')
    """
    warnings = list(warnings)
    return {"warnings": [str(w) for w in warnings], "coded_warnings": [w.to_dict() for w in warnings]}


def stored_warnings(
    sentences: Sequence[str], coded: Sequence[Mapping[str, Any]] | None = None
) -> tuple[CodedWarning, ...]:
    """Warnings read back from a file; sentences of files older than the codes get the code that they match.

    >>> old, strange = stored_warnings(["only 12 cases: intervals over so few are rough", "the moon is full"])
    >>> old.code, strange.code, str(strange)
    ('few-cases', 'other', 'the moon is full')
    """
    if coded is None or len(coded) != len(sentences):
        return tuple(map(coded_sentence, sentences))
    return tuple(_stored_warning(text, entry) for text, entry in zip(sentences, coded, strict=True))


def _stored_warning(sentence: str, entry: Mapping[str, Any]) -> CodedWarning:
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in entry.get("values", {}).items()}
    found = CodedWarning(entry["code"], values, entry.get("subject", ""))
    try:
        str(found)
    except (KeyError, TypeError, ValueError):  # a code of another version, or one with other values then
        return CodedWarning(entry["code"], values, text=sentence)
    return found


def coded_sentence(sentence: str) -> CodedWarning:
    """A sentence with the code of the warning that says it; `other` where none does.

    Only whole sentences count: words inside one, such as the name of a segment, never decide.

    >>> coded_sentence("* segments of fewer than 30 cases: topic=double-dipping").code
    'small-segments'
    """
    # whole sentences first: in front of one may be the file or the judge that it is about
    for lead in ("", r"(?P<subject>.+?): "):
        for code, pattern in _patterns().items():
            if found := re.fullmatch(f"{lead}(?P<text>{pattern})", sentence, re.DOTALL):
                return CodedWarning(code, subject=found.groupdict().get("subject", ""), text=found["text"])
    return CodedWarning(OTHER, text=sentence)


@cache
def _patterns() -> dict[str, str]:
    """Code -> what its sentence looks like, where that is known."""
    found = {code: kind.pattern() for code, kind in KINDS.items()}
    return {code: pattern for code, pattern in found.items() if pattern is not None}


def warning_kind(code: str) -> WarningKind:
    """What the registry says of a code; an unknown code is an error that names the nearest."""
    if code not in KINDS:
        raise UnknownName("warning", code, list(KINDS))
    return KINDS[code]


def with_code(warnings: Iterable[CodedWarning], *codes: str) -> tuple[CodedWarning, ...]:
    """Those with one of these codes.

    >>> [str(w) for w in with_code([CodedWarning.of("nothing-graded"), CodedWarning.of("few-cases", n=2)], "few-cases")]
    ['only 2 cases: intervals over so few are rough']
    """
    return tuple(w for w in warnings if w.code in codes)
