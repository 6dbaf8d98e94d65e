"""`kofn judge`: judges every candidate, or pairs of them, and adds a judge's metric or selector to a run or a file.

A judge that looks at pairs tends to like the place more than the text. Every pair is therefore shown both ways, a
verdict counts half in each, and how far the place alone decides is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import polars as pl

from kofn.core.candidate_sets import NOT_GRADED
from kofn.core.document import Displayable, estimate_dict
from kofn.core.sync import run_sync
from kofn.core.warnings import CodedWarning, warnings_dict
from kofn.errors import InputError
from kofn.judge.client import (
    JUDGE_FOLDER,
    JudgeQuestion,
    ask_judges,
    field_columns,
    label_judges,
    open_judges,
    output_texts,
    questions_of,
)
from kofn.judge.judge_metrics import (
    JudgeResult,
    JudgeScores,
    check_aggregators,
    judge_entry,
    judge_fingerprint,
    judge_scores,
    judge_warnings,
    keep_calibration,
    name_only_selector,
    panel_entry,
    panel_scores,
    variance_entry,
    verdict_frame,
    verdict_lists,
    with_verdict_columns,
)
from kofn.render.run_directory import update_run, write_run
from kofn.runs.files import (
    MANIFEST,
    check_new,
    checksum_mismatch,
    digest,
    lock_directory,
    read_json,
    read_parquet,
    recover,
)
from kofn.runs.load import load_graded
from kofn.scoring.configuration import GradingConfig, ReportConfig
from kofn.stats import estimate, sign_flip_p
from kofn.stats.judge_accuracy import position_bias
from kofn.stats.resample import as_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.judge.client import JudgeReplies, JudgeSettings, JudgeVerdict
    from kofn.judge.rubric import Rubric
    from kofn.models.base import Model
    from kofn.runs.load import GradedCandidates
    from kofn.runs.record import Run
    from kofn.stats.judge_accuracy import PositionBias


def judge_outputs(graded: GradedCandidates, rubric: Rubric, settings: JudgeSettings, directory: Path) -> JudgeResult:
    """Ask every judge about every output, and make metrics of their verdicts."""
    table = graded.table
    questions = questions_of(table, rubric, graded.path)
    ids = [None if q is None else q.id for q in questions]
    unique = {q.id: q for q in questions if q is not None}
    name, models = _settled_judges(graded, rubric, settings)
    labels = label_judges(name, models)
    replies = run_sync(ask_judges(models, unique, rubric, settings, directory))
    lists = {label: verdict_lists(one, ids) for label, one in zip(labels, replies, strict=True)}
    columns = [judge_scores(label, of, rubric) for label, of in lists.items()]
    if len(columns) > 1:
        columns.append(panel_scores(name, columns, settings.panel, rubric.passing))
    entries = {
        label: judge_entry(rubric, settings, [model], [one], column)
        for label, model, one, column in zip(labels, models, replies, columns, strict=False)
    }
    if len(models) > 1:
        entries[name] = {
            **judge_entry(rubric, settings, models, replies, columns[-1]),
            "panel": {"how": settings.panel, **(panel_entry(columns[:-1]) or {})},
        }
    entries[name]["variance"] = variance_entry(lists, table.owner, rubric)
    keep_calibration(graded, columns, entries)
    result = with_verdict_columns(graded, columns, entries)
    result = result.with_warnings(judge_warnings(graded, unique, entries, name, settings, rubric))
    return JudgeResult(
        result=result,
        verdicts=verdict_frame(table, lists, rubric),
        names=tuple(entries),
        stopped=next((one.stopped for one in replies if one.stopped), None),
    )


def _settled_judges(graded: GradedCandidates, rubric: Rubric, settings: JudgeSettings) -> tuple[str, list[Model]]:
    """The metric's name and its judges; whatever could not be kept of their verdicts is refused before any is asked."""
    name = settings.name or rubric.name
    # a judge may be asked again under its name, and replaces what it gave; it may not replace another metric
    if name in {one.metric for one in graded.result.scored} - set(graded.result.judges) | {"score", "pass"}:
        raise InputError(f"{graded.path}: there is a metric {name} already: give the judge another --name")
    models = open_judges(settings)
    if rubric.kind == "pairwise" and len(models) > 1:
        raise InputError("pairs are judged by one model: give one --model, or a rubric of kind score for a panel")
    check_aggregators(graded, [*label_judges(name, models), name])
    before = graded.result.judges.get(name)
    # a metric of another judge is not replaced by accident, nor is a calibration lost with it
    if before and not settings.replace and before["fingerprint"] != judge_fingerprint(rubric, settings, models):
        by = ", ".join(before["models"])
        also = " and is calibrated" if before.get("calibrated") else ""
        raise InputError(
            f"{graded.path}: {name} is there already, by {by} with another model, prompt or parameters{also}: "
            "give --name for one more metric, or --replace"
        )
    return name, models


