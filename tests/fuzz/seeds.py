"""Small good examples of every form that is read: where the fuzzers begin, and what they bend."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.targets import SEPARATOR, good_run

from kofn.importers.sources import zstd_module

LM_EVAL_TASK = Path(__file__).parents[2] / "examples" / "lm_eval"

CHAT = [{"role": "user", "content": "2+2?"}]

LONG = [
    {"id": "q1", "output": "The answer is 4.", "reference": "4", "score": 1, "passed": True, "cost": 0.1, "repeat": 0},
    {"id": "q1", "output": "5", "reference": "4", "score": 0.5, "passed": False, "seconds": 2, "repeat": 1},
    {"id": "q2", "output": None, "error": "timeout", "reference": ["4", "four"], "choices": ["4", "5"], "kind": "sum"},
]
WIDE = [
    {"id": "q1", "input": "2+2?", "reference": "4", "weight": 2, "cluster": "c", "outputs": ["4", {"text": "5"}]},
    {"id": 2, "reference": 4.0, "weight": 1, "outputs": [{"text": "4", "reward": 0.5, "reasoning": "x", "tokens": 3}]},
]
GROUPS = [{"scores": [1, 0.5], "passes": [True, False], "texts": ["a", "b"], "id": "g", "required": ["x"]}]
CSV = 'id,output,reference,passed,cost\nq1,"4, I say",4,1,0.1\nq1,5,4,0,\nq2,\'=1+1,2,yes,1e-3\n'

LM_EVAL = [
    {
        "doc_id": i,
        "doc": {"question": f"{i}?", "level": i % 2},
        "target": "4",
        "arguments": {"gen_args_0": {"arg_0": "Q: 2+2?", "arg_1": {"until": ["\n"]}}},
        "resps": [["4", "5"]],
        "filtered_resps": ["4"],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
    }
    for i in range(2)
]
LM_EVAL_OPTIONS = [
    {
        "doc_id": 0,
        "doc": {"question": "?"},
        "target": "1",
        "arguments": {f"gen_args_{i}": {"arg_0": "Q:", "arg_1": f" {o}"} for i, o in enumerate("ab")},
        "resps": [[["-1.5", "False"]], [["-0.5", "True"]]],
        "filtered_resps": [["-1.5", "False"], ["-0.5", "True"]],
        "acc": 1.0,
    }
]
LM_EVAL_RESULTS = {
    "results": {"sums": {"alias": "sums", "exact_match,none": 0.5, "exact_match_stderr,none": "N/A"}},
    "configs": {
        "sums": {"task": "sums", "metric_list": [{"metric": "exact_match", "higher_is_better": True}], "repeats": 2}
    },
    "n-shot": {"sums": 0},
    "n-samples": {"sums": {"original": 2, "effective": 2}},
    "config": {"model": "hf", "model_args": "pretrained=x"},
    "higher_is_better": {"sums": {"exact_match": True}},
}

SAMPLE = {
    "id": 1,
    "epoch": 1,
    "input": CHAT,
    "choices": ["3", "4"],
    "target": ["B"],
    "messages": CHAT,
    "output": {
        "model": "m",
        "completion": "4",
        "choices": [
            {"message": {"role": "assistant", "content": [{"type": "text", "text": "4"}]}, "stop_reason": "stop"}
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        "time": 1.5,
    },
    "scores": {"match": {"value": "C", "answer": "4", "metadata": {"a": 1}}, "f1": {"value": {"a": 0.5}}},
    "metadata": {"level": 1},
    "total_time": 2.5,
}
INSPECT = {
    "version": 2,
    "status": "success",
    "eval": {
        "task": "sums",
        "model": "m",
        "created": "2026-01-01T00:00:00+00:00",
        "dataset": {"samples": 1},
        "config": {"epochs": 2},
    },
    "plan": {"name": "plan", "steps": []},
    "results": {"total_samples": 2, "completed_samples": 2, "scores": []},
    "samples": [SAMPLE, {**SAMPLE, "epoch": 2, "error": {"message": "no", "traceback": ""}}],
}

PROMPTFOO = {
    "evalId": "eval-x",
    "results": {
        "version": 3,
        "timestamp": "2026-01-01T00:00:00Z",
        "prompts": [{"raw": "Solve", "provider": "p"}],
        "stats": {},
        "results": [
            {
                "testIdx": 0,
                "promptIdx": 0,
                "prompt": {"raw": "Solve: r", "label": "Solve: {{r}}"},
                "provider": {"id": "openai:x", "label": ""},
                "vars": {"r": "riddle"},
                "testCase": {
                    "vars": {"r": "riddle"},
                    "assert": [{"type": "contains", "value": "e"}],
                    "metadata": {"l": 2},
                },
                "response": {"output": "an echo", "tokenUsage": {"prompt": 7, "completion": 3}, "cached": False},
                "success": True,
                "score": 1.0,
                "namedScores": {"tone": 0.5},
                "gradingResult": {"pass": True, "score": 1, "componentResults": [{"pass": True}]},
                "failureReason": 0,
                "error": None,
                "latencyMs": 1500,
                "cost": 0.01,
            }
        ],
    },
    "config": {},
}

HELM_STATE = {
    "adapter_spec": {"method": "generation", "model": "openai/davinci"},
    "request_states": [
        {
            "instance": {
                "input": {"text": "2+2?"},
                "references": [{"output": {"text": "four"}, "tags": ["correct"]}],
                "split": "test",
                "id": "id0",
                "perturbation": {"name": "typos", "robustness": True},
            },
            "train_trial_index": 0,
            "request": {"model": "m", "prompt": "Q: 2+2?", "num_completions": 1},
            "output_mapping": {"A": "three", "B": "four"},
            "result": {
                "success": True,
                "completions": [{"text": "B", "logprob": -0.1, "tokens": [{"text": "4", "logprob": -0.1}]}],
                "request_time": 0.5,
            },
        }
    ],
}
HELM_STATS = [
    {
        "instance_id": "id0",
        "perturbation": {"name": "typos"},
        "train_trial_index": 0,
        "stats": [{"name": {"name": "exact_match", "split": "test"}, "count": 1, "mean": 1.0, "sum": 1.0}],
    }
]
HELM_SPEC = {"name": "gsm:model=openai_davinci", "adapter_spec": {"model": "openai/davinci"}}

EVALS = [
    {
        "spec": {
            "completion_fns": ["gpt"],
            "eval_name": "t.s1.v0",
            "base_eval": "t",
            "split": "s1",
            "run_config": {"eval_spec": {"cls": "a:Match"}, "seed": 1},
            "run_id": "r",
        }
    },
    {
        "run_id": "r",
        "event_id": 0,
        "sample_id": "s.1",
        "type": "sampling",
        "data": {"prompt": CHAT, "sampled": ["4"], "usage": {"completion_tokens": 2}},
    },
    {
        "run_id": "r",
        "event_id": 1,
        "sample_id": "s.1",
        "type": "match",
        "data": {"correct": True, "expected": "4", "picked": "4", "sampled": "4", "options": ["4"]},
    },
    {"run_id": "r", "event_id": 2, "sample_id": "s.2", "type": "metrics", "data": {"score": 0.5, "choice": "A"}},
    {"final_report": {"accuracy": 0.5}},
]
NEMO = [
    {
        "id": "a",
        "problem": "2+2?",
        "expected_answer": "4",
        "predicted_answer": "4",
        "generation": "4",
        "symbolic_correct": True,
        "level": 1,
        "generation_time": 2.0,
    },
    {
        "id": "b",
        "problem": "2+3?",
        "expected_answer": 5,
        "predicted_answer": None,
        "generation": "",
        "judgement": "Judgement: Yes",
        "num_generated_tokens": 3,
    },
]
HUMAN_EVAL = [
    {"task_id": "HumanEval/0", "completion": "return 1", "passed": True, "result": "passed"},
    {"task_id": "HumanEval/0", "completion": "return 2", "passed": False, "result": "failed: no"},
]
EVALPLUS = {
    "date": "2025-01-01 10:00",
    "hash": "abc",
    "eval": {
        "HumanEval/0": [
            {
                "task_id": "HumanEval/0",
                "solution": "def f(): return 1",
                "base_status": "pass",
                "plus_status": "fail",
                "base_fail_tests": [],
                "plus_fail_tests": [[[1], 0.5]],
            }
        ]
    },
}
EVALPLUS_OLD = {
    "date": "d",
    "hash": "h",
    "eval": {"H/0": {"nfiles": 1, "base": [["success", None]], "plus": [["failed", [False]]]}},
}
LIGHTEVAL = [
    {
        "doc": {
            "query": "Q?",
            "choices": ["4"],
            "gold_index": [0],
            "id": str(i),
            "task_name": "a|b|0",
            "num_samples": 1,
        },
        "metric": {"extractive_match": 1.0},
        "model_response": {
            "input": "Q?",
            "input_tokens": [1],
            "text": ["4"],
            "output_tokens": [[7]],
            "logprobs": [-0.5],
            "reasonings": ["r"],
        },
    }
    for i in range(2)
]
LIGHTEVAL_OLD = [
    {
        "example": "Q?",
        "full_prompt": "Q?",
        "gold": ["4"],
        "gold_index": [0],
        "metrics": {"m": 1.0},
        "predictions": ["4"],
        "choices": [],
        "input_tokens": [[1]],
        "cont_tokens": [[7]],
        "truncated": [0],
        "padded": [0],
        "specifics": {"x": "y"},
    }
]

RUBRIC = """\
name: tone
version: 2
prompt: "Grade {output} for {input}. Score: 1-5"
system: Be fair.
scale: 1-5
threshold: 4
parse: 'score (\\d)'
temperature: 0.5
max_tokens: 10
"""
SELECTOR = "name: best\nby: reward\nprefer: low\nversion: 2\nmodel: m\nprompt: p\n"
PRICES = """\
vendor:
  as_of: 2026-01-01
  source: somewhere
  models:
    m: {input: 1.0, output: 5.0, cached: 0.5, long: {over: 1000, input: 2, output: 6}}
    m-*: {input: 1, output: 5}
