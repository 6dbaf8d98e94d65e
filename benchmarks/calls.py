"""CPU a request: kofn, a bare aiohttp loop, lm-evaluation-harness and Inspect on the same calls.

A server on loopback, in a process of its own, answers at once. Each client runs in a fresh process, makes some calls
to warm up, and then 5,000 at concurrency 100 (the slow peers 1,000); what counts is the CPU time of its process, the
best of three for kofn and aiohttp, of two for the peers.

Calls alone: kofn's runner, every reply committed, beside bare aiohttp and lm-eval's client, which store nothing. Whole
evaluations: from the data to numbers, details and files. The peers need KOFN_PEERS_PYTHON.

    python benchmarks/run.py --only calls
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from beside import environment, interpreter
from table import Limit, PeerFailed, Row, failed, show

TITLE = "Calls to a model"
HOW = """CPU time of the client's process per request, at concurrency 100, against a server on loopback that answers
immediately. kofn's calls go through the whole runner: prompts from the task, limits, retries, and every reply
committed to SQLite before it counts; the peers' bare calls store nothing. A whole evaluation also extracts, scores,
computes intervals and writes the run directory with its report; the peers write their logs. The limit is a bare
aiohttp client that posts and parses."""

CALLS, FEW, WARM, AT_A_TIME, ROUNDS = 5_000, 1_000, 300, 100, 3
ROOT = Path(__file__).parents[1]
QUESTION = "What is {} plus {}? Think step by step and give the answer as a number."


def questions(first: int, n: int) -> list[str]:
    return [QUESTION.format(i, i + 1) for i in range(first, first + n)]


def bare(url: str, first: int, n: int) -> None:
    """What nobody can do with less: a post and a parse."""
    import asyncio

    import aiohttp
    import orjson

    async def all_of() -> None:
        room = asyncio.Semaphore(AT_A_TIME)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def one(question: str) -> str:
                body = {"model": "m", "messages": [{"role": "user", "content": question}], "max_tokens": 64, "seed": 1}
                async with room, session.post(f"{url}/chat/completions", data=orjson.dumps(body)) as reply:
                    found: str = orjson.loads(await reply.read())["choices"][0]["message"]["content"]
                    return found

            assert all(await asyncio.gather(*map(one, questions(first, n))))

    asyncio.run(all_of())


def calls(url: str, first: int, n: int) -> None:
    """The whole runner: prompts from a task, limits, retries, every reply committed before it counts."""
    import asyncio

    from kofn.generate.calls import CallContext
    from kofn.generate.limits import Limits
    from kofn.generate.runner import Fixed, generate
    from kofn.generate.store import Store
    from kofn.models import open_model
    from kofn.tasks import load_task

    records = [{"id": str(i), "question": q} for i, q in enumerate(questions(first, n), start=first)]
    task = load_task({"name": "sums", "dataset": records, "stages": [{"prompt": "{question}", "max_tokens": 64}]})

    async def all_of(store: Store) -> None:
        model = open_model(f"openai:m@{url}")
        limits = Limits(concurrency=AT_A_TIME)
        context = CallContext(store=store, limits=limits, seed=0)
        outcome = await generate(task.items(), task.recipe(), {"actor": model}, context, repeats=Fixed(1))
        await model.close()
        assert outcome.tally.replies == n
        assert not outcome.tally.errors

    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "run", fingerprint={})
        asyncio.run(all_of(store))
        store.close()


def whole(url: str, first: int, n: int) -> None:
    """`kofn.run`: the calls, extraction, scores, intervals, and the whole run directory with its report."""
    import kofn

    records = [{"id": str(i), "question": q, "answer": "1"} for i, q in enumerate(questions(first, n), start=first)]
    task = {"name": "sums", "dataset": records, "stages": [{"prompt": "{question}", "max_tokens": 64}]}
    with tempfile.TemporaryDirectory() as folder:
        done = kofn.run(task, model=f"openai:m@{url}", repeats=1, concurrency=AT_A_TIME, out=Path(folder) / "run")
    assert done.result is not None
    assert done.result.n_missing == 0


LM_EVAL = """
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalChatCompletion

model = LocalChatCompletion(base_url=url + "/chat/completions", model="m", num_concurrent={at_a_time})

def calls(first, n):
    asked = [
        Instance("generate_until", {{}}, ([{{"role": "user", "content": q}}], {{"max_gen_toks": 64}}), i)
        for i, q in enumerate(questions(first, n))
    ]
    assert all(model.generate_until(asked, disable_tqdm=True))
"""

OPENAI = """
import asyncio
from openai import AsyncOpenAI

async def all_of(first, n):
    room = asyncio.Semaphore({at_a_time})
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        async def one(question):
            async with room:
                made = await client.chat.completions.create(
                    model="m", messages=[{{"role": "user", "content": question}}], max_tokens=64, seed=1)
                return made.choices[0].message.content
        assert all(await asyncio.gather(*map(one, questions(first, n))))

def calls(first, n):
    asyncio.run(all_of(first, n))
