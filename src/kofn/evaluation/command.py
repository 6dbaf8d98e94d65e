"""`python -m kofn.evaluation`: evaluate what a training run has saved, with the flags such loops have.

Every flag may be written with dashes or underscores. A line is appended to results.jsonl beside the model; the run
itself is kept beside it too, so that the same command, stopped in the middle, goes on where it was.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, KofnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.tasks import Task


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = argparse.ArgumentParser(prog="python -m kofn.evaluation", description=(__doc__ or "").partition("\n")[0])
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
    """Every model to evaluate: how a run names it, and its folder."""
    from kofn.models.adapters import CONFIG, find_adapters

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
    from kofn.evaluation.loop import run_line
    from kofn.evaluation.tasks import asks_for_letters, every, extraction, reasoned
    from kofn.models.adapters import find_place
    from kofn.tasks import load_task

    find_place(spec)  # what is not there is said before the data is read
    names = ("temperature", "cot_length", "answer_length", "markovian", "actor_reward_weight")
    task = reasoned(load_task(given.task_type), {n: v for n in names if (v := getattr(given, n)) is not None})
    samples = every(task, given.data, given.stride)[: given.limit]
    settings: dict[str, Any] = {
        **extraction(given.answer_extraction_method, letters=asks_for_letters(task), haiku=given.haiku_metric),
        "repeats": given.repeats,
        "limit": None if samples else given.limit,
        "samples": samples,
        "data": given.data,
        "seed": given.seed,
        "device": given.device,
        "batch_size": given.batch_size,
        "batch_index": number_of(folder),
    }
    output = given.output or folder.resolve().parent / "results.jsonl"
    out = folder.resolve().parent / "kofn" / directory_name(task, spec, folder, settings)
    line = run_line(task, spec, None, {**settings, "out": out, "append_results": output, "progress": True})
    sys.stdout.write(told(folder.name, line) + f"\n  {output}\n  {out}\n")


def number_of(folder: Path) -> int | None:
    """The step in an adapter's name.

    >>> number_of(Path("run/adapter_500")), number_of(Path("llama"))
    (500, None)
    """
    found = re.findall(r"\d+$", folder.name)
    return int(found[0]) if found else None


def directory_name(task: Task, spec: str, folder: Path, settings: dict[str, Any]) -> str:
    """One directory for one way of asking one set of weights: nothing of another is ever taken up."""
    from hashlib import blake2b

    from kofn.models.adapters import find_place, fingerprint

    place = find_place(spec)
    weights = [fingerprint(p) for p in (place.base, place.adapter) if p is not None]
    asked = {name: value for name, value in settings.items() if name in ("seed", "data", "device")}
    digest = blake2b(repr((task.fingerprint(), weights, asked)).encode(), digest_size=4).hexdigest()
    return f"{task.name}-{folder.name}-{digest}"


def told(name: str, line: dict[str, Any]) -> str:
    """One line for people.

    >>> told("adapter_500", {"task_type": "gsm8k", "accuracy": 0.25, "num_examples": 4, "accuracy_legacy": None})
    'adapter_500: gsm8k accuracy 0.250 of 4 cases'
    """
    shown = [("accuracy", "accuracy"), ("accuracy_legacy", "by the older rule"), ("haiku_accuracy", "read by a model")]
    numbers = [f"{label} {line[key]:.3f}" for key, label in shown if line.get(key) is not None]
    return f"{name}: {line['task_type']} {', '.join(numbers) or 'accuracy unknown'} of {line['num_examples']} cases"
