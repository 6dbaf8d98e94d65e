"""What there is to say of a run, for every form of its report.

Case reports stay columns: objects are made only of the cases that are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from kofn.errors import InputError
from kofn.policy import GroupType
from kofn.report.frames import decode
from kofn.report.generation import generation_of
from kofn.report.results import EXECUTION

if TYPE_CHECKING:
    from kofn.report.run import Run

PASSED, NOT_PASSED, HARNESS_FAILED = "PASSED", "NOT PASSED", "HARNESS FAILED"
LIMIT, MOST_GROUPS, MOST_ATTRIBUTES, TOP = 20, 30, 5, 5
_VALUE, _INPUT, _DIFF_LINE, _FAILURE = 240, 200, 300, 400  # characters that are shown
_DIFF_LINES = 16
_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


class Status(NamedTuple):
    """How the run ended, the policy's reason, and what makes it incomplete: cases or candidates without a verdict."""

    word: str
    reason: str
    gaps: tuple[str, ...]

    @property
    def mark(self) -> str:
        return "✓" if self.word == PASSED else "✗"


class Group(NamedTuple):
    """A group as the table shows it."""

    name: str
    type: GroupType
    weight: float
    score: float | None
    passed: int
    total: int
    unverified: int

    @property
    def mark(self) -> str:
        """✓ every case passes, ✗ some fail, ? none fails and some are unverified, - there is no case."""
        if not self.total:
            return "-"
        if self.passed + self.unverified < self.total:
            return "✗"
        return "?" if self.unverified else "✓"


class Attribute(NamedTuple):
    """A wrong attribute; `expected` and `actual` are JSON texts."""

    name: str
    expected: str | None
    actual: str | None
    diff: str


class Failing(NamedTuple):
    """A case that fails. `told` is what the report tells of it: (name, JSON text)."""

    id: str
    group: str
    type: str
    score: float
    duration: float
    attributes: tuple[Attribute, ...]
    n_attributes: int
    told: tuple[tuple[str, str | None], ...]
    origin: str

    def about(self) -> tuple[str, str]:
        """Its input in one line, and what to call it; every field of the case where none is the input."""
        if (text := dict(self.told).get("input")) is not None:
            return "input", " ".join(str(decoded(text)).split())
        given = [(name, text) for name, text in self.told if text is not None and name not in EXECUTION]
        return "given", ", ".join(f"{name}={text}" for name, text in given)

    def ran(self) -> str:
        """How its program ran, in one line; of what it wrote the end, where errors are."""
        told = [(name, text) for name, text in self.told if text is not None and name in EXECUTION]
        words = [(name, " ".join(str(decoded(text)).split())) for name, text in told]
        return ", ".join(f"{name}={text if len(text) <= _INPUT else '…' + text[-_INPUT:]}" for name, text in words)


class Edge(NamedTuple):
    """A case of whose candidates some pass and some do not."""

    id: str
    group: str
    case_passes: bool
    passing: int
    graded: int
    candidates: str


def decoded(text: str | None) -> Any:
    """A stored JSON text's value, or one line that says which text is none."""
    try:
        return decode(text)
    except ValueError as problem:
        raise InputError(f"reports.parquet: {text!r:.60} is not JSON: {problem}") from None


def status_of(run: Run) -> Status:
    """Whether the run's own policy is met, and why."""
    evaluation = run.evaluation
    made = generation_of(run.manifest)
    gaps = [f"stopped: {made.stopped}"] if made is not None and made.stopped else []
    if evaluation.n_unverified:
        gaps.append(f"{evaluation.n_unverified:,} of {sum(evaluation.total_counts.values()):,} cases unverified")
    if run.result is not None and run.result.n_missing:
        gaps.append(f"{run.result.n_missing:,} of {run.result.n_candidates:,} candidates not graded")
    if evaluation.infrastructure_failure is not None:
        return Status(HARNESS_FAILED, f"no policy is met: {evaluation.infrastructure_failure}", tuple(gaps))
    decision = evaluation.decide()
    return Status(PASSED if decision.passed else NOT_PASSED, decision.reason, tuple(gaps))


