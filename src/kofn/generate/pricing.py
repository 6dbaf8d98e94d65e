"""Prices of tokens, from YAML lists (yours over the shipped ones), and token counts for replies without usage.

An unknown price is None. It is never 0: 0 is what a model on this machine costs.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from datetime import date  # noqa: TC003 - pydantic reads the annotation when it builds the class
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from kofn.core.yaml_file import Yaml
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kofn.models.base import Prompt, Reply

VARIABLE = "KOFN_PRICES"
BESIDE = "kofn-prices.yaml"
SHIPPED = Path(__file__).with_name("prices.yaml")
_MILLION = 1_000_000
# the date at the end of a model's name: -20241022, -2024-10-22, or -latest
_DATE = re.compile(r"-(?:20\d\d-?[01]\d-?[0-3]\d|latest)$")
_SERVER = re.compile(r"@https?://\S*$")
# what a tokenizer would split at: words, single digits, runs of line breaks, spaces before digits, other letters, signs
_PIECE = re.compile(r"[A-Za-z]+|[0-9]|\n+| (?=[ 0-9])|[^\x00-\x7f]|[^\sA-Za-z0-9]+")
_MESSAGE_TOKENS = 4  # a chat template's special tokens around one message


class _PriceModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LongPrice(_PriceModel):
    """The price of a request whose prompt has more than `over` tokens."""

    over: int = Field(gt=0)
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)


class Price(_PriceModel):
    """Dollars a million tokens. `cached` is input the server had in its cache; without it that costs like the rest."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    long: LongPrice | None = None

    def cost(self, tokens_in: int, tokens_out: int, cached_in: int = 0) -> float:
        """Dollars of one request.

        >>> Price(input=1, output=5).cost(2000, 100)
        0.0025
        >>> Price(input=1, output=5, cached=0.1).cost(2000, 100, cached_in=1000)
        0.0016
        """
        rate = self.long if self.long and tokens_in > self.long.over else self
        cached = rate.input if rate.cached is None else rate.cached
        return ((tokens_in - cached_in) * rate.input + cached_in * cached + tokens_out * rate.output) / _MILLION


class PriceList(_PriceModel):
    """The prices of one vendor: model or pattern -> price, when they were read and where."""

    as_of: date | None = None
    source: str | None = None
    models: dict[str, Price]


class _PriceFile(RootModel[dict[str, PriceList]]):
    pass


