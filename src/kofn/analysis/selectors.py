"""Selectors: how one candidate of a set is picked, and what the pick is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kofn.aggregators.scores import Selected
from kofn.aggregators.votes import voter_codes
from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.document import estimate_dict
from kofn.errors import InputError, UnknownName
from kofn.registry import named_object
from kofn.stats.estimates import estimate, suitable_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from kofn.core.candidate_sets import CandidateSet, CandidateSets, Floats
    from kofn.core.types import Estimate
    from kofn.scoring.configuration import GradingConfig

BUILT_IN = {  # beside columns of scores and functions
    "vote": "The answer that most candidates give",
    "length": "The longest text, or with prefer: low the shortest",
    "first": "The candidate that came first",
    "random": "Any candidate, each as likely: what picking is worth",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """How one candidate of a set is picked.

    by       a column of selector scores (a judge, a reward model, `logprob`), `vote`, `length`, `first`, `random`, or a
             function `module:name` of one set that returns a score a candidate, or the place of the one it picks
    prefer   whether a high score wins, or a low one
    model, prompt   who made the column, where that is known: part of the fingerprint, as the version is
    """

    name: str
    by: str
    prefer: Literal["high", "low"] = "high"
    version: str = "1"
    model: str | None = None
    prompt: str | None = None

    def fingerprint(self) -> str:
        """16 hexadecimal digits of everything that decides what it picks.

        >>> a, b, c = (Selector(name=name, by=by) for name, by in (("a", "reward"), ("b", "reward"), ("c", "vote")))
        >>> a.fingerprint() == b.fingerprint() != c.fingerprint()
        True
        """
        # NUL: no field can contain it, so fields cannot run into each other
        described = "\x00".join([self.by, self.prefer, self.version, self.model or "", self.prompt or ""])
        return sha256(described.encode()).hexdigest()[:16]

    def scores(self, sets: CandidateSets) -> Floats:
        """A score a candidate, higher is picked; NaN cannot be picked.

        >>> from kofn.core.candidate_sets import CandidateSets
        >>> sets = CandidateSets.from_lists([[1, 0, 1]], texts=[["a", "bbb", "cc"]], answers=[["x", "y", "x"]])
        >>> [Selector(name=by, by=by).scores(sets).tolist() for by in ("first", "random", "length", "vote")]
        [[0.0, -1.0, -2.0], [0.0, 0.0, 0.0], [1.0, 3.0, 2.0], [2.0, 1.0, 2.0]]
        """
        found = _scores(self.by, sets)
        return found if self.prefer == "high" else -found

    def to_dict(self) -> dict[str, Any]:
        """For a manifest."""
        described = {name: getattr(self, name) for name in ("name", "by", "prefer", "version", "model")}
        return {**described, "fingerprint": self.fingerprint()}


def _scores(by: str, sets: CandidateSets) -> Floats:
    if by in sets.selectors:
        return sets.selectors[by]
    if by == "first":
        places = np.arange(len(sets.values)) - np.repeat(sets.offsets[:-1], sets.sizes)
        return 0.0 - places.astype(
            np.float64
        )  # earlier is higher; 0.0 - x and not -x, for the first place is 0.0 and not -0.0
    if by == "random":  # equal scores share, which is what drawing one gives on average
        return np.zeros(len(sets.values))
    if by == "length":
        if sets.texts is None:
            raise InputError("selector length: there are no texts to measure")
        return sets.texts.str.len_chars().cast(float).to_numpy()
    if by == "vote":  # how many candidates of its set gave a candidate's answer; 0 for no answer
        codes = voter_codes(sets)
        out, voting = np.zeros(len(codes)), codes >= 0
        owner = np.repeat(np.arange(len(sets)), sets.sizes)
        # codes are comparable within a set only, hence the pair
        _, at, counts = np.unique(np.stack([owner, codes])[:, voting], axis=1, return_inverse=True, return_counts=True)
        out[voting] = counts[at.ravel()]
        return out
    if ":" in by:
        return _by_function(by, sets)
    known = [*sets.selectors, *BUILT_IN]
    raise UnknownName("selector", by, known, hint=f"there is {', '.join(known)}, or a function module:name")


def _by_function(spec: str, sets: CandidateSets) -> Floats:
    """A function of the user's own: scores, or the place of its pick."""
    function: Callable[[CandidateSet], Any] = named_object(spec, "selector")
    out = np.full(len(sets.values), np.nan)
    for i, one in enumerate(sets):
        low, n = int(sets.offsets[i]), int(sets.sizes[i])
        try:
            said = function(one)
        except InputError:
            raise
        except Exception as problem:  # whatever a user's function raises is about that function and this case
            raised = f"{type(problem).__name__}: {problem}"
            raise InputError(f"case {one.case_id!r}: selector {spec} failed: {raised}") from problem
        # a place, from 0; True is an int and no place
        if isinstance(said, int | np.integer) and not isinstance(said, bool):
            if not 0 <= int(said) < n:
                where = f"selector {spec}: case {one.case_id!r}"
                raise InputError(f"{where}: picked {said} of {n} candidates: from 0 to {n - 1}")
            out[low : low + n] = np.arange(n) == int(said)
        elif said is not None:
            scores = [np.nan if s is None else float(s) for s in said]
            if len(scores) != n:
                raise InputError(f"selector {spec}: case {one.case_id!r}: {len(scores)} scores for {n} candidates")
            out[low : low + n] = scores
    return out


