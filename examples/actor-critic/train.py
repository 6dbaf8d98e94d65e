"""Trains a tiny reasoner with a LoRA adapter, and lets kofn score its reasoning every 15 steps while it does.

The base is a Llama of 124,000 parameters, made here. It has learnt to write "12 is larger than 7." and to answer from
such a sentence, but which number it names is a guess: it was trained on both ways. The adapter learns which is right.
Everything is made on the spot, seeded, on one core.

    python examples/actor-critic/train.py runs/larger
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from kofn.integrations.trainer import KofnCallback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
TOP, EVERY = 30, 15
HELD_OUT = {(r["x"], r["y"]) for r in map(json.loads, (HERE / "larger.jsonl").read_text().splitlines())}


def text(x: int, y: int, named: int) -> str:
    """A question, a reasoning that names one of the two as larger, and the answer that follows from it."""
    other = y if named == x else x
    reasoning = f"{named} is larger than {other}."
    return f"Question: Which is larger, {x} or {y}?\nReasoning: {reasoning}\nAnswer: {named}"


def pairs(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Two different numbers that are not in the task."""
    while True:
        x, y = rng.randrange(TOP), rng.randrange(TOP)
        if x != y and (x, y) not in HELD_OUT:
            yield x, y


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE over the texts above: every number and every word is one token."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [text(x, y, x) for x in range(TOP) for y in range(TOP)],
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
        ),
    )
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **marks)


def batch(words: PreTrainedTokenizerFast, texts: list[str]) -> dict[str, torch.Tensor]:
    """Token ids, each text ended; padding is not learnt."""
    found = words([one + words.eos_token for one in texts], padding=True, return_tensors="pt")
    labels = found["input_ids"].masked_fill(found["attention_mask"] == 0, -100)
    return {"input_ids": found["input_ids"], "attention_mask": found["attention_mask"], "labels": labels}


def make_base(words: PreTrainedTokenizerFast, steps: int = 250) -> LlamaForCausalLM:
    """The base: it names either number, and answers from the reasoning, with the question before it or without."""
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=96,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model, rng = LlamaForCausalLM(config), random.Random(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = pairs(rng)
    for _ in range(steps):
        texts = [text(x, y, rng.choice((x, y))) for x, y in (next(draw) for _ in range(48))]
        texts = [one if rng.random() < 0.5 else one.partition("\n")[2] for one in texts]
        loss = model(**batch(words, texts)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


class Saved(TrainerCallback):
    """Keeps the adapter as it is at every evaluation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:  # noqa: ARG002
        if state.global_step % EVERY == 0:
            model.save_pretrained(self.folder / f"adapter_{state.global_step}")


def train(
    base: LlamaForCausalLM, words: PreTrainedTokenizerFast, folder: Path, steps: int = 45
) -> list[dict[str, Any]]:
    """Train the adapter on right reasonings; every 15 steps save it and score it through the frozen base."""
    lora = LoraConfig(r=8, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    actor = get_peft_model(base, lora)
    actor.peft_config["default"].base_model_name_or_path = str(folder / "base")
    draw = pairs(random.Random(2))
    texts = [text(x, y, max(x, y)) for x, y in (next(draw) for _ in range(steps * 32))]
    arguments = TrainingArguments(
        output_dir=str(folder / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=True,
        seed=0,
    )
    collate: Callable[[list[str]], dict[str, torch.Tensor]] = lambda some: batch(words, some)  # noqa: E731
    trainer = Trainer(model=actor, args=arguments, train_dataset=texts, data_collator=collate, processing_class=words)
    scored = KofnCallback(
        HERE / "task.yaml", every_steps=EVERY, two_stage=True, limit=20, repeats=4, results=folder / "results.jsonl"
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(scored)
    trainer.add_callback(Saved(folder))
    trainer.train()
    return [line for line in trainer.state.log_history if "eval_kofn_accuracy" in line]


def main(to: str) -> None:
    folder = Path(to)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    words = tokenizer()
    base = make_base(words)
    for part in (base, words):
        part.save_pretrained(folder / "base")
    for line in train(base, words, folder):
        sys.stdout.write(f"step {line['step']:3}  accuracy {line['eval_kofn_accuracy']:.2f}\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    main(*sys.argv[1:])
