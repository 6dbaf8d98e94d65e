"""One case: all its candidates side by side, with everything that was said of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from markupsafe import Markup, escape

from kofn.extract.locate import locate
from kofn.report.files import check_whole
from kofn.report.jsontext import json_text
from kofn.report.results import EXECUTION
from kofn.report.visible import visible
from kofn.web import programs, shell
from kofn.web.cases import chosen, neighbours, whole
from kofn.web.folder import Absent, address
from kofn.web.run_page import case_at, crumbs_of, wanted_of
from kofn.web.worddiff import word_diff

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.web.app import Viewer
    from kofn.web.browsed import Browsed
    from kofn.web.cases import Wanted

VERDICTS = "verdicts.parquet"
LONGEST = 100_000  # characters of a text that a page shows; the files hold the rest
MOST = 100  # candidates on one page
KINDS = {True: ("pass", "pass"), False: ("fail", "fail"), None: ("none", "not graded")}
_JUDGED = ("judge", "model", "verdict", "value", "reason", "text", "error")


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page of a case."""
    one = viewer.shelf.get(name)
    asked = request.query_params
    row = one.row_of(asked.get("id", ""), whole(asked.get("row", "")))
    if row is None:
        raise Absent(f"this run has no case {asked.get('id', '')!r:.200}")
    wanted = wanted_of(request)
    case = one.scores["id"][row]
    return shell.page(
        "case.html.j2",
        title=f"{visible(case[:80])} in {visible(name)}",
        crumbs=crumbs_of(name, (case[:80], case_at(name, case, row, wanted))),
        scripts=["run.js"],
        run=name,
        case=case,
        row=row,
        **_place(one, row, wanted),
        **_about(one, row),
        **_candidates(one, row, asked.get("against", ""), whole(asked.get("from", "")) or 0),
        times=_times(one, row),
        own_runs=_own_runs(viewer, one, row),
        here_with=lambda against: f"{case_at(name, case, row, wanted)}{'&against=' + against if against else ''}",
    )


# --- where it is


def _place(one: Browsed, row: int, wanted: Wanted) -> dict[str, Any]:
    """The cases before and after it among those that were asked for."""
    found = chosen(one, wanted)
    before, after, at = neighbours(found, row)

    def to(other: int | None) -> str | None:
        return None if other is None else case_at(one.name, one.scores["id"][other], other, wanted)

    place = "" if at is None else f"{at + 1:,} of {len(found.rows):,}"
    return {
        "before": to(before),
        "after": to(after),
        "place": place,
        "back": f"{address(one.name)}{wanted.query()}#cases",
    }


# --- what it is


def _about(one: Browsed, row: int) -> dict[str, Any]:
    scores = one.scores.row(row, named=True)
    report = one.run.reports.row(row, named=True)
    table = one.table
    known = {} if table is None else one.case(row)
    told = [(f["attribute"], f["value"]) for f in report["case"] or ()] if table is None else []
    tags = [] if table is None else [(c.name, c[row]) for c in table.tags.iter_columns() if c[row] is not None]
    more = [(n, known[n]) for n in ("cluster", "weight") if known.get(n) is not None]
    values = [] if one.run.result is None else list(_values(one, row))
    return {
        "verdict": int(one.verdicts[row]),
        "score": scores["score"],
        "group": scores["group"],
        "type": scores["type"],
        "input": _text(known.get("input")),
        "reference": _joined(known.get("reference")),
        "choices": _joined(known.get("choices"), "\n"),
        "tags": [(n, visible(_plain(v))[:500]) for n, v in (*more, *tags)],
        "told": [(n, _text(_json(v))) for n, v in told if n not in EXECUTION],
        "executed": [(n.replace("_", " "), _text(_json(v))) for n, v in told if n in EXECUTION],
        "attributes": [_attribute(a) for a in report["results"] or ()] if table is None else [],
        "values": values,
        "seconds": None if one.seconds is None or np.isnan(one.seconds[row]) else float(one.seconds[row]),
        "origin": " ".join(filter(None, (report["original_checkpoint"], report["original_group"]))),
    }


def _values(one: Browsed, row: int) -> Iterator[tuple[str, str]]:
    """The number of this case under every aggregator."""
    assert one.run.result is not None
    several = len({metric for metric, _ in one.run.result.case_values}) > 1
    for (metric, aggregator), column in one.run.result.case_values.items():
        value = float(column[row])
        yield f"{metric} {aggregator}" if several else aggregator, "–" if value != value else shell.amount(value)