VERDICTS = "verdicts.parquet"


def judge(
    source: Path | str,
    rubric: Any,
    settings: JudgeSettings,
    *,
    out: Path | None = None,
    options: GradingConfig | None = None,
    fields: Mapping[str, str] | None = None,
) -> Run:
    """Judge a run in place, or a file into a new run directory `out`; asking again pays only for what is new.

    The directory is locked from before it is read until it is written: of two judges none loses what the other gave.
    """
    loaded = settings.rubric(rubric)
    source = Path(source)
    if source.is_dir():
        _check_whole(source, out, options, fields)
    elif not source.exists():
        raise InputError(f"{source}: no such file or directory")
    directory = source if source.is_dir() else out or Path("runs") / f"{source.name.partition('.')[0]}-{loaded.name}"
    with lock_directory(directory):
        return _judge_in(directory, source, loaded, settings, options or GradingConfig(), fields)


def _judge_in(
    directory: Path,
    source: Path,
    rubric: Rubric,
    settings: JudgeSettings,
    options: GradingConfig,
    fields: Mapping[str, str] | None,
) -> Run:
    """The same in a directory that is locked."""
    judge_all = tournament if rubric.kind == "pairwise" else judge_outputs
    graded = _load(directory if _is_run_of(directory, source) else source, options, fields)
    judge_result = judge_all(graded, rubric, settings, directory)
    run = graded.run or _new_run(graded, judge_result, directory)
    verdicts, path = judge_result.verdicts, directory / VERDICTS
    if path.exists():  # those of other judges stay
        before, same = read_parquet(path, verdicts.schema, sha256=run.manifest["files"].get(VERDICTS))
        if not same:
            raise checksum_mismatch(path)
        verdicts = pl.concat([before.filter(~pl.col("metric").is_in(judge_result.names)), verdicts])
    manifest = {"options": _manifest_options(graded.options, run)}
    return update_run(run, judge_result.result, tables={VERDICTS: verdicts}, manifest=manifest)


def _check_whole(
    source: Path, out: Path | None, options: GradingConfig | None, fields: Mapping[str, str] | None
) -> None:
    """A run is judged in place and as a whole: a part of it would be written over the rest."""
    if out is not None:
        raise InputError(f"{source}: a run is judged in place: leave out --out")
    refused = {"--split": options and options.split, "--top-k": options and options.top_k, "--field": fields}
    for name, value in refused.items():
        if value:
            raise InputError(
                f"{source}: a run is judged as a whole: leave out {name}, or judge the file it was made of"
            )


def _is_run_of(directory: Path, source: Path) -> bool:
    """Whether there is a run to judge: the source itself, or one that an earlier judging made of the same file."""
    if directory == source:
        return True
    recover(directory)
    if (directory / MANIFEST).is_file() and source.is_file():
        source_digests = [one.get("sha256") for one in read_json(directory / MANIFEST).get("sources", [])]
        if source_digests == [digest(source)]:
            return True
    if (directory / MANIFEST).exists() or not (directory / JUDGE_FOLDER).is_dir():  # else an earlier start began it
        check_new(directory)
    return False


def _new_run(graded: GradedCandidates, judge_result: JudgeResult, directory: Path) -> Run:
    """The run of a file, as kofn score would write it; where nothing else grades, the judge does."""
    first = graded.result if graded.result.scored[0].metric else judge_result.result
    plan = ReportConfig(task=graded.name, name=directory.resolve().name)
    options = _manifest_options(graded.options, None)
    return replace(write_run(first, directory, sources=[graded.path], options=options, report=plan), path=directory)


def _manifest_options(options: GradingConfig, run: Run | None) -> dict[str, Any]:
    """Options as run.json keeps them: those the run has, with what was asked for now."""
    from dataclasses import asdict

    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items() if k != "engine"}
    before = {} if run is None else run.manifest["options"]  # how the run was graded stays on record
    return {**plain, **before, **{k: plain[k] for k in ("aggregate", "by", "use")}}


