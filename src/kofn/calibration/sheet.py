"""A sheet for people to label: cases or candidates drawn by verdict, with what they need to decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.calibration.labels import DANGEROUS
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from kofn.calibration.judged import Judged
    from kofn.calibration.labels import Rows
    from kofn.opened import Opened
    from kofn.sets import CandidateSets

FORMS = (".csv", ".jsonl", ".html")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What is to be labelled: a mapping a row; `texts` is the column of outputs, one text or a list of them."""

    rows: tuple[dict[str, Any], ...]
    of: str
    n_passing: int
    n_failing: int
    n_left: int
    question: str = "Is this output good?"


def drawn_sheet(
    judged: Judged,
    n: int,
    *,
    candidates: bool = False,
    selected: bool = False,
    selector: str | None = None,
    seed: int = 0,
) -> Sheet:
    """n things drawn at random, half of those the judge passes and half of those it fails, as far as there are.

    `selected` draws from what a selector picks, one candidate a case: a spot check of what people are shown. Its labels
    are of cases (the pick's place is in `picked`): they correct the rate of the picks, not that of all candidates. The
    weight of a row is how many things it stands for, N_v/n_v. Things the judge did not grade are never drawn.
    """
    if n < 1:
        raise InputError(f"--sample {n}: expected how many to label, at least 1")
    rows = judged.candidates if candidates or selected else (judged.sets or judged.candidates)
    if rows is None or rows.judge is None:
        raise InputError(f"{judged.name} has one verdict a case: there are no candidates to draw from")
    pool = picks_of(judged, selector) if selected else np.arange(len(rows))
    verdicts = rows.judge[pool]
    chosen, weights = drawn(verdicts, n, seed)
    at = pool[chosen]
    filled = tuple(
        _row(judged.opened, rows, int(place), float(weight), selected=selected)
        for place, weight in zip(at, weights, strict=True)
    )
    passing = int((rows.judge[at] == 1).sum())
    return Sheet(
        rows=filled,
        of="candidate" if rows.of_candidates and not selected else "case",
        n_passing=passing,
        n_failing=at.size - passing,
        n_left=int(np.isfinite(verdicts).sum()) - at.size,
        question=question_of(None if rows.of_candidates else judged.aggregate),
    )


def question_of(aggregate: str | None) -> str:
    """What people are asked of a set, by what makes it pass, or of one output.

    >>> question_of("any_pass"), question_of(None)
    ('Is at least one of these outputs good?', 'Is this output good?')
    """
    known = {
        None: "Is this output good?",
        "any_pass": "Is at least one of these outputs good?",
        "all_pass": "Are all of these outputs good?",
    }
    return known.get(aggregate, f"Is this set of outputs good, by {aggregate}?")


def drawn(verdicts: NDArray[np.float64], n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """As `by_verdict`, in an order that tells nothing of the verdict."""
    chosen, weights = by_verdict(verdicts, n, seed)
    order = np.random.default_rng([seed, 1]).permutation(chosen.size)
    return chosen[order], weights[order]


def by_verdict(verdicts: NDArray[np.float64], n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Places of n verdicts, half of each kind as far as there are, and the weight of each.

    >>> places, weights = by_verdict(np.array([1.0, 1, 1, 1, 0, np.nan]), 4, seed=0)
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
    return np.concatenate([passed[:from_passed], failed[:from_failed]]), weights


def picks_of(judged: Judged, name: str | None) -> NDArray[np.intp]:
    """The row each set's selector ranks first; the first of those that tie; no row where nothing can be picked."""
    if judged.scored is None:
        raise InputError("--selected needs a run or a file of outputs: plain verdicts have no selector")
    sets = judged.scored.sets
    if name is None:
        if len(sets.selectors) != 1:
            known = ", ".join(sets.selectors) or "vote, length, first"
            raise InputError(f"--selected: which selector? give --by-selector, such as {known}")
        name = next(iter(sets.selectors))
    return picks(sets, name)


def picks(sets: CandidateSets, name: str) -> NDArray[np.intp]:
    """The row of each set that a selector ranks first, as `picks_of` has them."""
    from kofn.selectors import Selector

    scores = Selector(name=name, by=name).scores(sets)
    ranked = np.where(np.isnan(scores), -np.inf, scores)
    found = [
        low + int(np.argmax(ranked[low:high]))
        for low, high in zip(sets.offsets, sets.offsets[1:], strict=False)
        if high > low
    ]
    return np.array([place for place in found if np.isfinite(scores[place])], dtype=np.intp)


def _row(opened: Opened | None, rows: Rows, place: int, weight: float, *, selected: bool) -> dict[str, Any]:
    """One thing to label, with whatever is known of it."""
    index = None if rows.indices is None else rows.indices[place]
    assert rows.judge is not None
    about = {"id": rows.ids[place], **({} if index is None else {"picked" if selected else "index": index})}
    shown = {} if opened is None else _shown(opened, rows.ids[place], index)
    fields = {name: column[place] for name, column in rows.fields.items() if name not in shown and name not in about}
    about |= {} if rows.clusters is None else {"cluster": rows.clusters[place]}
    return {**about, **shown, **fields, "judge": int(rows.judge[place]), "weight": round(weight, 6), "human": None}


def _shown(opened: Opened, case: str, index: int | None) -> dict[str, Any]:
    """Input, output or outputs, and reference of a case."""
    table = opened.table
    at = opened.result.scored[0].sets.case_ids.index_of(case)
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
    given = table.cases["input"][at] if "input" in table.cases.columns else None
    output = {"outputs": texts} if index is None else {"output": texts[index]}
    return {"input": given, **output, "reference": references}


def write_sheet(sheet: Sheet, path: Path, name: str) -> None:
    """Write CSV, JSON lines or a page, by the suffix."""
    suffix = path.suffix.lower()
    if suffix not in FORMS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(FORMS)}")
    if suffix == ".html":
        from kofn.calibration.page import labelling_page

        path.write_text(labelling_page(sheet, name), encoding="utf-8")
    elif suffix == ".csv":
        path.write_text(as_csv(sheet.rows), encoding="utf-8", newline="")
    else:
        import orjson

        path.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in sheet.rows))


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """CSV in which no cell is a formula; several outputs stand one below the other, numbered.

    >>> as_csv([{"id": "q1", "outputs": ["a", "b"], "human": None}]).splitlines()
    ['id,outputs,human', 'q1,"[1]', 'a', '', '[2]', 'b",']
    """
    import csv
    import io

    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if name != "human"] + ["human"]
    out = io.StringIO()
    writer = csv.writer(out)  # lines end as RFC 4180 says, so that a lone carriage return in a cell is quoted
    writer.writerow([guarded(name) for name in names])
    writer.writerows([[guarded(_cell(row.get(name))) for name in names] for row in rows])
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "\n\n".join(f"[{i}]\n{'' if text is None else text}" for i, text in enumerate(value, 1))
    return "" if value is None else str(value)


def guarded(cell: str) -> str:
    """A cell that a spreadsheet does not take for a formula: a quote before = + - @, a tab or a line break.

    A quote is put before a quote as well, so that reading takes away exactly what was put there.

    >>> guarded("=HYPERLINK(1)"), guarded("plain"), guarded("-5")
    ("'=HYPERLINK(1)", 'plain', "'-5")
    """
    return f"'{cell}" if cell.startswith((*DANGEROUS, "'")) else cell
