"""Aggregators of diversity: how different the texts of a set are from each other.

They are diagnostics: why any_pass is low, not whether. Words are separated by white space. A set without evidence of
diversity (no n-grams, one candidate) is undefined, not 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.aggregators.base import Aggregator, positive
from kofn.errors import InputError, import_extra

if TYPE_CHECKING:
    import polars as pl

    from kofn.core.candidate_sets import Array, CandidateSets, Floats

Embedder = Callable[[Sequence[str]], Any]

_SLICE_ROWS = 1 << 16  # candidates whose n-grams are hashed and sorted together, which bounds the memory


@dataclass(frozen=True, slots=True)
class Distinct(Aggregator, label="distinct", needs=("texts",), neutral=True):
    """Different n-grams over all n-grams of the set (distinct-n, Li et al. 2016); no n-grams -> undefined.

    It falls as a set or its texts grow: compare only sets of equal size and length.

    >>> from kofn.core.candidate_sets import CandidateSets
    >>> Distinct(1)(CandidateSets.from_lists([[0, 0], [0]], texts=[["a b c", "a b d"], [""]])).round(3).tolist()
    [0.667, nan]
    """

    n: int = 2

    def __post_init__(self) -> None:
        positive("distinct n", self.n)

    @property
    def name(self) -> str:
        return f"distinct(n={self.n})"

    def compute(self, sets: CandidateSets) -> Floats:
        out = np.full(len(sets), np.nan)
        start = 0
        while start < len(sets):
            limit = sets.offsets[start] + _SLICE_ROWS
            stop = max(start + 1, int(np.searchsorted(sets.offsets, limit, side="right")) - 1)
            out[start:stop] = self._slice(sets, start, stop)
            start = stop
        return out

    def _slice(self, sets: CandidateSets, start: int, stop: int) -> Floats:
        texts = sets.having("texts")[int(sets.offsets[start]) : int(sets.offsets[stop])]
        owner, grams = ngram_hashes(texts, np.repeat(np.arange(stop - start), sets.sizes[start:stop]), self.n)
        total = np.bincount(owner, minlength=stop - start).astype(np.float64)
        order = np.lexsort((grams, owner))
        owner, grams = owner[order], grams[order]
        new = np.ones(len(grams), dtype=bool)
        new[1:] = (grams[1:] != grams[:-1]) | (owner[1:] != owner[:-1])
        different = np.bincount(owner[new], minlength=stop - start)
        return np.where(total > 0, different / np.maximum(total, 1.0), np.nan)


@dataclass(frozen=True, slots=True)
class UniqueTexts(Aggregator, label="unique_texts", needs=("texts",), neutral=True):
    """Share of the candidates' texts that are different, byte for byte; 1/n when all n are the same."""

    def compute(self, sets: CandidateSets) -> Floats:
        def kernel(hashes: Array, present: Array) -> Floats:
            ordered = np.sort(np.where(present, hashes, np.uint64(0)), axis=0)
            different = ((ordered[1:] != ordered[:-1]) & (ordered[:-1] > 0)).sum(axis=0) + (ordered[-1] > 0)
            n = present.sum(axis=0)
            return np.where(n > 0, different / np.maximum(n, 1), np.nan)

        # no hash is 0: it marks a text that is not there
        hashes = sets.having("texts").hash().to_numpy() | np.uint64(1)
        return sets.map_blocks(kernel, hashes, sets.having("texts").is_not_null().to_numpy())


@dataclass(frozen=True, slots=True)
class SelfBleu(Aggregator, label="self_bleu", needs=("texts",), neutral=True):
    """Mean BLEU of each candidate against the others: 0 all different, 1 all the same; one candidate -> undefined.

    Zhu et al. 2018 (arXiv 1802.01886). Sentence BLEU up to n-grams of length n with exponential smoothing, which is
    the default of sacrebleu, on words as split.
    """

    n: int = 4

    def __post_init__(self) -> None:
        positive("self_bleu n", self.n)

    def compute(self, sets: CandidateSets) -> Floats:
        return _each(sets, lambda texts: self_bleu(texts, self.n))


@dataclass(frozen=True, slots=True)
class Redundancy(Aggregator, label="redundancy", needs=("texts",), neutral=True):
    """Mean over candidates of the highest similarity to another one; one candidate -> undefined.

    Similarity is the overlap of word sets (Jaccard), or the cosine of `embedder` ("wordllama" or module:function).
    """

    embedder: str = "words"

    def compute(self, sets: CandidateSets) -> Floats:
        return _each(sets, lambda texts: redundancy(similarities(texts, self.embedder)))


@dataclass(frozen=True, slots=True)
class RedundancyPenalty(Aggregator, label="redundancy_penalty", needs=("texts",), neutral=True):
    """1 - redundancy: 1 when no two candidates share anything, 0 when each has a twin."""

    embedder: str = "words"

    def compute(self, sets: CandidateSets) -> Floats:
        return 1.0 - Redundancy(embedder=self.embedder).compute(sets)


@dataclass(frozen=True, slots=True)
class SemanticDiversity(Aggregator, label="semantic_diversity", needs=("texts",), neutral=True):
    """Mean pairwise cosine distance of the candidates' embeddings; one candidate -> undefined.

    embedder: "wordllama" (extra `embed`), module:function taking texts and giving vectors, or "words", which
    needs no model and uses word overlap (1 - Jaccard) instead of the cosine.
    """

    embedder: str = "wordllama"

    def compute(self, sets: CandidateSets) -> Floats:
        def mean_distance(texts: list[str]) -> float:
            n = len(texts)
            if n < 2:
                return math.nan
            total = similarities(texts, self.embedder)
            return float(1.0 - (total.sum() - np.trace(total)) / (n * (n - 1)))

        return _each(sets, mean_distance)


