"""The registry of warnings: the severity, the sentence and the explanation of every code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

from kofn.core.format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable

Severity = Literal["info", "warning", "error"]
Value = str | int | float | bool | None | tuple[str, ...] | tuple[int, ...]
Values = Mapping[str, Value]

SEVERITIES: dict[Severity, str] = {
    "info": "Something to know when reading the numbers. Nothing is wrong, and nothing has to be done.",
    "warning": "The numbers may mislead, or something was left out. Read the explanation before you use them.",
    "error": "The number does not measure what its name says. Do not report it.",
}
OTHER = "other"


class _SentenceFormatter(Formatter):
    """`str.format`, with two additions: `{n:#case}` counts ("1 case", "2 cases"), and tuples are joined by commas."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("#"):
            return format_count(value, format_spec[1:])
        if isinstance(value, tuple):
            return ", ".join(map(str, value))
        return str(super().format_field(value, format_spec))


_FORMATTER = _SentenceFormatter()


@dataclass(frozen=True, slots=True)
class WarningKind:
    """One code: how much it matters, its sentence, what it means.

    The sentence is a template, one of several by the value `about`, or a function of the values.

    `shape` is what the sentences of a function look like, to recognise them in files older than the codes.

    >>> kind = WarningKind("info", "{n:#case} left out: {names}", "Cases without a reference.")
    >>> kind.sentence({"n": 1, "names": ("q1", "q2")})
    '1 case left out: q1, q2'
    """

    severity: Severity
    template: str | Mapping[str, str] | Callable[[Values], str]
    explanation: str
    shape: str | None = None

    def sentence(self, values: Values) -> str:
        """The sentence for these values."""
        if callable(self.template):
            return self.template(values)
        template = self.template if isinstance(self.template, str) else self.template[str(values["about"])]
        return _FORMATTER.vformat(template, (), values)

    def pattern(self) -> str | None:
        """A regular expression that its sentences match; None where it is not known.

        >>> bool(re.fullmatch(WarningKind("info", "{n:#case} left out", "").pattern(), "12 cases left out"))
        True
        """
        if self.shape is not None or callable(self.template):
            return self.shape
        templates = [self.template] if isinstance(self.template, str) else self.template.values()
        return "|".join(
            "".join(re.escape(text) + ("" if name is None else _shape(spec or "")) for text, name, spec, _ in parts)
            for parts in map(_FORMATTER.parse, templates)
        )


def _shape(spec: str) -> str:
    """What a value of this format looks like: counts are digits, with their noun; anything else may be any text."""
    return r"[\d,]+" if spec == "," else rf"[\d,]+ {re.escape(spec[1:])}s?" if spec.startswith("#") else ".*?"


def _few_cases(v: Values) -> str:
    noun = "shared case" if v.get("shared") else "case"
    return f"only {format_count(_int(v, 'n'), noun)}: intervals over so few are rough"


def _small_segments(v: Values) -> str:
    names = _names(v, "segments")
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    star = "* " if v.get("marked") else ""
    return f"{star}segments of fewer than {v['fewest']} cases: {', '.join(names[:5])}{more}"


def _double_dipping(v: Values) -> str:
    too_good = "double-dipping, the number is too good; grade with another"
    model = f"the same model ({v.get('model')})"
    faults = {
        "itself": f"it: {too_good} metric",
        "same-scores": f"{v['metric']}, which says the same: {too_good} metric",
        "same-judge": f"the same judge: {too_good}",
        "same-model": f"{model} with another prompt: double-dipping, its taste counts twice; grade with another",
        "selector-model": f"{model}: double-dipping, its taste counts twice; grade with another",
    }
    where = f" under {v['metric']}" if v.get("named") else ""
    return f"{v['picks']}{where} picks by `{v['by']}` and is graded by {faults[str(v['fault'])]}"


def _judge_not_calibrated(v: Values) -> str:
    cure = "give --labels" if v.get("curve") else "kofn calibrate measures them"
    return f"{', '.join(_names(v, 'metrics'))}: a judge's verdicts, not corrected for its errors: {cure}"


def _no_answer_found(v: Values) -> str:
    n, of = _int(v, "n"), _int(v, "of")
    advice = "" if v.get("compared") else ": look at them, or try --extract"
    return f"no answer found in {n:,} of {of:,} candidates ({n / of:.0%}){advice}"


def _calls_failed(v: Values) -> str:
    start = f"{v['n']:,} of {v['of']:,} calls failed"
    if not v.get("judge"):
        return f"{start}, most often: {v['error']}"
    why = f" ({v['error']})" if v["error"] else ""
    return f"{start}{why}: --retry-errors asks again"


