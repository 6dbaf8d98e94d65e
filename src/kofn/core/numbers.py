"""Parses numbers as models and data sets write them, and compares them exactly.

Values are exact (`fractions.Fraction`), so 0.1 + 0.2 surprises nobody and 1/3 stays 1/3. A percent sign, a
degree sign and a currency sign are units: "50%" reads as 50, and only `numbers_equal` also lets it be 0.5.

Everything here takes time linear in its input; a text longer than any plausible number is refused unread.
"""

from __future__ import annotations

import math
import re
import unicodedata
from fractions import Fraction
from numbers import Rational

from kofn.errors import InputError

MAX_CHARACTERS = 2000
LARGEST = 10**400  # beyond, an exponent such as 1e99999 would fill the memory
MAX_PLACES = 400

CURRENCY = "$€£¥₹₩₽฿₫₺₪¢"

# what most texts are, matched before anything is unwrapped. Digits are bounded because `int` takes quadratic time.
_PLAIN = re.compile(r"(-?[0-9]{1,300}(?:\.[0-9]{1,300})?)\.?")
_CANONICAL = re.compile(r"-?[1-9][0-9]{0,300}")

# groups of two digits too: 12,34,567 is how India writes it
_INTEGER = r"(?:[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.[0-9]*)?|\.[0-9]+)"
_TIMES = r" ?(?:×|x|X|\*|·|⋅|\\times|\\cdot) ?"
_POWER = (
    r"10(?: ?(?:\^|\*\*) ?(?:\{ ?(?P<braced>[+-]?[0-9]{1,5}) ?\}|(?P<bare>[+-]?[0-9]{1,5}))"
    r"|(?P<raised>[⁺⁻]?[⁰¹²³⁴-⁹]{1,5}))"
)

_DECIMAL_FORM = re.compile(rf"(?P<mantissa>{_DECIMAL})(?:[eE](?P<exponent>[+-]?[0-9]{{1,5}}))?")
_POWER_FORM = re.compile(rf"(?:(?P<mantissa>{_DECIMAL}){_TIMES})?{_POWER}")
_RATIO = rf"(?P<top>{_DECIMAL}) ?/ ?(?P<minus>-?)(?P<bottom>{_DECIMAL})"
_FRAC = (
    r"\\[dtc]?frac ?(?:\{ ?(?P<sign>[+-]?) ?(?P<top>[0-9.,]+) ?\}|(?P<top1>[0-9]) ?)"
    r"(?:\{ ?(?P<minus>-?) ?(?P<bottom>[0-9.,]+) ?\}|(?P<bottom1>[0-9]))"
)
_RATIO_FORM = re.compile(_RATIO)
_BASE_FORM = re.compile(r"(?P<base>[0-9]{1,6}) ?(?:\^|\*\*) ?(?:\{ ?(?P<braced>[0-9]{1,3}) ?\}|(?P<bare>[0-9]{1,3}))")
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE_FORM = re.compile(rf"(?P<mantissa>{_DECIMAL})(?:[ -]?(?P<scale>{'|'.join(SCALES)})|k)", re.IGNORECASE)
# 1'234'567 and 1_000_000
_GROUPED = re.compile(r"(?<![\w.,'’])[0-9]{1,3}(?:(?:_[0-9]{3})+|(?:['’][0-9]{3})+)(?![\w'’])")
# 1.234,50 and 12 345,67: no English number is written so
_COMMA_POINT = re.compile(
    r"(?<![\w.,])[0-9]{1,3}(?:(?:\.[0-9]{3})+|(?: [0-9]{3})+),(?:[0-9]{1,2}|[0-9]{4,})(?![\w,])(?!\.[0-9])"
)
_FRAC_FORM = re.compile(rf"(?:(?P<whole>[0-9]+) ?)?{_FRAC}")
_MIXED_FORM = re.compile(r"(?P<whole>[0-9]+) (?P<top>[0-9]+) ?/ ?(?P<bottom>[0-9]+)")

_WRAPPED = re.compile(
    r"\\(?:boxed|fbox|text|textbf|mathrm|mathbf|mbox|mathit) ?\{(.*)\}|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL
)
_EDGES = " \t\r\n*`_" + CURRENCY
_UNITS = re.compile(r"(?:\\?%|°|\^ ?\{?\\circ\}?|\\degree|\\\$)$")
_SIGNED_CURRENCY = re.compile(rf"^([+-]?) ?\\?[{re.escape(CURRENCY)}] ?")
_SPACES = re.compile(r"(?:\s|\\[,;: ]|~)+")
_NO_SPACE = re.compile(r"\\! ?")  # a negative space, and the blank that ends the command
# possessive quantifiers: with backtracking, unclosed braces would take exponential time
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*+\})*+)\}")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")


