"""Requests that are not answered yet, and the rows that their replies become."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from kofn.generate.pricing import count_tokens, prompt_tokens, usage_of
from kofn.generate.store import ReplyRow

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from kofn.models.base import Likelihood, Reply, Request

    # (model, tokens of the prompt, tokens of all outputs) -> dollars of one request, None where the price is not known
    PriceFunction = Callable[[str, int, int], float | None]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingRequest(ABC):
    """What one call will answer. Output j is that of repeat `repeat + j`, stored under `keys[j]`."""

    stage: str
    case_id: str
    repeat: int
    keys: Sequence[bytes]
    rows: dict[int, ReplyRow] = field(default_factory=dict)
    calls: int = 0
    failures: int = 0
    stored: asyncio.Future[None] | None = None  # done when the last rows are committed: the store writes in order
    served: asyncio.Future[None] | None = None  # done when the batch that this request is part of has been served

    @property
    def missing(self) -> bool:
        return len(self.rows) < len(self.keys)

    def ask_singly(self) -> bool:
        """Ask for one output at a time from now on; True if that was so already."""
        return True

    @property
    def tokens(self) -> int:
        """All tokens of the rows so far."""
        return sum((row.tokens_in or 0) + (row.tokens_out or 0) for row in self.rows.values())

    @property
    @abstractmethod
    def prompt_tokens(self) -> int:
        """About how many tokens are sent."""

    def row(self, index: int, **columns: Any) -> ReplyRow:
        """A row of output `index`; columns that are not given are None."""
        values: dict[str, Any] = dict.fromkeys(ReplyRow._fields) | columns
        values |= {"key": self.keys[index], "case_id": self.case_id, "stage": self.stage, "repeat": self.repeat + index}
        return ReplyRow(**{**values, "attempts": self.calls, "created": time.time()})

    def error_rows(self, reason: str) -> list[ReplyRow]:
        """A row for each output that never came."""
        return [self.row(index, error=reason) for index in range(len(self.keys)) if index not in self.rows]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingOutputs(PendingRequest):
    """Outputs of one prompt."""

    request: Request
    single: bool = False

    def ask_singly(self) -> bool:
        already, self.single = self.single or len(self.keys) == 1, True
        return already

    @property
    def prompt_tokens(self) -> int:
        return prompt_tokens(self.request.prompt)

    def part(self) -> tuple[int, Request]:
        """The first outputs that are missing, as one request, and the place of the first of them.

        They are consecutive, because output j of a seeded request has the seed plus j.
        """
        if not self.rows and not self.single:
            return 0, self.request
        first = next(i for i in range(len(self.keys)) if i not in self.rows)
        last = next((i for i in range(first, len(self.keys)) if i in self.rows), len(self.keys))
        return first, part_of(self.request, first, 1 if self.single else last - first)

    def take(
        self, first: int, replies: Mapping[int, Reply], model: str, price: PriceFunction | None, seconds: float
    ) -> list[ReplyRow]:
        """The rows of what one call gave: the prompt's tokens and price, and the time, are shared by all that came."""
        got = sorted(replies)
        seconds /= max(1, len(got))
        tokens_in, tokens_out, counted = self._tokens([replies[i] for i in got])
        costs = shared_cost(model, tokens_in, tokens_out, price)
        rows = []
        for j, i in enumerate(got):
            # whole tokens whose sum over the outputs is exactly that of the prompt
            share = tokens_in * (j + 1) // len(got) - tokens_in * j // len(got)
            row = self._row_of(first + i, replies[i], (share, tokens_out[j], costs[j], seconds), counted)
            self.rows[first + i] = row
            rows.append(row)
        return rows

    def _row_of(self, at: int, reply: Reply, took: tuple[int, int, float | None, float], counted: bool) -> ReplyRow:
        """By position, in the order of ReplyRow: keywords would cost time, and this is done for every reply."""
        content = (reply.text, reply.reasoning, reply.finish, reply.logprob)
        detail = '{"counted":true}' if counted else None
        where = (self.keys[at], self.case_id, self.stage, self.repeat + at)
        return ReplyRow._make((*where, *content, *took, None, self.calls, detail, time.time()))

    def _tokens(self, replies: Sequence[Reply]) -> tuple[int, list[int], bool]:
        """Tokens of the prompt and of each output, by the server or else counted; whether any was counted."""
        tokens_in, tokens_out = replies[0].tokens_in, [reply.tokens_out for reply in replies]
        if tokens_in is not None and None not in tokens_out:
            return tokens_in, cast("list[int]", tokens_out), False
        usages = [usage_of(self.request.prompt, reply) for reply in replies]
        return usages[0].tokens_in, [usage.tokens_out for usage in usages], True


