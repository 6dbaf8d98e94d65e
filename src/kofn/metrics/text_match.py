"""Metrics of texts: `exact_match`, `contains`, `regex_match`, `choice` (by label), and overlap with a reference."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kofn.core.numbers import numbers_equal, truth_value
from kofn.errors import InputError, import_extra
from kofn.metrics.base import Metric, ReferenceMetric, best_match, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# Written out because Python and polars disagree on what whitespace is, and both must strip the same.
WHITESPACE = " \t\r\n\v\f\u00a0"

_ASCII_PUNCTUATION = frozenset(string.punctuation)
_DIGITS = str.maketrans("", "", string.digits)
# What people and models put around a label: (c), [C], **C**, "C.", `C`, $C$.
WRAPPING = WHITESPACE + "()[]{}*_`'\"$.:"

_LABEL = re.compile(r"[A-Za-z0-9]")
_LEADING_LABEL = re.compile(r"[(\[]?([A-Za-z0-9])[)\].:]+\s+\S")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(ReferenceMetric):
    """1 when prediction and reference are the same text, else 0.

    Space around either is ignored, space inside counts. Then, in this order, what `regexes_to_ignore` match
    is removed, case is folded, punctuation (ASCII's, and Unicode's category P) and digits are removed. When
    nothing is left on both sides there was nothing to compare, so only texts that were equal before match.

    >>> ExactMatch()("Paris ", "Paris"), ExactMatch()("paris", "Paris")
    (1.0, 0.0)
    >>> ExactMatch(ignore_case=True, ignore_punctuation=True)("paris.", ["London", "Paris"])
    1.0
    >>> ExactMatch(ignore_numbers=True)("17", "42")
    0.0
    """

    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False
    regexes_to_ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        regexes: object = self.regexes_to_ignore
        patterns = (regexes,) if isinstance(regexes, str) else tuple(self.regexes_to_ignore)
        object.__setattr__(self, "regexes_to_ignore", patterns)
        for pattern in patterns:
            compile_pattern(pattern, "exact_match: regexes_to_ignore")

    def score(self, prediction: str, reference: str) -> float:
        left, right = self._normalise(prediction), self._normalise(reference)
        if left or right:
            return float(left == right)
        return float(prediction.strip(WHITESPACE) == reference.strip(WHITESPACE))

    def _normalise(self, text: str) -> str:
        for pattern in self.regexes_to_ignore:
            text = re.sub(pattern, "", text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = without_punctuation(text)
        if self.ignore_numbers:
            text = text.translate(_DIGITS)
        return text.strip(WHITESPACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEqual(ReferenceMetric):
    """1 when prediction and reference say the same in a word or a short phrase, else 0.

    Case, punctuation, spacing and a leading article do not count, nor does the width of characters (Unicode NFKC);
    numbers are compared by value, and words that mean yes or no by meaning: "True" is "yes", "invalid" is "no".
    Of texts without letters and digits only the spacing is ignored, so that "] ] >" is "]]>".

    >>> TextEqual()("New York.", "new york"), TextEqual()("cat, dog", "cat dog"), TextEqual()("1,080", "1080.0")
    (1.0, 1.0, 1.0)
    >>> TextEqual()("True", "Yes"), TextEqual()("]] >", "] ] >"), TextEqual()("the cat", "a dog")
    (1.0, 1.0, 0.0)
    """

    def score(self, prediction: str, reference: str) -> float:
        left, right = _phrase(prediction), _phrase(reference)
        if left == right:
            return 1.0
        truth = truth_value(reference)
        if truth is not None and truth_value(prediction) is truth:
            return 1.0
        return float(numbers_equal(prediction, reference))


def _phrase(text: str) -> str:
    """A text as `TextEqual` compares it."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(" " if c in _ASCII_PUNCTUATION or unicodedata.category(c)[0] == "P" else c for c in plain).split()
    return " ".join(words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words) or "".join(plain.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Contains(ReferenceMetric, uses="text"):
    """1 when the reference occurs in the output, else 0. A blank reference occurs only in a blank output.

    >>> Contains()("It is Paris, of course.", "Paris"), Contains()("It is paris.", "Paris")
    (1.0, 0.0)
    >>> Contains(ignore_case=True)("It is paris.", "Paris")
    1.0
    """

    ignore_case: bool = False

    def score(self, prediction: str, reference: str) -> float:
        if self.ignore_case:
            prediction, reference = prediction.casefold(), reference.casefold()
        expected = reference.strip(WHITESPACE)
        return float(expected in prediction if expected else not prediction.strip(WHITESPACE))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexMatch(Metric, uses="text"):
    """1 when a regular expression matches the output, else 0.

    The pattern is `pattern`, or the reference when `pattern` is None. It may match anywhere; `full` asks
    for the whole output. Patterns are Python's `re`, which backtracks: repetition inside repetition such
    as `(a+)+$` can take time exponential in the length of the output. Outputs longer than `max_chars` are
    cut there, which bounds a quadratic pattern but not an exponential one, so use patterns you wrote.

    >>> RegexMatch(pattern=r"\\b\\d{4}-\\d{2}-\\d{2}\\b")("due 2024-05-01", None)
    1.0
    >>> RegexMatch(full=True)("colour", ["colou?r", "hue"])
    1.0
    >>> RegexMatch(pattern="(")
    Traceback (most recent call last):
    kofn.errors.InputError: regex_match: pattern '(' is not a regular expression: missing ), ...
    """

    pattern: str | None = None
    full: bool = False
    ignore_case: bool = False
    max_chars: int = 100_000

    def __post_init__(self) -> None:
        if self.max_chars < 1:
            raise InputError(f"regex_match: max_chars must be at least 1, not {self.max_chars}")
        if self.pattern is not None:
            compile_pattern(self.pattern, "regex_match: pattern")

    @property
    def needs_reference(self) -> bool:
        """False when the pattern is a parameter."""
        return self.pattern is None

    def __call__(self, prediction: object, reference: object = None) -> float | None:
        if self.pattern is None:
            return best_match(self._matches, prediction, reference)
        return 0.0 if prediction is None else self._matches(text_of(prediction), self.pattern)

    def _matches(self, prediction: str, pattern: str) -> float:
        flags = re.IGNORECASE if self.ignore_case else 0
        compiled = compile_pattern(pattern, "regex_match: pattern", flags)
        search = compiled.fullmatch if self.full else compiled.search
        return float(search(prediction, 0, self.max_chars) is not None)


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, where: str, flags: int = 0) -> re.Pattern[str]:
    """Return the compiled pattern, or say in one line what is wrong with it and `where` it stands."""
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise InputError(f"{where} {pattern!r} is not a regular expression: {error}") from None


