"""What explains the numbers: extraction failures, disagreements, set sizes, diversity, cost; and what to beware of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.evaluate import Options
    from kofn.scoring import Answers, Scored
    from kofn.sets import CandidateSets
    from kofn.table import Table
    from kofn.types import Estimate

_AUDIT_ROWS = 500
_DIVERSITY_SETS = 200

_FAMILIES = {
    "number": ("number", "number_anchor", "number_simple"),
    "letter": ("letter", "letter_word_boundary", "letter_first"),
    "math": ("math", "boxed", "number"),
    "boxed": ("math", "boxed", "number"),
}


def extraction(table: Table, answers: Answers, scored: Sequence[Scored], options: Options) -> dict[str, Any]:
    """How answers were found, how many were not, and how far other extractors would disagree."""
    out: dict[str, Any] = {"extractor": answers.extractor, "reason": answers.reason}
    if answers.column is None:
        return out
    n = len(answers.column)
    out |= {"n": n, "n_failed": answers.n_failed, "failure_rate": answers.n_failed / n if n else None}
    if answers.extractor is None:
        return out
    family = _FAMILIES.get(answers.extractor.partition("(")[0])
    if family is not None:
        out["audit"] = _audit(table, family, options.seed)
    labelled = _label_disagreements(table, answers, scored)
    if labelled is not None:
        out["labels"] = labelled
    return out


def _audit(table: Table, family: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Agreement of an extractor with its relatives on up to 500 candidates."""
    import polars as pl

    from kofn.extract import audit
    from kofn.registry import extractor

    rows = table.candidates.filter(pl.col("text").is_not_null())
    n = rows.height
    index = (
        np.arange(n) if n <= _AUDIT_ROWS else np.sort(np.random.default_rng(seed).choice(n, _AUDIT_ROWS, replace=False))
    )
    texts = rows["text"].gather(index).to_list()
    references = rows["reference"].gather(index) if "reference" in rows.columns else None
    if references is not None and isinstance(references.dtype, pl.List):
        references = None
    found = audit(
        texts,
        {name: extractor(name) for name in family},
        None if references is None else references.to_list(),
    )
    return {**found.to_dict(), "disagreements": len(found.disagreements)}


def _label_disagreements(table: Table, answers: Answers, scored: Sequence[Scored]) -> dict[str, Any] | None:
    """Where the file has both labels and references: how often the extracted answer says otherwise than the label."""
    rows = table.candidates
    if "reference" not in rows.columns or "passed" not in rows.columns or scored[0].metric != "pass":
        return None
    if answers.extractor is None:
        return None
    from kofn.metrics import default_metric
    from kofn.scoring import score_table

    computed = score_table(table, answers, [default_metric(answers.extractor)], None)[0]
    label = rows["passed"].cast(float).to_numpy()
    both = ~np.isnan(label) & (computed.sets.passes >= 0)
    differ = both & (label != computed.sets.passes)
    return {"metric": computed.metric, "n": int(both.sum()), "n_differ": int(differ.sum())}


def diagnostics(sets: CandidateSets, options: Options) -> dict[str, Any]:
    """Set sizes, votes, diversity, cost and time."""
    out: dict[str, Any] = {"sizes": _sizes(sets)}
    if sets.answers is not None:
        out["votes"] = _votes(sets)
    if sets.texts is not None:
        out["diversity"] = _diversity(sets, options.seed)
    for name, column in (("cost", sets.costs), ("seconds", sets.seconds)):
        if column is not None:
            known = column[~np.isnan(column)]
            out[name] = {
                "total": float(known.sum()),
                "per_case": float(known.sum() / len(sets)),
                "n": len(known),
            }
    return out


def _sizes(sets: CandidateSets) -> dict[str, Any]:
    found, counts = np.unique(sets.sizes, return_counts=True)
    return {
        "min": int(found[0]),
        "median": float(np.median(sets.sizes)),
        "max": int(found[-1]),
        "counts": {str(n): int(c) for n, c in zip(found.tolist(), counts.tolist(), strict=True)}
        if len(found) <= 20
        else None,
    }


def _votes(sets: CandidateSets) -> dict[str, Any]:
    from kofn.aggregators.votes import tally

    votes = tally(sets)
    size = np.where(sets.sizes > 0, sets.sizes, np.nan)
    several = sets.sizes > 1
    return {
        "agreement": _mean(votes.first / size),
        "margin": _mean((votes.first - votes.second) / size),
        "unique_answers": _mean(votes.different + 0 * size),
        "ties": int(((votes.first == votes.second) & (votes.different > 1)).sum()),
        "unanimous": int(((votes.first == sets.sizes) & several).sum()),
        "nobody_answered": int(((votes.different == 0) & (sets.sizes > 0)).sum()),
    }


