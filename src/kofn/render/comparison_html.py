"""A comparison as an HTML page: differences as forest plots, agreement, and every changed case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.escape import show_hidden
from kofn.core.format import format_count, format_interval, format_number, format_p, format_signed
from kofn.extract.answer_spans import locate
from kofn.render.comparison_text import (
    VERDICTS,
    better_alike_worse,
    changed_text,
    comparison_title,
    difference_groups,
    difference_mark,
    interval_ends,
    overview_rows,
    selection_parts,
    sentences,
)
from kofn.render.page import Stat, cut_middle, html_page, pack, to_json
from kofn.render.plot import Axis, round_ticks
from kofn.render.trend_text import interval_heading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kofn.analysis.compare.differences import (
        CandidateExcerpt,
        ChangedCase,
        Difference,
        GraderAgreement,
    )
    from kofn.analysis.compare.report import ComparisonReport
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
    return html_page(
        "compare.html.j2",
        {**comparison_data(found), "changed": list(map(case_summary, listed))},
        title=f"{comparison_title(found)} · kofn",
        scripts=["compare.js"],
        blocks={"changed": pack(to_json(case_bodies(listed)))},
    )


def comparison_data(found: ComparisonReport) -> dict[str, Any]:
    """What compare.html.j2 shows, but for the list of the cases that changed."""
    names = dict.fromkeys((d.name_a, d.name_b) for d in found.differences)
    pairs = [{"a": a, "b": b, "said": changed_text(found, a, b)} for a, b in names if found.verdict is not None]
    return {
        "title": comparison_title(found),
        "kind": found.kind,
        "head": _head(found),
        "stats": _stats(found),
        "said": sentences(found)[1:],
        "warnings": [(str(w), w.code) for w in found.warnings],
        "names": list(found.names),
        "overview": _overview(found),
        "tables": list(_tables(found)),
        "level": interval_heading(found.rules.level),
        "agreements": list(map(_agreement, found.agreements)),
        "selections": [_selection(one, selection_parts(found).values()) for one in found.selections],
        "selection_parts": list(selection_parts(found)),
        "pairs": pairs,
        "noun": "candidate" if found.kind == "graders" else "case",
        "n_changed": len(found.changed),
        "unmatched": _unmatched_rows(found),
        "alpha": f"{found.rules.alpha:g}",
        "n_tests": found.n_tests,
    }


# the head


def _head(found: ComparisonReport) -> dict[str, str]:
    """The main difference of two sides in figures, and the headline; of several sides, how many differ."""
    reason = found.headline.text
    mains = found.main_differences
    d = mains[0]
    if len(mains) > 1:
        n = sum(one.holds for one in mains)
        return {"kind": "", "mark": "", "word": f"{n} of {len(mains)} differ", "reason": reason}
    if d.too_few:
        return {"kind": "", "mark": "", "word": "Too few cases", "reason": reason}
    kind = {"better": "passed", "worse": "failed"}.get(d.word, "")
    mark = difference_mark(d)[0] if d.holds else ""
    return {"kind": kind, "mark": mark, "word": format_signed(d.comparison.difference), "reason": reason}


def _stats(found: ComparisonReport) -> list[Stat]:
    """The main number of every side, of a dozen at most, and how much is significant."""
    metric, number = found.main
    level = next(one for one in found.levels if (one.metric, one.aggregator, one.segment) == (metric, number, None))
    values = zip(found.names, level.values, strict=True)
    stats = [Stat(name, format_number(value, none="–"), number) for name, value in values]
    n = sum(one.holds for one in found.differences)
    return [
        *stats[:12],
        Stat("significant", f"{n} of {len(found.differences)}", f"p < {found.rules.alpha:g} after Holm"),
    ]


def _overview(found: ComparisonReport) -> list[dict[str, Any]]:
    """Every number of three or more sides, marked where one differs from the first."""
    several = len({level.metric for level, _ in overview_rows(found)}) > 1
    return [
        {
            "number": f"{level.aggregator} of {level.metric}" if several and level.metric else level.aggregator,
            "cells": [
                {
                    "value": format_number(value, none="–"),
                    "mark": difference_mark(d)[0] if d is not None and d.holds else "",
                    "role": {"better": "pass", "worse": "fail"}.get(d.word, "none") if d is not None else "none",
                }
                for value, d in zip(level.values, differences, strict=True)
            ],
            "n": level.n,
        }
        for level, differences in overview_rows(found)
    ]


# differences


def _tables(found: ComparisonReport) -> Iterator[dict[str, Any]]:
    """A table a pair, metric and field, each on a scale of its own; pairs of one row each share a table."""
    metrics = len({d.metric for d in found.differences}) > 1
    for (sides, metric, by), rows in difference_groups(found, by_metric=True).items():
        pair = "" if sides is None else f"{rows[0].name_b} against {rows[0].name_a}"
        words = ", ".join(filter(None, [pair, metric if metrics else "", f"by {by}" if by else ""]))
        yield {"title": words, "paired": sides is None, "sliced": bool(by), **_forest(rows, named=sides is not None)}


def _forest(rows: Sequence[Difference], *, named: bool) -> dict[str, Any]:
    """The rows on one scale. `named`: all of one pair, whose names head the columns."""
    ends = [0.0] + [x for d in rows for x in interval_ends(d) if x is not None]
    # `or`: all ends are 0, and a scale needs some length
    room = 0.08 * (max(ends) - min(ends)) or 0.05
    scale = Axis(domain=(min(ends) - room, max(ends) + room), ticks=())
    return {
        "a": rows[0].name_a if named else "a",
        "b": rows[0].name_b if named else "b",
        "mcnemar": any(d.comparison.mcnemar_p is not None for d in rows),
        "ticks": [(_percent(scale.share(t)), f"{t:+g}" if t else "0") for t in round_ticks(*scale.domain)],
        "zero": _percent(scale.share(0.0)),
        "rows": [_row(d, scale) for d in rows],
    }


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _row(d: Difference, scale: Axis) -> dict[str, Any]:
    """A difference in words, and its places on the scale in percent."""
    c = d.comparison
    low, at, high = (None if x is None else scale.share(x) for x in interval_ends(d))
    won, ties, lost = better_alike_worse(d)
    return {
        "number": d.aggregator,
        "pair": (d.name_b, d.name_a),
        "segment": "" if d.segment is None else d.segment.partition("=")[2],
        "a": format_number(c.a, none="–"),
        "b": format_number(c.b, none="–"),
        "difference": format_signed(c.difference),
        "interval": format_interval(c.low, c.high),
        "at": None if at is None else _percent(at),
        "low": None if at is None or low is None or high is None else _percent(low),
        "width": None if at is None or low is None or high is None else _percent(high - low),
        "p": format_p(c.p) + ("†" if d.interval_agrees is False else ""),
        "holm": format_p(d.p_holm),
        "mcnemar": format_p(c.mcnemar_p),
        "mark": difference_mark(d)[0] if d.holds else "",
        "word": d.word,
        "role": {"better": "pass", "worse": "fail"}.get(d.word, "none"),
        "won": won,
        "ties": ties,
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


def _selection(one: Any, parts: Iterable[str]) -> dict[str, Any]:
    return {
        "name": one.selector.name,
        "by": one.selector.by + (", lowest first" if one.selector.prefer == "low" else ""),
        "fingerprint": one.selector.fingerprint(),
        "parts": [_estimate(getattr(one, part)) for part in parts],
    }


# the cases that changed


def case_summary(one: ChangedCase) -> dict[str, Any]:
    """A changed case in a line of the list."""
    text = " ".join((one.input or "").split())
    return {
        "case": one.case,
        "a": one.name_a,
        "b": one.name_b,
        "way": one.way,
        "from": VERDICTS[one.passed_a],
        "to": VERDICTS[one.passed_b],
        "input": text if len(text) <= _INPUT else text[: _INPUT - 1] + "…",
        "strips": [[{True: "s1", False: "s0", None: "sx"}[c.passed] for c in side[:40]] for side in (one.a, one.b)],
    }


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
            "input": cut_middle(c.input, most),
            "reference": cut_middle(c.reference, most),
            "sides": [[_candidate(one, most, locating=locating) for one in side] for side in (c.a, c.b)],
        }
        for c in changed
    ]


def _candidate(one: CandidateExcerpt, most: int, *, locating: bool) -> dict[str, Any]:
    span = None
    # a place in a text that is cut would point elsewhere
    if locating and one.text is not None and one.answer is not None and len(one.text) <= most:
        span = locate(one.text, one.answer)
    return {
        "k": one.index + 1,
        "text": cut_middle(one.text, most),
        "answer": cut_middle(one.answer, 400),
        "pass": {True: 1, False: 0, None: None}[one.passed],
        "span": span,
    }


def _unmatched_rows(found: ComparisonReport) -> list[dict[str, Any]]:
    out = []
    for one in found.unmatched:
        for name, other, cases in ((one.name_a, one.name_b, one.only_a), (one.name_b, one.name_a, one.only_b)):
            if cases:
                more = f" and {len(cases) - MOST_IDS:,} more" if len(cases) > MOST_IDS else ""
                said = f"{format_count(len(cases), 'case')} only in {name}, not in {other}"
                out.append({"said": said, "cases": [show_hidden(c) for c in cases[:MOST_IDS]], "more": more})
    return out
