"""A tiny Llama with random weights, its tokenizer, and LoRA adapters on it: made on the spot, in a second."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec

import pytest

os.environ.setdefault("GOMP_SPINCOUNT", "1000")
torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'kofn[hf]'")
if missing := [name for name in ("transformers", "peft") if find_spec(name) is None]:  # seconds to import
    pytest.skip(f"{missing[0]} is not installed: pip install 'kofn[hf]'", allow_module_level=True)

LINES = [
    "Question: What is two plus two? Reasoning: two and two make four. Answer: 4",
    "User: Name a colour of the sky.\nAssistant: blue is a colour of the sky, grey is one too.",
    "The quick brown fox jumps over the lazy dog 0 1 2 3 4 5 6 7 8 9 A B C D E = + - .",
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CONTEXT = 192


def make_tokenizer(*, chat=False, bos=True):
    """A byte-level BPE, which can write any text, with <s> in front where asked."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(LINES * 20, trainer)
    if bos:
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    names = dict(zip(("bos_token", "eos_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    if chat:
        tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(tokenizer, seed=0):
    """Weights ten times the usual spread, so that outputs differ and probabilities are not all alike."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            initializer_range=0.2,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        return LlamaForCausalLM(config).eval()


def with_adapter(model, seed=1, name="default"):
    """The model with a LoRA adapter whose weights are large enough to change every output."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        wrapped = get_peft_model(model, config, adapter_name=name)
        for key, parameter in wrapped.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(parameter, std=0.3)
    return wrapped


def save_run(folder, *, adapters=(("adapter_500", 1), ("adapter_1000", 2)), chat=False):
    """`base` and adapters in a folder, as a training run leaves them."""
    tokenizer = make_tokenizer(chat=chat)
    base = folder / "base"
    make_model(tokenizer).save_pretrained(base)
    tokenizer.save_pretrained(base)
    for name, seed in adapters:
        wrapped = with_adapter(make_model(tokenizer), seed)
        wrapped.peft_config["default"].base_model_name_or_path = str(base)
        wrapped.save_pretrained(folder / name)
    return folder


def name_base(adapter, base):
    """Say in an adapter's file which base it stands on."""
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": str(base)}))
