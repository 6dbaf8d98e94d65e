"""`openai:MODEL` and `openai:MODEL@BASE_URL`: any server with the OpenAI chat or completions API (vLLM, Ollama...).

Messages go to /chat/completions, a text to /completions. The key is OPENAI_API_KEY or KOFN_API_KEY (`http_client`).

Tokens of one output. `usage` counts a whole request, and servers disagree on what that means with several outputs:
api.openai.com counts all of them, llama.cpp one. So a request with one output takes `completion_tokens` as it is;
with several, api.openai.com's is shared out evenly (the sum is exact), and elsewhere an output has as many tokens as it
has log-probabilities, or None where none were asked for.
"""

from __future__ import annotations

from contextlib import suppress
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.models.base import Reply, RequestRejected
from kofn.models.http_client import ServerModel, Vendor, as_mapping, find_address, replace_surrogates, token_count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from kofn.models.base import Request

VENDOR = Vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL")
OWN = frozenset({"model", "messages", "prompt", "n", "stream", "echo", "best_of"})
MOST_STOPS = 4  # what api.openai.com accepts; other servers have no such limit


class OpenAI(ServerModel):
    """A model on a server that speaks the OpenAI format.

    `timeout` is for one whole reply, in seconds. `options` are parameters added to every request as they are
    (`{"reasoning_effort": "low"}`); they win over kofn's own, and one that is None is not sent at all.

    A server that gives fewer outputs than asked gives fewer replies, and an output that a content filter took is left
    out where others of its request are there: whoever asked sees by `index` which are missing and asks again.
    """

    own = OWN
    concurrency, samples = 16, 128

    def __init__(self, spec: str, *, timeout: float | None = None, options: Mapping[str, Any] | None = None) -> None:
        address = find_address(spec, VENDOR)
        key = {} if address.key is None else {"Authorization": f"Bearer {address.key}"}
        super().__init__(VENDOR, address, key, timeout, options)
        self._length = "max_completion_tokens" if self.official else "max_tokens"

    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """One call per request; all outputs of a request come together."""
        for place, request in enumerate(requests):
            path = "/completions" if isinstance(request.prompt, str) else "/chat/completions"
            reply = await self._client.post(path, self._body(request))
            try:
                replies = list(self._replies(reply, place, request.n))
            except (KeyError, TypeError, AttributeError):
                replies = []
            if not replies:
                with suppress(KeyError, TypeError):
                    if any(choice["finish_reason"] == "content_filter" for choice in reply["choices"]):
                        raise RequestRejected("the server's content filter took the output")
                raise self._client.malformed(reply)
            for one in replies:
                yield one

    def _body(self, request: Request) -> dict[str, Any]:
        prompt, sampling = request.prompt, request.sampling
        if self.official and (given := len(sampling.stop)) > MOST_STOPS:
            raise InputError(f"{self.name}: takes at most {MOST_STOPS} stop sequences, and {given} are given")
        text = isinstance(prompt, str)
        body: dict[str, Any] = {
            "model": self.model,
            "prompt" if text else "messages": prompt,
            "max_tokens" if text else self._length: sampling.max_tokens,
            "n": request.n if request.n > 1 else None,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stop": sampling.stop or None,
        }
        if sampling.logprobs:  # one alternative per token: some servers take 0 to mean no log-probabilities at all
            body |= {"logprobs": 1} if text else {"logprobs": True, "top_logprobs": 1}
        return self._with_options(body)

    def _with_options(self, body: dict[str, Any]) -> dict[str, Any]:
        if "max_tokens" in self.options or "max_completion_tokens" in self.options:
            body.pop("max_tokens", None)
            body.pop("max_completion_tokens", None)
        return super()._with_options(body)

    def _replies(self, reply: Any, place: int, n: int) -> Iterator[Reply]:
        every = reply["choices"]
        choices = every[:n]
        usage = as_mapping(reply.get("usage"))
        tokens_in, total = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
        for at, (index, choice) in enumerate(zip(choice_places(choices, n), choices, strict=True)):
            if choice.get("finish_reason") == "content_filter":
                continue
            text, reasoning, finish = choice_content(choice)
            logprob, tokens = output_logprob(choice.get("logprobs"))
            if len(every) == 1:
                tokens = tokens if total is None else total
            elif total is not None and "timings" not in reply:  # llama.cpp has them, and counts one of several
                tokens = total // len(every) + (at < total % len(every))
            yield Reply(
                text=replace_surrogates(text),
                place=place,
                index=index,
                reasoning=None if reasoning is None else replace_surrogates(reasoning),
                finish=finish,
                logprob=logprob,
                tokens_in=tokens_in,
                tokens_out=tokens,
            )


def choice_places(choices: Sequence[Mapping[str, Any]], n: int) -> Sequence[int]:
    """Which sample each choice is: what its index says where indices can be right, else its place.

    >>> choice_places([{"index": 1}, {"index": 0}], 2), list(choice_places([{"index": 0}, {"index": 0}], 2))
    ([1, 0], [0, 1])
    """
    indices = [choice.get("index") for choice in choices]
    found = [i for i in indices if isinstance(i, int) and 0 <= i < n]
    return found if len(set(found)) == len(choices) else range(len(choices))


def choice_content(choice: Mapping[str, Any]) -> tuple[str, str | None, str | None]:
    """Text, reasoning and why it ended, of a choice of either endpoint. A refusal is what the model said.

    >>> choice_content({"text": "4", "finish_reason": "stop"})
    ('4', None, 'stop')
    >>> choice_content({"message": {"content": "4", "reasoning_content": "2+2"}, "finish_reason": "length"})
    ('4', '2+2', 'length')
    >>> choice_content({"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"})
    ('No.', None, 'refusal')
    """
    finish = choice.get("finish_reason")
    if "message" not in choice:
        return choice["text"], choice.get("reasoning"), finish
    message = choice["message"]
    content, reasoning = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    if content is None and message.get("refusal"):
        content, finish = message["refusal"], "refusal"
    return content or "", reasoning or None, finish


def output_logprob(logprobs: Any) -> tuple[float | None, int | None]:
    """The log-probability of an output and its number of tokens, from either format; none where there are none.

    >>> output_logprob({"content": [{"logprob": -0.5}, {"logprob": -0.25}]})
    (-0.75, 2)
    >>> output_logprob({"tokens": ["a"], "token_logprobs": [-1.5]}), output_logprob(None)
    ((-1.5, 1), (None, None))
    """
    if not isinstance(logprobs, dict):
        return None, None
    each = logprobs.get("token_logprobs")
    if each is None:
        each = [token.get("logprob") for token in logprobs.get("content") or ()]
    if not each:
        return None, None
    known = all(isinstance(value, int | float) and isfinite(value) for value in each)
    return fsum(each) if known else None, len(each)
