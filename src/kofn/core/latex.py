r"""Short mathematical answers in LaTeX: their tidy form, and whether two of them say the same.

`latex_equal` settles what answers of word problems and competitions look like: numbers with units, tuples, intervals,
sets, lists, unions, matrices, and closed expressions, which are compared by their value at a few fixed points. It never
raises, and takes time linear in its bounded input.
"""

from __future__ import annotations

import cmath
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from kofn.core.numbers import numbers_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SPACING = re.compile(r"(?<!\\)\\(?:left|right|displaystyle|[!,;: ])(?![A-Za-z])")
_LOOSE_SPACE = re.compile(r"(?<![A-Za-z])\s+|\s+(?![A-Za-z])")
_TEXT_ALONE = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s?\{([^{}]*)\}")

_LONGEST = 400  # characters of an answer that is taken apart
_DEEPEST = 40  # brackets inside brackets
_BOXED = re.compile(r"\\(?:boxed|fbox)\s?\{(.*)\}", re.DOTALL)
_WORDS = re.compile(r"\\(?:text\w*|math(?:rm|bf|it)|mbox|operatorname)\s?\{([^{}]*)\}")
_TEXT_UNIT = re.compile(r"(?<=[\d}\])])\s?\\(?:text|textrm|mathrm|mbox)\s?\{[^{}]*\}(?:\^\{?\d\}?)?$")
_UNIT = re.compile(
    r"(?<=[\d}])\s?(?:[mckd]?m|in|ft|yd|mi|[mk]?g|lbs?|oz|m?l|s|sec|min|hr?|mph|kmh|km/h|m/s|degrees?|units?"
    r"|dollars?|cents?"
    r"|(?:square |cubic )?(?:inch(?:es)?|feet|foot|yards?|miles?|meters?|metres?|centimeters?|kilometers?)"
    r"|seconds?|minutes?|hours?|days?|weeks?|months?|years?|people|students|ways|points?)(?:\^\{?[23]\}?)?$",
    re.IGNORECASE,
)
_SIGNS = re.compile(r"\^\s?\{?\\circ\}?|\\degree|\\?%$|^\\?\$|\\?\$$")
_ONE_IN_BRACES = re.compile(r"(?<=[\^_])\{([A-Za-z0-9])\}")
_NAMED = re.compile(r"(?:[A-Za-z](?:_\w)?|[a-z]\([a-z]\))(?:=|\\in)(?![^=]*=)")
_MATRIX = re.compile(r"\\begin\{[pbvBV]?matrix\}(.*)\\end\{[pbvBV]?matrix\}", re.DOTALL)
_OR = re.compile(r"\\text\s?\{\s*(?:or|and)\s*\}|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])")
_OPENING, _CLOSING = "([{", ")]}"


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


def latex_equal(left: str, right: str) -> bool:
    r"""Whether two answers say the same in mathematics; False also where neither can be told.

    Numbers go by value and units are dropped; tuples and intervals keep their order and brackets, sets, unions and
    lists do not; "x = 5" is 5; expressions in the same variables are equal where their values are.

    >>> latex_equal(r"\begin{bmatrix}1&1/2\\3&4\end{bmatrix}", r"\begin{pmatrix} 1 & 0.5 \\ 3 & 4 \end{pmatrix}")
    True
    >>> latex_equal(r"\sqrt{12}", r"2\sqrt{3}"), latex_equal("(x+1)^2", "x^2+2x+1"), latex_equal("(1,2)", "[1,2]")
    (True, True, False)
    >>> latex_equal(r"68 ft^2", "68"), latex_equal(r"\{3, 1\}", r"\{1,3\}"), latex_equal(r"x \in [1,2)", "[1, 2)")
    (True, True, True)
    """
    if max(len(left), len(right)) > _LONGEST:
        return False
    return _same(_plain(left), _plain(right), 0)


def _plain(latex: str) -> str:
    """One spelling of what LaTeX writes in several ways."""
    if boxed := _BOXED.fullmatch(latex.strip().strip("$").strip()):
        latex = boxed[1]
    latex = _OR.sub(",", latex.replace("\\(", "").replace("\\)", ""))
    latex = _TEXT_UNIT.sub("", latex.strip().strip("$").strip()) or latex
    latex = tidy_latex(_WORDS.sub(r" \1 ", latex)).replace("\\cdot", "*").replace("\\times", "*")
    return _ONE_IN_BRACES.sub(r"\1", _SIGNS.sub("", latex)).replace("\\infinity", "\\infty").replace("{,}", ",").strip()


