"""Writes examples/arithmetic.jsonl: 60 word problems with 5 answers each, in the manner of a small model.

The outputs are made up by this script, seeded, so that the example is small, ours, and has everything a real file
has: unequal difficulty, wrong answers that agree, answers written in many ways, one refusal, one cut-off text.

    python examples/make_arithmetic.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

NAMES = ["Ana", "Bilal", "Chen", "Dana", "Emeka", "Farah", "Goran", "Hana"]
THINGS = ["apples", "stamps", "marbles", "tickets", "pencils", "shells"]
ENDINGS = [
    "The answer is {a}.",
    "#### {a}",
    "So the total is {a} {things}.",
    "**Answer:** {a}",
    "Therefore, {name} has ${a}$ {things}. Answer: {a}",
    "= {a}\n\nA: {a}",
]


def one_step(rng: random.Random) -> tuple[str, int, int]:
    a, b = rng.randint(3, 40), rng.randint(3, 40)
    question = f"{{name}} has {a} {{things}} and gets {b} more. How many {{things}} does {{name}} have?"
    return question, a + b, abs(a - b)


def two_steps(rng: random.Random) -> tuple[str, int, int]:
    a, b, c = rng.randint(3, 12), rng.randint(3, 12), rng.randint(2, 9)
    question = f"{{name}} buys {a} boxes of {b} {{things}} and gives {c} away. How many {{things}} are left?"
    return question, a * b - c, a * b


def output(rng: random.Random, answer: int, name: str, things: str) -> str:
    shown = f"{answer:,}" if rng.random() < 0.5 else f"{answer}.00" if rng.random() < 0.1 else str(answer)
    steps = f"Let us work through it step by step. {name} starts with the {things} that are given. "
    return steps + rng.choice(ENDINGS).format(a=shown, name=name, things=things)


def main() -> None:
    rng = random.Random(7)
    lines = []
    for i in range(60):
        kind = "one step" if i % 2 == 0 else "two steps"
        name, things = rng.choice(NAMES), rng.choice(THINGS)
        question, answer, trap = (one_step if i % 2 == 0 else two_steps)(rng)
        ability = rng.betavariate(3, 1.5) if i % 2 == 0 else rng.betavariate(1.2, 1.8)
        outputs = []
        for _ in range(5):
            guess = answer if rng.random() < ability else trap if rng.random() < 0.5 else answer + rng.randint(1, 9)
            seconds = round(rng.uniform(0.4, 1.6), 2)
            outputs.append(
                {
                    "text": output(rng, guess, name, things),
                    "seconds": seconds,
                    "cost": round(seconds * 2e-5, 7),
                }
            )
        lines.append({"id": f"q{i:02d}", "kind": kind, "question": question.format(name=name, things=things),
                      "reference": str(answer), "outputs": outputs})  # fmt: skip
    lines[7]["outputs"][2]["text"] = "I am sorry, but I cannot help with that."
    lines[21]["outputs"][4]["text"] = "Let us work through it step by step. First we need to"
    path = Path(__file__).with_name("arithmetic.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
