"""The record of a judge: its entry in run.json, its fingerprint, the table of verdicts, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.core.warnings import CodedWarning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.table import Table
    from kofn.judge.client import JudgeQuestion, JudgeReplies, JudgeVerdict
    from kofn.judge.judge_settings import JudgeSettings
    from kofn.judge.rubric import Rubric
    from kofn.judge.verdict_scores import JudgeScores
    from kofn.models.base import Model
    from kofn.runs.load import GradedCandidates

VERDICT_SCHEMA = pl.Schema(
    {
        "metric": pl.String,
        "case_id": pl.String,
        "index": pl.Int64,
        "repeat": pl.Int64,
        "verdict": pl.Float64,
        "score": pl.Float64,
        "repaired": pl.Boolean,
        "error": pl.String,
        "text": pl.String,
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

    weights = [{k: v for k, v in m.describe().items() if k.endswith(("fingerprint", "sha256"))} for m in models]
    identity = [[m.name for m in models], weights, rubric.prompt_sha256(), judge_parameters(rubric, settings)]
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


def _normalized(verdict: JudgeVerdict, rubric: Rubric) -> float | None:
    """In [0, 1]; a preference stays what it is."""
    if verdict.value is None:
        return None
    return verdict.value if rubric.kind == "pairwise" else rubric.normalised(verdict.value)


def verdict_frame(table: Table, lists: Mapping[str, Sequence[Sequence[JudgeVerdict]]], rubric: Rubric) -> pl.DataFrame:
    """A row a verdict: which candidate, judge and repeat, the value on the scale and in [0, 1], and the words."""
    sizes = np.diff(table.offsets)
    cases = np.repeat(table.cases["case_id"].to_numpy(), sizes).tolist()
    places = (np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes)).tolist()
    rows = [
        (label, cases[i], places[i], repeat, v.value, _normalized(v, rubric), v.repaired, v.error, v.text)
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
