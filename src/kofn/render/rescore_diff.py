"""Shows what changed between a rescored run and its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.core.document import Grid, grid_lines
from kofn.core.escape import escape_controls, show_hidden
from kofn.core.format import format_count, format_number, format_signed, format_signed_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SHOWN = 5  # examples in a terminal; the page shows all that run.json keeps
_ANSWER = 40


def parent_lines(parent: Mapping[str, Any] | None, style: Callable[[str, str], str], most: int = _SHOWN) -> list[str]:
    """The changes as lines of text; nothing for a run without a parent."""
    if not parent:
        return []
    out = [style(f"graded again from {escape_controls(parent['name'])}", "strong")]
    for one in parent["changes"]:
        out += [escape_controls(change_summary(one)), *grid_lines(_numbers(one), style)]
        if one["examples"]:
            out += ["", *grid_lines(_examples(one, most), style)]
            more = _n_moved(one) - min(most, len(one["examples"]))
            out += [style(f"and {more:,} more in changes.parquet", "dim")] if more > 0 else []
    return out


def parent_data(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page shows of a parent; None for a run without one."""
    parent = manifest.get("parent")
    if not parent:
        return None
    parts = [
        {
            "summary": change_summary(one),
            "grids": [g for g in (_numbers(one), _examples(one, len(one["examples"]))) if g.rows],
        }
        for one in parent["changes"]
    ]
    return {"name": parent["name"], "created": parent["created"], "parts": parts}


def change_summary(change: Mapping[str, Any]) -> str:
    """One sentence: how many verdicts changed, and how.

    >>> change_summary({"before": "pass", "after": "numeric", "n": 8, "n_answers": 3,
    ...          "moved": [{"before": "pass", "after": "fail", "n": 2}]})
    'pass -> numeric: 2 of 8 candidates changed: 2 from pass to fail; 3 answers differ'
    """
    moves = [f"{m['n']:,} from {m['before']} to {m['after']}" for m in change["moved"]]
    which = change["after"] if change["before"] == change["after"] else f"{change['before']} -> {change['after']}"
    changed = f"{_n_moved(change):,} of {format_count(change['n'], 'candidate')} changed: {', '.join(moves)}"
    verdicts = changed if moves else f"no verdict of {format_count(change['n'], 'candidate')} changed"
    answers = change["n_answers"]
    # the "s" is of the verb: 1 answer differs, 2 answers differ
    return f"{which}: {verdicts}" + (
        f"; {format_count(answers, 'answer')} differ{'s' * (answers == 1)}" if answers else ""
    )


def _n_moved(change: Mapping[str, Any]) -> int:
    return sum(m["n"] for m in change["moved"])


def _numbers(change: Mapping[str, Any]) -> Grid:
    rows = [
        (
            name,
            format_number(n["a"]),
            format_number(n["b"]),
            format_signed(n["difference"]),
            format_signed_interval(n["low"], n["high"]),
            f"{n['wins']}/{n['losses']}",
        )
        for name, n in change["numbers"].items()
    ]
    header = ("aggregator", "before", "after", "change", "interval", "cases up/down")
    return Grid("", header, tuple(rows), (False, True, True, True, False, True))


def _examples(change: Mapping[str, Any], most: int) -> Grid:
    words = {True: "pass", False: "fail", None: "not graded"}
    rows = [
        (
            _answer(str(row["case_id"])),
            str(row["index"] + 1),
            _answer(row["answer_before"]),
            _answer(row["answer_after"]),
            f"{words[row['passed_before']]} -> {words[row['passed_after']]}",
        )
        for row in change["examples"][:most]
    ]
    header = ("case", "candidate", "answer before", "answer after", "verdict")
    return Grid("", header, tuple(rows), (False, True, False, False, False))


def _answer(answer: str | None) -> str:
    if answer is None:
        return "none"
    flat = show_hidden(" ".join(answer.split()))
    return flat if len(flat) <= _ANSWER else f"{flat[: _ANSWER - 1]}…"
