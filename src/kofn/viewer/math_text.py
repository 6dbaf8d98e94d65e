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

# in this order: a formula in code is code. `$` needs no blank inside and no letter or digit behind, so that prices and
# shell variables stay text.
_FORMULA = re.compile(
    r"(?P<code>```.*?(?:```|\Z)|`[^`\n]+`)"
    r"|\\\[(?P<bracket>.+?)\\\]|(?<!\\)\$\$(?P<dollars>[^$]+)\$\$"
    r"|(?P<environment>\\begin\{(?P<name>align|aligned|equation|gather|cases|[bpvV]?matrix)(?P<star>\*?)\}.+?"
    r"\\end\{(?P=name)(?P=star)\})"
    r"|\\\((?P<paren>.+?)\\\)|(?<![\\$\w])\$(?P<dollar>[^\s$](?:[^$\n]*?[^\s\\$])?)\$(?![\w$])",
    re.DOTALL,
)
_BARE = re.compile(r"[^$\n]*\\(?:[dt]?frac|sqrt|text|pi|left|begin|infty|cup|in|times|cdot|pm)\b[^$\n]{0,300}")
_INLINE = ("paren", "dollar")
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
        for found in _FORMULA.finditer(text) if not self.source and ("$" in text or "\\" in text) else ():
            formula = self._convert(found)
            if formula is None:
                continue
            start, end = found.span()
            if 'display="block"' in formula[:40]:  # it has lines of its own already
                start -= text[at:start].endswith("\n")
                end += text[end : end + 1] == "\n"
            yield at, start, None
            yield start, end, formula
            at = end
        yield at, len(text), None

    def _convert(self, found: re.Match[str]) -> Markup | None:
        kind = str(found.lastgroup)
        source = found[kind]
        if kind == "code" or len(source) > LONGEST_FORMULA or _cost(source) > self.room:
            return None
        self.room -= _cost(source)
        formula = convert_formula(source.strip(), "inline" if kind in _INLINE else "block")
        self.found += formula is not None
        return formula


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
