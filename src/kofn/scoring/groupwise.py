"""The documented group-wise functions (`any_pass`, `group_metrics`, `bootstrap_groups`, ...), on the same code.

Replace the pasted file by `from kofn.scoring.groupwise import ...`. Names, arguments and keys are kept, with these
differences: an empty set is undefined (None), not 0 or 1; texts too short for any n-gram are undefined, not 0;
`bootstrap_groups` gives the sample mean (not the mean of resamples) and an interval that is computed, not
drawn, so the same input gives the same numbers; nDCG stands beside dcg@k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.aggregators.diversity import Distinct
from kofn.aggregators.passes import AnyPass, MajorityPass
from kofn.aggregators.ranking import Dcg, Ndcg
from kofn.aggregators.scores import BestScore
from kofn.core.candidate_sets import CandidateSets
from kofn.errors import InputError
from kofn.registry import aggregator
from kofn.stats import estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.aggregators.base import Aggregator
    from kofn.scoring.configuration import Spec

KEYS = ("any_pass", "best_score", "majority", "dcg@k", "ndcg@k", "distinct1", "distinct2")


def any_pass(passes: Sequence[int]) -> int | None:
    """1 if any candidate passes, else 0; undefined for none.

    >>> any_pass([0, 0, 1, 0]), any_pass([0]), any_pass([])
    (1, 0, None)
    """
    return _as_int(_evaluate_set(AnyPass(), passes))


def best_score(scores: Sequence[float]) -> float | None:
    """Largest score; undefined for none.

    >>> best_score([0.5, 0.8, 0.3])
    0.8
    """
    return _evaluate_set(BestScore(), scores)


def majority_vote(passes: Sequence[int]) -> int | None:
    """1 if at least half of the candidates pass, else 0; undefined for none.

    >>> majority_vote([1, 0]), majority_vote([1, 0, 0])
    (1, 0)
    """
    return _as_int(_evaluate_set(MajorityPass(), passes))


def dcg_at_k(gains: Sequence[float], k: int) -> float | None:
    """Sum of gain_j / log2(j + 1) over the first k; undefined for none.

    >>> round(dcg_at_k([3, 2, 3, 0, 1, 2], 6), 4)
    6.8611
    """
    return _evaluate_set(Dcg(k=k), gains)


def ndcg_at_k(gains: Sequence[float], k: int) -> float | None:
    """DCG over the DCG of the best order of the same gains; all gains zero -> 0.

    >>> round(ndcg_at_k([3, 2, 3, 0, 1, 2], 6), 4)
    0.9608
    """
    return _evaluate_set(Ndcg(k=k), gains)


def distinct_ngrams(texts: Sequence[str], n: int = 2) -> float | None:
    """Different n-grams over all n-grams of the texts; no n-grams -> undefined.

    >>> distinct_ngrams(["a b c", "a b d"], 1)
    0.6666666666666666
    """
    return _evaluate_set(Distinct(n), [0.0] * len(texts), texts=[list(texts)])


def group_metrics(group: Mapping[str, Any], k_for_dcg: int = 3) -> dict[str, float | None]:
    """All metrics of one group {"scores": [...], "passes": [...], "texts": [...]}; what is missing is undefined.

    >>> m = group_metrics({"scores": [0.9, 0.2], "passes": [1, 0], "texts": ["a b", "a c"]})
    >>> m["any_pass"], m["best_score"], m["majority"], m["distinct1"]
    (1, 0.9, 1, 0.75)
    """
    scores, passes, texts = (list(group.get(name) or []) for name in ("scores", "passes", "texts"))
    if scores and passes and len(scores) != len(passes):
        raise InputError(f"group: {len(scores)} scores and {len(passes)} passes: give one each a candidate")
    return {
        "any_pass": any_pass(passes),
        "best_score": best_score(scores),
        "majority": majority_vote(passes),
        "dcg@k": dcg_at_k(scores, k_for_dcg),
        "ndcg@k": ndcg_at_k(scores, k_for_dcg),
        "distinct1": distinct_ngrams(texts, 1),
        "distinct2": distinct_ngrams(texts, 2),
    }


def bootstrap_groups(
    values: Sequence[float | None], iters: int = 10_000, alpha: float = 0.05, seed: int = 0
) -> tuple[float | None, float | None, float | None]:
    """(mean, low, high) over groups; undefined values are left out. `iters` matters only where the law must be drawn.

    >>> bootstrap_groups([1, 0, 1, 1])
    (0.75, 0.25, 1.0)
    """
    # None is how these functions write "undefined"; the statistics write NaN
    column = [float("nan") if v is None else float(v) for v in values]
    e = estimate(column, level=1 - alpha, n_resamples=iters, seed=seed, interval="bootstrap")
    return e.point, e.low, e.high


def evaluate_dataset(groups: Sequence[Mapping[str, Any]], k_for_dcg: int = 3) -> dict[str, dict[str, float | None]]:
    """{metric: {"mean", "lo", "hi"}} over groups, resampling groups.

    >>> evaluate_dataset([{"scores": [1.0], "passes": [1]}, {"scores": [0.0], "passes": [0]}])["any_pass"]["mean"]
    0.5
    """
    rows = [group_metrics(group, k_for_dcg) for group in groups]
    return {
        key: dict(zip(("mean", "lo", "hi"), bootstrap_groups([row[key] for row in rows]), strict=True)) for key in KEYS
    }


def _evaluate_set(rule: Aggregator, values: Sequence[float], **columns: Any) -> float | None:
    result = float(rule(CandidateSets.from_lists([list(values)], **columns))[0])
    return None if result != result else result  # NaN: undefined


def _as_int(value: float | None) -> int | None:
    return None if value is None else int(value)


def aggregate(
    name: Spec,
    *,
    values: Sequence[float | bool | None] | None = None,
    answers: Sequence[object] | None = None,
    passes: Sequence[bool | int | None] | None = None,
    texts: Sequence[str | None] | None = None,
    selector: Sequence[float | None] | None = None,
    weights: Sequence[float] | None = None,
    facets: Sequence[Sequence[str]] | None = None,
    required: Sequence[str] | None = None,
    ideal: Sequence[float] | None = None,
    threshold: float | None = None,
    higher_is_better: bool = True,
) -> float | None:
    """One set's number by an aggregator; None where it is undefined.

    >>> aggregate("mean", values=[0.5, 0.8, 0.3, 0.9, 0.6])
    0.62
    >>> aggregate("majority", values=[1, 0, 1, 1, 0], answers=[42, 43, 42, 42, 41])
    1.0
    >>> aggregate("pass@5", values=[1, 0, 1]) is None
    True
    """
    size = next((len(c) for c in (values, passes, answers, texts, facets) if c is not None), None)
    if size is None:
        raise InputError("aggregate needs values, passes, answers or texts")
    if values is None:
        # aggregators of answers or texts look at no value, but sets need one
        values = list(passes) if passes is not None else [0.0] * size
    one = CandidateSets.from_lists(
        [values],
        passes=_as_one_set(passes),
        answers=_as_one_set(answers),
        texts=_as_one_set(texts),
        selectors=None if selector is None else {"selector": [selector]},
        weights=_as_one_set(weights),
        facets=_as_one_set(facets),
        required=_as_one_set(required),
        ideal=_as_one_set(ideal),
        threshold=threshold,
        higher_is_better=higher_is_better,
    )
    result = float(aggregator(name)(one)[0])
    return None if result != result else result


def _as_one_set(column: Any) -> Any:
    return None if column is None else [column]
