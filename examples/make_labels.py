"""Writes examples/labels.csv and examples/judged.jsonl: a judge of replies to customers.

People looked at 122 replies too, and at none of 400 others. The judge passes 90 % of what people pass, and of what they
fail a fifth of the short replies and a third of the long ones. All of it is made up here, seeded.

    python examples/make_labels.py
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

HERE = Path(__file__).parent
KINDS = {"short": (0.7, 0.9, 0.82), "long": (0.5, 0.9, 0.66)}  # people pass, sensitivity, specificity


def drawn(draw: random.Random, kind: str) -> tuple[int, int]:
    """What people and the judge say of one reply."""
    rate, s, t = KINDS[kind]
    human = int(draw.random() < rate)
    judge = int(draw.random() < s) if human else int(draw.random() >= t)
    return human, judge


def main() -> None:
    draw = random.Random(11)
    with (HERE / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "kind", "human", "judge"])
        for i in range(126):
            kind = draw.choice(list(KINDS))
            human, judge = drawn(draw, kind)
            said = "unclear" if i in (17, 71) else ("pass" if judge else "fail")
            writer.writerow([f"a{i:03}", kind, "" if i >= 122 else ("pass" if human else "fail"), said])
    with (HERE / "judged.jsonl").open("w", encoding="utf-8") as file:
        for i in range(400):
            kind = draw.choice(list(KINDS))
            _, judge = drawn(draw, kind)
            file.write(json.dumps({"id": f"b{i:03}", "kind": kind, "judge": "pass" if judge else "fail"}) + "\n")


if __name__ == "__main__":
    main()
