"""The page of one case: its candidates side by side, with scores, verdicts and differences."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl
from markupsafe import Markup

from kofn.core.escape import html_lines, show_hidden
from kofn.core.format import format_amount, format_duration
from kofn.extract.answer_spans import locate
from kofn.problems.verification_runs import EXECUTIONS
from kofn.runs.case_reports import EXECUTION, json_text
from kofn.viewer.case_list import CaseQuery, case_url, select_cases, value_at
from kofn.viewer.math_text import MathPage
from kofn.viewer.program_runs import candidate_runs
from kofn.viewer.run_folder import NotFound
from kofn.viewer.run_view import EXECUTION_TEXTS, executions, rows_of_case
from kofn.viewer.templating import breadcrumbs, render_page, run_url, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.viewer.run_view import RunView
    from kofn.viewer.server import Viewer

VERDICTS = "verdicts.parquet"
MAX_CANDIDATES = 100  # on one page
MAX_ANSWERS = 12  # of the tally
SIGNS = {True: ("pass", "pass"), False: ("fail", "fail"), None: ("none", "not graded")}
_JUDGE_COLUMNS = ("judge", "model", "verdict", "value", "reason", "text", "error")


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page of a case."""
    view = viewer.runs.get(name)
    params = request.query_params
    row = view.row_of(params.get("id", ""), whole_number(params.get("row", "")))
    if row is None:
        raise NotFound(f"this run has no case {params.get('id', '')!r:.200}")
    query = CaseQuery.from_request(request)
    case = view.scores["id"][row]
    own_runs = candidate_runs(viewer, view, row)
    math = MathPage(source=params.get("tex") == "1" or bool(own_runs))  # programs are full of dollars
    data = {
        **_case(view, row, math),
        **_candidates(view, row, math, params.get("against", ""), whole_number(params.get("from", "")) or 0),
    }
    here = case_url(name, case, row, query)
    return render_page(
        "case.html.j2",
        title=f"{show_hidden(case[:80])} in {show_hidden(name)}",
        crumbs=breadcrumbs(name, (case[:80], case_url(name, case, row, query))),
        scripts=["case.js"],
        run=name,
        case=case,
        row=row,
        **_neighbour_links(view, row, query),
        **data,
        times=_executions(view, row),
        own_runs=own_runs,
        url_with=lambda against: f"{here}{'&against=' + against if against else ''}",
        tex_url=here if math.source and not own_runs else f"{here}&tex=1" if math.found else "",
        tex_source=math.source,
    )


def _neighbour_links(view: RunView, row: int, query: CaseQuery) -> dict[str, Any]:
    """The cases before and after it in the list that it was opened from."""
    rows = select_cases(view, query).rows.tolist()
    at = rows.index(row) if row in rows else None

    def url(step: int) -> str | None:
        place = -1 if at is None else at + step
        if not 0 <= place < len(rows):
            return None
        return case_url(view.name, view.scores["id"][rows[place]], rows[place], query)

    return {
        "before": url(-1),
        "after": url(1),
        "place": "" if at is None else f"{at + 1:,} of {len(rows):,}",
        "back": f"{run_url(view.name)}{query.query_string()}#cases",
    }


# --- the case


def _case(view: RunView, row: int, math: MathPage) -> dict[str, Any]:
    scores = view.scores.row(row, named=True)
    report = view.run.reports.row(row, named=True)
    table = view.table
    columns = {} if table is None else view.case(row)
    entries = [
        (f["attribute"], text_box(readable_json(f["value"]))) for f in (report["case"] or () if table is None else ())
    ]
    tags = [] if table is None else [(c.name, c[row]) for c in table.tags.iter_columns() if c[row] is not None]
    reference = joined(columns.get("reference"))
    units = [(name, columns[name]) for name in ("cluster", "weight") if columns.get(name) is not None]
    return {
        "verdict": int(view.verdicts[row]),
        "score": scores["score"],
        "group": scores["group"],
        "type": scores["type"],
        "input": text_box(columns.get("input"), math),
        "reference": None if reference is None else math.answer(cut_text(reference)),
        "choices": text_box(joined(columns.get("choices"), "\n"), math),
        "tags": [(name, show_hidden(plain_text(value))[:500]) for name, value in (*units, *tags)],
        "details": [(name, box) for name, box in entries if name not in EXECUTION],
        "executed": [(name.replace("_", " "), box) for name, box in entries if name in EXECUTION],
        "attributes": [_attribute(a) for a in report["results"] or ()] if table is None else [],
        "values": [] if view.run.result is None else list(_values(view, row)),
        "seconds": value_at(view.seconds, row),
        "origin": " ".join(filter(None, (report["original_checkpoint"], report["original_group"]))),
    }


