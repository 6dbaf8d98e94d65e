"""Label sheets: which judged rows people label, drawn by verdict, as CSV, JSON lines, or a page in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from markupsafe import Markup

from kofn.errors import InputError
from kofn.judge.labels import DANGEROUS, picked_rows
from kofn.judge.rubric import rubric_question
from kofn.render.page import environment, html_document, read_template

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from kofn.judge.labels import LabelRows, VerdictRows
    from kofn.runs.load import GradedCandidates


@dataclass(frozen=True, kw_only=True)
class LabelSample:
    """What is to be labelled: a mapping a row; `texts` is the column of outputs, one text or a list of them."""

    rows: tuple[dict[str, Any], ...]
    of: str
    n_passing: int
    n_failing: int
    n_left: int
    question: str = "Is this output good?"


def draw_label_sheet(
    verdicts: VerdictRows,
    n: int,
    *,
    candidates: bool = False,
    selected: bool = False,
    selector: str | None = None,
    question: str | None = None,
    seed: int = 0,
) -> LabelSample:
    """n things drawn at random, half of those the judge passes and half of those it fails, as far as there are.

    `selected` draws from what a selector picks, one candidate a case: a spot check of what people are shown. Its labels
    are of cases (the pick's place is in `picked`): they correct the rate of the picks, not that of all candidates. The
    weight of a row is how many things it stands for, N_v/n_v. Things the judge did not grade are never drawn.
    `question` is what people are asked; that of the judge's rubric unless given.
    """
    if n < 1:
        raise InputError(f"--sample {n}: expected how many to label, at least 1")
    rows = verdicts.candidates if candidates or selected else (verdicts.sets or verdicts.candidates)
    if rows is None or rows.judge is None:
        raise InputError(f"{verdicts.name} has one verdict a case: there are no candidates to draw from")
    pool = picked_rows(verdicts, selector) if selected else np.arange(len(rows))
    values = rows.judge[pool]
    drawn, weights = draw_by_verdict(values, n, seed)
    at = pool[drawn]
    filled = tuple(
        _sheet_row(verdicts.graded, rows, int(place), float(weight), selected=selected)
        for place, weight in zip(at, weights, strict=True)
    )
    passing = int((rows.judge[at] == 1).sum())
    return LabelSample(
        rows=filled,
        of="candidate" if rows.of_candidates and not selected else "case",
        n_passing=passing,
        n_failing=at.size - passing,
        n_left=int(np.isfinite(values).sum()) - at.size,
        question=question
        or question_for(None if rows.of_candidates else verdicts.aggregate, _rubric_question(verdicts)),
    )


def _rubric_question(verdicts: VerdictRows) -> str:
    judges = {} if verdicts.graded is None else verdicts.graded.result.judges
    return rubric_question(judges.get(verdicts.metric, {}))


def question_for(aggregate: str | None, rubric: str = "") -> str:
    """What people are asked about one output (aggregate None) or about a set, by what makes it pass.

    `rubric` is the question of the judge's rubric about one output, where there is one.

    >>> question_for("any_pass"), question_for(None)
    ('Is at least one of these outputs good?', 'Is this output good?')
    >>> question_for("all_pass", "Is the summary faithful?")
    'For every one of these outputs: Is the summary faithful?'
    """
    if aggregate is None:
        return rubric or "Is this output good?"
    if rubric:
        sets = {"any_pass": "For at least one of these outputs", "all_pass": "For every one of these outputs"}
        return f"{sets.get(aggregate, f'For this set of outputs, by {aggregate}')}: {rubric}"
    known = {"any_pass": "Is at least one of these outputs good?", "all_pass": "Are all of these outputs good?"}
    return known.get(aggregate, f"Is this set of outputs good, by {aggregate}?")


def draw_by_verdict(verdicts: NDArray[np.float64], n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Places of n verdicts, half of each kind as far as there are, and the weight of each.

    Their order tells nothing of the verdict.

    >>> places, weights = draw_by_verdict(np.array([1.0, 1, 1, 1, 0, np.nan]), 4, seed=0)
    >>> len(places), sorted(weights.tolist())
    (4, [1.0, 1.3333333333333333, 1.3333333333333333, 1.3333333333333333])
    """
    rng = np.random.default_rng(seed)
    passed, failed = (rng.permutation(np.flatnonzero(verdicts == v)) for v in (1, 0))
    if not passed.size + failed.size:
        raise InputError("nothing to draw from: the judge has graded nothing")
    from_passed = min(max(n - n // 2, n - failed.size), passed.size)
    from_failed = min(n - from_passed, failed.size)
    weights = np.repeat(
        [passed.size / max(from_passed, 1), failed.size / max(from_failed, 1)], [from_passed, from_failed]
    )
    drawn = np.concatenate([passed[:from_passed], failed[:from_failed]])
    # another stream than the drawing: with the same one the order would depend on what was drawn
    order = np.random.default_rng([seed, 1]).permutation(drawn.size)
    return drawn[order], weights[order]


def _sheet_row(
    graded: GradedCandidates | None, rows: LabelRows, place: int, weight: float, *, selected: bool
) -> dict[str, Any]:
    """One thing to label, with whatever is known of it."""
    index = None if rows.indices is None else rows.indices[place]
    about = {"id": rows.ids[place], **({} if index is None else {"picked" if selected else "index": index})}
    displayed = {} if graded is None else _displayed_fields(graded, rows.ids[place], index)
    fields = {
        name: column[place] for name, column in rows.fields.items() if name not in displayed and name not in about
    }
    about |= {} if rows.clusters is None else {"cluster": rows.clusters[place]}
    return {
        **about,
        **displayed,
        **fields,
        "judge": int(rows.judge_values[place]),
        "weight": round(weight, 6),
        "human": None,
    }


def _displayed_fields(graded: GradedCandidates, case: str, index: int | None) -> dict[str, Any]:
    """Input, output or outputs, and reference of a case."""
    table = graded.table
    at = graded.result.scored[0].sets.case_ids.index_of(case)
    assert at is not None
    low, high = int(table.offsets[at]), int(table.offsets[at + 1])
    texts = (
        table.candidates["text"][low:high].to_list() if "text" in table.candidates.columns else [None] * (high - low)
    )
    references = next(
        (f["reference"][i] for f, i in ((table.cases, at), (table.candidates, low)) if "reference" in f.columns), None
    )
    if references is not None and not isinstance(references, str):
        references = " | ".join(references.to_list())
    case_input = table.cases["input"][at] if "input" in table.cases.columns else None
    output = {"outputs": texts} if index is None else {"output": texts[index]}
    return {"input": case_input, **output, "reference": references}


SHEET_SUFFIXES = (".csv", ".jsonl", ".html")


def write_sheet(sheet: LabelSample, path: Path, name: str) -> None:
    """Write CSV, JSON lines or a page, by the suffix."""
    suffix = path.suffix.lower()
    if suffix not in SHEET_SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {', '.join(SHEET_SUFFIXES)}")
    if suffix == ".html":
        path.write_text(labelling_page(sheet, name), encoding="utf-8")
    elif suffix == ".csv":
        path.write_text(csv_text(sheet.rows), encoding="utf-8", newline="")
    else:
        path.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in sheet.rows))


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """CSV in which no cell is a formula; several outputs stand one below the other, numbered.

    >>> csv_text([{"id": "q1", "outputs": ["a", "b"], "human": None}]).splitlines()
    ['id,outputs,human', 'q1,"[1]', 'a', '', '[2]', 'b",']
    """
    import csv
    import io

    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if name != "human"] + ["human"]
    out = io.StringIO()
    writer = csv.writer(out)  # lines end as RFC 4180 says, so that a lone carriage return in a cell is quoted
    writer.writerow([guard_formula(name) for name in names])
    writer.writerows([[guard_formula(_cell(row.get(name))) for name in names] for row in rows])
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "\n\n".join(f"[{i}]\n{'' if text is None else text}" for i, text in enumerate(value, 1))
    return "" if value is None else str(value)


