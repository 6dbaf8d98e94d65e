"""What report.html shows, collected for its template; its judges and groups are worded in `run_summary.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from kofn.aggregators.votes import any_agree
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
from kofn.render.page import Stat, html_page
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


@dataclass(frozen=True, slots=True)
class PageFacts:
    """A titled list of (what, value, explanation)."""

    title: str
    items: Sequence[tuple[str, str, str]]


def report_page(run: Run, budget: ByteBudget | None = None) -> str:
    """report.html of a run: its verdict, numbers, charts, and every case with its candidates."""
    data = report_data(run)
    cases = case_blocks(run, budget)
    data["warnings"] += [(note, "") for note in cases.notes]
    more = {"n_shown": cases.n_shown, "total": cases.total, "searched": cases.searched, "case_link": _link_inside}
    return html_page(
        "report.html.j2",
        {**data, **more},
        title=f"{data['title']} · kofn",
        scripts=["report.js"],
        blocks=cases.blocks,
    )


def _link_inside(case: Mapping[str, Any]) -> str:
    """Where the page itself shows a case."""
    return f"#case={quote(case['id'][:1000], errors='replace')}&row={case['row']}"


def report_data(run: Run, *, with_charts: bool = True) -> dict[str, Any]:
    """Everything the template shows but the table of cases; without `drawn` not what is made from all candidates."""
    scores = case_scores(run.reports)
    result = run.result
    verdict, headline = _verdict(run), run.headline
    task = cut_text(run.task, _NAME) or "(no name)"
    versions = run.manifest.get("versions") or {}
    by = f"kofn {versions['kofn']}" if isinstance(versions, dict) and "kofn" in versions else ""
    return {
        "has_candidates": result is not None,
        "task": task,
        "title": f"{task} – {headline.number if result is not None else verdict['word'].lower()}",
        "headline": _headline(run),
        "name": cut_text(run.name, _NAME),
        "subject": cut_text(run_summary.submission_of(run), _NAME),
        "tags": [cut_text(tag, _NAME) for tag in run_summary.tags_of(run)],
        "verdict": verdict,
        "checks": _checks(run),
        "summary": run_summary.case_rule_sentence(run) if result is not None else _program_summary(run),
        "made": " · ".join(filter(None, [f"{run.evaluation.timestamp:%Y-%m-%d %H:%M} UTC", by])),
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
        "facts": [] if result is None else _facts(run, result),
        "spending": charts.spending_charts(run, scores) if with_charts else [],
        "slowest": _slowest(scores),
        "manifest": _manifest(run.manifest),
        "sources": _sources(run.manifest),
    }


# --- the head


def _verdict(run: Run) -> dict[str, Any]:
    """Passed, not passed, or incomplete where the harness failed or nothing was verified; and what is missing.

    `defined` is false where nobody defined a verdict: the page then leads with the headline alone.
    """
    status, evaluation = run_summary.status_of(run), run.evaluation
    if not status.defined:
        return {"kind": "none", "word": "", "policy": "", "reason": "", "gaps": status.gaps, "defined": False}
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
        "defined": True,
    }


def _headline(run: Run) -> dict[str, str]:
    """The sentence that stands first everywhere, and its number to be set large."""
    found = run.headline
    if (e := found.estimate) is None:
        return {"text": cut_text(found.text, _SENTENCE), "name": "", "point": "", "interval": ""}
    return {
        "text": cut_text(found.text, _SENTENCE),
        "name": cut_text(e.aggregator, _NAME),
        "point": format_number(e.point, none="undefined"),
        "interval": format_interval(e.low, e.high, none=""),
    }


def _checks(run: Run) -> dict[str, Any] | None:
    """The last `kofn check` of the run: its outcome, and every requirement."""
    found = run.checks
    if found is None:
        return None
    rows = [(bool(one["passed"]), cut_text(str(one["reason"]), _SENTENCE)) for one in found["checks"]]
    when = str(found["checked"])[:16].replace("T", " ")
    return {"passed": bool(found["passed"]), "summary": str(found["summary"]), "when": when, "rows": rows}


def _program_summary(run: Run) -> str:
    """What a run of programs is of, and when a case passes."""
    cases, n = format_count(run.reports.height, "case"), len(run.evaluation.group_outcomes)
    return f"{cases} in {format_count(n, 'group')}; a case passes when every verified attribute is correct"


def _stats(run: Run) -> list[Stat]:
    """Up to four numbers a reader looks for first."""
    evaluation = run.evaluation
    passed, total = sum(evaluation.pass_counts.values()), sum(evaluation.total_counts.values())
    if run.result is not None:
        first = run.headline.estimate
        if first is None:
            return []
        found = {e.aggregator: e for e in charts.overall_estimates(run.result) if e.metric == first.metric}
        # the headline stands beside them
        names = dict.fromkeys(["mean", "any_pass", "majority", "first", *sorted(found)])
        return [_stat(found[name]) for name in names if name in found and name != first.aggregator][:3]
    score = evaluation.score()
    stats = [Stat("score", format_number(score, none="–"), "mean of groups by weight", score)]
    stats.append(Stat("cases passing", f"{passed:,}", f"of {total:,}"))
    return [*stats, Stat("time", format_duration(evaluation.duration))] if evaluation.duration else stats


def _stat(e: Estimate) -> Stat:
    ends = (e.point, e.low, e.high) if charts.is_share(e) else ()
    return Stat(e.aggregator, format_number(e.point, none="–"), format_interval(e.low, e.high, none="–"), *ends)


def checklist_rows(lines: Sequence[ChecklistLine]) -> list[dict[str, str]]:
    """The checklist's lines, with the look of each answer."""
    kinds = {"yes": "pass", "no": "fail", "unknown": "none", "n/a": "none"}
    return [
        {**line.to_dict(), "kind": kinds[line.answer], "reason": cut_text(line.reason, _SENTENCE)} for line in lines
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
    share = pl.col("correct") / (pl.col("correct") + pl.col("wrong")).clip(1)
    rows = found.head(_MOST_ATTRIBUTES).with_columns(share=share).iter_rows(named=True)
    return [{**row, "attribute": cut_text(row["attribute"], _NAME)} for row in rows]


def _slowest(scores: pl.DataFrame) -> list[dict[str, Any]]:
    slow = scores.with_row_index("row").filter(pl.col("duration") > 0).top_k(_SLOWEST, by="duration")
    if slow["duration"].n_unique() < 2:  # none, or all alike
        return []
    columns = slow.select("row", "id", "group", "duration", "passed").iter_rows(named=True)
    return [{**row, "duration": format_duration(row["duration"])} for row in columns]


def _facts(run: Run, result: ScoredResult) -> list[PageFacts]:
    """How the outputs were made, where kofn made them; what they cost, and what votes, texts and answers are like."""
    d = result.diagnostics
    votes, diversity = ((d.get(name) or {}) if d["sizes"]["max"] > 1 else {} for name in ("votes", "diversity"))
    made = [
        (cut_text(name, _NAME), cut_text(value, _NAME), cut_text(note, _NAME))
        for name, value, note in generation_facts(run.manifest)
    ]
    found = [
        PageFacts("Generation", made),
        PageFacts("Cost and time", _spending(d, len(result.scored[0].sets))),
        PageFacts("Votes", _votes(votes, result.n_cases) if any_agree(result.scored[0].sets) and votes else []),
        PageFacts("Set diversity", _diversity(diversity) if diversity else []),
        PageFacts("Extraction", _extraction(result.extraction)),
    ]
    return [facts for facts in found if facts.items]


def _spending(d: Mapping[str, Any], n_cases: int) -> list[tuple[str, str, str]]:
    items = []
    if cost := d.get("cost"):
        items += [("total cost", format_amount(cost["total"]), "")]
        items += [("cost a case", format_amount(cost["per_case"]), "")]
    if d.get("seconds"):
        total = d["seconds"]["total"]
        items += [("total time", format_duration(total), "added up over candidates")]
        items += [("time a case", format_duration(total / max(1, n_cases)), "")]
    sizes = d["sizes"]
    if sizes["min"] != sizes["max"]:
        items.append(("set sizes", f"{sizes['min']}–{sizes['max']}", f"median {sizes['median']:g}"))
    return items


def _votes(votes: Mapping[str, Any], n: int) -> list[tuple[str, str, str]]:
    counts = {"unanimous": votes["unanimous"], "tied": votes["ties"]}
    if votes.get("nobody_answered"):
        counts["nobody answers"] = votes["nobody_answered"]
    return [
        ("leading answer", format_percent(votes["agreement"]), "of the candidates are behind it"),
        ("lead", format_percent(votes["margin"]), "ahead of the next answer"),
        ("different answers", format_amount(votes["unique_answers"]), "a set, on average"),
        *((name, f"{count:,}", f"of {n:,} sets") for name, count in counts.items()),
    ]


def _diversity(d: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    sampled = f"on {d['n_sets_sampled']:,} sets"
    return [
        ("different texts", format_percent(d["unique_texts"]), "of a set"),
        ("identical sets", f"{d['identical_sets']:,}", f"of {d['n_sets_of_several']:,}"),
        ("distinct-1", format_number(d["distinct_1"], none="–"), f"different words, {sampled}"),
        ("distinct-2", format_number(d["distinct_2"], none="–"), f"different word pairs, {sampled}"),
        ("redundancy", format_number(d["redundancy"], none="–"), f"overlap of candidates, {sampled}"),
    ]


def _extraction(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    if found.get("n") is None:
        return []
    items = [
        ("answers", found["extractor"] or "given", found["reason"]),
        ("no answer", f"{found['n_failed']:,}", f"of {found['n']:,} candidates"),
    ]
    if labels := found.get("labels"):
        items.append(("differ from labels", f"{labels['n_differ']:,}", f"of {labels['n']:,}, by {labels['metric']}"))
    if audit := found.get("audit"):
        first, *others = audit["failure_rate"]
        agreement, of = audit["agreement"][first], f"on {audit['n']:,}"
        items += [(f"agrees with {other}", format_percent(agreement[other]), of) for other in others]
    return items


# --- the manifest


def _manifest(manifest: Mapping[str, Any]) -> str:
    """run.json as text; a very long one without its result, which the page shows."""
    text = ""
    # the result is most of a long manifest, and the page shows it anyway
    for shown in (manifest, {k: v for k, v in manifest.items() if k != "result"}):
        text = json.dumps(shown, indent=2, ensure_ascii=False, default=str) if manifest else ""
        if len(text) <= _MANIFEST:
            return text
    return text[:_MANIFEST] + "\n… (run.json holds the rest)"


def _sources(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    sources = manifest.get("sources")
    listed = [s for s in sources[:20] if isinstance(s, dict)] if isinstance(sources, list) else []
    return [(cut_text(str(s.get("path")), _NAME), str(s.get("sha256") or "")[:12]) for s in listed]