def _values(view: RunView, row: int) -> Iterator[tuple[str, str]]:
    """The value of this case under every aggregator."""
    several = len({metric for metric, _ in view.run.scored_result.case_values}) > 1
    for (metric, aggregator), column in view.run.scored_result.case_values.items():
        value = float(column[row])
        yield f"{metric} {aggregator}" if several else aggregator, "–" if np.isnan(value) else format_amount(value)


def _attribute(a: Mapping[str, Any]) -> dict[str, Any]:
    """One verified attribute of a program's case."""
    sign, words = {True: ("pass", "correct"), False: ("fail", "wrong")}.get(a["is_correct"], ("none", "not verified"))
    return {
        "name": a["attribute"],
        "sign": sign,
        "words": words,
        "weight": None if a["weight"] == 1 else f"{a['weight']:g}",
        "open": a["is_correct"] is not True,
        "expected": text_box(readable_json(a["expected"])),
        "actual": text_box(readable_json(a["actual"])),
        "diff": diff_lines(a["diff"]),
    }


def _executions(view: RunView, row: int) -> list[dict[str, Any]]:
    """The executions of a program's case."""
    if view.sets is not None:
        return []
    rows = executions(view.file(EXECUTIONS), view.scores["group"][row], view.scores["id"][row])
    return [one | {name: text_box(one[name] or None) for name in EXECUTION_TEXTS} for one in rows]


# --- its candidates


def _candidates(view: RunView, row: int, math: MathPage, against: str, first: int) -> dict[str, Any]:
    if view.sets is None:
        return {"candidates": [], "tally": [], "n_candidates": 0, "against": "", "more": None, "first": 0}
    frame = view.candidates(row)
    columns = frame.to_dict(as_series=False)
    unknown = [None] * frame.height
    answers, texts = columns.get("answer", unknown), columns.get("text", unknown)
    passed = columns.get(f"passed.{view.run.scored_result.scored[0].metric}", unknown)
    verdicts = _verdicts(view, view.scores["id"][row])
    base = _base_text(view, row, texts, against)
    page = range(first, min(first + MAX_CANDIDATES, frame.height))
    picks = selector_picks(columns, view.run.scored_result.scored[0].metric)
    candidates = [
        _candidate(view, frame.row(k, named=True), k, passed[k], verdicts.get(k, ()), base, math)
        | {"picks": [words for words, picked in picks if k in picked]}
        for k in page
    ]
    left = frame.height - first - MAX_CANDIDATES
    return {
        "candidates": candidates,
        "tally": answer_tally(answers, passed) if view.has_votes else [],
        "n_candidates": frame.height,
        "against": against if base is not None else "",
        "first": first,
        "more": first + MAX_CANDIDATES if left > 0 else None,
        "tied": view.has_votes and bool(view.tied[row]),
        "has_reference": joined(view.case(row).get("reference")) is not None,
    }


