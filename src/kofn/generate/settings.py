"""`Settings`: every option of a run beside its task, with checks that need nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.runs.tags import validate_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.models.base import Model

DEFAULT_MODEL = "smollm2"
CONFIDENCE = 0.95
DEFAULT_READER = "anthropic:claude-haiku-4-5"  # reads answers where `--extract llm` names no model


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything has a default; None means what the task says.

    what is asked
      model           the actor: a name ("smollm2", "openai:gpt-4o-mini", "hf:PATH"...), a model, or a callable
      answer_model    the critic, which answers in the second of two stages (default: the actor's base model)
      repeats         candidates a case
      temperature, top_p, max_tokens, stop, chat   how outputs are drawn, in the first stage of several
      two_stage, markovian, actor_reward_weight    reason first, answer second; see docs/run.md
      compare_markovian   answer each reasoning both without and with the question, and compare
      adaptive, max_repeats, confidence            stop a case when its leading answer is safe; `repeats` is then
                      what every case gets at least
    on which cases
      data            another file or folder than the task's, or rows
      limit           the first so many; `samples`: these ids; `sample`: so many, by group, drawn with the seed
    how it is graded
      extract, metrics, aggregate, by, verdict, policy, use, threshold, interval, level
      llm_extract     a model that reads answers too, beside the extractor
    how it is run
      out             the run directory (default: runs/TASK-MODEL)
      seed, reproducible, concurrency, requests_per_second, tokens_per_minute, timeout, retries
      max_cost, max_tokens_total, max_time         stop when so much is spent
      retry_errors    ask again what failed before
      cache           take and keep replies of deterministic requests across runs
      prices          a file of prices
      progress        show it, on a terminal
      batch_size, device   for models computed on this machine
      batch_index, append_results                  for results.jsonl
      tags            words to find the run by
    """

    model: str | Model | Callable[..., Any] = DEFAULT_MODEL
    answer_model: str | Model | Callable[..., Any] | None = None
    repeats: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] | None = None
    chat: bool | None = None
    two_stage: bool = False
    markovian: bool | None = None
    actor_reward_weight: float | None = None
    compare_markovian: bool = False
    adaptive: bool = False
    max_repeats: int | None = None
    confidence: float = CONFIDENCE
    data: Path | str | Sequence[Mapping[str, Any]] | None = None
    limit: int | None = None
    samples: Sequence[str] = ()
    sample: int | None = None
    extract: str | None = None
    metrics: Sequence[str] = ()
    aggregate: Sequence[str] = ()
    by: Sequence[str] = ()
    verdict: str | None = None
    policy: str | None = None
    use: str | None = None
    threshold: float | None = None
    interval: str = "auto"
    level: float = 0.95
    llm_extract: str | Model | None = None
    out: Path | None = None
    seed: int = 0
    reproducible: bool = False
    concurrency: int | None = None
    requests_per_second: float | None = None
    tokens_per_minute: float | None = None
    timeout: float = 600.0
    retries: int = 6
    max_cost: float | None = None
    max_tokens_total: int | None = None
    max_time: float | None = None
    retry_errors: bool = False
    cache: bool = False
    prices: Path | None = None
    progress: bool = False
    batch_size: int | None = None
    device: str | None = None
    batch_index: int | None = None
    append_results: Path | None = None
    tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        validate_tags(self.tags)
        for name in ("repeats", "max_repeats", "limit", "sample", "max_tokens", "concurrency", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: expected a whole number from 1")
        for name in ("requests_per_second", "tokens_per_minute", "timeout", "max_cost", "max_tokens_total", "max_time"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}: expected a number above 0")
        if self.temperature is not None and not 0 <= self.temperature <= 5:
            raise InputError(f"temperature is {self.temperature}: expected a number from 0 to 5")
        if self.max_repeats is not None and not self.adaptive:
            raise InputError("max_repeats is for adaptive repeats: give --adaptive too, or --repeats")
        if self.markovian is not None and self.compare_markovian:
            raise InputError("compare_markovian answers in both modes: leave markovian out")
        if self.adaptive and self.compare_markovian:
            raise InputError("adaptive repeats stop by one of two answers: leave out --adaptive or --compare-markovian")
        if self.confidence != CONFIDENCE and not self.adaptive:
            raise InputError("confidence is for adaptive repeats: give --adaptive too")
        if self.samples and self.sample is not None:
            raise InputError("samples names the cases and sample draws some: give one of the two")
        if self.repeats is not None and self.max_repeats is not None and self.repeats > self.max_repeats:
            raise InputError(f"repeats ({self.repeats}) is more than max_repeats ({self.max_repeats})")


def make_settings(given: Settings | None, options: Mapping[str, Any]) -> Settings:
    """Settings from keywords; an unknown one is named with the nearest.

    >>> make_settings(None, {"repeats": 3}).repeats
    3
    >>> make_settings(None, {"repeat": 3})
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown option 'repeat': did you mean repeats or max_repeats?
    """
    from dataclasses import replace

    known = [f.name for f in fields(Settings)]
    for name in options:
        if name not in known:
            raise UnknownName("option", name, known)
    values = dict(options)  # in Python paths are often given as text
    for name in ("out", "prices", "append_results"):
        if isinstance(values.get(name), str):
            values[name] = Path(values[name])
    return replace(given, **values) if given is not None else Settings(**values)


def run_mode(settings: Settings) -> str:
    """How a run was made: bit for bit the same every time, or as fast as the machine can."""
    return "reproducible" if settings.reproducible else "fast"


def data_path(settings: Settings) -> Path | None:
    """The file or folder to read instead of the task's own. Records given in Python are part of the task by now."""
    return Path(settings.data) if isinstance(settings.data, str | Path) else None