def without_punctuation(text: str) -> str:
    """Return `text` without ASCII punctuation and without Unicode's category P.

    >>> without_punctuation("¿Qué? It's $5!")
    'Qué Its 5'
    """
    return "".join(
        char
        for char in text
        if char not in _ASCII_PUNCTUATION and not (char > "\x7f" and unicodedata.category(char)[0] == "P")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Metric):
    """1 when both sides name the same option, else 0.

    A label is one letter or digit, in any case and with any wrapping: "(c)", "**C**" and "C." are C. With
    the `choices` of the case (a call's keyword) an option's text stands for its label, the first being A.
    A label in front of a text ("C. Paris") counts where the other side is a bare label. Two texts that are
    no labels are compared as text, ignoring case and spacing. A blank answer names no option and scores 0.

    >>> Choice()("(c)", "C"), Choice()("B", "C"), Choice()("C. Paris", "C")
    (1.0, 0.0, 1.0)
    >>> Choice()("paris", "C", choices=["Rome", "London", "Paris"])
    1.0
    """

    def __call__(self, prediction: object, reference: object, *, choices: Sequence[str] = ()) -> float | None:
        options = {_folded(text): letter for letter, text in zip(string.ascii_uppercase, choices, strict=False)}

        def same(left: str, right: str) -> float:
            labels = _label(left, options), _label(right, options)
            if labels[0] and labels[1]:
                return float(labels[0] == labels[1])
            if labels[0] or labels[1]:
                return float((labels[0] or _leading_label(left)) == (labels[1] or _leading_label(right)))
            return float(_folded(left) == _folded(right) != "")

        return best_match(same, prediction, reference)


def _label(text: str, options: dict[str, str]) -> str | None:
    """Return the label a text is, or stands for; an option's own text goes first ("A" may be an answer)."""
    if option := options.get(_folded(text)):
        return option
    bare = text.strip(WRAPPING)
    return bare.upper() if _LABEL.fullmatch(bare) else None


def _leading_label(text: str) -> str | None:
    found = _LEADING_LABEL.match(text.strip(WHITESPACE))
    return found[1].upper() if found else None


def _folded(text: str) -> str:
    return " ".join(text.strip(WRAPPING).casefold().split())


# --- metrics `token_f1`, `rouge_l`, `bleu` and `chrf`: overlap in wording with a reference


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenF1(ReferenceMetric):
    """Harmonic mean of token precision and recall, 2PR/(P+R), as in SQuAD (Rajpurkar et al. 2016).

    Both sides are lower-cased, lose ASCII punctuation and the articles a, an and the, and are split at
    white space; tokens are matched with their counts. When a side has no token left the score is 1 if the
    other has none either, else 0. Languages written without spaces need their own tokens first.

    >>> TokenF1()("the Eiffel Tower in Paris", "Eiffel Tower")
    0.666...
    """

    def score(self, prediction: str, reference: str) -> float:
        left, right = squad_tokens(prediction), squad_tokens(reference)
        if not left or not right:
            return float(left == right)
        common = (Counter(left) & Counter(right)).total()
        return 2 * common / (len(left) + len(right))