def _character_table() -> dict[int, str]:
    """Characters that have an ASCII spelling: minus signs, spaces, vulgar fractions, separators."""
    table = dict.fromkeys(map(ord, "−–‐‑﹣－"), "-")
    table |= dict.fromkeys(map(ord, "\u00a0\u2007\u2008\u2009\u200a\u202f"), " ")
    table |= {ord("٫"): ".", ord("٬"): ",", ord("，"): ",", ord("．"): ".", ord("％"): "%", ord("٪"): "%"}
    table |= {ord("＋"): "+", ord("／"): "/", ord("⁄"): "/", ord("∕"): "/", ord("＄"): "$", ord("。"): "."}
    for point in (*range(0xBC, 0xBF), *range(0x2150, 0x215F)):
        table[point] = " " + unicodedata.normalize("NFKC", chr(point)).replace("⁄", "/")
    return table


_CHARACTERS = _character_table()


def plain_characters(text: str) -> str:
    """The text with minus signs, digits, spaces and fractions of other scripts in their ASCII spelling.

    >>> plain_characters("−٤٢½")
    '-42 1/2'
    """
    if text.isascii():
        return text
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text.translate(_CHARACTERS))


def english_spelling(text: str) -> str:
    """The text with numbers such as 1'234'567, 1_000_000 and 1.234,50 written as 1234567, 1000000 and 1234.50.

    >>> english_spelling("1'234'567 or 1.234,50 but x_100 and 1,234.50")
    '1234567 or 1234.50 but x_100 and 1,234.50'
    """
    if "'" in text or "_" in text or "’" in text:
        text = _GROUPED.sub(lambda found: re.sub("['’_]", "", found[0]), text)
    if "," in text:
        text = _COMMA_POINT.sub(lambda found: found[0].replace(".", "").replace(" ", "").replace(",", "."), text)
    return text


def parse_number(text: object) -> Fraction | None:
    r"""The whole text as one exact number, or None. Never raises.

    Stripped first: whitespace, `$..$`, `\(..\)`, `\boxed{..}`, `**`, backticks, currency signs, a trailing
    percent or degree sign (units) and a trailing full stop. Read then: 1,234.50; 1 234; -42 with any minus;
    3/4; `\frac{3}{4}`; 1 1/2; .5; 1.5e3; 1.5×10^3; 2^10; 1.5 million; 1'234; 1.234,50. A bool, NaN, an infinity,
    anything beyond 10^400 and any other type are not numbers.

    >>> parse_number("$1,234.50"), parse_number(r"\boxed{\frac{3}{4}}"), parse_number("1 1/2")
    (Fraction(2469, 2), Fraction(3, 4), Fraction(3, 2))
    >>> parse_number("50%"), parse_number("about 50"), parse_number(True)
    (Fraction(50, 1), None, None)
    """
    if not isinstance(text, str):
        return _within_limits(_from_object(text))
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        return None
    if plain := _PLAIN.fullmatch(text):
        return Fraction(plain[1])
    return _within_limits(_read_signed(english_spelling(_unwrap(plain_characters(text)))))


def canonical_number(text: object) -> str | None:
    r"""One text for one value: a decimal where one ends, else a reduced fraction; None when it is no number.

    >>> [canonical_number(t) for t in ("1,080.00", r"\frac{3}{4}", "2/6", "-0", "1.5e3", "50%", "none")]
    ['1080', '0.75', '1/3', '0', '1500', '50', None]
    """
    if isinstance(text, str) and _CANONICAL.fullmatch(text):
        return text
    value = parse_number(text)
    return None if value is None else _canonical(value)


