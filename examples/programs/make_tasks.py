"""Writes tasks.jsonl: six small functions to complete, each with its tests, in the form of HumanEval.

python examples/programs/make_tasks.py
"""

from __future__ import annotations

import json
from pathlib import Path

TASKS = {  # name: (arguments, what it does, what must hold)
    "is_even": ("n", "Whether n is even.", ["candidate(4) is True", "candidate(7) is False", "candidate(0) is True"]),
    "largest": (
        "values",
        "The largest of some numbers, or None of none.",
        ["candidate([3, 9, 2]) == 9", "candidate([-5, -2]) == -2", "candidate([]) is None"],
    ),
    "count_vowels": (
        "text",
        "How many vowels (a, e, i, o, u, in either case) a text has.",
        ["candidate('Hello') == 2", "candidate('AEIOU') == 5", "candidate('') == 0"],
    ),
    "reverse_words": (
        "text",
        "The words of a text in reverse order, with one space between.",
        ["candidate('one two three') == 'three two one'", "candidate('  a   b ') == 'b a'", "candidate('') == ''"],
    ),
    "factorial": ("n", "n factorial; 1 for 0.", ["candidate(0) == 1", "candidate(5) == 120", "candidate(1) == 1"]),
    "unique": (
        "values",
        "The values without repeats, each where it came first.",
        ["candidate([3, 1, 3, 2, 1]) == [3, 1, 2]", "candidate([]) == []", "candidate(['b', 'a']) == ['b', 'a']"],
    ),
}


def main() -> None:
    rows = []
    for name, (arguments, does, tests) in TASKS.items():
        checks = "".join(f"    assert {test}\n" for test in tests)
        prompt = f'def {name}({arguments}):\n    """{does}"""'
        rows.append(
            {"task_id": name, "prompt": prompt, "entry_point": name, "test": f"def check(candidate):\n{checks}"}
        )
    path = Path(__file__).with_name("tasks.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
