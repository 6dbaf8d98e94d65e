"""Judges and preferences as text for a terminal and as a document for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.document import Document, Grid, interval_bar
from kofn.core.escape import escape_controls
from kofn.core.format import format_money, format_number, format_p_in_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.judge.judge_run import Preference


def format_preference(preference: Preference, style: Callable[[str, str], str] = lambda text, _: text) -> str:
    """A against B for a terminal."""
    rate, warnings = preference.rate, [escape_controls(str(w)) for w in preference.warnings]
    if rate.point is None:
        return "\n".join([style(_preference_headline(preference), "bad"), *(f"! {text}" for text in warnings)])
    lines = [
        style(escape_controls(_preference_headline(preference)), "strong"),
        f"{interval_bar(rate)}  0 to 1, one half is a tie; {rate.n:,} cases",
        "",
        *(f"{style(name.ljust(10), 'dim')} {escape_controls(value)}" for name, value in _preference_facts(preference)),
    ]
    return "\n".join([*lines, *(f"{style('!', 'warn')} {text}" for text in warnings)])


def preference_document(preference: Preference) -> Document:
    """The same for a notebook."""
    grid = Grid("", ("0  1", ""), ((interval_bar(preference.rate), "one half is a tie"),), (False, False))
    known = preference.rate.point is not None
    notes = tuple(_preference_facts(preference)) if known else ()
    return Document(
        (_preference_headline(preference),), (grid,) if known else (), notes, tuple(map(str, preference.warnings))
    )


def _preference_headline(preference: Preference) -> str:
    rate = preference.rate
    if rate.point is None:
        return "no pair has a verdict"
    systems = f"{preference.name_a} is preferred to {preference.name_b}"
    return f"{systems} in {rate.format()} of pairs, {format_p_in_text(preference.p)}"


def _preference_facts(preference: Preference) -> list[tuple[str, str]]:
    data = preference.to_dict()
    wins = f"{data['wins']:,} pairs won, {data['ties']:,} tied, {data['losses']:,} lost"
    facts = [
        ("pairs", wins),
        ("position", position_text(data["position"])),
        ("judge", ", ".join(preference.judge["models"])),
        ("rubric", f"{preference.judge['rubric']} version {preference.judge['version']}"),
        ("spent", _cost_text(preference.judge)),
    ]
    for side, ids in ((preference.name_a, preference.only_a), (preference.name_b, preference.only_b)):
        if ids:
            facts.append(("unmatched", f"{len(ids):,} cases are only in {side}: {', '.join(ids[:5])}"))
    return facts


def judge_facts(name: str, judges: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What people read about a judge, line by line."""
    judge = judges[name]
    passing = "" if judge["threshold"] is None else f", {judge['threshold']:g} or more passes"
    what = "verdicts" if judge["kind"] == "pairwise" else "candidates"
    counts = f"{judge['n_verdicts']:,}, {judge['n_repaired']:,} after a repair, {judge['n_failed']:,} calls failed"
    facts = [
        ("judge", ", ".join(judge["models"])),
        ("rubric", f"{judge['rubric']} version {judge['version']}, scale {judge['scale']}{passing}"),
        ("fingerprint", f"{judge['fingerprint']} (prompt {judge['prompt_sha256'][:12]})"),
        ("verdicts", f"{counts}, {judge['n_not_graded']:,} {what} not graded"),
        ("spent", _cost_text(judge)),
    ]
    if variance := judge.get("variance"):
        parts = ", ".join(f"{part} {share:.0%}" for part, share in variance["shares"].items() if share is not None)
        facts.append(("variance", f"{parts} of the spread of single verdicts" if parts else "verdicts do not vary"))
    if panel := judge.get("panel"):
        kappa = format_number(panel.get("kappa"), 2, none="undefined")
        facts.append(("panel", f"{panel['how']} of {len(panel.get('judges', {}))} judges, kappa {kappa}"))
        for member, rates in panel.get("judges", {}).items():
            numbers = f"sensitivity {rates['sensitivity']:.2f}, specificity {rates['specificity']:.2f}"
            facts.append(
                (f"  {member}", f"passes {rates['pass_rate']:.0%}; {numbers} (by Dawid-Skene: no human label)")
            )
    if position := judge.get("position"):
        facts.append(("position", position_text(position)))
    return facts


def _cost_text(judge: Mapping[str, Any]) -> str:
    cost = "price not known" if judge["cost"] is None else format_money(judge["cost"], 4)
    return f"{judge['calls']:,} calls, {judge['tokens_in']:,} tokens in, {judge['tokens_out']:,} out, {cost}"


def position_text(position: Mapping[str, Any]) -> str:
    """Position bias in words."""
    same, first = position["consistent"], position["first_shown"]
    if same["point"] is None:
        return "no pair was judged in both orders"
    words = f"{same['point']:.0%} of {position['n']:,} pairs have the same winner in both orders"
    if first["point"] is None:
        return words
    low, high = first["low"], first["high"]
    interval = "" if low is None or high is None else f" [{low:.0%}, {high:.0%}]"
    return f"{words}; what is shown first wins {first['point']:.0%}{interval} of decided verdicts"
