"""Extractors `number` (a labelled number, else the last one) and `math` (the box, else a labelled expression)."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.numbers import (
    CURRENCY,
    SCALES,
    canonical_number,
    english_spelling,
    number_in_words,
    plain_characters,
)
from kofn.extract.answer_labels import (
    Label,
    breaks_off,
    canonical,
    first_line,
    labels_in,
    outside_reasoning,
    stated_before_run_on,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# the end of a GSM8K solution, "#### 18"; but not a heading such as "#### 2. Add"
_HASHES = re.compile(r"^[ \t]{0,8}####[ \t]{0,8}(?!\d+[.):][ \t])(?=[^\w\n]{0,6}\d)", re.MULTILINE)
# the answer of a few-shot prompt, "Q: ... A: 18"
_SHORT = re.compile(r"(?:^|(?<=\s))A:(?=\s)")

_MONEY = re.escape(CURRENCY)
_DECIMAL = (
    # spaces part groups of three only where they can hardly part numbers: not in "100 200 300"
    r"(?:(?<!\d )\d{1,2}(?: \d{3}){2,12}(?!\d| \d)(?:\.\d++)?+"
    r"|\d{1,3}(?:,\d{2,3}){0,12},\d{3}(?!\d)(?:\.\d++)?+|\d++(?:\.\d++)?+|\.\d++)"
)
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
    rf"|{_TEN}(?!\w)"
    r"|\d{1,6} ?(?:\^|\*\*) ?(?:\{ ?\d{1,3} ?\}|\d{1,3}(?![\w.]))"
    r"|\d++ \d++/\d++(?![\d/])"
    rf"|{_DECIMAL} ?/ ?{_DECIMAL}(?!/)"
    rf"|{_DECIMAL}(?:[eE][+-]?\d++(?!\w))?+"
    r"))(?!\d|[:/]\d|\.\d)(?P<ordinal>(?:st|nd|rd|th)\b)?",
    re.ASCII,
)
# what multiplies the number before it: "1.5 million", "20k", and after a currency sign "$2.5M"
_SCALED = re.compile(rf"[ -]?(?:{'|'.join(SCALES)})\b|[kK](?!\w)", re.IGNORECASE)
_SCALED_MONEY = re.compile(r" ?(?:[MB]|bn|mn)(?!\w)")
_MONEY_SCALES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
# "$7425 in 1 week": what the answer is per, or within
_QUALIFIER = re.compile(
    r"\b(?:in|per|for|over|after|every|each|within|during|by)\s(?:the (?:first|last|next) )?\Z", re.IGNORECASE
)
_QUALIFIED = re.compile(r"\s(?:second|minute|hour|day|week|month|quarter|year|decade)s?\b", re.IGNORECASE)
# two numbers of which one is the answer: "5 or 6", "between 5 and 6", "5-6"
_EITHER = re.compile(
    r"\s{0,2}(?:\bor\b|\bto\b|[-–—~])\s{0,2}(?:(?:even|maybe|perhaps|possibly)\s)?[$€£]?\Z", re.IGNORECASE
)
_BETWEEN = re.compile(r"\W{0,4}(?:(?:somewhere|anywhere) )?between\s", re.IGNORECASE)
_NOT = re.compile(r"\W{0,6}(?:is )?not\s", re.IGNORECASE)
_LEAD_IN = re.compile(
    r"[\W_]*(?:(?:exactly|only|about|approximately|therefore|thus|just|a total of)\s)*", re.IGNORECASE
)
SEVERAL = ""  # in place of a number: the label announces several, or denies one
_ITEM_BEFORE = re.compile(r"\n[ \t>*#-]{0,8}\(?\Z")
_ITEM_AFTER = re.compile(r"\*{0,2}[.):]\*{0,2}[ \t]+\S")
# what separates groups of three digits in typeset numbers: narrow spaces, and LaTeX's \, and \!
_GROUP_SPACE = re.compile(r"(?<=\d)(?:[\u00a0\u2007\u2009\u202f]|\\[,!])(?=,?\d{3}(?!\d))|(?<=\d,)\\! ?(?=\d{3}(?!\d))")

# what follows an answer in prose, as opposed to the middle of an equation
_ASIDE = re.compile(r"\b(?:because|since|as|so|where|which|given|for)\b|[.;,]\s|(?<![-+*/×÷^=(\s])\s?\(", re.IGNORECASE)
_WINDOW = 24  # characters before a number in which its lead ("=", "so") may stand
_RESULT = re.compile(rf"(?:=|≈|\\approx)[\s*_`{{\\({_MONEY}]*\Z")
_CONCLUSION = re.compile(
    rf"(?:=|≈|\b(?:is|are|was|be|equals?|so|makes?|thus|therefore|hence|total of))[:,]?[\s*_`\\({_MONEY}]*\Z",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\W{0,6}(?:is )?not\b.{0,60}?(?:\bbut(?: rather)?\b|, (?:it's|it is)\b)", re.IGNORECASE)
_UNIT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s?\{[^{}]*\}(?:\^\{?\d\}?)?|\^\s?\{?\\circ\}?")
_TEXT_ALONE = re.compile(r"\s*\\(?:text|textbf|mathrm|mbox)\s?\{([^{}]*)\}\s*")
_NOT_ONE_NUMBER = re.compile(
    r"\\(?:sqrt|pi|log|ln|sin|cos|tan|infty|cup|in|leq?|geq?|pm|binom)(?![A-Za-z])|\d[a-z](?![a-z])|[\^_!]"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_MAX_LEAD_WORDS = 6  # between a label and its number: more words begin a solution
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W_]")
_FORMULA = re.compile(
    # a dollar sign before a digit opens an amount of money and closes no formula
    r"\$\$([^$]{1,2000}+)\$\$|\$(?! )([^$\n]{1,500}+)(?<! )\$(?!\d)|\$ ([^$\n]{1,500}+)(?<= )\$(?!\d)"
    r"|\\(?P<opening>[(\[])"
)
_CLOSING = {"(": ("\\)", 500), "[": ("\\]", 2000)}  # the closing bracket, and the longest formula
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
_SHORT_WORD = re.compile(r"\s(?:or|to|of|in|at|by|so|if|as|on|is|it)\s")
_WITH_UNIT = re.compile(r"\d\s+[A-Za-z]{1,4}\.?$")
_ASSIGNED = re.compile(r"\s*[A-Za-z](?:_\{?\w\}?)?\s*=")


class Token(NamedTuple):
    """One number in a text, and whether it only counts things: as an ordinal (2nd) or as a list item (3.)."""

    start: int
    end: int
    value: str
    ordinal: bool
    item: bool

    @property
    def weak(self) -> bool:
        return self.ordinal or self.item


def number(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""The labelled number, else the last number of the text, as its canonical text.

    Labels: "answer:", "the answer is" (and the like in other languages), "#### ", "A: ", `<answer>`,
    `\boxed{..}`; the last one with a number counts. A labelled equation gives its result. Nothing in an invented
    next question counts. Without a label, ordinals and list numbering count only when nothing else does; times
    and dates never do. A box that holds something else than one number is no answer.

    >>> number("Answer: $1,080.00."), number("Q: .. A: 18"), number("so 3 + 4 = 7 eggs"), number("none")
    ('1080', '18', '7', None)
    >>> number("The answer is 5.\n\nQuestion: what is 3 + 3?\nAnswer: 6")
    '5'
    """
    if text is None:
        return None
    return stated_before_run_on(_prepared(text), _stated, first_labelled)