def facts_of(run: Run) -> list[tuple[str, str]]:
    """What a reader wants to know first: label and text, those that are known."""
    e = run.evaluation
    n, score = sum(e.total_counts.values()), e.score()
    passed = sum(e.pass_counts.values())
    types = [f"{t} {e.pass_counts.get(t, 0):,} of {e.total_counts[t]:,}" for t in GroupType if t in e.total_counts]
    spent = run.result.diagnostics.get("cost") if run.result is not None else None
    facts = [
        ("task", f"{cut_text(e.problem_name, _INPUT)}, version {e.problem_version}"),
        ("run", f"{cut_text(e.name, _INPUT)}, version {e.version}, {e.timestamp:%Y-%m-%d %H:%M:%S} UTC"),
        ("submission", cut_text(submission_of(run), _INPUT)),
        ("model", cut_text(_models(run), _INPUT)),
        ("tags", cut_text(", ".join(tags_of(run)), _INPUT)),
        ("passed", f"{passed:,} of {n:,} cases ({percent(passed, n)})" if n else "no cases"),
        ("by type", ", ".join(types)),
        ("incomplete", "; ".join(status_of(run).gaps)),
        ("verdict", f"a case passes where {e.verdict}" if e.verdict else ""),
        ("score", "undefined: nothing was verified" if score is None else number(score)),
        ("time", f"{duration(e.duration)} in all, {duration(e.duration / n)} a case" if e.duration and n else ""),
        ("cost", f"{spent['total']:,.4g} in all, {spent['per_case']:,.4g} a case" if spent else ""),
    ]
    return [(label, text) for label, text in facts if text]


def tags_of(run: Run) -> list[str]:
    """The words a run was given to be found by."""
    return [str(tag) for tag in run.manifest.get("tags") or ()]


def submission_of(run: Run) -> str:
    """What program a run verified, and which part of the cases where not all were; nothing for any other run."""
    told = run.manifest.get("verify")
    if not isinstance(told, Mapping):
        return ""
    name, part = str(told.get("submission") or ""), told.get("part")
    return f"{name} ({part})" if part else name


def first_difference(diff: str | None) -> str:
    """The first line of a diff that says something.

    >>> first_difference("--- expected\\n+++ found\\n@@ line 1 @@\\n-hello\\n+bye"), first_difference(None)
    ('-hello', '')
    """
    lines = (line.strip() for line in (diff or "").splitlines() if not line.startswith(("---", "+++", "@@")))
    return next(filter(None, lines), "")


def _models(run: Run) -> str:
    made = generation_of(run.manifest)
    if made is None:
        return ""
    several = len(set(made.models.values())) > 1
    names = [f"{role} {name}" if several else name for role, name in made.models.items()]
    return ", ".join(dict.fromkeys(names)) + f", {made.mode} mode, seed {made.seed}"


def groups_of(run: Run, scores: pl.DataFrame) -> list[Group]:
    """The groups in their order."""
    counted = scores.group_by("group").agg(
        passed=pl.col("passed").sum(), total=pl.len(), unverified=pl.col("score").is_null().sum()
    )
    counts = {name: rest for name, *rest in counted.iter_rows()}
    return [
        Group(name, g.type, g.weight, g.score(), *counts.get(name, (0, 0, 0)))
        for name, g in run.evaluation.group_outcomes.items()
    ]


def shown_groups(groups: list[Group]) -> list[Group]:
    """All of them; of very many the lowest, in their order."""
    if len(groups) <= MOST_GROUPS:
        return groups
    lowest = sorted(range(len(groups)), key=lambda i: (groups[i].score is not None, groups[i].score or 0.0))
    return [groups[i] for i in sorted(lowest[:MOST_GROUPS])]


def failing_of(run: Run, scores: pl.DataFrame, limit: int) -> tuple[list[Failing], int]:
    """The first `limit` cases that fail, Core first, and how many there are."""
    order = {t.value: i for i, t in enumerate(GroupType)}
    failing = scores.with_row_index("row").filter(pl.col("failing").list.len() > 0)
    first = failing.sort(pl.col("type").replace_strict(order, default=len(order)), maintain_order=True).head(limit)
    rows = run.reports[first["row"].to_list()]
    pairs = zip(first["score"].to_list(), rows.iter_rows(named=True), strict=True)
    return [_failing(score, row) for score, row in pairs], failing.height


