"""Writes samples-smollm2.jsonl: 8 completions of every function of tasks.jsonl, by the embedded model.

python examples/programs/make_samples.py     # a minute or two on one core; other machines draw others
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
    with (HERE / "samples-smollm2.jsonl").open("w", encoding="utf-8") as file:
        for case, text in frame.select("case_id", "text").iter_rows():
            file.write(json.dumps({"task_id": case, "completion": text}) + "\n")


if __name__ == "__main__":
    main()