def _same(left: str, right: str, depth: int) -> bool:
    if left == right:
        return left != ""
    if not left or not right or depth > _DEEPEST:
        return False
    if numbers_equal(left, right):
        return True
    # a unit, or the name of what is asked, on either side
    bare = [_bare(side) for side in (left, right)]
    if bare != [left, right]:
        return _same(bare[0], bare[1], depth + 1)
    matrices = _MATRIX.fullmatch(left), _MATRIX.fullmatch(right)
    if matrices[0] and matrices[1]:
        rows = [[_split(row, "&") for row in _split(one[1], "\\\\")] for one in matrices if one]
        return [len(row) for row in rows[0]] == [len(row) for row in rows[1]] and all(
            _same(a, b, depth + 1) for row, other in zip(*rows, strict=True) for a, b in zip(row, other, strict=True)
        )
    for sign in ("\\cup", ","):
        parts = _split(left, sign), _split(right, sign)
        if len(parts[0]) > 1 or len(parts[1]) > 1:
            return _same_in_any_order(_signs_apart(parts[0]), _signs_apart(parts[1]), depth)
    if "\\pm" in left or "\\pm" in right:
        lists = _signs_apart([left]), _signs_apart([right])
        return lists != ([left], [right]) and _same_in_any_order(*lists, depth)
    return _same_in_brackets(left, right, depth) or _same_values(left, right)


def _bare(side: str) -> str:
    """An answer without its unit, and without the name of what is asked: "x = 5 cm" is 5."""
    without_unit = _UNIT.sub("", side)
    name = _NAMED.match(without_unit)
    return without_unit[name.end() :] if name else without_unit


def _same_in_brackets(left: str, right: str, depth: int) -> bool:
    """Tuples, intervals and sets, in one pair of brackets each."""
    sides = []
    for side in (left, right):
        escaped = side.startswith("\\{") and side.endswith("\\}")
        inner = side[2:-2] if escaped else side[1:-1]
        if not (escaped or (side[0] in "([" and side[-1] in ")]")) or len(inner) < 1:
            return False
        sides.append(("{}" if escaped else side[0] + side[-1], _split(inner, ",")))
    (kind, one), (other_kind, other) = sides
    if kind != other_kind or len(one) != len(other):
        return False
    if kind == "{}":
        return _same_in_any_order(one, other, depth)
    return len(one) > 1 and all(_same(a, b, depth + 1) for a, b in zip(one, other, strict=True))


