"""Metrics `token_f1`, `rouge_l`, `bleu` and `chrf`: overlap in wording with a reference."""

from __future__ import annotations

import re
import string
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, import_extra
from kofn.metrics.base import Metric, best_match

if TYPE_CHECKING:
    from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenF1(Metric):
    """Harmonic mean of token precision and recall, 2PR/(P+R), as in SQuAD (Rajpurkar et al. 2016).

    Both sides are lower-cased, lose ASCII punctuation and the articles a, an and the, and are split at
    white space; tokens are matched with their counts. When a side has no token left the score is 1 if the
    other has none either, else 0. Languages written without spaces need their own tokens first.

    >>> TokenF1()("the Eiffel Tower in Paris", "Eiffel Tower")
    0.666...
    """

    def __call__(self, prediction: object, reference: object) -> float | None:
        return best_match(_token_f1, prediction, reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class RougeL(Metric, uses="text"):
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

    def __call__(self, prediction: object, reference: object) -> float | None:
        return best_match(self._f_measure, prediction, reference)

    def _f_measure(self, prediction: str, reference: str) -> float:
        left, right = _WORDS.findall(prediction.lower()), _WORDS.findall(reference.lower())
        if not left or not right:
            return float(prediction.strip() == reference.strip())
        common = lcs_length(left, right)
        # F with P and R written out: L cancels, so nothing divides by zero
        return (1 + self.beta**2) * common / (len(left) + self.beta**2 * len(right))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bleu(Metric, uses="text"):
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

    def __call__(self, prediction: object, reference: object) -> float | None:
        scorer = _bleu(self.ignore_case, self.tokenize)
        return best_match(lambda left, right: _sentence_score(scorer, left, right), prediction, reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chrf(Metric, uses="text"):
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

    def __call__(self, prediction: object, reference: object) -> float | None:
        scorer = _chrf(self.word_order, self.char_order, self.beta)
        return best_match(lambda left, right: _sentence_score(scorer, left, right), prediction, reference)


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


def _token_f1(prediction: str, reference: str) -> float:
    left, right = squad_tokens(prediction), squad_tokens(reference)
    if not left or not right:
        return float(left == right)
    common = (Counter(left) & Counter(right)).total()
    return 2 * common / (len(left) + len(right))


def _sentence_score(scorer: Any, prediction: str, reference: str) -> float:
    if not prediction.strip() and not reference.strip():
        return 1.0
    # rounding in sacrebleu can exceed 100 by the last bit
    return min(1.0, float(scorer.sentence_score(prediction, [reference]).score) / 100)


# sacrebleu builds tables for its tokenizers, which a call per candidate would repeat
@lru_cache(maxsize=16)
def _bleu(ignore_case: bool, tokenize: str) -> Any:
    metrics = _sacrebleu("metric bleu")
    if tokenize not in metrics.BLEU.TOKENIZERS:
        raise InputError(f"bleu: unknown tokenize {tokenize!r}; known: {', '.join(metrics.BLEU.TOKENIZERS)}")
    return metrics.BLEU(lowercase=ignore_case, tokenize=tokenize, effective_order=True)


@lru_cache(maxsize=16)
def _chrf(word_order: int, char_order: int, beta: int) -> Any:
    return _sacrebleu("metric chrf").CHRF(word_order=word_order, char_order=char_order, beta=beta)


def _sacrebleu(purpose: str) -> Any:
    return import_extra("sacrebleu", "text", purpose).metrics
