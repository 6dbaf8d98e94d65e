"""Fills in a sheet that `kofn calibrate --sample` drew, in the place of the people who would: labels from people.csv.

python examples/support-message/people.py picks.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(sheet: str) -> None:
    with (HERE / "people.csv").open(encoding="utf-8") as file:
        said = {(row["id"], row["index"]): row["human"] for row in csv.DictReader(file)}
    with Path(sheet).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["human"] = said[row["id"], row.get("index", row.get("picked"))]
    with Path(sheet).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