def _same_in_any_order(left: Sequence[str], right: Sequence[str], depth: int) -> bool:
    if len(left) != len(right) or len(left) > _DEEPEST:
        return False
    rest = list(right)
    for one in left:
        found = next((other for other in rest if _same(one, other, depth + 1)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _signs_apart(parts: Sequence[str]) -> list[str]:
    r"""The parts with "\pm 3" as "3" and "-3", "1 \pm x" as "1+x" and "1-x"."""
    pairs = [(part.replace("\\pm", "+").removeprefix("+"), part.replace("\\pm", "-")) for part in parts]
    return [one for part, pair in zip(parts, pairs, strict=True) for one in (pair if "\\pm" in part else (part,))]


def _split(text: str, sign: str) -> list[str]:
    """The parts of a text at a sign that stands outside all brackets; a comma before three digits parts nothing."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        if text[at] in _OPENING:
            depth += 1
        elif text[at] in _CLOSING:
            depth -= 1
        elif depth == 0 and text.startswith(sign, at):
            parts.append(text[start:at].strip())
            start = at = at + len(sign)
            continue
        at += 1
    return [*parts, text[start:].strip()]


# --- expressions, by value

_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|\.\d+|[A-Za-z]|[-+*/^!()\[\]{}|]|\*\*")
_FUNCTIONS: Mapping[str, Callable[[complex], complex]] = {
    "\\sin": cmath.sin,
    "\\cos": cmath.cos,
    "\\tan": cmath.tan,
    "\\cot": lambda x: 1 / cmath.tan(x),
    "\\sec": lambda x: 1 / cmath.cos(x),
    "\\csc": lambda x: 1 / cmath.sin(x),
    "\\ln": cmath.log,
    "\\log": cmath.log10,
    "\\exp": cmath.exp,
    "\\arctan": cmath.atan,
    "\\arcsin": cmath.asin,
    "\\arccos": cmath.acos,
}
_GREEK = {
    "\\alpha",
    "\\beta",
    "\\gamma",
    "\\delta",
    "\\theta",
    "\\lambda",
    "\\mu",
    "\\phi",
    "\\rho",
    "\\sigma",
    "\\omega",
}
# values of the variables, in three rounds: no round numbers, so that no two expressions agree by chance
_POINTS = (0.7318, 1.4142857, 2.2360611)
_CLOSE = 1e-9


class _NotRead(Exception):
    """The text is no expression that can be read."""


class _Reader:
    """A recursive-descent reader that computes as it reads: sums of products of powers, with implied products."""

    def __init__(self, tokens: Sequence[str], point: float) -> None:
        self.tokens, self.at, self.point, self.depth = tokens, 0, point, 0

    def read(self) -> complex:
        value = self._sum()
        if self.at < len(self.tokens):
            raise _NotRead
        return value

    @property
    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, expected: str = "") -> str:
        piece = self._next
        if not piece or (expected and piece != expected):
            raise _NotRead
        self.at += 1
        return piece

    def _sum(self) -> complex:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotRead
        sign = -1 if self._next == "-" else 1
        if self._next in ("-", "+"):
            self._take()
        value = sign * self._product()
        while self._next in ("+", "-"):
            value += self._product() if self._take() == "+" else -self._product()
        self.depth -= 1
        return value

    def _product(self) -> complex:
        value, mixed = self._power(), self.tokens[self.at - 1].isdigit()
        while self._next and self._next not in ("+", "-", ")", "]", "}", "|"):
            if self._next == "/":
                self._take()
                value /= self._power()
            elif self._next == "*":
                self._take()
                value *= self._power()
            elif mixed and self._next == "\\frac":  # 1\frac{1}{2} is 1.5
                value += self._power()
            else:
                value *= self._power()
            mixed = False
        return value

    def _power(self) -> complex:
        value = self._atom()
        while self._next in ("^", "!"):
            if self._take() == "!":
                if value.imag or value.real != int(value.real) or not 0 <= value.real <= 100:
                    raise _NotRead
                value = complex(math.factorial(int(value.real)))
            else:
                sign = -1 if self._next == "-" else 1
                if sign < 0:
                    self._take()
                value = value ** (sign * self._argument())
        return value

    def _argument(self) -> complex:
        """What a command applies to: a group in braces, or one piece ("\\frac12")."""
        if self._next == "{":
            return self._group("{", "}")
        piece = self._next
        if piece.isdigit() and len(piece) > 1:  # \frac12 takes digits one at a time; a power takes them all
            return complex(float(self._take()))
        return self._atom()

    def _group(self, opening: str, closing: str) -> complex:
        self._take(opening)
        value = self._sum()
        self._take(closing)
        return value

    def _atom(self) -> complex:
        piece = self._next
        if piece and (piece[0].isdigit() or piece[0] == "."):
            return complex(float(self._take()))
        for opening, closing in zip("([{", ")]}", strict=True):
            if piece == opening:
                return self._group(opening, closing)
        self._take()
        if piece == "|":
            value = complex(abs(self._sum()))
            self._take("|")
            return value
        if piece == "\\frac":
            top = self._fraction_part()
            bottom = self._fraction_part()
            return top / bottom
        if piece == "\\sqrt":
            degree = self._group("[", "]") if self._next == "[" else 2
            return self._argument() ** (1 / degree)
        if piece == "\\pi":
            return complex(math.pi)
        if piece in _FUNCTIONS:
            power = complex(1)
            if self._next == "^":
                self._take()
                power = self._argument()
            return _FUNCTIONS[piece](self._power()) ** power
        if piece in _GREEK or (len(piece) == 1 and piece.isalpha()):
            # a value of its own for every variable
            return complex(self.point + math.sin(sum(map(ord, piece))))
        raise _NotRead

    def _fraction_part(self) -> complex:
        """A group, or one digit: tokens hold whole numbers, so "12" after \\frac is 1 and 2."""
        piece = self._next
        if piece.isdigit() and len(piece) == 2:
            self.tokens = [*self.tokens[: self.at], piece[0], piece[1], *self.tokens[self.at + 1 :]]
        return self._argument()


class _Expression(NamedTuple):
    """An expression's variables, and its values at the fixed points."""

    variables: frozenset[str]
    values: tuple[complex, ...]


def _expression(text: str) -> _Expression | None:
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text.replace(" ", ""):
        return None
    variables = frozenset(t for t in tokens if t in _GREEK or (len(t) == 1 and t.isalpha()))
    try:
        values = tuple(_Reader(tokens, point).read() for point in _POINTS)
    except (_NotRead, ArithmeticError, ValueError):
        return None
    return _Expression(variables, values) if all(map(cmath.isfinite, values)) else None


def _same_values(left: str, right: str) -> bool:
    """Whether two expressions in the same variables have the same value at every fixed point."""
    # words are no products of variables: "evil" is not "live"
    if any(re.search(r"(?<![\\A-Za-z])[A-Za-z]{3,}", side) for side in (left, right)):
        return False
    one, other = _expression(left), _expression(right)
    if one is None or other is None or one.variables != other.variables:
        return False
    return all(abs(a - b) <= _CLOSE * max(1.0, abs(a), abs(b)) for a, b in zip(one.values, other.values, strict=True))
