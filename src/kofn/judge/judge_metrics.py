"""Verdicts as metrics and selectors of a result, the record of a judge in run.json, and its warnings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.candidate_sets import NOT_GRADED, passes_of
from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName
from kofn.generate.preparation import weight_digests
from kofn.registry import aggregator
from kofn.runs.load import with_stored_estimates
from kofn.scoring.evaluate import result_of
from kofn.stats import variance_shares
from kofn.stats.judge_accuracy import dawid_skene, fleiss_kappa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kofn.core.candidate_sets import Floats
    from kofn.core.table import Table
    from kofn.judge.client import JudgeQuestion, JudgeReplies, JudgeSettings, JudgeVerdict, Panel
    from kofn.judge.rubric import Rubric
    from kofn.models.base import Model
    from kofn.runs.load import GradedCandidates
    from kofn.scoring.result import ScoredResult


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
    graded = [[rubric.normalised(v.value) for v in repeats if v.value is not None] for repeats in verdicts]
    values = np.array([sum(of) / len(of) if of else np.nan for of in graded], dtype=np.float64)
    return JudgeScores(
        name=name,
        values=values,
        passes=passes_of(values, rubric.passing),
        words=tuple(_join_replies(repeats) for repeats in verdicts),
    )


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


VERDICT_SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("metric", "case_id"), pl.String),
        **dict.fromkeys(("index", "repeat"), pl.Int64),
        **dict.fromkeys(("verdict", "score"), pl.Float64),
        "repaired": pl.Boolean,
        **dict.fromkeys(("error", "text"), pl.String),
    }
)


def judge_parameters(rubric: Rubric, settings: JudgeSettings) -> dict[str, Any]:
    """How verdicts are drawn."""
    sampling = settings.sampling(rubric)
    return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "repeats": settings.repeats}


def judge_fingerprint(rubric: Rubric, settings: JudgeSettings, models: Sequence[Model]) -> str:
    """16 hexadecimal digits of the models (with their weights' digests), what they are asked, and the parameters."""
    from hashlib import sha256

    import orjson

    names, weights = [m.name for m in models], [weight_digests(m) for m in models]
    identity = [names, weights, rubric.prompt_sha256(), judge_parameters(rubric, settings)]
    return sha256(orjson.dumps(identity)).hexdigest()[:16]


def judge_entry(
    rubric: Rubric,
    settings: JudgeSettings,
    models: Sequence[Model],
    replies: Sequence[JudgeReplies],
    column: JudgeScores | None,
) -> dict[str, Any]:
    """A judge for run.json: which model, with which prompt and parameters, what it took and what it left ungraded."""
    names = [m.name for m in models]
    costs = [0.0 if model.local else one.cost for model, one in zip(models, replies, strict=True)]
    verdicts = [v for a in replies for repeats in a.verdicts.values() for v in repeats]
    return {
        "rubric": rubric.name,
        "version": rubric.version,
        "kind": rubric.kind,
        "question": rubric.question,
        "models": names,
        "prompt_sha256": rubric.prompt_sha256(),
        "parameters": judge_parameters(rubric, settings),
        "fingerprint": judge_fingerprint(rubric, settings, models),
        "scale": rubric.scale if rubric.kind == "score" else "A/B/tie",
        "threshold": rubric.threshold,
        "calls": sum(a.calls for a in replies),
        "tokens_in": sum(a.tokens_in for a in replies),
        "tokens_out": sum(a.tokens_out for a in replies),
        "cost": None if any(c is None for c in costs) else sum(c or 0.0 for c in costs),
        "n_verdicts": len(verdicts),
        "n_not_graded": sum(v.value is None for v in verdicts) if column is None else column.n_missing,
        "n_failed": sum(v.error is not None for v in verdicts),
        "error": next((v.error for v in verdicts if v.error is not None), None),
        "n_unread": sum(v.value is None and v.error is None for v in verdicts),
        "n_repaired": sum(v.repaired and v.value is not None for v in verdicts),
        "stopped": next((a.stopped for a in replies if a.stopped), None),
        "calibrated": False,
    }


def verdict_frame(table: Table, lists: Mapping[str, Sequence[Sequence[JudgeVerdict]]], rubric: Rubric) -> pl.DataFrame:
    """A row a verdict: which candidate, judge and repeat, the value on the scale and in [0, 1], and the words."""
    owner = table.owner
    cases = table.cases["case_id"].gather(owner).to_list()
    places = (np.arange(owner.size) - table.offsets[owner]).tolist()

    def score(value: float | None) -> float | None:
        """In [0, 1]; a preference stays what it is."""
        return value if value is None or rubric.kind == "pairwise" else rubric.normalised(value)

    rows = [
        (label, cases[i], places[i], repeat, v.value, score(v.value), v.repaired, v.error, v.text)
        for label, of in lists.items()
        for i, repeats in enumerate(of)
        for repeat, v in enumerate(repeats)
    ]
    return pl.DataFrame(rows, schema=VERDICT_SCHEMA, orient="row")


def judge_warnings(
    graded: GradedCandidates,
    questions: Mapping[str, JudgeQuestion],
    judges: Mapping[str, Mapping[str, Any]],
    name: str,
    settings: JudgeSettings,
    rubric: Rubric,
) -> list[CodedWarning]:
    """What somebody should know of how these verdicts were made."""
    info, found = judges[name], []
    if info["stopped"]:
        found.append(CodedWarning.of("judging-stopped", name, reason=info["stopped"]))
    if info["n_failed"]:
        why = str(info["error"])[:160] if info["error"] else ""
        failed = CodedWarning.of("calls-failed", name, n=info["n_failed"], of=info["n_verdicts"], error=why, judge=True)
        found.append(failed)
    if info["n_repaired"] > 0.5 * max(1, info["n_verdicts"]):
        found.append(CodedWarning.of("verdicts-repaired", name))
    cut = sum(q.is_cut for q in questions.values())
    if cut:
        found.append(CodedWarning.of("judge-saw-cut-texts", name, n=cut))
    if settings.repeats > 1 and settings.sampling(rubric).temperature == 0:
        found.append(CodedWarning.of("repeats-without-temperature", name))
    if (graded.manifest.get("generation") or {}).get("adaptive"):
        found.append(CodedWarning.of("adaptive-sets-biased", name))
    writers = set((graded.manifest.get("generation") or {}).get("models", {}).values()) & set(info["models"])
    if writers:
        found.append(CodedWarning.of("judge-wrote-outputs", name, model=sorted(writers)[0]))
    return found


@dataclass(frozen=True, kw_only=True)
class JudgeResult:
    """The result with its new metrics, the single verdicts, and why judging ended early where it did."""

    result: ScoredResult
    verdicts: pl.DataFrame
    names: tuple[str, ...]
    stopped: str | None


def check_aggregators(graded: GradedCandidates, names: Sequence[str]) -> None:
    """Refuse, before anything is asked, an aggregator that is unknown, that no set is large enough for, or that could
    pick by several selectors or by none there is.
    """
    sets = graded.result.scored[0].sets
    there = list(dict.fromkeys([*sets.selectors, *names]))
    largest = int(sets.sizes.max()) if len(sets) else 0
    for rule in map(aggregator, graded.options.aggregate):
        by, k = getattr(rule, "by", None), getattr(rule, "k", None)
        if isinstance(k, int) and k > largest:
            raise InputError(f"{rule.name} is undefined: the largest set has {largest} candidates")
        if "selectors" in rule.needs and by and by not in there:
            raise UnknownName("selector", by, there)
        if "selectors" in rule.needs and by == "" and len(there) > 1:
            raise InputError(f"{rule.name}: several selectors: name one, such as {rule.label}(by={there[-1]!r})")


def keep_calibration(graded: GradedCandidates, columns: Sequence[JudgeScores], judges: dict[str, Any]) -> None:
    """The calibration of a judge whose verdicts are what they were."""
    values = {one.metric: one.sets.values for one in graded.result.scored}
    for column in columns:
        before = graded.result.judges.get(column.name, {})
        same = np.array_equal(values.get(column.name, np.empty(0)), column.values, equal_nan=True)
        if before.get("calibration") and before["fingerprint"] == judges[column.name]["fingerprint"] and same:
            judges[column.name] |= {"calibrated": True, "calibration": before["calibration"]}


def with_verdict_columns(
    graded: GradedCandidates,
    columns: Sequence[JudgeScores],
    new_judges: Mapping[str, Mapping[str, Any]],
    *,
    selector_only: bool = False,
) -> ScoredResult:
    """The result with new metrics. A judge's score can pick, too, so it is also a selector, or only that."""
    result, table = graded.result, graded.table
    selectors = {c.name: c.values for c in columns}
    rows = table.candidates.with_columns(
        *(pl.Series(f"selector.{c.name}", c.values, nan_to_null=True) for c in columns),
        *(pl.Series(f"verdict.{c.name}", c.words, dtype=pl.String) for c in columns if any(c.words)),
    )
    rows = rows.with_columns(note=_notes(rows))
    table = replace(table, candidates=rows)
    kept = [one for one in result.scored if one.metric and one.metric not in new_judges]
    sets = result.scored[0].sets
    base = replace(sets, selectors={**sets.selectors, **selectors}, higher_is_better=True)
    scored = [replace(one, sets=replace(one.sets, selectors={**one.sets.selectors, **selectors})) for one in kept]
    order = [*columns[-1:], *columns[:-1]]  # the panel before its members
    scored += [
        replace(result.scored[0], sets=base).under(
            c.name, c.values, c.passes, source=f"judge {new_judges[c.name]['rubric']}"
        )
        for c in ([] if selector_only else order)
    ]
    scored = scored or [replace(result.scored[0], sets=base)]
    judges = {**{k: v for k, v in result.judges.items() if k not in new_judges}, **new_judges}
    before = [w for w in result.source_warnings if w.subject not in new_judges]
    found = result_of(table, scored, graded.options, judges).with_warnings(before)
    others = replace(
        result,
        estimates=tuple(e for e in result.estimates if e.metric not in new_judges),
        case_values={key: values for key, values in result.case_values.items() if key[0] not in new_judges},
    )
    return found if graded.run is None else with_stored_estimates(found, others, graded.options)


def _notes(rows: pl.DataFrame) -> pl.Series:
    """What every judge said of a candidate, for the page: each with its name where there are several."""
    names = [c.removeprefix("verdict.") for c in rows.columns if c.startswith("verdict.")]
    texts = [rows[f"verdict.{n}"].to_list() for n in names]
    joined = [
        "\n\n".join(f"{n}: {t}" for n, t in zip(names, said, strict=True) if t is not None) or None
        for said in zip(*texts, strict=True)
    ]
    return pl.Series("note", joined or [None] * rows.height, dtype=pl.String)


def name_only_selector(aggregate: Sequence[Any], selectors: Sequence[str]) -> tuple[Any, ...]:
    """Aggregators that pick by the only selector there is, with its name: soon there may be another.

    >>> name_only_selector(["mean", "selected", "weighted_vote(scale='exp')"], ["reward"])
    ('mean', "selected(by='reward')", "weighted_vote(by='reward', scale='exp')")
    """
    rules: list[Any] = [aggregator(spec) for spec in aggregate]
    return tuple(
        replace(rule, by=selectors[0]).name
        if len(selectors) == 1 and "selectors" in rule.needs and getattr(rule, "by", None) == ""
        else spec
        for spec, rule in zip(aggregate, rules, strict=True)
    )