def with_selector(sets: CandidateSets, name: str, scores: Floats) -> CandidateSets:
    """The same sets with one more column of selector scores."""
    return replace(sets, selectors={**sets.selectors, name: scores})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a selector makes of the candidates there are.

    selected    the value of its pick, as the aggregator `selected`; of 0/1 values the same as selected_pass
    selected_pass   its pick passes
    mean        a random pick passes
    oracle      any candidate passes: what a perfect selector would give
    headroom    oracle - selected_pass, case by case
    regret      of the cases that any candidate passes, the share its pick fails
    agreement   of the cases in which some candidates pass and others fail, the share its pick passes: where the choice
                matters, does it agree with the oracle; `chance` is what a random pick has there
    """

    selector: Selector
    metric: str
    selected: Estimate
    selected_pass: Estimate
    mean: Estimate
    oracle: Estimate
    headroom: Estimate
    regret: Estimate
    agreement: Estimate
    chance: Estimate

    def rows(self) -> list[Estimate]:
        """In the order of the report."""
        return [getattr(self, name) for name in PARTS]

    def to_dict(self) -> dict[str, Any]:
        """As JSON prints it."""
        return {
            "selector": self.selector.to_dict(),
            "metric": self.metric,
            **{name: estimate_dict(getattr(self, name)) for name in PARTS},
        }


PARTS = ("selected", "selected_pass", "mean", "oracle", "headroom", "regret", "agreement", "chance")


def evaluate_selector(
    sets: CandidateSets, selector: Selector, options: GradingConfig, *, metric: str = "", **common: Any
) -> Selection:
    """What a selector picks, beside the best and the average candidate. `common` is weights and clusters of cases.

    Candidates that are not graded are left out, as they are everywhere: they are not picked, and count in no mean. All
    numbers but regret, agreement and chance are over the same cases.

    >>> from kofn.scoring.configuration import GradingConfig
    >>> from kofn.core.candidate_sets import CandidateSets
    >>> sets = CandidateSets.from_lists([[0, 1], [1, 0], [0, 0], [1, 1]])
    >>> found = evaluate_selector(sets, Selector(name="first", by="first"), GradingConfig())
    >>> [round(e.point, 3) for e in found.rows()]
    [0.5, 0.5, 0.5, 0.75, 0.25, 0.333, 0.5, 0.5]
    """
    picked, average, best = pick_outcomes(sets, selector)
    # cases without a pick are left out of all, so that differences are between the same cases
    average, best = (np.where(np.isnan(picked), np.nan, column) for column in (average, best))
    # some pass and some fail: only there does it matter which one is picked
    mixed = (best == 1) & (average < 1)
    columns = {
        "selected": picked if sets.zero_one else pick_values(sets, selector),
        "selected_pass": picked,
        "mean": average,
        "oracle": best,
        "headroom": best - picked,
        "regret": np.where(best == 1, 1 - picked, np.nan),
        "agreement": np.where(mixed, picked, np.nan),
        "chance": np.where(mixed, average, np.nan),
    }
    how = {"interval": suitable_interval(options.interval, resampled=True), **options.drawing, **common}
    estimates = {name: estimate(column, aggregator=name, **how) for name, column in columns.items()}
    return Selection(selector=selector, metric=metric, **estimates)


def pick_outcomes(sets: CandidateSets, selector: Selector) -> tuple[Floats, Floats, Floats]:
    """(pass of the pick, share of candidates that pass, whether any does) of every set; NaN where undefined."""
    passes = np.where(sets.passes == NOT_GRADED, np.nan, sets.passes).astype(np.float64)
    graded = with_selector(with_values(sets, passes), selector.name, graded_scores(sets, selector))
    picked = Selected(selector.name)(graded)
    n, c = sets.counts
    known = n > 0
    share = np.where(known, c / np.maximum(n, 1), np.nan)
    return picked, share, np.where(known, (c > 0).astype(np.float64), np.nan)


def pick_values(sets: CandidateSets, selector: Selector) -> Floats:
    """The value of the pick of every set, as the aggregator `selected` has it; NaN where undefined."""
    return Selected(selector.name)(with_selector(sets, selector.name, graded_scores(sets, selector)))


def graded_scores(sets: CandidateSets, selector: Selector) -> Floats:
    """The selector's scores; NaN, which is never picked, for candidates that are not graded."""
    return np.where(sets.graded, selector.scores(sets), np.nan)


def with_values(sets: CandidateSets, values: Floats) -> CandidateSets:
    """The same sets with other values."""
    return replace(sets, values=values)