@dataclass(frozen=True, slots=True)
class Prices:
    """Price lists, in the order in which they are searched.

    >>> prices = Prices.shipped()
    >>> prices.cost("anthropic:claude-haiku-4-5-20251001", 1_000_000, 0)
    1.0
    >>> prices.cost("smollm2", 500, 500), prices.cost("openai:nobody-knows-it", 500, 500)
    (0.0, None)
    """

    files: tuple[Mapping[str, PriceList], ...]
    _found: dict[str, tuple[Price, PriceList] | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def shipped(cls) -> Prices:
        """The prices that come with kofn, and no others."""
        return cls((read_prices(SHIPPED),))

    @classmethod
    def load(cls, path: str | Path | None = None) -> Prices:
        """The shipped prices under those of `path`, else of the file KOFN_PRICES names, else of ./kofn-prices.yaml.

        A file that was named must be there.
        """
        named = path or os.environ.get(VARIABLE)
        own = Path(named) if named else Path(BESIDE)
        return cls((read_prices(own), read_prices(SHIPPED))) if named or own.is_file() else cls.shipped()

    @classmethod
    def for_models(cls, models: Iterable[str], max_cost: float | None, path: str | Path | None = None) -> Prices:
        """As `load`. With `max_cost` every model needs a price: else the bound could never be reached."""
        prices = cls.load(path)
        unknown = [] if max_cost is None else [model for model in models if not prices.known(model)]
        if unknown:
            raise InputError(f"max_cost: no price is known for {unknown[0]}: give --prices FILE, or --token-budget")
        return prices

    def known(self, model: str) -> bool:
        return self._entry(model) is not None

    def cost(self, model: str, tokens_in: int, tokens_out: int, *, cached_in: int = 0) -> float | None:
        """Dollars of one request, or None where the price is not known.

        `tokens_out` are those of all its outputs; the prompt is paid once, however many outputs it has.
        """
        entry = self._entry(model)
        return None if entry is None else entry[0].cost(tokens_in, tokens_out, cached_in)

    def origin(self, model: str) -> PriceList | None:
        """The list a model's price is from, with its date and source; None where the price is not known."""
        entry = self._entry(model)
        return None if entry is None else entry[1]

    def _entry(self, model: str) -> tuple[Price, PriceList] | None:
        """Looked up once per model: a run asks for the price of every reply."""
        if model not in self._found:
            self._found[model] = next((entry for file in self.files if (entry := _find(model, file))), None)
        return self._found[model]


def read_prices(path: Path) -> Mapping[str, PriceList]:
    """A price file, checked; read once as long as it does not change."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file: expected a YAML file of prices") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read: {problem.strerror}") from None


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> Mapping[str, PriceList]:
    content = Yaml(path).value
    try:
        return _PriceFile.model_validate(content or {}).root
    except ValidationError as problem:
        fault = problem.errors()[0]
        where = " > ".join(map(str, fault["loc"])) or "the whole file"
        expected = "expected vendor: {models: {MODEL: {input: 1.0, output: 5.0}}}"
        raise InputError(f"{path}: {where}: {fault['msg'].lower()}; {expected}") from None


def _find(model: str, file: Mapping[str, PriceList]) -> tuple[Price, PriceList] | None:
    """By name, by name without date or server, by the longest pattern."""
    table = {key: (price, vendor) for vendor in file.values() for key, price in vendor.models.items()}
    for name in _names(model):
        if name in table:
            return table[name]
    patterns = [key for key in table if "*" in key and fnmatchcase(model, key)]
    return table[max(patterns, key=len)] if patterns else None


def _names(model: str) -> Iterator[str]:
    """What a model may be listed as.

    A name that only begins alike is another model: gpt-4o-mini is no gpt-4o.

    >>> list(_names("openai:gpt-4o-2024-08-06"))
    ['openai:gpt-4o-2024-08-06', 'openai:gpt-4o']
    >>> list(_names("openai:gpt-4o@https://proxy.example/v1"))
    ['openai:gpt-4o@https://proxy.example/v1', 'openai:gpt-4o']
    """
    bare = _SERVER.sub("", model)
    yield from dict.fromkeys((model, bare, _DATE.sub("", bare)))


class Usage(NamedTuple):
    """Tokens of one reply; `counted` says that at least one number is our count and not the server's."""

    tokens_in: int
    tokens_out: int
    counted: bool


def usage_of(prompt: Prompt, reply: Reply) -> Usage:
    """The tokens a reply gives, and our count of those it does not.

    >>> from kofn.models.base import Reply
    >>> usage_of("2 + 2 =", Reply(text=" 4", tokens_in=6))
    Usage(tokens_in=6, tokens_out=2, counted=True)
    """
    output = reply.text if reply.reasoning is None else f"{reply.reasoning}\n{reply.text}"
    return Usage(
        prompt_tokens(prompt) if reply.tokens_in is None else reply.tokens_in,
        count_tokens(output) if reply.tokens_out is None else reply.tokens_out,
        reply.tokens_in is None or reply.tokens_out is None,
    )


def prompt_tokens(prompt: Prompt) -> int:
    """About how many tokens a prompt has; a message counts four more for the marks around it."""
    if isinstance(prompt, str):
        return count_tokens(prompt)
    return sum(count_tokens(message.content) + _MESSAGE_TOKENS for message in prompt)


def count_tokens(text: str) -> int:
    """About how many tokens a text has, without a tokenizer.

    A word counts 1 and a sixth for each letter after the seventh; digits, lines and other letters count 1 each, a
    space before a digit half; signs that stand together 1 and 0.8 for each further one. Against the embedded model's
    tokenizer, on texts the weights were not fitted to, totals err by 3% or less on prose, dialogue and mathematics,
    single texts by 2 to 5% (median), and outputs of code are counted 19% too low. A quarter of the characters, the
    usual rule, errs by 20 to 58%. Tokenizers differ: some count a third more for the same text.

    >>> count_tokens("The answer is 42."), count_tokens("")
    (7, 0)
    """
    return math.ceil(sum(map(_weight, _PIECE.findall(text))) - 1e-9)


def _weight(piece: str) -> float:
    first = piece[0]
    if not first.isascii() or first == "\n":
        return 1.0
    if first == " ":
        return 0.5
    if first.isalpha():
        return 1 + max(0, len(piece) - 7) / 6
    return 1 + 0.8 * (len(piece) - 1)
