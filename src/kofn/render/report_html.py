"""The data of report.html: words, numbers and charts for its template."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl
from markupsafe import Markup

from kofn.core.format import (
    format_amount,
    format_count,
    format_duration,
    format_interval,
    format_number,
    format_percent,
)
from kofn.core.warnings import CodedWarning
from kofn.render import charts, run_summary
from kofn.render.case_payload import case_blocks
from kofn.render.page import environment, html_document, read_template
from kofn.render.run_summary import cut_text, judge_rows, parent_data
from kofn.runs.case_reports import case_scores, explode_structs
from kofn.runs.manifest import generation_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.document import ChecklistLine
    from kofn.core.types import Estimate
    from kofn.render.page import ByteBudget
    from kofn.runs.record import Run
    from kofn.scoring.result import ScoredResult

_MOST_GROUPS = 200
_MOST_ATTRIBUTES = 60
_SLOWEST = 10
_NAME = 200  # characters of a name
_SENTENCE = 1_000  # characters of a reason or a warning
_MANIFEST = 200_000  # characters of run.json; a longer one is shown without its result


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """A number for the head of the page; the ends place it on a line from 0 to 1 where it is a share."""

    name: str
    value: str
    detail: str = ""
    point: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """A titled list of (what, value, explanation)."""

    title: str
    items: tuple[tuple[str, str, str], ...]


def report_page(run: Run, budget: ByteBudget | None = None) -> str:
    """report.html of a run: its verdict, numbers, charts, and every case with its candidates."""
    data = report_data(run)
    cases = case_blocks(run, budget)
    data["warnings"] += [(note, "") for note in cases.notes]
    template = environment().get_template("report.html.j2")
    body = template.render(
        **data, n_shown=cases.n_shown, total=cases.total, searched=cases.searched, case_link=_link_inside
    )
    return html_document(
        title=f"{data['task']} – {data['verdict']['word'].lower()} · kofn",
        body=Markup(body),  # noqa: S704 - the template escapes
        scripts=[read_template("report.js")],
        blocks=cases.blocks,
    )


def _link_inside(case: Mapping[str, Any]) -> str:
    """Where the page itself shows a case."""
    return f"#case={quote(case['id'][:1000], errors='replace')}&row={case['row']}"


def report_data(run: Run, *, with_charts: bool = True) -> dict[str, Any]:
    """Everything the template shows but the table of cases; without `drawn` not what is made from all candidates."""
    scores = case_scores(run.reports)
    result = run.result
    return {
        "has_candidates": result is not None,
        "task": cut_text(run.task, _NAME) or "(no name)",
        "name": cut_text(run.name, _NAME),
        "subject": cut_text(run_summary.submission_of(run), _NAME),
        "tags": [cut_text(tag, _NAME) for tag in run_summary.tags_of(run)],
        "verdict": _verdict(run),
        "summary": run_headline(run),
        "rule": _rule(run),
        "made": _made_line(run),
        "stats": _stats(run),
        "warnings": _warnings(run),
        "judges": judge_rows(run),
        "parent": parent_data(run.manifest),
        "checklist": checklist_rows(() if result is None else result.checklist),
        "estimates": [] if result is None else charts.forest_charts(result),
        "sets": [] if result is None or not with_charts else charts.set_charts(run, result),
        "segments": [] if result is None else charts.segment_charts(run, result),
        "groups": _groups(run, scores),
        "n_groups": len(run.evaluation.group_outcomes),
        "types": _types(run),
        "attributes": _attributes(run),
        "facts": [] if result is None else [*_generation(run), *_facts(result)],
        "spending": charts.spending_charts(run, scores) if with_charts else [],
        "slowest": _slowest(scores),
        "manifest": _manifest(run.manifest),
        "sources": _sources(run.manifest),
    }


# --- the head


def _verdict(run: Run) -> dict[str, Any]:
    """Passed, not passed, or incomplete where the harness failed or nothing was verified; and what is missing."""
    status, evaluation = run_summary.status_of(run), run.evaluation
    # chained: all are unverified, and there is at least one
    nothing = evaluation.n_unverified == sum(evaluation.total_counts.values()) > 0
    if status.word == run_summary.HARNESS_FAILED or nothing:
        kind, word = "incomplete", "Incomplete"
    else:
        kind, word = ("passed", "Passed") if status.word == run_summary.PASSED else ("failed", "Not passed")
    reason = f"the harness failed, {status.reason}" if status.word == run_summary.HARNESS_FAILED else status.reason
    return {
        "kind": kind,
        "word": word,
        "policy": evaluation.policy.value,
        "reason": cut_text(reason, _SENTENCE),
        "gaps": status.gaps,
    }


def run_headline(run: Run) -> str:
    """What was evaluated, in one line."""
    cases = format_count(run.reports.height, "case")
    if run.result is None:
        n = len(run.evaluation.group_outcomes)
        return f"{cases} in {format_count(n, 'group')}"
    size = run.result.understood.get("set_size")
    each = f" × {format_count(size, 'candidate')}" if size is not None else f", {run.result.n_candidates:,} candidates"
    graded = ", ".join(one.metric for one in run.result.scored if one.metric)
    return f"{cases}{each}, " + (f"graded by {graded}" if graded else "nothing graded")


def _rule(run: Run) -> str:
    """When a case passes."""
    if run.result is None:
        return "a case passes when every verified attribute is correct"
    verdict = (run.evaluation.verdict or "").replace(">=", "≥").replace("<=", "≤")
    return f"a case passes when {verdict}" if verdict else ""


def _made_line(run: Run) -> str:
    versions = run.manifest.get("versions") or {}
    by = f"kofn {versions['kofn']}" if isinstance(versions, dict) and "kofn" in versions else ""
    return " · ".join(filter(None, [f"{run.evaluation.timestamp:%Y-%m-%d %H:%M} UTC", by]))


def _stats(run: Run) -> list[Stat]:
    """Up to four numbers a reader looks for first."""
    evaluation = run.evaluation
    passed, total = sum(evaluation.pass_counts.values()), sum(evaluation.total_counts.values())
    if run.result is not None:
        return [_stat(e) for e in _headlines(run.result, charts.headline_aggregator(run))]
    score = evaluation.score()
    stats = [Stat(name="score", value=format_number(score, none="–"), detail="mean of groups by weight", point=score)]
    stats.append(Stat(name="cases passing", value=f"{passed:,}", detail=f"of {total:,}"))
    if evaluation.duration:
        stats.append(Stat(name="time", value=format_duration(evaluation.duration)))
    return stats


def _stat(e: Estimate) -> Stat:
    share = charts.is_share(e)
    return Stat(
        name=e.aggregator,
        value=format_number(e.point, none="–"),
        detail=format_interval(e.low, e.high, none="–"),
        point=e.point if share else None,
        low=e.low if share else None,
        high=e.high if share else None,
    )


def _headlines(result: ScoredResult, first: str) -> list[Estimate]:
    of_metric = [e for e in charts.overall_estimates(result) if e.metric == result.scored[0].metric]
    names = list(dict.fromkeys([first, "first", "mean", "any_pass", "majority", *(e.aggregator for e in of_metric)]))
    found = {e.aggregator: e for e in of_metric}
    return [found[name] for name in names if name in found][:4]


def checklist_rows(lines: Sequence[ChecklistLine]) -> list[dict[str, str]]:
    """The checklist's lines, with the look of each answer."""
    kinds = {"yes": "pass", "no": "fail", "unknown": "none"}
    return [
        {
            "answer": line.answer,
            "kind": kinds[line.answer],
            "item": line.item,
            "reason": cut_text(line.reason, _SENTENCE),
        }
        for line in lines
    ]


