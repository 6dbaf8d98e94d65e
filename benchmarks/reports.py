"""Writing what an evaluation leaves behind: kofn's run directory with its page, beside the logs of Inspect and lm-eval.

The evaluation is made already, on all sides. What each writes is read back and counted. Inspect and lm-eval write a
part of the samples and are scaled, since they are linear.

    python benchmarks/run.py --only reports
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beside import TOOLS, Peers
from score import write
from table import Limit, Row, fastest, race, show

if TYPE_CHECKING:
    import polars as pl

TITLE = "Building reports"
HOW = """For a finished evaluation (outputs of 300 characters, eight per case): case reports, Parquet files with all
candidates, run.json, results.jsonl and a page that shows and searches every case, with each file flushed to disk;
Inspect's and lm-eval's writers make one log and flush nothing. polars writes only the same two Parquet files. "The
page alone" is `kofn report --html` of a loaded run. The limit is to write and flush as many bytes."""

SIZES, N = (1_000, 10_000, 100_000), 8
INSPECT_SAMPLES, LM_EVAL_CASES = 800, 4_000

INSPECT = """
import os
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, read_eval_log, write_eval_log
from inspect_ai.model import ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score
made = []
for case_id, reference, outputs in data:
    for epoch, (text, right) in enumerate(outputs, start=1):
        output = ModelOutput.from_content("mockllm/model", text)
        score = {"match": Score(value="C" if right else "I", answer=text[-5:])}
        messages = [ChatMessageUser(content=case_id), output.message]
        made.append(EvalSample(id=case_id, epoch=epoch, input=case_id, target=reference, messages=messages,
                               output=output, scores=score))
spec = EvalSpec(created="2026-01-01T00:00:00+00:00", task="made", model="mockllm/model",
                dataset=EvalDataset(samples=len(data)), config=EvalConfig(epochs=8))
log = EvalLog(status="success", eval=spec, samples=made)
def work():
    write_eval_log(log, "made.eval")
    return os.path.getsize("made.eval")
write_eval_log(log, "made.eval")
assert len(read_eval_log("made.eval").samples) == len(made)
"""

LM_EVAL = """
import glob, os, shutil
from lm_eval.loggers import EvaluationTracker
made = [
    {"doc_id": i, "doc": {"id": case_id, "answer": reference}, "target": reference,
     "arguments": [(case_id, {"until": []})], "resps": [[text for text, _ in outputs]],
     "filtered_resps": [outputs[0][0]], "filter": "none",
     "metrics": ["exact_match"], "doc_hash": "0" * 64, "prompt_hash": "0" * 64, "target_hash": "0" * 64,
     "exact_match": float(outputs[0][1])}
    for i, (case_id, reference, outputs) in enumerate(data)]
tracker = EvaluationTracker(output_path="out")
tracker.date_id = "2026"
def work():
    shutil.rmtree("out", ignore_errors=True)
    tracker.save_results_samples(task_name="made", samples=[dict(one) for one in made])
    found, = glob.glob("out/*/*.jsonl")
    with open(found) as file:
        lines = sum(1 for _ in file)
    assert lines == len(made), lines
    return os.path.getsize(found)
"""


def written(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flushed(limit: str, folder: Path, n_bytes: int) -> Limit:
    """Writing as many bytes and waiting until the disk has them."""
    data = os.urandom(1 << 20) * (n_bytes // (1 << 20) + 1)
    return Limit(limit, fastest(lambda: written(folder / "bytes", data[:n_bytes]), 0.3))


def with_polars(frames: dict[str, pl.DataFrame], folder: Path) -> None:
    for name, frame in frames.items():
        frame.write_parquet(folder / name)
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def peer_records(source: Path, n_cases: int) -> list[list[Any]]:
    """[id, reference, [[text, right], ...]] a case."""
    import orjson

    with source.open("rb") as file:
        rows = [orjson.loads(line) for line, _ in zip(file, range(n_cases), strict=False)]
    return [[row["id"], row["gold"], [[o["text"], o["pass"]] for o in row["outputs"]]] for row in rows]


def rows_of(folder: Path, n_cases: int) -> list[Row]:
    import kofn
    from kofn.render.report_html import report_page
    from kofn.render.run_directory import write_run
    from kofn.runs.record import load_run
    from kofn.runs.run_tables import candidates_frame, cases_frame

    source = write(folder, n_cases)["wide, labels"]
    result = kofn.score(source, aggregate=["mean", "any_pass", "majority"])
    frames = {"candidates.parquet": candidates_frame(result), "cases.parquet": cases_frame(result)}
    out = folder / "run"

    def run_directory() -> int:
        shutil.rmtree(out, ignore_errors=True)
        write_run(result, out, sources=[], options={})
        return sum(one.stat().st_size for one in out.iterdir())

    run_directory()
    run = load_run(out)
    assert run.result is not None
    assert (run.result.n_cases, run.result.n_candidates) == (n_cases, n_cases * N)
    in_inspect, in_lm_eval = min(n_cases, INSPECT_SAMPLES // N), min(n_cases, LM_EVAL_CASES)
    with Peers() as peers:
        runners: dict[str, Any] = {
            "kofn": run_directory,
            "page": lambda: written(folder / "page.html", report_page(run).encode()),
            "polars": lambda: with_polars(frames, folder),
            "Inspect": peers.start("Inspect", TOOLS, INSPECT, peer_records(source, in_inspect)),
            "lm-eval": peers.start("lm-eval", TOOLS, LM_EVAL, peer_records(source, in_lm_eval)),
        }
        found = race(runners, rounds=2 if n_cases > 50_000 else 3)
    of_run = flushed("writing as many bytes", folder, found["kofn"].value)
    of_page = flushed("writing as many bytes", folder, (folder / "page.html").stat().st_size)
    work = f"run directory, {n_cases:,} cases x {N} ({found['kofn'].value / 1e6:,.0f} MB)"
    several = {
        "Inspect `write_eval_log`": ("Inspect", in_inspect),
        "lm-eval `save_results_samples`": ("lm-eval", in_lm_eval),
        "polars, the Parquet files alone": ("polars", n_cases),
    }
    rows = []
    for peer, (key, part) in several.items():
        if key in found:
            theirs, scaled = found[key].seconds * n_cases / part, part < n_cases
            kofn_took = found["kofn"].seconds
            rows.append(Row(work=work, kofn=kofn_took, peer=peer, theirs=theirs, scaled=scaled, limit=of_run))
    size = (folder / "page.html").stat().st_size / 1e6
    alone = f"the page alone, {n_cases:,} cases x {N} ({size:,.1f} MB)"
    rows.append(Row(work=alone, kofn=found["page"].seconds, limit=of_page))
    return [show(row) for row in rows]


def main(small: bool = False) -> list[Row]:
    rows = []
    for n_cases in (50,) if small else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows += rows_of(Path(folder), n_cases)
    return rows


if __name__ == "__main__":
    main()