def _failing(score: float, row: dict[str, Any]) -> Failing:
    wrong = [r for r in row["results"] or () if r["is_correct"] is False]
    origin = [text for text in (row["original_checkpoint"], row["original_group"]) if text]
    return Failing(
        row["id"],
        row["group"],
        row["type"],
        score,
        row["duration"],
        tuple(Attribute(r["attribute"], r["expected"], r["actual"], r["diff"] or "") for r in wrong),
        len(row["results"] or ()),
        tuple((f["attribute"], f["value"]) for f in row["case"] or ()),
        ", ".join(origin),
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


def edge_of(run: Run, scores: pl.DataFrame, top: int = TOP) -> tuple[list[Edge], int]:
    """The cases that pass with some candidates and fail with others, nearest to half first, and how many there are.

    Another draw of candidates may turn these. Nothing for runs without candidates, or with one a case.
    """
    scored = run.result.scored if run.result is not None else ()
    if not scored or not scored[0].metric or len(scored[0].sets) != scores.height:
        return [], 0
    sets = scored[0].sets
    graded, passing = sets.counts
    mixed = np.flatnonzero((passing > 0) & (passing < graded))
    near = mixed[np.argsort(np.abs(2 * passing[mixed] - graded[mixed]) / graded[mixed], kind="stable")][:top]
    marks = {1: "✓", 0: "✗", -1: "?"}
    return [
        Edge(
            str(scores["id"][i]),
            str(scores["group"][i]),
            bool(scores["passed"][i]),
            int(passing[i]),
            int(graded[i]),
            "".join(marks[p] for p in sets.passes[sets.offsets[i] : sets.offsets[i + 1]].tolist()),
        )
        for i in near.tolist()
    ], len(mixed)


def files_of(run: Run) -> list[str]:
    """The files of a run that are there, in the order they are written about."""
    from kofn.report.evaluation import EVALUATION, REPORTS
    from kofn.report.files import CANDIDATES, CASES, MANIFEST, PAGE, RESULTS

    names = (MANIFEST, CANDIDATES, CASES, EVALUATION, REPORTS, RESULTS, PAGE)
    return [] if run.path is None else [name for name in names if (run.path / name).is_file()]


def number(value: float | None) -> str:
    """Three digits after the point; a zero has no sign.

    >>> number(0.8333), number(-0.0), number(None)
    ('0.833', '0.000', '-')
    """
    return "-" if value is None else f"{value + 0.0:.3f}"


def percent(part: int, whole: int) -> str:
    """A share, never rounded to all or to nothing.

    >>> percent(37, 60), percent(9999, 10000), percent(0, 9)
    ('61.7 %', '>99.9 %', '0.0 %')
    """
    shown = f"{100 * part / whole:.1f}"
    if part < whole and shown == "100.0":
        return ">99.9 %"
    return "<0.1 %" if part and shown == "0.0" else f"{shown} %"


def duration(seconds: float) -> str:
    """Seconds as people say them, in at most two units.

    >>> duration(0.0042), duration(4.837), duration(290.2), duration(8000)
    ('4.2 ms', '4.84 s', '4 min 50 s', '2 h 13 min')
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    for large, name, small, rest in _UNITS:
        whole = round(seconds / small)
        if whole * small >= large:
            return f"{whole * small // large} {name} {whole * small % large // small} {rest}"
    return f"{seconds:.0f} s"


def cut(text: str, most: int) -> tuple[str, int]:
    """The first `most` characters, and how many are left out."""
    return (text, 0) if len(text) <= most else (text[:most], len(text) - most)


def cut_note(left_out: int) -> str:
    """What stands where text was cut."""
    return f"… {left_out:,} character{'' if left_out == 1 else 's'} left out"


def cut_text(text: str, most: int) -> str:
    """The first `most` characters, with a note where there are more."""
    shown, left = cut(text, most)
    return shown + (cut_note(left) if left else "")


def cut_diff(diff: str) -> tuple[list[str], int]:
    """The first lines of a diff, long ones ending in …, and how many characters are left out.

    >>> cut_diff("-a\\n+" + 400 * "b" + "\\n")[1]
    101
    """
    whole = diff.rstrip("\n")
    lines = whole.split("\n")[:_DIFF_LINES]
    kept = [line[:_DIFF_LINE] for line in lines]
    shown = [short if short == line else short + "…" for short, line in zip(kept, lines, strict=True)]
    return shown, len(whole) - len("\n".join(kept))
