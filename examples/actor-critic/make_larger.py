"""Writes larger.jsonl: 40 pairs of numbers below 30, of which the larger is asked. Seeded.

python examples/actor-critic/make_larger.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path


def main() -> None:
    rng = random.Random(4)
    drawn = rng.sample([(x, y) for x in range(30) for y in range(30) if x != y], 40)
    rows = [
        {
            "id": f"{x}-{y}",
            "x": x,
            "y": y,
            "gap": "close" if abs(x - y) <= 5 else "far",
            "question": f"Which is larger, {x} or {y}?",
            "reference": str(max(x, y)),
        }
        for x, y in drawn
    ]
    path = Path(__file__).with_name("larger.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
