"""Runs to look at: small, hostile, judged, large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kofn
from kofn.render.run_directory import write_run
from kofn.scoring.configuration import ReportConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EVIL = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>\u202e\x00{{7*7}}"


def small_rows(n: int = 12, evil: str = "") -> list[dict[str, Any]]:
    """Cases of four candidates: all right, some right, tied, all wrong, identical, cut off, in turn."""
    kinds = [
        ["It is 4.", "So 4", "4!", "Answer: 4"],
        ["It is 4.", "So 5", "4!", "Answer: 4, for x = 9"],
        ["It is 4.", "It is 4!", "So 5", "Answer: 5"],
        ["It is 5.", "So 6", "7!", "Answer: 8"],
        ["It is 4.", "It is 4.", "It is 4.", "It is 4."],
        ["It is 4.", "The total is the sum of the", "4!", "Answer: 4"],
    ]
    return [
        {
            "id": f"q{i:02d}" + (evil if i == 1 else ""),
            "input": f"What is 2 + 2, the {i}th time?{evil}",
            "reference": "4",
            "kind": f"k{i % 2}{evil if evil and i % 2 else ''}",
            "outputs": [
                {"text": f"{evil}{text}", "cost": 0.001 * (i + 1), "seconds": 0.5, "reasoning": f"thinking {evil}"}
                for text in kinds[i % len(kinds)]
            ],
        }
        for i in range(n)
    ]


def write(
    folder: Path,
    rows: Any,
    *,
    aggregate: Sequence[str] = ("mean", "majority", "any_pass"),
    task: str = "sums",
    **more: Any,
) -> Path:
    """A run directory of these rows."""
    result = kofn.score(rows, aggregate=list(aggregate), everything=True, **more)
    options = {"aggregate": list(aggregate), "by": [], "seed": 0, "level": 0.95, "interval": "auto"}
    write_run(result, folder, sources=[], options=options, report=ReportConfig(task=task, name=folder.name))
    return folder


CALLED: list[Any] = []


def pwned(*given: Any, **more: Any) -> float:
    """What nobody may call because a run names it."""
    CALLED.append((given, more))
    return 0.0
