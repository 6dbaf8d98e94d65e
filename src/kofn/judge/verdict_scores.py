"""Verdicts as numbers: a score per candidate, how far judges and repeats differ, and how far a panel agrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kofn.core.candidate_sets import NOT_GRADED, passes_of
from kofn.stats import variance_shares
from kofn.stats.judge_accuracy import dawid_skene, fleiss_kappa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.judge.client import JudgeReplies, JudgeVerdict
    from kofn.judge.rubric import Rubric

Panel = Literal["mean", "vote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeScores:
    """One metric that a judge, or a panel of them, gave: a value, a pass and the judge's words a candidate."""

    name: str
    values: Floats
    passes: NDArray[np.int8]
    words: tuple[str | None, ...]

    @property
    def n_missing(self) -> int:
        return int(np.isnan(self.values).sum())


def verdict_lists(replies: JudgeReplies, questions: Sequence[str | None]) -> list[tuple[JudgeVerdict, ...]]:
    """The verdicts of every candidate, by the id of its question; none for a candidate that was not asked about."""
    return [() if id_ is None else replies.verdicts.get(id_, ()) for id_ in questions]


def judge_scores(name: str, verdicts: Sequence[Sequence[JudgeVerdict]], rubric: Rubric) -> JudgeScores:
    """The mean over the graded repeats, normalised to [0, 1]; a candidate with none is not graded, never 0."""
    values = np.array([_mean_score([v.value for v in repeats], rubric) for repeats in verdicts], dtype=np.float64)
    return JudgeScores(
        name=name,
        values=values,
        passes=passes_of(values, rubric.passing),
        words=tuple(_join_replies(repeats) for repeats in verdicts),
    )


def _mean_score(values: Sequence[float | None], rubric: Rubric) -> float:
    graded = [rubric.normalised(v) for v in values if v is not None]
    return sum(graded) / len(graded) if graded else np.nan


def _join_replies(verdicts: Sequence[JudgeVerdict]) -> str | None:
    texts = [v.text if v.text is not None else f"(failed: {v.error})" for v in verdicts]
    if len(texts) < 2:
        return texts[0] if texts else None
    return "\n\n".join(f"[{i + 1}] {text}" for i, text in enumerate(texts))


def panel_scores(name: str, members: Sequence[JudgeScores], how: Panel, passing: float) -> JudgeScores:
    """Several judges as one, of those that graded. `mean`: of their scores, passing from `passing` on; `vote`: the
    share that passes it, passing where that is more than half. Nobody graded: not graded.

    >>> a, b, c = (JudgeScores(name=n, values=np.array([x]), passes=passes_of(np.array([x]), 0.75), words=(None,))
    ...            for n, x in (("a", 1.0), ("b", 0.75), ("c", 0.0)))
    >>> mean, vote = (panel_scores("all", [a, b, c], how, 0.75) for how in ("mean", "vote"))
    >>> [(round(float(p.values[0]), 4), int(p.passes[0])) for p in (mean, vote)]
    [(0.5833, 0), (0.6667, 1)]
    """
    values = np.stack([m.values for m in members])
    passes = np.stack([m.passes for m in members])
    graded = passes != NOT_GRADED
    n = graded.sum(axis=0)
    share = np.where(n > 0, ((passes == 1) & graded).sum(axis=0) / np.maximum(n, 1), np.nan)
    known = ~np.isnan(values)  # a judge that did not grade a candidate has no part in its mean
    mean = np.where(n > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1), np.nan)
    return JudgeScores(
        name=name,
        values=mean if how == "mean" else share,
        passes=passes_of(mean, passing) if how == "mean" else np.where(n > 0, share > 0.5, NOT_GRADED).astype(np.int8),
        words=(None,) * len(share),
    )


def variance_entry(
    lists: Mapping[str, Sequence[Sequence[JudgeVerdict]]], owner: NDArray[np.int64], rubric: Rubric
) -> dict[str, Any] | None:
    """How much of the spread is the case's, the candidate's and the judging's; None without several judgings.

    Judgings are the repeats of a judge and the judges of a panel alike.
    """
    rows = [
        (rubric.normalised(v.value), int(owner[i]), i)
        for of in lists.values()
        for i, verdicts in enumerate(of)
        for v in verdicts
        if v.value is not None
    ]
    if not rows or len(rows) <= len({i for _, _, i in rows}):
        return None
    values, cases, candidates = (np.array(c) for c in zip(*rows, strict=True))
    found = variance_shares(values, cases, candidates)
    parts = {"case": found.between, "candidate": found.within, "judge": found.judge}
    shares = dict(zip(parts, found.shares.values(), strict=True))
    return {
        **{name: _plain(value) for name, value in parts.items()},
        "shares": {name: _plain(value) for name, value in shares.items()},
        "clipped": [{"between": "case", "within": "candidate"}.get(name, name) for name in found.clipped],
        "n": len(rows),
    }


def panel_entry(members: Sequence[JudgeScores]) -> dict[str, Any] | None:
    """What verdicts alone say of each judge, by Dawid & Skene (1979), and how far the judges agree beyond chance."""
    votes = np.stack([m.passes for m in members], axis=1).astype(np.int64)
    votes = votes[(votes >= 0).sum(axis=1) > 0]
    if len(members) < 2 or not len(votes):
        return None
    found = dawid_skene(votes, n_classes=2)
    return {
        "judges": {
            member.name: {
                "sensitivity": _plain(float(found.confusion[j, 1, 1])),
                "specificity": _plain(float(found.confusion[j, 0, 0])),
                "pass_rate": _plain(float((votes[:, j] == 1).sum() / max(1, (votes[:, j] >= 0).sum()))),
            }
            for j, member in enumerate(members)
        },
        "pass_rate": _plain(float(found.shares[1])),
        "kappa": _plain(fleiss_kappa(votes)),
        "converged": found.converged,
        "n": len(votes),
    }


def _plain(value: float) -> float | None:
    """A number for JSON; NaN is none."""
    return None if value != value else float(value)
