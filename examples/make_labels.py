"""Writes examples/labels.csv, annotators.csv and judged.jsonl: a judge of replies to customers.

People labelled 122 replies, and none of 400 others. The judge passes 90% of what people pass, and of what they fail a
fifth of the short replies and a third of the long ones. Three people labelled the replies of annotators.csv. All data
is made up here, seeded.

    python examples/make_labels.py
"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

HERE = Path(__file__).parent
KINDS = {"short": (0.7, 0.9, 0.82), "long": (0.5, 0.9, 0.66)}  # people pass, sensitivity, specificity


ANNOTATORS = {"Ana": 0.95, "Ben": 0.9, "Cleo": 0.85}  # how often each labels a reply correctly
N_CLEO = 40  # of 60 replies: the third annotator has not labelled the others yet


def drawn(draw: random.Random, kind: str) -> tuple[int, int]:
    """The human and the judge's verdict on one reply."""
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
    with (HERE / "annotators.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "annotator", "human", "judge"])
        for i in range(60):
            truth, judge = drawn(draw, draw.choice(list(KINDS)))
            for name, right in ANNOTATORS.items():
                label = truth if draw.random() < right else 1 - truth
                if name != "Cleo" or i < N_CLEO:
                    writer.writerow([f"c{i:03}", name, "pass" if label else "fail", "pass" if judge else "fail"])


if __name__ == "__main__":
    main()
