"""The interface of a backend: `Model`, and three ways to fail.

    RetryableError     this call failed and the next may not (429, 5xx, a cut connection): the runner tries again
    RequestRejected    this request will never succeed (too long, refused by a filter): it becomes an error row
    KofnError          nothing will succeed (no key, no such model): the run stops with the message

A backend makes calls and nothing else: it keeps no state between them but its connection, never retries, and never
writes. The runner limits, repeats, stores and counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an output is drawn. None means the server's own default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat; the role is system, user or assistant."""

    role: str
    content: str


Prompt = str | tuple[Message, ...]


def as_messages(prompt: Prompt) -> tuple[Message, ...]:
    """A prompt for a server that only knows chats.

    >>> as_messages("Hi")
    (Message(role='user', content='Hi'),)
    """
    return (Message("user", prompt),) if isinstance(prompt, str) else prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`n` outputs of one prompt: a text is continued as it is, messages go through the chat template.

    Output j of a seeded request has the seed `sampling.seed + j`, where the backend has seeds. `case_id` and `repeat`
    say which case this is for and which of its repeats the first output is; a server never sees them.
    """

    prompt: Prompt
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    case_id: str | None = None
    repeat: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One output: of request `place` of the call, sample `index` of that request.

    `finish` is "stop", "length" (cut off at max_tokens) or what else the server says. `logprob` is the sum over the
    output's tokens. `tokens_in` is what the prompt of the whole request counted, on each of its replies; None where
    the server does not say.
    """

    text: str
    place: int = 0
    index: int = 0
    reasoning: str | None = None
    finish: str | None = None
    logprob: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihood:
    """How likely a continuation is: the sum over its tokens, how many they are, and whether each is the likeliest."""

    logprob: float
    tokens: int
    greedy: bool


class RetryableError(Exception):
    """The call failed and may succeed later.

    `after` is what the server asked to wait, in seconds; `busy` says that it wants fewer calls (429, overloaded), and
    `unreachable` that there was no connection at all.
    """

    def __init__(
        self, message: str, after: float | None = None, *, busy: bool = False, unreachable: bool = False
    ) -> None:
        super().__init__(message)
        self.after, self.busy, self.unreachable = after, busy, unreachable


class RequestRejected(Exception):
    """This request will never succeed; others may."""


class Model(ABC):
    """A backend. `name` is how it was asked for and holds no secret.

    batch        requests it takes in one call: 1 for a server, more where a machine computes them together
    concurrency  calls at the same time, unless the limits set another number
    chat         whether it is best asked in messages
    samples      the most outputs one request may ask for
    local        it runs on this machine and costs nothing
    """

    name: str
    batch: int = 1
    concurrency: int = 1
    chat: bool = True
    samples: int = 1
    local: ClassVar[bool] = False

    @abstractmethod
    def generate(self, requests: Sequence[Request]) -> AsyncIterator[Reply]:
        """The replies of these requests, in any order, each as soon as it is there."""

    async def loglikelihood(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:  # noqa: ARG002 - for those that can
        """How likely each continuation is after its context."""
        raise InputError(
            f"{self.name}: gives no log-likelihood of a given text: use smollm2, gguf:PATH or hf:PATH, or a task of "
            "output type generate_until"
        )

    def describe(self) -> dict[str, Any]:
        """What a manifest should say of it: files, digests, versions; never a secret."""
        return {"name": self.name}

    async def close(self) -> None:  # noqa: B027 - most have nothing to let go
        """Let connections and processes go."""
