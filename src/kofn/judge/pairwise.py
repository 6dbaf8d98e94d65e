"""Pairwise judging: two candidates side by side, in a tournament within every set or between two systems.

A judge that looks at pairs tends to like the place more than the text. Every pair is therefore shown both ways, a
verdict counts half in each, and how far the place alone decides is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.document import Displayable
from kofn.core.sync import run_sync
from kofn.core.warnings import CodedWarning, warnings_dict
from kofn.errors import InputError
from kofn.judge.client import JudgeQuestion, field_columns, questions_of
from kofn.judge.judge_calls import ask_judges, label_judges, open_judges
from kofn.judge.judge_metrics import (
    JudgeResult,
    JudgeScores,
    check_aggregators,
    check_name,
    check_replaced,
    judge_entry,
    judge_fingerprint,
    verdict_frame,
    with_verdict_columns,
)
from kofn.runs.load import load_graded
from kofn.scoring.result import estimate_dict
from kofn.stats import estimate, sign_flip_p
from kofn.stats.judge_accuracy import position_bias
from kofn.stats.resample import as_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.judge.client import JudgeReplies, JudgeVerdict
    from kofn.judge.judge_calls import JudgeSettings
    from kofn.judge.rubric import Rubric
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.configuration import GradingConfig
    from kofn.stats.judge_accuracy import PositionBias

MOST_PAIRS = 500_000  # questions; beyond it somebody has most likely made a mistake


class CandidatePair(NamedTuple):
    """Two candidates (rows of one table, or of two) and the questions about them, one an order."""

    a: int
    b: int
    a_first: str
    b_first: str


def tournament(graded: GradedCandidates, rubric: Rubric, settings: JudgeSettings, directory: Path) -> JudgeResult:
    """Every two candidates of a set against each other: a candidate's score is the share of its comparisons it wins.

    A tie is half a win, both orders of a pair count half each, a verdict that is missing is left out. Equal texts are
    not compared: they tie. The score ranks candidates within a set and says nothing of how good they are, so it is a
    selector and no metric.
    """
    table = graded.table
    name = settings.name or rubric.name
    check_name(name, graded)
    models = open_judges(settings)
    if len(models) > 1:
        raise InputError("pairs are judged by one model: give one --model, or a rubric of kind score for a panel")
    check_aggregators(graded, [name])
    check_replaced(graded, name, judge_fingerprint(rubric, settings, models), settings)
    texts = _texts(table, graded.path)
    fields = field_columns(table, [n for n in rubric.names if n not in ("first", "second")], rubric, graded.path)
    pairs, questions = _pairs_within_sets(table, texts, fields)
    replies = run_sync(ask_judges(models, questions, rubric, settings, directory))
    verdicts = replies[0].verdicts
    wins = [(p, verdicts.get(p.a_first, ()), verdicts.get(p.b_first, ())) for p in pairs]
    column = JudgeScores(
        name=name,
        values=_win_shares(wins, texts, table),
        passes=np.full(table.n_candidates, NOT_GRADED, dtype=np.int8),
        words=(None,) * table.n_candidates,
    )
    entry = {**judge_entry(rubric, settings, models, replies, None), "role": "selector", "pairs": len(pairs)}
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    entry["position"] = _bias_entry(
        position_bias_of([(a, b) for _, a, b in wins], [int(owner[p.a]) for p, _, _ in wins])
    )
    result = with_verdict_columns(graded, [column], {name: entry}, selector_only=True)
    lists = {f"{label}.pairs": _by_candidate(wins, table) for label in label_judges(name, models)}
    return JudgeResult(
        result=result.with_warnings(_warnings(name, entry)),
        verdicts=verdict_frame(table, lists, rubric),
        names=(name, *lists),
        stopped=replies[0].stopped,
    )


def first_questions(graded: GradedCandidates, rubric: Rubric) -> list[JudgeQuestion]:
    """What a judge would be asked first, of either kind of rubric: for a look before anything is paid."""
    if rubric.kind == "score":
        return [q for q in questions_of(graded.table, rubric, graded.path) if q is not None]
    names = [n for n in rubric.names if n not in ("first", "second")]
    fields = field_columns(graded.table, names, rubric, graded.path)
    return list(_pairs_within_sets(graded.table, _texts(graded.table, graded.path), fields)[1].values())


def _texts(table: Table, path: Path) -> list[str | None]:
    rows = table.candidates
    if "text" not in rows.columns:
        raise InputError(f"{path}: there are no texts to judge")
    texts = rows["text"].to_list()
    failed = rows["error"].is_not_null().to_list() if "error" in rows.columns else [False] * len(texts)
    return [None if bad else text for text, bad in zip(texts, failed, strict=True)]


def _pairs_within_sets(
    table: Table, texts: Sequence[str | None], fields: Mapping[str, Sequence[str]]
) -> tuple[list[CandidatePair], dict[str, JudgeQuestion]]:
    """Every two different texts of a set, and the questions about them."""
    questions: dict[str, JudgeQuestion] = {}
    pairs = []
    ids = table.cases["case_id"].to_list()
    for case, (low, high) in enumerate(zip(table.offsets[:-1].tolist(), table.offsets[1:].tolist(), strict=True)):
        for a, b in combinations(range(low, high), 2):
            if texts[a] is None or texts[b] is None or texts[a] == texts[b]:
                continue
            own = {name: column[a] for name, column in fields.items()}
            pairs.append(_pair(ids[case], (a, texts[a] or ""), (b, texts[b] or ""), own, questions))
        if len(questions) > MOST_PAIRS:
            raise InputError(f"more than {MOST_PAIRS:,} questions: judge fewer candidates (--top-k) or cases (--split)")
    return pairs, questions


def _pair(
    case: str, a: tuple[int, str], b: tuple[int, str], fields: Mapping[str, str], questions: dict[str, JudgeQuestion]
) -> CandidatePair:
    both = [
        JudgeQuestion(case_id=case, texts={"first": first, "second": second}, fields=fields)
        for first, second in ((a[1], b[1]), (b[1], a[1]))
    ]
    questions.update({q.id: q for q in both})
    return CandidatePair(a[0], b[0], both[0].id, both[1].id)


Judgings = tuple["JudgeVerdict", ...]


def preference_share(a_first: Judgings, b_first: Judgings) -> float | None:
    """The share of verdicts for A over both orders, a tie half; None unless both orders have a verdict.

    >>> from kofn.judge.client import JudgeVerdict
    >>> a, b, tie = (JudgeVerdict(value, "", None, False) for value in (1.0, -1.0, 0.0))
    >>> [preference_share(*orders) for orders in (((a,), (b,)), ((a,), (a,)), ((tie,), (b,)), ((), ()))]
    [1.0, 0.5, 0.75, None]
    """
    sides = [
        [(1 + sign * v.value) / 2 for v in own if v.value is not None] for sign, own in ((1, a_first), (-1, b_first))
    ]
    if not all(sides):  # one order alone would let the place decide
        return None
    return sum(sum(side) / len(side) for side in sides) / 2


def _win_shares(
    wins: Sequence[tuple[CandidatePair, Judgings, Judgings]], texts: Sequence[str | None], table: Table
) -> Any:
    """The share of its comparisons that each candidate wins; equal texts tie."""
    total, count = np.zeros(len(texts)), np.zeros(len(texts))
    for pair, a_first, b_first in wins:
        share = preference_share(a_first, b_first)
        if share is not None:
            total[pair.a] += share
            total[pair.b] += 1 - share
            count[[pair.a, pair.b]] += 1
    for low, high in zip(table.offsets[:-1].tolist(), table.offsets[1:].tolist(), strict=True):
        for a, b in combinations(range(low, high), 2):
            if texts[a] is not None and texts[a] == texts[b]:
                total[[a, b]] += 0.5
                count[[a, b]] += 1
        if high - low == 1 and texts[low] is not None:
            total[low], count[low] = 0.5, 1  # alone in its set: as if it tied with itself
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _by_candidate(
    wins: Sequence[tuple[CandidatePair, Judgings, Judgings]], table: Table
) -> list[tuple[JudgeVerdict, ...]]:
    """The verdicts in which a candidate was shown first: with the rest by symmetry that is each verdict once."""
    own: list[list[JudgeVerdict]] = [[] for _ in range(table.n_candidates)]
    for pair, a_first, b_first in wins:
        own[pair.a] += a_first
        own[pair.b] += b_first
    return [tuple(of) for of in own]


def position_bias_of(both: Sequence[tuple[Judgings, Judgings]], cases: Sequence[int]) -> PositionBias:
    """How far the place alone decides, over pairs judged in both orders; `cases` says which case each pair is of."""

    def mean(own: Judgings) -> float:
        known = [v.value for v in own if v.value is not None]
        return float(np.sign(sum(known))) if known else np.nan

    return position_bias([mean(a) for a, _ in both], [mean(b) for _, b in both], clusters=cases)


def _bias_entry(bias: PositionBias) -> dict[str, Any]:
    def plain(e: Estimate) -> dict[str, float | None]:
        return {"point": e.point, "low": e.low, "high": e.high}

    return {
        "n": bias.n,
        "n_missing": bias.n_missing,
        "consistent": plain(bias.consistent),
        "first_shown": plain(bias.first_shown),
    }


def _warnings(name: str, entry: Mapping[str, Any]) -> list[CodedWarning]:
    first, warnings = entry["position"]["first_shown"], []
    if entry["stopped"]:
        warnings.append(CodedWarning.of("judging-stopped", name, reason=entry["stopped"]))
    if first["low"] is not None and not first["low"] <= 0.5 <= first["high"]:
        place = "first" if first["point"] > 0.5 else "second"
        share = max(first["point"], 1 - first["point"])
        warnings.append(CodedWarning.of("position-bias", name, place=place, share=share))
    for n, failure in ((entry["n_failed"], "calls failed"), (entry["n_unread"], "replies hold no verdict")):
        if n:
            warnings.append(CodedWarning.of("pairs-left-out", name, n=n, of=entry["n_verdicts"], failure=failure))
    return warnings


@dataclass(frozen=True, kw_only=True, repr=False)
class Preference(Displayable):
    """A against B by a judge: how often A is preferred, over cases."""

    view: ClassVar[str] = "kofn.judge.judge_text:preference_document"
    printer: ClassVar[str] = "kofn.judge.judge_text:format_preference"

    name_a: str
    name_b: str
    rate: Estimate
    p: float
    bias: PositionBias
    judge: Mapping[str, Any]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    warnings: tuple[CodedWarning, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row: how often A is preferred."""
        names = ("a", "b", "p", "wins", "ties", "losses")
        return [{**{k: v for k, v in self.to_dict().items() if k in names}, **estimate_dict(self.rate)}]

    def to_dict(self) -> dict[str, Any]:
        """As `kofn judge --against --json` prints it."""
        return {
            "a": self.name_a,
            "b": self.name_b,
            "preferred_a": estimate_dict(self.rate),
            "p": self.p,
            "wins": self.bias.wins,
            "ties": self.bias.ties,
            "losses": self.bias.losses,
            "position": _bias_entry(self.bias),
            "judge": dict(self.judge),
            "unmatched": {"only_a": list(self.only_a), "only_b": list(self.only_b)},
            **warnings_dict(self.warnings),
        }


