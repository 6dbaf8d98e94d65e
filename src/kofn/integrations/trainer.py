"""`KofnCallback` for transformers' Trainer: evaluates the model every so many steps while it trains.

    from kofn.integrations.trainer import KofnCallback
    trainer.add_callback(KofnCallback("gsm8k", every_steps=500, limit=100, repeats=4))

The class is created when it is first imported, because its base class is in transformers.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, WorldError
from kofn.integrations.evaluation.evaluate_model import (
    backends,
    extraction_settings,
    has_letter_answers,
    load_with_data,
    run_line,
    two_staged,
)
from kofn.models.local_folders import load_transformers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kofn.tasks import Task

_NUMBERS = ("accuracy", "accuracy_legacy", "haiku_accuracy", "haiku_cost_usd")


class _EvaluationCallback:
    """Evaluates the model that is being trained, and leaves it as it was.

    every_steps   evaluate after every so many steps (eval_frequency); None: whenever the trainer evaluates
    limit, repeats, test_data, answer_extraction_method, batch_size, enable_haiku_metric   as in `evaluate_model_on`
    two_stage     the model reasons, then its frozen base (or `critic`) answers; `hyperparameters` says how
    trainer       its `log` gets the numbers; without it they go to the log history of its state
    results       the file a line is appended to (default: results.jsonl in the trainer's output_dir)
    options       of `kofn.run`, such as aggregate=["any_pass"] or temperature=0.7

    The numbers are eval_kofn_accuracy and, where there are such, eval_kofn_accuracy_legacy, eval_kofn_haiku_accuracy
    and eval_kofn_haiku_cost_usd; a trainer that evaluates can choose its best model by them. Only the first process
    of several evaluates. A server that fails is a warning: no training ends because of it.
    """

    def __init__(
        self,
        task: str | Path | Mapping[str, Any] | Task,
        *,
        every_steps: int | None = None,
        limit: int | None = None,
        repeats: int = 1,
        test_data: Iterable[Any] | None = None,
        tokenizer: Any = None,
        critic: Any = None,
        two_stage: bool = False,
        hyperparameters: Mapping[str, Any] | None = None,
        answer_extraction_method: str | None = None,
        enable_haiku_metric: bool = False,
        batch_size: int | None = None,
        trainer: Any = None,
        results: Path | str | None = None,
        **options: Any,
    ) -> None:
        if every_steps is not None and every_steps < 1:
            raise InputError(f"every_steps is {every_steps}: expected a whole number from 1")
        whole = load_with_data(task, test_data)
        self.task = two_staged(whole, hyperparameters or {}) if two_stage else whole
        letters = has_letter_answers(self.task)
        by = extraction_settings(answer_extraction_method, letters=letters, haiku=enable_haiku_metric)
        self.every_steps, self.trainer, self.results = every_steps, trainer, results
        self.tokenizer, self.critic, self.batch_size = tokenizer, critic, batch_size
        self.settings = {"limit": limit, "repeats": repeats, **by, **options}
        self.last: dict[str, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002
        """Say now, and not after a thousand steps, that the data is not there."""
        data = self.settings.get("data")
        self.task.items(Path(data) if isinstance(data, str) else data, limit=1)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002
        """Evaluate when it is time."""
        if self.every_steps is not None and state.global_step % self.every_steps == 0:
            self._evaluate(args, state, **more)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **more: Any) -> None:  # noqa: ARG002
        """Add the newest numbers to those of the trainer's own evaluation."""
        if self.every_steps is None:
            self._evaluate(args, state, **more)
        if metrics is not None:
            metrics.update(self.last)

    def _evaluate(self, args: Any, state: Any, **more: Any) -> None:
        if not state.is_world_process_zero:
            return

        tokenizer = self.tokenizer or more.get("processing_class")
        path, step = self.results or Path(args.output_dir) / "results.jsonl", {"batch_index": state.global_step}
        actor, critic = backends(more["model"], self.critic, tokenizer, batch=self.batch_size)
        try:
            line = run_line(self.task, actor, critic, {"append_results": path, **self.settings, **step})
        except WorldError as problem:
            warnings.warn(f"step {state.global_step} was not evaluated: {problem}", stacklevel=2)
            return
        self.last = {f"eval_kofn_{n}": line[n] for n in _NUMBERS if line.get(n) is not None}
        if self.trainer is not None:
            self.trainer.log(dict(self.last))
        else:
            state.log_history.append({**self.last, "epoch": state.epoch, "step": state.global_step})


def __getattr__(name: str) -> Any:
    if name != "KofnCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    parents = (_EvaluationCallback, load_transformers().TrainerCallback)
    made = type(name, parents, {"__doc__": _EvaluationCallback.__doc__, "__module__": __name__})
    globals()[name] = made
    return made
