"""Builds the diagnostics and warnings that stand beside the estimates of a result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.aggregators.diversity import Distinct, Redundancy
from kofn.core.document import ChecklistLine
from kofn.core.warnings import DOUBLE_DIPPING, CodedWarning
from kofn.extract import audit
from kofn.metrics import default_metric
from kofn.registry import aggregator, extractor, metric
from kofn.scoring.grade import answer_options, reference_answers
from kofn.scoring.result import UNGRADED, Total, measures_of_use
from kofn.stats.estimates import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.core.candidate_sets import CandidateSets
    from kofn.core.document import ChecklistAnswer
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.grade import Graded
    from kofn.scoring.result import Counts, MetricCounts, Result

_AUDIT_ROWS = 500  # candidates; every further extractor reads each of them
_DIVERSITY_SETS = 200  # sets; n-grams and pairwise overlap are slow on long texts

# extractors of one kind: what one finds is compared with what the others would have found
FAMILIES = {
    "number": ("number", "number_anchor", "number_simple"),
    "letter": ("letter", "letter_word_boundary", "letter_first"),
    "math": ("math", "boxed", "number"),
    "boxed": ("math", "boxed", "number"),
}


def extraction_diagnostics(table: Table, answers: Graded, facts: Counts, options: GradingConfig) -> dict[str, Any]:
    """How answers were found, how many were not, and how far other extractors would disagree.

    Extractors are compared on the candidates of the table, which may be some of those that are counted.
    """
    out: dict[str, Any] = {"extractor": answers.extractor, "reason": answers.reason}
    if facts.answers is None:
        return out
    n, failed = facts.answers
    out |= {"n": n, "n_failed": failed, "failure_rate": failed / n if n else None}
    if answers.extractor is None:
        return out
    family = FAMILIES.get(answers.extractor.partition("(")[0])
    if family is not None:
        out["audit"] = _audit(table, answers, family, options.seed)
    if facts.labels is not None:
        metric, both, differ = facts.labels
        out["labels"] = {"metric": metric, "n": both, "n_differ": differ}
    return out


def _audit(table: Table, answers: Graded, family: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Agreement of an extractor with its relatives on up to 500 candidates, and the score each would give.

    Scores are shown where the metric that suits the extractor compares plain values; mathematics takes too long here.
    """
    import polars as pl

    rows = table.candidates
    known = rows["text"].is_not_null().arg_true().to_numpy() if "text" in rows.columns else np.arange(0)
    if len(known) > _AUDIT_ROWS:
        # sorted, so that what is compared stands in file order
        known = np.sort(np.random.default_rng(seed).choice(known, _AUDIT_ROWS, replace=False))
    choices = answer_options(table, family[0])
    references = rows["reference"] if "reference" in rows.columns else None
    # only where equality is a plain comparison: that of mathematical answers is too slow for a diagnostic
    compare = metric(default_metric(family[0])) if family[0] in ("number", "letter") else None
    if references is None or references.dtype != pl.String or compare is None:
        expected = None
    else:
        expected = reference_answers(references.gather(known), answers.extractor).to_list()
    found = audit(
        rows["text"].gather(known).to_list(),
        {name: extractor(name) for name in family},
        expected,
        equal=None if compare is None else lambda answer, reference: compare(answer, reference) == 1,
        choices=choices.gather(known).to_list() if isinstance(choices, pl.Series) else choices,
    )
    return {**found.to_dict(), "disagreements": len(found.disagreements)}


