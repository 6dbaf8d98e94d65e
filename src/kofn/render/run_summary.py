"""A run in words: status, groups, failing cases, judges and their costs, files, what grading again changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from kofn.core.document import Grid, grid_lines
from kofn.core.escape import escape_controls, show_hidden
from kofn.core.format import (
    format_cost,
    format_count,
    format_duration,
    format_estimate,
    format_number,
    format_part,
    format_signed,
    format_signed_interval,
)
from kofn.errors import InputError
from kofn.runs.case_reports import EXECUTION, case_scores, decode_json
from kofn.runs.files import CANDIDATES, CASES, MANIFEST, PAGE, RESULTS
from kofn.runs.manifest import generation_of
from kofn.runs.run_tables import EVALUATION, REPORTS, evaluation_body
from kofn.scoring.configuration import GroupType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.runs.record import Run

PASSED, NOT_PASSED, HARNESS_FAILED, NO_VERDICT = "PASSED", "NOT PASSED", "HARNESS FAILED", "NO VERDICT"
LIMIT, MOST_GROUPS, MOST_ATTRIBUTES, TOP = 20, 30, 5, 5
_INPUT, _DIFF_LINE = 200, 300  # characters that are shown
_DIFF_LINES = 16


class Status(NamedTuple):
    """The run's verdict and its reason, and what makes the run incomplete: cases or candidates without a grade.

    Where nobody defined a verdict, the word says so.
    """

    word: str
    reason: str
    gaps: tuple[str, ...]

    @property
    def mark(self) -> str:
        return {PASSED: "✓", NO_VERDICT: "-"}.get(self.word, "✗")

    @property
    def defined(self) -> bool:
        return self.word != NO_VERDICT

    @property
    def ruling(self) -> str:
        """The verdict in one line."""
        return f"{self.mark} {self.word}{', incomplete' if self.gaps else ''}"


class GroupSummary(NamedTuple):
    """A group as the table shows it."""

    name: str
    type: GroupType
    weight: float
    score: float | None
    passed: int
    total: int
    unverified: int
    ruled: bool = True

    @property
    def mark(self) -> str:
        """✓ every case passes, ✗ some fail, ? none fails and some are unverified, - there is no case.

        Nothing in a run without a verdict: there no group has to pass.
        """
        if not self.ruled:
            return ""
        if not self.total:
            return "-"
        if self.passed + self.unverified < self.total:
            return "✗"
        return "?" if self.unverified else "✓"


class WrongAttribute(NamedTuple):
    """A wrong attribute; `expected` and `actual` are JSON texts."""

    name: str
    expected: str | None
    actual: str | None
    diff: str


class FailingCase(NamedTuple):
    """A case that fails. `fields` are what its report says of it: (name, JSON text)."""

    id: str
    group: str
    type: str
    score: float
    duration: float
    attributes: tuple[WrongAttribute, ...]
    n_attributes: int
    fields: tuple[tuple[str, str | None], ...]
    origin: str

    def about(self) -> tuple[str, str]:
        """Its input in one line, and what to call it; every field of the case where none is the input."""
        if (text := dict(self.fields).get("input")) is not None:
            return "input", " ".join(str(decode_stored(text)).split())
        given = [(name, text) for name, text in self.fields if text is not None and name not in EXECUTION]
        return "given", ", ".join(f"{name}={text}" for name, text in given)

    def execution(self) -> str:
        """How its program ran, in one line; of what it wrote the end, where errors are."""
        fields = [(name, text) for name, text in self.fields if text is not None and name in EXECUTION]
        words = [(name, " ".join(str(decode_stored(text)).split())) for name, text in fields]
        return ", ".join(f"{name}={text if len(text) <= _INPUT else '…' + text[-_INPUT:]}" for name, text in words)


def decode_stored(text: str | None) -> Any:
    """A stored JSON text's value, or one line that says which text is none."""
    try:
        return decode_json(text)
    except ValueError as problem:
        raise InputError(f"reports.parquet: {text!r:.60} is not JSON: {problem}") from None


