r"""Extractor `math`: the box, else the labelled expression, else the last formula or number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kofn.core.numbers import canonical_number, plain_characters
from kofn.extract.answer_labels import canonical, first_line, outside_reasoning, stated_before_run_on
from kofn.extract.number_answer import first_labelled, labels, last_number, number_in_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


def math(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""The last box, else the labelled answer, else the last formula or number; numbers canonical.

    Anything else comes back as tidied LaTeX, so that answers that differ only in spacing are one answer.
    Reasoning blocks and invented next questions do not count.

    >>> math(r"so $\boxed{\dfrac{3}{4}}$"), math(r"The answer is $\frac{\pi}{2}$."), math("3 + 4 = 7")
    ('0.75', '\\frac{\\pi}{2}', '7')
    """
    if text is None:
        return None
    return stated_before_run_on(outside_reasoning(text), _stated, first_labelled)


def _stated(text: str) -> str | None:
    found = labels(text)
    for label in reversed(found):
        if label.content is not None:
            return canonical(label.content)
    for label in reversed(found):
        if answer := _labelled(first_line(text[label.end : label.stop])):
            return answer
    return _last_formula(text)


def _labelled(line: str) -> str | None:
    formulas = _formulas(line)
    if formulas:
        return _assigned(formulas[0])
    line = line.strip().strip("*`_").strip()
    if _PROSE.search(line) or _WITH_UNIT.search(line) or ("\\" not in line and _SHORT_WORD.search(line)):
        return number_in_line(plain_characters(line))
    return _assigned(line)


def _last_formula(text: str) -> str | None:
    formulas = _formulas(text)
    if not formulas:
        return last_number(plain_characters(text))
    return canonical(formulas[-1].rpartition("=")[2])


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