def _warnings(run: Run) -> list[tuple[str, str]]:
    """The sentence and the code of each warning."""
    warnings = [] if run.result is None else list(run.result.warnings)
    # where all are, the verdict says so
    if 0 < run.evaluation.n_unverified < run.reports.height:
        warnings.append(CodedWarning.of("unverified-cases", n=run.evaluation.n_unverified))
    return [(cut_text(str(w), _SENTENCE), w.code) for w in warnings]


# --- tables


def _groups(run: Run, scores: pl.DataFrame) -> list[dict[str, Any]]:
    outcomes = run.evaluation.group_outcomes
    return [
        {
            "name": cut_text(g.name, _NAME),
            "type": g.type.value,
            "weight": f"{g.weight:g}",
            "score": format_number(g.score, none="–"),
            "share": g.passed / g.total if g.total else 0.0,
            "passed": f"{g.passed:,}",
            "total": f"{g.total:,}",
            "unverified": f"{g.unverified:,}" if g.unverified else "–",
            "duration": format_duration(outcomes[g.name].duration) if outcomes[g.name].duration else "–",
        }
        for g in run_summary.groups_of(run, scores)[:_MOST_GROUPS]
    ]


def _types(run: Run) -> list[dict[str, Any]]:
    """Cases and failures by type, every type that has cases."""
    passes, totals = run.evaluation.pass_counts, run.evaluation.total_counts
    return [
        {
            "name": kind.value,
            "passed": f"{passes.get(kind, 0):,}",
            "total": f"{total:,}",
            "failed": f"{total - passes.get(kind, 0):,}",
            "share": passes.get(kind, 0) / total if total else 0.0,
        }
        for kind, total in totals.items()
    ]


