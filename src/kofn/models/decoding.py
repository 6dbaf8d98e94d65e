"""Batched decoding with a causal model of transformers: its tokenizer, sampling by row, and log-likelihoods.

The prompt of several samples is computed once. A row leaves the batch when it ends. What a row draws depends on its own
seed alone, so that its batch mates change it by rounding at most.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.models.base import Likelihood
from kofn.models.local_folders import load_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.models.base import Message, Prompt, Sampling

_NAMES = {"system": "System", "user": "User", "assistant": "Assistant"}


def transcript(messages: Sequence[Message]) -> str:
    """Messages as plain text, for a model that has no chat template.

    >>> from kofn.models.base import Message
    >>> transcript([Message("user", "2+2?")])
    'User: 2+2?\\nAssistant:'
    >>> transcript([Message("user", "2+2?"), Message("assistant", "It is")])
    'User: 2+2?\\nAssistant: It is'
    """
    lines = [f"{_NAMES.get(m.role, m.role)}: {m.content}" for m in messages]
    return "\n".join(lines if messages and messages[-1].role == "assistant" else [*lines, "Assistant:"])


@dataclass(frozen=True, slots=True)
class TokenPair:
    """A context and a continuation in tokens; the context is never empty."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


class Tokenizer:
    """Text to tokens and back. The tokenizer of transformers is never changed: padding is done in `decoding`."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.chat = getattr(tokenizer, "chat_template", None) is not None
        # the special tokens that it puts in front of a text, such as <s>; those it puts behind are left out
        bare, full = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
        at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0) if bare else 0
        self.prefix: tuple[int, ...] = tuple(full[:at])

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """A prompt in tokens: a text with what the tokenizer puts in front of any, messages by the chat template.

        A chat that ends with the assistant's words is continued there.
        """
        if isinstance(prompt, str):
            return self._in_front(self._tokens(prompt))
        if not self.chat:
            return self._in_front(self._tokens(transcript(prompt)))
        messages = [{"role": m.role, "content": m.content} for m in prompt]
        open_end = bool(prompt) and prompt[-1].role == "assistant"
        ending = {"add_generation_prompt": not open_end, "continue_final_message": open_end}
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, **ending)
        return self._tokens(text) or self._in_front(())

    def pair(self, context: str, continuation: str) -> TokenPair:
        """A context and its continuation, split where the context's own tokens end.

        The two are encoded together, as they would be in one text; spaces that end the context go to the continuation,
        because most tokenizers write them at the beginning of a word. Where the two melt into one token, the
        continuation is encoded by itself.
        """
        kept = context.rstrip()
        rest = context[len(kept) :] + continuation
        before, whole = self._tokens(kept), self._tokens(kept + rest)
        return TokenPair(self._in_front(before), whole[len(before) :] or self._tokens(rest))

    def text(self, tokens: Sequence[int]) -> str:
        """Tokens as text, without the special ones."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def ends(self, model: Any) -> frozenset[int]:
        """The tokens that end a text, as the tokenizer and the model's own files say."""
        places = (self.tokenizer, getattr(model, "generation_config", None), getattr(model, "config", None))
        tokens = [getattr(place, "eos_token_id", None) for place in places]
        every = (t for one in tokens for t in (one if isinstance(one, list | tuple) else [one]))
        return frozenset(t for t in every if t is not None)

    @property
    def padding(self) -> int:
        """A token to fill rows with; it is masked, so that any will do."""
        named = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)
        return next((token for token in named if token is not None), 0)

    def _in_front(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """What begins every text; an empty one needs a token to start from."""
        if tokens or self.prefix:
            return self.prefix + tokens
        named = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.padding)
        return (next(token for token in named if token is not None),)

    def _tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