"""
TASK = """\
name: sums
description: Sums.
dataset: questions.jsonl
fields: {input: question}
stages:
  - name: think
    prompt: "{question} {options}"
    temperature: 0.7
    max_tokens: 64
    stop: ["\\n"]
  - name: answer
    prompt: "{cot} so?"
fewshot: {count: 1, seed: 3, source: [{question: "1+1?", answer: "2", choices: ["2"]}]}
groups: {field: kind, types: {a: Core}, weights: {a: 2.0}}
extract: number
metrics: [numeric, {metric: exact_match, weight: 2.0, repeat_aggregation: majority}]
aggregate: [mean, pass@2]
verdict: majority
repeats: 3
segments: [kind]
"""
QUESTIONS = [
    {"id": 1, "question": "2+2?", "answer": "4", "choices": ["3", "4"], "kind": "a"},
    {"question": "1?", "answer": 1, "choices": ["0", "1"], "kind": "b"},
]
PROBLEM = (
    """\
name: sums
version: 1
entry: python main.py
adapter: cli
timeout: 10
limits: {memory_mb: 100}
checkpoints: [one]
""",
    "version: 1\ngroups:\n  group: {type: Core, weight: 2}\n  other: {}\n",
    """\
- id: a
  args: [--sum, "1", "2"]
  stdin: "1\\n"
  files: {a.txt: "x"}
  expected: {output: "3", status_code: 0}
  verify: {output: {match: number, tolerance: 0.1, weight: 2}}
