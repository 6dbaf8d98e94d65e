"""Verdicts as numbers: a score a candidate, how far judges and repeats differ, what a panel knows of its members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kofn.sets import NOT_GRADED, passes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.judge.asking import Asked, Verdict
    from kofn.judge.rubric import Rubric
    from kofn.sets import Floats

Panel = Literal["mean", "vote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One metric that a judge, or a panel of them, gave: a value, a pass and the judge's words a candidate."""

    name: str
    values: Floats
    passes: NDArray[np.int8]
    words: tuple[str | None, ...]

    @property
    def n_missing(self) -> int:
        return int(np.isnan(self.values).sum())


def verdict_lists(asked: Asked, questions: Sequence[str | None]) -> list[tuple[Verdict, ...]]:
    """The verdicts of every candidate, by the id of its question; none for a candidate that was not asked about."""
    return [() if id_ is None else asked.verdicts.get(id_, ()) for id_ in questions]


def column_of(name: str, verdicts: Sequence[Sequence[Verdict]], rubric: Rubric) -> Column:
    """The mean over the graded repeats, normalised to [0, 1]; a candidate with none is not graded, never 0."""
    values = np.array([_mean([v.value for v in own], rubric) for own in verdicts], dtype=np.float64)
    return Column(
        name=name,
        values=values,
        passes=passes_of(values, rubric.passing),
        words=tuple(_words(own) for own in verdicts),
    )


def _mean(values: Sequence[float | None], rubric: Rubric) -> float:
    graded = [rubric.normalised(v) for v in values if v is not None]
    return sum(graded) / len(graded) if graded else np.nan


def _words(own: Sequence[Verdict]) -> str | None:
    said = [v.text if v.text is not None else f"(failed: {v.error})" for v in own]
    if len(said) < 2:
        return said[0] if said else None
    return "\n\n".join(f"[{i + 1}] {text}" for i, text in enumerate(said))


def panel_of(name: str, members: Sequence[Column], how: Panel, passing: float) -> Column:
    """Several judges as one, of those that graded. `mean`: of their scores, passing from `passing` on; `vote`: the
    share that passes it, passing where that is more than half. Nobody graded: not graded.

    >>> a, b, c = (Column(name=n, values=np.array([x]), passes=passes_of(np.array([x]), 0.75), words=(None,))
    ...            for n, x in (("a", 1.0), ("b", 0.75), ("c", 0.0)))
    >>> mean, vote = (panel_of("all", [a, b, c], how, 0.75) for how in ("mean", "vote"))
    >>> [(round(float(p.values[0]), 4), int(p.passes[0])) for p in (mean, vote)]
    [(0.5833, 0), (0.6667, 1)]
    """
    values = np.stack([m.values for m in members])
    passes = np.stack([m.passes for m in members])
    graded = passes != NOT_GRADED
    n = graded.sum(axis=0)
    share = np.where(n > 0, ((passes == 1) & graded).sum(axis=0) / np.maximum(n, 1), np.nan)
    known = ~np.isnan(values)
    mean = np.where(n > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1), np.nan)
    return Column(
        name=name,
        values=mean if how == "mean" else share,
        passes=passes_of(mean, passing) if how == "mean" else np.where(n > 0, share > 0.5, NOT_GRADED).astype(np.int8),
        words=(None,) * len(share),
    )


def variance_of(
    lists: Mapping[str, Sequence[Sequence[Verdict]]], owner: NDArray[np.int64], rubric: Rubric
) -> dict[str, Any] | None:
    """How much of the spread is the case's, the candidate's and the judging's; None without several judgings.

    Judgings are the repeats of a judge and the judges of a panel alike.
    """
    from kofn.stats import variance_shares

    rows = [
        (rubric.normalised(v.value), int(owner[i]), i)
        for of in lists.values()
        for i, own in enumerate(of)
        for v in own
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


def panel_rates(members: Sequence[Column]) -> dict[str, Any] | None:
    """What verdicts alone say of each judge, by Dawid & Skene (1979), and how far the judges agree beyond chance."""
    from kofn.stats.panel import dawid_skene, fleiss_kappa

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
