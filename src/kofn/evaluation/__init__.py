"""Evaluate from a training loop: the model in memory, or the adapters a run has saved.

from kofn.evaluation import evaluate_model_on_gsm8k
accuracy, results, haiku_metrics = evaluate_model_on_gsm8k(actor, critic, tokenizer, device, test_data, settings)

python -m kofn.evaluation --task_type gsm8k --model_path RUN/adapter_500 --answer_extraction_method anchor

tasks.py     a task as a training loop asks it: its own data, two stages, the extractor by its usual name
loop.py      the functions, on models in memory
command.py   the command, on folders
"""

from __future__ import annotations

from kofn.evaluation.loop import Evaluated, evaluate_model_on, evaluate_model_on_gsm8k, evaluate_model_on_mmlu

__all__ = ["Evaluated", "evaluate_model_on", "evaluate_model_on_gsm8k", "evaluate_model_on_mmlu"]
