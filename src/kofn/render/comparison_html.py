"""A comparison as an HTML page: differences as forest plots, agreement, and every changed case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kofn.core.escape import show_hidden
from kofn.core.format import format_count, format_interval, format_number, format_p, format_signed
from kofn.extract.answer_spans import locate
from kofn.render.comparison_text import changed_text, comparison_title, main_difference, sentences
from kofn.render.page import environment, html_document, pack, read_template, to_json
from kofn.render.trend_text import interval_heading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.analysis.compare.differences import (
        CandidateExcerpt,
        ChangedCase,
        ComparisonReport,
        Difference,
        GraderAgreement,
    )
    from kofn.core.types import Estimate

MOST_CHANGED = 5_000  # cases in the list
MOST_LOCATED = 4_000  # candidates whose answer is looked for in their text
ROOM = 16_000_000  # characters of all texts in the page
LENGTHS = (20_000, 8_000, 4_000, 2_000, 1_000, 400, 120)  # what a text may be cut to
MOST_IDS = 2_000  # unmatched cases that are named
_INPUT = 160


def comparison_page(found: ComparisonReport) -> str:
    """The whole page, in one file that needs no network."""
    listed = found.changed[:MOST_CHANGED]
    body = (
        environment()
        .get_template("compare.html.j2")
        .render(**comparison_data(found), changed=list(map(case_summary, listed)))
    )
    return html_document(
        title=f"{comparison_title(found)} · kofn",
        body=Markup(body),  # noqa: S704 - the template escapes
        scripts=[read_template("compare.js")],
        blocks={"changed": pack(to_json(case_bodies(listed)))},
    )


def comparison_data(found: ComparisonReport) -> dict[str, Any]:
    """What compare.html.j2 shows, but for the list of the cases that changed."""
    return {
        "title": comparison_title(found),
        "kind": found.kind,
        "head": _head(found),
        "stats": _stats(found),
        "said": sentences(found)[1:],
        "warnings": [str(w) for w in found.warnings],
        "tables": list(_tables(found)),
        "level": interval_heading(found.rules.level),
        "agreements": [_agreement(one) for one in found.agreements],
        "selections": [_selection(one) for one in found.selections],
        "pairs": _pairs(found),
        "noun": "candidate" if found.kind == "graders" else "case",
        "n_changed": len(found.changed),
        "unmatched": _unmatched_rows(found),
        "alpha": f"{found.rules.alpha:g}",
        "n_tests": found.n_tests,
    }


# the head


def _head(found: ComparisonReport) -> dict[str, str]:
    """The main difference of two sides in a word; of several, how many hold."""
    d = main_difference(found, found.differences[0].sides)
    said = sentences(found)
    holding, total = sum(one.holds for one in found.differences), len(found.differences)
    if len({one.sides for one in found.differences}) > 1 or (holding and not d.holds):
        return {"kind": "", "mark": "", "word": f"{holding} of {total} hold", "reason": said[0]}
    kind = {"better": "passed", "worse": "failed"}.get(d.word, "")
    mark = ("▲" if d.sign > 0 else "▼") if d.holds else ""
    return {"kind": kind, "mark": mark, "word": d.word.capitalize() or "No real difference", "reason": said[0]}


def _stats(found: ComparisonReport) -> list[dict[str, str]]:
    """The main number of every side, of a dozen at most, and how much holds."""
    d = main_difference(found, found.differences[0].sides)
    level = next(one for one in found.levels if (one.aggregator, one.segment) == (d.aggregator, None))
    values = [
        {"name": name, "value": format_number(v, none="–"), "detail": d.aggregator}
        for name, v in zip(found.names, level.values, strict=True)
    ]
    n = sum(one.holds for one in found.differences)
    holds = {"name": "hold after Holm", "value": f"{n} of {len(found.differences)}", "detail": f"p < {d.alpha:g}"}
    return [*values[:12], holds]


# differences


def _tables(found: ComparisonReport) -> Iterator[dict[str, Any]]:
    """A table a pair, metric and field, each on a scale of its own; pairs of one row each share a table."""
    pairs = {d.sides for d in found.differences}
    # one difference per pair: rows of pairs instead of a table each
    together = len(pairs) > 1 and len(pairs) == len(found.differences)
    groups: dict[tuple[Any, ...], list[Difference]] = {}
    for d in found.differences:
        by = "" if d.segment is None else d.segment.partition("=")[0]
        groups.setdefault((None if together else d.sides, d.metric, by), []).append(d)
    metrics = len({d.metric for d in found.differences}) > 1
    for (sides, metric, by), rows in groups.items():
        pair = "" if sides is None else f"{rows[0].name_b} against {rows[0].name_a}"
        words = ", ".join(filter(None, [pair, metric if metrics else "", f"by {by}" if by else ""]))
        yield {"title": words, "paired": sides is None, "sliced": bool(by), **_forest(rows, named=sides is not None)}


def _forest(rows: Sequence[Difference], *, named: bool) -> dict[str, Any]:
    """The rows on one scale. `named`: all of one pair, whose names head the columns."""
    low, high = _domain(rows)
    return {
        "a": rows[0].name_a if named else "a",
        "b": rows[0].name_b if named else "b",
        "mcnemar": any(d.comparison.mcnemar_p is not None for d in rows),
        "ticks": [(f"{_axis_position(t, low, high):.2f}", f"{t:+g}" if t else "0") for t in _ticks(low, high)],
        "zero": f"{_axis_position(0.0, low, high):.2f}",
        "rows": [_row(d, low, high) for d in rows],
    }


def _domain(rows: Sequence[Difference]) -> tuple[float, float]:
    """From the lowest end to the highest, 0 within, and some room."""
    ends = [0.0] + [x for d in rows for c in [d.comparison] for x in (c.low, c.difference, c.high) if x is not None]
    # `or`: all ends are 0, and a scale needs some length
    room = 0.08 * (max(ends) - min(ends)) or 0.05
    return min(ends) - room, max(ends) + room


def _ticks(low: float, high: float) -> list[float]:
    """Up to five round numbers, 0 among them.

    >>> _ticks(-0.12, 0.31), _ticks(-3, 1)
    ([-0.1, 0.0, 0.1, 0.2, 0.3], [-3.0, -2.0, -1.0, 0.0, 1.0])
    """
    from math import ceil, floor, log10

    rough = (high - low) / 5
    size = 10.0 ** floor(log10(rough))
    # 0.999: a step that rounding left just short still counts
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough * 0.999)
    return [round(i * step, 10) for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _axis_position(x: float, low: float, high: float) -> float:
    return 100 * (x - low) / (high - low)


def _row(d: Difference, low: float, high: float) -> dict[str, Any]:
    c = d.comparison
    ends = c.difference is not None and c.low is not None and c.high is not None
    # wins are cases in which b is higher, which is worse where less is better
    lost, won = (c.wins, c.losses) if d.more_is_better is False else (c.losses, c.wins)
    return {
        "number": d.aggregator,
        "pair": (d.name_b, d.name_a),
        "segment": "" if d.segment is None else d.segment.partition("=")[2],
        "a": format_number(c.a, none="–"),
        "b": format_number(c.b, none="–"),
        "difference": format_signed(c.difference),
        "interval": format_interval(c.low, c.high),
        "at": None if c.difference is None else f"{_axis_position(c.difference, low, high):.2f}",
        "low": f"{_axis_position(c.low, low, high):.2f}" if ends and c.low is not None else None,
        "width": f"{_axis_position(c.high, low, high) - _axis_position(c.low, low, high):.2f}"
        if ends and c.low is not None and c.high is not None
        else None,
        "p": format_p(c.p),
        "holm": format_p(d.p_holm),
        "mcnemar": format_p(c.mcnemar_p),
        "mark": "" if not d.holds else "▲" if d.sign > 0 else "▼",
        "word": d.word,
        "role": {"better": "pass", "worse": "fail"}.get(d.word, "none"),
        "won": won,
        "ties": c.ties,
        "lost": lost,
        "n": c.n,
        "missing": c.n_missing,
        "method": c.method,
    }


# two graders, several selectors


def _agreement(one: GraderAgreement) -> dict[str, Any]:
    return {
        "a": one.name_a,
        "b": one.name_b,
        **one.counts,
        "n": one.rates.n,
        "agreement": _estimate(one.rates.agreement),
        "kappa": _estimate(one.rates.kappa),
        "same": "" if one.same_answer is None else f"{one.same_answer:.1%}",
        "ungraded": one.n_ungraded,
    }


def _estimate(e: Estimate) -> tuple[str, str]:
    return format_number(e.point, none="–"), format_interval(e.low, e.high, none="")


def _selection(one: Any) -> dict[str, Any]:
    parts = ("selected", "mean", "oracle", "headroom", "regret", "agreement", "chance")
    return {
        "name": one.selector.name,
        "by": one.selector.by + (", lowest first" if one.selector.prefer == "low" else ""),
        "fingerprint": one.selector.fingerprint(),
        "parts": [_estimate(getattr(one, part)) for part in parts],
    }


# the cases that changed


def _pairs(found: ComparisonReport) -> list[dict[str, Any]]:
    """How many changed, a pair a line."""
    if found.verdict is None:
        return []
    pairs = list(dict.fromkeys((d.name_a, d.name_b) for d in found.differences))
    return [{"a": a, "b": b, "said": changed_text(found, a, b)} for a, b in pairs]


def case_summary(one: ChangedCase) -> dict[str, Any]:
    """A changed case in a line of the list."""
    text = " ".join((one.input or "").split())
    return {
        "case": one.case,
        "a": one.name_a,
        "b": one.name_b,
        "way": one.way,
        "from": _word(one.passed_a),
        "to": _word(one.passed_b),
        "input": text if len(text) <= _INPUT else text[: _INPUT - 1] + "…",
        "strips": [[_kind(c) for c in side[:40]] for side in (one.a, one.b)],
    }


def _word(passed: bool | None) -> str:
    return {True: "pass", False: "fail", None: "neither"}[passed]


def _kind(one: CandidateExcerpt) -> str:
    return {True: "s1", False: "s0", None: "sx"}[one.passed]


def case_bodies(changed: Sequence[ChangedCase], room: int | None = None) -> list[dict[str, Any]]:
    """What unfolds below each case; texts are cut to the greatest length with which all fit so many characters."""
    sides = [one for c in changed for side in (c.a, c.b) for one in side]
    sizes = [len(one.text or "") for one in sides]
    # the greatest length that fits; the shortest where none does
    most = next((n for n in LENGTHS if sum(min(size, n) for size in sizes) <= (room or ROOM)), LENGTHS[-1])
    locating = len(sides) <= MOST_LOCATED
    return [
        {
            "names": [c.name_a, c.name_b],
            "input": _cut(c.input, most),
            "reference": _cut(c.reference, most),
            "sides": [[_candidate(one, most, locating=locating) for one in side] for side in (c.a, c.b)],
        }
        for c in changed
    ]


def _cut(text: str | None, most: int) -> Any:
    """A text, or [start, characters left out, end] of a longer one."""
    if text is None or len(text) <= most:
        return text
    tail = most // 2
    return [text[: most - tail], len(text) - most, text[len(text) - tail :]]


def _candidate(one: CandidateExcerpt, most: int, *, locating: bool) -> dict[str, Any]:
    span = None
    # a place in a text that is cut would point elsewhere
    if locating and one.text is not None and one.answer is not None and len(one.text) <= most:
        span = locate(one.text, one.answer)
    return {
        "k": one.index + 1,
        "text": _cut(one.text, most),
        "answer": _cut(one.answer, 400),
        "pass": {True: 1, False: 0, None: None}[one.passed],
        "span": span,
    }


def _unmatched_rows(found: ComparisonReport) -> list[dict[str, Any]]:
    out = []
    for one in found.unmatched:
        for name, cases in ((one.name_a, one.only_a), (one.name_b, one.only_b)):
            if cases:
                other = one.name_b if name == one.name_a else one.name_a
                more = f" and {len(cases) - MOST_IDS:,} more" if len(cases) > MOST_IDS else ""
                said = f"{format_count(len(cases), 'case')} only in {name}, not in {other}"
                out.append({"said": said, "cases": [show_hidden(c) for c in cases[:MOST_IDS]], "more": more})
    return out