- id: b
  args: []
  expected: {output: "a+", files: {out.json: {a: 1}}}
  verify: {output: {match: regex}}
""",
    json.dumps({"id": "c", "args": [], "expected": {"output": {"a": [1]}, "status_code": 0}}) + "\n",
)
LABELS = "id,index,human,judge,segment,weight\na,0,pass,fail,x,1\na,1,1,0,y,2\nb,0,,yes,x,\n"
PROGRESS: dict[str, Any] = {
    "version": 1,
    "state": "running",
    "pid": 7,
    "started": "2026-01-01T00:00:00+00:00",
    "updated": "2026-01-01T00:00:01+00:00",
    "cases": {"done": 1, "total": 2},
    "candidates": {"done": 1, "total": 4, "reused": 0},
    "estimates": [],
    "history": [[1.0, 2, 3]],
}
TEXTS = [
    r"So \boxed{\frac{1}{2}} and #### 1,080.50 <think>7</think> The answer is (B), not A. **Answer:** $1.5e3",
    '```json\n{"answer": [1, 2.0], "score": 4}\n``` Verdict: pass\nScore: 4/5, A is better than B',
    "got ok\nQ: next? neither A nor C, but 3 out of 5; １２３ and 2½ km²",
    '[[1, {"a": 4}]] <answer>7</answer> </think> it is 10^6%',
]
NUMBERS = [
    "1,080.00",
    r"\frac{1}{2}",
    "1e400",
    "-2½",
    "１２３",
    "1/0",
    "50%",
    "$3.5 million",
    "0x1F",
    "−7",
    "1_000",
    "nan",
]
SPECS = [
    "pass@5",
    "ndcg(k=3)",
    "at_least(k=2)",
    "pattern('a(b)', take='last')",
    "numeric(tolerance=1e-3)",
    "maj@3",
    "pass^2",
]
TYPED = [
    *("any_pass.low >= 75%", "test:0.3:7", "text=reply", "a=b\nc=d", "$.a[*].b[0]", "Solve {question} {{x}}", "vote"),
    *("m@http://me:word@host/v1?token=1", "mlflow:http://u:p@h?experiment=x", "items[0].name"),
]
ADDRESSES = [
    *(b"", b"run/run", b"run/run?sort=mean&show=tied&q=2&within=outputs&page=2", b"run/run/-/case?id=q01&candidate=2"),
    *(b"run/run/-/charts", b"run/run/-/best?selector=vote", b"run/run/-/best.json", b"run/run/-/labels?n=5"),
    *(b"run/run/-/audit?extract=number&extract=math", b"run/run/-/export?as=csv", b"compare?run=run&run=run"),
    *(b"trend?task=sums", b"run/..%2f..%2fetc/", b"?q=a&task=sums&tag=x"),
]
OPENAI = [
    {
        "choices": [
            {
                "index": 0,
                "message": {"content": "4", "reasoning_content": "r"},
                "finish_reason": "stop",
                "logprobs": {"content": [{"logprob": -0.5}]},
            },
            {"index": 1, "message": {"content": [{"text": "5"}]}},
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    },
    {
        "choices": [
            {"text": "4", "finish_reason": "content_filter", "logprobs": {"tokens": ["a"], "token_logprobs": [-1.5]}}
        ],
        "usage": None,
    },
    {"error": {"message": "No.", "type": "t", "code": 404, "param": None}},
]
ANTHROPIC = [
    {
        "content": [{"type": "thinking", "thinking": "h"}, {"type": "text", "text": "4"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 1},
    },
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
]


def lines(rows: list[Any]) -> bytes:
    """JSON lines."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def whole(document: Any) -> bytes:
    """One JSON document."""
    return json.dumps(document).encode()