def set_diagnostics(sets: CandidateSets, facts: Counts, options: GradingConfig) -> dict[str, Any]:
    """Set sizes, votes, diversity, cost and time. `sets`, where n-grams are looked at, may be some of those counted."""
    out: dict[str, Any] = {"sizes": _sizes(facts)}
    totals, counts = facts.totals, facts.counts
    if "agreement" in totals:
        way = "" if facts.metrics[0].graded else UNGRADED
        means = {name: totals[way + name].mean for name in ("agreement", "margin", "unique_answers")}
        out["votes"] = means | {name: counts[way + name] for name in ("ties", "unanimous", "nobody_answered")}
    if "unique_texts" in totals:
        out["diversity"] = {
            "unique_texts": totals["unique_texts"].mean,
            "identical_sets": counts["identical_sets"],
            "n_sets_of_several": counts["several"],
            **_sampled_diversity(sets, options.seed),
        }
    for name in ("cost", "seconds"):
        if name in totals:
            total = totals[name]
            out[name] = {"total": total.sum, "per_case": total.sum / facts.n_cases, "n": total.n}
    return out


def _sizes(facts: Counts) -> dict[str, Any]:
    sizes = sorted(facts.sizes.items())
    return {
        "min": sizes[0][0],
        "median": _median(sizes),
        "max": sizes[-1][0],
        "counts": {str(n): c for n, c in sizes} if len(sizes) <= 20 else None,
    }


def _median(counted: Sequence[tuple[int, int]]) -> float:
    """The median of sizes in order, each with how often it is there.

    >>> _median([(2, 1), (3, 1)]), _median([(2, 1), (3, 2)])
    (2.5, 3.0)
    """
    ends = np.cumsum([count for _, count in counted])
    # the two middle places, which are one where the number of sets is odd
    middle = [(int(ends[-1]) - 1) // 2, int(ends[-1]) // 2]
    return float(np.mean([counted[int(at)][0] for at in np.searchsorted(ends, middle, side="right")]))


def _sampled_diversity(sets: CandidateSets, seed: int) -> dict[str, Any]:
    """N-grams and overlap on up to 200 sets, and it says so."""
    chosen = np.flatnonzero(sets.sizes > 1)
    if len(chosen) > _DIVERSITY_SETS:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, _DIVERSITY_SETS, replace=False))
    some = sets.take(chosen)
    return {
        "distinct_1": Total.of(Distinct(1)(some)).mean,
        "distinct_2": Total.of(Distinct(2)(some)).mean,
        "redundancy": Total.of(Redundancy()(some)).mean,
        "n_sets_sampled": len(chosen),
    }