def prefer(
    a: Path | str,
    b: Path | str,
    rubric: Any,
    settings: JudgeSettings,
    *,
    out: Path | None = None,
    options: GradingConfig | None = None,
    fields: Mapping[str, str] | None = None,
) -> Preference:
    """One system against another: candidate i of A beside candidate i of B, case by case, in both orders.

    The rate is the mean over cases of the share of verdicts for A, a tie half, with an interval by case; p is a
    sign-flip test of the cases' shares against one half.
    """
    loaded = settings.rubric(rubric)
    if loaded.kind != "pairwise":
        raise InputError(
            f"rubric {loaded.name} looks at one output at a time: give one of kind pairwise, such as preference"
        )
    sides = [load_graded(path, options, fields=fields) for path in (a, b)]
    models = open_judges(settings)
    if len(models) > 1:
        raise InputError("pairs are judged by one model: give one --model")
    ids = [side.table.cases["case_id"].to_list() for side in sides]
    at_b = {case: i for i, case in enumerate(ids[1])}
    shared = [(i, at_b[case]) for i, case in enumerate(ids[0]) if case in at_b]
    if not shared:
        raise InputError(f"{a} and {b} share no case id: they cannot be compared")
    pairs, same, questions = _pairs_across_systems(sides, shared, loaded)
    directory = out or (sides[0].path if sides[0].run is not None else Path("runs") / f"{sides[0].name}-{loaded.name}")
    replies: list[JudgeReplies] = run_sync(ask_judges(models, questions, loaded, settings, directory))
    verdicts = replies[0].verdicts
    pair_verdicts = [(case, verdicts.get(p.a_first, ()), verdicts.get(p.b_first, ())) for case, p in pairs]
    values = _case_shares(pair_verdicts, same, len(shared))
    use = sides[0].options
    at = [i for i, _ in shared]
    units: dict[str, Any] = {name: None if of is None else of[at] for name, of in sides[0].units().items()}
    rate = estimate(values, aggregator="preferred", level=use.level, seed=use.seed, interval="auto", **units)
    entry = judge_entry(loaded, settings, models, replies, None)
    bias = position_bias_of([(x, y) for _, x, y in pair_verdicts], [case for case, _, _ in pair_verdicts])
    return Preference(
        name_a=sides[0].name,
        name_b=sides[1].name,
        rate=rate,
        p=_p_value(values, **units),
        bias=bias,
        judge=entry,
        only_a=tuple(c for c in ids[0] if c not in at_b),
        only_b=tuple(c for c in ids[1] if c not in set(ids[0])),
        warnings=tuple(_warnings(loaded.name, {**entry, "position": _bias_entry(bias)})),
    )


