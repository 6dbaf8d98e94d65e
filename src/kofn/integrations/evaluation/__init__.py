"""Evaluation from a training loop: of the model in memory, or of the adapters that a run has saved.

from kofn.integrations.evaluation import evaluate_model_on_gsm8k
accuracy, results, haiku_metrics = evaluate_model_on_gsm8k(actor, critic, tokenizer, device, test_data, settings)

python -m kofn.integrations.evaluation --task_type gsm8k --model_path RUN/adapter_500 --answer_extraction_method anchor

In: a model and a task. Out: accuracy and every answer, and a line of results.jsonl. Imports generate and models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.integrations.evaluation.evaluate_model import Evaluated as Evaluated
    from kofn.integrations.evaluation.evaluate_model import evaluate_model_on as evaluate_model_on
    from kofn.integrations.evaluation.evaluate_model import evaluate_model_on_gsm8k as evaluate_model_on_gsm8k
    from kofn.integrations.evaluation.evaluate_model import evaluate_model_on_mmlu as evaluate_model_on_mmlu

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.integrations.evaluation.evaluate_model": (
            "Evaluated",
            "evaluate_model_on",
            "evaluate_model_on_gsm8k",
            "evaluate_model_on_mmlu",
        ),
    },
)