def _attributes(run: Run) -> list[dict[str, Any]]:
    """What was checked: in how many cases, and how many were right. Not where there is but one thing to check."""
    flat = explode_structs(run.reports, "results")
    correct = pl.col("is_correct")
    found = (
        flat.group_by("attribute", maintain_order=True)
        .agg(
            correct=(correct == True).sum(),  # noqa: E712 - a column
            wrong=(correct == False).sum(),  # noqa: E712
            unverified=correct.is_null().sum(),
            weight=pl.col("weight").mean(),
        )
        .sort("wrong", descending=True, maintain_order=True)
    )
    # one attribute says what the verdict says
    if found.height < 2:
        return []
    return [
        {
            **row,
            "attribute": cut_text(row["attribute"], _NAME),
            "share": row["correct"] / max(1, row["correct"] + row["wrong"]),
        }
        for row in found.head(_MOST_ATTRIBUTES).iter_rows(named=True)
    ]


def _slowest(scores: pl.DataFrame) -> list[dict[str, Any]]:
    slow = scores.with_row_index("row").filter(pl.col("duration") > 0).top_k(_SLOWEST, by="duration")
    if slow["duration"].n_unique() < 2:  # none, or all alike
        return []
    columns = slow.select("row", "id", "group", "duration", "passed").iter_rows(named=True)
    return [{**row, "duration": format_duration(row["duration"])} for row in columns]


def _facts(result: ScoredResult) -> list[PageFacts]:
    d = result.diagnostics
    several = d["sizes"]["max"] > 1
    found = [
        _spending_facts(d, len(result.scored[0].sets)),
        _votes(d["votes"], result.n_cases) if several and (d.get("votes") or {}).get("agreement") is not None else None,
        _diversity(d["diversity"]) if several and d.get("diversity") else None,
        _extraction(result.extraction),
    ]
    return [facts for facts in found if facts is not None]


def _generation(run: Run) -> list[PageFacts]:
    """How the outputs were made, where kofn made them."""
    items = tuple(
        (cut_text(name, _NAME), cut_text(value, _NAME), cut_text(note, _NAME))
        for name, value, note in generation_facts(run.manifest)
    )
    return [PageFacts(title="Generation", items=items)] if items else []