def _p_value(values: Any, weights: Any, clusters: Any) -> float:
    """The sign-flip test of the cases' shares against one half, by weight and cluster where there are some."""
    kept = ~np.isnan(values)
    if not kept.any():
        return 1.0
    weights, clusters = (None if of is None else of[kept] for of in (weights, clusters))
    return sign_flip_p(as_units(values[kept] - 0.5, weights, clusters).sums)


def _pairs_across_systems(
    sides: Sequence[GradedCandidates], shared: Sequence[tuple[int, int]], rubric: Rubric
) -> tuple[list[tuple[int, CandidatePair]], list[int], dict[str, JudgeQuestion]]:
    """Pairs of shared cases by their place in `shared`; the cases of equal texts, which tie; and the questions."""
    tables = [side.table for side in sides]
    texts = [_texts(side.table, side.path) for side in sides]
    names = [n for n in rubric.names if n not in ("first", "second")]
    fields = field_columns(tables[0], names, rubric, sides[0].path)
    questions: dict[str, JudgeQuestion] = {}
    pairs, same = [], []
    ids = tables[0].cases["case_id"].to_list()
    for place, (i, j) in enumerate(shared):
        low, other = int(tables[0].offsets[i]), int(tables[1].offsets[j])
        sizes = int(tables[0].offsets[i + 1]) - low, int(tables[1].offsets[j + 1]) - other
        for k in range(min(sizes)):
            one, two = texts[0][low + k], texts[1][other + k]
            if one is None or two is None:
                continue
            if one == two:
                same.append(place)
                continue
            own = {name: column[low + k] for name, column in fields.items()}
            pairs.append((place, _pair(ids[i], (low + k, one), (other + k, two), own, questions)))
    return pairs, same, questions


def _case_shares(pair_verdicts: Sequence[tuple[int, Judgings, Judgings]], same: Sequence[int], n: int) -> Any:
    """The mean preference for A of every shared case."""
    total, count = np.zeros(n), np.zeros(n)
    for case, a_first, b_first in pair_verdicts:
        share = preference_share(a_first, b_first)
        if share is not None:
            total[case] += share
            count[case] += 1
    for case in same:
        total[case] += 0.5
        count[case] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