def _attribute(a: Mapping[str, Any]) -> dict[str, Any]:
    """One checked thing of a program's case."""
    sign, words = {True: ("pass", "correct"), False: ("fail", "wrong")}.get(a["is_correct"], ("none", "not verified"))
    return {
        "name": a["attribute"],
        "sign": sign,
        "words": words,
        "weight": None if a["weight"] == 1 else f"{a['weight']:g}",
        "open": a["is_correct"] is not True,
        "expected": _text(_json(a["expected"])),
        "actual": _text(_json(a["actual"])),
        "diff": diff_lines(a["diff"]),
    }


def diff_lines(diff: str | None) -> list[tuple[str, str]]:
    """The lines of a diff, each with its look; a text that is no diff is one line.

    >>> diff_lines("@@ 1 @@\\n-a\\n+b")
    [('at', '@@ 1 @@'), ('minus', '-a'), ('plus', '+b')]
    """
    looks = {"+": "plus", "-": "minus", "@": "at"}
    lines = (diff or "")[:LONGEST].split("\n") if diff else []
    named = len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ ")
    return [("at" if named and i < 2 else looks.get(line[:1], ""), line) for i, line in enumerate(lines)]


def _times(one: Browsed, row: int) -> list[dict[str, Any]]:
    """Every time that a program's case was executed."""
    return [
        {**found, **{name: _text(found[name] or None) for name in ("output", "stderr", "stopped", "harness")}}
        for found in programs.executions(one, row)
    ]


def _own_runs(viewer: Viewer, one: Browsed, row: int) -> dict[int, tuple[str, str]]:
    """Of a set of submissions, (name, address) of the run of each by its number."""
    if not programs.is_set(one) or "text" not in one.candidate_schema:
        return {}
    found = programs.own_runs(viewer, one, row, one.candidates(row)["text"].to_list())
    return {k + 1: run for k, run in found.items()}


# --- its candidates


def _candidates(one: Browsed, row: int, against: str, first: int) -> dict[str, Any]:
    if one.sets is None:
        return {"candidates": [], "tally": [], "n_candidates": 0, "against": "", "more": None, "first": 0}
    frame = one.candidates(row)
    answers = frame["answer"].to_list() if "answer" in frame.columns else [None] * frame.height
    passed = _passed(one, frame)
    judged = _verdicts(one, one.scores["id"][row])
    texts = frame["text"].to_list() if "text" in frame.columns else [None] * frame.height
    base = _base(one, row, texts, against)
    shown = range(first, min(first + MOST, frame.height))
    made = [_candidate(one, frame.row(k, named=True), k, passed[k], judged.get(k, ()), base) for k in shown]
    left = frame.height - first - MOST
    return {
        "candidates": made,
        "tally": tally(answers, passed),
        "n_candidates": frame.height,
        "against": against if base is not None else "",
        "first": first,
        "more": first + MOST if left > 0 else None,
        "tied": bool(one.tied[row]),
        "has_reference": _joined(one.case(row).get("reference")) is not None,
    }


def _passed(one: Browsed, frame: pl.DataFrame) -> list[bool | None]:
    metric = one.run.result.scored[0].metric if one.run.result is not None else ""
    name = f"passed.{metric}"
    return frame[name].to_list() if name in frame.columns else [None] * frame.height


def tally(answers: Sequence[str | None], passed: Sequence[bool | None]) -> list[dict[str, Any]]:
    """The answers with how many gave each, most first, and whether they pass.

    >>> [(t["answer"], t["n"], t["kind"]) for t in tally(["4", "5", "4", None], [True, False, True, False])]
    [('4', 2, 'pass'), ('5', 1, 'fail')]
    """
    votes = Counter(a for a in answers if a is not None)
    out = []
    for answer, n in votes.most_common(12):
        says = {p for a, p in zip(answers, passed, strict=True) if a == answer}
        kind = "pass" if says == {True} else "fail" if says == {False} else ""
        out.append({"answer": answer[:200], "n": n, "share": n / len(answers), "kind": kind})
    return out


def _base(one: Browsed, row: int, texts: Sequence[str | None], against: str) -> tuple[int, str] | None:
    """The text that others are compared with, and whose it is: a candidate's place, or -1 for the reference."""
    if against == "reference":
        found = _joined(one.case(row).get("reference"))
        return None if found is None else (-1, found)
    place = whole(against)
    if place is None or not 1 <= place <= len(texts) or (text := texts[place - 1]) is None:
        return None
    return place - 1, text