class DecodingCancelled(Exception):
    """The caller was cancelled, so nobody needs the outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingRow:
    """One output to write: sample `index` of request `place`. `limit` is the most tokens there is room for."""

    place: int
    index: int
    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int | None
    limit: int


@dataclass(slots=True)
class Output:
    """A row as far as it is written. `tokens` and `logprob` count the token that ended it."""

    row: DecodingRow
    random: Random
    tokens: list[int] = field(default_factory=list)
    logprob: float = 0.0
    finish: str | None = None
    text: str = ""

    def take(self, token: int, logprob: float, tokenizer: Tokenizer, ends: frozenset[int]) -> None:
        """One token more, which may be the last."""
        self.tokens.append(token)
        self.logprob += logprob
        stops = self.row.sampling.stop
        # a token is a byte at least, so that the end holds every stop that the newest tokens end in, or hold: decoding
        # it alone is cheap; some tokens more, because a stop may begin inside a token or a character
        window = max((len(stop.encode()) for stop in stops), default=0) + 8
        held = bool(stops) and first_stop(tokenizer.text(self.tokens[-window:]), stops) is not None
        if token in ends or held or len(self.tokens) >= self.row.limit:
            text = tokenizer.text(self.tokens[:-1] if token in ends else self.tokens)
            cut = first_stop(text, stops)
            self.text, self.finish = text[:cut], "stop" if token in ends or held or cut is not None else "length"


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first stop begins, None where there is none.

    >>> first_stop("4\\nQuestion: 5+5", ("Question:", "\\n"))
    1
    """
    return min([at for stop in stops if stop and (at := text.find(stop)) >= 0], default=None)


class ForwardPass:
    """A model's forward pass over rows of unequal length, padded on the left."""

    def __init__(self, model: Any, padding: int) -> None:
        self.torch, self.model, self.padding = load_torch(), model, padding
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.takes = set(inspect.signature(inner.forward).parameters)
        self.device = next(model.parameters()).device

    def read(self, rows: Sequence[Sequence[int]], keep: int, *, cache: bool = False) -> tuple[Any, Any, Any]:
        """The logits of the last `keep` places of every row, the mask, and the cache."""
        torch, width = self.torch, max(map(len, rows))
        ids = torch.tensor([[self.padding] * (width - len(r)) + list(r) for r in rows], device=self.device)
        mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows], device=self.device)
        # positions count from the first real token; clamp, because padding would have -1
        logits, past = self._forward(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), keep, use_cache=cache)
        return logits, mask, past

    def next(self, tokens: Sequence[int], mask: Any, past: Any) -> tuple[Any, Any, Any]:
        """The logits after one token more in every row."""
        ids = self.torch.tensor(tokens, device=self.device)[:, None]
        mask = self.torch.cat([mask, mask.new_ones(len(tokens), 1)], dim=-1)
        logits, past = self._forward(ids, mask, mask.sum(-1, keepdim=True) - 1, 1, use_cache=True, past_key_values=past)
        return logits[:, -1], mask, past

    def _forward(self, ids: Any, mask: Any, positions: Any, keep: int, **more: Any) -> tuple[Any, Any]:
        if "position_ids" in self.takes:
            more["position_ids"] = positions
        if "logits_to_keep" in self.takes:
            more["logits_to_keep"] = keep  # all of them would be rows x tokens x vocabulary
        out = self.model(input_ids=ids, attention_mask=mask, **more)
        past = getattr(out, "past_key_values", None)
        if more["use_cache"] and past is None:
            name = type(self.model).__name__
            raise InputError(f"{name} keeps no cache of keys and values: serve it, and use openai:MODEL@URL")
        logits = out.logits[:, -keep:].float()  # models without `logits_to_keep` give all of them
        if bool(self.torch.isnan(logits[:, -1]).any()):
            raise InputError("the model computes numbers that are not numbers: load it in another dtype (float32)")
        return logits, past