def _spending_facts(d: Mapping[str, Any], n_cases: int) -> PageFacts | None:
    items: list[tuple[str, str, str]] = []
    if d.get("cost"):
        items += [
            ("cost in all", format_amount(d["cost"]["total"]), ""),
            ("cost a case", format_amount(d["cost"]["per_case"]), ""),
        ]
    if d.get("seconds"):
        total = d["seconds"]["total"]
        items += [("time in all", format_duration(total), "added up over candidates")]
        items += [("time a case", format_duration(total / max(1, n_cases)), "")]
    if d["sizes"]["min"] != d["sizes"]["max"]:
        sizes = d["sizes"]
        items.append(("set sizes", f"{sizes['min']}–{sizes['max']}", f"median {sizes['median']:g}"))
    return PageFacts(title="Cost and time", items=tuple(items)) if items else None


def _votes(votes: Mapping[str, Any], n: int) -> PageFacts:
    items = [
        ("leading answer", format_percent(votes["agreement"]), "of the candidates are behind it"),
        ("lead", format_percent(votes["margin"]), "ahead of the next answer"),
        ("different answers", format_amount(votes["unique_answers"]), "a set, on average"),
        ("unanimous", f"{votes['unanimous']:,}", f"of {n:,} sets"),
        ("tied", f"{votes['ties']:,}", f"of {n:,} sets"),
    ]
    if votes.get("nobody_answered"):
        items.append(("nobody answers", f"{votes['nobody_answered']:,}", f"of {n:,} sets"))
    return PageFacts(title="Votes", items=tuple(items))


def _diversity(d: Mapping[str, Any]) -> PageFacts:
    sampled = f"on {d['n_sets_sampled']:,} sets"
    return PageFacts(
        title="Set diversity",
        items=(
            ("different texts", format_percent(d["unique_texts"]), "of a set"),
            ("identical sets", f"{d['identical_sets']:,}", f"of {d['n_sets_of_several']:,}"),
            ("distinct-1", format_number(d["distinct_1"], none="–"), f"different words, {sampled}"),
            ("distinct-2", format_number(d["distinct_2"], none="–"), f"different word pairs, {sampled}"),
            ("redundancy", format_number(d["redundancy"], none="–"), f"overlap of candidates, {sampled}"),
        ),
    )


def _extraction(found: Mapping[str, Any]) -> PageFacts | None:
    if found.get("n") is None:
        return None
    items = [
        ("answers", found["extractor"] or "given", found["reason"]),
        ("no answer", f"{found['n_failed']:,}", f"of {found['n']:,} candidates"),
    ]
    if labels := found.get("labels"):
        items.append(("differ from labels", f"{labels['n_differ']:,}", f"of {labels['n']:,}, by {labels['metric']}"))
    if audit := found.get("audit"):
        first, *others = audit["failure_rate"]
        items += [
            (f"agrees with {o}", format_percent(audit["agreement"][first][o]), f"on {audit['n']:,}") for o in others
        ]
    return PageFacts(title="Extraction", items=tuple(items))


# --- the manifest


def _manifest(manifest: Mapping[str, Any]) -> str:
    """run.json as text; a very long one without its result, which the page shows."""
    if not manifest:
        return ""
    text = _indent(manifest)
    # the result is most of a long manifest, and the page shows it anyway
    if len(text) > _MANIFEST:
        text = _indent({k: v for k, v in manifest.items() if k != "result"})
    return text if len(text) <= _MANIFEST else text[:_MANIFEST] + "\n… (run.json holds the rest)"


def _indent(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, default=str)


def _sources(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    sources = manifest.get("sources")
    if not isinstance(sources, list):
        return []
    return [
        (cut_text(str(s.get("path")), _NAME), str(s.get("sha256") or "")[:12])
        for s in sources[:20]
        if isinstance(s, dict)
    ]


# --- numbers as words
