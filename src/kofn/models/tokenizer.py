"""The tokenizer of a local model: prompts to tokens, tokens to text, and which tokens end a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.models.base import Message, Prompt

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
        self.prefix = _prefix(tokenizer)

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
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=not open_end, continue_final_message=open_end
        )
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
        after = whole[len(before) :] or self._tokens(rest)
        return TokenPair(self._in_front(before), after)

    def text(self, tokens: Sequence[int]) -> str:
        """Tokens as text, without the special ones."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def ends(self, model: Any) -> frozenset[int]:
        """The tokens that end a text, as the tokenizer and the model's own files say."""
        tokens = [getattr(self.tokenizer, "eos_token_id", None)]
        tokens += [
            getattr(getattr(model, name, None), "eos_token_id", None) for name in ("generation_config", "config")
        ]
        return frozenset(
            t for one in tokens for t in (one if isinstance(one, list | tuple) else [one]) if t is not None
        )

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


def _prefix(tokenizer: Any) -> tuple[int, ...]:
    """The special tokens this tokenizer puts in front of a text, such as <s>; those it puts behind are left out."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0) if bare else 0
    return tuple(full[:at])
