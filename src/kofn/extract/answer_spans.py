r"""The place of an extracted answer in its text, to be marked for a reader: text, answer -> span.

An answer is canonical ("1080") and the text is not ("**Answer:** $1,080.00."), so places are compared by value.
Labels, boxes, formulas and other spellings are searched in the last 16,384 characters and then in the first as many,
which bounds the time that any text takes; the answer as it is spelled is searched in all of it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import polars as pl

from kofn.core.numbers import canonical_number, plain_characters
from kofn.errors import InputError
from kofn.extract.answer_labels import canonical, first_line, folded, run_on, stated_before_run_on, visible_spans
from kofn.extract.extractor_choice import _LABEL_GUARDS
from kofn.extract.letter_answer import _BOLD_AFTER, _BOLD_BEFORE, _LISTED_AFTER
from kofn.extract.number_answer import _GROUP_SPACE, labels, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.core.candidate_sets import Ints
    from kofn.extract.answer_labels import Label
    from kofn.extract.number_answer import Token

Span = tuple[int, int]

WINDOW = 16_384
_STRETCH = 2000  # characters after a label in which the answer must stand
_CONTEXT = 40  # characters before a number that decide what it is
_TRIES = 1000  # places that spell an answer inside something else before the search is given up
_LONG = 100  # of a longer text `str.rfind` could take time quadratic in its length

# directly before an answer: labels that cannot mean anything else
_SURE = r"(?:[Aa]nswer(?: is)?:?|####|\\boxed\{|答案[是为：:])[ *$]{0,5}"
_AT_ONCE = re.compile(rf"{_SURE}\Z")
_VULGAR = "\u00bc-\u00be\u2150-\u215e"
_NO_NUMBER = rf"[^\d{_VULGAR}]"
# the last number of a text, grouped by commas or with zeros behind its point
_GROUPED = re.compile(
    rf"{_SURE}(-?[1-9]\d{{0,2}}(?:(?:,\d{{3}})+(?:\.\d+)?|\d*\.\d+))(?![\w^/])(?={_NO_NUMBER}*\Z)", re.ASCII
)
_TAIL = 80
_FORMULA = re.compile(
    r"\$\$?([^$]{1,500}+)\$\$?|\\\(((?:[^\\\n]|\\(?!\))){0,500}+)\\\)|\\\[((?:[^\\]|\\(?!\])){0,500}+)\\\]"
)
_RESULT = re.compile(r"[=≈][\s*_`{\\($€£¥]*\Z")
_ASIDE = re.compile(r"[.;,]\s|\b(?:because|since|so|where|which|given)\b", re.IGNORECASE)
_MARKS = " \t\r\n*_`"
_VERB = re.compile(r"\s+(?:is|was|because|since|as|and|or|but|would|must|seems|fits|makes)\b")
_LOWER_WORD = re.compile(r"\s+[a-z]")
_SAID_RIGHT = re.compile(r"[)\]*_.`]{0,4}\s(?:is|est|es|ist)\s(?:\w{3,10}\s){0,3}(?:correct|right|best|answer)\b")
_RESPELLED = re.compile(
    rf"\{{,\}}|(?<![{_VULGAR}])[{_VULGAR}](?![{_VULGAR}])|{_GROUP_SPACE.pattern}"
    rf"|(?<=\d)['’_](?=\d{{3}}(?!\d))"
)


def locate(text: str, answer: str) -> tuple[int, int] | None:
    r"""Where the text most likely states this answer, as [start, end) in code points; None where it does not.

    The last label, box or `####` that states it; else the last place that says the same: a number by its value, a
    letter where it stands alone, anything else as it is spelled, or in another case, or in other LaTeX. Reasoning
    blocks and invented next questions come last. A choice that the text names by its words has no span.

    >>> text = "12 boxes of 90. **Answer:** $1,080.00."
    >>> start, end = locate(text, "1080")
    >>> text[start:end]
    '1,080.00'
    >>> locate("(b) it is", "B"), locate(r"so \boxed{\dfrac{1}{2}}", "0.5"), locate("15", "5")
    ((1, 2), (10, 22), None)
    """
    target = _target_of(answer)
    if target is None:
        return None
    # directly behind a label, where nothing that follows could state it again: most outputs end so, and it saves
    # searching the rest of them for labels and numbers
    if "<" not in text and (span := target.find_at_end(text)) and run_on(text, 0) == len(text):
        return span
    end = len(text) - WINDOW
    for begin, part in [(0, text)] if end <= 0 else [(end, text[end:]), (0, text[:WINDOW])]:
        if span := _find_stated(part, target):
            return begin + span[0], begin + span[1]
    return target.find_spelled(text)


def locate_column(texts: pl.Series, answers: pl.Series) -> tuple[Ints, Ints]:
    """`locate` for every row: the starts and the ends, -1 where there is none.

    >>> import polars as pl
    >>> starts, ends = locate_column(pl.Series(["It is 42.", None, "no"]), pl.Series(["42", "1", "7"]))
    >>> starts.tolist(), ends.tolist()
    ([6, -1, -1], [8, -1, -1])
    """
    if len(texts) != len(answers):
        raise InputError(f"{len(texts)} texts but {len(answers)} answers: give one answer a text")
    # rows in which nothing can label a number, hide it or begin a new question
    column = pl.col("text")
    plain_text = ~pl.any_horizontal(column.str.contains(guard) for guard in _LABEL_GUARDS)
    short = (column.str.len_bytes() == column.str.len_chars()) & (column.str.len_bytes() <= WINDOW)
    rows = texts.alias("text").to_frame().select(plain_text & short).to_series()
    known: dict[tuple[str, str], Span | None] = {}
    places: list[Span] = []
    for text, answer, unlabelled in zip(texts.to_list(), answers.to_list(), rows.to_list(), strict=True):
        if text is None or answer is None:
            places.append((-1, -1))
            continue
        pair = (text, answer)
        if pair not in known:
            target = _target_of(answer) if unlabelled else None
            span = None
            if isinstance(target, NumberTarget):  # what `locate` finds, without searching for labels
                view = target.view(text)
                last = target.find_last(view.text)
                span = last and _original(text, view, last, target)
            known[pair] = span or locate(text, answer)
        places.append(known[pair] or (-1, -1))
    found = np.array(places, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


class AnswerTarget(ABC):
    """An answer to be found in a text: which pieces match it, behind a label and anywhere.

    `kinds` are the labels that can announce it; `left_edge` and `right_edge` must match around it; `repetition` matches
    what may state it once more.
    """

    kinds: ClassVar[tuple[str, ...]] = ("word", "hashes", "short", "box", "tag")
    left_edge: ClassVar[re.Pattern[str]] = re.compile(r"(?<![^\W_])")
    right_edge: ClassVar[re.Pattern[str]] = re.compile(r"(?![^\W_])")
    repetition: ClassVar[re.Pattern[str]] = re.compile(r"\w")
    text: str

    @abstractmethod
    def matches(self, piece: str) -> bool:
        """Whether a piece of text is this answer."""

    @abstractmethod
    def find_announced(self, line: str, kind: str) -> Span | None:
        """Where the line behind a label of this kind states it."""

    @abstractmethod
    def find_last(self, text: str) -> Span | None:
        """The last place that states it, as the extractors rank places."""

    def view(self, text: str) -> View:
        """The text as the extractors read it."""
        return visible(text)

    def find_spelled(self, text: str) -> Span | None:
        """The last place that spells it, separated from what stands around it."""
        return self._find_delimited(text, self.text)

    def _find_delimited(self, text: str, piece: str) -> Span | None:
        end = len(text)
        for _ in range(_TRIES):
            start = _rfind(text, piece, end)
            if start < 0 or self.is_delimited(text, start):
                return (start, start + len(piece)) if start >= 0 else None
            end = start + len(piece) - 1
        return None

    def find_at_end(self, text: str) -> Span | None:
        """Where it is spelled directly behind a label, and nothing follows that may state it again."""
        start = text.rfind(self.text) if len(self.text) <= _LONG else -1
        end = start + len(self.text)
        if start < 0 or not _AT_ONCE.search(text, max(0, start - 20), start) or not self.is_delimited(text, start):
            return None
        return None if self.repetition.search(text, end) else (start, end)

    def is_delimited(self, text: str, start: int) -> bool:
        return bool(self.left_edge.match(text, start) and self.right_edge.match(text, start + len(self.text)))


@lru_cache(maxsize=4096)
def _target_of(answer: str) -> AnswerTarget | None:
    answer = answer.strip()
    if not answer:
        return None
    if (value := canonical_number(answer)) is not None:
        return NumberTarget(answer, value)
    if len(answer) == 1 and answer.isascii() and answer.isalpha():
        return LetterTarget(answer)
    return TextTarget(answer, folded(answer), canonical(answer[:_STRETCH]))


def _find_stated(text: str, target: AnswerTarget) -> Span | None:
    """The place in what counts of a text: outside reasoning, and before it runs on into a new question."""
    view = target.view(text)
    found: list[Span] = []

    def look(part: str) -> str | None:
        original = next((o for span in _places(part, target) if (o := _original(text, view, span, target))), None)
        if original is None:
            return None
        found.append(original)
        return part

    stated_before_run_on(
        view.text,
        look,
        lambda whole: next((label.end for label in labels(whole) if _find_announced(whole, label, target)), None),
    )
    return found[-1] if found else None


def _original(text: str, view: View, span: Span, target: AnswerTarget) -> Span | None:
    """The span in the text of a span in the view; None if the text there, with what the view cuts out, differs."""
    original = view.original(span)
    return original if target.matches(text[slice(*original)]) else None


def _places(text: str, target: AnswerTarget) -> Iterator[Span]:
    """The places behind labels that state it, the last label first; then the last place of all."""
    for label in reversed(labels(text)):
        if span := _find_announced(text, label, target):
            yield span
    if span := target.find_last(text):
        yield span


def _find_announced(text: str, label: Label, target: AnswerTarget) -> Span | None:
    if label.kind not in target.kinds:
        return None
    # the answer must stand in a box's or a tag's content, else in the first line after the label
    if label.content is not None:
        line = label.content
        shut = label.end - 1 if text.endswith(line + "}", 0, label.end) else label.end
        begin = shut - len(line)
    else:
        stretch = text[label.end : min(label.stop, label.end + _STRETCH)]
        line = stretch if label.kind == "tag" else first_line(stretch)
        begin = label.end + stretch.find(line)
    span = target.find_announced(line[:_STRETCH], label.kind)
    return (begin + span[0], begin + span[1]) if span else None


@dataclass(frozen=True, slots=True)
class NumberTarget(AnswerTarget):
    """A number, however it is written: by its value."""

    text: str
    value: str
    left_edge: ClassVar[re.Pattern[str]] = re.compile(r"(?<![A-Za-z_\d.,/\\-])(?<!\d:)")
    right_edge: ClassVar[re.Pattern[str]] = re.compile(r"(?![A-Za-z_\d]|[.,/:^]\d)")
    repetition: ClassVar[re.Pattern[str]] = re.compile(rf"[\d{_VULGAR}]")

    def matches(self, piece: str) -> bool:
        return canonical_number(piece) == self.value

    def view(self, text: str) -> View:
        return plain(text)

    def find_at_end(self, text: str) -> Span | None:
        """Also with commas between its groups, or zeros behind its point."""
        if span := AnswerTarget.find_at_end(self, text):
            return span
        grouped = _GROUPED.search(text, max(0, len(text) - _TAIL))
        if grouped is None:
            return None
        digits = grouped[1].replace(",", "")
        same = (digits.rstrip("0").rstrip(".") if "." in digits else digits) == self.value
        return grouped.span(1) if same else None

    def find_announced(self, line: str, kind: str) -> Span | None:
        """The whole line, else the first such number or what the equation it begins comes to; of a tag the last."""
        if canonical_number(line) == self.value:
            return trimmed(line, 0, len(line))
        found = [_cardinal(token) for token in tokens(line) if token.value == self.value]
        if not found or kind == "tag":
            return found[-1] if found else None
        aside = _ASIDE.search(line, found[0][1])
        stop = aside.start() if aside else len(line)
        results = [(a, b) for a, b in found if a < stop and _RESULT.search(line, max(0, a - 8), a)]
        return results[-1] if results else found[0]

    def find_last(self, text: str) -> Span | None:
        """The last number of this value; one that only counts things (2nd, "3.") when there is no other.

        Where the value is spelled, only what follows needs reading first.
        """
        spelled = self.find_spelled(text)
        for begin in (None if spelled is None else _well_before(text, spelled[0]), 0):
            weak: Span | None = None
            for at, token in () if begin is None else _tokens_from_the_end(text, begin):
                if token.value == self.value and not token.weak:
                    return _cardinal(token, at)
                if token.value == self.value:
                    weak = weak or _cardinal(token, at)
        return weak


def _well_before(text: str, at: int) -> int:
    """A blank far enough before a place that the context of the number there is not cut off."""
    line = text.rfind("\n", 0, at) + 1
    return max(line, text.rfind(" ", line, max(line, at - _CONTEXT)))


def _tokens_from_the_end(text: str, begin: int) -> Iterator[tuple[int, Token]]:
    """The numbers of text[begin:] with where their line begins, the last first."""
    end = len(text)
    while end >= begin:
        line = max(begin, text.rfind("\n", 0, end) + 1)
        for token in reversed(tokens(text[line:end])):
            yield line, token
        end = line - 1


def _cardinal(token: Token, begin: int = 0) -> Span:
    """Where the number stands without the two letters that make it an ordinal."""
    return begin + token.start, begin + token.end - 2 * token.ordinal


@dataclass(frozen=True, slots=True)
class LetterTarget(AnswerTarget):
    """A letter that stands alone; in lower case only where it is labelled, in brackets or all there is."""

    text: str
    kinds: ClassVar[tuple[str, ...]] = ("word", "box", "tag")

    def matches(self, piece: str) -> bool:
        return piece.upper() == self.text.upper()

    def find_announced(self, line: str, kind: str) -> Span | None:
        """The first such letter that is no article, a capital before others; of a tag the last."""
        found = list(self._mentions(line))
        found = [at for at in found if line[at] == self.text] or found
        at = found[-1 if kind == "tag" else 0] if found else None
        return None if at is None else (at, at + 1)

    def find_last(self, text: str) -> Span | None:
        """The last in bold or said to be right, else the last that is no item of a list, else the last."""
        is_all = text.strip(" \t\r\n.()[]*`\"'$:").upper() == self.text.upper()
        found, emphasised, unlisted = [], [], []
        for at in self._mentions(text):
            bracketed = text[at - 1 : at] in ("(", "[") and text[at + 1 : at + 2] in (")", "]")
            if not (is_all or text[at] == self.text or bracketed):
                continue
            found.append(at)
            bold = _BOLD_BEFORE.search(text, max(0, at - 4), at) and _BOLD_AFTER.match(text, at + 1)
            if bold or _SAID_RIGHT.match(text, at + 1):
                emphasised.append(at)
            head = text[max(0, at - 12) : at].rpartition("\n")[2].strip(" \t>*_#-([")
            if head or not _LISTED_AFTER.match(text, at + 1):
                unlisted.append(at)
        best = emphasised or unlisted or found
        return (best[-1], best[-1] + 1) if best else None

    def _mentions(self, text: str) -> Iterator[int]:
        for match in _letter_pattern(self.text.upper()).finditer(text):
            article = match[0] in "aAI" and _LOWER_WORD.match(text, match.end())
            if not article or _VERB.match(text, match.end()):
                yield match.start()


@lru_cache(maxsize=64)
def _letter_pattern(letter: str) -> re.Pattern[str]:
    """The letter outside words: in quotes it may stand, behind an apostrophe it may not."""
    return re.compile(rf"(?<![A-Za-z0-9\\])(?<![A-Za-z0-9]['’])[{letter}{letter.lower()}](?!['’]?[A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class TextTarget(AnswerTarget):
    """Anything else: as it is spelled, in another case, or in other LaTeX."""

    text: str
    folded: str
    latex: str | None

    def matches(self, piece: str) -> bool:
        return folded(piece) == self.folded or (len(piece) <= _STRETCH and canonical(piece) == self.latex)

    def find_announced(self, line: str, kind: str) -> Span | None:
        """The whole line or what it equals, else the first formula that says it, else where it is spelled."""
        spans = (trimmed(line, 0, len(line)), *_formulas(line))
        return next(self._matching_spans(line, spans), None) or self.find_spelled(line)

    def find_last(self, text: str) -> Span | None:
        return self.find_spelled(text) or next(self._matching_spans(text, reversed(list(_formulas(text)))), None)

    def find_spelled(self, text: str) -> Span | None:
        """The last place that spells it, parted from what stands around it if any is; failing that in any case."""
        size = len(self.text)
        if (at := _rfind(text, self.text, len(text))) >= 0:
            return self._find_delimited(text, self.text) or (at, at + size)
        text = folded(text)
        at = _rfind(text, self.folded, len(text))
        return None if at < 0 else self._find_delimited(text, self.folded) or (at, at + size)

    def _matching_spans(self, text: str, spans: Sequence[Span] | Iterator[Span]) -> Iterator[Span]:
        for start, end in spans:
            for begin in (start, text.rfind("=", start, end) + 1):
                piece = trimmed(text, max(start, begin), end)
                if piece[0] < piece[1] and self.matches(text[slice(*piece)]):
                    yield piece


def _formulas(text: str) -> Iterator[Span]:
    if "$" in text or "\\" in text:
        for match in _FORMULA.finditer(text):
            yield match.span(match.lastindex or 0)


def _rfind(text: str, piece: str, end: int) -> int:
    if len(piece) <= _LONG:
        return text.rfind(piece, 0, end)
    at = text[:end][::-1].find(piece[::-1])  # find takes linear time, rfind may not
    return at if at < 0 else end - at - len(piece)


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without marks and blanks at its ends, and without the full stop behind it.

    >>> trimmed("so: **42**. ", 3, 12)
    (6, 8)
    """
    while end > start and text[end - 1] in _MARKS:
        end -= 1
    if end > start + 1 and text[end - 1] == "." and text[end - 2] != ".":
        return trimmed(text, start, end - 1)
    while start < end and text[start] in _MARKS:
        start += 1
    return start, end