def _stated(text: str) -> str | None:
    for label in reversed(labels(text)):
        value = labelled_number(text, label)
        if value is not None or label.kind == "box":
            return value or None
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
    kinds = {"hashes": _HASHES if "####" in text else None, "short": _SHORT if "A:" in text else None}
    own = (Label(*m.span(), len(text), kind) for kind, sign in kinds.items() if sign for m in sign.finditer(text))
    return labels_in(text, *own)


def first_labelled(text: str) -> int | None:
    """Where the first label stands that announces a number, or the first box."""
    found = (label.end for label in labels(text) if label.kind == "box" or labelled_number(text, label))
    return next(found, None)


def labelled_number(text: str, label: Label) -> str | None:
    """The number that a label announces, or None when it announces none."""
    if label.content is not None:
        return _number_in_box(label.content)
    stretch = text[label.end : label.stop]
    line = first_line(stretch)
    if not line:
        return None
    if label.kind == "tag":
        more = _WORD.search(stretch, stretch.find(line) + len(line))
        return last_number(stretch) if more else number_in_line(line, len(line))
    if text[label.end - 1] not in ":：=#":
        line = _SENTENCE_END.split(line, maxsplit=1)[0]
    goes_on = _DIGIT.search(stretch, stretch.find(line) + len(line)) is not None
    most_words = (0 if label.kind == "short" else _MAX_LEAD_WORDS) if goes_on else len(line)
    return number_in_line(line, most_words)