def part_of(request: Request, first: int, n: int) -> Request:
    """Outputs `first` to `first + n - 1` of a request, as a request of their own."""
    sampling, repeat = request.sampling, request.repeat
    if sampling.seed is not None:
        sampling = replace(sampling, seed=sampling.seed + first)
    return replace(request, sampling=sampling, n=n, repeat=None if repeat is None else repeat + first)


def shared_cost(
    model: str, tokens_in: int, tokens_out: Sequence[int], price: PriceFunction | None
) -> list[float | None]:
    """What each output of one request costs: an equal share of the prompt, and its own tokens.

    >>> shared_cost("m", 100, [10, 30], lambda m, i, o: i * 0.01 + o * 0.1)
    [1.5, 3.5]
    >>> shared_cost("m", 100, [10, 30], None)
    [None, None]
    """
    n, total = len(tokens_out), sum(tokens_out)
    if price is None or n == 0:
        return [None] * n
    whole = price(model, tokens_in, total)
    if whole is None or n == 1:
        return [whole] * n
    prompt = price(model, tokens_in, 0) or 0.0
    each = (whole - prompt) / total if total else 0.0
    return [prompt / n + each * tokens for tokens in tokens_out]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingLogLikelihoods(PendingRequest):
    """The log-likelihood of each option after a prompt. The likeliest is chosen; without `choose` there is only one."""

    prompt: str
    options: Sequence[tuple[str, str]]
    choose: bool

    @property
    def prompt_tokens(self) -> int:
        return sum(count_tokens(self.prompt) + count_tokens(text) for _, text in self.options)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(self.prompt, text) for _, text in self.options]

    def take_likelihoods(self, likelihoods: Sequence[Likelihood], seconds: float) -> list[ReplyRow]:
        """The row: the label of the likeliest option, or the one text, and everything in `detail`."""
        import orjson

        if any(one.logprob != one.logprob for one in likelihoods):  # NaN: no option would be the likeliest
            self.rows[0] = self.row(0, error="the model gave a log-likelihood that is not a number", seconds=seconds)
            return [self.rows[0]]
        best = max(range(len(likelihoods)), key=lambda i: likelihoods[i].logprob)
        label, text = self.options[best]
        detail = self._choice_detail(likelihoods) if self.choose else _likelihood_detail(likelihoods[0])
        self.rows[0] = self.row(
            0,
            text=label if self.choose else text,
            logprob=likelihoods[best].logprob,
            seconds=seconds,
            detail=orjson.dumps(detail).decode(),
        )
        return [self.rows[0]]

    def _choice_detail(self, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        """What each option got. `bytes` are those of its text without the space before it; they divide the sum."""
        sizes = [max(1, len(text.strip().encode())) for _, text in self.options]
        best = max(range(len(sizes)), key=lambda i: likelihoods[i].logprob / sizes[i])
        options = [
            {"label": label, "logprob": one.logprob, "tokens": one.tokens, "bytes": size}
            for (label, _), one, size in zip(self.options, likelihoods, sizes, strict=True)
        ]
        return {"options": options, "normalised": self.options[best][0]}


def _likelihood_detail(likelihood: Likelihood) -> dict[str, Any]:
    return {"greedy": likelihood.greedy, "tokens": likelihood.tokens}
