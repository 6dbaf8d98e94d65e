"""What there is to say of judges: for run.json, as a table of verdicts, as warnings, and for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.judge.asking import Asked, Question, Verdict
    from kofn.judge.judging import JudgeSettings
    from kofn.judge.pairs import Preference
    from kofn.judge.rubric import Rubric
    from kofn.judge.scores import Column
    from kofn.models.base import Model
    from kofn.opened import Opened
    from kofn.present import Document
    from kofn.table import Table

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


def parameters_of(rubric: Rubric, settings: JudgeSettings) -> dict[str, Any]:
    """How verdicts are drawn."""
    sampling = settings.sampling(rubric)
    return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "repeats": settings.repeats}


def fingerprint_of(rubric: Rubric, settings: JudgeSettings, models: Sequence[Model]) -> str:
    """16 hexadecimal digits of the models (with their weights' digests), what they are asked, and the parameters."""
    from hashlib import sha256

    import orjson

    weights = [{k: v for k, v in m.describe().items() if k.endswith(("fingerprint", "sha256"))} for m in models]
    identity = [[m.name for m in models], weights, rubric.prompt_sha256(), parameters_of(rubric, settings)]
    return sha256(orjson.dumps(identity)).hexdigest()[:16]


def described(
    rubric: Rubric, settings: JudgeSettings, models: Sequence[Model], asked: Sequence[Asked], column: Column | None
) -> dict[str, Any]:
    """A judge for run.json: which model, with which prompt and parameters, what it took and what it left ungraded."""
    names = [m.name for m in models]
    costs = [0.0 if model.local else one.cost for model, one in zip(models, asked, strict=True)]
    every = [v for a in asked for own in a.verdicts.values() for v in own]
    return {
        "rubric": rubric.name,
        "version": rubric.version,
        "kind": rubric.kind,
        "models": names,
        "prompt_sha256": rubric.prompt_sha256(),
        "parameters": parameters_of(rubric, settings),
        "fingerprint": fingerprint_of(rubric, settings, models),
        "scale": rubric.scale if rubric.kind == "score" else "A/B/tie",
        "threshold": rubric.threshold,
        "calls": sum(a.calls for a in asked),
        "tokens_in": sum(a.tokens_in for a in asked),
        "tokens_out": sum(a.tokens_out for a in asked),
        "cost": None if any(c is None for c in costs) else sum(c or 0.0 for c in costs),
        "n_verdicts": len(every),
        "n_not_graded": sum(v.value is None for v in every) if column is None else column.n_missing,
        "n_failed": sum(v.error is not None for v in every),
        "error": next((v.error for v in every if v.error is not None), None),
        "n_unread": sum(v.value is None and v.error is None for v in every),
        "n_repaired": sum(v.repaired and v.value is not None for v in every),
        "stopped": next((a.stopped for a in asked if a.stopped), None),
        "calibrated": False,
    }


def _normalised(verdict: Verdict, rubric: Rubric) -> float | None:
    """In [0, 1]; a preference stays what it is."""
    if verdict.value is None:
        return None
    return verdict.value if rubric.kind == "pairwise" else rubric.normalised(verdict.value)


def verdict_frame(table: Table, lists: Mapping[str, Sequence[Sequence[Verdict]]], rubric: Rubric) -> pl.DataFrame:
    """A row a verdict: which candidate, judge and repeat, the value on the scale and in [0, 1], and the words."""
    sizes = np.diff(table.offsets)
    cases = np.repeat(table.cases["case_id"].to_numpy(), sizes).tolist()
    places = (np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes)).tolist()
    rows = [
        (label, cases[i], places[i], repeat, v.value, _normalised(v, rubric), v.repaired, v.error, v.text)
        for label, of in lists.items()
        for i, own in enumerate(of)
        for repeat, v in enumerate(own)
    ]
    return pl.DataFrame(rows, schema=VERDICT_SCHEMA, orient="row")


def warnings_of(
    what: Opened,
    questions: Mapping[str, Question],
    told: Mapping[str, Mapping[str, Any]],
    name: str,
    settings: JudgeSettings,
    rubric: Rubric,
) -> list[str]:
    """What somebody should know of how these verdicts were made."""
    info, found = told[name], []
    if info["stopped"]:
        found.append(f"{name}: not whole: {info['stopped']}; the same command again goes on")
    if info["n_failed"]:
        why = f" ({str(info['error'])[:160]})" if info["error"] else ""
        found.append(
            f"{name}: {info['n_failed']:,} of {info['n_verdicts']:,} calls failed{why}: --retry-errors asks again"
        )
    if info["n_repaired"] > 0.5 * max(1, info["n_verdicts"]):
        found.append(f"{name}: most verdicts needed a repair: the judge does not follow the rubric")
    cut = sum(q.is_cut for q in questions.values())
    if cut:
        found.append(f"{name}: {cut:,} texts are longer than a judge is shown: their middle was left out")
    if settings.repeats > 1 and settings.sampling(rubric).temperature == 0:
        found.append(f"{name}: repeats at temperature 0 mostly repeat: --temperature 0.7 shows the judge's own spread")
    if (what.manifest.get("generation") or {}).get("adaptive"):
        found.append(f"{name}: sets of this run stopped when they agreed: means over all of them are biased")
    writers = set((what.manifest.get("generation") or {}).get("models", {}).values()) & set(info["models"])
    if writers:
        found.append(f"{name}: {sorted(writers)[0]} judges outputs that it wrote: models prefer their own")
    return found


