"""Items, stages, templates and the `Recipe` protocol; the store key and the seed of each reply."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from kofn.errors import InputError
from kofn.models.base import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kofn.core.types import Case
    from kofn.models.base import Prompt

# {{, }}, {name}, or a lone brace, which is an error: a typing mistake must not be sent to a model
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[^\W\d]\w*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Template:
    """A text with named gaps. What fills a gap is text: braces in it are never looked at again.

    >>> Template("Q: {question} {{kept}}").fill({"question": "what is {x}?"})
    'Q: what is {x}? {kept}'
    >>> Template("{a.b}")
    Traceback (most recent call last):
    kofn.errors.InputError: '{a.b}': a lone brace: write {name} for a field, {{ and }} for braces
    """

    text: str
    parts: tuple[tuple[str, str | None], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts: list[tuple[str, str | None]] = []  # literal text, the name that follows it; the last one has no name
        literal, at = "", 0
        for found in _TOKEN.finditer(self.text):
            literal += self.text[at : found.start()]
            at = found.end()
            if found["name"]:
                parts.append((literal, found["name"]))
                literal = ""
            elif len(found[0]) == 2:
                literal += found[0][0]
            else:
                excerpt = self.text[max(0, found.start() - 20) : found.start() + 20]
                raise InputError(f"{excerpt!r}: a lone brace: write {{name}} for a field, {{{{ and }}}} for braces")
        object.__setattr__(self, "parts", (*parts, (literal + self.text[at:], None)))

    @property
    def names(self) -> tuple[str, ...]:
        """The fields it asks for, each once, in order."""
        return tuple(dict.fromkeys(name for _, name in self.parts if name is not None))

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with every gap filled; every name must be there."""
        return "".join(text if name is None else text + values[name] for text, name in self.parts)

    def check(self, known: Iterable[str], where: str) -> None:
        """Refuse a name that is not known, and list what there is."""
        there = list(known)
        for name in self.names:
            if name not in there:
                raise InputError(f"{where}: {{{name}}} is no field: there is {', '.join(sorted(there)) or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A case, and the fields its prompts may name."""

    case: Case
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One call per candidate. Later stages may use what earlier ones gave.

    `model` names a role ("actor", "critic") or a model. `kind` is "generate", or "choose" and "likelihood", which ask
    for the log-likelihood of the case's options, and of its reference.
    """

    name: str
    model: str = "actor"
    sampling: Sampling = field(default_factory=Sampling)
    kind: str = "generate"


class Recipe(Protocol):
    """How a task asks: its stages, and the prompt of each."""

    @property
    def stages(self) -> Sequence[Stage]: ...

    def prompt(self, item: Item, stage: int, repeat: int, outputs: Mapping[str, str], *, chat: bool) -> Prompt:
        """What is sent. `outputs` holds what earlier stages gave, by name; `chat`: the model is asked in messages."""
        ...

    def options(self, item: Item, stage: int, repeat: int) -> list[tuple[str, str]]:
        """For "choose" and "likelihood": (label or reference, continuation), in the order of this repeat."""
        ...


def seed_of(run_seed: int, case_id: str, stage: str) -> int:
    """The seed of a case's first repeat; repeat r has this plus r, so that n samples of one request are those of n.

    >>> seed_of(0, "q1", "answer") == seed_of(0, "q1", "answer") != seed_of(1, "q1", "answer")
    True
    >>> 0 <= seed_of(0, "q1", "answer") < 2**31 - 2**20
    True
    """
    digest = blake2b(f"{run_seed}\x00{case_id}\x00{stage}".encode(), digest_size=8).digest()
    # Seed plus repeat stays below 2**31, the limit of a server that keeps seeds in 32-bit integers.
    return int.from_bytes(digest, "little") % (2**31 - 2**20)


def key_of(
    model: str, stage: str, prompt: Prompt, sampling: Sampling, repeat: int, case_id: str, more: Any = None
) -> bytes:
    """The name of one reply in the store: 16 bytes of model, stage, prompt, parameters, repeat and case.

    `sampling` is that of this very repeat, its seed included, whether it is asked for alone or with others.
    """
    import orjson

    content = prompt if isinstance(prompt, str) else [[m.role, m.content] for m in prompt]
    # 16 bytes: a collision would serve the reply of another prompt, and is out of reach for any number of replies
    return blake2b(orjson.dumps([model, stage, case_id, repeat, content, sampling, more]), digest_size=16).digest()


def of_repeat(sampling: Sampling, run_seed: int | None, case_id: str, stage: str, repeat: int) -> Sampling:
    """The sampling of one repeat, with its own seed. Without a seed of the run, the stage's own is that of repeat 0.

    >>> of_repeat(Sampling(seed=7), None, "q1", "answer", 2).seed
    9
    """
    seed = sampling.seed if run_seed is None else seed_of(run_seed, case_id, stage)
    if seed is None:
        return sampling
    return Sampling(  # takes half the time of dataclasses.replace, and is called for every reply
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        stop=sampling.stop,
        seed=seed + repeat,
        logprobs=sampling.logprobs,
    )
