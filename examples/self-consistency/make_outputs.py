"""Writes outputs.jsonl: 16 answers to each problem of problems.jsonl, by the embedded model, bit for bit the same again.

    python examples/self-consistency/make_outputs.py     # about ten minutes on one core
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
        kofn.run(HERE / "task.yaml", model="smollm2", out=Path(folder) / "run", reproducible=True)
        frame = pl.read_parquet(Path(folder) / "run" / "candidates.parquet")
    with (HERE / "outputs.jsonl").open("w", encoding="utf-8") as file:
        for (case,), rows in frame.group_by("case_id", maintain_order=True):
            outputs = [{"text": row["text"].strip(), "tokens": int(row["tokens"])} for row in rows.iter_rows(named=True)]
            file.write(json.dumps({"id": case, "outputs": outputs}) + "\n")


if __name__ == "__main__":
    main()