def guard_formula(cell: str) -> str:
    """A cell that a spreadsheet does not take for a formula: a quote before = + - @, a tab or a line break.

    A quote is put before a quote as well, so that reading takes away exactly what was put there.

    >>> guard_formula("=HYPERLINK(1)"), guard_formula("plain"), guard_formula("-5")
    ("'=HYPERLINK(1)", 'plain', "'-5")
    """
    return f"'{cell}" if cell.startswith((*DANGEROUS, "'")) else cell


SHOWN = ("input", "output", "outputs", "reference")
HIDDEN = ("id", "index", "judge", "weight", "cluster")  # kept in the file of labels, not shown among the tags


def labelling_page(sheet: LabelSample, name: str) -> str:
    """The page. The judge's verdict is in it for the file it saves, and is hidden until somebody asks to see it."""
    rows = [_packed(row) for row in sheet.rows]
    data = orjson.dumps({"name": name, "of": sheet.of, "rows": rows})
    key = sha256(data).hexdigest()[:16]
    template = environment().get_template("label.html.j2")
    body = template.render(name=name, question=sheet.question, n=len(rows), key=key, of=sheet.of)
    return html_document(
        title=f"label {name} · kofn",
        body=Markup(body),  # noqa: S704 - the template escapes
        scripts=[read_template("label.js")],
        blocks={"rows": data},
    )


def _packed(row: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a row, and what goes into its label."""
    kept = {name: value for name, value in row.items() if name not in (*SHOWN, "human") and value is not None}
    return {
        "keep": kept,
        "shown": {name: row[name] for name in SHOWN if row.get(name) is not None},
        "tags": {name: str(value) for name, value in kept.items() if name not in HIDDEN},
    }
