"""Answers the checklist of a careful reader: yes, no or unknown, each with a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.core.document import ChecklistLine
from kofn.scoring.configuration import USES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.core.document import ChecklistAnswer
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.result import Result

_SLICES = 0.2  # a field with more values than this share of the cases is an id or a text, not a segment
# items that the best-of-n report and run directories answer anew, so they are named here
APART = "selector and evaluator are apart"
TRACKED = "cost and latency are tracked per n"
VERSIONED = "everything is versioned"


def build_checklist(result: Result, options: GradingConfig) -> tuple[ChecklistLine, ...]:
    """The questions in order, answered from the result and how it was made."""
    questions: dict[str, Callable[[Result, GradingConfig], tuple[ChecklistAnswer, str]]] = {
        "the aggregator matches how outputs are used": _use,
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
        return "yes", "one candidate a case: there is nothing to combine"
    if options.use is None:
        return (
            "unknown",
            "nobody said how outputs are used: --use any, vote, select, list or all; `use:` in a task",
        )
    names = list(dict.fromkeys(e.aggregator for e in result.estimates))
    fitting = [name for name in names if name.startswith(USES[options.use])]
    if not fitting:
        return "no", f"outputs are used by `{options.use}`, and no aggregator shown measures that"
    return "yes", f"outputs are used by `{options.use}`: {', '.join(fitting[:3])}"


def _diversity(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    if result.diagnostics["sizes"]["max"] <= 1:
        return "yes", "one candidate a case: there is nothing to compare"
    found = result.diagnostics.get("diversity")
    if found is None:
        votes = result.diagnostics.get("votes")
        if votes is None:
            return "no", "there are no texts and no answers to compare"
        return "yes", f"{votes['unique_answers'] or 0:.2g} different answers a set"
    return "yes", f"{found['unique_texts'] or 0:.2f} of a set's texts are different"


def _intervals(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    methods = {e.method for e in result.estimates if e.segment is None}
    if not methods - {"none", "degenerate"}:
        return "no", "no estimate has an interval"
    cluster = result.understood["cluster"]
    return "yes", f"the resampled unit is the {f'cluster `{cluster}`' if cluster else 'case'}, never the candidate"


def _judge(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    if not result.judges:
        if "score" in result.understood["metrics"]:
            return "unknown", "scores came with the file, and nobody says what made them"
        return "yes", "no judge grades here"
    # a judge that only selects has no verdicts to calibrate
    grading = {name: judge for name, judge in result.judges.items() if judge.get("role") != "selector"}
    without = [name for name, judge in grading.items() if not judge.get("calibrated")]
    if without:
        return "no", f"no human labels stand beside {', '.join(without)}: kofn calibrate"
    if not grading:
        return "yes", "a judge picks, and none grades"
    return "yes", f"{', '.join(grading)}: raw and corrected rates stand side by side"


def _separation(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    picked = [e.aggregator for e in result.estimates if e.aggregator.startswith(("selected", "weighted_vote"))]
    if not picked:
        return "yes", "nothing is picked by a selector"
    if result.double_dipping:
        return "no", "the same judge or score picks and grades"
    # a column of scores says nothing of the model behind it; it may be the judge's
    named = [name for name in result.understood["selectors"] if name not in result.judges]
    if named and result.judges:
        return "unknown", f"selector `{named[0]}` came with the file, and nobody says which model made it"
    return "yes", "what picks and what grades differ"


def _segments(result: Result, options: GradingConfig) -> tuple[ChecklistAnswer, str]:
    if options.by:
        return "yes", f"by {', '.join(options.by)}"
    table = result.table
    tags = [] if table is None else [c.name for c in table.tags if 1 < c.n_unique() <= _SLICES * table.n_cases]
    if tags:
        return "no", f"cases have {', '.join(f'`{t}`' for t in tags[:3])}: --by shows them"
    return "unknown", "no field of the cases slices them"


def _spending(result: Result, _: GradingConfig) -> tuple[ChecklistAnswer, str]:
    missing = [name for name in ("cost", "seconds") if name not in result.diagnostics]
    if missing:
        return "no", f"candidates carry no {' and no '.join(missing)}"
    return "yes", "kofn curve shows what each further candidate costs and takes"


def _versions(_: Result, __: GradingConfig) -> tuple[ChecklistAnswer, str]:
    return "no", "nothing is kept of this: kofn score --out DIR writes hashes, versions and seeds to run.json"


def with_versioning(result: Result) -> tuple[ChecklistLine, ...]:
    """The checklist of a result that is written to a run directory, and so versioned."""
    judges = ["judges with their prompts"] if result.judges else []
    parts = ", ".join(["the data's hash", "packages", "seeds", *judges])
    return tuple(
        replace(line, answer="yes", reason=f"run.json holds {parts}") if line.item == VERSIONED else line
        for line in result.checklist
    )
