"""LaTeX in texts as MathML, which browsers draw without a script: formulas found, converted within bounds, and checked.

Texts are a model's: only elements and attributes on a list are kept, everything is escaped, and a formula that is too
long, too deep, defines macros or does not parse is shown as its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from kofn.core.escape import html_element, html_lines, resolve_references, show_hidden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

LONGEST_FORMULA = 2_000  # characters
MOST_ELEMENTS = 2_000  # of one formula
DEEPEST = 40  # elements within elements
ROOM = 100_000  # characters of formulas on one page, those of long ones counted more: see `_cost`

_NAMES = "align|aligned|equation|gather|cases|[bpvV]?matrix"
_OPENER = re.compile(rf"```|`|\\\[|\\\(|\\begin\{{(?:{_NAMES})\*?\}}|(?<![\\$\w])\$\$?")
_CLOSER = {"\\[": "\\]", "\\(": "\\)", "$$": "$$", "`": "`", "```": "```"}
# no blank inside and no letter or digit behind, so that prices and shell variables stay text
_DOLLARS = re.compile(r"\$([^\s$](?:[^$\n]{0,600}[^\s\\$])?)\$(?![\w$])")
_BARE = re.compile(r"[^$\n]{0,300}\\(?:[dt]?frac|sqrt|text|pi|left|begin|infty|cup|in|times|cdot|pm)\b[^$\n]{0,300}")
_NUMBERED = re.compile(r"(?<=\{)(align|equation|gather)(?=\})")
_MACROS = re.compile(r"\\(?:[egx]?def|let|(?:re)?newcommand|providecommand|DeclareMathOperator|newenvironment)\b")
_ELEMENTS = re.compile(
    r"math|mrow|mi|mn|mo|mtext|mspace|msup|msub|msubsup|mfrac|msqrt|mroot|mover|munder|"
    r"munderover|mtable|mtr|mtd|mstyle|mpadded|mphantom|menclose|mmultiscripts|mprescripts|none"
)
_ATTRIBUTES = re.compile(
    r"display|stretchy|fence|form|separator|accent|accentunder|movablelimits|lspace|rspace|"
    r"minsize|maxsize|linethickness|columnalign|columnspacing|rowspacing|columnlines|rowlines|"
    r"notation|mathvariant|displaystyle|scriptlevel|width|height|depth|voffset"
)
_VALUE = re.compile(r"(?!.*\d{4})[A-Za-z0-9.%+\- ]{1,60}")  # no size that would fill a page


@dataclass(slots=True)
class MathPage:
    """What one page may still convert; `found` counts the formulas that were drawn."""

    room: int = ROOM
    found: int = 0
    source: bool = False  # a reader asked for the source

    def markup(self, text: str, span: tuple[int, int] | None = None) -> Markup:
        r"""A text with its formulas drawn, and what of it lies within `span` marked: of a formula all.

        >>> MathPage().markup("a < \\(x\\)")
        Markup('a &lt; <math display="inline"><mrow><mi>x</mi></mrow></math>')
        >>> MathPage().markup("so 42.", (3, 5))
        Markup('so <mark title="the extracted answer">42</mark>.')
        """
        low, high = span or (0, 0)
        out = Markup()
        for start, end, formula in self._pieces(text):
            inside = max(start, low) < min(end, high)
            if formula is not None:
                out += _mark(formula) if inside else formula
                continue
            a, b = (max(start, low), min(end, high)) if inside else (end, end)
            out += _lines(text[start:a])
            out += _mark(_lines(text[a:b])) if inside else ""
            out += _lines(text[b:end])
        return out

    def answer(self, text: str) -> Markup:
        r"""A reference, which may be a formula without delimiters.

        >>> MathPage().answer(r"\frac{1}{9}").count("<mfrac>"), MathPage().answer("C:\\new.txt, really")
        (1, Markup('C:\\new.txt, really'))
        """
        bare = not self.source and _BARE.fullmatch(text.strip())
        formula = convert_formula(text.strip(), "inline") if bare else None
        self.found += formula is not None
        return self.markup(text) if formula is None else formula

    def _pieces(self, text: str) -> Iterator[tuple[int, int, Markup | None]]:
        """Stretches of a text in order: (start, end, the formula drawn, or None for text)."""
        at = 0
        for start, end, source, display in () if self.source else _find_formulas(text):
            formula = self._convert(source.strip(), display)
            if formula is None:
                continue
            if display == "block":  # it has lines of its own already
                start -= text[at:start].endswith("\n")
                end += text[end : end + 1] == "\n"
            yield at, start, None
            yield start, end, formula
            at = end
        yield at, len(text), None

    def _convert(self, source: str, display: str) -> Markup | None:
        cost = _cost(source)
        if cost > self.room:
            return None
        self.room -= cost
        formula = convert_formula(source, display)
        self.found += formula is not None
        return formula


def _find_formulas(text: str) -> Iterator[tuple[int, int, str, str]]:
    r"""The places of formulas outside code, their sources and how they are displayed, in one pass.

    The next place of each kind of end is remembered, so that the time is linear whatever a text holds.

    >>> list(_find_formulas("$x$ costs $5, `$y$`, \\[z\\]"))
    [(0, 3, 'x', 'inline'), (21, 26, 'z', 'block')]
    """
    at, ends = 0, dict[str, int]()
    while found := _OPENER.search(text, at):
        start, opener, at = found.start(), found[0], found.end()
        if opener == "$":
            if inside := _DOLLARS.match(text, start):
                at = inside.end()
                yield start, at, inside[1], "inline"
            continue
        environment = opener.startswith("\\begin")
        closer = opener.replace("begin", "end") if environment else _CLOSER[opener]
        if ends.get(closer, -1) < at:
            place = text.find(closer, at)
            ends[closer] = len(text) if place < 0 else place
        end = ends[closer]
        if opener == "```":
            at = end + 3
        elif end == len(text) or end > at + LONGEST_FORMULA:
            continue
        elif opener == "`":
            at = at if "\n" in text[at:end] else end + 1
        else:
            source = text[at:end]
            at = end + len(closer)
            yield start, at, text[start:at] if environment else source, "inline" if opener == "\\(" else "block"


def _cost(source: str) -> int:
    """Characters, those of a long formula counted more: the time that the worst ones take grows with their square."""
    return len(source) * max(1, len(source) // 300)


def _mark(content: Markup) -> Markup:
    return Markup('<mark title="the extracted answer">{}</mark>').format(content)


def _lines(text: str) -> Markup:
    return html_lines(text.replace("\r\n", "\n"))


@lru_cache(4_000)
def convert_formula(source: str, display: str) -> Markup | None:
    r"""A formula as MathML; None where it cannot be drawn.

    >>> convert_formula(r"\boxed{4}", "inline")
    Markup('<math display="inline"><mrow><menclose notation="box"><mrow><mn>4</mn></mrow></menclose></mrow></math>')
    >>> convert_formula(r"\frac{1}{", "inline") is convert_formula(r"\def\a{\a\a}\a", "inline") is None
    True
    """
    if not source or len(source) > LONGEST_FORMULA or _MACROS.search(source):
        return None
    from latex2mathml.converter import convert_to_element

    try:
        # the star: without the numbers of equations, which nothing refers to
        return _Writer().write(convert_to_element(_NUMBERED.sub(r"\1*", source), display=display), 0)
    except Exception:  # whatever a model wrote: its parser has many ways to fail
        return None


class _Writer:
    """Writes what is on the lists, escaped, within bounds."""

    def __init__(self) -> None:
        self.n = 0

    def write(self, element: Element, depth: int) -> Markup:
        self.n += 1
        if not _ELEMENTS.fullmatch(element.tag) or depth > DEEPEST or self.n > MOST_ELEMENTS:
            raise ValueError(element.tag)
        children = [self.write(child, depth + 1) for child in element]
        # the converter writes signs as character references
        text = [show_hidden(resolve_references(element.text))] if element.text else []
        given = {k: v for k, v in element.attrib.items() if _ATTRIBUTES.fullmatch(k) and _VALUE.fullmatch(v)}
        return html_element(str(element.tag), *text, *children, **given)
