"""Warnings as values: a code, its severity and named numbers. The sentence is made where it is shown.

What each code means is in warnings.toml, the registry: its severity, the sentence and the explanation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import get_data
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

from kofn.core.format import format_count
from kofn.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DOUBLE_DIPPING = "double-dipping"
Severity = Literal["info", "warning", "error"]
Value = str | int | float | bool | None | tuple[str, ...] | tuple[int, ...]
Values = Mapping[str, Value]

SEVERITIES: dict[Severity, str] = {
    "info": "Something to know when reading the numbers. Nothing is wrong, and nothing has to be done.",
    "warning": "The numbers may mislead, or something was left out. Read the explanation before you use them.",
    "error": "The number does not measure what its name says. Do not report it.",
}
OTHER = "other"


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
        warning_kind(code)  # refuses one that is not registered
        return cls(code, values, subject)

    @property
    def severity(self) -> Severity:
        """How much it matters: `info`, `warning` or `error`."""
        kinds = warning_kinds()
        return kinds.get(self.code, kinds[OTHER]).severity

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
        sentence = warning_kinds()[self.code].sentence(self.values) if self.text is None else self.text
        return f"{self.subject}: {sentence}" if self.subject else sentence

    def __hash__(self) -> int:
        return hash((self.code, self.subject, str(self)))


def most_severe(warnings: Iterable[CodedWarning]) -> CodedWarning | None:
    """The first of the most severe warnings; None where there are at most notes for information.

    >>> few, double = CodedWarning.of("few-cases", n=9), CodedWarning("double-dipping")
    >>> most_severe([few, double]).code, most_severe([CodedWarning("tied-votes")])
    ('double-dipping', None)
    """
    order = list(SEVERITIES)
    graver = [w for w in warnings if w.severity != "info"]
    # max keeps the first of equals
    return max(graver, key=lambda w: order.index(w.severity), default=None)


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

    >>> coded_sentence("segments of fewer than 30 cases: x=a picks by `x` and is graded by y: double-dipping, z").code
    'small-segments'
    """
    # whole sentences first: in front of one may be the file or the judge that it is about. Those that begin with a name
    # come last: the name could be all of another sentence, up to a segment that is called as this one goes on
    for opens_with_name in (False, True):
        for lead in ("", r"(?P<subject>.+?): "):
            for code, pattern in _patterns().items():
                if pattern.startswith((".+?", ".*?")) == opens_with_name and (
                    found := re.fullmatch(f"{lead}(?P<text>{pattern})", sentence, re.DOTALL)
                ):
                    return CodedWarning(code, subject=found.groupdict().get("subject", ""), text=found["text"])
    return CodedWarning(OTHER, text=sentence)


@cache
def _patterns() -> dict[str, str]:
    """Code -> what its sentence looks like, where that is known."""
    found = {code: kind.pattern() for code, kind in warning_kinds().items()}
    return {code: pattern for code, pattern in found.items() if pattern is not None}


def with_code(warnings: Iterable[CodedWarning], *codes: str) -> tuple[CodedWarning, ...]:
    """Those with one of these codes.

    >>> [str(w) for w in with_code([CodedWarning.of("nothing-graded"), CodedWarning.of("few-cases", n=2)], "few-cases")]
    ['only 2 cases: intervals over so few are rough']
    """
    return tuple(w for w in warnings if w.code in codes)