def judge_facts(name: str, judges: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What people are told of a judge, line by line."""
    told = judges[name]
    facts = [
        ("judge", ", ".join(told["models"])),
        ("rubric", f"{told['rubric']} version {told['version']}, scale {told['scale']}" + _passing(told)),
        ("fingerprint", f"{told['fingerprint']} (prompt {told['prompt_sha256'][:12]})"),
        ("verdicts", _verdicts(told)),
        ("spent", _spent(told)),
    ]
    if variance := told.get("variance"):
        facts.append(("variance", _shares(variance["shares"])))
    if panel := told.get("panel"):
        facts += _panel_facts(panel)
    if position := told.get("position"):
        facts.append(("position", position_told(position)))
    return facts


def _passing(told: Mapping[str, Any]) -> str:
    return "" if told["threshold"] is None else f", {told['threshold']:g} or more passes"


def _verdicts(told: Mapping[str, Any]) -> str:
    parts = [f"{told['n_verdicts']:,}", f"{told['n_repaired']:,} after a repair", f"{told['n_failed']:,} calls failed"]
    what = "verdicts" if told["kind"] == "pairwise" else "candidates"
    return ", ".join([*parts, f"{told['n_not_graded']:,} {what} not graded"])


def _spent(told: Mapping[str, Any]) -> str:
    cost = "price not known" if told["cost"] is None else f"${told['cost']:.4f}"
    return f"{told['calls']:,} calls, {told['tokens_in']:,} tokens in, {told['tokens_out']:,} out, {cost}"


def _shares(shares: Mapping[str, float | None]) -> str:
    said = [f"{name} {share:.0%}" for name, share in shares.items() if share is not None]
    return f"{', '.join(said)} of the spread of single verdicts" if said else "verdicts do not vary"


def _panel_facts(panel: Mapping[str, Any]) -> list[tuple[str, str]]:
    kappa = "undefined" if panel.get("kappa") is None else f"{panel['kappa']:.2f}"
    facts = [("panel", f"{panel['how']} of {len(panel.get('judges', {}))} judges, kappa {kappa}")]
    for name, rates in panel.get("judges", {}).items():
        numbers = f"sensitivity {rates['sensitivity']:.2f}, specificity {rates['specificity']:.2f}"
        facts.append((f"  {name}", f"passes {rates['pass_rate']:.0%}; {numbers} (by Dawid-Skene: no human label)"))
    return facts


def position_told(position: Mapping[str, Any]) -> str:
    """Position bias in words."""
    same, first = position["consistent"], position["first_shown"]
    if same["point"] is None:
        return "no pair was judged in both orders"
    words = f"{same['point']:.0%} of {position['n']:,} pairs have the same winner in both orders"
    if first["point"] is None:
        return words
    return f"{words}; what is shown first wins {first['point']:.0%}{_interval(first)} of decided verdicts"


def _interval(e: Mapping[str, float | None]) -> str:
    return "" if e["low"] is None or e["high"] is None else f" [{e['low']:.0%}, {e['high']:.0%}]"


def preference_lines(found: Preference, style: Callable[[str, str], str]) -> list[str]:
    """A against B for a terminal."""
    from kofn.present import interval_bar, safe

    rate = found.rate
    if rate.point is None:
        return [style(_preferred(found), "bad"), *(f"! {safe(w)}" for w in found.warnings)]
    lines = [
        style(safe(_preferred(found)), "strong"),
        f"{interval_bar(rate)}  0 to 1, one half is a tie; {rate.n:,} cases",
        "",
    ]
    lines += [f"{style(name.ljust(10), 'dim')} {safe(value)}" for name, value in _preference_facts(found)]
    return lines + [f"{style('!', 'warn')} {safe(w)}" for w in found.warnings]


def preference_document(found: Preference) -> Document:
    """The same for a notebook."""
    from kofn.present import Document, Grid, interval_bar

    grid = Grid("", ("0  1", ""), ((interval_bar(found.rate), "one half is a tie"),), (False, False))
    known = found.rate.point is not None
    notes = tuple(_preference_facts(found)) if known else ()
    return Document((_preferred(found),), (grid,) if known else (), notes, found.warnings)


def _preferred(found: Preference) -> str:
    rate = found.rate
    if rate.point is None:
        return "no pair has a verdict"
    ends = "" if rate.low is None or rate.high is None else f" [{rate.low:.3f}, {rate.high:.3f}]"
    return f"{found.name_a} is preferred to {found.name_b} in {rate.point:.3f}{ends} of pairs, p {found.p:.3g}"


def _preference_facts(found: Preference) -> list[tuple[str, str]]:
    told = found.to_dict()
    wins = f"{told['wins']:,} pairs won, {told['ties']:,} tied, {told['losses']:,} lost"
    facts = [
        ("pairs", wins),
        ("position", position_told(told["position"])),
        ("judge", ", ".join(found.judge["models"])),
    ]
    facts += [("rubric", f"{found.judge['rubric']} version {found.judge['version']}"), ("spent", _spent(found.judge))]
    for side, ids in ((found.name_a, found.only_a), (found.name_b, found.only_b)):
        if ids:
            facts.append(("unmatched", f"{len(ids):,} cases are only in {side}: {', '.join(ids[:5])}"))
    return facts
