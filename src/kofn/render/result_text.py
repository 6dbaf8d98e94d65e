"""A result as text for a terminal, and as a document for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.document import BAR_WIDTH, Document, Grid, document_text, interval_bar
from kofn.core.format import format_count, format_interval, format_level, format_number
from kofn.render.run_summary import equal_notes, parent_lines
from kofn.scoring.result import distinct_estimates
from kofn.stats.estimates import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.core.types import Estimate
    from kofn.scoring.result import Result


def result_document(result: Result) -> Document:
    """The result's document."""
    estimates, equals = distinct_estimates(result)
    several = len({e.metric for e in estimates}) > 1
    groups: dict[str, list[Estimate]] = {}
    for e in estimates:
        # one table per metric and field: each on a scale of its own
        by = "" if e.segment is None else f"by {e.segment.partition('=')[0]}"
        groups.setdefault(", ".join(filter(None, [e.metric if several else "", by])), []).append(e)
    return Document(
        headline=_headline(result),
        grids=tuple(_estimates_grid(es, title) for title, es in groups.items()),
        notes=(*equal_notes(equals), *_notes(result)),
        warnings=tuple(map(str, result.warnings)),
        checklist=result.checklist,
    )


def format_result(
    result: Result, style: Callable[[str, str], str] = lambda text, _: text, *, checklist: bool = False
) -> str:
    """The result for a terminal: `document_text` of its document; with `checklist` every line of that too."""
    text = document_text(result_document(result), style, checklist=checklist)
    changed = result.parent is not None and result.parent["changes"]
    return "\n".join([text, "", *parent_lines(result.parent, style)]) if changed else text


def _headline(result: Result) -> tuple[str, ...]:
    u = result.understood
    lines = [result.headline.text]
    sources = ", ".join(u["sources"][:3]) + (f" and {len(u['sources']) - 3} more" if len(u["sources"]) > 3 else "")
    fields = ", ".join(
        f"{role} in `{name}`" for role, name in u["fields"].items() if role != name and not role.startswith("label.")
    )
    if u["form"] != "run":  # whoever made the outputs knows where they are
        lines.append(f"read {sources or 'rows'} as {u['form']}" + (f": {fields}" if fields else ""))
    extras = [f"selector in {', '.join(f'`{name}`' for name in u['selectors'])}"] if u["selectors"] else []
    extras += [f"the first {u['top_k']} candidates of each set"] if u["top_k"] else []
    extras += [f"{result.n_missing:,} candidates not graded"] if result.n_missing else []
    extras += [f"weighted by `{u['weight']}`"] if u["weight"] else []
    extras += [f"resampled by cluster `{u['cluster']}`"] if u["cluster"] else []
    return (*lines, *([", ".join(extras)] if extras else []))


def _estimates_grid(estimates: Sequence[Estimate], title: str) -> Grid:
    """One metric's estimates, drawn on one scale: 0 to 1, or further where the values go."""
    sliced = any(e.segment is not None for e in estimates)
    ends = [x for e in estimates for x in (e.low, e.point, e.high) if x is not None]
    low, high = min([0.0, *ends]), max([1.0, *ends])
    left, end = f"{low:.3g}", f"{high:.3g}"
    header = (
        "aggregator",
        *(["segment"] if sliced else []),
        "value",
        f"{format_level(estimates[0].level)} interval",
        # the header of the drawn column is its axis: the low end at the left, the high end at the right
        left + end.rjust(BAR_WIDTH - len(left)),
        "cases",
        "missing",
        "interval by",
    )
    rows = []
    for e in estimates:
        between = format_interval(e.low, e.high)
        point = format_number(e.point, none="undefined")
        few = "*" if e.n + e.n_missing < SMALL_SEGMENT else ""
        segment = [(e.segment or "").partition("=")[2] + few] if sliced else []
        counts = (f"{e.n:,}", f"{e.n_missing:,}")
        rows.append((e.aggregator, *segment, point, between, interval_bar(e, low, high), *counts, e.method))
    return Grid(title, header, tuple(rows), tuple(h in ("value", "cases", "missing") for h in header))


def _notes(result: Result) -> tuple[tuple[str, str], ...]:
    d = result.diagnostics
    found = result.extraction
    notes = []
    if found.get("n") is not None:
        how = f"extracted by {found['extractor']} ({found['reason']})" if found["extractor"] else found["reason"]
        text = f"{how}; none in {found['n_failed']:,} of {found['n']:,} candidates"
        if labels := found.get("labels"):
            text += f"; {labels['metric']} and labels differ on {labels['n_differ']:,} of {labels['n']:,}"
        notes.append(("answers", text))
    if audit := found.get("audit"):
        first, *others = audit["failure_rate"]
        shares = ", ".join(f"{other} {audit['agreement'][first][other]:.0%}" for other in others)
        scores = ", ".join(f"{name} {score:.2f}" for name, score in (audit["score"] or {}).items())
        text = f"{first} agrees with {shares}{'; score ' if scores else ''}{scores} (on {audit['n']:,} candidates)"
        notes.append(("extractors", text))
    if d["sizes"]["min"] != d["sizes"]["max"]:
        notes.append(("set sizes", f"{d['sizes']['min']} to {d['sizes']['max']}, median {d['sizes']['median']:g}"))
    several = d["sizes"]["max"] > 1
    if several and (votes := d.get("votes")) and votes["agreement"] is not None:
        notes.append(("votes", _votes_note(votes, result.n_cases)))
    if several and (diversity := d.get("diversity")):
        notes.append(("diversity", _diversity_note(diversity)))
    for name, unit in (("cost", ""), ("seconds", " s")):
        if spent := d.get(name):
            notes.append((name, f"{spent['total']:,.4g}{unit} total, {spent['per_case']:,.4g}{unit} per case"))
    return tuple(notes)


def _votes_note(votes: dict[str, float], n_cases: int) -> str:
    return (
        f"the leading answer has {votes['agreement']:.0%} of the candidates, {votes['margin']:.0%} ahead of the next; "
        f"{votes['unanimous']:,} of {n_cases:,} unanimous, {votes['ties']:,} tied"
    )


def _diversity_note(d: dict[str, float | None]) -> str:
    unique = "an undefined share" if d["unique_texts"] is None else f"{d['unique_texts']:.0%}"
    names = ("distinct_1", "distinct_2", "redundancy")
    one, two, redundancy = (format_number(d[name], 2, none="undefined") for name in names)
    return (
        f"{unique} of the texts in a set are distinct; distinct-1 {one}, distinct-2 {two}, redundancy {redundancy} "
        f"(on {format_count(int(d['n_sets_sampled'] or 0), 'set')})"
    )