def zipped(members: dict[str, Any]) -> bytes:
    """A zip archive of JSON documents."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in members.items():
            archive.writestr(name, json.dumps(value))
    return out.getvalue()


def inspect_zip(log: dict[str, Any]) -> bytes:
    """An Inspect log as an archive."""
    head = {key: value for key, value in log.items() if key != "samples"}
    samples = log.get("samples") if isinstance(log.get("samples"), list) else []
    parts = {f"samples/{i}_epoch_1.json": one for i, one in enumerate(samples)}
    return zipped({"_journal/start.json": head, **parts, "header.json": head, "reductions.json": []})


def parquet(rows: list[Any]) -> bytes:
    """A Parquet file of rows."""
    import polars as pl

    out = io.BytesIO()
    pl.DataFrame(rows, strict=False, infer_schema_length=None).write_parquet(out)
    return out.getvalue()


def arrow(rows: list[Any]) -> bytes:
    """An Arrow stream of rows, as `save_to_disk` writes it."""
    import polars as pl

    out = io.BytesIO()
    pl.DataFrame(rows, strict=False, infer_schema_length=None).write_ipc_stream(out)
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    """A zstd frame."""
    return zstd_module().compress(data)


@cache
def seeds() -> dict[str, list[bytes]]:
    """Form -> good examples."""
    run = good_run()
    plain = {
        "jsonl": [lines(LONG), lines(WIDE), lines(GROUPS), whole(LONG), gzip.compress(lines(WIDE)), zstd(lines(LONG))],
        "csv": [CSV.encode(), CSV.replace(",", ";").encode(), b"sep=;\r\n" + CSV.replace(",", ";").encode()],
        "parquet": [parquet(LONG[:2]), parquet([{"id": "a", "reference": "4", "outputs": ["4", "5"]}])],
        "lm_eval": [lines(LM_EVAL), lines(LM_EVAL_OPTIONS)],
        "evalplus": [whole(EVALPLUS), whole(EVALPLUS_OLD), lines([{"task_id": "H/0", "solution": "pass"}])],
        "human_eval": [lines(HUMAN_EVAL), lines([{"task_id": "H/0", "completion": "pass"}])],
        "inspect": [whole(INSPECT), inspect_zip(INSPECT)],
        "promptfoo": [whole(PROMPTFOO), lines(PROMPTFOO["results"]["results"])],  # type: ignore[index]
        "openai_evals": [lines(EVALS)],
        "helm": [whole(HELM_STATE)],
        "nemo_skills": [lines(NEMO)],
        "lighteval": [parquet(LIGHTEVAL), parquet(LIGHTEVAL_OLD)],
        "hf_dataset": [arrow(LONG[:2])],
    }
    every = [one for each in plain.values() for one in each]
    split = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "test"}
    return {
        **plain,
        "*": [*every, "id,output\na,4\n".encode("utf-16")],
        "repeats": [SEPARATOR.join([lines(NEMO), lines(NEMO)])],
        "folder-helm": [SEPARATOR.join(map(whole, (HELM_STATE, HELM_STATS, HELM_SPEC)))],
        "folder-lm_eval": [SEPARATOR.join([lines(LM_EVAL), whole(LM_EVAL_RESULTS)])],
        "folder-nemo_skills": [SEPARATOR.join([lines(NEMO), lines(NEMO)])],
        "folder-hf_dataset": [SEPARATOR.join([b'{"features": {}}', whole(split), arrow(LONG[:2])])],
        "task": [SEPARATOR.join([TASK.encode(), lines(QUESTIONS)])],
        "lm_eval_task": [
            SEPARATOR.join([(LM_EVAL_TASK / name).read_bytes() for name in ("sums.yaml", "questions.jsonl")]),
        ],
        "problem": [SEPARATOR.join(part.encode() for part in PROBLEM)],
        "rubric": [RUBRIC.encode()],
        "selector": [SELECTOR.encode()],
        "prices": [PRICES.encode()],
        "labels": [LABELS.encode(), lines([{"id": "a", "human": 1, "judge": True, "index": 0}])],
        "run": [SEPARATOR.join([(run / "run.json").read_bytes(), (run / "evaluation.json").read_bytes()])],
        "progress": [whole(PROGRESS)],
        "text": [one.encode() for one in TEXTS],
        "number": [one.encode() for one in NUMBERS],
        "verdict": [one.encode() for one in TEXTS],
        "match": [b"[1, 2]\n--\n[1,\n2.0]", b"1e3\n--\n1000.0", b"a,b\n1,2\n--\na,b\n1,2\n"],
        "openai": [b"200\n" + whole(one) for one in OPENAI] + [b"429\n" + whole(OPENAI[2])],
        "anthropic": [b"200\n" + whole(one) for one in ANTHROPIC] + [b"500\n<html>"],
        "spec": [one.encode() for one in SPECS],
        "typed": [one.encode() for one in TYPED],
        "address": list(ADDRESSES),
    }
