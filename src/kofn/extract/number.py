r"""Numeric answers: a labelled number first, else the last number of the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kofn.extract.boxed import boxes
from kofn.extract.labels import answer_labels, first_line, run_on
from kofn.extract.reasoning import outside_reasoning
from kofn.values import CURRENCY, canonical_number, plain_characters

if TYPE_CHECKING:
    from collections.abc import Sequence

_HASHES = re.compile(r"^[ \t]{0,8}####[ \t]{0,8}(?!\d+[.):][ \t])(?=[^\w\n]{0,6}\d)", re.MULTILINE)
_SHORT = re.compile(r"(?:^|(?<=\s))A:(?=\s)")

_MONEY = re.escape(CURRENCY)
_DECIMAL = r"(?:\d{1,3}(?:,\d{2,3}){0,12},\d{3}(?!\d)(?:\.\d++)?+|\d++(?:\.\d++)?+|\.\d++)"
_BRACED = r"\{ ?-?[\d.,]{1,60} ?\}"
_TEN = r"10 ?(?:(?:\^|\*\*) ?(?:\{ ?[+-]?\d{1,9} ?\}|[+-]?\d++)|[⁻⁺]?[⁰¹²³⁴-⁹]++)"
_NUMBER = re.compile(
    # a minus is a sign only where nothing stands that it could be subtracted from
    rf"(?=[-\\.\d{_MONEY}])(?P<sign>(?<![\w)\]}}%])(?<![\d)] )-)?"
    rf"(?:\\?[{_MONEY}] ?)?(?P<inner>(?<=[{_MONEY}])-)?(?P<value>"
    rf"(?:(?<![A-Za-z_\d.])\d++ ?)?+\\[dtc]?frac ?(?:{_BRACED} ?{_BRACED}|\d\d)"
    r"|(?<![A-Za-z_\d])(?<!\d[.:/])"
    r"(?!\d{4}-\d\d-\d)(?!(?<=\d{4}-)\d\d-\d)(?<!\d{4}-\d\d-)(?:"
    rf"{_DECIMAL} ?(?:[×xX*·⋅]|\\times|\\cdot) ?{_TEN}"
    r"|\d++ \d++/\d++(?![\d/])"
    rf"|{_DECIMAL} ?/ ?{_DECIMAL}(?!/)"
    rf"|{_DECIMAL}(?:[eE][+-]?\d++(?!\w))?+"
    r"))(?!\d|[:/]\d|\.\d)(?P<ordinal>(?:st|nd|rd|th)\b)?",
    re.ASCII,
)
_ITEM_BEFORE = re.compile(r"\n[ \t>*#-]{0,8}\(?\Z")
_ITEM_AFTER = re.compile(r"\*{0,2}[.):]\*{0,2}[ \t]+\S")
_GROUP_SPACE = re.compile(r"(?<=\d)(?:[\u00a0\u2007\u2009\u202f]|\\[,!])(?=,?\d{3}(?!\d))|(?<=\d,)\\!(?=\d{3}(?!\d))")

# what follows an answer in prose, as opposed to the middle of an equation
_ASIDE = re.compile(r"\b(?:because|since|as|so|where|which|given|for)\b|[.;,]\s|(?<![-+*/×÷^=(\s])\s?\(", re.IGNORECASE)
_WINDOW = 24
_RESULT = re.compile(rf"(?:=|≈|\\approx)[\s*_`{{\\({_MONEY}]*\Z")
_CONCLUSION = re.compile(
    rf"(?:=|≈|\b(?:is|are|was|be|equals?|so|makes?|thus|therefore|hence|total of))[:,]?[\s*_`\\({_MONEY}]*\Z",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\W{0,6}(?:is )?not\b.{0,60}?(?:\bbut(?: rather)?\b|, (?:it's|it is)\b)", re.IGNORECASE)
_UNIT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s?\{[^{}]*\}(?:\^\{?\d\}?)?|\^\s?\{?\\circ\}?")
_NOT_ONE_NUMBER = re.compile(
    r"\\(?:sqrt|pi|log|ln|sin|cos|tan|infty|cup|in|leq?|geq?|pm|binom)(?![A-Za-z])|\d[a-z](?![a-z])|[\^_!]"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_MAX_LEAD_WORDS = 6


class Label(NamedTuple):
    """A place that says an answer follows: it must stand in text[end:stop], or is the box's content."""

    start: int
    end: int
    stop: int
    kind: str
    content: str | None = None


class Token(NamedTuple):
    """One number in a text, and whether it only counts things (2nd, the 3. of a list)."""

    start: int
    end: int
    value: str
    weak: bool


def number(text: str | None, choices: Sequence[str] | None = None) -> str | None:  # noqa: ARG001
    r"""The labelled number, else the last number of the text, as its canonical text.

    Labels: "answer:", "the answer is" (and the like in other languages), "#### ", "A: ", `\boxed{..}`; the
    last one with a number counts, but not one in an invented next question. A labelled equation gives its
    result. Without a label, ordinals and list numbering count only when nothing else does; times and dates
    never do. A box that holds something else than one number is no answer.

    >>> number("Answer: $1,080.00."), number("Q: .. A: 18"), number("so 3 + 4 = 7 eggs"), number("none")
    ('1080', '18', '7', None)
    >>> number("The answer is 5.\n\nQuestion: what is 3 + 3?\nAnswer: 6")
    '5'
    """
    if text is None:
        return None
    text = _prepared(text)
    found = labels_before_run_on(text)
    for label in reversed(found):
        value = labelled_number(text, label)
        if value is not None or label.kind == "box":
            return value
    return last_number(text)


