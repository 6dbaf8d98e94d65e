r"""Extractor `boxed`: the content of the last `\boxed{..}`, with nested braces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.numbers import canonical_number
from kofn.extract.answer_labels import BOX, outside_reasoning, run_on

if TYPE_CHECKING:
    from collections.abc import Sequence

_BRACE = re.compile(rf"(?P<box>{BOX})|\\.|[{{}}]", re.DOTALL)
# TeX allows \boxed 5 without braces, which some models write
_BARE_BOX = re.compile(r"\\boxed\s{1,3}([^\s$\\{}]{1,100})")
_SPACING = re.compile(r"\\(?:left|right|displaystyle|[!,;: ])(?![A-Za-z])")
_LOOSE_SPACE = re.compile(r"(?<![A-Za-z])\s+|\s+(?![A-Za-z])")
_UNIT_TAIL = re.compile(r"\\(?:text|mathrm|mbox)\s?\{[^{}]*\}(?:\^\{?\d\}?)?\s*$")
_TEXT_ALONE = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s?\{([^{}]*)\}")


class Box(NamedTuple):
    """One box: where it begins, where it ends, what it holds."""

    start: int
    end: int
    content: str


def boxes(text: str) -> list[Box]:
    r"""Every closed box in the order of their ends. One pass with a stack, so that deep nesting takes linear time.

    >>> [box.content for box in boxes(r"\boxed{1} then \boxed{\frac{3}{4}} and \boxed{cut")]
    ['1', '\\frac{3}{4}']
    """
    if "\\boxed" not in text and "\\fbox" not in text:
        return []
    found: list[Box] = []
    open_braces: list[tuple[int, int] | None] = []
    for token in _BRACE.finditer(text):
        if token["box"]:
            open_braces.append((token.start(), token.end()))
        elif token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}" and open_braces and (box := open_braces.pop()):
            found.append(Box(box[0], token.end(), text[box[1] : token.start()]))
    return found or [Box(m.start(), m.end(), m[1]) for m in _BARE_BOX.finditer(text)]


def tidy_latex(latex: str) -> str:
    r"""LaTeX without layout commands: dollar signs, \left, \right, thin spaces, loose spaces, \dfrac.

    >>> tidy_latex(r"$\left( 3, \dfrac{\pi}{2} \right)$")
    '(3,\\frac{\\pi}{2})'
    """
    latex = _SPACING.sub("", latex).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    latex = latex.replace("\\(", "").replace("\\)", "").replace("\\[", "").replace("\\]", "")
    latex = latex.strip(" \t\r\n$*`").removesuffix(".").rstrip(" $")
    if match := _TEXT_ALONE.fullmatch(latex):
        latex = match[1].strip()
    return _LOOSE_SPACE.sub("", latex)


def canonical(answer: str) -> str | None:
    r"""The canonical number where the answer is one, with or without a unit, else its tidied LaTeX.

    >>> [canonical(answer) for answer in (r"\dfrac{3}{4}", r"5\text{ cm}^2", r"x + \dfrac{1}{2}", " ")]
    ['0.75', '5', 'x+\\frac{1}{2}', None]
    """
    return canonical_number(answer) or canonical_number(_UNIT_TAIL.sub("", answer)) or tidy_latex(answer) or None


def boxed(text: str | None, choices: Sequence[str] | None = None) -> str | None:
    r"""What the last `\boxed{..}` holds: a canonical number where it is one, else tidied LaTeX.

    Reasoning blocks do not count, nor does a box in an invented next question. A box that is never closed, or
    holds nothing, is no answer.

    >>> boxed(r"so $\boxed{\frac{3}{4}}$."), boxed(r"\boxed{x^2 + 1}"), boxed("no box")
    ('0.75', 'x^2+1', None)
    """
    if text is None:
        return None
    text = outside_reasoning(text)
    found = boxes(text)
    if not found:
        return None
    end = run_on(text, found[0].end)
    return canonical([box for box in found if box.start < end][-1].content)