def numbers_equal(a: object, b: object, *, tolerance: float = 0.0, relative: float = 0.0) -> bool:
    r"""Whether both sides are numbers of the same value: |a - b| <= max(tolerance, relative * max(|a|, |b|)).

    A side that is no number equals nothing, not even the same text. A percentage equals both its number and
    its share: "50%" = "50" = "0.5" against a side without a percent sign.

    >>> numbers_equal("$42$", r"\boxed{42}"), numbers_equal("1/2", 0.5), numbers_equal("50%", "0.5")
    (True, True, True)
    >>> numbers_equal("unknown", "unknown"), numbers_equal("3.14", "3.1416", tolerance=0.01)
    (False, True)
    """
    if not (0 <= tolerance < math.inf and 0 <= relative < math.inf):
        raise InputError(f"tolerance and relative must be finite and not negative, not {tolerance} and {relative}")
    left, right = parse_number(a), parse_number(b)
    if left is None or right is None:
        return False
    if _is_close(left, right, tolerance, relative):
        return True
    # a share may be meant only where exactly one side has the sign
    if _is_percent(a) == _is_percent(b):
        return False
    if _is_percent(a):
        return _is_close(left / 100, right, tolerance, relative)
    return _is_close(left, right / 100, tolerance, relative)


def normalize_numeric(text: str) -> str:
    r"""The text without `\boxed{..}`, dollar signs, backslashes and whitespace (compatible; returns text).

    It compares spellings, not values: "1,000" and "1000" stay different. `numbers_equal` compares values.

    >>> [normalize_numeric(t) for t in ("42", " 42 ", "$42$", r"\boxed{42}")]
    ['42', '42', '42', '42']
    """
    text = _BOXED.sub(r"\1", text.strip())
    return "".join(text.replace("$", "").replace("\\", "").split())


def _is_close(a: Fraction, b: Fraction, tolerance: float, relative: float) -> bool:
    if a == b:
        return True
    # repr gives the decimal the caller wrote: 0.1 is a tenth, not the double nearest to it
    allowed = max(Fraction(repr(tolerance)), Fraction(repr(relative)) * max(abs(a), abs(b)))
    return abs(a - b) <= allowed


def _is_percent(text: object) -> bool:
    return isinstance(text, str) and any(sign in text for sign in "%％٪")


def _from_object(value: object) -> Fraction | None:
    # True is an int to Python, and no number to a reader
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational):
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(float.__repr__(value))  # a subclass may print itself otherwise
    return None


def _canonical(value: Fraction) -> str:
    top, bottom = value.numerator, value.denominator
    if bottom == 1:
        return str(top)
    # a decimal ends where the denominator has no prime factor but 2 and 5; `bottom & -bottom` is its power of two
    twos = (bottom & -bottom).bit_length() - 1
    rest, fives = bottom >> twos, 0
    while rest % 5 == 0:
        rest //= 5
        fives += 1
    places = max(twos, fives)
    if rest != 1 or places > MAX_PLACES:
        return f"{top}/{bottom}"
    digits = str(abs(top) * 10**places // bottom).rjust(places + 1, "0")
    return f"{'-' if top < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _within_limits(value: Fraction | None) -> Fraction | None:
    if value is None or abs(value.numerator) > LARGEST or value.denominator > LARGEST:
        return None
    return value


def _unwrap(text: str) -> str:
    """The text inside its wrappers: every pass takes at least one character off, so it ends."""
    text = _SPACES.sub(" ", _NO_SPACE.sub("", text.replace("{,}", ",")))
    while True:
        before = text
        text = _UNITS.sub("", text.strip(_EDGES).removesuffix("\\"))
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1]
        if match := _WRAPPED.fullmatch(text):
            text = next(group for group in match.groups() if group is not None)
        text = _SIGNED_CURRENCY.sub(r"\1", text)
        if text == before:
            return text


def _read_signed(text: str) -> Fraction | None:
    negative = text.startswith("-")
    if text[:1] in ("-", "+"):
        text = text[1:].lstrip(" ")
    value = _read(text)
    return -value if negative and value is not None else value


def _read(text: str) -> Fraction | None:
    if match := _DECIMAL_FORM.fullmatch(text):
        return _scale(match["mantissa"], match["exponent"])
    if match := _POWER_FORM.fullmatch(text):
        exponent = match["braced"] or match["bare"] or match["raised"].translate(_RAISED)
        return _scale(match["mantissa"] or "1", exponent)
    if match := _BASE_FORM.fullmatch(text):
        power = int(match["braced"] or match["bare"])
        return Fraction(int(match["base"]) ** power) if power * len(match["base"]) <= MAX_PLACES else None
    if match := _SCALE_FORM.fullmatch(text):
        value = _scale(match["mantissa"], None)
        return None if value is None else value * SCALES[(match["scale"] or "thousand").lower()]
    if match := _FRAC_FORM.fullmatch(text):
        return _latex_fraction(match)
    if match := _MIXED_FORM.fullmatch(text):
        part = _divide(match["top"], match["bottom"])
        # 1 3/2 is not a mixed number
        if part is not None and part < 1:
            return int(match["whole"]) + part
    if match := _RATIO_FORM.fullmatch(text):
        value = _divide(match["top"], match["bottom"])
        return -value if match["minus"] and value is not None else value
    return None