def _sets_differ_in_size(v: Values) -> str:
    sizes, names = _names(v, "sizes"), _names(v, "names")
    if sizes[0] != sizes[1]:
        what = f"sets differ in size: {sizes[0]} candidates in {names[0]}, {sizes[1]} in {names[1]}"
    else:
        what = f"sets differ in size in {format_count(_int(v, 'n'), 'case')} of {names[0]} and {names[1]}"
    cure = f"; --top-k {v['least']} cuts both" if v["least"] else ""
    return f"{what}: numbers such as any_pass rise with more candidates{cure}"


def _few_labels(v: Values) -> str:
    if v.get("curve"):
        return f"only {v['n']} labels of one kind: under {v['fewest']} the judge's rates are rough"
    noun = "label" if v["n"] == 1 else "labels"
    return f"{v['n']} {noun} that people {v['verdict']}: below {v['fewest']} the judge's rate there is uncertain"


def _verdicts_differ(v: Values) -> str:
    if "labels" not in v:
        return f"the judge's verdict in {v['sheet']} differs on {v['n']} labels: that of the run counts"
    noun = "label" if v["n"] == 1 else "labels"
    return (
        f"the judge's verdict in {v['sheet']} differs from that in {v['labels']} on {v['n']} {noun}: the latter counts"
    )


def _without_verdict(v: Values) -> str:
    noun = str(v["noun"]) + ("" if v["n"] == 1 else "s")
    if v["noun"] == "label":
        return f"{v['n']} {noun} without a verdict of the judge: left out"
    return f"{v['n']} judged {noun} without a verdict: left out"


def _duplicate_rows(v: Values) -> str:
    rows, they = ("1 row is", "it counts") if v["n"] == 1 else (f"{v['n']:,} rows are", "they count")
    return f"{rows} there twice, word for word (case {', '.join(_names(v, 'cases'))}): a resumed log? {they} once"


def _superseded_rows(v: Values) -> str:
    are = "candidate is" if v["n"] == 1 else "candidates are"
    return f"{v['file']}: {v['n']:,} {are} also in a later attempt of the same run: counted there"


def _repeated_outputs(v: Values) -> str:
    cases = "1 case is" if v["n"] == 1 else f"{v['n']:,} cases are"
    some = ", ".join(_names(v, "cases"))
    return f"{cases} there again with the same outputs ({some}): a resumed log? they count as more candidates"


def _conflicting_rows(v: Values) -> str:
    some = ", ".join(_names(v, "cases"))
    if "others" in v:
        same = f"{v['others']:,} with other values: the last counts" if v["others"] else "word for word the same"
        lines = format_count(_int(v, "n"), "line")
        return f"{lines} of a document and filter that were there before (doc_id {some}): a resumed log? {same}"
    rows = "1 row is" if v["n"] == 1 else f"{v['n']:,} rows are"
    return f"{rows} there again with other values (case {some}): a resumed log? the last one counts"


def _missing_field(v: Values) -> str:
    files = _names(v, "files")
    more = f" and {len(files) - 1:,} more files" if len(files) > 1 else ""
    return f"{files[0]}{more}: no {v['field']}, which other files have"


def _uneven_sets(v: Values) -> str:
    least, usual = _int(v, "least"), _int(v, "usual")
    fewer = f"{least}" if least == usual - 1 else f"{least} to {usual - 1}"
    some = f" ({', '.join(_names(v, 'cases'))})" if v.get("cases") else ""
    return f"{v['n']:,} of {v['of']:,} cases have {fewer} of {usual} repeats{some}"