def run_dict(run: Run, *, detailed: bool = False) -> dict[str, Any]:
    """evaluation.json's fields, the status, the estimates and what explains them; with `detailed` every case.

    A run that kofn generated has `generation` too.
    """
    status = status_of(run)
    nothing: dict[str, Any] = {**dict.fromkeys(("n_cases", "n_candidates", "n_missing")), "understood": {}}
    nothing |= {"estimates": [], "extraction": {}, "diagnostics": {}, "warnings": [], "coded_warnings": []}
    nothing |= {"judges": {}, "checklist": [], "told": []}
    return {
        **evaluation_body(run.evaluation),
        "headline": run.headline.to_dict(),
        "status": status.word.lower(),
        "reason": status.reason,
        "incomplete": list(status.gaps),
        **(nothing if run.result is None else run.result.to_dict()),
        **{name: run.manifest[name] for name in ("generation",) if name in run.manifest},
        **({"reports": _case_bodies(run)} if detailed else {}),
    }


def _case_bodies(run: Run) -> list[dict[str, Any]]:
    """The case reports with the score and verdict of each."""
    from orjson import Fragment

    def stored(text: str | None) -> Any:
        """A stored JSON text passed on as it is, so that an integer of a hundred digits stays one."""
        decode_stored(text)
        return None if text is None else Fragment(text)

    scores = case_scores(run.reports).select("score", "passed").iter_rows()
    return [
        {
            **{name: row[name] for name in ("id", "group", "type")},
            "timestamp": row["timestamp"].isoformat().replace("+00:00", "Z"),
            "duration": row["duration"],
            "passed": passed,
            "score": score,
            "results": {
                r["attribute"]: {
                    **{name: r[name] for name in ("is_correct", "weight")},
                    **{name: stored(r[name]) for name in ("expected", "actual")},
                    "diff": r["diff"],
                }
                for r in row["results"]
            },
            "case": {f["attribute"]: stored(f["value"]) for f in row["case"]},
            **{name: row[name] for name in ("original_checkpoint", "original_group")},
        }
        for row, (score, passed) in zip(run.reports.iter_rows(named=True), scores, strict=True)
    ]


def status_of(run: Run) -> Status:
    """Whether the run's own policy is met, and why; else the outcome of the last `kofn check`, if there was one."""
    evaluation = run.evaluation
    made = generation_of(run.manifest)
    gaps = [f"stopped: {made.stopped}"] if made is not None and made.stopped else []
    if evaluation.n_unverified:
        gaps.append(f"{evaluation.n_unverified:,} of {sum(evaluation.total_counts.values()):,} cases unverified")
    if run.result is not None and run.result.n_missing:
        gaps.append(f"{run.result.n_missing:,} of {run.result.n_candidates:,} candidates not graded")
    if evaluation.infrastructure_failure is not None:
        return Status(HARNESS_FAILED, f"no policy is met: {evaluation.infrastructure_failure}", tuple(gaps))
    if not run.defines_verdict:
        checks = run.checks
        if checks is None:
            return Status(NO_VERDICT, UNDEFINED, tuple(gaps))
        return Status(PASSED if checks["passed"] else NOT_PASSED, checks_sentence(checks), tuple(gaps))
    decision = evaluation.decide()
    return Status(PASSED if decision.passed else NOT_PASSED, decision.reason, tuple(gaps))


UNDEFINED = "no verdict is defined: give policy or verdict in the task, --policy or --verdict, or use kofn check"


def checks_sentence(checks: Mapping[str, Any]) -> str:
    """The outcome of a stored check in one line, with the requirements that are not met.

    >>> checks_sentence({"checks": [{"passed": False, "reason": "mean >= 0.9: 0.8"}, {"passed": True, "reason": "x"}]})
    'kofn check: 1 of 2 requirements not met: mean >= 0.9: 0.8'
    """
    failed = [str(one["reason"]) for one in checks["checks"] if not one["passed"]]
    of = format_count(len(checks["checks"]), "requirement")
    if not failed:
        return f"kofn check: {of} met"
    return f"kofn check: {len(failed)} of {of} not met: {'; '.join(failed)}"


