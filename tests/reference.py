"""Every aggregator again, for one set, as plainly as it can be said. Slow and obvious: what the fast ones must equal.

Each takes a CandidateSet with `values`, `answers`... (None = not graded / no answer) and gives a float or None.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from statistics import median


def graded(s):
    return [v for v in s.values if v is not None]


def verdicts(s):
    return [p for p in s.passes if p is not None]


def first(s):
    return s.values[0] if s.values else None


def mean(s):
    v = graded(s)
    return sum(v) / len(v) if v else None


def middle(s):
    v = graded(s)
    return median(v) if v else None


def largest(s):
    return max(graded(s), default=None)


def smallest(s):
    return min(graded(s), default=None)


def std(s):
    v = graded(s)
    if not v:
        return None
    m = sum(v) / len(v)
    return math.sqrt(sum((x - m) ** 2 for x in v) / len(v))


def any_pass(s):
    v = verdicts(s)
    return float(any(v)) if v else None


def all_pass(s):
    v = verdicts(s)
    return float(all(v)) if v else None


def majority_pass(s):
    v = verdicts(s)
    return float(sum(v) >= math.ceil(len(v) / 2)) if v else None


def majority_pass_strict(s):
    v = verdicts(s)
    return float(sum(v) > len(v) / 2) if v else None


def at_least(m):
    def rule(s):
        v = verdicts(s)
        return float(sum(v) >= m) if v else None

    return rule


def over_subsets(k, of):
    """Mean of `of` over all k-subsets of the verdicts."""

    def rule(s):
        v = verdicts(s)
        if not v or k > len(v):
            return None
        results = [of(subset) for subset in combinations(v, k)]
        return sum(results) / len(results)

    return rule


def pass_at(k):
    return over_subsets(k, lambda subset: float(any(subset)))


def pass_hat(k):
    return over_subsets(k, lambda subset: float(all(subset)))


def g_pass_at(k, tau):
    return over_subsets(k, lambda subset: float(sum(subset) >= max(1, math.ceil(tau * k))))


def vote(pairs, ties):
    """(answer, value) pairs in order -> value of the plurality answer."""
    voters = [(a, v) for a, v in pairs if a is not None]
    if not voters:
        return 0.0
    counts = Counter(a for a, _ in voters)
    top = max(counts.values())
    tied = [a for a in counts if counts[a] == top]  # in order of first appearance
    worth = {a: sum(v for b, v in voters if b == a) / counts[a] for a in tied}
    if ties == "first":
        return worth[tied[0]]
    if ties == "score":
        return max(worth.values())
    return sum(worth.values()) / len(worth)


def votes_of(s):
    return [(a, v) for a, v in zip(s.answers, s.values, strict=True) if v is not None]


def majority(ties):
    def rule(s):
        pairs = votes_of(s)
        return vote(pairs, ties) if pairs else None

    return rule


def maj_at(k, ties):
    def rule(s):
        pairs = votes_of(s)
        if not pairs or k > len(pairs):
            return None
        results = [vote(subset, ties) for subset in combinations(pairs, k)]
        return sum(results) / len(results)

    return rule


def weighted_vote(s):
    pairs = [(a, v, w) for a, v, w in zip(s.answers, s.values, s.selectors["judge"], strict=True) if v is not None]
    if not pairs:
        return None
    weights: dict[str, float] = {}
    for a, _, w in pairs:
        if a is not None:
            weights[a] = weights.get(a, 0.0) + w
    if not weights:
        return 0.0
    winner = max(weights, key=lambda a: weights[a])  # max keeps the first of equals
    own = [v for a, v, _ in pairs if a == winner]
    return sum(own) / len(own)


def agreement(s):
    counts = Counter(a for a in s.answers if a is not None)
    return max(counts.values(), default=0) / len(s) if len(s) else None


def vote_margin(s):
    if not len(s):
        return None
    top = [c for _, c in Counter(a for a in s.answers if a is not None).most_common(2)] + [0, 0]
    return (top[0] - top[1]) / len(s)


def answered(s):
    return sum(a is not None for a in s.answers) / len(s) if len(s) else None


def unique_answers(s):
    return float(len({a for a in s.answers if a is not None})) if len(s) else None


def discounted(values, k, gain):
    return sum(gain(v) / math.log2(j + 2) for j, v in enumerate(values[:k]))


def linear(v):
    return v


def exp2(v):
    return 2**v - 1


def dcg(k, gain=linear):
    def rule(s):
        top = s.values[:k]
        return None if not s.values or None in top else discounted(top, k, gain)

    return rule


def ndcg(k, gain=linear):
    def rule(s):
        if not s.values or None in s.values:
            return None
        best = discounted(sorted(s.values, reverse=True), k, gain)
        return discounted(s.values, k, gain) / best if best else 0.0

    return rule


def mrr(s):
    if not s.passes:
        return None
    for rank, p in enumerate(s.passes, 1):
        if p is None:
            return None
        if p:
            return 1 / rank
    return 0.0


def precision(k):
    def rule(s):
        top = s.passes[:k]
        return None if not s.passes or None in top else sum(top) / (k or len(s.passes))

    return rule


def distinct(n):
    def rule(s):
        grams = []
        for text in s.texts:
            words = text.split()
            grams += [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        return len(set(grams)) / len(grams) if grams else None

    return rule


def unique_texts(s):
    return len(set(s.texts)) / len(s) if len(s) else None


def redundancy(s):
    if len(s) < 2:
        return None
    bags = [set(t.split()) for t in s.texts]

    def overlap(a, b):
        return len(a & b) / len(a | b) if a | b else 1.0

    return sum(max(overlap(a, b) for j, b in enumerate(bags) if j != i) for i, a in enumerate(bags)) / len(bags)


def selected(s):
    if not len(s):
        return None
    scores = s.selectors["judge"]
    picked = [v for v, score in zip(s.values, scores, strict=True) if score == max(scores)]
    return None if None in picked else sum(picked) / len(picked)


def selected_pass(s):
    if not len(s):
        return None
    scores = s.selectors["judge"]
    picked = [p for p, score in zip(s.passes, scores, strict=True) if score == max(scores)]
    return None if None in picked else sum(picked) / len(picked)


def selected_at(k):
    """Over all k-subsets with a candidate that can be picked, the mean of the value of the pick, ties shared."""

    def rule(s):
        scores = next(iter(s.selectors.values()))
        if not len(s) or k > len(s):
            return None
        worth = []
        for subset in combinations(range(len(s)), k):
            known = [i for i in subset if scores[i] is not None]
            if not known:
                continue
            picked = [s.values[i] for i in known if scores[i] == max(scores[j] for j in known)]
            if None in picked:
                return None
            worth.append(sum(picked) / len(picked))
        return sum(worth) / len(worth) if worth else None

    return rule


def coverage(s):
    return len({"answer 0", "answer 1", "cat"} & set(s.answers)) / 3 if len(s) else None


REFERENCE = {
    "first": first,
    "mean": mean,
    "median": middle,
    "max": largest,
    "best_score": largest,
    "min": smallest,
    "std": std,
    "any_pass": any_pass,
    "any_correct": any_pass,
    "all_pass": all_pass,
    "all_correct": all_pass,
    "majority_pass": majority_pass,
    "majority_pass(strict=True)": majority_pass_strict,
    "majority_pass(ties='strict')": majority_pass_strict,
    "at_least(m=2)": at_least(2),
    "pass@1": pass_at(1),
    "pass@3": pass_at(3),
    "pass^1": pass_hat(1),
    "pass^2": pass_hat(2),
    "g_pass_at(k=3, tau=0.5)": g_pass_at(3, 0.5),
    "g_pass_at(k=2, tau=0.0)": pass_at(2),
    "g_pass_at(k=2, tau=1.0)": pass_hat(2),
    "majority": majority("first"),
    "majority(ties='score')": majority("score"),
    "majority(ties='shared')": majority("shared"),
    "maj@1": maj_at(1, "shared"),
    "maj@3": maj_at(3, "shared"),
    "maj@4": maj_at(4, "shared"),
    "maj_at(k=3, ties='first')": maj_at(3, "first"),
    "weighted_vote": weighted_vote,
    "agreement": agreement,
    "vote_margin": vote_margin,
    "answered": answered,
    "unique_answers": unique_answers,
    "dcg": dcg(None),
    "dcg(k=3)": dcg(3),
    "dcg(k=3, gain='exp2')": dcg(3, exp2),
    "ndcg": ndcg(None),
    "ndcg(k=2)": ndcg(2),
    "ndcg(k=2, gain='exp2')": ndcg(2, exp2),
    "mrr": mrr,
    "precision(k=2)": precision(2),
    "precision": precision(None),
    "distinct(n=1)": distinct(1),
    "distinct(n=2)": distinct(2),
    "unique_texts": unique_texts,
    "redundancy": redundancy,
    "selected": selected,
    "selected_pass": selected_pass,
    "selected@1": selected_at(1),
    "selected@3": selected_at(3),
    "selected_at(k=2, by='judge')": selected_at(2),
    "coverage": coverage,
}