def selector_picks(columns: Mapping[str, Sequence[Any]], metric: str) -> list[tuple[str, set[int]]]:
    """What a badge says of each selector's pick, and the places of the candidates with its highest score.

    The metric that grades picks nothing here.

    >>> selector_picks({"selector.judge": [0.2, 0.9, None], "text": ["a", "b", "c"]}, "numeric")
    [('picked by judge', {1})]
    >>> selector_picks({"selector.judge": [0.9, 0.9]}, "numeric")
    [('tied pick of judge', {0, 1})]
    """
    picks = []
    for column, scores in columns.items():
        name = column.removeprefix("selector.")
        known = [score for score in scores if score is not None and score == score] if name != column else []
        if known and name != metric and len(scores) > 1:
            best = {k for k, score in enumerate(scores) if score == max(known)}
            picks.append((f"picked by {name}" if len(best) == 1 else f"tied pick of {name}", best))
    return picks


def answer_tally(answers: Sequence[str | None], passed: Sequence[bool | None]) -> list[dict[str, Any]]:
    """The answers with how many candidates gave each, most first, and whether these pass.

    >>> [(t["answer"], t["n"], t["kind"]) for t in answer_tally(["4", "5", "4", None], [True, False, True, False])]
    [('4', 2, 'pass'), ('5', 1, 'fail')]
    """
    votes = Counter(a for a in answers if a is not None)
    tally = []
    for answer, n in votes.most_common(MAX_ANSWERS):
        verdicts = {p for a, p in zip(answers, passed, strict=True) if a == answer}
        kind = "pass" if verdicts == {True} else "fail" if verdicts == {False} else ""
        tally.append({"answer": answer[:200], "n": n, "share": n / len(answers), "kind": kind})
    return tally


def _base_text(view: RunView, row: int, texts: Sequence[str | None], against: str) -> tuple[int, str] | None:
    """(place, text) that others are compared with: a candidate's place, or -1 for the reference."""
    if against == "reference":
        reference = joined(view.case(row).get("reference"))
        return None if reference is None else (-1, reference)
    number = whole_number(against) or 0
    text = texts[number - 1] if 1 <= number <= len(texts) else None
    return None if text is None else (number - 1, text)


def _candidate(
    view: RunView,
    c: Mapping[str, Any],
    k: int,
    passed: bool | None,
    verdicts: Sequence[Mapping[str, Any]],
    base: tuple[int, str] | None,
    math: MathPage,
) -> dict[str, Any]:
    text, answer = c.get("text"), c.get("answer")
    is_answer = answer is not None and text is not None and text.strip() == answer  # nothing to point out in the text
    sign, words = SIGNS[passed]
    is_base = base is not None and base[0] == k
    if text is None:
        shown = None
    elif base is not None and not is_base:
        shown = word_diff(base[1], text)
    else:
        shown = math.markup(text[:MAX_CHARACTERS], answer_span(text, answer))
    return {
        "k": k + 1,
        "sign": sign,
        "words": words,
        "graded": view.graded,
        "answer": None if answer is None or is_answer else answer[:400],
        "no_answer": answer is None and text is not None and view.has_answers,
        "text": shown,
        "is_base": is_base,
        "cut": max(0, len(text or "") - MAX_CHARACTERS),
        "reasoning": text_box(c.get("reasoning"), math),
        "n_reasoning": len(c.get("reasoning") or ""),
        **{name: c.get(name) for name in ("error", "note", "finish")},
        "facts": list(_facts(c)),
        "judged": [dict(verdict) for verdict in verdicts],
    }