def build_warnings(
    facts: Counts,
    estimates: Sequence[Estimate],
    extracted: dict[str, Any],
    found: dict[str, Any],
    options: GradingConfig,
    judges: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[CodedWarning]:
    """What a careful reader would want to know."""
    judges = judges or {}
    out = _score_warnings(facts.metrics, options)
    out += _set_warnings(found, facts, voted=any(e.aggregator == "majority" for e in estimates))
    out += _extraction_warnings(extracted)
    if missed := facts.counts["unclear"]:
        out.append(CodedWarning.of("reference-not-an-option", n=missed))
    below = [name for name in facts.selectors if name in facts.below]
    if below and any(e.aggregator.startswith("weighted_vote") and "exp" not in e.aggregator for e in estimates):
        out.append(CodedWarning.of("negative-votes", by=below[0]))
    out += _double_dipping_warnings(facts, options, judges)
    # a judge's number is no human's: say so until people have been asked
    names = [one.metric for one in facts.metrics]
    if asked := tuple(name for name in names if name in judges and not judges[name].get("calibrated")):
        out.append(CodedWarning.of("judge-not-calibrated", metrics=asked))
    # maj@k of large sets is drawn: say so, and how far that may be off
    for (name, _), drawn in facts.drawn.items():
        out.append(CodedWarning.of("sampled-vote", aggregator=name, n=drawn.n, error=drawn.error))
    return out + _segment_warnings(facts.n_cases, estimates)


def _score_warnings(metrics: Sequence[MetricCounts], options: GradingConfig) -> list[CodedWarning]:
    out: list[CodedWarning] = []
    for one in metrics:
        out += one.notes
        if not one.metric:
            out.append(CodedWarning.of("nothing-graded"))
            continue
        if one.n_missing:
            out.append(CodedWarning.of("not-graded", n=one.n_missing, metric=one.metric))
        if one.metric == "score" and not one.beside_labels and options.threshold is None:
            out += _threshold_warning(one)
        if _exceeds_one(one) and options.threshold is None:
            out += _threshold_warning(one)
        # no match at all is more often a wrong extractor or a strict metric than a system that is always wrong
        nothing = one.graded > 0 and one.low == one.high == 0
        if one.metric not in ("pass", "score") and nothing and one.higher_is_better:
            other = "token_f1, contains or exact_match(ignore_case=True)" if "exact" in one.metric else "another metric"
            out.append(CodedWarning.of("no-output-matches", metric=one.metric, other=other))
    return out


def _exceeds_one(one: MetricCounts) -> bool:
    """Whether a metric that was called here gives more than 1, as those of other packages may (BLEU of 0 to 100)."""
    # scores that came with a file have their own warning; a metric's further outputs are named `metric.key`
    called = one.source in ("reference", "text") and "." not in one.metric
    return called and one.higher_is_better and one.high is not None and one.high > 1


def _threshold_warning(one: MetricCounts) -> list[CodedWarning]:
    """Scores that are no pass or fail by themselves, and a threshold nobody chose."""
    if one.zero_one:
        return []
    return [CodedWarning.of("no-threshold", metric=one.metric, low=one.low, high=one.high)]


def _double_dipping_warnings(
    facts: Counts, options: GradingConfig, judges: Mapping[str, Mapping[str, Any]]
) -> list[CodedWarning]:
    """The score that picks is the score that grades: every mistake in its favour then counts as a success.

    best_score is no such pick: it says how high a score goes and nothing of what a product would ship.
    """
    # only aggregators that were asked for: none of the default ones picks by a score
    rules = [rule for spec in options.aggregate if "selectors" in (rule := aggregator(spec)).needs]
    out = []
    for one in facts.metrics:
        for rule in rules:
            # without a name the rule picks by the first selector of the file
            by = getattr(rule, "by", "") or next(iter(facts.selectors), "")
            fault = _double_dipping_fault(one.metric, one.grades_itself(by), by, judges)
            if fault is not None:
                named = len(facts.metrics) > 1
                out.append(CodedWarning.of(DOUBLE_DIPPING, picks=rule.name, named=named, **fault))
    return out


def find_double_dipping(
    scored: Graded, by: str, judges: Mapping[str, Mapping[str, Any]]
) -> dict[str, str | None] | None:
    """What is wrong with grading picks of selector `by` under this metric, as values of the warning; None: nothing.

    The same values, the same judge (model, prompt and parameters), or the same model with another prompt.
    """
    return _double_dipping_fault(scored.metric, _grades_itself(scored, by), by, judges)


def _double_dipping_fault(
    metric: str, itself: bool, by: str, judges: Mapping[str, Mapping[str, Any]]
) -> dict[str, str | None] | None:
    found: dict[str, str | None] = {"by": by, "metric": metric}
    if itself:
        # the same values under another name are no better evidence
        return found | {"fault": "itself" if by == metric else "same-scores"}
    picks, grades = judges.get(by), judges.get(metric)
    if picks is None or grades is None:
        return None
    if picks["fingerprint"] == grades["fingerprint"]:
        return found | {"fault": "same-judge"}
    shared = sorted(set(picks["models"]) & set(grades["models"]))
    return found | {"fault": "same-model", "model": shared[0]} if shared else None


def _grades_itself(scored: Graded, by: str) -> bool:
    """Whether a selector's scores are the metric's values on all graded candidates; values all alike pick nothing."""
    graded = scored.sets.graded
    if by not in scored.sets.selectors or not graded.any():
        return False
    values, scores = scored.sets.values[graded], scored.sets.selectors[by][graded]
    return bool((values == scores).all()) and bool((values != values[0]).any())


def _set_warnings(found: dict[str, Any], facts: Counts, *, voted: bool) -> list[CodedWarning]:
    out = []
    diversity = found.get("diversity")
    # half of the sets: single ones are alike by chance where outputs are short
    if diversity and diversity["identical_sets"] and 2 * diversity["identical_sets"] >= diversity["n_sets_of_several"]:
        same, of = diversity["identical_sets"], diversity["n_sets_of_several"]
        out.append(CodedWarning.of("identical-sets", n=same, of=of))
    if empty := facts.sizes[0]:
        out.append(CodedWarning.of("cases-without-candidates", n=empty))
    votes = found.get("votes")
    if voted and votes and votes["ties"]:
        out.append(CodedWarning.of("tied-votes", n=votes["ties"]))
    return out


def _extraction_warnings(extracted: dict[str, Any]) -> list[CodedWarning]:
    out = []
    failed, n = extracted.get("n_failed") or 0, extracted.get("n") or 0
    # a few failures are normal; from 5% on they move the score
    if failed and failed >= 0.05 * n:
        out.append(CodedWarning.of("no-answer-found", n=failed, of=n))
    labels = extracted.get("labels")
    if labels and labels["n_differ"] >= 0.02 * max(1, labels["n"]):
        out.append(CodedWarning.of("labels-differ", n=labels["n_differ"], of=labels["n"], metric=labels["metric"]))
    audit = extracted.get("audit")
    if audit and (audit.get("span") or 0) >= 0.05:
        out.append(CodedWarning.of("extractor-matters", span=audit["span"], extractors=tuple(audit["score"])))
    return out


def _segment_warnings(n_cases: int, estimates: Sequence[Estimate]) -> list[CodedWarning]:
    if n_cases < SMALL_SEGMENT:
        return [CodedWarning.of("few-cases", n=n_cases)]
    # missing cases count: a large segment in which few are graded has another warning
    small = sorted({e.segment for e in estimates if e.segment is not None and e.n + e.n_missing < SMALL_SEGMENT})
    if not small:
        return []
    return [CodedWarning.of("small-segments", fewest=SMALL_SEGMENT, segments=tuple(small), marked=True)]


_FEW_VALUES = 10  # a field with so few values can be segmented by, unless most cases have a value of their own
_SLICES = 0.2  # a field with more values than this share of the cases is an id or a text, not a segment
# items that the best-of-n report and run directories answer anew, so they are named here
USE = "the aggregator matches how outputs are used"
APART = "selector and evaluator are apart"
TRACKED = "cost and latency are tracked per n"
VERSIONED = "everything is versioned"


def build_checklist(result: Result, options: GradingConfig) -> tuple[ChecklistLine, ...]:
    """The questions in order, answered from the result and how it was made."""
    questions: dict[str, Callable[[Result, GradingConfig], tuple[ChecklistAnswer, str]]] = {
        USE: _use,
        "diversity is shown": _diversity,
        "intervals are by case": _intervals,
        "the judge is calibrated and corrected": _judge,
        APART: _separation,
        "segments are shown": _segments,
        TRACKED: _spending,
        VERSIONED: _versions,
    }
    found = [(item, *answer(result, options)) for item, answer in questions.items()]
    return tuple(ChecklistLine(item=item, answer=answer, reason=reason) for item, answer, reason in found)


def line_from_dict(line: Mapping[str, Any]) -> ChecklistLine:
    """A line as run.json has it."""
    return ChecklistLine.of(line["item"], line["answer"], line["reason"])


def _use(result: Result, options: GradingConfig) -> tuple[ChecklistAnswer, str]:
    if result.diagnostics["sizes"]["max"] <= 1:
        return "n/a", "one candidate per case: there is nothing to combine"
    if options.use is None:
        return "unknown", "intended use not set; pass --use any, vote, select, list or all, or `use:` in a task"
    fitting = measures_of_use(dict.fromkeys(e.aggregator for e in result.estimates), options.use)
    if not fitting:
        return "no", f"intended use: {options.use}; none of the aggregators shown measures it"
    return "yes", f"intended use: {options.use}, measured by {', '.join(fitting[:3])}"


def _diversity(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    if result.diagnostics["sizes"]["max"] <= 1:
        return "n/a", "one candidate per case: there is nothing to compare"
    found, votes = (result.diagnostics.get(name) or {} for name in ("diversity", "votes"))
    # a file without texts, or a run in which every call failed, has nothing to compare
    if found.get("unique_texts") is not None:
        return "yes", f"{found['unique_texts']:.0%} of the texts in a set are distinct"
    if votes.get("unique_answers"):
        return "yes", f"{votes['unique_answers']:.2g} distinct answers per set"
    return "n/a", "there are no texts and no answers to compare"


def _intervals(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    methods = {e.method for e in result.estimates if e.segment is None}
    if not methods - {"none", "degenerate"}:
        return "no", "no estimate has an interval"
    cluster = result.understood["cluster"]
    return "yes", f"the resampled unit is the {f'cluster `{cluster}`' if cluster else 'case'}, never the candidate"


def _judge(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    if not result.judges:
        if "score" in result.understood["metrics"]:
            return "unknown", "scores were imported; their source is unknown"
        return "n/a", "no judge grades these outputs"
    # a judge that only selects has no verdicts to calibrate
    grading = {name: judge for name, judge in result.judges.items() if judge.get("role") != "selector"}
    without = [name for name, judge in grading.items() if not judge.get("calibrated")]
    if without:
        return "no", f"{', '.join(without)} has not been compared with human labels; use kofn calibrate"
    if not grading:
        return "n/a", "a judge selects, and none grades"
    return "yes", f"{', '.join(grading)}: raw and corrected rates stand side by side"


def _separation(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    picked = [e.aggregator for e in result.estimates if e.aggregator.startswith(("selected", "weighted_vote"))]
    if not picked:
        return "n/a", "no aggregator shown uses a selector"
    if result.double_dipping:
        return "no", "the same judge or score picks and grades"
    # a column of scores says nothing of the model behind it; it may be the judge's
    named = [name for name in result.understood["selectors"] if name not in result.judges]
    if named and result.judges:
        return "unknown", f"selector `{named[0]}` was imported; the model behind it is unknown"
    return "yes", "the selector and the evaluator differ"


def _segments(result: Result, options: GradingConfig) -> tuple[ChecklistAnswer, str]:
    if options.by:
        return "yes", f"by {', '.join(options.by)}"
    table = result.table
    columns = [] if table is None else list(table.tags)
    most = 0 if table is None else max(_SLICES * table.n_cases, min(_FEW_VALUES, table.n_cases / 2))
    tags = [c.name for c in columns if 1 < c.n_unique() <= most]
    if tags:
        return "no", f"cases have {', '.join(f'`{t}`' for t in tags[:3])}; pass --by FIELD"
    if not columns:  # without a run directory to write, only the fields that are asked for are read
        return "unknown", "no field to segment by was read; pass --by FIELD"
    return "n/a", "no field has few enough values to segment by"


def _spending(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    missing = [name for name in ("cost", "seconds") if name not in result.diagnostics]
    if missing:
        return "no", f"no {' and no '.join(missing)} recorded per candidate"
    return "yes", "cost and time are recorded per candidate; kofn curve shows them for every n"


def _versions(_: Result, __: GradingConfig) -> tuple[ChecklistAnswer, str]:
    return "no", "this result is not stored; --out DIR keeps hashes, versions and seeds in run.json"


def with_versioning(result: Result) -> tuple[ChecklistLine, ...]:
    """The checklist of a result that is written to a run directory, and so versioned."""
    judges = ["judges with their prompts"] if result.judges else []
    parts = ", ".join(["the data's hash", "packages", "seeds", *judges])
    return tuple(
        replace(line, answer="yes", reason=f"run.json holds {parts}") if line.item == VERSIONED else line
        for line in result.checklist
    )