def ngram_hashes(texts: pl.Series, owner: Array, n: int) -> tuple[Array, Array]:
    """(owner, 64-bit hash) of every n-gram of the texts. Only equality is used, so hashes stand for the words."""
    words = texts.fill_null("").str.extract_all(r"\S+")
    counts = words.list.len().to_numpy().astype(np.int64)
    hashes = words.list.explode(empty_as_null=False).hash().to_numpy()
    text = np.repeat(np.arange(len(counts)), counts)
    last = len(hashes) - n + 1
    if last <= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    grams = hashes[:last].copy()
    for i in range(1, n):
        # 2**64 / golden ratio, an odd constant that spreads all bits (Knuth, multiplicative hashing)
        grams = grams * np.uint64(0x9E3779B97F4A7C15) + hashes[i : last + i]
    inside = text[:last] == text[n - 1 :]
    return owner[text[:last][inside]], grams[inside]


def self_bleu(texts: list[str], n: int = 4) -> float:
    """Mean over i of BLEU(text_i; the others); undefined for fewer than two texts.

    >>> round(self_bleu(["the cat sat on the mat", "the cat sat on the rug", "a dog ran in the park"]), 4)
    0.5336
    """
    if len(texts) < 2:
        return math.nan
    words = [t.split() for t in texts]
    grams = [[Counter(zip(*(w[i:] for i in range(k)), strict=False)) for w in words] for k in range(1, n + 1)]
    most = [_two_highest(counters) for counters in grams]
    scores = [_sentence_bleu(i, words, grams, most) for i in range(len(texts))]
    return math.fsum(scores) / len(scores)


def _two_highest(counters: list[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], tuple[int, int]]:
    """For every n-gram its highest and second highest count in one text.

    They give the highest count among the other texts for each text in turn, in linear time.
    """
    highest: dict[tuple[str, ...], tuple[int, int]] = {}
    for counter in counters:
        for gram, count in counter.items():
            high, second = highest.get(gram, (0, 0))
            highest[gram] = (count, high) if count > high else (high, max(second, count))
    return highest


def _sentence_bleu(
    i: int,
    words: list[list[str]],
    grams: list[list[Counter[tuple[str, ...]]]],
    most: list[dict[tuple[str, ...], tuple[int, int]]],
) -> float:
    """BLEU of text i: geometric mean of clipped n-gram precisions times the brevity penalty.

    An order without a match counts 1/(2^m total) for the m-th such order; orders longer than the text are left out.
    """
    own, logs, smooth = len(words[i]), [], 1.0
    for k in range(min(len(grams), own)):
        # the most another text has is the highest count, or the second highest where the highest is this text's own
        clipped = sum(
            min(count, high if count < high else second)
            for gram, count in grams[k][i].items()
            for high, second in [most[k][gram]]
        )
        if not clipped:
            if k == 0:
                return 0.0
            smooth *= 2.0
        logs.append(math.log((clipped or 1.0 / smooth) / (own - k)))
    if not logs:
        return 0.0
    closest = min((abs(len(w) - own), len(w)) for j, w in enumerate(words) if j != i)[1]
    brevity = 1.0 if own >= closest else math.exp(1.0 - closest / own)
    return brevity * math.exp(math.fsum(logs) / len(logs))


def redundancy(similarity: Floats) -> float:
    """Mean of each row's highest similarity to another row.

    >>> redundancy(np.array([[1.0, 0.5], [0.5, 1.0]]))
    0.5
    """
    if len(similarity) < 2:
        return math.nan
    others = similarity.copy()
    np.fill_diagonal(others, -np.inf)
    return float(others.max(axis=1).mean())


def similarities(texts: list[str], embedder: str) -> Floats:
    """Pairwise similarity: Jaccard of word sets for "words", else cosine of embeddings (two empty texts are equal)."""
    if embedder == "words":
        bags = [frozenset(t.split()) for t in texts]
        return np.array([[len(a & b) / len(a | b) if a or b else 1.0 for b in bags] for a in bags], dtype=np.float64)
    vectors = np.asarray(_load_embedder(embedder)(texts), dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(norms > 0, norms, 1.0)
    cosine: Floats = unit @ unit.T
    return cosine


@lru_cache(maxsize=4)
def _load_embedder(name: str) -> Embedder:
    if name == "wordllama":
        wordllama = import_extra("wordllama", "embed", "semantic_diversity with embedder wordllama")
        model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
        embed: Embedder = model.embed
        return embed
    module, _, attribute = name.partition(":")
    if not attribute:
        raise InputError(f"embedder takes words, wordllama or module:function, not {name!r}")
    embedder: Embedder = getattr(import_module(module), attribute)
    return embedder


def _each(sets: CandidateSets, function: Callable[[list[str]], float]) -> Floats:
    """One Python call per set, over the texts that are not missing."""
    texts = sets.having("texts").to_list()
    bounds = zip(sets.offsets[:-1].tolist(), sets.offsets[1:].tolist(), strict=True)
    return np.array([function([t for t in texts[a:b] if t is not None]) for a, b in bounds], dtype=np.float64)
