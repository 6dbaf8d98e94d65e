"""What explains the numbers: extraction failures, disagreements, set sizes, diversity, cost; and what to beware of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.evaluate import Options
    from kofn.scoring import Answers, Scored
    from kofn.sets import CandidateSets
    from kofn.table import Table
    from kofn.types import Estimate

DIPPING = "double-dipping"  # the word by which such a warning is known
UNCORRECTED = "not corrected for its errors"  # and those by which that of a judge is

_AUDIT_ROWS = 500
_DIVERSITY_SETS = 200

FAMILIES = {
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
    n = answers.n
    out |= {"n": n, "n_failed": answers.n_failed, "failure_rate": answers.n_failed / n if n else None}
    if answers.extractor is None:
        return out
    family = FAMILIES.get(answers.extractor.partition("(")[0])
    if family is not None:
        out["audit"] = _audit(table, answers, family, options.seed)
    labelled = _label_disagreements(table, answers, scored)
    if labelled is not None:
        out["labels"] = labelled
    return out


def _audit(table: Table, answers: Answers, family: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Agreement of an extractor with its relatives on up to 500 candidates, and the score each would give.

    Scores are shown where the metric that suits the extractor compares plain values; mathematics takes too long here.
    """
    import polars as pl

    from kofn.extract import audit
    from kofn.metrics import default_metric
    from kofn.registry import extractor, metric
    from kofn.scoring import choices_of, reference_answers

    rows = table.candidates
    known = rows["text"].is_not_null().arg_true().to_numpy() if "text" in rows.columns else np.arange(0)
    if len(known) > _AUDIT_ROWS:
        known = np.sort(np.random.default_rng(seed).choice(known, _AUDIT_ROWS, replace=False))
    choices = choices_of(table)
    references = rows["reference"] if "reference" in rows.columns else None
    compare = metric(default_metric(family[0])) if family[0] in ("number", "letter") else None
    if references is None or references.dtype != pl.String or compare is None:
        wanted = None
    else:
        wanted = reference_answers(references.gather(known), answers.extractor).to_list()
    found = audit(
        rows["text"].gather(known).to_list(),
        {name: extractor(name) for name in family},
        wanted,
        equal=None if compare is None else lambda answer, reference: compare(answer, reference) == 1,
        choices=choices.gather(known).to_list() if isinstance(choices, pl.Series) else choices,
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
    from kofn.aggregators.votes import graded_votes, outputs, tally

    votes = tally(graded_votes(sets))
    size = outputs(sets)
    several = sets.sizes > 1
    return {
        "agreement": _mean(votes.first / size),
        "margin": _mean((votes.first - votes.second) / size),
        "unique_answers": _mean(votes.different + 0 * size),
        "ties": int(votes.tied.sum()),
        "unanimous": int(((votes.first == size) & several).sum()),
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
    options: Options,
    judges: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """One line each for what a careful reader would want to be told."""
    return [
        *_score_warnings(scored, options),
        *_set_warnings(found, table, voted=any(e.aggregator == "majority" for e in estimates)),
        *_extraction_warnings(extracted),
        *_choice_warnings(table, scored),
        *_selector_warnings(scored[0].sets, estimates),
        *_double_dipping_warnings(scored, options, judges or {}),
        *_judge_warnings(scored, judges or {}),
        *_drawn_warnings(scored, options),
        *_segment_warnings(table, estimates),
    ]


def _score_warnings(scored: Sequence[Scored], options: Options) -> list[str]:
    out: list[str] = []
    for one in scored:
        values = one.sets.values[one.sets.graded]
        out += one.told
        if not one.metric:
            out.append("no labels, scores or references: nothing is graded, only agreement and diversity are shown")
            continue
        missing = len(one.sets.values) - len(values)
        if missing:
            out.append(
                f"{counted(missing, 'candidate')} not graded under {one.metric}: left out and counted as missing"
            )
        if one.metric == "score" and not one.beside_labels and options.threshold is None and len(values):
            out += _threshold_warning(values)
        if _exceeds(one, values) and options.threshold is None:
            out += _threshold_warning(values, one.metric)
        if one.metric not in ("pass", "score") and len(values) and not values.any() and one.sets.higher_is_better:
            other = "token_f1, contains or exact_match(ignore_case=True)" if "exact" in one.metric else "another metric"
            out.append(f"no output matches its reference under {one.metric}: try --extract, or --metric {other}")
    return out


def _exceeds(one: Scored, values: Any) -> bool:
    """Whether a metric that was called here gives more than 1, as those of other packages may (BLEU of 0 to 100)."""
    called = one.source in ("reference", "text") and "." not in one.metric
    return called and one.sets.higher_is_better and len(values) > 0 and float(values.max()) > 1


def _threshold_warning(values: Any, name: str = "score") -> list[str]:
    """Scores that are no pass or fail by themselves, and a threshold nobody chose."""
    low, high = float(values.min()), float(values.max())
    if bool(np.isin(values, (0.0, 1.0)).all()):
        return []
    return [f"{name} goes from {low:g} to {high:g}: a pass is at least 1.0; --threshold sets what passes"]


def _choice_warnings(table: Table, scored: Sequence[Scored]) -> list[str]:
    from kofn.multiple_choice import unclear

    missed = unclear(table) if scored[0].metric == "choice" else 0
    return [f"{counted(missed, 'reference')} name none of the case's options: they cannot match"] if missed else []


def _drawn_warnings(scored: Sequence[Scored], options: Options) -> list[str]:
    """maj@k of large sets is drawn: say so, and how far that may be off."""
    from kofn.aggregators.votes import MajAt
    from kofn.registry import aggregator

    out = []
    for rule in map(aggregator, options.aggregate):
        for one in scored if isinstance(rule, MajAt) else ():
            if isinstance(rule, MajAt) and rule.draws_any(one.sets) and (errors := rule.error(one.sets)).any():
                many = counted(int((errors > 0).sum()), "set")
                off = float(np.sqrt((errors**2).sum()) / len(errors))
                out.append(f"{rule.name} is drawn for {many}: its standard error from that alone is {off:.2g}")
    return out


def _selector_warnings(sets: CandidateSets, estimates: Sequence[Estimate]) -> list[str]:
    if not any(e.aggregator.startswith("weighted_vote") and "exp" not in e.aggregator for e in estimates):
        return []
    below = [name for name, scores in sets.selectors.items() if bool((scores < 0).any())]
    if not below:
        return []
    return [f"selector {below[0]} goes below 0, and votes add scores up: weighted_vote(scale='exp') adds exp(score)"]


def _double_dipping_warnings(
    scored: Sequence[Scored], options: Options, judges: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The score that picks is the score that grades: every mistake in its favour then counts as a success.

    best_score is no such pick: it says how high a score goes and nothing of what a product would ship.
    """
    from kofn.registry import aggregator

    rules = [rule for spec in options.aggregate if "selectors" in (rule := aggregator(spec)).needs]
    out = []
    for one in scored:
        for rule in rules:
            by = getattr(rule, "by", "") or next(iter(one.sets.selectors), "")
            where = f" under {one.metric}" if len(scored) > 1 else ""
            if (fault := dipping(one, by, judges)) is not None:
                out.append(f"{rule.name}{where} picks by `{by}` and is graded by {fault}")
    return out


def dipping(scored: Scored, by: str, judges: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What is wrong with grading picks of selector `by` under this metric; None where they are apart.

    The same values, the same judge (model, prompt and parameters), or the same model with another prompt.
    """
    if _grades_itself(scored, by):
        itself = "it" if by == scored.metric else f"{scored.metric}, which says the same"
        return f"{itself}: {DIPPING}, the number is too good; grade with another metric"
    picks, grades = judges.get(by), judges.get(scored.metric)
    if picks is None or grades is None:
        return None
    if picks["fingerprint"] == grades["fingerprint"]:
        return f"the same judge: {DIPPING}, the number is too good; grade with another"
    shared = sorted(set(picks["models"]) & set(grades["models"]))
    if shared:
        return (
            f"the same model ({shared[0]}) with another prompt: {DIPPING}, its taste counts twice; grade with another"
        )
    return None


def _judge_warnings(scored: Sequence[Scored], judges: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A judge's number is no human's: say so until people have been asked."""
    names = [one.metric for one in scored if one.metric in judges and not judges[one.metric].get("calibrated")]
    if not names:
        return []
    return [f"{', '.join(names)}: a judge's verdicts, {UNCORRECTED}: kofn calibrate measures them"]


def _grades_itself(scored: Scored, by: str) -> bool:
    """Whether a selector's scores are the metric's values on all graded candidates; values all alike pick nothing."""
    graded = scored.sets.graded
    if by not in scored.sets.selectors or not graded.any():
        return False
    values, scores = scored.sets.values[graded], scored.sets.selectors[by][graded]
    return bool((values == scores).all()) and bool((values != values[0]).any())


def _set_warnings(found: dict[str, Any], table: Table, *, voted: bool) -> list[str]:
    out = []
    diversity = found.get("diversity")
    if diversity and diversity["identical_sets"] and 2 * diversity["identical_sets"] >= diversity["n_sets_of_several"]:
        same, of = diversity["identical_sets"], diversity["n_sets_of_several"]
        out.append(f"{same:,} of {of:,} sets have identical candidates: a cache, or temperature 0?")
    empty = int((np.diff(table.offsets) == 0).sum())
    if empty:
        out.append(f"{counted(empty, 'case')} without candidates: undefined, counted as missing")
    votes = found.get("votes")
    if voted and votes and votes["ties"]:
        out.append(
            f"{counted(votes['ties'], 'tied vote')}: the answer seen first wins (majority(ties='shared') averages)"
        )
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


def _segment_warnings(table: Table, estimates: Sequence[Estimate]) -> list[str]:
    from kofn.stats.estimate import SMALL_SEGMENT

    if table.n_cases < SMALL_SEGMENT:
        return [f"only {counted(table.n_cases, 'case')}: intervals over so few are rough"]
    small = sorted({e.segment for e in estimates if e.segment is not None and e.n + e.n_missing < SMALL_SEGMENT})
    if not small:
        return []
    shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
    return [f"* segments of fewer than {SMALL_SEGMENT} cases: {shown}"]


def counted(n: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "case"), counted(1234, "case")
    ('1 case', '1,234 cases')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _mean(values: Any) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
