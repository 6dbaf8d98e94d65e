"""`anthropic:MODEL` and `anthropic:MODEL@BASE_URL`: the Anthropic Messages API.

The key is ANTHROPIC_API_KEY for api.anthropic.com and for the base URL that ANTHROPIC_BASE_URL names, KOFN_API_KEY for
every other. The API has no `n`, no seed and no log-probabilities, and a text prompt becomes one user message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.models.base import Reply, as_messages
from kofn.models.http_client import ServerModel, Vendor, as_mapping, find_address, replace_surrogates, token_count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kofn.models.base import Request

VENDOR = Vendor("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
VERSION = "2023-06-01"
OWN = frozenset({"model", "messages", "system", "stream"})
FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}
# cached tokens are not in `input_tokens`: the prompt is the sum of the three
READ = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class Anthropic(ServerModel):
    """A model behind the Messages API. `timeout` and `options` are as for `OpenAI`.

    A stop sequence of white space alone, which the API refuses, is not sent: the text is cut at it here.
    """

    own = OWN
    concurrency, samples = 8, 1  # the API has no `n`

    def __init__(self, spec: str, *, timeout: float | None = None, options: Mapping[str, Any] | None = None) -> None:
        address = find_address(spec, VENDOR)
        address = replace(address, base=address.base.rstrip("/").removesuffix("/v1"))
        key = {} if address.key is None else {"x-api-key": address.key}
        super().__init__(VENDOR, address, {"anthropic-version": VERSION, **key}, timeout, options)

    async def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """One call and one reply per request; the API has no `n`, so the runner asks again for further outputs."""
        for place, request in enumerate(requests):
            reply = await self._client.post("/v1/messages", self._body(request))
            try:
                one = _reply(reply, place, [stop for stop in request.sampling.stop if stop and not stop.strip()])
            except (KeyError, TypeError, AttributeError):
                raise self._client.malformed(reply) from None
            yield one

    def _body(self, request: Request) -> dict[str, Any]:
        sampling, messages = request.sampling, as_messages(request.prompt)
        if sampling.temperature is not None and sampling.temperature > 1:
            raise InputError(f"{self.name}: temperature {sampling.temperature:g}: the Messages API takes 0 to 1")
        system = [message.content for message in messages if message.role == "system"]
        return self._with_options(
            {
                "model": self.model,
                "max_tokens": sampling.max_tokens,
                "messages": [message for message in messages if message.role != "system"],
                "system": "\n\n".join(system) if system else None,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "stop_sequences": [stop for stop in sampling.stop if stop.strip()] or None,
            }
        )


def _reply(reply: Any, place: int, stops: Sequence[str]) -> Reply:
    blocks = reply["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    thinking = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    reason = reply.get("stop_reason")
    cut = shortest(text, stops)
    usage = as_mapping(reply.get("usage"))
    read = [n for key in READ if (n := token_count(usage.get(key))) is not None]
    return Reply(
        text=replace_surrogates(cut),
        place=place,
        reasoning=replace_surrogates(thinking) or None,
        finish="stop" if len(cut) < len(text) else FINISH.get(reason, reason),
        tokens_in=sum(read) if read else None,
        tokens_out=token_count(usage.get("output_tokens")),
    )


def shortest(text: str, stops: Sequence[str]) -> str:
    """The text up to the first of the stops.

    >>> shortest("one\\n\\ntwo three", ["\\n\\n", " "]), shortest("one", [])
    ('one', 'one')
    """
    return min((text.partition(stop)[0] for stop in stops), key=len, default=text)