class View(NamedTuple):
    """A text as an extractor reads it, and where its characters stand in the original; None: in their own places."""

    text: str
    places: Sequence[int] | None = None

    def original(self, span: Span) -> Span:
        if self.places is None or span[0] >= span[1]:
            return span
        return self.places[span[0]], self.places[span[1] - 1] + 1


def visible(text: str) -> View:
    """The text outside its reasoning blocks, as `outside_reasoning` gives it.

    >>> visible("<think>5?</think>4")
    View(text='4', places=[17])
    """
    spans = visible_spans(text)
    if spans == [(0, len(text))]:
        return View(text)
    return View("".join(text[slice(*span)] for span in spans), [at for span in spans for at in range(*span)])


def plain(text: str) -> View:
    r"""The same as the number extractor reads it: digits and signs in ASCII, no spaces inside a number.

    >>> plain(r"1{,}080 or ½").text
    '1,080 or  1/2'
    """
    view = visible(text)
    text = view.text
    if text.isascii() and "\\" not in text and "{,}" not in text:
        return view
    pieces: list[str] = []
    places: list[int] = []
    at = 0
    for match in _RESPELLED.finditer(text):
        new = "," if match[0] == "{,}" else plain_characters(match[0]).rstrip(" ") if match[0].isnumeric() else ""
        pieces += text[at : match.start()].translate(_SPELLINGS), new
        places += [*range(at, match.start()), *[match.start()] * len(new)]
        at = match.end()
    rest = text[at:].translate(_SPELLINGS)
    if not pieces:
        return View(rest, view.places)
    places += range(at, len(text))
    return View("".join(pieces) + rest, places if view.places is None else [view.places[i] for i in places])


class _Spellings(dict[int, str]):
    """Every character in its ASCII spelling where that is one character, learned as they come."""

    def __missing__(self, point: int) -> str:
        new = plain_characters(chr(point))
        self[point] = new if len(new) == 1 else chr(point)
        return self[point]


_SPELLINGS = _Spellings()