def _latex_fraction(match: re.Match[str]) -> Fraction | None:
    value = _divide(match["top"] or match["top1"], match["bottom"] or match["bottom1"])
    if value is None:
        return None
    if (match["sign"] == "-") != (match["minus"] == "-"):
        value = -value
    return value + int(match["whole"]) if match["whole"] else value


def _divide(top: str, bottom: str) -> Fraction | None:
    if not (_DECIMAL_FORM.fullmatch(top) and _DECIMAL_FORM.fullmatch(bottom)):
        return None
    above, below = _scale(top, None), _scale(bottom, None)
    return above / below if above is not None and below else None


def _scale(mantissa: str, exponent: str | None) -> Fraction | None:
    value = Fraction(mantissa.replace(",", "").replace(" ", "").rstrip("."))
    if exponent is None:
        return value
    power = int(exponent)
    return value * Fraction(10) ** power if abs(power) <= MAX_PLACES else None


# words that mean yes, and in the same order those that mean the opposite
AFFIRMATIVE = ("yes", "true", "valid", "correct", "plausible", "yeah", "yep")
NEGATIVE = ("no", "false", "invalid", "incorrect", "implausible", "nah", "nope")


def truth_value(text: str) -> bool | None:
    """True for a word that means yes, False for one that means no, None for any other text.

    >>> truth_value("True."), truth_value(" (invalid)"), truth_value("maybe")
    (True, False, None)
    """
    word = text.strip(" \t\r\n*_`$\"“”'‘’.!()[]").casefold()
    return True if word in AFFIRMATIVE else False if word in NEGATIVE else None


_IN_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60,
    "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_WORD_NUMBER = re.compile(
    rf"(?:an? (?=(?:{'|'.join(SCALES)})))?(?:{'|'.join([*_IN_WORDS, *SCALES])})\b"
    rf"(?:(?:[ -]|,? and )(?:{'|'.join([*_IN_WORDS, *SCALES])})\b){{0,20}}",
    re.IGNORECASE,
)
_CHINESE_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}
_CHINESE_SCALES = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_CHINESE_NUMBER = re.compile(f"[{''.join([*_CHINESE_DIGITS, *_CHINESE_SCALES])}]{{1,30}}")


def number_in_words(text: str) -> tuple[int, int] | None:
    """The number in words that a text begins with, and where it ends: English or Chinese; None where there is none.

    >>> number_in_words("forty-two eggs"), number_in_words("one hundred and five"), number_in_words("四十二")
    ((42, 9), (105, 20), (42, 3))
    >>> number_in_words("a hundred"), number_in_words("one of them"), number_in_words("a few")
    ((100, 9), None, None)
    """
    if match := _WORD_NUMBER.match(text):
        words = [word for word in re.split(r"[^a-z]+", match[0].lower()) if word not in ("a", "an", "and", "")]
        follows = text[match.end() : match.end() + 4].lower()
        return None if follows == " of " and words == ["one"] else (_sum_words(words), match.end())
    if match := _CHINESE_NUMBER.match(text):
        return _sum_chinese(match[0]), match.end()
    return None


def _sum_words(words: list[str]) -> int:
    total = part = 0
    for word in words:
        if word == "hundred":
            part = max(part, 1) * 100
        elif word in SCALES:
            total, part = total + max(part, 1) * SCALES[word], 0
        else:
            part += _IN_WORDS[word]
    return total + part


def _sum_chinese(text: str) -> int:
    """四十二 is 42; digits alone stand for themselves: 二〇二四 is 2024."""
    if not any(sign in _CHINESE_SCALES for sign in text):
        return int("".join(str(_CHINESE_DIGITS[sign]) for sign in text))
    total = part = digit = 0
    for sign in text:
        if sign in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS[sign]
        elif (scale := _CHINESE_SCALES[sign]) < 10**4:
            part, digit = part + max(digit, 1) * scale, 0
        else:
            total, part, digit = (total + part + digit) * scale, 0, 0
    return total + part + digit
