"""Writes outputs.jsonl: 12 answers to each problem of problems.jsonl, by the embedded model.

python examples/self-consistency/make_outputs.py     # some minutes on one core; other machines draw others
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import kofn

HERE = Path(__file__).parent


def main() -> None:
    with TemporaryDirectory() as folder:
        kofn.run(HERE / "task.yaml", model="smollm2", out=Path(folder) / "run")
        frame = pl.read_parquet(Path(folder) / "run" / "candidates.parquet")
    with (HERE / "outputs.jsonl").open("w", encoding="utf-8") as file:
        for (case,), rows in frame.group_by("case_id", maintain_order=True):
            outputs = [
                {"text": row["text"].strip(), "tokens": int(row["tokens"])} for row in rows.iter_rows(named=True)
            ]
            file.write(json.dumps({"id": case, "outputs": outputs}) + "\n")


if __name__ == "__main__":
    main()