def number_in_line(line: str, most_words: int = _MAX_LEAD_WORDS) -> str | None:
    """The number a labelled line states: an equation's result, what "is" or "so" leads to, else the first.

    None when more than `most_words` words come before the first number: such a line begins a solution. An empty text
    where the line names two numbers ("5 or 6", "between 5 and 6") or denies one: that is no single answer.

    >>> [number_in_line(line) for line in ("3 * 6 = 18 eggs", "there are 3 boxes of 6, so 18", "5 of 20")]
    ['18', '18', '5']
    """
    if denied := _DENIED.match(line):
        line = line[denied.end() :]
    if (whole := canonical_number(line)) is not None:
        return whole
    numbers = tokens(line)
    # a list begins with 1: any other number at the head of the line is the answer ("12. Check: 3 * 4")
    numbers = [token for token in numbers if not token.weak or (token.item and token.value != "1")] or numbers
    if not numbers:
        begin = lead.end() if (lead := _LEAD_IN.match(line)) else 0
        return str(found[0]) if (found := number_in_words(line[begin:])) else None
    first = numbers[0]
    if not denied and (_NOT.match(line) or _is_either(line, numbers)):
        return SEVERAL
    words = len(re.findall(r"[^\W\d_]+", line[: first.start]))
    if words > most_words:
        return None
    if words:
        return _last_after(_CONCLUSION, line, numbers) or first.value
    equation = line.find("=", first.end)
    if "=" in line[: first.start] or (equation >= 0 and not _ASIDE.search(line, first.end, equation)):
        return _last_after(_RESULT, line, numbers) or first.value
    return first.value


def _is_either(line: str, numbers: list[Token]) -> bool:
    """Whether a line begins with two different numbers of which one is the answer."""
    if len(numbers) < 2 or numbers[0].value == numbers[1].value:
        return False
    between = line[numbers[0].end : numbers[1].start]
    if _BETWEEN.match(line) and between.strip() in ("and", "&"):
        return True
    words = re.findall(r"[^\W\d_]+", line[: numbers[0].start])
    return (
        set(map(str.lower, words)) <= {"either", "about", "maybe", "around"} and _EITHER.fullmatch(between) is not None
    )


def last_number(text: str) -> str | None:
    """The last number of a text; one that only counts things when there is no other.

    >>> last_number("She earns $7425.00 in 1 week"), last_number("It takes 3 days for 2 men")
    ('7425', '2')
    """
    last_weak: str | None = None
    for line in reversed(text.split("\n")):
        found = list(_NUMBER.finditer(line))
        for at in reversed(range(len(found))):
            token = _token(line, found[at])
            if token is not None and not token.weak:
                if at and _QUALIFIED.match(line, token.end) and _QUALIFIER.search(line[: token.start]):
                    before = _token(line, found[at - 1])
                    if (
                        before is not None
                        and not before.weak
                        and not _SENTENCE_END.search(line, before.end, token.start)
                    ):
                        return before.value
                return token.value
            if token is not None and last_weak is None:
                last_weak = token.value
    return last_weak


def tokens(text: str) -> list[Token]:
    """The numbers of a text in order, without times, dates and version numbers.

    >>> [token.value for token in tokens("from 3:30, 1,200 of 3/4 kg at -$5 on 1/2/2024")]
    ['1200', '0.75', '-5']
    """
    return [token for match in _NUMBER.finditer(text) if (token := _token(text, match)) is not None]