"""

LM_EVAL_WHOLE = """
import json, os, tempfile
os.environ.update(HF_DATASETS_CACHE=tempfile.mkdtemp())
from pathlib import Path
import lm_eval
from lm_eval.tasks import TaskManager

def calls(first, n):
    with tempfile.TemporaryDirectory() as folder:
        data, task = Path(folder, "data.jsonl"), Path(folder, "sums.yaml")
        data.write_text("\\n".join(json.dumps({{"q": q, "a": "1"}}) for q in questions(first, n)))
        task.write_text(json.dumps({{
            "task": "sums", "dataset_path": "json", "dataset_kwargs": {{"data_files": {{"test": str(data)}}}},
            "test_split": "test", "output_type": "generate_until",
            "doc_to_text": "{{{{q}}}}", "doc_to_target": "{{{{a}}}}",
            "generation_kwargs": {{"max_gen_toks": 64, "until": ["#"]}}, "metric_list": [{{"metric": "exact_match"}}],
        }}))
        done = lm_eval.simple_evaluate(
            model="local-chat-completions", tasks=["sums"], task_manager=TaskManager(include_path=folder),
            model_args={{"base_url": url + "/chat/completions", "model": "m", "num_concurrent": {at_a_time}}},
            apply_chat_template=True, log_samples=True, bootstrap_iters=0)
    assert len(done["samples"]["sums"]) == n
"""

INSPECT = """
import os, tempfile
os.environ.update(LOOP_API_KEY="none", LOOP_BASE_URL=url)
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate

def calls(first, n):
    samples = [Sample(input=q, target="1") for q in questions(first, n)]
    with tempfile.TemporaryDirectory() as folder:
        log, = eval(Task(dataset=samples, solver=generate()), model="openai-api/loop/m", max_connections={at_a_time},
                    max_samples={at_a_time}, display="none", log_dir=folder, max_tokens=64)
    assert log.status == "success"
"""

TIMED = """
import sys, time
url, n = sys.argv[1], int(sys.argv[2])
def questions(first, n):
    return [{question!r}.format(i, i + 1) for i in range(first, first + n)]
{body}
calls(0, {warm})
start = time.process_time()
calls({warm}, n)
print((time.process_time() - start) / n)
"""


def timed_here(name: str, url: str, n: int) -> None:
    """The client of this name in this process: prints its CPU seconds a request."""
    client = {"bare": bare, "calls": calls, "whole": whole}[name]
    client(url, 0, WARM)
    start = time.process_time()
    client(url, WARM, n)
    print((time.process_time() - start) / n)


def ours(name: str, url: str, n: int) -> float:
    command = [sys.executable, __file__, "--client", name, url, str(n)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def theirs(python: str, body: str, url: str, n: int) -> float:
    script = TIMED.format(question=QUESTION, body=body.format(at_a_time=AT_A_TIME), warm=min(WARM, n // 4))
    done = subprocess.run([python, "-c", script, url, str(n)], capture_output=True, text=True, check=False,
                          env=environment())  # fmt: skip
    if done.returncode:
        raise PeerFailed((done.stderr.strip().splitlines() or ["no word"])[-1])
    return float(done.stdout.split()[-1])


# who, what they run, how many calls of it, and against which of kofn's clients
PEERS = {
    "openai's AsyncOpenAI, nothing stored": (OPENAI, FEW, "calls"),
    "lm-eval's local-chat-completions, nothing stored": (LM_EVAL, CALLS, "calls"),
    "lm-eval simple_evaluate": (LM_EVAL_WHOLE, FEW, "whole"),
    "Inspect eval": (INSPECT, FEW, "whole"),
}


def measured(url: str, *, small: bool) -> dict[str, float]:
    """CPU seconds a call of every client, the best of its rounds, in turn."""
    python, best = interpreter("openai, lm-eval and Inspect"), dict[str, float]()
    waiting = dict(PEERS) if python else {}
    for turn in range(1 if small else ROUNDS):
        for name in ("bare", "calls", "whole"):
            best[name] = min(best.get(name, 9e9), ours(name, url, 200 if small else CALLS))
        for name, (body, n, _) in list(waiting.items()) if turn < ROUNDS - 1 else ():
            try:
                best[name] = min(best.get(name, 9e9), theirs(str(python), body, url, 100 if small else n))
            except PeerFailed as problem:
                failed(f"{name}: {problem}")
                del waiting[name]
    return best


def main(small: bool = False) -> list[Row]:
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "loopback.py"), "--log", os.devnull, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        best = measured(f"http://127.0.0.1:{int(server.stdout.readline())}/v1", small=small)
    finally:
        server.terminate()
        server.wait()
    works = {"calls": "CPU per call, concurrency 100, kofn's stored", "whole": "CPU per case of a whole evaluation"}
    limit = Limit("a bare aiohttp client", best["bare"])
    rows = [
        Row(work=works[mine], kofn=best[mine], peer=peer, theirs=best[peer], limit=limit)
        for peer, (_, _, mine) in PEERS.items()
        if peer in best
    ]
    rows = rows or [Row(work=work, kofn=best[mine], limit=limit) for mine, work in works.items()]
    return [show(row) for row in rows]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        timed_here(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