def case_rule_sentence(run: Run) -> str:
    """How many cases pass, and by which rule; a case passes or not whether or not the run has a verdict."""
    e = run.evaluation
    passed, n = sum(e.pass_counts.values()), sum(e.total_counts.values())
    if not n:
        return "no cases"
    rule = f", each where {e.verdict}" if e.verdict else ""
    return f"{passed:,} of {format_count(n, 'case')} pass ({format_part(passed, n)}){rule}"


def facts_of(run: Run) -> list[tuple[str, str]]:
    """What a reader wants to know first: label and text, those that are known."""
    e = run.evaluation
    n, score = sum(e.total_counts.values()), e.score()
    types = [f"{t} {e.pass_counts.get(t, 0):,} of {e.total_counts[t]:,}" for t in GroupType if t in e.total_counts]
    spent = run.result.diagnostics.get("cost") if run.result is not None else None
    score_text = "undefined: nothing was verified" if score is None else format_number(score)
    time = f"{format_duration(e.duration)} total, {format_duration(e.duration / max(1, n))} per case"
    facts = [
        ("task", f"{cut_text(e.problem_name, _INPUT)}, version {e.problem_version}"),
        ("run", f"{cut_text(e.name, _INPUT)}, version {e.version}, {e.timestamp:%Y-%m-%d %H:%M:%S} UTC"),
        ("submission", cut_text(submission_of(run), _INPUT)),
        ("model", cut_text(_models(run), _INPUT)),
        ("tags", cut_text(", ".join(tags_of(run)), _INPUT)),
        ("cases", case_rule_sentence(run)) if run.result is not None else ("passed", _passed_fact(run)),
        ("by type", ", ".join(types) if len(types) > 1 or run.defines_verdict else ""),
        ("incomplete", "; ".join(status_of(run).gaps)),
        # the mean of group scores is no number of the table, so it stands only where a verdict is about it
        ("score", score_text if run.defines_verdict else ""),
        ("checked", _checks_fact(run)),
        ("time", time if e.duration and n else ""),
        ("cost", f"{format_cost(spent['total'])} total, {format_cost(spent['per_case'])} per case" if spent else ""),
    ]
    return [(label, text) for label, text in facts if text]


def _passed_fact(run: Run) -> str:
    """How many cases of programs pass."""
    passed, n = sum(run.evaluation.pass_counts.values()), sum(run.evaluation.total_counts.values())
    return f"{passed:,} of {n:,} cases ({format_part(passed, n)})" if n else "no cases"


def _checks_fact(run: Run) -> str:
    """When the run was last checked, and what was found."""
    checks = run.checks
    return "" if checks is None else cut_text(f"{checks['checked'][:16]}, {checks_sentence(checks)}", _INPUT)


def tags_of(run: Run) -> list[str]:
    """The words a run was given to be found by."""
    return [str(tag) for tag in run.manifest.get("tags") or ()]


def submission_of(run: Run) -> str:
    """What program a run verified, and which part of the cases where not all were; nothing for any other run."""
    fields = run.manifest.get("verify")
    if not isinstance(fields, Mapping):
        return ""
    name, part = str(fields.get("submission") or ""), fields.get("part")
    return f"{name} ({part})" if part else name


def first_difference(diff: str | None) -> str:
    """The first line of a diff that says something.

    >>> first_difference("--- expected\\n+++ found\\n@@ line 1 @@\\n-hello\\n+bye"), first_difference(None)
    ('-hello', '')
    """
    # not the headers of a unified diff
    lines = (line.strip() for line in (diff or "").splitlines() if not line.startswith(("---", "+++", "@@")))
    return next(filter(None, lines), "")