def decode(
    forward_pass: ForwardPass,
    tokenizer: Tokenizer,
    ends: frozenset[int],
    rows: Sequence[DecodingRow],
    stopped: Callable[[], bool],
) -> list[Output]:
    """Generate the output of every row. `stopped` is called before every token."""
    outputs = [Output(row, Random(row.seed)) for row in rows]  # noqa: S311 - draws texts, guards nothing
    prompts = list(dict.fromkeys(row.prompt for row in rows))
    logits, mask, past = forward_pass.read(prompts, 1, cache=True)
    of_row = forward_pass.torch.tensor([prompts.index(row.prompt) for row in rows], device=forward_pass.device)
    logits, mask = logits[of_row, -1], mask[of_row]
    past.reorder_cache(of_row)  # copies the cache of a prompt to each of its samples
    unfinished = outputs
    while unfinished:
        if stopped():
            raise DecodingCancelled
        tokens, logprobs = sample_tokens(forward_pass.torch, logits, unfinished)
        for output, token, logprob in zip(unfinished, tokens, logprobs, strict=True):
            output.take(token, logprob, tokenizer, ends)
        kept = [i for i, output in enumerate(unfinished) if output.finish is None]
        if len(kept) < len(unfinished):
            at = forward_pass.torch.tensor(kept, device=forward_pass.device, dtype=forward_pass.torch.long)
            mask = mask[at]
            past.reorder_cache(at)
            unfinished, tokens = [unfinished[i] for i in kept], [tokens[i] for i in kept]
        if unfinished:
            logits, mask, past = forward_pass.next(tokens, mask, past)
    return outputs


def sample_tokens(torch: Any, logits: Any, outputs: Sequence[Output]) -> tuple[list[int], list[float]]:
    """The next token of every row, and its log-probability under the model itself.

    Temperature 0 takes the likeliest. Else one number u of the row's own random numbers says which: the first token at
    which the probabilities, in the order of the vocabulary, sum to more than u.
    """
    tokens = logits.argmax(-1)
    warm = [i for i, output in enumerate(outputs) if _temperature(output) > 0]
    if warm:
        at = torch.tensor(warm, device=logits.device)
        tokens[at] = _drawn(torch, logits[at], [outputs[i] for i in warm])
    return tokens.tolist(), logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0].tolist()


def _drawn(torch: Any, logits: Any, outputs: Sequence[Output]) -> Any:
    exact = torch.float32 if logits.device.type == "mps" else torch.float64  # mps has no doubles
    heat = torch.tensor([_temperature(o) for o in outputs], device=logits.device, dtype=logits.dtype)
    chances = (logits / heat[:, None]).softmax(-1).to(exact)
    nucleus = [1.0 if o.row.sampling.top_p is None else o.row.sampling.top_p for o in outputs]
    if min(nucleus) < 1:
        # zero for all but the likeliest tokens that together reach top_p; the likeliest one always stays
        top_p = torch.tensor(nucleus, device=logits.device, dtype=exact)
        ranked, order = chances.sort(dim=-1, descending=True, stable=True)
        beyond = (ranked.cumsum(-1) - ranked) >= top_p[:, None]
        beyond[:, 0] = False
        chances = chances.masked_fill(beyond.scatter(-1, order, beyond), 0.0)
    sums = chances.cumsum(-1)
    u = torch.tensor([o.random.random() for o in outputs], device=logits.device, dtype=exact)
    # times the last sum, which rounding leaves a little above or below 1
    return torch.searchsorted(sums, (u * sums[:, -1])[:, None], right=True)[:, 0].clamp(max=logits.shape[-1] - 1)


def _temperature(output: Output) -> float:
    temperature = output.row.sampling.temperature
    return 1.0 if temperature is None else temperature


def likelihoods(forward_pass: ForwardPass, pairs: Sequence[TokenPair], context: int | None) -> list[Likelihood]:
    """How likely each continuation, of one token at least, is; of a text too long for the model its end is read."""
    rows = [pair.context + pair.continuation for pair in pairs]
    rows = [row[-(context + 1) :] if context else row for row in rows]
    targets = [row[1:][-len(pair.continuation) :] for row, pair in zip(rows, pairs, strict=True)]
    logits, _, _ = forward_pass.read([row[:-1] for row in rows], max(map(len, targets)))
    found = []
    for i, tokens in enumerate(targets):  # of the last places of one row, the sum over these tokens
        logprobs = logits[i][-len(tokens) :].log_softmax(-1)
        ids = forward_pass.torch.tensor(tokens, device=logits.device)
        logprob, greedy = float(logprobs.gather(-1, ids[:, None]).sum()), bool((logprobs.argmax(-1) == ids).all())
        found.append(Likelihood(logprob=logprob, tokens=len(tokens), greedy=greedy))
    return found