def _diversity(sets: CandidateSets, seed: int) -> dict[str, Any]:
    """Over all sets the share of different texts; n-grams and overlap on up to 200 sets, and it says so."""
    from kofn.aggregators.diversity import Distinct, Redundancy, UniqueTexts

    unique = UniqueTexts()(sets)
    several = sets.sizes > 1
    chosen = np.flatnonzero(several)
    if len(chosen) > _DIVERSITY_SETS:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, _DIVERSITY_SETS, replace=False))
    some = sets.take(chosen)
    return {
        "unique_texts": _mean(unique),
        "identical_sets": int((several & np.isclose(unique * sets.sizes, 1)).sum()),
        "n_sets_of_several": int(several.sum()),
        "distinct_1": _mean(Distinct(1)(some)),
        "distinct_2": _mean(Distinct(2)(some)),
        "redundancy": _mean(Redundancy()(some)),
        "n_sets_sampled": len(chosen),
    }


def warnings(
    table: Table,
    scored: Sequence[Scored],
    estimates: Sequence[Estimate],
    extracted: dict[str, Any],
    found: dict[str, Any],
) -> list[str]:
    """One line each for what a careful reader would want to be told."""
    return [
        *_score_warnings(scored),
        *_set_warnings(found, table, graded=bool(scored[0].metric)),
        *_extraction_warnings(extracted),
        *_segment_warnings(estimates),
    ]


def _score_warnings(scored: Sequence[Scored]) -> list[str]:
    out = []
    for one in scored:
        if not one.metric:
            out.append("no labels, scores or references: nothing is graded, only agreement and diversity are shown")
            continue
        missing = int((~one.sets.graded).sum())
        if missing:
            out.append(f"{missing:,} candidates are not graded under {one.metric}: left out and counted as missing")
        values = one.sets.values[one.sets.graded]
        if not one.beside_labels and len(values) and (values.min() < 0 or values.max() > 1):
            low, high = float(values.min()), float(values.max())
            out.append(
                f"{one.metric} goes from {low:g} to {high:g}: a pass is at least 1.0 unless --threshold says otherwise"
            )
    return out


def _set_warnings(found: dict[str, Any], table: Table, *, graded: bool) -> list[str]:
    out = []
    diversity = found.get("diversity")
    if diversity and diversity["identical_sets"] and 2 * diversity["identical_sets"] >= diversity["n_sets_of_several"]:
        same, of = diversity["identical_sets"], diversity["n_sets_of_several"]
        out.append(f"{same:,} of {of:,} sets have identical candidates: a cache, or temperature 0?")
    empty = int((np.diff(table.offsets) == 0).sum())
    if empty:
        out.append(f"{empty:,} cases have no candidates: undefined, counted as missing")
    votes = found.get("votes")
    if graded and votes and votes["ties"]:
        out.append(f"{votes['ties']:,} votes are tied: the answer seen first wins (majority(ties='shared') averages)")
    return out


def _extraction_warnings(extracted: dict[str, Any]) -> list[str]:
    out = []
    failed, n = extracted.get("n_failed") or 0, extracted.get("n") or 0
    if failed and failed >= 0.05 * n:
        out.append(
            f"no answer found in {failed:,} of {n:,} candidates ({failed / n:.0%}): look at them, or try --extract"
        )
    labels = extracted.get("labels")
    if labels and labels["n_differ"] >= 0.02 * max(1, labels["n"]):
        out.append(
            f"labels and extracted answers differ on {labels['n_differ']:,} of {labels['n']:,} candidates "
            f"({labels['metric']}): the labels are used"
        )
    audit = extracted.get("audit")
    if audit and (audit.get("span") or 0) >= 0.05:
        out.append(f"the score depends on the extractor: it spans {audit['span']:.2f} over {', '.join(audit['score'])}")
    return out


def _segment_warnings(estimates: Sequence[Estimate]) -> list[str]:
    from kofn.stats.estimate import SMALL_SEGMENT

    small = sorted({e.segment for e in estimates if e.segment is not None and e.n + e.n_missing < SMALL_SEGMENT})
    if not small:
        return []
    shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
    return [f"* segments of fewer than {SMALL_SEGMENT} cases: {shown}"]


def _mean(values: Any) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