def has_labelled_number(text: str) -> bool:
    """Whether a text labels a number as its answer.

    >>> has_labelled_number("The answer is 42"), has_labelled_number("6 * 7 = 42")
    (True, False)
    """
    text = _prepared(text)
    return any(labelled_number(text, label) is not None for label in labels(text))


def labels(text: str) -> list[Label]:
    """Every label in order of place; each one's stretch ends where the next label begins."""
    spans: list[tuple[int, int, str, str | None]] = [(*span, "word", None) for span in answer_labels(text)]
    if "####" in text:
        spans += [(*match.span(), "hashes", None) for match in _HASHES.finditer(text)]
    if "A:" in text:
        spans += [(*match.span(), "short", None) for match in _SHORT.finditer(text)]
    spans += [(box.start, box.end, "box", box.content) for box in boxes(text)]
    spans.sort(key=lambda span: span[:2])
    stops = [*(span[0] for span in spans[1:]), len(text)]
    return [Label(*span[:2], stop, *span[2:]) for span, stop in zip(spans, stops, strict=False)]


def labels_before_run_on(text: str) -> list[Label]:
    """The labels before the text runs on into a new question, which it can only do after a first answer."""
    found = labels(text)
    if not found or run_on(text, found[0].end) == len(text):
        return found
    first = next((label for label in found if label.kind == "box" or labelled_number(text, label)), None)
    if first is None:
        return found
    stop = run_on(text, first.end)
    return [label._replace(stop=min(label.stop, stop)) for label in found if label.start < stop]


def labelled_number(text: str, label: Label) -> str | None:
    """The number that a label announces, or None when it announces none."""
    if label.content is not None:
        return _number_in_box(label.content)
    stretch = text[label.end : label.stop]
    line = first_line(stretch)
    if not line:
        return None
    if text[label.end - 1] not in ":：=#":
        line = _SENTENCE_END.split(line, maxsplit=1)[0]
    goes_on = re.search(r"\d", stretch[stretch.find(line) + len(line) :]) is not None
    most_words = (0 if label.kind == "short" else _MAX_LEAD_WORDS) if goes_on else len(line)
    return number_in_line(line, most_words)


def number_in_line(line: str, most_words: int = _MAX_LEAD_WORDS) -> str | None:
    """The number a labelled line states: an equation's result, what "is" or "so" leads to, else the first.

    None when more than `most_words` words come before the first number: such a line begins a solution.

    >>> [number_in_line(line) for line in ("3 * 6 = 18 eggs", "there are 3 boxes of 6, so 18", "5 of 20")]
    ['18', '18', '5']
    """
    if denied := _DENIED.match(line):
        line = line[denied.end() :]
    if (whole := canonical_number(line)) is not None:
        return whole
    found = tokens(line)
    found = [token for token in found if not token.weak] or found
    if not found:
        return None
    first = found[0]
    words = len(re.findall(r"[^\W\d_]+", line[: first.start]))
    if words > most_words:
        return None
    if words:
        return _last_after(_CONCLUSION, line, found) or first.value
    equation = line.find("=", first.end)
    if "=" in line[: first.start] or (equation >= 0 and not _ASIDE.search(line, first.end, equation)):
        return _last_after(_RESULT, line, found) or first.value
    return first.value


def last_number(text: str) -> str | None:
    """The last number of a text; one that only counts things when there is no other."""
    last_weak: str | None = None
    for line in reversed(text.split("\n")):
        for match in reversed(list(_NUMBER.finditer(line))):
            token = _token(line, match)
            if token is not None and not token.weak:
                return token.value
            if token is not None and last_weak is None:
                last_weak = token.value
    return last_weak


def tokens(text: str) -> list[Token]:
    """The numbers of a text in order. Times, dates and version numbers are none.

    >>> [token.value for token in tokens("from 3:30, 1,200 of 3/4 kg at -$5 on 1/2/2024")]
    ['1200', '0.75', '-5']
    """
    return [token for match in _NUMBER.finditer(text) if (token := _token(text, match)) is not None]


def _token(text: str, match: re.Match[str]) -> Token | None:
    negative = "-" if match["sign"] or match["inner"] else ""
    value = canonical_number(negative + match["value"])
    if value is None:
        return None
    weak = match["ordinal"] is not None or _is_list_item(text, match)
    return Token(match.start(), match.end(), value, weak)


def _is_list_item(text: str, match: re.Match[str]) -> bool:
    if not _ITEM_AFTER.match(text, match.end()):
        return False
    begin = match.start()
    before = text[begin - 12 : begin] if begin >= 12 else "\n" + text[:begin]
    return _ITEM_BEFORE.search(before) is not None


def _last_after(lead: re.Pattern[str], line: str, found: list[Token]) -> str | None:
    """The last number that the pattern leads up to."""
    for token in reversed(found):
        if lead.search(line[max(0, token.start - _WINDOW) : token.start]):
            return token.value
    return None


def _number_in_box(content: str) -> str | None:
    if (whole := canonical_number(content)) is not None:
        return whole
    content = _UNIT.sub(" ", content)
    _, equals, result = content.rpartition("=")
    content = result if equals else content
    if _NOT_ONE_NUMBER.search(content):
        return None
    found = tokens(content[:2000])
    return found[0].value if len(found) == 1 else None


def _prepared(text: str) -> str:
    text = outside_reasoning(text)
    if "\\" in text or not text.isascii():
        text = _GROUP_SPACE.sub("", text.replace("{,}", ","))
    return plain_characters(text)