def _int(values: Values, name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _names(values: Values, name: str) -> tuple[str, ...]:
    value = values[name]
    assert isinstance(value, tuple)
    return tuple(map(str, value))


KINDS: dict[str, WarningKind] = {
    # how outputs were scored
    "nothing-graded": WarningKind(
        "warning",
        "no labels, scores or references: nothing is graded, only agreement and diversity are shown",
        "The input has neither labels, scores nor references, so no metric can be computed. Agreement and diversity "
        "say how consistent the outputs are, not how good. Name the field that holds them with --field, or add "
        "references.",
    ),
    "not-graded": WarningKind(
        "warning",
        "{n:#candidate} not graded under {metric}: left out and counted as missing",
        "These candidates have no score: their call failed, a judge's reply was not readable, or a reference is "
        "missing. They are left out of every number, which biases it if they are harder than the rest. Look at them, "
        "or ask again.",
    ),
    "first-entry-taken": WarningKind(
        "warning",
        "metric {metric} returned a mapping without {metric!r}: its first entry, {taken!r}, is the score",
        "The function returns several numbers and none has the metric's name, so the first was taken as the score. "
        "The other numbers are kept as `metric.key`. Return the score under the metric's name to choose it.",
    ),
    "no-threshold": WarningKind(
        "warning",
        "{metric} goes from {low:g} to {high:g}: a pass is at least 1.0; --threshold sets what passes",
        "The scores are not 0 or 1 and no threshold was given, so a candidate passes from 1.0 on. Pass rates, pass@k "
        "and votes depend on this choice. Give --threshold with the score from which an output is good enough.",
    ),
    "no-output-matches": WarningKind(
        "warning",
        "no output matches its reference under {metric}: try --extract, or --metric {other}",
        "Every candidate scores 0. More often than a system that is always wrong this is the wrong extractor, or a "
        "metric that compares whole texts. Look at a few outputs and references, then choose another extractor or "
        "metric.",
    ),
    "reference-not-an-option": WarningKind(
        "warning",
        "{n:#reference} name none of the case's options: they cannot match",
        "In these cases of multiple choice the reference is neither a label nor the text of an option, so every "
        "candidate is wrong. Correct the references or the field of the options.",
    ),
    "sampled-vote": WarningKind(
        "info",
        "{aggregator} is drawn for {n:#set}: its standard error from that alone is {error:.2g}",
        "Enumerating every subset of these sets takes too long, so the vote is estimated from random subsets. The "
        "standard error says how far the number may be off by that alone; it is usually far smaller than the "
        "interval.",
    ),
    "negative-votes": WarningKind(
        "warning",
        "selector {by} goes below 0, and votes add scores up: weighted_vote(scale='exp') adds exp(score)",
        "A weighted vote adds the scores of equal answers. With negative scores (log-probabilities, rewards) an "
        "answer given more often gets a lower sum. Use weighted_vote(scale='exp').",
    ),
    "double-dipping": WarningKind(
        "error",
        _double_dipping,
        "The score or judge that picks a candidate also grades it, so each of its mistakes counts as a success and "
        "the number is too high. Grade with labels, references or another judge. --strict exits with code 1 on this "
        "warning.",
        r".+? picks by `[^`]*` and is graded by .+?: double-dipping, .+",
    ),
    "judge-not-calibrated": WarningKind(
        "warning",
        _judge_not_calibrated,
        "A model gave these verdicts, and it errs. Its pass rate is not the rate that people would find. Label a "
        "sample and run kofn calibrate: it measures the judge's errors and corrects the rate, with an interval.",
        r".+?: a judge's verdicts, not corrected for its errors: .+",
    ),
    "identical-sets": WarningKind(
        "warning",
        "{n:,} of {of:,} sets have identical candidates: a cache, or temperature 0?",
        "At least half of the sets hold the same text several times. Repeats then show no variation, and any@k "
        "cannot rise. Check the temperature, the seed, and whether a cache answered.",
    ),
    "cases-without-candidates": WarningKind(
        "warning",
        "{n:#case} without candidates: undefined, counted as missing",
        "These cases have no output, so no number is defined for them. They are counted as missing, never as 0. "
        "Check whether the log is complete.",
    ),
    "tied-votes": WarningKind(
        "info",
        "{n:#tied vote}: the answer seen first wins (majority(ties='shared') averages)",
        "In these cases two answers have equally many votes. The default rule takes the answer seen first; "
        "ties='shared' averages over the tied answers instead, which does not depend on the order.",
    ),
    "no-answer-found": WarningKind(
        "warning",
        _no_answer_found,
        "In at least 5% of the candidates the extractor found no answer; they count as wrong and do not vote. If the "
        "answers are there, the extractor misses them: look at these outputs, or compare extractors with kofn "
        "extract-audit.",
        r"no answer found in [\d,]+ of [\d,]+ candidates \(\d+%\).*",
    ),
    "labels-differ": WarningKind(
        "warning",
        "labels and extracted answers differ on {n:,} of {of:,} candidates ({metric}): the labels are used",
        "The labels of the file disagree with what the extracted answers say on at least 2% of the candidates. "
        "Either the labels or the extractor is wrong. The numbers use the labels; give --metric to grade the answers "
        "instead.",
    ),
    "extractor-matters": WarningKind(
        "warning",
        "the score depends on the extractor: it spans {span:.2f} over {extractors}",
        "Extractors of the same kind give scores at least 0.05 apart on these outputs, which is often more than the "
        "difference between two models. Run kofn extract-audit, choose one with --extract, and report it.",
    ),
    "few-cases": WarningKind(
        "warning",
        _few_cases,
        "Intervals over fewer than 30 cases rest on approximations that are rough there, and they are wide. Add "
        "cases rather than repeats; kofn plan says how many a question needs.",
        r"only [\d,]+ (?:shared )?cases?: intervals over so few are rough",
    ),
    "small-segments": WarningKind(
        "warning",
        _small_segments,
        "Intervals of segments with few cases are wide and rough; differences between such segments are mostly "
        "noise. Read them as hints, or add cases to these segments.",
        r"(?:\* )?segments of fewer than \d+ cases: .+",
    ),
    # how outputs were generated
    "run-stopped": WarningKind(
        "warning",
        "not whole: {reason}; {n:,} of at most {most:,} candidates are there",
        "The run ended before every output was there. The numbers are of the part that is stored, which may be the "
        "easier part. Run the same command again to resume; nothing that is stored is paid for twice.",
    ),
    "calls-failed": WarningKind(
        "warning",
        _calls_failed,
        "These calls to a model failed after all retries. Their candidates are not graded and are counted as "
        "missing. Run the same command with --retry-errors.",
        r"[\d,]+ of [\d,]+ calls failed(?:, most often: .+|.*: --retry-errors asks again)",
    ),
    "outputs-cut-off": WarningKind(
        "warning",
        "{n:,} of {of:,} outputs were cut off at max_tokens: give them more, or stops",
        "More than 10% of the outputs reached the token limit. Their answers are often missing, which counts as "
        "wrong. Raise max_tokens, or set stop sequences.",
    ),
    "empty-reasoning": WarningKind(
        "warning",
        "the reasoning of {n:,} of {of:,} candidates is empty",
        "The first stage returned no text for more than 10% of the candidates, so the second stage answered without "
        "reasoning. Look at the prompt and the stop sequences of the first stage.",
    ),
    "first-candidates-only": WarningKind(
        "info",
        "{aggregators}: of the first {first} candidates of every case, which are drawn whatever they say; over sets "
        "that stop when they agree they would be biased",
        "With adaptive repeats the size of a set depends on its answers, so most numbers over whole sets would be "
        "biased. These are computed over the candidates that every case has.",
    ),
    "extraction-skipped": WarningKind(
        "warning",
        "extraction by a model is skipped: {reason}",
        "The extraction model could not be opened, most often because its API key is not set. Answers of the "
        "heuristic extractor are used alone. Set the key and run the same command again.",
    ),
    "extraction-stopped": WarningKind(
        "warning",
        "answers read by {model}: stopped: {reason}",
        "The extraction model did not read every output. The rest keeps the answer of the heuristic extractor, so "
        "the accuracy with the model is a mixture. Run the same command again to read the rest.",
    ),
    # judges
    "judging-stopped": WarningKind(
        "warning",
        "not whole: {reason}; the same command again goes on",
        "Judging ended early. Candidates without a verdict are not graded. Run the same command again: verdicts that "
        "are stored are not paid for twice.",
    ),
    "verdicts-repaired": WarningKind(
        "warning",
        "most verdicts needed a repair: the judge does not follow the rubric",
        "More than half of the judge's replies were not in the form that the rubric asks for and were read "
        "leniently. Simplify the rubric, or take a stronger judge.",
    ),
    "judge-saw-cut-texts": WarningKind(
        "warning",
        "{n:,} texts are longer than a judge is shown: their middle was left out",
        "The judge did not see the middle of these outputs, so it may miss what is wrong or right there. Check some "
        "of its verdicts by hand.",
    ),
    "repeats-without-temperature": WarningKind(
        "info",
        "repeats at temperature 0 mostly repeat: --temperature 0.7 shows the judge's own spread",
        "Asking the same judge several times at temperature 0 gives mostly the same verdict, so the repeats do not "
        "show how much it varies. Give --temperature above 0.",
    ),
    "adaptive-sets-biased": WarningKind(
        "warning",
        "sets of this run stopped when they agreed: means over all of them are biased",
        "The run used adaptive repeats: easy cases have fewer candidates. Means over all candidates weigh hard cases "
        "more. Use numbers of the first candidates, or judge a run with a fixed number of repeats.",
    ),
    "judge-wrote-outputs": WarningKind(
        "warning",
        "{model} judges outputs that it wrote: models prefer their own",
        "The judge is the model that wrote the outputs. Models rate their own texts higher. Use a judge of another "
        "family, or calibrate the judge against human labels.",
    ),
    "position-bias": WarningKind(
        "warning",
        "position bias: what is shown {place} wins {share:.0%} of decided verdicts; orders are averaged",
        "The judge prefers a text for its place. Both orders are asked and averaged, which removes the bias from the "
        "result but costs precision. A judge with less position bias needs fewer verdicts.",
    ),
    "pairs-left-out": WarningKind(
        "warning",
        "{n:,} of {of:,} {failure}: their pairs are left out",
        "These comparisons have no verdict: the call failed, or the reply held none. Their pairs do not count. Ask "
        "again, or check the rubric if replies hold no verdict.",
    ),
    "verdicts-dropped": WarningKind(
        "warning",
        "a judge's verdicts are not kept, for some candidates are left out",
        "Verdicts belong to candidates by position. With some candidates left out they no longer match, so they are "
        "dropped from this result. Score all candidates, or judge again.",
    ),
    # calibration
    "few-labels": WarningKind(
        "warning",
        _few_labels,
        "The judge's sensitivity or specificity rests on fewer than 30 labels, so the corrected rate has a wide "
        "interval. Label more items of this kind; kofn plan says how many.",
        r"[\d,]+ labels? that people (?:pass|fail): .+",
    ),
    "without-verdict": WarningKind(
        "warning",
        _without_verdict,
        "These items have no verdict of the judge, so they are left out of the calibration. If they are harder than "
        "the rest, the corrected rate is biased. Let the judge grade them first.",
        r"[\d,]+ (?:labels?|judged \w+) without a verdict.*: left out",
    ),
    "weights-not-used": WarningKind(
        "warning",
        "the cases have weights: they are not used here, every case counts alike",
        "The run weighs its cases, and the calibration does not. The corrected rate is that of unweighted cases, and "
        "need not match the weighted score of the run.",
    ),
    "rates-taken-as-exact": WarningKind(
        "warning",
        "sensitivity and specificity are taken as exact: from labels they are not, and this interval is too narrow",
        "The rates were given as numbers, so their own uncertainty is missing from the interval. Give the labels "
        "instead where you have them.",
    ),
    "lang-reiczigel-overlap": WarningKind(
        "warning",
        "lang_reiczigel is made for labels of other cases: for labels of the judged cases take --method auto",
        "The Lang-Reiczigel interval assumes that the labels are of other cases than those whose rate is corrected. "
        "Here they overlap, so its interval is not valid. Use --method auto.",
    ),
    "labels-do-not-fit": WarningKind(
        "error",
        "the judged rate does not fit the labels: the judge must have erred otherwise on those cases; do not use the "
        "corrected rate",
        "No true rate with these error rates gives the judged rate. The judge errs differently on the judged cases "
        "than on the labelled ones. Label a random sample of the judged cases.",
    ),
    "corrected-rate-clipped": WarningKind(
        "warning",
        "the corrected rate is clipped: the formula gives {value:.3f}",
        "The correction leaves the range of 0 to 1, which happens with few labels or a judge that hardly separates "
        "good from bad. The rate is set to the nearest end. Label more.",
    ),
    "sets-assumed-independent": WarningKind(
        "warning",
        "the corrected rate of sets {assumption}: label whole sets for the rate itself",
        "Labels of candidates say nothing of how errors within a set depend on each other. The rate of sets is "
        "computed as if they did not, which makes it a bound. Label whole sets.",
    ),
    "labels-without-index": WarningKind(
        "warning",
        "ids are there several times and have no index: taken as candidates of one case; or is it twice?",
        "Several labels have the same id and no index says which candidate each is of. They are read as candidates "
        "of one case. Add the column `index`, or remove the copies.",
    ),
    "verdicts-differ": WarningKind(
        "warning",
        _verdicts_differ,
        "The sheet of labels holds another verdict of the judge than the run, most often because the judge was asked "
        "again since. The verdict of the run counts, since its rate is the one that is corrected.",
        r"the judge's verdict in .+ differs .+",
    ),
    # comparisons
    "different-judges": WarningKind(
        "error",
        "{metric} is by different judges: {models_a} in {a}, {models_b} in {b}, or another prompt or parameters: "
        "their difference is not that of the systems",
        "The two runs were graded by different judges, so the difference mixes that of the systems with that of the "
        "judges. Judge both runs with the same model, prompt and parameters.",
    ),
    "different-cases": WarningKind(
        "warning",
        "{n:,} of {of:#shared case} ask or expect something else in {b} than in {a}: are these the same cases?",
        "Cases are paired by id, and some with the same id have another input, reference or options in the two runs. "
        "Their differences are not those of the systems. Check that both runs used the same data.",
    ),
    "sets-differ-in-size": WarningKind(
        "warning",
        _sets_differ_in_size,
        "Numbers such as any_pass rise with the number of candidates, whatever the system. Cut both sides to the "
        "same size with --top-k, or compare numbers that do not depend on it.",
        r"sets differ in size.+",
    ),
    "different-extractors": WarningKind(
        "warning",
        "answers are extracted by {extractor_a} in {a} and by {extractor_b} in {b}: a difference may be the "
        "extractor's; --extract takes one for both",
        "The two sides were read by different extractors, which alone can change a score by several points. Give "
        "--extract.",
    ),
    "different-weights": WarningKind(
        "warning",
        "{n:#case} weigh something else in {b} than in {a}: its weights are used",
        "The same cases have different weights in the two runs. The comparison uses those of the second run.",
    ),
    "picks-the-worst": WarningKind(
        "warning",
        "{selector} picks the highest `{by}`, of which less is better: a selector file says prefer: low",
        "This selector takes the candidate with the highest value of a metric where lower is better, so it picks the "
        "worst. Write a selector file with `prefer: low`.",
    ),
    "same-selector": WarningKind(
        "warning",
        "{a} and {b} are the same selector under two names",
        "A selector compared with itself shows no difference, and that proves nothing. Check the selector files.",
    ),
    # curves
    "list-drawn-at-random": WarningKind(
        "info",
        "any@k draws k places of a list at random; for its first k ask kofn score -a 'recall(k=...)' or ndcg",
        "Outputs are used as a ranked list, and any@k ignores the ranks: it is the chance that k random places hold "
        "a good one. For the first k places use recall(k=...) or ndcg.",
    ),
    "no-vote-curve": WarningKind(
        "info",
        {
            "scale": "no curve of the vote: its values are not the passes, so it is on another scale than best of n",
            "candidates": "no curve of the vote: {n:,} candidates are more than {most:,}",
            "sets": "no curve of the vote: there are sets of more than {most} candidates",
            "votes": "no curve of the vote: too many sets of too many different votes; ask for maj@k at the k you need",
        },
        "The curve of the majority vote is left out: it would be on another scale, or take too long to compute. "
        "Everything else of the curve is unaffected. Ask for maj@k at single k where you need it.",
    ),
    "interval-replaced": WarningKind(
        "info",
        "intervals of the curve are 'auto' where its values are not all 0 or 1: {interval} takes only those",
        "The interval that was asked for is for rates of 0 and 1, and any@k of a case is a chance between them. The "
        "default interval is used there.",
    ),
    "scored-once": WarningKind(
        "info",
        "{selector} scored every candidate once, beside all others of its set",
        "The selector saw whole sets. With fewer candidates beside them it might score otherwise, so its curve is an "
        "approximation for small k.",
    ),
    "unknown-spending": WarningKind(
        "info",
        "{what} is not known of {n:,} candidates: they are left out of its mean",
        "Some candidates carry no cost or no time. The mean is over the others, which may differ from them.",
    ),
    "uneven-curve": WarningKind(
        "info",
        {
            "fewer": "{n:,} cases have fewer than {k} graded candidates: larger k rest on the others",
            "none": "{n:,} cases have no graded candidate and are left out",
        },
        "Not every case has enough graded candidates for every k, so points at larger k are over fewer cases. "
        "Compare points only where the cases are the same.",
    ),
    "corrected-curve": WarningKind(
        "warning",
        {
            "assumes": "the corrected curve {assumes}; gains and the choice are of its verdicts as they are",
            "ends": "no corrected any@k from k = {k} on: it would fall or leave [0, 1], so the judge errs too often",
        },
        "any@k of a judge's verdicts is corrected with its error rates on single candidates. That rests on an "
        "assumption about its errors, and fails where the judge errs too often. Label whole sets for the rate "
        "itself.",
    ),
    "extrapolated": WarningKind(
        "info",
        {
            "measured": "nothing is extrapolated: {n} candidates were measured",
            "single": "nothing is extrapolated: one candidate a case shows no spread",
            "model": "beyond k = {k} any@k is extrapolated: {model}; at {k} it says {point:.3f}, measured "
            "{measured:.3f}",
        },
        "Points beyond the number of candidates that were sampled come from a model of how difficult the cases are, "
        "not from outputs. The sentence says how far the model is off at the last measured k. Sample more to be "
        "sure.",
    ),
    # tables and logs
    "duplicate-rows": WarningKind(
        "warning",
        _duplicate_rows,
        "Rows that are equal in every field, including the index of the repeat, are there more than once, as after a "
        "log was resumed. They count once.",
        r"[\d,]+ rows? (?:is|are) there twice, word for word .+",
    ),
    "conflicting-rows": WarningKind(
        "warning",
        _conflicting_rows,
        "Rows with the same id and repeat are there more than once, with other values, as after a log was resumed. "
        "The last one counts. If these are different repeats, give each its own index.",
        r"[\d,]+ (?:rows?|lines?) (?:is|are|of) .+: a resumed log\? .+",
    ),
    "repeated-outputs": WarningKind(
        "warning",
        _repeated_outputs,
        "The same set of outputs is there several times under one id, which looks like a log that was resumed. They "
        "count as more candidates, which makes repeats look alike. Remove the copies, or give every row its repeat "
        "index.",
        r"[\d,]+ cases? (?:is|are) there again with the same outputs .+",
    ),
    "repeated-problems": WarningKind(
        "warning",
        "{n:,} lines have the problem of an earlier line of their file: read as cases of their own",
        "The file asks some problems more than once. Each line is read as a case of its own, so these problems weigh "
        "more.",
    ),
    "same-file-twice": WarningKind(
        "warning",
        "{a} holds the candidates of {b}, word for word: the same file twice, or a cache? they count twice",
        "Two files hold the same candidates, so their repeats show no variation. Leave one out if it is a copy.",
    ),
    "superseded-rows": WarningKind(
        "info",
        _superseded_rows,
        "A later attempt of the same run holds these candidates again. They count there, and once.",
        r".+?: [\d,]+ candidates? (?:is|are) also in a later attempt.+",
    ),
    "file-lacks-cases": WarningKind(
        "warning",
        "{file} lacks {n:,} of {of:,} cases ({cases})",
        "Files that are read as repeats of each other do not all hold the same cases, so some cases have fewer "
        "candidates. Check whether a run ended early.",
    ),
    "missing-field": WarningKind(
        "warning",
        _missing_field,
        "Some files lack a field that others are graded by. Their candidates may not be graded, or be graded "
        "otherwise.",
        r".+?: no \w+, which other files have",
    ),
    "mixed-types": WarningKind(
        "warning",
        "field {field!r} holds {kinds} and {last}: all are read as {read_as}",
        "A field that grades holds values of several types, such as numbers and text. All are read as one type; a "
        "value that was meant otherwise is graded wrongly. Write one type in every row.",
    ),
    "uneven-sets": WarningKind(
        "warning",
        _uneven_sets,
        "Most cases have the same number of repeats, and these have fewer: repeats are missing there, most often "
        "because a run ended early or calls failed. Numbers of k candidates are undefined for cases with fewer than "
        "k.",
        r"[\d,]+ of [\d,]+ cases have .+? of \d+ repeats.*",
    ),
    "failed-in-log": WarningKind(
        "warning",
        {
            "sample": "{n:#sample} failed: not graded",
            "inspect": "{n:,} of {of:#sample} failed ({error:.80}): not graded",
            "inspect-grade": "scorer {scorer} gave {kind}{such} for {n:#sample}: no grade, left out",
            "helm": "{n:#request} failed or not executed: not graded",
            "helm-completion": "{n:#completion} not graded: HELM's statistics are of the first completion of a request",
            "judgement": "{n:,} judgements say neither yes nor no: not graded (NeMo-Skills counts them as no)",
            "generation": "{n:,} generations failed: not graded (NeMo-Skills counts them as wrong)",
            "output": "{n:#output} failed: not graded",
            "grader": "{n:#output} without a verdict, for the grader failed: not graded",
            "assertion": "{n:#output} without an assertion, which promptfoo counts as passed: not graded here",
            "not-run": "{n:,} of {of:,} completions have no `passed`: not run, so not graded",
            "status": "statuses that are neither pass, fail nor timeout ({statuses}): not graded",
        },
        "The log says that these outputs, or their grades, failed. They are not graded and are counted as missing; "
        "the tool itself may count them as wrong, so its numbers can differ. Run them again there, or leave them out "
        "on both sides.",
    ),
    "left-out-of-log": WarningKind(
        "warning",
        {
            "model-graded": "{n:#sample} graded by a model: what it wrote is no candidate",
            "verdict": "{n:#verdict} on what was not sampled: left out",
            "whole-sample": "{n:#sample} with metrics of the whole sample and not of each output: left out",
            "events": "events that are no outputs and no grades are left out: {kinds}",
            "option": "{n:#option} scored by itself, and nothing says which was chosen: left out",
            "statistics": "no {file} beside it: HELM's own grades are left out",
            "documents": "metric {metric} is no number in {n:,} documents: left out",
            "lines": "metric {metric} is no single number on {n:,} lines (lm-eval computes it over all cases): "
            "left out",
            "perplexity": "perplexity is one number over all cases, and its column has log-likelihoods: left out",
            "requests": "{n:,} lines hold more than one request: the responses to the first are read",
            "older": "{n:#older samples file} of the same tasks in {folder}: not read",
            "greedy": "{file} (greedy{copy}) is left out: give it by itself to score it",
            "split": "the split {split} is read, of {splits}: --where split=NAME reads another",
            "files": "not read: {files}: of a folder only files called *.parquet are",
            "unreadable": "{n:#sample} cannot be read and {are} left out: {samples}",
            "stripped": "{n:#output} stripped from the export (PROMPTFOO_STRIP_RESPONSE_OUTPUT)",
            "filters": "{n} filters ({filters}): answers are those of {first}; --where filter=NAME takes one",
        },
        "The log holds more than was read, as the sentence says. Nothing of it is in the numbers. Check that what "
        "was read is what you want to score.",
    ),
    "log-incomplete": WarningKind(
        "warning",
        {
            "started": "the log is not finished: the run was going, or was killed; samples read: {n:,}",
            "ended": "the run ended with status {status}{why}",
            "missing": "{n:,} of {of:,} samples are missing{which}",
            "report": "no final report: the run was not finished",
            "header": "{file} cannot be read ({problem})",
            "results": "{file} beside it cannot be read as JSON: model and task are not known",
            "documents": "{n:,} documents here, and the results are of {of:,}: the log is {why}",
            "shard": "{file} is not there: its rows are missing",
            "shards": "{n} of {of} shards are there: the rows of the others are missing",
            "unscored": "no sample of this log is scored",
            "no-solutions": "results in the form of EvalPlus 0.1: verdicts without the solutions",
        },
        "A part of the log is missing or cannot be read, most often because the run ended early or files were not "
        "copied. The numbers are of what is there. Finish the run, or copy the rest.",
    ),
    "log-grades-otherwise": WarningKind(
        "info",
        {
            "score-on-error": "{n:#sample} failed and graded: the log was made with score_on_error",
            "limit": "{n:#sample} stopped by a {kind} limit: graded as far as it went",
            "invalid": "{n:#sample} marked invalid in the log: counted here as it is there",
            "models": "tokens and cost are those of the model evaluated, not of {models}",
            "cached": "{n:#output} from promptfoo's cache: time and cost are not those of a call",
            "sets": "lighteval has one value for all predictions of a document ({n:,} of {of:,}): kept as tags; "
            "the candidates are graded here",
            "likelihood": "options compared by likelihood: the likeliest is read as the output",
            "filtered": "{names}: lm-eval's value is of what its filter made of up to {n} responses, not of each: it "
            "is the tag {tag}, and candidates are graded here",
            "aggregation": "{metric}: lm-eval's number over cases is {aggregation}; here it is the mean",
            "no-filters": "the log names no filters: lines of one document are told apart by their order",
            "contradiction": "passed and result contradict each other on {n:,} lines ({place}): passed counts",
        },
        "The tool that wrote the log grades, counts or measures something otherwise than kofn does, as the sentence "
        "says. Its numbers and these can differ for that reason alone.",
    ),
    "unverified-cases": WarningKind(
        "warning",
        "{n:#case} of which nothing was verified: not passed",
        "No attribute of these cases was checked, so nothing says that they are right. They do not count as passed. "
        "Look at what stopped their check, and run them again.",
    ),
    # tasks and programs
    "submission-unusable": WarningKind(
        "warning",
        "every case fails: {reason}",
        "The submission cannot be run at all, for the reason that the sentence gives, so all of its cases fail. That "
        "says nothing of the program itself. Correct the submission and verify it again.",
    ),
    "main-file-missing": WarningKind(
        "warning",
        "there is no {file} in {folder}, which `{command}` runs",
        "The command of the problem starts a file that the submission lacks, so most likely every case fails. Check "
        "the name of the file, or the entry of the problem.",
    ),
    "task-part-left-out": WarningKind(
        "warning",
        {
            "filters": "{n} filters: the first, {filter}, is taken",
            "unknown-filter": "filter {filter} uses {function}, which is not known here: give --extract",
            "set-filter": "filter {filter} is of sets: say repeat_aggregation (majority, maj@k) instead",
            "metrics": "metric_list: {metrics}: not a metric of single answers here, or not with these "
            "settings: left out",
        },
        "The lm-eval task file says more than kofn can do with single answers. The sentence names what was left out, "
        "so numbers can differ from those of lm-eval. Give --extract or --metric to choose otherwise.",
    ),
    OTHER: WarningKind(
        "warning",
        "{text}",
        "The sentence comes from a run directory that is older than the codes of warnings, or from an extension, and "
        "matches no code. Read it as it is.",
        r"(?!)",
    ),
}