def _load(source: Path, options: GradingConfig, fields: Mapping[str, str] | None) -> GradedCandidates:
    """What is judged. Aggregators may need the judge's own scores, so they are asked for once these are there."""
    graded = load_graded(source, replace(options, aggregate=()), fields=fields)
    aggregate = options.aggregate or name_only_selector(
        graded.options.aggregate, list(graded.result.scored[0].sets.selectors)
    )
    return replace(graded, options=replace(graded.options, aggregate=aggregate))


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
    name, models = _settled_judges(graded, rubric, settings)
    texts = output_texts(table, graded.path)
    fields = field_columns(table, rubric, graded.path)
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
    owner = table.owner.tolist()
    entry["position"] = _bias_entry(position_bias_of([(a, b) for _, a, b in wins], [owner[p.a] for p, _, _ in wins]))
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
    fields = field_columns(graded.table, rubric, graded.path)
    return list(_pairs_within_sets(graded.table, output_texts(graded.table, graded.path), fields)[1].values())


def _pairs_within_sets(
    table: Table, texts: Sequence[str | None], fields: Mapping[str, Sequence[str]]
) -> tuple[list[CandidatePair], dict[str, JudgeQuestion]]:
    """Every two different texts of a set, and the questions about them."""
    questions: dict[str, JudgeQuestion] = {}
    pairs = []
    for case, (low, high) in zip(table.cases["case_id"].to_list(), pairwise(table.offsets.tolist()), strict=True):
        for a, b in combinations(range(low, high), 2):
            one, two = texts[a], texts[b]
            if one is not None and two is not None and one != two:
                own = {name: column[a] for name, column in fields.items()}
                pairs.append(_pair(case, (a, one), (b, two), own, questions))
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
    places: list[int] = []
    shares: list[float] = []
    for pair, a_first, b_first in wins:
        share = preference_share(a_first, b_first)
        if share is not None:
            places += pair.a, pair.b
            shares += share, 1 - share
    for low, high in pairwise(table.offsets.tolist()):
        for a, b in combinations(range(low, high), 2):
            if texts[a] is not None and texts[a] == texts[b]:
                places += a, b
                shares += 0.5, 0.5
        if high - low == 1 and texts[low] is not None:  # alone in its set: as if it tied with itself
            places.append(low)
            shares.append(0.5)
    return _means(places, shares, len(texts))


def _means(places: Sequence[int], shares: Sequence[float], n: int) -> NDArray[np.float64]:
    """The mean share of each of n places; NaN for one without any."""
    count = np.bincount(places, minlength=n)
    return np.where(count > 0, np.bincount(places, shares, n) / np.maximum(count, 1), np.nan)


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
    ends = {name: getattr(bias, name) for name in ("consistent", "first_shown")}
    parts = {name: {key: getattr(e, key) for key in ("point", "low", "high")} for name, e in ends.items()}
    return {"n": bias.n, "n_missing": bias.n_missing, **parts}


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
    decided = [(case, preference_share(a_first, b_first)) for case, a_first, b_first in pair_verdicts]
    # the mean preference for A of every shared case; equal texts tie
    known = [*((case, share) for case, share in decided if share is not None), *((case, 0.5) for case in same)]
    values = _means([case for case, _ in known], [share for _, share in known], len(shared))
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
    texts = [output_texts(side.table, side.path) for side in sides]
    fields = field_columns(tables[0], rubric, sides[0].path)
    questions: dict[str, JudgeQuestion] = {}
    pairs, same = [], []
    ids = tables[0].cases["case_id"].to_list()
    for place, (i, j) in enumerate(shared):
        low, other = int(tables[0].offsets[i]), int(tables[1].offsets[j])
        sizes = int(tables[0].offsets[i + 1]) - low, int(tables[1].offsets[j + 1]) - other
        for k in range(min(sizes)):
            one, two = texts[0][low + k], texts[1][other + k]
            if one is not None and one == two:
                same.append(place)
            elif one is not None and two is not None:
                own = {name: column[low + k] for name, column in fields.items()}
                pairs.append((place, _pair(ids[i], (low + k, one), (other + k, two), own, questions)))
    return pairs, same, questions
