"""Evaluation from a training loop: of the model in memory, or of the adapters that a run has saved.

from kofn.integrations.evaluation import evaluate_model_on_gsm8k
accuracy, results, haiku_metrics = evaluate_model_on_gsm8k(actor, critic, tokenizer, device, test_data, settings)

python -m kofn.integrations.evaluation --task_type gsm8k --model_path RUN/adapter_500 --answer_extraction_method anchor

In: a model and a task. Out: accuracy and every answer, and a line of results.jsonl. Imports generate and models.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