def _facts(c: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Scores, selectors, cost and time of a candidate."""
    for name, value in c.items():
        if value is not None and name != "score.pass" and name.startswith(("score.", "selector.", "label.")):
            yield name.partition(".")[2], format_amount(float(value))
    if c.get("cost") is not None:
        yield "cost", format_amount(c["cost"])
    if c.get("seconds") is not None:
        yield "time", format_duration(c["seconds"], none="–")
    if c.get("tokens") is not None:
        yield "tokens", f"{c['tokens']:,.0f}"


def _verdicts(view: RunView, case: str) -> dict[int, list[dict[str, Any]]]:
    """The verdicts of judges on each candidate, replies and all; under -1 those on the case."""
    verdicts: dict[int, list[dict[str, Any]]] = {}
    for row in rows_of_case(view.file(VERDICTS), pl.col("case_id") == case):
        index = row.get("index")
        verdict = {name: text_box(plain_text(row[name])) for name in _JUDGE_COLUMNS if row.get(name) is not None}
        verdicts.setdefault(-1 if index is None else int(index), []).append(verdict)
    return verdicts


# --- texts: cut, marked where an answer stands, and compared word by word


MAX_CHARACTERS = 100_000  # of a text on a page; the files hold the rest


def visible_lines(text: str) -> Markup:
    """A text with its line breaks, and any other control character as something that can be seen."""
    return html_lines(text.replace("\r\n", "\n"))


def answer_span(text: str, answer: str | None) -> tuple[int, int] | None:
    """Where a text spells its answer; None where it does not, or where it is the answer.

    >>> answer_span("It is <42>", "42"), answer_span("42", "42")
    ((7, 9), None)
    """
    if answer is None or text.strip() == answer or len(text) > MAX_CHARACTERS:
        return None
    return locate(text, answer)


def text_box(value: Any, math: MathPage | None = None) -> Markup | None:
    """The content of a box, with its formulas drawn where `math` is given; a very long text is cut."""
    if value is None:
        return None
    text = cut_text(str(value))
    return visible_lines(text) if math is None else math.markup(text)


def cut_text(text: str) -> str:
    """A text, or the beginning of a very long one."""
    more = len(text) - MAX_CHARACTERS
    return text if more <= 0 else f"{text[:MAX_CHARACTERS]}\n… {more:,} characters more"


def readable_json(value: str | None) -> str | None:
    """A JSON text for readers: a string without its quotes, a long value indented."""
    if value is None:
        return None
    try:
        data = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    if isinstance(data, str):
        return data
    short = orjson.dumps(data).decode()
    return short if len(short) <= 80 else orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


def joined(value: Any, separator: str = " | ") -> str | None:
    """Alternatives, such as several references, as one text."""
    if value is None:
        return None
    return separator.join(str(v) for v in value) if isinstance(value, (list, pl.Series)) else str(value)


def plain_text(value: Any) -> str:
    """A value of a table as text, lists and structs as JSON."""
    if isinstance(value, pl.Series):
        return str(json_text(pl.Series([value]))[0])
    return str(value)


def diff_lines(diff: str | None) -> list[tuple[str, str]]:
    """(style, line) for the lines of a diff; a text that is not a diff is one line.

    >>> diff_lines("@@ 1 @@\\n-a\\n+b")
    [('at', '@@ 1 @@'), ('minus', '-a'), ('plus', '+b')]
    """
    styles = {"+": "plus", "-": "minus", "@": "at"}
    lines = (diff or "")[:MAX_CHARACTERS].split("\n") if diff else []
    # the first two lines of a unified diff name the files: they begin with signs, but nothing was added or removed
    named = len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ ")
    return [("at" if named and i < 2 else styles.get(line[:1], ""), line) for i, line in enumerate(lines)]


MAX_WORDS = 1_500  # of each text; comparing takes time that grows with their product
_WORDS = re.compile(r"\s+|[^\W_]+|.", re.DOTALL)


def word_diff(before: str, after: str) -> Markup:
    """`after` with its differences from `before` marked.

    >>> word_diff("It is 4.", "It is <5>.")
    Markup('It is <del>4</del><ins>&lt;5&gt;</ins>.')
    """
    # `autojunk` trades accuracy for time: only texts that need it get it
    a, b = (_WORDS.findall(text)[:MAX_WORDS] for text in (before, after))
    out = Markup()
    for what, i, j, k, m in SequenceMatcher(None, a, b, autojunk=len(a) + len(b) > MAX_WORDS).get_opcodes():
        old, new = visible_lines("".join(a[i:j])), visible_lines("".join(b[k:m]))
        if what == "equal":
            out += new
            continue
        out += Markup("<del>{}</del>").format(old) if old else ""
        out += Markup("<ins>{}</ins>").format(new) if new else ""
    left = len(_WORDS.findall(after)) - len(b)
    if left > 0:
        out += Markup('<span class="gap">{} more words are not compared</span>').format(f"{left:,}")
    return out