@dataclass(frozen=True, slots=True, kw_only=True)
class RougeL(ReferenceMetric, uses="text"):
    """ROUGE-L, the F-measure of the longest common subsequence of tokens (Lin 2004).

    With L its length, P = L/len(prediction), R = L/len(reference): F = (1 + b^2) P R / (R + b^2 P), where
    b is `beta`: above 1 recall weighs more. Tokens are lower-cased runs of Unicode letters, digits and
    underscore; there is no stemming. When a side has no token the score is 1 for equal texts, else 0.

    >>> RougeL()("police kill the gunman", "police killed the gunman")
    0.75
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.beta < float("inf"):
            raise InputError(f"rouge_l: beta must be a number above 0, not {self.beta!r}")

    def score(self, prediction: str, reference: str) -> float:
        left, right = _WORDS.findall(prediction.lower()), _WORDS.findall(reference.lower())
        if not left or not right:
            return float(prediction.strip() == reference.strip())
        common = lcs_length(left, right)
        # F with P and R written out: L cancels, so nothing divides by zero
        return (1 + self.beta**2) * common / (len(left) + self.beta**2 * len(right))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bleu(ReferenceMetric, uses="text"):
    """Sentence BLEU of sacrebleu divided by 100, so in [0, 1].

    Exponential smoothing and the effective order, as sacrebleu advises for single sentences. Of several
    references the best single match counts, as for every metric here; sacrebleu would pool their n-grams.
    The mean over sentences is not corpus BLEU. Two blank texts score 1.

    >>> round(Bleu()("the cat sat on the mat", "the cat is on the mat"), 4)
    0.3799
    """

    ignore_case: bool = False
    tokenize: str = "13a"

    def __post_init__(self) -> None:
        _bleu(self.ignore_case, self.tokenize)

    def score(self, prediction: str, reference: str) -> float:
        return _sentence_score(_bleu(self.ignore_case, self.tokenize), prediction, reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chrf(ReferenceMetric, uses="text"):
    """Sentence chrF of sacrebleu divided by 100; `word_order=2` makes it chrF++. Two blank texts score 1.

    >>> round(Chrf()("the cat sat on the mat", "the cat is on the mat"), 4)
    0.6458
    """

    word_order: int = 0
    char_order: int = 6
    beta: int = 2

    def __post_init__(self) -> None:
        if self.word_order < 0 or self.char_order < 1 or self.beta < 1:
            raise InputError("chrf: word_order must be at least 0, char_order and beta at least 1")
        _chrf(self.word_order, self.char_order, self.beta)

    def score(self, prediction: str, reference: str) -> float:
        return _sentence_score(_chrf(self.word_order, self.char_order, self.beta), prediction, reference)


def squad_tokens(text: str) -> list[str]:
    """Return the tokens SQuAD compares.

    >>> squad_tokens("The  Eiffel-Tower, an icon!")
    ['eiffeltower', 'icon']
    """
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def lcs_length(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, a machine word of the table at a time.

    Bit i of `row` is 0 where the table grows at column i (Crochemore et al. 2001).

    >>> lcs_length("abcbdab", "bdcaba")
    4
    """
    places: dict[str, int] = {}
    for index, token in enumerate(left):
        places[token] = places.get(token, 0) | 1 << index
    full = row = (1 << len(left)) - 1
    for token in right:
        hits = row & places.get(token, 0)
        row = (row + hits | row - hits) & full
    return len(left) - row.bit_count()


def _sentence_score(scorer: Any, prediction: str, reference: str) -> float:
    if not prediction.strip() and not reference.strip():
        return 1.0
    # rounding in sacrebleu can exceed 100 by the last bit
    return min(1.0, float(scorer.sentence_score(prediction, [reference]).score) / 100)


# sacrebleu builds tables for its tokenizers, which a call per candidate would repeat
@lru_cache(maxsize=16)
def _bleu(ignore_case: bool, tokenize: str) -> Any:
    metrics = import_extra("sacrebleu", "text", "metric bleu").metrics
    if tokenize not in metrics.BLEU.TOKENIZERS:
        raise InputError(f"bleu: unknown tokenize {tokenize!r}; known: {', '.join(metrics.BLEU.TOKENIZERS)}")
    return metrics.BLEU(lowercase=ignore_case, tokenize=tokenize, effective_order=True)


@lru_cache(maxsize=16)
def _chrf(word_order: int, char_order: int, beta: int) -> Any:
    metrics = import_extra("sacrebleu", "text", "metric chrf").metrics
    return metrics.CHRF(word_order=word_order, char_order=char_order, beta=beta)
