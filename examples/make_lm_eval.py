"""Writes examples/lm_eval: the word problems of arithmetic.jsonl as data of an lm-eval task, and lm-eval's log of it.

The log is written by lm-eval itself, whose model here answers with the outputs of arithmetic.jsonl, one a repeat.

    python examples/make_lm_eval.py                     # where lm-eval is installed
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker

from kofn.integrations.lm_eval import task_config

HERE = Path(__file__).parent
FOLDER = HERE / "lm_eval"


class Stored(LM):
    """Answers a question with its stored outputs, in order."""

    def __init__(self, records: list[dict]) -> None:
        super().__init__()
        self.outputs = {r["question"]: [o["text"] for o in r["outputs"]] for r in records}

    def generate_until(self, requests, **_):
        asked = defaultdict(int)
        out = []
        for request in requests:
            question = request.doc["question"]
            out.append(self.outputs[question][asked[question]])
            asked[question] += 1
        return out

    def loglikelihood(self, requests, **_):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def main() -> None:
    records = [json.loads(line) for line in (HERE / "arithmetic.jsonl").read_text().splitlines()]
    asked = [{"question": r["question"], "reference": r["reference"], "kind": r["kind"]} for r in records]
    (FOLDER / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    config = task_config(FOLDER / "sums.yaml")
    results = simple_evaluate(model=Stored(records), tasks=[config.task], log_samples=True, bootstrap_iters=0)
    samples = results.pop("samples")
    for old in FOLDER.glob("samples_*"):
        old.unlink()
    tracker = EvaluationTracker(output_path=str(FOLDER / "made.json"))
    tracker.save_results_aggregated(results=results, samples=samples)
    tracker.save_results_samples("sums", samples["sums"])
    for made in FOLDER.glob("made_*.json"):
        made.unlink()  # hashes of this machine; the samples are enough
    (made,) = FOLDER.glob("samples_*")
    made.rename(FOLDER / "samples_sums_2026-01-01T00-00-00.000000.jsonl")


if __name__ == "__main__":
    main()
