"""Two candidates side by side, in both orders: a tournament within every set, or one system against another.

A judge that looks at pairs tends to like the place more than the text. Every pair is therefore shown both ways, a
verdict counts half in each, and how far the place alone decides is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kofn.errors import InputError
from kofn.judge.asking import Question
from kofn.judge.judging import (
    Judged,
    ask_all,
    check_aggregators,
    check_name,
    check_replaced,
    label_judges,
    open_judges,
    with_columns,
)
from kofn.judge.questions import field_columns
from kofn.judge.scores import Column
from kofn.judge.told import described, fingerprint_of, verdict_frame
from kofn.running.now import now
from kofn.sets import NOT_GRADED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.evaluate import Options
    from kofn.judge.asking import Asked, Verdict
    from kofn.judge.judging import JudgeSettings
    from kofn.judge.rubric import Rubric
    from kofn.opened import Opened
    from kofn.stats.panel import PositionBias
    from kofn.table import Table
    from kofn.types import Estimate

MOST_PAIRS = 500_000  # questions; beyond it somebody has most likely made a mistake


class Pair(NamedTuple):
    """Two candidates (rows of one table, or of two) and the questions about them, one an order."""

    a: int
    b: int
    a_first: str
    b_first: str


def tournament(what: Opened, rubric: Rubric, settings: JudgeSettings, directory: Path) -> Judged:
    """Every two candidates of a set against each other: a candidate's score is the share of its comparisons it wins.

    A tie is half a win, both orders of a pair count half each, a verdict that is missing is left out. Equal texts are
    not compared: they tie. The score ranks candidates within a set and says nothing of how good they are, so it is a
    selector and no metric.
    """
    table = what.table
    name = settings.name or rubric.name
    check_name(name, what)
    models = open_judges(settings)
    if len(models) > 1:
        raise InputError("pairs are judged by one model: give one --model, or a rubric of kind score for a panel")
    check_aggregators(what, [name])
    check_replaced(what, name, fingerprint_of(rubric, settings, models), settings)
    texts = _texts(table, what.path)
    fields = field_columns(table, [n for n in rubric.names if n not in ("first", "second")], rubric, what.path)
    pairs, questions = _within(table, texts, fields)
    asked = now(ask_all(models, questions, rubric, settings, directory))
    verdicts = asked[0].verdicts
    wins = [(p, verdicts.get(p.a_first, ()), verdicts.get(p.b_first, ())) for p in pairs]
    column = Column(
        name=name,
        values=_shares(wins, texts, table),
        passes=np.full(table.n_candidates, NOT_GRADED, dtype=np.int8),
        words=(None,) * table.n_candidates,
    )
    told = {**described(rubric, settings, models, asked, None), "role": "selector", "pairs": len(pairs)}
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    told["position"] = _told_bias(bias_of([(a, b) for _, a, b in wins], [int(owner[p.a]) for p, _, _ in wins]))
    result = with_columns(what, [column], {name: told}, selector_only=True)
    lists = {f"{label}.pairs": _by_candidate(wins, table) for label in label_judges(name, models)}
    return Judged(
        result=result.with_told(_warnings(name, told)),
        verdicts=verdict_frame(table, lists, rubric),
        names=(name, *lists),
        stopped=asked[0].stopped,
    )


def first_questions(what: Opened, rubric: Rubric) -> list[Question]:
    """What a judge would be asked first, of either kind of rubric: for a look before anything is paid."""
    from kofn.judge.questions import questions_of

    if rubric.kind == "score":
        return [q for q in questions_of(what.table, rubric, what.path) if q is not None]
    names = [n for n in rubric.names if n not in ("first", "second")]
    fields = field_columns(what.table, names, rubric, what.path)
    return list(_within(what.table, _texts(what.table, what.path), fields)[1].values())


def _texts(table: Table, path: Path) -> list[str | None]:
    rows = table.candidates
    if "text" not in rows.columns:
        raise InputError(f"{path}: there are no texts to judge")
    texts = rows["text"].to_list()
    failed = rows["error"].is_not_null().to_list() if "error" in rows.columns else [False] * len(texts)
    return [None if bad else text for text, bad in zip(texts, failed, strict=True)]


def _within(
    table: Table, texts: Sequence[str | None], fields: Mapping[str, Sequence[str]]
) -> tuple[list[Pair], dict[str, Question]]:
    """Every two different texts of a set, and the questions about them."""
    questions: dict[str, Question] = {}
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
    case: str, a: tuple[int, str], b: tuple[int, str], fields: Mapping[str, str], questions: dict[str, Question]
) -> Pair:
    both = [
        Question(case_id=case, shown={"first": first, "second": second}, fields=fields)
        for first, second in ((a[1], b[1]), (b[1], a[1]))
    ]
    questions.update({q.id: q for q in both})
    return Pair(a[0], b[0], both[0].id, both[1].id)


Judgings = tuple["Verdict", ...]


def preference(a_first: Judgings, b_first: Judgings) -> float | None:
    """The share of verdicts for A over both orders, a tie half; None unless both orders have a verdict.

    >>> from kofn.judge.asking import Verdict
    >>> a, b, tie = (Verdict(value, "", None, False) for value in (1.0, -1.0, 0.0))
    >>> preference((a,), (b,)), preference((a,), (a,)), preference((tie,), (b,)), preference((), ())
    (1.0, 0.5, 0.75, None)
    """
    sides = [
        [(1 + sign * v.value) / 2 for v in own if v.value is not None] for sign, own in ((1, a_first), (-1, b_first))
    ]
    if not all(sides):  # one order alone would let the place decide
        return None
    return sum(sum(side) / len(side) for side in sides) / 2


def _shares(wins: Sequence[tuple[Pair, Judgings, Judgings]], texts: Sequence[str | None], table: Table) -> Any:
    """The share of its comparisons that each candidate wins; equal texts tie."""
    total, count = np.zeros(len(texts)), np.zeros(len(texts))
    for pair, a_first, b_first in wins:
        share = preference(a_first, b_first)
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
            total[low], count[low] = 0.5, 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _by_candidate(wins: Sequence[tuple[Pair, Judgings, Judgings]], table: Table) -> list[tuple[Verdict, ...]]:
    """The verdicts in which a candidate was shown first: with the rest by symmetry that is each verdict once."""
    own: list[list[Verdict]] = [[] for _ in range(table.n_candidates)]
    for pair, a_first, b_first in wins:
        own[pair.a] += a_first
        own[pair.b] += b_first
    return [tuple(of) for of in own]


def bias_of(both: Sequence[tuple[Judgings, Judgings]], cases: Sequence[int]) -> PositionBias:
    """How far the place alone decides, over pairs judged in both orders; `cases` says which case each pair is of."""
    from kofn.stats.panel import position_bias

    def mean(own: Judgings) -> float:
        known = [v.value for v in own if v.value is not None]
        return float(np.sign(sum(known))) if known else np.nan

    return position_bias([mean(a) for a, _ in both], [mean(b) for _, b in both], clusters=cases)


def _told_bias(found: PositionBias) -> dict[str, Any]:
    def plain(e: Estimate) -> dict[str, float | None]:
        return {"point": e.point, "low": e.low, "high": e.high}

    return {
        "n": found.n,
        "n_missing": found.n_missing,
        "consistent": plain(found.consistent),
        "first_shown": plain(found.first_shown),
    }


def _warnings(name: str, told: Mapping[str, Any]) -> list[str]:
    first, found = told["position"]["first_shown"], []
    if told["stopped"]:
        found.append(f"{name}: not whole: {told['stopped']}; the same command again goes on")
    if first["low"] is not None and not first["low"] <= 0.5 <= first["high"]:
        place = "first" if first["point"] > 0.5 else "second"
        share = max(first["point"], 1 - first["point"])
        found.append(
            f"{name}: position bias: what is shown {place} wins {share:.0%} of decided verdicts; orders are averaged"
        )
    for n, what in ((told["n_failed"], "calls failed"), (told["n_unread"], "replies hold no verdict")):
        if n:
            found.append(f"{name}: {n:,} of {told['n_verdicts']:,} {what}: their pairs are left out")
    return found


@dataclass(frozen=True, kw_only=True)
class Preference:
    """A against B by a judge: how often A is preferred, over cases."""

    name_a: str
    name_b: str
    rate: Estimate
    p: float
    bias: PositionBias
    judge: Mapping[str, Any]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        from kofn.judge.told import preference_document
        from kofn.notebook import as_html

        return as_html(preference_document(self))

    def to_dict(self) -> dict[str, Any]:
        """As `kofn judge --against --json` prints it."""
        from kofn.evaluate import estimate_dict

        return {
            "a": self.name_a,
            "b": self.name_b,
            "preferred_a": estimate_dict(self.rate),
            "p": self.p,
            "wins": self.bias.wins,
            "ties": self.bias.ties,
            "losses": self.bias.losses,
            "position": _told_bias(self.bias),
            "judge": dict(self.judge),
            "unmatched": {"only_a": list(self.only_a), "only_b": list(self.only_b)},
            "warnings": list(self.warnings),
        }


def prefer(
    a: Path | str,
    b: Path | str,
    rubric: Any,
    settings: JudgeSettings,
    *,
    out: Path | None = None,
    options: Options | None = None,
    fields: Mapping[str, str] | None = None,
) -> Preference:
    """One system against another: candidate i of A beside candidate i of B, case by case, in both orders.

    The rate is the mean over cases of the share of verdicts for A, a tie half, with an interval by case; p is a
    sign-flip test of the cases' shares against one half.
    """
    from kofn.opened import opened
    from kofn.stats import estimate

    wanted = settings.rubric(rubric)
    if wanted.kind != "pairwise":
        raise InputError(
            f"rubric {wanted.name} looks at one output at a time: give one of kind pairwise, such as preference"
        )
    sides = [opened(path, options, fields=fields) for path in (a, b)]
    models = open_judges(settings)
    if len(models) > 1:
        raise InputError("pairs are judged by one model: give one --model")
    ids = [side.table.cases["case_id"].to_list() for side in sides]
    at_b = {case: i for i, case in enumerate(ids[1])}
    shared = [(i, at_b[case]) for i, case in enumerate(ids[0]) if case in at_b]
    if not shared:
        raise InputError(f"{a} and {b} share no case id: they cannot be compared")
    pairs, same, questions = _across(sides, shared, wanted)
    directory = out or (sides[0].path if sides[0].run is not None else Path("runs") / f"{sides[0].name}-{wanted.name}")
    asked: list[Asked] = now(ask_all(models, questions, wanted, settings, directory))
    verdicts = asked[0].verdicts
    judged = [(case, verdicts.get(p.a_first, ()), verdicts.get(p.b_first, ())) for case, p in pairs]
    values = _case_shares(judged, same, len(shared))
    use = sides[0].options
    at = [i for i, _ in shared]
    units: dict[str, Any] = {name: None if of is None else of[at] for name, of in sides[0].units().items()}
    rate = estimate(values, aggregator="preferred", level=use.level, seed=use.seed, interval="auto", **units)
    told = described(wanted, settings, models, asked, None)
    bias = bias_of([(x, y) for _, x, y in judged], [case for case, _, _ in judged])
    return Preference(
        name_a=sides[0].name,
        name_b=sides[1].name,
        rate=rate,
        p=_p_of_half(values, **units),
        bias=bias,
        judge=told,
        only_a=tuple(c for c in ids[0] if c not in at_b),
        only_b=tuple(c for c in ids[1] if c not in set(ids[0])),
        warnings=tuple(_warnings(wanted.name, {**told, "position": _told_bias(bias)})),
    )


def _p_of_half(values: Any, weights: Any, clusters: Any) -> float:
    """The sign-flip test of the cases' shares against one half, by weight and cluster where there are some."""
    from kofn.stats import sign_flip_p
    from kofn.stats.resample import as_units

    kept = ~np.isnan(values)
    if not kept.any():
        return 1.0
    weights, clusters = (None if of is None else of[kept] for of in (weights, clusters))
    return sign_flip_p(as_units(values[kept] - 0.5, weights, clusters).sums)


def _across(
    sides: Sequence[Opened], shared: Sequence[tuple[int, int]], rubric: Rubric
) -> tuple[list[tuple[int, Pair]], list[int], dict[str, Question]]:
    """Pairs of shared cases by their place in `shared`; the cases of equal texts, which tie; and the questions."""
    tables = [side.table for side in sides]
    texts = [_texts(side.table, side.path) for side in sides]
    names = [n for n in rubric.names if n not in ("first", "second")]
    fields = field_columns(tables[0], names, rubric, sides[0].path)
    questions: dict[str, Question] = {}
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


def _case_shares(judged: Sequence[tuple[int, Judgings, Judgings]], same: Sequence[int], n: int) -> Any:
    """The mean preference for A of every shared case."""
    total, count = np.zeros(n), np.zeros(n)
    for case, a_first, b_first in judged:
        share = preference(a_first, b_first)
        if share is not None:
            total[case] += share
            count[case] += 1
    for case in same:
        total[case] += 0.5
        count[case] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
