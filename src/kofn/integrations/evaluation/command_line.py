"""`python -m kofn.integrations.evaluation`: evaluate what a training run has saved, with the flags such loops have.

Every flag may be written with dashes or underscores. A line is appended to results.jsonl beside the model; the run
itself is kept beside it too, so that the same command, stopped in the middle, goes on where it was.
"""

from __future__ import annotations

import argparse
import re
import sys
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, KofnError
from kofn.models.local_folders import CONFIG, find_adapters, find_model_folders, fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.tasks import Task


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = argparse.ArgumentParser(
        prog="python -m kofn.integrations.evaluation", description=(__doc__ or "").partition("\n")[0]
    )
    p.add_argument("--task-type", required=True, help="a task: gsm8k, mmlu, ... or a task file")
    p.add_argument("--model-path", type=Path, help="an adapter or model folder, or a run with --all-adapters")
    p.add_argument("--base-model", help="the base's folder, where the adapter does not name it; alone: evaluate it")
    p.add_argument("--all-adapters", action="store_true", help="every adapter of the run, in the order of its number")
    p.add_argument("--answer-extraction-method", help="simple, anchor, llm, or any extractor (`kofn list extractors`)")
    p.add_argument("--haiku-metric", action="store_true", help="let a model read the answers too (costs money)")
    p.add_argument("--num-samples", "--limit", dest="limit", type=int, help="the first so many cases")
    p.add_argument("--stride", type=int, default=1, help="every so many-th case")
    p.add_argument("--data", type=Path, help="the file or folder of the task's data")
    p.add_argument("--repeats", type=int, default=1, help="answers a case (default 1)")
    p.add_argument("--batch-size", type=int, help="outputs computed together")
    p.add_argument("--cot-length", "--max-length", dest="cot_length", type=int, help="tokens of the reasoning")
    p.add_argument("--answer-length", type=int, help="tokens of the answer")
    p.add_argument("--temperature", type=float, help="of the reasoning; the answer is drawn at 0")
    p.add_argument("--markovian", action=argparse.BooleanOptionalAction, help="the answer does not see the question")
    p.add_argument("--actor-reward-weight", type=float, help="above 0 the actor itself answers, else its base")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", help="cpu, cuda, mps (default: a GPU where there is one)")
    p.add_argument("--output", type=Path, help="the file to append to (default: results.jsonl beside the model)")
    return p


def with_dashes(argv: Sequence[str]) -> list[str]:
    """Flags as this command spells them; values stay as they are.

    >>> with_dashes(["--task_type=my_task", "--model_path", "a_b"])
    ['--task-type=my_task', '--model-path', 'a_b']
    """
    return [re.sub(r"^--[\w-]+", lambda m: m[0].replace("_", "-"), one) for one in argv]


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate, and say where the line went. The exit code is 0, 2 for a mistake, 3 when the world failed."""
    given = parser().parse_args(with_dashes(sys.argv[1:] if argv is None else argv))
    try:
        for spec, place in models_of(given):
            evaluate_one(given, spec, place)
    except KofnError as problem:
        sys.stderr.write(f"kofn: {problem}\n")
        return problem.exit_code
    return 0


def models_of(given: argparse.Namespace) -> list[tuple[str, Path]]:
    """Every model to evaluate: its spec and its folder."""
    path, base = given.model_path, given.base_model
    if path is None and base is None:
        raise InputError("--model-path: expected the folder of a model or an adapter")
    if path is None:
        return [(f"hf:{base}", Path(base))]
    if given.all_adapters:
        folders = find_adapters(path)
    elif path.is_dir() and not any((path / name).is_file() for name in (CONFIG, "config.json")):
        near = [p.name for p in find_adapters(path)]
        raise InputError(f"{path}: a run with {', '.join(near[:5])}: name one of them, or give --all-adapters")
    else:
        folders = [path]
    return [(f"hf:{base}+{f}" if base and (f / CONFIG).is_file() else f"hf:{f}", f) for f in folders]


def evaluate_one(given: argparse.Namespace, spec: str, folder: Path) -> None:
    """Evaluate one model and append its line."""
    find_model_folders(spec)  # a missing folder is reported before anything is loaded
    # numpy, polars and pydantic come with these, which --help and mistakes in the flags do without
    from kofn.integrations.evaluation.evaluate_model import (
        every_nth,
        extraction_settings,
        has_letter_answers,
        run_line,
        two_staged,
    )
    from kofn.tasks import load_task

    names = ("temperature", "cot_length", "answer_length", "markovian", "actor_reward_weight")
    task = two_staged(load_task(given.task_type), {n: v for n in names if (v := getattr(given, n)) is not None})
    samples = every_nth(task, given.data, given.stride)[: given.limit]
    settings: dict[str, Any] = {
        **extraction_settings(
            given.answer_extraction_method, letters=has_letter_answers(task), haiku=given.haiku_metric
        ),
        "repeats": given.repeats,
        "limit": None if samples else given.limit,
        "ids": samples,
        "data": given.data,
        "seed": given.seed,
        "device": given.device,
        "batch_size": given.batch_size,
        "batch_index": number_of(folder),
    }
    output = given.output or folder.resolve().parent / "results.jsonl"
    out = folder.resolve().parent / "kofn" / directory_name(task, spec, folder, settings)
    line = run_line(task, spec, None, {**settings, "out": out, "append_results": output, "progress": True})
    sys.stdout.write(describe_line(folder.name, line) + f"\n  {output}\n  {out}\n")


def number_of(folder: Path) -> int | None:
    """The step in an adapter's name.

    >>> number_of(Path("run/adapter_500")), number_of(Path("llama"))
    (500, None)
    """
    digits = re.findall(r"\d+$", folder.name)
    return int(digits[0]) if digits else None


def directory_name(task: Task, spec: str, folder: Path, settings: dict[str, Any]) -> str:
    """The run directory of one set of weights with these settings: replies of others must never be resumed."""
    place = find_model_folders(spec)
    weights = [fingerprint(p) for p in (place.base, place.adapter) if p is not None]
    inputs = {name: value for name, value in settings.items() if name in ("seed", "data", "device")}
    digest = blake2b(repr((task.fingerprint(), weights, inputs)).encode(), digest_size=4).hexdigest()
    return f"{task.name}-{folder.name}-{digest}"


def describe_line(name: str, line: dict[str, Any]) -> str:
    """The result in one line.

    >>> describe_line("adapter_500", {"task_type": "gsm8k", "accuracy": 0.25, "num_examples": 4})
    'adapter_500: gsm8k accuracy 0.250 of 4 cases'
    """
    labels = [("accuracy", "accuracy"), ("accuracy_legacy", "by the older rule"), ("haiku_accuracy", "read by a model")]
    numbers = [f"{label} {line[key]:.3f}" for key, label in labels if line.get(key) is not None]
    return f"{name}: {line['task_type']} {', '.join(numbers) or 'accuracy unknown'} of {line['num_examples']} cases"
