r"""Extractor `labelled_text`: the words after the answer's label, such as "So the answer is False."."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from kofn.core.latex import tidy_latex
from kofn.core.numbers import AFFIRMATIVE, NEGATIVE, canonical_number
from kofn.extract.answer_labels import (
    breaks_off,
    first_line,
    labels_in,
    outside_reasoning,
    stated_before_run_on,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.extract.answer_labels import Label

_OPPOSITE = {word: other for pair in zip(AFFIRMATIVE, NEGATIVE, strict=True) for word, other in (pair, pair[::-1])}
_LATEX_TEXT = re.compile(r"\\(?:text\w*|math(?:rm|bf|it)|mbox)\s?\{([^{}]*)\}")
# a full stop ends an answer unless it stands behind an initial or an abbreviation: "J. S. Bach", "Dr. No"
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z])(?<!\b(?:[DMS]r|St|Jr|vs|No))(?<!\bMrs)(?<!\bProf)[.!?。](?=[\s\"'”’*)\]]*(?:\s|$))"
)
# what explains an answer and is no part of it
_ASIDE = re.compile(
    r"\s*(?:[;:—–]|,?\s(?:because|since|as (?:it|he|she|they|the)|which (?:is|means)|given that)\b)", re.IGNORECASE
)
_WRAPPING = " \t\r\n*_`$\"“”'‘’«»"
_LEAD = re.compile(
    r"(?:(?:therefore|thus|then|so|indeed|clearly|definitely|probably|most likely|simply|that|it is|it's)\b"
    r"[\s,:]{1,3}){1,3}",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"(?:is |are |was )?(?:not|n't)\s+(?:\w+ly\s+)?", re.IGNORECASE)
_LONGEST = 400  # characters of an answer: word lists are answers too, paragraphs are not
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")


def labelled_text(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""The words behind the last label ("answer:", "the answer is", a box or a tag), or None where nothing labels any.

    The answer ends with its sentence or line, or where a reason begins (", because ..."); quotes and marks around it
    are dropped, and a number becomes canonical. With `choices`, the possible answers, an answer that begins with one
    of them is that one ("No, it is not" is "No"; "not valid" is "invalid" where that is possible), and an output
    without a label counts if it begins with one of them, or names one alone in its last sentence. Reasoning blocks
    and invented next questions do not count.

    >>> labelled_text("We get 1 and 2. So the answer is False."), labelled_text("Answer: New York, because of the sea")
    ('False', 'New York')
    >>> labelled_text("So the answer is ] ] >."), labelled_text(r"\boxed{\text{old barn}}"), labelled_text("It is so.")
    ('] ] >', 'old barn', None)
    >>> labelled_text("Yes, she lies.", ["Yes", "No"]), labelled_text("It is not valid.", ["valid", "invalid"])
    ('Yes', 'invalid')
    """
    if text is None:
        return None
    words = _possible(tuple(choices)) if choices else {}
    return stated_before_run_on(
        outside_reasoning(text),
        lambda part: _stated(part, words),
        lambda whole: next((label.end for label in labels_in(whole) if _announced(whole, label, words)), None),
    )


def has_labelled_text(text: str) -> bool:
    """Whether a text labels an answer.

    >>> has_labelled_text("So the answer is no."), has_labelled_text("No.")
    (True, False)
    """
    visible = outside_reasoning(text)
    return any(_announced(visible, label, {}) for label in labels_in(visible))


@lru_cache(maxsize=512)
def _possible(choices: tuple[str, ...]) -> Mapping[str, str]:
    """Possible answers by their folded text, longer ones first."""
    return {choice.strip().casefold(): choice for choice in sorted(choices, key=len, reverse=True) if choice.strip()}


def _stated(text: str, words: Mapping[str, str]) -> str | None:
    for label in reversed(labels_in(text)):
        if answer := _announced(text, label, words):
            return answer
    return _unlabelled(text, words) if words else None


def _announced(text: str, label: Label, words: Mapping[str, str]) -> str | None:
    """The words that a label announces."""
    if label.content is not None:
        plain = _LATEX_TEXT.sub(r"\1", label.content).replace("\\ ", " ")
        return _one_of(plain, words) or canonical_number(plain) or tidy_latex(plain)[:_LONGEST] or None
    stretch = text[label.end : label.stop]
    if label.kind == "tag":
        whole = " ".join(stretch.split())
        return _one_of(whole, words) or _tidy(whole)
    line = _symbols_line(stretch)
    if lead := _LEAD.match(line):
        line = line[lead.end() :]
    if (word := _one_of(line, words)) is not None:
        return word
    end = _SENTENCE_END.search(line)
    line = line[: end.start()] if end else line
    if aside := _ASIDE.search(line, 1):
        line = line[: aside.start()]
    return _tidy(line)


def _symbols_line(stretch: str) -> str:
    """The first line that says anything; brackets alone do, as an answer to complete a sequence with."""
    head = stretch.lstrip(" \t*_:：=").split("\n", 1)[0].strip()
    return head if head.strip(_WRAPPING + ".") else first_line(stretch).lstrip(" *_:：=")


def _tidy(answer: str) -> str | None:
    answer = " ".join(answer.strip(_WRAPPING).removesuffix(".").strip(_WRAPPING).split())
    if not answer or len(answer) > _LONGEST:
        return None
    return canonical_number(answer) or answer


def _one_of(line: str, words: Mapping[str, str]) -> str | None:
    """The possible answer that a line begins with; "not valid" is the opposite of "valid" where that is possible."""
    low = line.strip(_WRAPPING + "([").casefold()
    if denial := _DENIAL.match(low):
        rest = low[denial.end() :]
        for word in words:
            if _begins(rest, word) and (other := _OPPOSITE.get(word, "")) in words:
                return words[other]
    return next((words[word] for word in words if _begins(low, word)), None)


def _begins(low: str, word: str) -> bool:
    after = low[len(word) : len(word) + 1]
    return low.startswith(word) and not (after.isalnum() or after in ("'", "’", "-") or word[-1:].isspace())


def _unlabelled(text: str, words: Mapping[str, str]) -> str | None:
    """The possible answer that an output begins with, or the only one that its last sentence names."""
    if (first := _one_of(text.lstrip()[:200], words)) is not None:
        return first
    if breaks_off(text):
        return None
    sentences = [part for part in _SENTENCES.split(text.rstrip()[-1000:]) if part.strip(_WRAPPING + ".")]
    if not sentences:
        return None
    last = sentences[-1].casefold()
    named = []
    for word in words:
        for match in re.finditer(rf"(?<![\w'’-]){re.escape(word)}(?![\w'’-])", last):
            denied = re.search(r"\b(?:not|n't)\s+(?:\w+ly\s+)?\Z", last[max(0, match.start() - 24) : match.start()])
            other = _OPPOSITE.get(word, "")
            named.append(other if denied and other in words else word)
    return words[named[0]] if len(set(named)) == 1 else None