def _candidate(
    one: Browsed,
    c: Mapping[str, Any],
    k: int,
    passed: bool | None,
    judged: Sequence[Mapping[str, Any]],
    base: tuple[int, str] | None,
) -> dict[str, Any]:
    text, answer = c.get("text"), c.get("answer")
    spelled = answer is not None and text is not None and text.strip() == answer
    differs = base is not None and base[0] != k and text is not None
    assert base is not None or not differs
    sign, words = KINDS[passed]
    return {
        "k": k + 1,
        "sign": sign,
        "words": words,
        "graded": one.graded,
        "answer": None if answer is None or spelled else answer[:400],
        "no_answer": answer is None and text is not None and one.sets is not None and one.sets.answers is not None,
        "text": None if text is None else word_diff(base[1], text) if differs and base else marked(text, answer),
        "is_base": base is not None and base[0] == k,
        "cut": max(0, len(text or "") - LONGEST),
        "reasoning": _text(c.get("reasoning")),
        "n_reasoning": len(c.get("reasoning") or ""),
        "error": c.get("error"),
        "note": c.get("note"),
        "finish": c.get("finish"),
        "facts": list(_facts(c)),
        "judged": [dict(j) for j in judged],
    }


def _facts(c: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Scores, selectors, cost and time of a candidate."""
    for name, value in c.items():
        if value is not None and name != "score.pass" and name.startswith(("score.", "selector.", "label.")):
            yield name.partition(".")[2], shell.amount(float(value))
    if c.get("cost") is not None:
        yield "cost", shell.amount(c["cost"])
    if c.get("seconds") is not None:
        yield "time", shell.seconds(c["seconds"])
    if c.get("tokens") is not None:
        yield "tokens", f"{c['tokens']:,.0f}"


def _verdicts(one: Browsed, case: str) -> dict[int, list[dict[str, Any]]]:
    """What judges said of each candidate, reply and all."""
    path = one.file(VERDICTS)
    if not path.is_file():
        return {}
    check_whole(path)
    try:
        rows = pl.scan_parquet(path, glob=False).filter(pl.col("case_id") == case).collect()
    except pl.exceptions.PolarsError:
        return {}
    out: dict[int, list[dict[str, Any]]] = {}
    for r in rows.iter_rows(named=True):
        at = r.get("index")
        said = {name: _text(_plain(r[name])) for name in _JUDGED if r.get(name) is not None}
        out.setdefault(-1 if at is None else int(at), []).append(said)
    return out


# --- texts


def marked(text: str, answer: str | None) -> Markup:
    """A text with the place of its answer marked, every character visible.

    >>> marked("It is <42>", "42")
    Markup('It is &lt;<mark title="the extracted answer">42</mark>&gt;')
    """
    shown = text[:LONGEST]
    span = None
    if answer is not None and text.strip() != answer and len(text) <= LONGEST:
        span = locate(text, answer)
    if span is None:
        return _lines(shown)
    low, high = span
    mark = Markup('<mark title="the extracted answer">{}</mark>').format(_lines(shown[low:high]))
    return _lines(shown[:low]) + mark + _lines(shown[high:])


def _lines(text: str) -> Markup:
    return Markup("\n").join(escape(visible(line)) for line in text.replace("\r\n", "\n").split("\n"))


def _text(value: Any) -> Markup | None:
    """A text for a box; a very long one is cut."""
    if value is None:
        return None
    text = str(value)
    end = f"\n… {len(text) - LONGEST:,} characters more" if len(text) > LONGEST else ""
    return _lines(text[:LONGEST]) + end


def _json(value: str | None) -> str | None:
    """A JSON text as people read it: a text as itself."""
    import orjson

    if value is None:
        return None
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    if isinstance(found, str):
        return found
    short = orjson.dumps(found).decode()
    return short if len(short) <= 80 else orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()


def _joined(value: Any, by: str = " | ") -> str | None:
    if value is None:
        return None
    return by.join(str(v) for v in value) if isinstance(value, (list, pl.Series)) else str(value)


def _plain(value: Any) -> str:
    if isinstance(value, pl.Series):
        return str(json_text(pl.Series([value]))[0])
    return str(value)
