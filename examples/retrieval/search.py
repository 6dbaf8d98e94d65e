"""Three ways to search corpus.jsonl: each writes the ranked lists of all queries as candidate sets.

python examples/retrieval/search.py bm25 > bm25.jsonl          # words: Okapi BM25
python examples/retrieval/search.py trigrams > trigrams.jsonl  # three letters at a time: tf-idf and cosine
python examples/retrieval/search.py meaning > meaning.jsonl    # word embeddings of the extra `embed`
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHOWN = 10  # places of a list


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[a-z0-9]+", text.lower()))


def trigrams(text: str) -> Counter[str]:
    return Counter(w[i : i + 3] for word in words(text) for w in [f" {word} "] for i in range(len(w) - 2))


def bm25(query: str, pages: list[str], k1: float = 1.2, b: float = 0.75) -> list[float]:
    """Sum over the query's words of idf * tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length))."""
    bags = [words(page) for page in pages]
    mean = sum(bag.total() for bag in bags) / len(bags)
    found = {word: sum(word in bag for bag in bags) for word in words(query)}
    idf = {word: math.log(1 + (len(bags) - df + 0.5) / (df + 0.5)) for word, df in found.items()}
    return [
        sum(idf[w] * bag[w] * (k1 + 1) / (bag[w] + k1 * (1 - b + b * bag.total() / mean)) for w in idf) for bag in bags
    ]


def cosine(query: str, pages: list[str]) -> list[float]:
    """Cosine of tf-idf vectors of three-letter parts."""
    bags = [trigrams(page) for page in pages]
    df = Counter(gram for bag in bags for gram in bag)
    weigh = lambda bag: {g: n * math.log(1 + len(bags) / (1 + df[g])) for g, n in bag.items()}  # noqa: E731
    norm = lambda v: math.sqrt(sum(x * x for x in v.values())) or 1.0  # noqa: E731
    asked, vectors = weigh(trigrams(query)), [weigh(bag) for bag in bags]
    return [sum(x * v.get(g, 0) for g, x in asked.items()) / norm(asked) / norm(v) for v in vectors]


def meaning(query: str, pages: list[str]) -> list[float]:
    """Cosine of static word embeddings that ship with the package wordllama (extra `embed`)."""
    vectors = embeddings().embed([query, *pages], norm=True)
    return [float(x) for x in vectors[1:] @ vectors[0]]


@cache
def embeddings() -> Any:
    import wordllama

    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def ranked(scores: list[float]) -> list[int]:
    """Places of the pages, best first; equal scores in the order of the corpus."""
    return sorted(range(len(scores)), key=lambda page: -scores[page])


def row(query: dict[str, Any], pages: list[dict[str, Any]], order: list[int]) -> dict[str, Any]:
    """A list as a candidate set: place 1 first, each with its gain, and what a perfect list would hold."""
    gains = query["relevant"]
    shown = [pages[page] for page in order[:SHOWN]]
    return {
        "id": query["id"],
        "kind": query["kind"],
        "cluster": query["id"].partition("/")[0],  # three queries of a topic look for the same pages
        "question": query["query"],
        "outputs": [{"text": p["text"], "answer": p["id"], "score": gains.get(p["id"], 0)} for p in shown],
        "required": list(gains),
        "ideal": sorted(gains.values(), reverse=True),
    }


def main(how: str) -> None:
    search = {"bm25": bm25, "trigrams": cosine, "meaning": meaning}[how]
    pages = read("corpus.jsonl")
    texts = [page["text"] for page in pages]
    for query in read("queries.jsonl"):
        sys.stdout.write(json.dumps(row(query, pages, ranked(search(query["query"], texts)))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