def _models(run: Run) -> str:
    made = generation_of(run.manifest)
    if made is None:
        return ""
    several = len(set(made.models.values())) > 1
    names = [f"{role} {name}" if several else name for role, name in made.models.items()]
    return ", ".join(dict.fromkeys(names)) + f", {made.mode} mode, seed {made.seed}"


def groups_of(run: Run, scores: pl.DataFrame) -> list[GroupSummary]:
    """The groups in their order."""
    counted = scores.group_by("group").agg(
        passed=pl.col("passed").sum(), total=pl.len(), unverified=pl.col("score").is_null().sum()
    )
    counts = {name: rest for name, *rest in counted.iter_rows()}
    return [
        GroupSummary(name, g.type, g.weight, g.score(), *(*counts.get(name, (0, 0, 0)), run.defines_verdict))
        for name, g in run.evaluation.group_outcomes.items()
    ]


def listed_groups(groups: list[GroupSummary]) -> list[GroupSummary]:
    """All of them; of very many the lowest, in their order."""
    if len(groups) <= MOST_GROUPS:
        return groups
    # False sorts before True: groups without a score come first
    lowest = sorted(range(len(groups)), key=lambda i: (groups[i].score is not None, groups[i].score or 0.0))
    return [groups[i] for i in sorted(lowest[:MOST_GROUPS])]


def group_grid(groups: list[GroupSummary], named: Callable[[str], str]) -> Grid:
    """A row a group; `named` shows its name."""
    gaps = any(g.unverified for g in groups)
    header = ("", "group", "type", "weight", "score", "passed", *(["unverified"] if gaps else []))
    rows = tuple(
        (
            g.mark,
            named(g.name),
            g.type.value,
            f"{g.weight:g}",
            format_number(g.score),
            f"{g.passed:,}/{g.total:,}",
            *([f"{g.unverified:,}"] if gaps else []),
        )
        for g in listed_groups(groups)
    )
    return Grid("", header, rows, tuple(i > 2 for i in range(len(header))))


def failing_of(run: Run, scores: pl.DataFrame, limit: int) -> tuple[list[FailingCase], int]:
    """The first `limit` cases that fail, Core first, and how many there are."""
    order = {t.value: i for i, t in enumerate(GroupType)}
    failing = scores.with_row_index("row").filter(pl.col("failing").list.len() > 0)
    # by the order of the types, which begins with Core; within a type as in the file
    first = failing.sort(pl.col("type").replace_strict(order, default=len(order)), maintain_order=True).head(limit)
    rows = run.reports[first["row"].to_list()]
    pairs = zip(first["score"].to_list(), rows.iter_rows(named=True), strict=True)
    return [_failing_case(score, row) for score, row in pairs], failing.height


def _failing_case(score: float, row: dict[str, Any]) -> FailingCase:
    wrong = [r for r in row["results"] or () if r["is_correct"] is False]
    return FailingCase(
        **{name: row[name] for name in ("id", "group", "type", "duration")},
        score=score,
        attributes=tuple(WrongAttribute(r["attribute"], r["expected"], r["actual"], r["diff"] or "") for r in wrong),
        n_attributes=len(row["results"] or ()),
        fields=tuple((f["attribute"], f["value"]) for f in row["case"] or ()),
        origin=", ".join(filter(None, (row["original_checkpoint"], row["original_group"]))),
    )


def slowest_of(scores: pl.DataFrame, top: int = TOP) -> pl.DataFrame:
    """The cases that took longest; none where no time is known."""
    return scores.filter(pl.col("duration") > 0).sort("duration", descending=True, maintain_order=True).head(top)


def failures_by(scores: pl.DataFrame, column: str) -> list[tuple[str, int]]:
    """How many cases fail by `type`, or by `failing`: by attribute. Most first."""
    failing = scores.filter(pl.col("failing").list.len() > 0).select(column)
    names = failing.explode(column) if column == "failing" else failing
    counts = names.group_by(column, maintain_order=True).len().sort("len", descending=True, maintain_order=True)
    return [(str(name), int(n)) for name, n in counts.iter_rows()]