class _SentenceFormatter(Formatter):
    """`str.format`, and `{n:#case}` counts ("1 case", "2 cases"), `{n:?has|have}` is its verb, tuples get commas."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("#"):
            return format_count(value, format_spec[1:])
        if format_spec.startswith("?"):
            one, several = format_spec[1:].split("|")
            return one if value == 1 else several
        if isinstance(value, tuple):
            return ", ".join(map(str, value))
        return str(super().format_field(value, format_spec))


_FORMATTER = _SentenceFormatter()


@dataclass(frozen=True, slots=True)
class WarningKind:
    """One code: how much it matters, its sentence, what it means.

    The sentence is a template, one of several by the value `about`, or a function of the values.

    `shape` is what the sentences of a function look like, to recognise them in files older than the codes.

    >>> kind = WarningKind("info", "{n:#case} left out: {names}", "Cases without a reference.")
    >>> kind.sentence({"n": 1, "names": ("q1", "q2")})
    '1 case left out: q1, q2'
    """

    severity: Severity
    template: str | Mapping[str, str] | Callable[[Values], str]
    explanation: str
    shape: str | None = None

    def sentence(self, values: Values) -> str:
        """The sentence for these values."""
        if callable(self.template):
            return self.template(values)
        template = self.template if isinstance(self.template, str) else self.template[str(values["about"])]
        return _FORMATTER.vformat(template, (), values)

    def pattern(self) -> str | None:
        """A regular expression that its sentences match; None where it is not known.

        >>> bool(re.fullmatch(WarningKind("info", "{n:#case} left out", "").pattern(), "12 cases left out"))
        True
        """
        if self.shape is not None or callable(self.template):
            return self.shape
        templates = [self.template] if isinstance(self.template, str) else self.template.values()
        return "|".join(
            "".join(re.escape(text) + ("" if name is None else _shape(spec or "")) for text, name, spec, _ in parts)
            for parts in map(_FORMATTER.parse, templates)
        )


def _shape(spec: str) -> str:
    """What a value of this format looks like: counts are digits and a noun, verbs one of two; others any text."""
    if spec.startswith("?"):
        return f"(?:{spec[1:]})"
    return r"[\d,]+" if spec == "," else rf"[\d,]+ {re.escape(spec[1:])}s?" if spec.startswith("#") else ".*?"


@cache
def warning_kinds() -> Mapping[str, WarningKind]:
    """The registry: code -> what it says."""
    import tomllib

    text = (get_data("kofn.core", "warnings.toml") or b"").decode()
    return {
        code: WarningKind(template=entry.pop("template", _SENTENCES.get(code)), **entry)
        for code, entry in tomllib.loads(text).items()
    }


def warning_kind(code: str) -> WarningKind:
    """What the registry says of a code; an unknown code is an error that names the nearest."""
    kinds = warning_kinds()
    if code not in kinds:
        raise UnknownName("warning", code, list(kinds))
    return kinds[code]


def _few_cases(v: Values) -> str:
    noun = "shared case" if v.get("shared") else "case"
    return f"only {format_count(_int(v, 'n'), noun)}: intervals over so few are rough"


def _small_segments(v: Values) -> str:
    names = _names(v, "segments")
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    star = "* " if v.get("marked") else ""
    return f"{star}segments of fewer than {v['fewest']} cases: {', '.join(names[:5])}{more}"


def _double_dipping(v: Values) -> str:
    too_good = "double-dipping, the number is too good; grade with another"
    model = f"the same model ({v.get('model')})"
    faults = {
        "itself": f"it: {too_good} metric",
        "same-scores": f"{v['metric']}, which says the same: {too_good} metric",
        "same-judge": f"the same judge: {too_good}",
        "same-model": f"{model} with another prompt: double-dipping, its taste counts twice; grade with another",
        "selector-model": f"{model}: double-dipping, its taste counts twice; grade with another",
    }
    where = f" under {v['metric']}" if v.get("named") else ""
    return f"{v['picks']}{where} picks by `{v['by']}` and is graded by {faults[str(v['fault'])]}"


def _judge_not_calibrated(v: Values) -> str:
    cure = "give --labels" if v.get("curve") else "kofn calibrate measures them"
    return f"{', '.join(_names(v, 'metrics'))}: a judge's verdicts, not corrected for its errors: {cure}"


def _no_answer_found(v: Values) -> str:
    n, of = _int(v, "n"), _int(v, "of")
    advice = "" if v.get("compared") else ": look at them, or try --extract"
    return f"no answer found in {n:,} of {of:,} candidates ({n / of:.0%}){advice}"


def _calls_failed(v: Values) -> str:
    start = f"{v['n']:,} of {v['of']:,} calls failed"
    if not v.get("judge"):
        return f"{start}, most often: {v['error']}"
    why = f" ({v['error']})" if v["error"] else ""
    return f"{start}{why}: --retry-errors asks again"


def _sets_differ_in_size(v: Values) -> str:
    sizes, names = _names(v, "sizes"), _names(v, "names")
    if sizes[0] != sizes[1]:
        what = f"sets differ in size: {sizes[0]} candidates in {names[0]}, {sizes[1]} in {names[1]}"
    else:
        what = f"sets differ in size in {format_count(_int(v, 'n'), 'case')} of {names[0]} and {names[1]}"
    cure = f"; --top-k {v['least']} cuts both" if v["least"] else ""
    return f"{what}: numbers such as any_pass rise with more candidates{cure}"


def _few_labels(v: Values) -> str:
    if v.get("curve"):
        return f"only {v['n']} labels of one kind: under {v['fewest']} the judge's rates are rough"
    noun = "label" if v["n"] == 1 else "labels"
    return f"{v['n']} {noun} that people {v['verdict']}: below {v['fewest']} the judge's rate there is uncertain"


def _verdicts_differ(v: Values) -> str:
    if "labels" not in v:
        return f"the judge's verdict in {v['sheet']} differs on {v['n']} labels: that of the run counts"
    noun = "label" if v["n"] == 1 else "labels"
    return (
        f"the judge's verdict in {v['sheet']} differs from that in {v['labels']} on {v['n']} {noun}: the latter counts"
    )


def _without_verdict(v: Values) -> str:
    noun = str(v["noun"]) + ("" if v["n"] == 1 else "s")
    if v["noun"] == "label":
        return f"{v['n']} {noun} without a verdict of the judge: left out"
    return f"{v['n']} judged {noun} without a verdict: left out"


def _duplicate_rows(v: Values) -> str:
    rows, they = ("1 row is", "it counts") if v["n"] == 1 else (f"{v['n']:,} rows are", "they count")
    return f"{rows} there twice, word for word (case {', '.join(_names(v, 'cases'))}): a resumed log? {they} once"


def _superseded_rows(v: Values) -> str:
    are = "candidate is" if v["n"] == 1 else "candidates are"
    return f"{v['file']}: {v['n']:,} {are} also in a later attempt of the same run: counted there"


def _repeated_outputs(v: Values) -> str:
    cases = "1 case is" if v["n"] == 1 else f"{v['n']:,} cases are"
    some = ", ".join(_names(v, "cases"))
    return f"{cases} there again with the same outputs ({some}): a resumed log? they count as more candidates"


def _conflicting_rows(v: Values) -> str:
    some = ", ".join(_names(v, "cases"))
    if "others" in v:
        same = f"{v['others']:,} with other values: the last counts" if v["others"] else "word for word the same"
        lines = format_count(_int(v, "n"), "line")
        return f"{lines} of a document and filter that were there before (doc_id {some}): a resumed log? {same}"
    rows = "1 row is" if v["n"] == 1 else f"{v['n']:,} rows are"
    return f"{rows} there again with other values (case {some}): a resumed log? the last one counts"


def _missing_field(v: Values) -> str:
    files = _names(v, "files")
    more = f" and {len(files) - 1:,} more files" if len(files) > 1 else ""
    return f"{files[0]}{more}: no {v['field']}, which other files have"


def _uneven_sets(v: Values) -> str:
    least, usual = _int(v, "least"), _int(v, "usual")
    fewer = f"{least}" if least == usual - 1 else f"{least} to {usual - 1}"
    some = f" ({', '.join(_names(v, 'cases'))})" if v.get("cases") else ""
    return f"{v['n']:,} of {v['of']:,} cases have {fewer} of {usual} repeats{some}"


def _int(values: Values, name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _names(values: Values, name: str) -> tuple[str, ...]:
    value = values[name]
    assert isinstance(value, tuple)
    return tuple(map(str, value))


_SENTENCES: dict[str, Callable[[Values], str]] = {
    "double-dipping": _double_dipping,
    "judge-not-calibrated": _judge_not_calibrated,
    "no-answer-found": _no_answer_found,
    "few-cases": _few_cases,
    "small-segments": _small_segments,
    "calls-failed": _calls_failed,
    "few-labels": _few_labels,
    "without-verdict": _without_verdict,
    "verdicts-differ": _verdicts_differ,
    "sets-differ-in-size": _sets_differ_in_size,
    "duplicate-rows": _duplicate_rows,
    "conflicting-rows": _conflicting_rows,
    "repeated-outputs": _repeated_outputs,
    "superseded-rows": _superseded_rows,
    "missing-field": _missing_field,
    "uneven-sets": _uneven_sets,
}
