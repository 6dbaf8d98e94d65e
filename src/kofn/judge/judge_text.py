"""Judges and preferences as text for a terminal and as a document for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.document import Document, Grid, interval_bar
from kofn.core.escape import escape_controls
from kofn.core.format import format_money, format_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kofn.judge.pairwise import Preference


def format_preference(preference: Preference, style: Callable[[str, str], str] = lambda text, _: text) -> str:
    """A against B for a terminal."""
    return "\n".join(_preference_lines(preference, style))


def _preference_lines(preference: Preference, style: Callable[[str, str], str]) -> list[str]:
    rate = preference.rate
    if rate.point is None:
        return [
            style(_preference_headline(preference), "bad"),
            *(f"! {escape_controls(str(w))}" for w in preference.warnings),
        ]
    lines = [
        style(escape_controls(_preference_headline(preference)), "strong"),
        f"{interval_bar(rate)}  0 to 1, one half is a tie; {rate.n:,} cases",
        "",
    ]
    lines += [
        f"{style(name.ljust(10), 'dim')} {escape_controls(value)}" for name, value in _preference_facts(preference)
    ]
    return lines + [f"{style('!', 'warn')} {escape_controls(str(w))}" for w in preference.warnings]


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
    return f"{systems} in {rate.format()} of pairs, p {preference.p:.3g}"


def _preference_facts(preference: Preference) -> list[tuple[str, str]]:
    data = preference.to_dict()
    wins = f"{data['wins']:,} pairs won, {data['ties']:,} tied, {data['losses']:,} lost"
    facts = [
        ("pairs", wins),
        ("position", position_text(data["position"])),
        ("judge", ", ".join(preference.judge["models"])),
    ]
    facts += [
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
    facts = [
        ("judge", ", ".join(judge["models"])),
        ("rubric", f"{judge['rubric']} version {judge['version']}, scale {judge['scale']}" + _passing_text(judge)),
        ("fingerprint", f"{judge['fingerprint']} (prompt {judge['prompt_sha256'][:12]})"),
        ("verdicts", _verdicts_text(judge)),
        ("spent", _cost_text(judge)),
    ]
    if variance := judge.get("variance"):
        facts.append(("variance", _variance_text(variance["shares"])))
    if panel := judge.get("panel"):
        facts += _panel_facts(panel)
    if position := judge.get("position"):
        facts.append(("position", position_text(position)))
    return facts


def _passing_text(judge: Mapping[str, Any]) -> str:
    return "" if judge["threshold"] is None else f", {judge['threshold']:g} or more passes"


def _verdicts_text(judge: Mapping[str, Any]) -> str:
    parts = [
        f"{judge['n_verdicts']:,}",
        f"{judge['n_repaired']:,} after a repair",
        f"{judge['n_failed']:,} calls failed",
    ]
    what = "verdicts" if judge["kind"] == "pairwise" else "candidates"
    return ", ".join([*parts, f"{judge['n_not_graded']:,} {what} not graded"])


def _cost_text(judge: Mapping[str, Any]) -> str:
    cost = "price not known" if judge["cost"] is None else format_money(judge["cost"], 4)
    return f"{judge['calls']:,} calls, {judge['tokens_in']:,} tokens in, {judge['tokens_out']:,} out, {cost}"


def _variance_text(shares: Mapping[str, float | None]) -> str:
    parts = [f"{name} {share:.0%}" for name, share in shares.items() if share is not None]
    return f"{', '.join(parts)} of the spread of single verdicts" if parts else "verdicts do not vary"


def _panel_facts(panel: Mapping[str, Any]) -> list[tuple[str, str]]:
    kappa = format_number(panel.get("kappa"), 2, none="undefined")
    facts = [("panel", f"{panel['how']} of {len(panel.get('judges', {}))} judges, kappa {kappa}")]
    for name, rates in panel.get("judges", {}).items():
        numbers = f"sensitivity {rates['sensitivity']:.2f}, specificity {rates['specificity']:.2f}"
        facts.append((f"  {name}", f"passes {rates['pass_rate']:.0%}; {numbers} (by Dawid-Skene: no human label)"))
    return facts


def position_text(position: Mapping[str, Any]) -> str:
    """Position bias in words."""
    same, first = position["consistent"], position["first_shown"]
    if same["point"] is None:
        return "no pair was judged in both orders"
    words = f"{same['point']:.0%} of {position['n']:,} pairs have the same winner in both orders"
    if first["point"] is None:
        return words
    return f"{words}; what is shown first wins {first['point']:.0%}{_interval_text(first)} of decided verdicts"


def _interval_text(e: Mapping[str, float | None]) -> str:
    return "" if e["low"] is None or e["high"] is None else f" [{e['low']:.0%}, {e['high']:.0%}]"