EQUAL = "same rows"  # the label of the note on rows that are left out


def equal_notes(equals: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Which aggregators have no row of their own, because each equals one that has.

    >>> equal_notes({"mean": ["first", "any_pass"]})
    [('same rows', 'first and any_pass equal mean in every case')]
    """
    said = []
    for name, others in equals.items():
        *most, last = others
        named = f"{', '.join(most)} and {last}" if most else last
        said.append(f"{named} {'equal' if most else 'equals'} {name} in every case")
    return [(EQUAL, "; ".join(said))] if said else []


def files_of(run: Run) -> list[str]:
    """The files of a run that are there, in the order they are written about."""
    names = (MANIFEST, CANDIDATES, CASES, EVALUATION, REPORTS, RESULTS, PAGE)
    return [] if run.path is None else [name for name in names if (run.path / name).is_file()]


def split_text(text: str, most: int) -> tuple[str, int]:
    """The first `most` characters, and how many are left out."""
    return (text, 0) if len(text) <= most else (text[:most], len(text) - most)


def cut_note(left_out: int) -> str:
    """What stands where text was cut."""
    return f"… {format_count(left_out, 'character')} left out"


def cut_text(text: str, most: int) -> str:
    """The first `most` characters, with a note where there are more."""
    head, left = split_text(text, most)
    return head + (cut_note(left) if left else "")


def cut_diff(diff: str) -> tuple[list[str], int]:
    """The first lines of a diff, long ones ending in …, and how many characters are left out.

    >>> cut_diff("-a\\n+" + 400 * "b" + "\\n")[1]
    101
    """
    whole = diff.rstrip("\n")
    lines = whole.split("\n")[:_DIFF_LINES]
    kept = [line[:_DIFF_LINE] for line in lines]
    short_lines = [short if short == line else short + "…" for short, line in zip(kept, lines, strict=True)]
    return short_lines, len(whole) - len("\n".join(kept))


_NAME, _SENTENCE = 120, 600  # characters of a name and of a note
NOT_CORRECTED = "not corrected"


def judge_rows(run: Run) -> list[dict[str, str]]:
    """A row a judge, in words."""
    rows = []
    for name, judge in ({} if run.result is None else run.result.judges).items():
        row = {
            "name": cut_text(name, _NAME),
            "models": cut_text(", ".join(judge["models"]), _NAME),
            "rubric": cut_text(f"{judge['rubric']} version {judge['version']}, {judge['scale']}", _NAME),
            "missing": f"{judge['n_not_graded']:,}",
            # runs judged before costs were kept have none
            "cost": "unknown" if judge.get("cost") is None else format_cost(judge["cost"]),
        }
        if (found := judge.get("calibration")) is None:
            row |= {"raw": _raw(name, run), "corrected": NOT_CORRECTED, "rates": "", "note": ""}
        else:
            rates = ", ".join(_estimate(found[rate]) for rate in ("sensitivity", "specificity"))
            row |= {"raw": _estimate(found["raw"]), "corrected": _estimate(found["corrected"])}
            row |= {
                "rates": f"{rates}; {found['n_labels']:,} labels",
                "note": cut_text(found.get("note", ""), _SENTENCE),
            }
        rows.append(row)
    return rows


def _raw(name: str, run: Run) -> str:
    """The first number that the judge gave, with what it is."""
    own = [e for e in run.scored_result.estimates if e.metric == name and e.segment is None]
    first = next((e for e in own if e.aggregator == "mean"), own[0] if own else None)
    return f"{first.aggregator} {format_estimate(first.point, first.low, first.high)}" if first else "picks only"


def _estimate(judge: Mapping[str, Any]) -> str:
    """
    >>> _estimate({"point": 0.5, "low": 0.4, "high": 0.6, "clipped": True}), _estimate({"point": None})
    ('0.500 [0.400, 0.600] (clipped)', 'undefined')
    """
    text = format_estimate(judge.get("point"), judge.get("low"), judge.get("high"))
    return f"{text} (clipped)" if judge.get("clipped") else text


_SHOWN = 5  # examples in a terminal; the page shows all that run.json keeps
_ANSWER = 40


def parent_lines(parent: Mapping[str, Any] | None, style: Callable[[str, str], str], most: int = _SHOWN) -> list[str]:
    """The changes as lines of text; nothing for a run without a parent."""
    if not parent:
        return []
    out = [style(f"graded again from {escape_controls(parent['name'])}", "strong")]
    for one in parent["changes"]:
        out += [escape_controls(change_summary(one)), *grid_lines(_numbers(one), style)]
        if one["examples"]:
            out += ["", *grid_lines(_examples(one, most), style)]
            more = _n_moved(one) - min(most, len(one["examples"]))
            out += [style(f"and {more:,} more in changes.parquet", "dim")] if more > 0 else []
    return out


def parent_data(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page shows of a parent; None for a run without one."""
    parent = manifest.get("parent")
    if not parent:
        return None
    parts = [
        {
            "summary": change_summary(one),
            "grids": [g for g in (_numbers(one), _examples(one, len(one["examples"]))) if g.rows],
        }
        for one in parent["changes"]
    ]
    return {"name": parent["name"], "created": parent["created"], "parts": parts}


def change_summary(change: Mapping[str, Any]) -> str:
    """One sentence: how many verdicts changed, and how.

    >>> change_summary({"before": "pass", "after": "numeric", "n": 8, "n_answers": 3,
    ...          "moved": [{"before": "pass", "after": "fail", "n": 2}]})
    'pass -> numeric: 2 of 8 candidates changed: 2 from pass to fail; 3 answers differ'
    """
    moves = ", ".join(f"{m['n']:,} from {m['before']} to {m['after']}" for m in change["moved"])
    which = change["after"] if change["before"] == change["after"] else f"{change['before']} -> {change['after']}"
    candidates, answers = format_count(change["n"], "candidate"), change["n_answers"]
    said = f"{_n_moved(change):,} of {candidates} changed: {moves}" if moves else f"no verdict of {candidates} changed"
    # the "s" is of the verb: 1 answer differs, 2 answers differ
    differ = f"; {format_count(answers, 'answer')} differ{'s' * (answers == 1)}" if answers else ""
    return f"{which}: {said}{differ}"


def _n_moved(change: Mapping[str, Any]) -> int:
    return sum(m["n"] for m in change["moved"])


def _numbers(change: Mapping[str, Any]) -> Grid:
    rows = []
    for name, n in change["numbers"].items():
        values = (format_number(n["a"]), format_number(n["b"]), format_signed(n["difference"]))
        rows.append((name, *values, format_signed_interval(n["low"], n["high"]), f"{n['wins']}/{n['losses']}"))
    header = ("aggregator", "before", "after", "change", "interval", "cases up/down")
    return Grid("", header, tuple(rows), (False, True, True, True, False, True))


def _examples(change: Mapping[str, Any], most: int) -> Grid:
    words = {True: "pass", False: "fail", None: "not graded"}
    rows = [
        (
            _answer(str(row["case_id"])),
            str(row["index"] + 1),
            _answer(row["answer_before"]),
            _answer(row["answer_after"]),
            f"{words[row['passed_before']]} -> {words[row['passed_after']]}",
        )
        for row in change["examples"][:most]
    ]
    header = ("case", "candidate", "answer before", "answer after", "verdict")
    return Grid("", header, tuple(rows), (False, True, False, False, False))


def _answer(answer: str | None) -> str:
    if answer is None:
        return "none"
    flat = show_hidden(" ".join(answer.split()))
    return flat if len(flat) <= _ANSWER else f"{flat[: _ANSWER - 1]}…"
