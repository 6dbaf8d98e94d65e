"""Writes problems.jsonl and examples.jsonl: 48 short word problems of three kinds, and four worked ones to show first.

The kinds are additions, subtractions, and additions with a number in them that does not count. Seeded; all of it ours.

    python examples/self-consistency/make_problems.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ["Ana", "Bilal", "Chen", "Dana", "Emeka", "Farah", "Goran", "Hana", "Ivo", "Jun"]
THINGS = ["apples", "stamps", "marbles", "tickets", "pencils", "shells", "coins", "books"]
ASKED = "How many {things} does {name} have now?"
TEXTS = {
    "add": "{name} has {a} {things} and gets {b} more. " + ASKED,
    "take away": "{name} has {a} {things} and gives {b} away. " + ASKED,
    "distractor": "{name} is {c} years old. {name} has {a} {things} and gets {b} more. " + ASKED,
}
WORKED = [  # the examples before the question: name, things, a, sign, b
    ("Lou", "cups", 4, "+", 3),
    ("Max", "nuts", 11, "-", 6),
    ("Pia", "pens", 8, "+", 9),
    ("Rui", "hats", 15, "-", 7),
]


def problem(rng: random.Random, kind: str, number: int) -> dict[str, str]:
    """One problem: numbers from 2 to 19, and nobody has less than nothing."""
    a, b, c = rng.randint(3, 19), rng.randint(2, 9), rng.randint(6, 12)
    if kind == "take away":
        a = max(a, b + 1)
    answer = a - b if kind == "take away" else a + b
    text = TEXTS[kind].format(name=rng.choice(NAMES), things=rng.choice(THINGS), a=a, b=b, c=c)
    return {"id": f"{kind.split()[0]}-{number:02}", "kind": kind, "question": text, "reference": str(answer)}


def example(name: str, things: str, a: int, sign: str, b: int) -> dict[str, str]:
    """A worked problem, as the model is to write it."""
    answer = a + b if sign == "+" else a - b
    text = TEXTS["add" if sign == "+" else "take away"].format(name=name, things=things, a=a, b=b)
    return {
        "question": text,
        "solution": f"{a} {sign} {b} = {answer}. The answer is {answer}.",
        "reference": str(answer),
    }


def write(name: str, records: list[dict[str, str]]) -> None:
    (HERE / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def main() -> None:
    rng = random.Random(3)
    write("problems.jsonl", [problem(rng, kind, number) for kind in TEXTS for number in range(16)])
    write("examples.jsonl", [example(*worked) for worked in WORKED])


if __name__ == "__main__":
    main()