def _token(text: str, match: re.Match[str]) -> Token | None:
    negative = "-" if match["sign"] or match["inner"] else ""
    value = canonical_number(negative + match["value"])
    if value is None:
        return None
    begin, item = match.start(), False
    if _ITEM_AFTER.match(text, match.end()):
        before = text[begin - 12 : begin] if begin >= 12 else "\n" + text[:begin]
        item = _ITEM_BEFORE.search(before) is not None
    end = match.end()
    if scale := _SCALED.match(text, end) or (text[begin] in CURRENCY and _SCALED_MONEY.match(text, end)) or None:
        word = scale[0].strip(" -").lower()
        factor = SCALES.get(word) or _MONEY_SCALES[word]
        value, end = canonical_number(Fraction(value) * factor) or value, scale.end()
    return Token(begin, end, value, match["ordinal"] is not None, item)


def _last_after(lead: re.Pattern[str], line: str, numbers: list[Token]) -> str | None:
    """The last number directly behind a match of the pattern."""
    led = (t.value for t in reversed(numbers) if lead.search(line[max(0, t.start - _WINDOW) : t.start]))
    return next(led, None)


def _number_in_box(content: str) -> str | None:
    if (whole := canonical_number(content)) is not None:
        return whole
    if words := _TEXT_ALONE.fullmatch(content):
        amounts = tokens(words[1].strip())
        return amounts[0].value if len(amounts) == 1 and amounts[0].start == 0 else None
    content = _UNIT.sub(" ", content)
    _, equals, result = content.rpartition("=")
    content = result if equals else content
    if _NOT_ONE_NUMBER.search(content):
        return None
    numbers = tokens(content[:2000])
    return numbers[0].value if len(numbers) == 1 else None


def _prepared(text: str) -> str:
    text = outside_reasoning(text)
    if "\\" in text or "{,}" in text or not text.isascii():
        text = _GROUP_SPACE.sub("", text.replace("{,}", ","))
    return english_spelling(plain_characters(text))


# --- extractor `math`: the box, else the labelled expression, else the last formula or number


def math(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""The last box, else the labelled answer, else the last formula or number; numbers canonical.

    Anything else comes back as tidied LaTeX, so that answers that differ only in spacing are one answer.
    Reasoning blocks and invented next questions do not count.

    >>> math(r"so $\boxed{\dfrac{3}{4}}$"), math(r"The answer is $\frac{\pi}{2}$."), math("3 + 4 = 7")
    ('0.75', '\\frac{\\pi}{2}', '7')
    """
    if text is None:
        return None
    return stated_before_run_on(outside_reasoning(text), _stated_math, first_labelled)


def _stated_math(text: str) -> str | None:
    found = labels(text)
    for label in reversed(found):
        if label.content is not None:
            return canonical(label.content)
    for label in reversed(found):
        if (answer := _labelled_math(first_line(text[label.end : label.stop]))) is not None:
            return answer or None
    if breaks_off(text):  # what stands in the middle of a calculation is not its result
        return None
    formulas = _formulas(text)
    return canonical(formulas[-1].rpartition("=")[2]) if formulas else last_number(plain_characters(text))


def _labelled_math(line: str) -> str | None:
    formulas = _formulas(line)
    if formulas:
        return _assigned(formulas[0])
    line = line.strip().strip("*`_").strip()
    if _PROSE.search(line) or _WITH_UNIT.search(line) or ("\\" not in line and _SHORT_WORD.search(line)):
        return number_in_line(plain_characters(line))
    return _assigned(line)


def _formulas(text: str) -> list[str]:
    """What stands between maths delimiters; prose between two prices ("$5 and $6") is no formula."""
    return [formula for formula in _delimited(text) if formula.strip() and not _PROSE.search(formula)]


def _delimited(text: str) -> Iterator[str]:
    """Formulas between dollars by the pattern, between brackets by searching the end: linear time for any text."""
    at = 0
    while match := _FORMULA.search(text, at):
        at = match.end()
        if match["opening"] is None:
            yield next(group for group in match.groups() if group is not None)
            continue
        closing, most = _CLOSING[match["opening"]]
        end = text.find(closing, at, at + most + len(closing))
        if end >= 0 and not (closing == "\\)" and "\n" in text[at:end]):
            yield text[at:end]
            at = end + len(closing)
        else:
            at = match.start() + 1


def _assigned(formula: str) -> str | None:
    """The value of "x = 5" or "2 + 3 = 5"; any other formula whole."""
    result = formula.rpartition("=")[2]
    if canonical_number(result) is not None:
        return canonical_number(result)
    match = _ASSIGNED.match(formula)
    return canonical(formula[match.end() :] if match else formula)
